"""True extents read from memory: offsets of segments, lengths, counts, tables of tiles; and what they bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, walked, where
from d2k.analyzers.patterns.numbering import Monomial, numbering
from d2k.analyzers.patterns.skipping import touching_tiles
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile
from d2k.spec.facts import NONE, Kind


@dataclass(frozen=True, slots=True)
class Extent:
    """`load` reads an extent; `source` says whether as offsets, lengths, counts or a block_table.

    `use` is where it limits the work and `how` in which way.
    """

    load: int
    source: str
    use: int
    how: str


def extents(view: BodyView) -> Iterator[Extent]:
    """Scalars read at the number of the block that bound its loop, or that end it early."""
    scalars = tuple(value for value in view.values(Kind.LOAD) if _is_scalar(view, value))
    if not scalars:
        return
    loads = tuple(value for value in scalars if rests_on_tile(view, view.op(value).args[0]))
    pairs = _pairs(view, loads)
    for index, loop in enumerate(view.body.loops):
        bounds = [
            at for bound in (loop.start, loop.stop, loop.condition) if bound != NONE for at in index_cone(view, bound)
        ]
        for load in loads:
            if load in bounds and walked(view, index):
                source = "offsets" if load in pairs else "lengths"
                yield Extent(load, source, loop.stop if loop.stop != NONE else load, "bounds the loop")
    yield from _early(view, scalars, pairs)
    yield from _listed_tiles(view, loads)


def _is_scalar(view: BodyView, load: int) -> bool:
    """Read at an index that is the same for the whole block, from memory outside it."""
    op = view.op(load)
    return flow(view).is_fetch(load) and not differs_within(view, op.args[0]) and op.shape in ((), None)


def _pairs(view: BodyView, loads: tuple[int, ...]) -> frozenset[int]:
    """Loads of two neighbouring entries of one array: the ends of a segment."""
    numbers = numbering(view)
    # by the index without its constant, and by that
    at: dict[frozenset[tuple[Monomial, int]], dict[int, list[int]]] = {}
    for load in loads:
        index = dict(numbers.index(view.op(load).args[0]))
        offset = index.pop((), 0)
        at.setdefault(frozenset(one for one in index.items() if one[1]), {}).setdefault(offset, []).append(load)
    return frozenset(
        load
        for offsets in at.values()
        for offset, here in offsets.items()
        for load in here
        if offset + 1 in offsets or offset - 1 in offsets
    )


def _early(view: BodyView, loads: tuple[int, ...], pairs: frozenset[int]) -> Iterator[Extent]:
    """Blocks beyond the extent that do nothing: a branch around the fetches compares the block's position with it."""
    data = flow(view)
    conditions = dict.fromkeys(
        guard.value
        for fetch in view.values(Kind.LOAD, Kind.COPY)
        if data.is_fetch(fetch) and fetch not in loads
        for guard in view.op(fetch).guards
    )
    for condition in conditions:
        if differs_within(view, condition):
            continue
        for load in loads:
            if load in _compared(view, condition):
                yield Extent(load, "offsets" if load in pairs else "lengths", condition, "ends blocks beyond it")


def _compared(view: BodyView, condition: int) -> frozenset[int]:
    """Loads on one side of a comparison with something that rests on the number of the block."""
    found: set[int] = set()
    for at in view.walk(condition, lambda op: op.kind is Kind.ELEMENTWISE and op.name in ("and", "or", "not")):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in ("lt", "le", "gt", "ge") and len(op.args) == 2:
            for extent, position in (op.args, op.args[::-1]):
                if any(view.op(one).kind is Kind.BLOCK_INDEX for one in index_cone(view, position)):
                    found.update(one for one in index_cone(view, extent) if view.op(one).kind is Kind.LOAD)
    return frozenset(found)


def _listed_tiles(view: BodyView, loads: tuple[int, ...]) -> Iterator[Extent]:
    """Tile numbers read from a list of the tiles that there are, times a tile's extent."""
    numbers = numbering(view)
    for fetch in view.values(Kind.LOAD, Kind.COPY):
        if not flow(view).is_fetch(fetch) or fetch in loads:
            continue
        for place in where(view, fetch):
            for edge in touching_tiles(view, place) if place != NONE else ():
                for monomial in edge:
                    for factor in monomial:
                        for entry in _alternatives(view, numbers.example(factor)):
                            if entry in loads and len(monomial) > 1 and view.op(entry).loop == NONE:
                                yield Extent(entry, "offsets", fetch, "places the block's tile")


def _alternatives(view: BodyView, value: int) -> tuple[int, ...]:
    """What a number is: with packed sequences what a table says, without them the block's own number."""
    inner = view.strip(value)
    op = view.op(inner)
    if op.kind is Kind.PHI and op.name == "if":
        return tuple(view.strip(arg) for arg in op.args[1:] if arg != NONE)
    return (inner,)
