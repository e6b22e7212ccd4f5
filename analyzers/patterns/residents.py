"""Rows that stay on chip between a statistic of them and its use on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.addresses import memory_of
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.dataflow import FetchSets, flow
from d2k.analyzers.patterns.loops import LESS, fetch_moves, index_cone, where
from d2k.analyzers.patterns.memo import memo
from d2k.analyzers.patterns.numbering import Polynomial, numbering
from d2k.analyzers.patterns.skipping import tiled_offsets
from d2k.analyzers.patterns.spans import span
from d2k.analyzers.patterns.statistics import Statistic, statistics
from d2k.analyzers.patterns.terms import terms
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op

ACROSS = frozenset({Kind.REDUCE, Kind.REDUX, Kind.SCAN, Kind.MMA, Kind.SHUFFLE})
CONTAINERS = frozenset({Kind.PHI, Kind.SHAPE, Kind.LOAD, Kind.ITEM})


@dataclass(frozen=True, slots=True)
class Resident:
    """`use` combines data of `fetch` with a statistic of it. `again` says that the row was fetched once more for that.
    `group` says that the statistic belongs to a group of neighbours, as a scale does, not to a row.
    """

    statistic: Statistic
    fetch: int
    use: int
    again: bool
    group: bool


def residents(kernel: KernelView) -> Iterator[Resident]:
    """Uses of statistics on the data that they were taken of, where they reach memory in some way."""
    data = flow(kernel)
    live = _live(kernel)
    ends = frozenset(one.value for one in statistics(kernel))
    for one in statistics(kernel):
        if not _is_of_block(kernel, one):
            continue
        arrays = {root for fetch in one.fetches for root in memory_of(kernel, fetch)}
        before = frozenset(data.back((one.value,)))
        derived = frozenset(data.forward((one.value,)))
        growing = _growing(kernel, one, before, derived)
        for use in sorted(data.forward((one.value,), _carries_statistic)):
            op = kernel.op(use)
            if op.kind is not Kind.ELEMENTWISE or use in before or use not in live:
                continue
            if not growing.isdisjoint(kernel.loops_of(use)):
                continue
            seen = frozenset(fetch for other in _behind(kernel, use) for fetch in other.fetches)
            for fetch in sorted(at for at in _data(kernel, use, ends, derived) if data.is_fetch(at)):
                whole = _has_extents(kernel, fetch, _reduced(kernel, one)) and not _walks_along(kernel, one, fetch, use)
                if whole and set(memory_of(kernel, fetch)) & arrays:
                    yield Resident(one, fetch, use, fetch not in seen, _is_part(kernel, one, fetch))


def _is_of_block(kernel: KernelView, one: Statistic) -> bool:
    """A reduction of what the block holds. Where operations are of tiles, a loop carries sums of tiles that are
    gone."""
    kind = kernel.op(one.value).kind
    return kind is not Kind.SCAN and (kernel.kernel.language == "cuda" or kind in (Kind.REDUCE, Kind.REDUX))


def _behind(kernel: KernelView, use: int) -> Iterator[Statistic]:
    """All statistics that an operation rests on: a row may be fetched in several parts."""
    by_value = {one.value: one for one in statistics(kernel)}
    return (by_value[value] for value in _statistic_sets(kernel).of(use))


@memo
def _statistic_sets(view: BodyView) -> FetchSets:
    """The statistics behind every value."""
    return flow(view).sets(tuple(one.value for one in statistics(view)))


def _has_extents(kernel: KernelView, fetch: int, reduced: tuple[Polynomial, ...] | None) -> bool:
    """The fetched tile has the axes that are reduced: it is no factor or offset that is the same along them."""
    shape = kernel.op(fetch).shape
    if reduced is None:
        return any(place != NONE and differs_within(kernel, place) for place in where(kernel, fetch))
    if shape is None:
        return kernel.op(fetch).attrs.get("via") == "descriptor"
    own = [numbering(kernel).index(dim) for dim in shape]
    return all(extent in own for extent in reduced)


def scanned(kernel: KernelView) -> Iterator[tuple[int, int]]:
    """Scans of whole rows with the fetch that they scan; a tile of a longer row is not one."""
    data = flow(kernel)
    stored = frozenset(data.back(data.outputs()))
    for scan in kernel.values(Kind.SCAN):
        if scan not in stored:
            continue
        for fetch in data.fetches(scan):
            own = _along(kernel, scan)
            whole = own is not None and _has_extents(kernel, fetch, (own,)) and not _continues(kernel, own, fetch)
            if whole and not kernel.loops_of(scan):
                yield scan, fetch


def _along(kernel: KernelView, scan: int) -> Polynomial | None:
    """The extent of the axis that is scanned."""
    shape, axis = kernel.op(kernel.op(scan).args[0]).shape or (), kernel.op(scan).attrs.get("axis")
    known = isinstance(axis, int) and -len(shape) <= axis < len(shape)
    return numbering(kernel).index(shape[axis]) if known and isinstance(axis, int) else None


def _continues(kernel: KernelView, own: Polynomial, fetch: int) -> bool:
    """The scanned elements lie beside those of another block."""
    places = [place for place in where(kernel, fetch) if place != NONE]
    return any(size == own for place in places for _, size in tiled_offsets(kernel, place))


def _live(kernel: KernelView) -> frozenset[int]:
    """Everything that decides what is stored, and where."""
    found: set[int] = set()
    for store in flow(kernel).outputs():
        found |= kernel.slice(store)
        for guard in kernel.op(store).guards:
            found |= kernel.slice(guard.value)
    made = flow(kernel).back(flow(kernel).outputs())
    return frozenset(found.union(made))


def _carries_statistic(op: Op) -> bool:
    return op.kind not in (Kind.MMA, Kind.STORE)


def _data(kernel: KernelView, use: int, ends: frozenset[int], derived: frozenset[int]) -> Iterator[int]:
    """Values that the operands of `use` are made of, without the statistics that are `ends`.

    What is `derived` from the statistic is none of its data; an array in which results replace the data counts.
    """
    data = flow(kernel)
    stack = [arg for arg in data.operands(use) if arg != NONE]
    seen = set(stack)
    while stack:
        at = stack.pop()
        op = kernel.op(at)
        if at in ends or op.kind in ACROSS or (at in derived and op.kind not in CONTAINERS):
            continue
        yield at
        for operand in data.operands(at):
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)


def _elementwise(op: Op) -> bool:
    return op.kind not in ACROSS


def _growing(kernel: KernelView, one: Statistic, before: frozenset[int], derived: frozenset[int]) -> frozenset[int]:
    """Loops that carry the statistic and add to what it was: used inside of them, it is still growing.

    `before` is what the statistic is made of, `derived` what is made of it.
    """
    return frozenset(
        loop
        for loop in kernel.loops_of(one.value)
        if any(cell.olds & before and not derived.isdisjoint(cell.news) for cell in cells(kernel, loop))
    )


def _reduced(kernel: KernelView, one: Statistic) -> tuple[Polynomial, ...] | None:
    """Extents that a reduction of a tile takes away; None where it is no reduction of a tile."""
    op = kernel.op(one.value)
    if op.kind is not Kind.REDUCE or not op.args:
        return None
    shape, axis = kernel.op(op.args[0]).shape, op.attrs.get("axis")
    if shape is None:
        return None
    if isinstance(axis, int) and -len(shape) <= axis < len(shape):
        shape = (shape[axis],)
    return tuple(numbering(kernel).index(dim) for dim in shape)


def _is_part(kernel: KernelView, one: Statistic, fetch: int) -> bool:
    """What is reduced lies beside the elements of the next block: a scale's group, or a part of a longer row."""
    reduced = _reduced(kernel, one)
    if reduced is None:
        # the largest magnitude within a warp is a group's, one that warps exchange is a row's
        return one.kinds == {"amax"} and not _is_exchanged(kernel, one)
    if one.kinds == {"amax"} and _is_reshaped(kernel, one):
        return True
    for place in where(kernel, fetch):
        if place == NONE:
            continue
        along = any(extent in reduced for _, extent in tiled_offsets(kernel, place))
        if along and (one.kinds == {"amax"} or _is_compared(kernel, fetch) or _is_block_pointer(kernel, fetch)):
            return True
    return False


def _is_exchanged(kernel: KernelView, one: Statistic) -> bool:
    data = flow(kernel)
    loads = (kernel.op(at) for at in data.back((one.value,)) if kernel.op(at).kind is Kind.LOAD)
    return any(data.arrays(op.args[0]) for op in loads)


def _is_reshaped(kernel: KernelView, one: Statistic) -> bool:
    """The reduced tile was cut into groups: `x.reshape(rows, groups, 32)`, reduced along the last axis."""
    if kernel.op(one.value).attrs.get("axis") is None:
        return False
    behind = kernel.walk(kernel.op(one.value).args[0], lambda op: op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE))
    return any(kernel.op(at).kind is Kind.SHAPE and kernel.op(at).name == "reshape" for at in behind)


def _is_block_pointer(kernel: KernelView, fetch: int) -> bool:
    return kernel.op(fetch).attrs.get("via") == "block_pointer"


def _is_compared(kernel: KernelView, fetch: int) -> bool:
    """Positions in the array, first position of the tile included, are compared with a bound."""
    op = kernel.op(fetch)
    if op.kind is not Kind.LOAD or len(op.args) < 2 or op.args[1] == NONE:
        return False
    own = {numbering(kernel).number(at) for place in where(kernel, fetch) for at in index_cone(kernel, place)}
    for at in kernel.walk(op.args[1], lambda inner: inner.kind in (Kind.ELEMENTWISE, Kind.SHAPE, Kind.CAST)):
        inner = kernel.op(at)
        if inner.kind is Kind.ELEMENTWISE and inner.name in LESS:
            for side in inner.args[:2]:
                position = kernel.strip(side)
                added = kernel.op(position).kind is Kind.ELEMENTWISE and kernel.op(position).name == "add"
                if added and differs_within(kernel, position) and numbering(kernel).number(position) in own:
                    return True
    return False


def _walks_along(kernel: KernelView, one: Statistic, fetch: int, use: int) -> bool:
    """A loop around both goes on by just the extent that is reduced: each iteration has a part of the row."""
    reduced = _reduced(kernel, one)
    numbers = numbering(kernel)
    for loop in kernel.loops_of(use):
        if loop not in kernel.loops_of(one.value):
            continue
        if reduced is None and kernel.op(one.value).kind is Kind.REDUCE and fetch_moves(kernel, fetch, loop):
            return True  # of unknown shape: to be on the safe side
        step = kernel.loop(loop).step
        if loop in kernel.loops_of(fetch) and step != NONE and reduced and numbers.index(step) in reduced:
            return True
    return False


def rows_held(kernel: KernelView, found: list[Resident]) -> int | None:
    """Rows that a block holds at once, those of the statistic that covers most; None if not known."""
    if kernel.kernel.language != "cuda":
        counts = [_left(kernel, one.statistic.value) for one in found]
        known = [count for count in counts if count is not None]
        return min(known) if known and (len(known) == len(counts) or 1 in known) else None
    rows = [_rows(kernel, one.fetch) for one in found]
    return None if not rows or None in rows else max(row for row in rows if row is not None)


def _left(kernel: KernelView, value: int) -> int | None:
    dims = kernel.dims(value)
    if dims is None or None in dims:
        return None
    return prod(dim for dim in dims if dim is not None)


def _rows(kernel: KernelView, fetch: int) -> int | None:
    """Rows among which the threads of a block are divided: indices that do not run along the contiguous axis."""
    count = 1
    for one in terms(kernel, fetch):
        if one.stride and differs_within(kernel, one.index):
            extent = span(kernel, one.index)
            if extent is None:
                return None
            count *= extent
    return count


def in_shared(kernel: KernelView, one: Resident) -> bool:
    """The row waits in shared memory for the use of its statistic."""
    data = flow(kernel)
    ends = frozenset(each.value for each in statistics(kernel))
    derived = frozenset(data.forward((one.statistic.value,)))
    for at in _data(kernel, one.use, ends, derived):
        op = kernel.op(at)
        if op.kind is Kind.LOAD and data.arrays(op.args[0]) and one.fetch in data.fetches(at, _elementwise):
            return True
    return False
