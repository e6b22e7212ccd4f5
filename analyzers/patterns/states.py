"""Matrix states that a loop over time carries: decayed, updated by a product, handed from chunk to chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import walked
from d2k.analyzers.patterns.matmul import Product, products
from d2k.spec.facts import Kind, Op

KEEPS = frozenset({Kind.CAST, Kind.SHAPE, Kind.STORE, Kind.COPY, Kind.LOAD})
"""Kinds that hand a tile on as it is, through memory on chip too."""


@dataclass(frozen=True, slots=True)
class State:
    """The loop updates the state by `update` and, in every iteration, stores it or multiplies with it (`use`)."""

    loop: int
    variable: str
    update: Product
    use: int


def states(view: BodyView) -> Iterator[State]:
    """Carried accumulators of matrix products that are read before the loop is over."""
    data = flow(view)
    made = {one.value: one for one in products(view)}
    for loop in range(len(view.body.loops)):
        if not made or not walked(view, loop):
            continue
        for cell in cells(view, loop):
            behind = frozenset(data.back(cell.news, _updates))
            update = next((one for value, one in made.items() if value in behind), None)
            if update is None or not cell.olds & behind:
                continue
            use = _use(view, loop, cell.olds, behind)
            if use is not None:
                yield State(loop, cell.variable, update, use)


def _updates(op: Op) -> bool:
    return op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.LOAD, Kind.MMA) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "fma", "where")
    )


def _use(view: BodyView, loop: int, olds: frozenset[int], behind: frozenset[int]) -> int | None:
    """A store of the state, or a product with it, inside the loop."""
    data = flow(view)
    for value in sorted(data.forward(olds, lambda op: op.kind in KEEPS)):
        if loop in view.loops_of(value) and data.is_output(value):
            return value
        for user in view.users(value):
            op = view.op(user)
            if op.kind is Kind.MMA and value in op.args[:2] and loop in view.loops_of(user):
                return user
    return None
