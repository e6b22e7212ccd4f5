"""Exponentials and the differences in their exponents, such as `exp2(s * scale - m)`."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.spec.facts import NONE, Kind

EXPONENTIALS = ("exp", "exp2")
MAX_TERMS = 64


@dataclass(frozen=True, slots=True)
class Difference:
    """Terms that an exponent adds and subtracts; constant factors are left out."""

    plus: tuple[int, ...]
    minus: tuple[int, ...]


def exponentials(view: BodyView) -> tuple[int, ...]:
    """Values computed by exp or exp2, in program order."""
    return view.values(Kind.ELEMENTWISE, name=EXPONENTIALS)


def difference(view: BodyView, value: int) -> Difference:
    """`value` as a sum of terms, through casts, broadcasts, selections and multiplications by a scale."""
    plus: list[int] = []
    minus: list[int] = []
    stack = [(value, 1)]
    seen: set[tuple[int, int]] = set()
    while stack and len(seen) < MAX_TERMS:
        at, sign = stack.pop()
        if (at, sign) in seen or at == NONE:
            continue
        seen.add((at, sign))
        inner = _inner(view, at, sign)
        if inner:
            stack.extend(inner)
        elif not isinstance(view.fold(at), (int, float)):
            (plus if sign > 0 else minus).append(at)
    return Difference(tuple(dict.fromkeys(plus)), tuple(dict.fromkeys(minus)))


def _inner(view: BodyView, value: int, sign: int) -> list[tuple[int, int]]:
    """The terms that `value` is made of, with signs; [] if it is a term itself."""
    op = view.op(value)
    if op.kind in (Kind.CAST, Kind.SHAPE) and op.args and op.name not in ("index", "split", "join", "cat"):
        return [(op.args[0], sign)]
    if op.kind is not Kind.ELEMENTWISE:
        return []
    match op.name, op.args:
        case "add", (a, b):
            return [(a, sign), (b, sign)]
        case "sub", (a, b):
            return [(a, sign), (b, -sign)]
        case "neg", (a,):
            return [(a, -sign)]
        case "where", (_, yes, no):
            return [(yes, sign), (no, sign)]
        case "fma", (a, b, c):
            product = _factor(view, a, b, sign)
            return [*(product or [(a, sign)]), (c, sign)]
        case (("min" | "max"), (a, b)) if _is_number(view, a) or _is_number(view, b):
            return [(b if _is_number(view, a) else a, sign)]
        case ("mul", (a, b)) | ("div", (a, b)):
            return _factor(view, a, b, sign) or []
    return []


def _is_number(view: BodyView, value: int) -> bool:
    return isinstance(view.fold(value), (int, float))


def _factor(view: BodyView, a: int, b: int, sign: int) -> list[tuple[int, int]] | None:
    """The term behind a product with a scale: a constant, a parameter or something that is no tile."""
    for factor, rest in ((b, a), (a, b)):
        constant = view.fold(factor)
        if isinstance(constant, (int, float)):
            return [(rest, sign if constant >= 0 else -sign)]
    for factor, rest in ((b, a), (a, b)):
        if is_scale(view, factor):
            return [(rest, sign)]
    return None


def is_scale(view: BodyView, value: int) -> bool:
    """A scalar made of parameters and constants only, such as `sm_scale * 1.44269504`."""
    parts = tuple(view.walk(value, lambda op: op.kind in (Kind.ELEMENTWISE, Kind.CAST)))
    if any(view.op(at).kind is Kind.ELEMENTWISE and view.op(at).name in ("neg", "sub") for at in parts):
        return False
    return all(view.op(at).kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.PARAM, Kind.CONST) for at in parts)
