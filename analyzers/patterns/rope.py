"""Rotary embedding: two halves of a vector turned by a cosine and a sine, x1*c - x2*s and x2*c + x1*s."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import Kind


@dataclass(frozen=True, slots=True)
class Rotation:
    """`value` is one rotated component; `cosine` and `sine` are its factors, `left` and `right` the parts they
    multiply."""

    value: int
    cosine: int
    sine: int
    left: int
    right: int


@memo
def rotations(view: BodyView) -> tuple[Rotation, ...]:
    """Sums and differences a*c ± b*s whose factors c and s also occur crosswise, or whose factors are sin and cos."""
    pairs = [
        pair for value in view.values(Kind.ELEMENTWISE, name=("add", "sub", "fma")) for pair in _pairs(view, value)
    ]
    found: list[Rotation] = []
    for value, (a, c), (b, s) in pairs:
        for _, (a2, s2), (b2, c2) in pairs:
            # crosswise: the same data, the factors exchanged
            if {a2, b2} == {a, b} and {s2, c2} == {s, c} and (a2, s2) not in ((a, c), (b, s)) and c != s and a != b:
                found.append(Rotation(value, c, s, a, b))
                break
    return tuple(found)


def _pairs(view: BodyView, value: int) -> list[tuple[int, tuple[int, int], tuple[int, int]]]:
    """a*c ± b*s as all the ways to call one factor of each product the data."""
    op = view.op(value)
    if len(op.args) != (3 if op.name == "fma" else 2):
        return []
    if op.name == "fma":
        first, rest = (op.args[0], op.args[1]), op.args[2]
        second = _product(view, rest)
    else:
        one, second = _product(view, op.args[0]), _product(view, op.args[1])
        if one is None:
            return []
        first = one
    if second is None:
        return []
    f, g = (view.strip(first[0]), view.strip(first[1])), (view.strip(second[0]), view.strip(second[1]))
    return [(value, left, right) for left in (f, f[::-1]) for right in (g, g[::-1])]


def _product(view: BodyView, value: int) -> tuple[int, int] | None:
    inner = view.strip(value)
    op = view.op(inner)
    if op.kind is Kind.ELEMENTWISE and op.name == "neg":
        return _product(view, op.args[0])
    if op.kind is Kind.ELEMENTWISE and op.name == "mul" and len(op.args) == 2:
        left, right = op.args
        if isinstance(view.fold(left), (int, float)) or isinstance(view.fold(right), (int, float)):
            return None
        return left, right
    return None


def tables(view: BodyView, one: Rotation) -> tuple[int, ...]:
    """Reads of memory that supply cosine and sine; () if they are computed."""
    data = flow(view)
    return tuple(dict.fromkeys((*data.fetches(one.cosine), *data.fetches(one.sine))))
