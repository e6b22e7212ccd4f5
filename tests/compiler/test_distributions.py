"""Distributions: arithmetic around a family, and what a family asks of its arguments and its tensor."""

from __future__ import annotations

import pytest

from d2k.compiler.distributions import FAMILIES, NotAffine, distribution_problem, split
from d2k.spec.evaluator import evaluate
from d2k.spec.expression import Binary, Call, Expression, Number, Unary
from d2k.spec.task import Distribution, Value

NORMAL = Call("normal", ())


def n(value: float) -> Expression:
    return Number(value)


@pytest.mark.parametrize(
    ("node", "scale", "shift"),
    [
        (NORMAL, 1, 0),
        (Binary("*", n(2), NORMAL), 2, 0),
        (Binary("/", NORMAL, n(4)), 0.25, 0),
        (Unary("-", NORMAL), -1, 0),
        (Binary("+", NORMAL, n(3)), 1, 3),
        (Binary("+", n(3), NORMAL), 1, 3),
        (Binary("-", NORMAL, n(3)), 1, -3),
        (Binary("-", n(3), NORMAL), -1, 3),
        (Binary("*", Binary("+", NORMAL, n(3)), n(2)), 2, 6),
        (Binary("-", n(1), Binary("/", Binary("-", n(5), NORMAL), n(2))), 0.5, -1.5),
    ],
)
def test_arithmetic_becomes_scale_and_shift(node: Expression, scale: float, shift: float) -> None:
    found = split(node)
    assert found.call == NORMAL
    assert evaluate(found.scale, {}, {}) == scale
    assert evaluate(found.shift, {}, {}) == shift


@pytest.mark.parametrize(
    "node",
    [
        n(1),
        Binary("+", NORMAL, NORMAL),
        Binary("*", NORMAL, Call("uniform", ())),
        Binary("/", n(1), NORMAL),
        Binary("**", NORMAL, n(2)),
        Call("exp", (NORMAL,)),
        Call("gauss", ()),
    ],
)
def test_anything_else_is_refused(node: Expression) -> None:
    with pytest.raises(NotAffine):
        split(node)


def problem(family: str, dtype: str, shape: tuple[int, ...], scale: float = 1.0, **arguments: Value) -> str | None:
    return distribution_problem(Distribution(family, arguments, scale), dtype, shape)


def test_fitting_distributions_have_no_problem() -> None:
    assert problem("normal", "bf16", (4,)) is None
    assert problem("randint", "f32", (4,), low=0, high=0) is None
    assert problem("bernoulli", "bool", (4,), p=1.0) is None
    assert problem("choice", "i32", (4,), among=(20, 40)) is None
    assert problem("choice", "f32", (4,), among=(0.5,)) is None
    assert problem("values", "i32", (2, 2), list=(1, 2, 3, 4)) is None
    assert problem("offsets", "i32", (3,), lens=(4, 5)) is None
    assert problem("pages", "i32", (2, 3), lens=(4, 9), page=3, unused=-1) is None
    assert problem("injection", "i64", (4,), count=4) is None
    assert problem("randint", "i32", (4,), scale=2.0, low=0, high=3) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (problem("normal", "i32", (4,)), "draws real numbers"),
        (problem("choice", "i32", (4,), among=(0.5,)), "gives real numbers"),
        (problem("choice", "i32", (4,), among=()), "empty list"),
        (problem("randint", "i32", (4,), scale=0.5, low=0, high=3), "multiples of 0.5"),
        (problem("randint", "i32", (4,), low=3, high=0), "above the upper bound"),
        (problem("log_uniform", "f32", (4,), low=0.0, high=1.0), "must be positive"),
        (problem("bernoulli", "f32", (4,), p=1.5), "between 0 and 1"),
        (problem("values", "i32", (2, 2), list=(1, 2, 3)), "3 values for a tensor of 4 elements"),
        (problem("offsets", "i32", (2,), lens=(4, 5)), "3 values for a tensor of 2 elements"),
        (problem("pages", "i32", (2, 2), lens=(4, 9), page=3, unused=-1), "at least 3 columns"),
        (problem("pages", "i32", (2, 3), lens=(4, 9), page=0, unused=-1), "at least one token"),
        (problem("pages", "i32", (1, 3), lens=(-4,), page=3, unused=-1), "negative"),
        (problem("zipf", "i64", (4,), exponent=0.0, count=5), "must be positive"),
        (problem("injection", "i64", (4,), count=3), "cannot draw 4 different values out of 3"),
    ],
)
def test_problems_are_told_in_words(found: str | None, words: str) -> None:
    assert found is not None
    assert words in found


def test_every_family_says_what_it_is() -> None:
    assert all(one.meaning and one.name == name for name, one in FAMILIES.items())
