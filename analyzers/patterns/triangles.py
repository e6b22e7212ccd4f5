"""Triangular masks: selections by comparing the row with the column inside one tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import LESS, index_cone
from d2k.analyzers.patterns.memo import memo
from d2k.analyzers.patterns.tiles import WITHIN
from d2k.spec.facts import Kind


@dataclass(frozen=True, slots=True)
class Triangle:
    """`value` keeps `source` where the row is not above the column (or below it: `strict`), 0 elsewhere."""

    value: int
    source: int
    strict: bool


@memo
def triangles(view: BodyView) -> tuple[Triangle, ...]:
    """Every tile that is masked to a triangle, by a selection or by a product with the mask."""
    return tuple(_triangles(view))


def _triangles(view: BodyView) -> Iterator[Triangle]:
    masks = {value: view.op(value).name in ("lt", "gt") for value in view.values(Kind.ELEMENTWISE, name=LESS)}
    masks = {value: strict for value, strict in masks.items() if _is_triangle(view, value)}
    if not masks:
        return
    spread = {at: strict for mask, strict in masks.items() for at in _as_mask(view, mask)}
    for at, strict in spread.items():
        for user in view.users(at):
            op = view.op(user)
            if op.kind is Kind.ELEMENTWISE and op.name == "where" and op.args[0] == at:
                source = next((arg for arg in op.args[1:] if not _is_number(view, arg)), None)
                if source is not None:
                    yield Triangle(user, source, strict)
            elif op.kind is Kind.ELEMENTWISE and op.name == "mul" and len(op.args) == 2:
                yield Triangle(user, op.args[0] if op.args[1] == at else op.args[1], strict)


def _is_number(view: BodyView, value: int) -> bool:
    return isinstance(view.fold(view.strip(value)), (int, float))


def _is_triangle(view: BodyView, value: int) -> bool:
    """Compares positions of one tile along two axes: each side has its own place inside the tile."""
    left, right = view.op(value).args[:2]
    sides = [_places(view, side) for side in (left, right)]
    if not all(sides):
        return False
    shape = view.dims(value)
    return shape is None or sum(dim != 1 for dim in shape) >= 2


def _places(view: BodyView, value: int) -> frozenset[int]:
    return frozenset(at for at in index_cone(view, value) if view.op(at).kind in WITHIN)


def _as_mask(view: BodyView, mask: int) -> Iterator[int]:
    """The mask itself, combined with other conditions, or as a number."""

    def accepts(value: int, user: int) -> bool:
        op = view.op(user)
        return op.kind in (Kind.CAST, Kind.SHAPE) or (op.kind is Kind.ELEMENTWISE and op.name in ("and", "or", "not"))

    yield from flow(view).spread((mask,), accepts)
