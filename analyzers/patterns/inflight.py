"""Loads of one thread that are independent of each other and issued before the first of them is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accesses import STREAMING, accesses, by_tensor
from d2k.analyzers.patterns.contiguity import access_steps
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.loops import fetch_moves, trip_count, where
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.widths import NARROWEST, WIDEST, element_bits, threads, tile_elements, width
from d2k.spec.facts import NONE, Kind, Op

AUTOMATIC = 16
"""A loop of a constant, small number of iterations that fills registers is unrolled without being asked to."""


IN_A_ROW = 3
"""Two tiles of one tensor, such as the halves of a rotary pair, are what the operation takes and no unrolling."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """`count` loads of `tensor` in flight, None if the source does not say; `least` of them at any rate.

    `most` is None if there is no bound. `how` says what makes them independent.
    """

    tensor: str
    loads: tuple[int, ...]
    count: int | None
    least: int
    most: int | None
    how: str


def in_flight(kernel: KernelView) -> Iterator[InFlight]:
    """For each tensor that is loaded thread by thread, the most loads that are in flight at once."""
    operands = frozenset(at for one in products(kernel) for at in (*one.a_fetches, *one.b_fetches))
    groups: dict[tuple[str, int, tuple[object, ...]], list[int]] = {}
    every = accesses(kernel)
    streamed = STREAMING * sum(one.elements for one in every)
    moved = {tensor: sum(one.elements for one in group) for tensor, group in by_tensor(every).items()}
    for one in every:
        op = kernel.op(one.value)
        by_thread = one.how in ("pointer", "block_pointer", "vector", "array") and one.direction == "load"
        if one.tensor is None or not by_thread or one.value in operands or op.kind is not Kind.LOAD:
            continue
        # offsets, lengths and the like are read once and steer the rest
        if moved[one.tensor] >= streamed and not (is_triton(kernel) and op.shape == ()):
            groups.setdefault((one.tensor, op.loop, op.guards), []).append(one.value)
    for (tensor, loop, _), loads in groups.items():
        together = _together(kernel, loads)
        if is_triton(kernel) and len(together) < IN_A_ROW:
            together = together[:1]
        repeated, how = _repetitions(kernel, loop, together)
        least, most = _vectors(kernel, together[0])
        if repeated is None:
            yield InFlight(tensor, together, None, 1, None, how)
            continue
        times = repeated * len(together)
        exact = least * times if most == least else None
        words = how or (f"{len(together)} loads in a row" if len(together) > 1 else "the tile")
        yield InFlight(tensor, together, exact, least * times, None if most is None else most * times, words)


def _together(kernel: KernelView, loads: list[int]) -> tuple[int, ...]:
    """The longest run of loads, in program order, of which none is used before the last is issued."""
    best: tuple[int, ...] = ()
    for start in range(len(loads)):
        run = [loads[start]]
        first_use = _first_use(kernel, loads[start])
        for other in loads[start + 1 :]:
            if other > first_use or any(_needs(kernel, other, one) for one in run) or _same_place(kernel, other, run):
                break
            run.append(other)
            first_use = min(first_use, _first_use(kernel, other))
        if len(run) > len(best):
            best = tuple(run)
    return best


def _first_use(kernel: KernelView, load: int) -> int:
    """The first operation that does something with a loaded value."""
    last = len(kernel.body.ops)
    return min(
        (user for at in _copies(kernel, load) for user in kernel.users(at) if _works(kernel.op(user))), default=last
    )


def _copies(kernel: KernelView, load: int) -> Iterator[int]:
    return flow(kernel).forward((load,), lambda op: not _works(op) and op.kind is not Kind.LOAD)


def _works(op: Op) -> bool:
    keeps = (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.CONTROL)
    return op.kind not in keeps and not (op.kind is Kind.ELEMENTWISE and op.name == "where")


def _needs(kernel: KernelView, load: int, earlier: int) -> bool:
    return any(arg != NONE and kernel.depends(arg, earlier) for arg in where(kernel, load))


def _same_place(kernel: KernelView, load: int, others: list[int]) -> bool:
    return any(where(kernel, load) == where(kernel, one) for one in others)


def _repetitions(kernel: KernelView, loop: int, loads: tuple[int, ...]) -> tuple[int | None, str]:
    """How often unrolled loops repeat the loads, None if the source does not say; and what unrolls them."""
    times, how = 1, ""
    for around in kernel.ancestors(loop):
        factor = _unrolled(kernel, around, loads[0])
        if factor == 1 or not fetch_moves(kernel, loads[0], around):
            break
        if factor is None:
            return None, "an unrolled loop"
        times *= factor
        how = f"a loop unrolled {factor} times"
        if not _fills_registers(kernel, around, loads[0]):
            break
    return times, how


def _unrolled(kernel: KernelView, loop: int, load: int) -> int | None:
    """Iterations of a loop that run as one; None if the loop is unrolled by a number that is not known."""
    one = kernel.loop(loop)
    trips = trip_count(kernel, loop)
    factor = one.attrs.get("unroll")
    if isinstance(factor, int) and not isinstance(factor, bool):
        return max(1, factor if trips is None else min(factor, trips))
    if factor or one.form == "static":
        return trips
    small = trips is not None and 1 < trips <= AUTOMATIC
    return trips if small and not is_triton(kernel) and _fills_registers(kernel, loop, load) else 1


def _fills_registers(kernel: KernelView, loop: int, load: int) -> bool:
    """What is loaded is only kept in a register array while the loop runs."""
    kept = False
    for at in _copies(kernel, load):
        for user in kernel.users(at):
            op = kernel.op(user)
            if loop in kernel.ancestors(op.loop) and _works(op):
                return False
            kept = kept or op.name == "insert"
    return kept


def _moves_within(kernel: KernelView, load: int) -> bool:
    """The elements of the tile lie at different places."""
    return any(access_steps(kernel, load) or ())


def _vectors(kernel: KernelView, load: int) -> tuple[int, int | None]:
    """Fewest and most load instructions of a thread for one load of the source; None if there is no bound known."""
    if not is_triton(kernel):
        return 1, 1
    elements, count = tile_elements(kernel, load), threads(kernel)
    if elements is None or count is None:
        return (1, 1) if kernel.op(load).shape == () else (1, None)
    own = max(1, elements // count)
    found = width(kernel, load)
    if found.contiguous is False:
        return (own, own) if _moves_within(kernel, load) else (1, 1)
    run = found.run or own
    if found.contiguous is None:
        return max(1, own * NARROWEST // WIDEST), own
    bits = (found.bits or WIDEST) // run if found.bits is not None and run * NARROWEST < WIDEST else None
    known = element_bits(kernel.op(load).dtype) or bits
    if known is not None:
        each = -(-own // min(run, WIDEST // known))
        return each, each
    fewest = -(-own // min(run, WIDEST // NARROWEST))
    return fewest, -(-own // min(run, WIDEST // 32))
