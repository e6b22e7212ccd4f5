"""The evaluator: right values, and an error instead of a wrong, endless or huge one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d2k.spec.evaluator import INTEGER_LIMIT, LIST_LIMIT, Budget, evaluate
from d2k.spec.expression import (
    Among,
    Binary,
    Boolean,
    Call,
    Comprehension,
    Conditional,
    Expression,
    ExpressionError,
    Fault,
    Function,
    Has,
    Index,
    Name,
    Number,
    Sequence,
    Type,
    Unary,
)
from d2k.spec.hardware import ARCHITECTURES
from d2k.spec.inference import infer


def n(value: float) -> Number:
    return Number(value)


def call(function: str, *arguments: Expression) -> Call:
    return Call(function, arguments)


LENS = Sequence((n(3), n(1), n(2)))
CASES: list[tuple[Expression, object]] = [
    (Binary("//", n(-7), n(2)), -4),  # rounds down, so that -(-a // b) rounds up
    (Binary("%", n(-7), n(2)), 1),
    (Binary("/", n(7), n(2)), 3.5),
    (Binary("**", n(2), n(62)), 2**62),
    (Binary("**", n(-1), n(10**9)), 1),
    (Binary("**", n(2.0), n(-1)), 0.5),
    (Binary("+", LENS, Sequence((n(9),))), (3, 1, 2, 9)),
    (Binary("==", n(1), n(1.0)), True),
    (Binary("and", Boolean(False), Binary(">", Binary("//", n(1), n(0)), n(0))), False),
    (Binary("or", Boolean(True), Binary(">", Binary("//", n(1), n(0)), n(0))), True),
    (Conditional(Boolean(False), Binary("//", n(1), n(0)), n(5)), 5),
    (Comprehension(Binary("*", Name("x"), Name("x")), "x", LENS), (9, 1, 4)),
    (Index(LENS, n(0)), 3),
    (Among(n(2), (n(1), n(2))), True),
    (Unary("-", n(3)), -3),
    (Unary("not", Boolean(True)), False),
    (call("min", LENS), 1),
    (call("max", n(1), n(2.5)), 2.5),
    (call("sum", LENS), 6),
    (call("sum", Sequence(())), 0),
    (call("len", LENS), 3),
    (call("range", n(3)), (0, 1, 2)),
    (call("cat", LENS, n(7)), (3, 1, 2, 7)),
    (call("ceil", n(2.1)), 3),
    (call("floor", n(-2.1)), -3),
    (call("abs", n(-2)), 2),
    (call("sqrt", n(9)), 3.0),
    (call("log2", n(8)), 3.0),
    (call("exp", n(0)), 1.0),
    (call("any", Sequence((Boolean(False), Boolean(True)))), True),
    (call("all", Sequence((Boolean(False), Boolean(True)))), False),
]


@pytest.mark.parametrize(("node", "value"), CASES)
def test_values(node: Expression, value: object) -> None:
    infer(node, {}, {})
    found = evaluate(node, {}, {})
    assert found == value
    assert type(found) is type(value)


FAULTS: list[tuple[Expression, Fault]] = [
    (Binary("//", n(1), n(0)), Fault.DIVISION_BY_ZERO),
    (Binary("%", n(1), n(0)), Fault.DIVISION_BY_ZERO),
    (Binary("/", n(1), n(0.0)), Fault.DIVISION_BY_ZERO),
    (Binary("**", n(0.0), n(-1)), Fault.DIVISION_BY_ZERO),
    (Binary("*", n(2**40), n(2**40)), Fault.OVERFLOW),
    (Binary("**", n(2), n(2**60)), Fault.OVERFLOW),
    (Binary("**", n(2), n(63)), Fault.OVERFLOW),
    (Binary("**", n(10.0), n(400)), Fault.OVERFLOW),
    (call("exp", n(1000)), Fault.OVERFLOW),
    (Binary("*", n(1e300), n(1e300)), Fault.OVERFLOW),
    (Binary("**", n(2), n(-1)), Fault.DOMAIN),
    (Binary("**", n(-2.0), n(0.5)), Fault.DOMAIN),
    (call("sqrt", n(-1)), Fault.DOMAIN),
    (call("log2", n(0)), Fault.DOMAIN),
    (call("range", n(-1)), Fault.DOMAIN),
    (call("min", Sequence(())), Fault.DOMAIN),
    (Index(LENS, n(3)), Fault.DOMAIN),
    (Index(LENS, n(-1)), Fault.DOMAIN),
    (call("range", n(LIST_LIMIT + 1)), Fault.TOO_LONG),
    (call("cat", call("range", n(LIST_LIMIT)), n(1)), Fault.TOO_LONG),
]


@pytest.mark.parametrize(("node", "fault"), FAULTS)
def test_faults_point_at_their_node(node: Expression, fault: Fault) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate(Binary("+", n(1), node), {}, {})
    assert error.value.fault is fault
    assert error.value.node is node


def test_work_is_bounded_although_each_list_is_short() -> None:
    inner: Expression = n(1)
    for depth in range(4):  # 1000 ** 4 elements in turn, never more than 1000 at once
        inner = call("sum", Comprehension(inner, f"x{depth}", call("range", n(1000))))
    with pytest.raises(ExpressionError) as error:
        evaluate(inner, {}, {}, Budget(100_000))
    assert error.value.fault is Fault.TOO_MUCH_WORK


def test_functions_see_only_their_parameters() -> None:
    square = Function("square", ("x",), Binary("*", Name("x"), Name("x")))
    assert evaluate(call("square", n(7)), {"x": 100}, {"square": square}) == 49


def test_an_error_inside_a_function_is_told_at_the_call() -> None:
    divide = Function("divide", ("a", "b"), Binary("//", Name("a"), Name("b")))
    node = call("divide", n(1), n(0))
    with pytest.raises(ExpressionError, match="in `divide`: division by zero") as error:
        evaluate(node, {}, {"divide": divide})
    assert error.value.node is node


def test_architectures_compare_by_generation_and_have_features() -> None:
    scope = {"arch": ARCHITECTURES["sm120"], **ARCHITECTURES}
    assert evaluate(Binary(">=", Name("arch"), Name("sm100")), scope, {}) is True
    assert evaluate(Binary("==", Name("arch"), Name("sm100")), scope, {}) is False
    assert evaluate(Has(Name("arch"), ("tma",)), scope, {}) is True
    assert evaluate(Has(Name("arch"), ("tma", "tcgen05")), scope, {}) is False


# ---- totality: whatever is well typed has a value or an error, quickly


def expressions() -> st.SearchStrategy[Expression]:
    leaves = st.one_of(
        st.integers(-(2**63) + 1, 2**63 - 1).map(Number),
        st.floats(allow_nan=False, allow_infinity=False).map(Number),
        st.integers(-3, 70).map(Number),
        st.booleans().map(Boolean),
        st.sampled_from(["a", "list", "x"]).map(Name),
    )
    arithmetic = ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    functions = ["min", "max", "sum", "len", "range", "cat", "abs", "ceil", "floor", "sqrt", "log2", "exp", "twice"]

    def extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        return st.one_of(
            st.builds(Binary, st.sampled_from(arithmetic), inner, inner),
            st.builds(Unary, st.sampled_from(["-", "not"]), inner),
            st.builds(Conditional, inner, inner, inner),
            st.builds(Sequence, st.lists(inner, max_size=3).map(tuple)),
            st.builds(Comprehension, inner, st.just("x"), inner),
            st.builds(Index, inner, inner),
            st.builds(Call, st.sampled_from(functions), st.lists(inner, min_size=1, max_size=3).map(tuple)),
        )

    return st.recursive(leaves, extend, max_leaves=12)


TWICE = {"twice": Function("twice", ("x",), Binary("+", Name("x"), Name("x")))}


@given(expressions())
@settings(max_examples=300, deadline=2000)
def test_every_well_typed_expression_has_a_bounded_value_or_an_error(node: Expression) -> None:
    try:
        kind = infer(node, {"a": Type.INT, "list": Type.INTS}, TWICE)
        value = evaluate(node, {"a": 7, "list": (1, 2, 3)}, TWICE, Budget(100_000))
    except ExpressionError:
        return
    values = value if isinstance(value, tuple) else (value,)
    assert len(values) <= LIST_LIMIT
    for one in values:
        assert isinstance(one, bool | int | float)
        assert abs(one) < INTEGER_LIMIT if isinstance(one, int) else math.isfinite(one)
    if kind is Type.INT:
        assert type(value) is int
    if kind is Type.BOOL:
        assert type(value) is bool
    if kind in (Type.INTS, Type.FLOATS, Type.BOOLS):
        assert isinstance(value, tuple)
