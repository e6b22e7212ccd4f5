"""Matrix states that a loop over time carries: decayed, updated by a product, handed from chunk to chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.carried import Cell, cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import walked
from d2k.analyzers.patterns.matmul import Product, products
from d2k.analyzers.patterns.memo import memo_loop
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
    for loop in range(len(view.body.loops)):
        if not products(view) or not walked(view, loop):
            continue
        for cell in cells(view, loop):
            update = next((one for one in products(view) if _updates(view, cell, one)), None)
            use = _use(view, loop, cell.olds) if update is not None else None
            if update is not None and use is not None:
                yield State(loop, cell.variable, update, use)


def _updates(view: BodyView, cell: Cell, product: Product) -> bool:
    """The cell's new value is its old one, perhaps decayed, plus the product."""
    data = flow(view)
    grown = _grown(view, product.value)
    if not any(new in grown for new in cell.news):
        return False
    old = frozenset(data.forward(cell.olds, _decays))
    accumulator = view.op(product.value).args[2:3]
    addends = [arg for at in grown if view.op(at).name in ("add", "sub", "fma") for arg in view.op(at).args]
    return any(at in old for at in (*accumulator, *addends))


@memo_loop
def _grown(view: BodyView, product: int) -> frozenset[int]:
    """The product and what it is added to."""
    return frozenset(flow(view).spread((product,), lambda at, user: _adds(view, at, user)))


def _adds(view: BodyView, value: int, user: int) -> bool:
    op = view.op(user)
    if op.kind is Kind.MMA:
        return value in op.args[2:3]
    return op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "fma", "where")
    )


def _decays(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.LOAD) or (
        (op.kind is Kind.PHI and op.name == "if") or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "where"))
    )


def _use(view: BodyView, loop: int, olds: frozenset[int]) -> int | None:
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
