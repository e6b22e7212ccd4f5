"""Polynomials are recognised whatever the order in which they are evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2k.analyzers.core.view import BodyGraph, BodyView
from d2k.analyzers.patterns.horner import polynomial
from d2k.spec.facts import Body, Constant, Kind, Op, Place

HERE = Place("k.py", 1, 1)


class Ops:
    """Builds a body operation by operation; value 0 is the variable."""

    def __init__(self) -> None:
        self.ops = [Op(Kind.PARAM, "x", (), HERE), Op(Kind.PARAM, "y", (), HERE)]

    def add(self, kind: Kind, name: str, args: tuple[int, ...] = (), value: Constant = None) -> int:
        self.ops.append(Op(kind, name, args, HERE, {} if value is None else {"value": value}))
        return len(self.ops) - 1

    def const(self, value: float) -> int:
        return self.add(Kind.CONST, "", (), value)

    def op(self, name: str, *args: int) -> int:
        return self.add(Kind.ELEMENTWISE, name, args)

    def view(self) -> BodyView:
        return BodyView(BodyGraph(Body(tuple(self.ops), ())), {})


coefficients = st.lists(st.floats(2, 9), min_size=3, max_size=8)


@given(coefficients)
def test_horner_scheme(numbers: list[float]) -> None:
    ops = Ops()
    value = ops.const(numbers[0])
    for number in numbers[1:]:
        value = ops.op("fma", value, 0, ops.const(number))
    found = polynomial(ops.view(), value)
    assert found is not None
    assert (found.degree, found.variable) == (len(numbers) - 1, 0)


@given(coefficients)
def test_sum_of_powers(numbers: list[float]) -> None:
    ops = Ops()
    power, value = 0, ops.const(numbers[0])
    for number in numbers[1:]:
        value = ops.op("add", value, ops.op("mul", ops.const(number), power))
        power = ops.op("mul", power, 0)
    found = polynomial(ops.view(), value)
    assert found is not None
    assert found.degree == len(numbers) - 1


@pytest.mark.parametrize("name", ["mul", "add"])
def test_two_variables_are_one_unknown(name: str) -> None:
    ops = Ops()
    mixed = ops.op(name, 0, 1)
    squared = ops.op("mul", mixed, mixed)
    value = ops.op("fma", squared, ops.const(3.0), ops.op("fma", mixed, ops.const(2.0), ops.const(5.0)))
    found = polynomial(ops.view(), value)
    assert found is not None
    assert (found.degree, found.variable) == (2, mixed)


def test_a_line_is_no_polynomial_to_speak_of() -> None:
    ops = Ops()
    line = ops.op("fma", 0, ops.const(2.0), ops.const(3.0))
    assert polynomial(ops.view(), line) is None
