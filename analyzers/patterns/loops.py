"""How far a loop goes, what it walks and what moves with it."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from d2k.analyzers.core.view import BodyGraph, BodyView, KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.memo import memo_loop
from d2k.analyzers.patterns.numbering import difference, numbering
from d2k.spec.facts import NONE, Kind, Op

LESS = ("lt", "le", "gt", "ge")


def trip_count(view: BodyView, loop: int) -> int | None:
    """How often a loop runs, if constants say so."""
    one = view.loop(loop)
    start, stop, step = (view.fold_int(value) for value in (one.start, one.stop, one.step))
    start = 0 if one.start == NONE else start
    step = 1 if one.step == NONE else step
    length = stop - start if start is not None and stop is not None else _length(view, one.start, one.stop)
    return max(0, -(-length // step)) if length is not None and step else None


def _length(view: BodyView, start: int, stop: int) -> int | None:
    """stop - start where both move alike: `range(pid * ROWS, pid * ROWS + ROWS)`."""
    if NONE in (start, stop):
        return None
    numbers = numbering(view)
    total = 0
    for monomial, times in difference(numbers.index(stop), numbers.index(start)).items():
        for factor in monomial:
            constant = view.fold_int(numbers.example(factor))
            if constant is None:
                return None
            times *= constant
        total += times
    return total


def arithmetic(op: Op) -> bool:
    """Index arithmetic; values read from memory are left as they are."""
    return op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.CONTROL, Kind.FULL)


_CONES: WeakKeyDictionary[BodyGraph, dict[int, tuple[int, ...]]] = WeakKeyDictionary()


def index_cone(view: BodyView, value: int) -> tuple[int, ...]:
    """`value` and what it is computed from by index arithmetic.

    A value read from memory is an end, not its address; conditions only choose between values.
    """
    cones = _CONES.setdefault(view.graph, {})
    if value not in cones:
        cones[value] = tuple(_cone(view, value))
    return cones[value]


def _cone(view: BodyView, value: int) -> Iterator[int]:
    seen = {value}
    stack = [value]
    while stack:
        at = stack.pop()
        yield at
        op = view.op(at)
        if not arithmetic(op):
            continue
        chosen = (op.kind is Kind.PHI and op.name == "if") or (op.kind is Kind.ELEMENTWISE and op.name == "where")
        for arg in reversed(op.args[1:] if chosen else op.args):
            if arg != NONE and arg not in seen:
                seen.add(arg)
                stack.append(arg)


@memo_loop
def movers(view: BodyView, loop: int) -> frozenset[int]:
    """Values that differ from iteration to iteration by index arithmetic: the loop variable and bumped pointers."""
    known = _MOVERS.setdefault(view.graph, {})
    if loop not in known:
        known[loop] = _movers(view, loop)
    return known[loop]


_MOVERS: WeakKeyDictionary[BodyGraph, dict[int, frozenset[int]]] = WeakKeyDictionary()


def _movers(view: BodyView, loop: int) -> frozenset[int]:
    one = view.loop(loop)
    found = {one.variable} - {NONE}
    for carried in one.carried:
        if carried.next in (carried.phi, NONE):
            continue
        path = tuple(index_cone(view, carried.next))
        # a pointer or counter advances by index arithmetic alone; an accumulator takes in data
        if carried.phi in path and all(
            arithmetic(view.op(at)) or _fixed(view.op(at)) or _is_origin(view, at, loop) for at in path
        ):
            found.add(carried.phi)
    return frozenset(found)


def _is_origin(view: BodyView, value: int, loop: int) -> bool:
    """A number that is read before the loop and is the same for the whole block, such as where a sequence starts."""
    op = view.op(value)
    if op.kind is not Kind.LOAD or loop in view.loops_of(value):
        return False
    own = (Kind.ARANGE, Kind.THREAD_INDEX, Kind.LANE, Kind.WARP)
    return all(view.op(at).kind not in own for at in index_cone(view, op.args[0]))


def _fixed(op: Op) -> bool:
    return op.kind in (
        Kind.CONST,
        Kind.PARAM,
        Kind.ARANGE,
        Kind.BLOCK_INDEX,
        Kind.GRID_SIZE,
        Kind.BLOCK_SIZE,
        Kind.THREAD_INDEX,
        Kind.LANE,
        Kind.WARP,
        Kind.DESCRIPTOR,
        Kind.ATTRIBUTE,
    )


def moves(view: BodyView, value: int, loop: int) -> bool:
    """`value`, an address or an index, changes as `loop` goes on."""
    moving = movers(view, loop)
    return any(at in moving for at in index_cone(view, value))


@memo_loop
def walked(view: BodyView, loop: int) -> tuple[int, ...]:
    """Reads of global memory in a loop whose addresses move with it, in program order."""
    data = flow(view)
    found = []
    for value in view.values(Kind.LOAD, Kind.COPY):
        if loop in view.loops_of(value) and data.is_fetch(value) and fetch_moves(view, value, loop):
            found.append(value)
    return tuple(found)


def fetch_moves(view: BodyView, fetch: int, loop: int) -> bool:
    """The place that a fetch reads changes as `loop` goes on, also if it is looked up at an index that moves."""
    return any(arg != NONE and (moves(view, arg, loop) or _looked_up(view, arg, loop)) for arg in where(view, fetch))


def _looked_up(view: BodyView, place: int, loop: int) -> bool:
    """Some number that the place is computed from is read, in the loop, at a place that moves."""
    reads = (at for at in index_cone(view, place) if view.op(at).kind is Kind.LOAD and loop in view.loops_of(at))
    return any(arg != NONE and moves(view, arg, loop) for at in reads for arg in where(view, at))


def where(view: BodyView, access: int) -> tuple[int, ...]:
    """The operands of an access of global memory that say where: address, descriptor and indices."""
    op = view.op(access)
    match op.kind:
        case Kind.LOAD:
            # (address, mask, indices…), or (address, mask, what masked elements are)
            return op.args[:1] if op.attrs.get("other") else op.args[:1] + op.args[2:]
        case Kind.ATOMIC if op.name == "cas":
            # (address, value, mask, what it is compared with, indices…)
            return op.args[:1] + op.args[4:]
        case Kind.STORE | Kind.ATOMIC:
            # (address, value, mask, indices…)
            return op.args[:1] + op.args[3:]
        case _:
            return op.args[1:] if op.attrs.get("direction", "load") in ("load", "gather") else op.args[:1] + op.args[2:]


def axis_name(kernel: KernelView, loop: int) -> str | None:
    """The kernel's argument that names the axis a loop walks: its extent, or else the array that it walks along."""
    extent = _extent(kernel, (kernel.loop(loop).stop,)) or _extent(kernel, _bounds_in_masks(kernel, loop))
    if extent is not None:
        return extent
    fetched = sorted(walked(kernel, loop), key=lambda value: (not _is_multiplied(kernel, value), -_rank(kernel, value)))
    names = [kernel.pointer(flow(kernel).source_address(value)) for value in fetched]
    return next((name for name in names if name is not None), None)


def _rank(kernel: KernelView, value: int) -> int:
    return sum(dim != 1 for dim in kernel.dims(value) or ())


def _is_multiplied(kernel: KernelView, fetch: int) -> bool:
    """The fetched tile is an operand of a matrix product: it is walked for its own sake."""
    moved = flow(kernel).forward((fetch,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.LOAD, Kind.PHI))
    return any(kernel.op(user).kind is Kind.MMA for at in moved for user in kernel.users(at))


def _extent(kernel: KernelView, bounds: tuple[int, ...]) -> str | None:
    """The one run-time argument among those that bounds are computed from; a compile-time one if it is alone."""
    found = [
        kernel.op(at)
        for bound in bounds
        if bound != NONE
        for at in index_cone(kernel, bound)
        if kernel.op(at).kind is Kind.PARAM
    ]
    names = dict.fromkeys(op.name for op in found if not op.attrs.get("constexpr"))
    if len(names) == 1:
        return next(iter(names))
    # a compile-time extent stands alone; in arithmetic it may be the size of a tile
    alone = [kernel.op(kernel.strip(bound)) for bound in bounds if bound != NONE]
    fixed = dict.fromkeys(op.name for op in alone if op.kind is Kind.PARAM and op.attrs.get("constexpr"))
    return next(iter(fixed)) if not names and len(fixed) == 1 else None


def _bounds_in_masks(kernel: KernelView, loop: int) -> tuple[int, ...]:
    """What indices that move with the loop are compared with: `cols < n`."""
    moving = movers(kernel, loop)
    found: list[int] = []
    for value in kernel.values(Kind.ELEMENTWISE, name=LESS):
        if loop not in kernel.loops_of(value):
            continue
        left, right = kernel.op(value).args[:2]
        for index, bound in ((left, right), (right, left)):
            inner = kernel.strip(bound)
            if kernel.op(inner).kind is Kind.PARAM and any(at in moving for at in index_cone(kernel, index)):
                found.append(inner)
    return tuple(dict.fromkeys(found))
