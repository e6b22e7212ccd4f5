"""Operands that stay on chip for a whole loop while others stream past them, and states that a loop carries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.addresses import memory_of
from d2k.analyzers.patterns.dataflow import FetchSets, flow
from d2k.analyzers.patterns.loops import index_cone, movers, trip_count, walked, where
from d2k.analyzers.patterns.memo import memo_loop
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Carried, Kind, Op

MATRIX = 2
"""Rank of a tile of state; a vector that a loop carries may be no more than a running sum."""

MEETS = ("mul", "fma", "add", "sub", "max", "min", "div")


@dataclass(frozen=True, slots=True)
class Held:
    """What `fetch` brings before `loop` meets, in `use`, data that the loop streams."""

    fetch: int
    loop: int
    use: int


@dataclass(frozen=True, slots=True)
class State:
    """A variable that `loop` updates, and from which it makes results in `use`. `fetches` are the reads that it
    starts from."""

    phi: int
    loop: int
    use: int
    fetches: tuple[int, ...]


def held(kernel: KernelView) -> Iterator[Held]:
    """Every tile that is fetched before a loop and used in each of its iterations, in program order."""
    for loop in range(len(kernel.body.loops)):
        streams = walked(kernel, loop)
        if not streams or trip_count(kernel, loop) in (0, 1):
            continue
        streamed = frozenset(root for fetch in streams for root in memory_of(kernel, fetch))
        seen: set[int] = set()
        for use, kept, others in _meetings(kernel, loop, frozenset(streams)):
            for fetch in kept:
                if fetch in seen or not _is_tile(kernel, fetch) or set(memory_of(kernel, fetch)) & streamed:
                    continue
                if others & frozenset(streams):
                    seen.add(fetch)
                    yield Held(fetch, loop, use)


def _meetings(
    kernel: KernelView, loop: int, streams: frozenset[int]
) -> Iterator[tuple[int, frozenset[int], frozenset[int]]]:
    """Operations of a loop on two operands: (operation, fetches kept from before, fetches of the other operand)."""
    for use in kernel.values(Kind.MMA, Kind.ELEMENTWISE):
        op = kernel.op(use)
        if loop not in kernel.loops_of(use) or (op.kind is Kind.ELEMENTWISE and op.name not in MEETS):
            continue
        sides = [arg for arg in op.args[:2] if arg != NONE]
        found = [_sources(kernel, side, loop) for side in sides]
        for mine, other in zip(found, reversed(found), strict=True):
            kept = frozenset(fetch for fetch in mine if loop not in kernel.loops_of(fetch))
            if kept and len(sides) == 2:
                yield use, kept, frozenset(other) & streams


def _sources(kernel: KernelView, value: int, loop: int) -> tuple[int, ...]:
    """Fetches behind an operand. What the loop carries, or picks by its own position, is another thing each time."""
    return _all_sources(kernel, loop).of(value)


@memo_loop
def _all_sources(view: BodyView, loop: int) -> FetchSets:
    data = flow(view)
    moving = movers(view, loop)

    def passes(value: int) -> bool:
        op = view.op(value)
        if data.is_fetch(value) or op.kind in (Kind.MMA, Kind.REDUCE, Kind.SCAN) or _is_carried(view, value, loop):
            return False
        inside = loop in view.loops_of(value)
        return not (inside and any(not moving.isdisjoint(index_cone(view, one)) for one in _picks(view, value)))

    return data.fetch_sets(passes)


def _is_carried(kernel: BodyView, value: int, loop: int) -> bool:
    op = kernel.op(value)
    return op.kind is Kind.PHI and op.name == "loop" and op.loop == loop


def _picks(kernel: BodyView, value: int) -> tuple[int, ...]:
    """Operands that say which element is read from an array on chip."""
    op = kernel.op(value)
    if op.kind is Kind.LOAD:
        return tuple(arg for arg in where(kernel, value) if arg != NONE)
    if op.kind is Kind.SHAPE and op.name == "index":
        return op.args[1:]
    return ()


def _is_tile(kernel: KernelView, fetch: int) -> bool:
    """More than one number for each block."""
    op = kernel.op(fetch)
    shape = op.shape
    if op.kind is Kind.COPY or (shape is None and op.attrs.get("via") in ("descriptor", "block_pointer")):
        return True
    if shape:
        return any(dim != 1 for dim in kernel.dims(fetch) or (None,))
    return any(arg != NONE and differs_within(kernel, arg) for arg in where(kernel, fetch))


# states


def states(kernel: KernelView) -> Iterator[State]:
    """Carried tiles that take part in results which the loop itself stores, in program order."""
    data = flow(kernel)
    for loop, one in enumerate(kernel.body.loops):
        streams = frozenset(walked(kernel, loop))
        stores = [at for at in data.outputs() if loop in kernel.loops_of(at)]
        moving = movers(kernel, loop)
        if not streams or not stores:
            continue
        for carried in one.carried:
            if carried.phi in moving or carried.next in (NONE, carried.phi) or not _holds_tile(kernel, carried):
                continue
            use = _result(kernel, loop, carried, streams, frozenset(stores))
            if use is not None:
                yield State(carried.phi, loop, use, data.fetches(carried.before, lambda op: op.kind is not Kind.MMA))


def _holds_tile(kernel: KernelView, carried: Carried) -> bool:
    shape = kernel.op(carried.phi).shape or kernel.op(carried.before).shape
    return bool(shape) or kernel.kernel.language == "cuda"


def _result(
    kernel: KernelView, loop: int, carried: Carried, streams: frozenset[int], stores: frozenset[int]
) -> int | None:
    """A store of the state itself, or a product of it with streamed data on the way to one of the loop's stores."""
    data = flow(kernel)
    own = frozenset(data.back((carried.next,)))
    if carried.phi not in own:
        return None
    made = frozenset(data.forward((carried.phi,), _same_iteration))
    if len(kernel.op(carried.phi).shape or ()) >= MATRIX and made & stores:
        return min(made & stores)
    for use in sorted(made):
        op = kernel.op(use)
        product = op.kind is Kind.MMA or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma"))
        if not product or loop not in kernel.loops_of(use):
            continue
        sides = [arg for arg in op.args[:2] if arg != NONE]
        if not any(_is_of(kernel, side, carried.phi, loop) for side in sides):
            continue
        others = {fetch for side in sides for fetch in _sources(kernel, side, loop)}
        if others & streams and stores & frozenset(data.forward((use,), _same_iteration)):
            return use
    return None


def _same_iteration(op: Op) -> bool:
    return not (op.kind is Kind.PHI and op.name == "loop")


def _is_of(kernel: KernelView, value: int, phi: int, loop: int) -> bool:
    """The operand is the state itself, converted or just updated."""
    through = (Kind.CAST, Kind.SHAPE, Kind.ELEMENTWISE, Kind.PHI)
    return phi in flow(kernel).back((value,), lambda op: op.kind in through)
