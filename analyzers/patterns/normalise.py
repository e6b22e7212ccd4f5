"""Data transformed by statistics of itself: which fetched data, which statistics, and whether it is fetched
again for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.addresses import is_tile, memory_of
from d2k.analyzers.patterns.branches import exclude
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.memo import memo
from d2k.analyzers.patterns.statistics import Statistic, statistics
from d2k.spec.facts import Kind, Op


@dataclass(frozen=True, slots=True)
class Transformed:
    """`value`, an operation called `value_name`, combines data of `fetch` with `statistic`, taken of the same array.

    `again` says that the statistic was taken of another fetch of that array.
    """

    statistic: Statistic
    value: int
    value_name: str
    fetch: int
    again: bool


REDUCES = frozenset({Kind.REDUCE, Kind.REDUX, Kind.SHUFFLE})


@memo
def transformed(view: BodyView) -> tuple[Transformed, ...]:
    """Every combination of fetched data with statistics of the same array that reaches memory outside the block."""
    return tuple(_transformed(view))


def _transformed(view: BodyView) -> Iterator[Transformed]:
    data = flow(view)
    # element by element: what is reduced again on its way out is no transformed data
    written = frozenset(data.back(data.outputs(), lambda op: op.kind not in REDUCES))
    for one in statistics(view):
        if view.op(one.value).kind is Kind.SCAN:
            continue
        arrays = {root for fetch in one.fetches for root in memory_of(view, fetch)}
        inside = frozenset(data.back((one.value,), lambda op: op.kind is not Kind.MMA))
        for value in sorted(data.forward((one.value,), _derives)):
            op = view.op(value)
            if op.kind is not Kind.ELEMENTWISE or value not in written or value in inside or len(op.args) < 2:
                continue
            for fetch in _raw(view, op):
                if set(memory_of(view, fetch)) & arrays and is_tile(view, fetch):
                    again = fetch not in one.fetches
                    if again and any(exclude(view, fetch, other) for other in one.fetches):
                        continue
                    yield Transformed(one, value, op.name, fetch, again)


def _derives(op: Op) -> bool:
    """What a statistic becomes before it meets the data: a reciprocal, a square root, a scale."""
    return op.kind in (
        Kind.ELEMENTWISE,
        Kind.CAST,
        Kind.SHAPE,
        Kind.PHI,
        Kind.ITEM,
        Kind.SHUFFLE,
        Kind.LOAD,
        Kind.REDUCE,
        Kind.REDUX,
    )


def _raw(view: BodyView, op: Op) -> tuple[int, ...]:
    """Fetches behind the operands of an operation, not through any reduction."""
    data = flow(view)
    found = [fetch for arg in op.args if arg >= 0 for fetch in data.fetches(arg, _elementwise)]
    return tuple(dict.fromkeys(found))


def _elementwise(op: Op) -> bool:
    """A product that the data goes into is data too: what it was normalised by may be applied to the product."""
    return op.kind not in (Kind.REDUCE, Kind.SCAN, Kind.REDUX, Kind.SHUFFLE)
