"""Polynomials in one variable, as sums and products of constants and a value."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.spec.facts import Kind

MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Polynomial:
    """`degree` in `variable` (None for a constant), with so many constant coefficients other than 0 and 1."""

    degree: int
    variable: int | None
    coefficients: int


def polynomial(view: BodyView, value: int) -> Polynomial | None:
    """`value` as a polynomial of degree two or more with constant coefficients; None if it is none."""
    found = _read(view, value, {}, 0)
    return found if found is not None and found.degree >= 2 and found.coefficients >= found.degree else None


def _read(view: BodyView, value: int, known: dict[int, Polynomial | None], depth: int) -> Polynomial | None:
    if value not in known:
        known[value] = None
        known[value] = _inner(view, value, known, depth) if depth < MAX_DEPTH else None
    return known[value]


def _inner(view: BodyView, value: int, known: dict[int, Polynomial | None], depth: int) -> Polynomial | None:
    constant = view.fold(value)
    if isinstance(constant, (int, float)):
        return Polynomial(0, None, int(constant not in (0, 1)))
    op = view.op(value)
    if op.kind in (Kind.CAST, Kind.SHAPE) and op.args and op.name in ("cast", "expand_dims", "broadcast", "mov"):
        return _read(view, op.args[0], known, depth + 1)
    parts = [_read(view, arg, known, depth + 1) for arg in op.args] if op.kind is Kind.ELEMENTWISE else []
    if op.name in ("add", "sub", "mul", "fma") and all(part is not None for part in parts) and len(parts) >= 2:
        combined = _combined(op.name, [part for part in parts if part is not None])
        if combined is not None:
            return combined
    # anything else is the variable itself, such as the difference of a value and its whole part
    return Polynomial(1, value, 0)


def _combined(name: str, parts: list[Polynomial]) -> Polynomial | None:
    variables = {part.variable for part in parts if part.variable is not None}
    if len(variables) > 1:
        return None
    variable = next(iter(variables), None)
    count = sum(part.coefficients for part in parts)
    if name == "mul":
        degree = parts[0].degree + parts[1].degree
    elif name == "fma":
        degree = max(parts[0].degree + parts[1].degree, parts[2].degree)
    else:
        degree = max(part.degree for part in parts)
    return Polynomial(degree, variable, count)
