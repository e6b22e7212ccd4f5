"""Loops in which one block takes work item after work item: by a stride of the grid, by a counter, or by a range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.grids import grids
from d2k.analyzers.patterns.hosts import launches
from d2k.analyzers.patterns.loops import index_cone, movers, trip_count, where
from d2k.analyzers.patterns.numbering import Monomial, Polynomial, difference, numbering
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op

CANCELLED = "clusterlaunchcontrol"
"""The instruction that takes over a block that has not started yet."""


@dataclass(frozen=True, slots=True)
class WorkLoop:
    """`how`: `stride` (item numbers grow by the number of blocks), `counter` (taken from a counter in memory or
    from the launch queue), `range` (each block has a range of items of its own). `axis` is the grid's axis, None for
    counters; `threads` says that each thread, not each block, has its own item.
    """

    loop: int
    how: str
    axis: int | None
    threads: bool
    value: int


def work_loops(kernel: KernelView) -> Iterator[WorkLoop]:
    """Loops over work items that move the block's global accesses, in program order."""
    accesses = [one for one in kernel.values(Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.COPY) if _is_global(kernel, one)]
    for loop in range(len(kernel.body.loops)):
        inside = [one for one in accesses if loop in kernel.loops_of(one)]
        if inside and trip_count(kernel, loop) not in (0, 1):
            found = _strided(kernel, loop) or _counted(kernel, loop, inside) or _ranged(kernel, loop)
            if found is not None:
                yield found


def _is_global(kernel: KernelView, access: int) -> bool:
    data = flow(kernel)
    return data.is_fetch(access) or data.is_output(access)


def _strided(kernel: KernelView, loop: int) -> WorkLoop | None:
    """An index that starts at the block's number and grows by the number of blocks."""
    for value, before, advances in _counters(kernel, loop):
        for factor, rest in numbering(kernel).index(before).items():
            for block in factor:
                axis = _block_axis(kernel, numbering(kernel).example(block))
                other = list(factor)
                other.remove(block)
                if axis is not None and any(_is_stride(kernel, one, axis, tuple(other), rest) for one in advances):
                    return WorkLoop(loop, "stride", axis, _is_of_thread(kernel, before), value)
    return None


def _counters(kernel: KernelView, loop: int) -> Iterator[tuple[int, int, tuple[Polynomial, ...]]]:
    """Indices that a loop moves: (value, start, by how much it may grow)."""
    one = kernel.loop(loop)
    numbers = numbering(kernel)
    if one.variable != NONE and NONE not in (one.start, one.step):
        yield one.variable, one.start, (numbers.index(one.step),)
    for carried in one.carried:
        if carried.phi in movers(kernel, loop) and NONE not in (carried.before, carried.next):
            own = numbers.index(carried.phi)
            grown = tuple(difference(numbers.index(end), own) for end in _versions(kernel, carried.next))
            yield carried.phi, carried.before, grown


def _versions(kernel: KernelView, value: int) -> tuple[int, ...]:
    """The values that branches leave."""
    op = kernel.op(value)
    return op.args[1:] if op.kind is Kind.PHI and op.name == "if" else (value,)


def _is_stride(kernel: KernelView, advance: Polynomial, axis: int, unit: Monomial, times: int) -> bool:
    """The number of blocks along `axis`, in the units in which the start counts blocks."""
    numbers = numbering(kernel)
    for monomial, count in advance.items():
        for factor in monomial:
            other = list(monomial)
            other.remove(factor)
            if tuple(other) == unit and count == times and _counts_blocks(kernel, numbers.example(factor), axis):
                return True
        constant = kernel.fold_int(numbers.example(monomial[0])) if len(monomial) == 1 else None
        if not unit and times == 1 and constant is not None and _is_constant_grid(kernel, axis, constant * count):
            return True
    return not unit and times == 1 and _is_constant_grid(kernel, axis, advance.get((), 0)) and len(advance) == 1


def _is_constant_grid(kernel: KernelView, axis: int, blocks: int) -> bool:
    return blocks > 1 and any(one.blocks == blocks for one in grids(kernel, axis))


def _is_of_thread(kernel: KernelView, value: int) -> bool:
    return any(kernel.op(at).kind in (Kind.THREAD_INDEX, Kind.LANE) for at in index_cone(kernel, value))


def _block_axis(kernel: KernelView, value: int) -> int | None:
    """The grid's axis that an index counts blocks along."""
    op = kernel.op(kernel.strip(value))
    axis = op.attrs.get("axis")
    return axis if op.kind is Kind.BLOCK_INDEX and isinstance(axis, int) else None


def _block_axes(kernel: KernelView, value: int) -> Iterator[int]:
    for at in index_cone(kernel, value):
        axis = _block_axis(kernel, at)
        if axis is not None:
            yield axis


def _counts_blocks(kernel: KernelView, value: int, axis: int) -> bool:
    """The grid's extent, or an argument that the grid is made from."""
    op = kernel.op(kernel.strip(value))
    return op.kind is Kind.GRID_SIZE or (op.kind is Kind.PARAM and _is_grid(kernel, op.name, axis))


def _is_grid(kernel: KernelView, name: str, axis: int) -> bool:
    """Some launch makes its grid from the value that it passes as this argument."""
    for host, launch in launches(kernel):
        op = host.op(launch)
        grid, params = op.attrs.get("grid"), op.attrs.get("params")
        if not isinstance(grid, int) or not isinstance(params, tuple) or axis >= grid:
            continue
        cone = tuple(host.walk(op.args[axis], _is_extent))
        made_of = [host.op(at) for at in cone]
        if any(inner.kind is Kind.PARAM and inner.attrs.get("meta") and inner.name == name for inner in made_of):
            return True
        if name in params:
            argument = op.args[grid + params.index(name)]
            constant = host.fold(argument)
            if constant is not None:
                return any(inner.kind is Kind.CONST and inner.attrs.get("value") == constant for inner in made_of)
            numbers = numbering(host)
            if any(numbers.number(at) == numbers.number(argument) for at in cone):
                return True
    return False


def _is_extent(op: Op) -> bool:
    """What a number of blocks is made of without being divided into tiles."""
    if op.kind is Kind.ELEMENTWISE:
        return op.name in ("mul", "min", "max", "where")
    return op.kind in (Kind.PHI, Kind.CAST)


def _counted(kernel: KernelView, loop: int, inside: list[int]) -> WorkLoop | None:
    """Item numbers are taken from a counter, and the loop's accesses follow them."""
    data = flow(kernel)
    for value in (*kernel.values(Kind.ATOMIC, name=("add", "inc")), *_cancelling(kernel)):
        if loop not in kernel.loops_of(value):
            continue
        if kernel.op(value).kind is not Kind.ATOMIC:
            return WorkLoop(loop, "counter", None, False, value)
        if data.is_output(value) and _is_ticket(kernel, value):
            made = frozenset(data.forward((value,)))
            if any(not made.isdisjoint(_places(kernel, one)) for one in inside if one != value):
                return WorkLoop(loop, "counter", None, False, value)
    return None


def _places(kernel: KernelView, access: int) -> Iterator[int]:
    for place in where(kernel, access):
        if place != NONE:
            yield from index_cone(kernel, place)


def _cancelling(kernel: KernelView) -> tuple[int, ...]:
    return tuple(
        value
        for value in kernel.values(Kind.ASM, Kind.CALL, Kind.CONTROL)
        if kernel.op(value).name.startswith(CANCELLED)
    )


def _is_ticket(kernel: KernelView, atomic: int) -> bool:
    """Adds a constant at a fixed place."""
    op = kernel.op(atomic)
    return kernel.fold_int(op.args[1]) is not None and not differs_within(kernel, op.args[0])


def _ranged(kernel: KernelView, loop: int) -> WorkLoop | None:
    """The loop runs from one multiple of the block's number to the next."""
    one = kernel.loop(loop)
    if NONE in (one.start, one.stop):
        return None
    start, stop = (tuple(_block_axes(kernel, bound)) for bound in (one.start, one.stop))
    if start and stop:
        return WorkLoop(loop, "range", start[0], False, one.variable)
    return None
