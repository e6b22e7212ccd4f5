"""What a loop carries from iteration to iteration: variables, and arrays that it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.memo import memo, memo_loop
from d2k.spec.facts import NONE, Kind


@dataclass(frozen=True, slots=True)
class Cell:
    """A variable or an on-chip array that a loop updates.

    `olds` are values read from it inside the loop, `news` values that end up in it.
    """

    loop: int
    variable: str
    olds: frozenset[int]
    news: tuple[int, ...]


@memo
def members(view: BodyView) -> dict[int, tuple[int, ...]]:
    """For each loop the values in it, inner loops included, in program order."""
    found: dict[int, list[int]] = {index: [] for index in range(len(view.body.loops))}
    for value, op in enumerate(view.body.ops):
        loop = op.loop
        while loop != NONE:
            found[loop].append(value)
            loop = view.body.loops[loop].parent
    return {loop: tuple(values) for loop, values in found.items()}


@memo
def gatherings(view: BodyView) -> frozenset[int]:
    """Sums and maxima that loops gather over their iterations: operations that join what is carried with
    something new."""
    found: set[int] = set()
    data = flow(view)
    for loop in range(len(view.body.loops)):
        for cell in cells(view, loop):
            old = frozenset(data.forward(cell.olds, lambda op: op.kind in (Kind.CAST, Kind.SHAPE)))
            for value in data.back(cell.news, lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI)):
                op = view.op(value)
                if op.kind is Kind.ELEMENTWISE and op.name in ("add", "fma", "max", "min") and old & set(op.args):
                    found.add(value)
    return frozenset(found)


@memo_loop
def cells(view: BodyView, loop: int) -> tuple[Cell, ...]:
    """What `loop` carries. An array counts if the loop both reads and writes it."""
    return tuple(_cells(view, loop))


def _cells(view: BodyView, loop: int) -> Iterator[Cell]:
    for one in view.loop(loop).carried:
        if one.next not in (one.phi, NONE):
            yield Cell(loop, one.variable, frozenset({one.phi}), (one.next,))
    data = flow(view)
    for array, stores in data.stores.items():
        inside = [value for value in stores if loop in view.loops_of(value)]
        reads = [value for value in data.loads.get(array, ()) if loop in view.loops_of(value)]
        # tensor memory is updated in place by the matrix instruction, whose accumulator is both read and written
        reads += [value for value in inside if view.op(value).kind is Kind.MMA]
        if inside and reads:
            news = tuple(
                view.op(value).args[1] if view.op(value).kind in (Kind.STORE, Kind.ATOMIC) else value
                for value in inside
                if len(view.op(value).args) > 1
            )
            yield Cell(loop, view.op(array).variable, frozenset(reads) | {array}, news)
