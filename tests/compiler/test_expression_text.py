"""Expressions as text: what is rendered reads back as the same record, with no parenthesis too many."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2k.compiler import syntax
from d2k.compiler.lowering import Places, lower
from d2k.compiler.parse import parse
from d2k.spec.expression import (
    Among,
    Binary,
    Boolean,
    Call,
    Comprehension,
    Conditional,
    Expression,
    Has,
    Index,
    Name,
    Number,
    Sequence,
    Text,
    Unary,
    free_names,
    render,
)


def read(text: str) -> Expression:
    parsed = parse(f"fn f(x) = {text}\n", "e.d2k")
    assert parsed.diagnostics == ()
    (function,) = parsed.tree.every(syntax.Function)
    return lower(function.body, Places(), {})


@pytest.mark.parametrize(
    "text",
    [
        "2 * M * N * K + 12 * M * N",
        "(a + b) * c",
        "a - (b - c)",
        "a - b - c",
        "a // (b // c)",
        "-a ** 2",
        "(-a) ** 2",
        "a ** b ** c",
        "(a ** b) ** c",
        "a ** -b",
        "-(a // b)",
        "not (a and b) or c",
        "a < b and not c == d",
        "(if a then b else c) + 1",
        "if a then b else c + 1",
        "sum(cdiv(n, page) for n in lens)",
        "[n * 2 for n in lens][0]",
        "(a + b)[0]",
        "pages(lens, page, unused = -1)",
        "arch has {tma, cluster} and arch in {sm90, sm100}",
        "[65536] + rep(1024, 31)",
        '"a \\"quoted\\" text"',
        "1e-06 + 0.5",
    ],
)
def test_canonical_text_stays_as_it_is(text: str) -> None:
    assert render(read(text)) == text


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("((a))+( b*c )", "a + b * c"),
        ("64KiB", "65536"),
        ("1_000", "1000"),
        ("99.9%", "0.999"),
        ("5us", "5us"),
        ("f([n for n in lens])", "f(n for n in lens)"),
        ("arch has {tma}", "arch has tma"),
    ],
)
def test_other_spellings_become_canonical(written: str, canonical: str) -> None:
    assert render(read(written)) == canonical


def records() -> st.SearchStrategy[Expression]:
    names = st.sampled_from(["a", "b", "lens", "weight"]).map(Name)
    numbers = st.one_of(st.integers(0, 2**63 - 1), st.floats(0, 1e300, allow_nan=False)).map(Number)
    leaves = st.one_of(names, numbers, st.booleans().map(Boolean), st.text(max_size=5).filter(_plain).map(Text))
    binary = ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"]

    def extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        several = st.lists(inner, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Binary, st.sampled_from(binary), inner, inner),
            st.builds(Unary, st.sampled_from(["-", "not"]), inner),
            st.builds(Conditional, inner, inner, inner),
            st.builds(Sequence, several),
            st.builds(Comprehension, inner, st.just("n"), inner),
            st.builds(Index, inner, inner),
            st.builds(Call, st.just("f"), several),
            st.builds(Call, st.just("f"), several, st.tuples(st.tuples(st.just("key"), inner))),
            st.builds(Among, inner, st.lists(inner, min_size=1, max_size=3).map(tuple)),
            st.builds(Has, inner, st.sampled_from([("tma",), ("tma", "cluster")])),
        )

    return st.recursive(leaves, extend, max_leaves=15)


def _plain(text: str) -> bool:
    return all(character == "\n" or character.isprintable() for character in text)


@given(records())
def test_rendered_text_reads_back_as_the_same_record(node: Expression) -> None:
    assert read(render(node)) == node


def test_a_name_bound_by_a_comprehension_is_not_free() -> None:
    assert set(free_names(read("sum(n * k for n in lens) + n"))) == {"k", "lens", "n"}
    assert set(free_names(read("sum(n * k for n in lens)"))) == {"k", "lens"}


def test_every_record_knows_its_place() -> None:
    parsed = parse("fn f(x) = x + cdiv(x, 2)\n", "e.d2k")
    places = Places()
    (function,) = parsed.tree.every(syntax.Function)
    whole = lower(function.body, places, {})
    assert isinstance(whole, Binary)
    assert places.of(whole.right, function.span).text == "cdiv(x, 2)"
    assert places.of(msgspec.structs.replace(whole, op="-"), function.span).text == "x"  # of its first placed part
