"""Rings of shared buffers: filled ahead of their use, chosen by a stage number that wraps around."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import fetch_moves, index_cone, movers, trip_count
from d2k.analyzers.patterns.memo import memo
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op

SHORT = 16


@dataclass(frozen=True, slots=True)
class Ring:
    """Buffers that `fill`, a copy or a store in `loop`, writes. `stages` is None if their number is not known, 1 if
    there is a single buffer. `ahead` says that something is computed from another stage while a fill is under way;
    otherwise `waits` is the operation that waits for the fill first, NONE if there is none.
    """

    fill: int
    loop: int
    stages: int | None
    how: str
    ahead: bool
    waits: int


@memo
def rings(kernel: KernelView) -> tuple[Ring, ...]:
    """One for each asynchronous copy, or store of fetched data, into shared memory in a loop that moves its source."""
    data = flow(kernel)
    found = [_of_copy(kernel, value) for value in kernel.values(Kind.COPY) if data.is_fetch(value)]
    found += [_of_store(kernel, value) for value in kernel.values(Kind.STORE) if data.arrays(kernel.op(value).args[0])]
    return tuple(one for one in found if one is not None)


def _of_copy(kernel: KernelView, fill: int) -> Ring | None:
    op = kernel.op(fill)
    loop = next((loop for loop in kernel.loops_of(fill) if _walks(kernel, fill, loop)), NONE)
    if loop == NONE:
        return None
    stages = _stages(kernel, op.args[0])
    waits = _blocking(kernel, fill, loop)
    return Ring(fill, loop, _count(stages), op.name, waits is None, NONE if waits is None else waits)


def _walks(kernel: KernelView, fetch: int, loop: int) -> bool:
    """The source moves with a loop over tiles, not only with one over the elements of a tile."""
    one = kernel.loop(loop)
    counters = [value for value in (one.variable, *(carried.phi for carried in one.carried)) if value != NONE]
    if not any(not differs_within(kernel, value) for value in counters) or _copies_elements(kernel, fetch, loop):
        return False
    return fetch_moves(kernel, fetch, loop)


def _copies_elements(kernel: KernelView, fetch: int, loop: int) -> bool:
    """Each iteration fetches other elements of the same buffer: the destination moves by no stage number."""
    moving = movers(kernel, loop)
    address = kernel.op(fetch).args[0]
    moved = any(at in moving for at in index_cone(kernel, address))
    return moved and not _stages(kernel, address)


# stages


def _stages(kernel: KernelView, *places: int) -> dict[int, int | None]:
    """Stage numbers in an address or in indices, each with how many stages there are."""
    numbers = numbering(kernel)
    found: dict[int, int | None] = {}
    for place in places:
        for at in index_cone(kernel, place) if place != NONE else ():
            count = stage_count(kernel, at)
            if count is not None:
                found[numbers.number(at)] = count
    return found


def stage_count(kernel: KernelView, value: int) -> int | None:
    """How many values a wrapping counter takes; None if `value` is no such counter of a loop."""
    op = kernel.op(value)
    if differs_within(kernel, value):
        return None
    if op.kind is Kind.ELEMENTWISE and op.name in ("mod", "and") and _counts_tiles(kernel, op.args[0]):
        size = kernel.fold_int(op.args[1])
        return None if size is None else size + (op.name == "and")
    if op.kind is Kind.PHI and op.name == "loop":
        carried = next((one for one in kernel.loop(op.loop).carried if one.phi == value), None)
        return None if carried is None else _wrap(kernel, value, carried.next)
    return None


def _counts_tiles(kernel: KernelView, value: int) -> bool:
    """`value` grows with a loop that is no short loop over the parts of one tile."""
    for at in index_cone(kernel, value):
        op = kernel.op(at)
        if op.kind is Kind.PHI and op.name == "loop":
            trips = trip_count(kernel, op.loop)
            if trips is None or trips > SHORT or kernel.loop(op.loop).parent == NONE:
                return True
    return False


def _wrap(kernel: KernelView, phi: int, following: int) -> int | None:
    """`(s + 1) % n`, `s + 1 == n ? 0 : s + 1`, `s ^ 1` and `1 - s` as the next value of s."""
    if following == NONE:
        return None
    following = kernel.strip(following)
    op = kernel.op(following)
    if phi not in kernel.slice(following):
        return None
    if op.kind is Kind.ELEMENTWISE and op.name in ("mod", "and"):
        size = kernel.fold_int(op.args[1])
        return None if size is None else size + (op.name == "and")
    if op.kind is Kind.ELEMENTWISE and op.name in ("xor", "sub") and any(kernel.fold(arg) == 1 for arg in op.args):
        return 2 if op.name == "xor" or kernel.fold(op.args[0]) == 1 else None
    if op.kind is Kind.ELEMENTWISE and op.name == "not":
        return 2
    chooses = (op.kind is Kind.PHI and op.name == "if") or (op.kind is Kind.ELEMENTWISE and op.name == "where")
    if chooses and any(kernel.fold(arg) == 0 for arg in op.args[1:]):
        return _limit(kernel, op.args[0])
    return None


def _limit(kernel: KernelView, condition: int) -> int | None:
    """n in `s + 1 == n`, `s == n - 1` and the like."""
    op = kernel.op(condition)
    if op.kind is not Kind.ELEMENTWISE or op.name not in ("eq", "ne", "ge", "lt", "gt", "le") or len(op.args) != 2:
        return None
    left, right = op.args
    size = kernel.fold_int(right)
    if size is None:
        return None
    counted = kernel.op(kernel.strip(left))
    grown = counted.kind is Kind.ELEMENTWISE and counted.name == "add"
    return size + (0 if grown else 1) + (op.name in ("gt", "le"))


def _count(stages: dict[int, int | None]) -> int | None:
    """The number of buffers; 1 where nothing chooses among several."""
    known = [count for count in stages.values() if count is not None]
    return max(known) if known else (1 if not stages else None)


# overlap


def _blocking(kernel: KernelView, fill: int, loop: int) -> int | None:
    """The wait that lets nothing be computed while the fill is under way, None if something is."""
    op = kernel.op(fill)
    uses = [value for value in _uses(kernel, fill) if loop in kernel.loops_of(value)]
    if not uses:
        # another role may consume what this loop fetches; a loop that only fills the first stages has none
        apart = any(kernel.op(use).partition != op.partition for use in _uses(kernel, fill))
        return None if apart else fill
    stage = frozenset(_stages(kernel, op.args[0]))
    last: int | None = None
    for use in uses:
        if use < fill or not _is_other_stage(kernel, use, stage):
            continue
        waits = [wait for wait in _waits(kernel, loop) if fill < wait < use and _holds(kernel, wait, op, stage)]
        if not waits:
            return None
        last = waits[0]
    if last is None:
        # everything is computed before the fill is issued: the wait for it stands before the next use
        later = [wait for wait in _waits(kernel, loop) if _holds(kernel, wait, op, stage)]
        return later[0] if later else fill
    return last


def _is_other_stage(kernel: KernelView, use: int, stage: frozenset[int]) -> bool:
    return not stage or frozenset(_stages(kernel, *_use_places(kernel, use))) != stage


def _use_places(kernel: KernelView, use: int) -> tuple[int, ...]:
    op = kernel.op(use)
    return op.args[:2] if op.kind is Kind.MMA else (*op.args[:1], *op.args[2:])


def _uses(kernel: KernelView, fill: int) -> Iterator[int]:
    """Loads from the buffer, and matrix instructions that read it."""
    data = flow(kernel)
    arrays = frozenset(data.arrays(kernel.op(fill).args[0]))
    for array in arrays:
        yield from (value for value in data.loads.get(array, ()) if not _is_barrier_word(kernel, value))
    for value in kernel.values(Kind.MMA):
        if any(arg != NONE and arrays & frozenset(_behind(kernel, arg)) for arg in kernel.op(value).args[:2]):
            yield value


def _behind(kernel: KernelView, operand: int) -> Iterator[int]:
    for at in kernel.walk(operand, _addresses):
        if kernel.op(at).kind is Kind.ALLOC:
            yield at


def _addresses(op: Op) -> bool:
    return op.kind in (Kind.ELEMENTWISE, Kind.SHAPE, Kind.CAST, Kind.PHI, Kind.ASM, Kind.ITEM, Kind.CALL)


def _is_barrier_word(kernel: KernelView, load: int) -> bool:
    return kernel.op(load).dtype == "u64"


def _waits(kernel: KernelView, loop: int) -> tuple[int, ...]:
    found = (*kernel.values(Kind.WAIT), *kernel.values(Kind.BARRIER, name="mbarrier_wait"))
    return tuple(sorted(value for value in found if loop in kernel.loops_of(value)))


def _holds(kernel: KernelView, wait: int, fill: Op, stage: frozenset[int]) -> bool:
    """The wait is for this very fill, not for one that was issued some stages before."""
    op = kernel.op(wait)
    if op.kind is Kind.WAIT:
        return op.name in (fill.name, "bulk") and not op.attrs.get("outstanding")
    if fill.name not in ("tma", "bulk"):
        return False
    mine = frozenset(_stages(kernel, *op.args[:1]))
    return mine == stage or not mine


# through registers


def _of_store(kernel: KernelView, fill: int) -> Ring | None:
    """Data that is fetched into registers, kept there while another buffer is used, and then stored."""
    data = flow(kernel)
    fetches = data.fetches(kernel.op(fill).args[1], lambda op: op.kind not in (Kind.MMA, Kind.REDUCE, Kind.LOAD))
    for fetch in fetches:
        loops = [loop for loop in kernel.loops_of(fill) if loop in kernel.loops_of(fetch)]
        loop = next((loop for loop in loops if _walks_tile(kernel, fetch, loop)), NONE)
        if loop == NONE:
            continue
        stages = _stages(kernel, *_use_places(kernel, fill))
        between = [use for use in _uses(kernel, fill) if fetch < use < fill and loop in kernel.loops_of(use)]
        if between:
            return Ring(fill, loop, max(_count(stages) or 1, 2), "registers", True, NONE)
        if stages:
            after = [use for use in _uses(kernel, fill) if use > fill and loop in kernel.loops_of(use)]
            ahead = any(_is_other_stage(kernel, use, frozenset(stages)) for use in after)
            return Ring(fill, loop, _count(stages), "registers", ahead, NONE)
    return None


def _walks_tile(kernel: KernelView, fetch: int, loop: int) -> bool:
    one = kernel.loop(loop)
    counters = [value for value in (one.variable, *(carried.phi for carried in one.carried)) if value != NONE]
    return any(not differs_within(kernel, value) for value in counters) and fetch_moves(kernel, fetch, loop)
