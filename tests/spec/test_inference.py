"""Types of expressions; the many ways to get them wrong stand in tests/compiler/semantic/types.d2k."""

from __future__ import annotations

import pytest

from d2k.spec.expression import (
    Binary,
    Boolean,
    Call,
    Comprehension,
    Conditional,
    Duration,
    Expression,
    ExpressionError,
    Function,
    Name,
    Number,
    Sequence,
    Type,
)
from d2k.spec.inference import accepts, infer

ONE, HALF = Number(1), Number(0.5)
INTS, FLOATS = Sequence((ONE,)), Sequence((ONE, HALF))


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (Binary("+", ONE, ONE), Type.INT),
        (Binary("+", ONE, HALF), Type.FLOAT),
        (Binary("/", ONE, ONE), Type.FLOAT),
        (Binary("//", ONE, ONE), Type.INT),
        (Binary("<", ONE, HALF), Type.BOOL),
        (Conditional(Boolean(True), ONE, HALF), Type.FLOAT),
        (INTS, Type.INTS),
        (FLOATS, Type.FLOATS),
        (Sequence(()), Type.INTS),
        (Binary("+", INTS, FLOATS), Type.FLOATS),
        (Comprehension(Binary(">", Name("x"), ONE), "x", INTS), Type.BOOLS),
        (Call("sum", (FLOATS,)), Type.FLOAT),
        (Call("max", (ONE, ONE)), Type.INT),
        (Call("max", (ONE, HALF)), Type.FLOAT),
        (Call("ceil", (HALF,)), Type.INT),
        (Call("sqrt", (ONE,)), Type.FLOAT),
        (Call("cat", (ONE, FLOATS)), Type.FLOATS),
        (Binary("/", Duration(1e-6, "1us"), Duration(1e-3, "1ms")), Type.FLOAT),
        (Binary("*", ONE, Duration(1e-6, "1us")), Type.DURATION),
    ],
)
def test_types(node: Expression, kind: Type) -> None:
    assert infer(node, {}, {}) is kind


def test_a_function_is_typed_anew_for_other_arguments() -> None:
    double = {"double": Function("double", ("x",), Binary("+", Name("x"), Name("x")))}
    assert infer(Call("double", (ONE,)), {}, double) is Type.INT
    assert infer(Call("double", (HALF,)), {}, double) is Type.FLOAT
    assert infer(Call("double", (INTS,)), {}, double) is Type.INTS
    with pytest.raises(ExpressionError, match="in `double`: `\\+` needs numbers; this is a truth value"):
        infer(Call("double", (Boolean(True),)), {}, double)


def test_functions_that_double_the_work_at_each_level_are_typed_in_linear_time() -> None:
    functions = {"f0": Function("f0", ("x",), Name("x"))}
    for level in range(1, 60):
        below = Call(f"f{level - 1}", (Name("x"),))
        functions[f"f{level}"] = Function(f"f{level}", ("x",), Binary("+", below, below))
    assert infer(Call("f59", (ONE,)), {}, functions) is Type.INT


def test_a_recursive_function_is_an_error() -> None:
    loop = {"loop": Function("loop", ("x",), Call("loop", (Name("x"),)))}
    with pytest.raises(ExpressionError, match="calls itself"):
        infer(Call("loop", (ONE,)), {}, loop)


def test_integers_pass_for_real_numbers_but_not_the_other_way() -> None:
    assert accepts(Type.FLOAT, Type.INT)
    assert accepts(Type.FLOATS, Type.INTS)
    assert not accepts(Type.INT, Type.FLOAT)
    assert not accepts(Type.INT, Type.BOOL)
