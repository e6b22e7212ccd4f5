"""Constant folding over values: what a value is once compile-time constants are known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from d2k.spec.facts import NONE, Body, Constant, Kind

MAX_BITS = 128
"""Results wider than this are given up: shifts and powers in hostile sources could take all memory."""

FOLDED = frozenset({Kind.ELEMENTWISE, Kind.CAST, Kind.FULL})
"""Kinds whose operands folding looks at."""

Number = bool | int | float


def _floordiv(a: Number, b: Number) -> Number:
    return a // b


def _shift(shift: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    def run(a: Number, b: Number) -> Number:
        if not (isinstance(a, int) and isinstance(b, int)) or not 0 <= b < MAX_BITS:
            raise ArithmeticError
        return shift(a, b)

    return run


def _bits(combine: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    def run(a: Number, b: Number) -> Number:
        if not (isinstance(a, int) and isinstance(b, int)):
            raise ArithmeticError
        return combine(a, b)

    return run


BINARY: Mapping[str, Callable[[Number, Number], Number]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": _floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
    "shl": _shift(operator.lshift),
    "shr": _shift(operator.rshift),
    "and": _bits(operator.and_),
    "or": _bits(operator.or_),
    "xor": _bits(operator.xor),
}

COMPARE: Mapping[str, Callable[[Number, Number], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def apply(name: str, values: tuple[Constant, ...]) -> Constant:
    """The result of elementwise operation `name`, None if it is not defined for these values."""
    if name in ("eq", "ne") and len(values) == 2:
        return (values[0] == values[1]) is (name == "eq")
    numbers = tuple(value for value in values if isinstance(value, (int, float)))
    if len(numbers) != len(values):
        return None
    try:
        result = _apply(name, numbers)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(result, int) and result.bit_length() > MAX_BITS:
        return None
    return result


def _apply(name: str, numbers: tuple[Number, ...]) -> Constant:
    match numbers:
        case (a, b) if name in BINARY:
            return BINARY[name](a, b)
        case (a, b) if name in COMPARE:
            return COMPARE[name](a, b)
        case (a,) if name == "neg":
            return -a
        case (a,) if name == "not":
            return not a
        case (a,) if name == "abs":
            return abs(a)
        case (condition, yes, no) if name == "where":
            return yes if condition else no
    return None


def foldable(body: Body) -> tuple[bool, ...]:
    """For each value whether it can be a constant at all: whether every operand that folding needs can."""
    found: list[bool] = []
    for op in body.ops:
        if op.kind in FOLDED and op.name != "bitcast" and op.args:
            needed = op.args if op.kind is Kind.ELEMENTWISE else op.args[:1]
            # whether two values differ is told of what is no number too
            compares = op.kind is Kind.ELEMENTWISE and op.name in ("eq", "ne")
            found.append(compares or all(arg != NONE and found[arg] for arg in needed))
        else:
            found.append(op.kind in (Kind.CONST, Kind.PARAM))
    return tuple(found)


def fold(body: Body, value: int, constants: Mapping[str, Constant]) -> Constant:
    """The constant that `value` is under `constants`, or None. None, as a constant of the source, folds to None too."""
    known: dict[int, Constant] = {}
    stack = [value]
    while stack:
        at = stack[-1]
        if at in known or at == NONE:
            stack.pop()
            continue
        op = body.ops[at]
        if op.kind is Kind.CONST:
            constant = op.attrs.get("value")
            known[at] = None if isinstance(constant, tuple) else constant
        elif op.kind is Kind.PARAM:
            known[at] = constants.get(op.name)
        elif op.kind in FOLDED and op.name != "bitcast":
            # operands come before their user, except through a loop's phi, which never folds: no cycle is possible
            missing = [arg for arg in op.args if arg != NONE and arg not in known]
            if missing:
                stack.extend(missing)
                continue
            values = tuple(known[arg] if arg != NONE else None for arg in op.args)
            known[at] = apply(op.name, values) if op.kind is Kind.ELEMENTWISE else (values[0] if values else None)
        else:
            known[at] = None
        stack.pop()
    return known.get(value)
