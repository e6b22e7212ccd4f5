"""Masks of elements, by the edge that they guard, and the parts of a kernel that do the same work without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.addresses import memory_of
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import LESS, index_cone
from d2k.analyzers.patterns.numbering import Monomial, difference, numbering
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile
from d2k.spec.facts import NONE, Guard, Kind, Op

LOGIC = ("and", "or", "not")
LOWEST = -1e4
POSITIONS = frozenset({"diagonal", "window"})


@dataclass(slots=True)
class Region:
    """A loop, or the code outside of loops, under one set of branch conditions. `fetch` is its first,
    `fetches` are those whose array is known, by the array; `masks` are comparisons of elements by the edge that they
    guard, `compared` the numbers of all of them.
    """

    loop: int
    guards: tuple[Guard, ...]
    fetch: int
    fetches: dict[int, list[int]] = field(default_factory=dict)
    masks: dict[str, int] = field(default_factory=dict)
    products: int = 0
    compared: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Peeled:
    """The edge is masked at `masked`, and not at `plain`; both are places of operations."""

    edge: str
    masked: int
    plain: int
    how: str


def peeled(kernel: KernelView) -> Iterator[Peeled]:
    """Edges that only some blocks of the work are masked for."""
    yield from _branched(kernel)
    found = regions(kernel)
    for plain in found:
        for masked in found:
            if plain is masked or not _same_work(kernel, plain, masked):
                continue
            remainder = NONE in (plain.loop, masked.loop) and plain.loop != masked.loop
            for edge, mask in masked.masks.items():
                if remainder and edge != "tail":
                    continue
                # a mask of the diagonal may look like one of a window: the interior has neither
                if not plain.masks.keys() & (POSITIONS if edge in POSITIONS else {edge}):
                    yield Peeled(edge, mask, plain.fetch, "the same work stands elsewhere without the mask")


def regions(kernel: KernelView) -> tuple[Region, ...]:
    """Parts of the kernel that fetch tiles, in program order; a loop counts with the loops inside it."""
    data = flow(kernel)
    found: dict[tuple[int, tuple[Guard, ...]], Region] = {}
    for fetch in kernel.values(Kind.LOAD, Kind.COPY):
        if not data.is_fetch(fetch) or not _is_tile(kernel, fetch):
            continue
        op = kernel.op(fetch)
        for loop in kernel.loops_of(fetch) or (NONE,):
            # compile-time switches turn masks on and off for whole kernels, not for blocks
            guards = tuple(guard for guard in op.guards if _lies(kernel, guard.value))
            region = found.setdefault((loop, guards), Region(loop, guards, fetch))
            for array in memory_of(kernel, fetch):
                region.fetches.setdefault(array, []).append(fetch)
            for comparison in _load_masks(kernel, fetch):
                _add(kernel, region, comparison)
    for region in found.values():
        for counter in _own_counters(kernel, region):
            region.masks.setdefault("tail", counter)
        for choice in _choices(kernel):
            op = kernel.op(choice)
            if _stands_in(kernel, choice, region.loop) and all(guard in op.guards for guard in region.guards):
                for comparison in comparisons(kernel, op.args[0]):
                    _add(kernel, region, comparison)
        region.products = sum(1 for value in kernel.values(Kind.MMA) if _stands_in(kernel, value, region.loop))
    return tuple(found.values())


def _own_counters(kernel: KernelView, region: Region) -> Iterator[int]:
    """Variables of loops that each thread ends for itself, which masks what lies beyond."""
    fetches = (fetch for group in region.fetches.values() for fetch in group)
    for loop in dict.fromkeys(loop for fetch in fetches for loop in kernel.loops_of(fetch)):
        variable = kernel.loop(loop).variable
        if variable != NONE and differs_within(kernel, variable) and region.loop in kernel.ancestors(loop):
            yield variable


def _stands_in(kernel: KernelView, value: int, loop: int) -> bool:
    return loop in kernel.loops_of(value) if loop != NONE else kernel.op(value).loop == NONE


def _is_tile(kernel: KernelView, fetch: int) -> bool:
    dims = kernel.op(fetch).shape
    return kernel.kernel.language == "cuda" or dims is None or len(dims) > 0


def _add(kernel: KernelView, region: Region, comparison: int) -> None:
    region.compared.add(numbering(kernel).number(comparison))
    edge = edge_of(kernel, comparison, region.loop)
    if edge is not None:
        region.masks.setdefault(edge, comparison)


def _load_masks(kernel: KernelView, fetch: int) -> Iterator[int]:
    op = kernel.op(fetch)
    if op.kind is Kind.LOAD and len(op.args) > 1 and op.args[1] != NONE:
        yield from comparisons(kernel, op.args[1])
    for guard in op.guards:
        if differs_within(kernel, guard.value):
            yield from comparisons(kernel, guard.value)


def _choices(kernel: KernelView) -> tuple[int, ...]:
    """Operations that replace masked elements by a constant."""
    found = (*kernel.values(Kind.PHI, name="if"), *kernel.values(Kind.ELEMENTWISE, name="where"))
    return tuple(
        value
        for value in found
        if differs_within(kernel, kernel.op(value).args[0])
        and any(_is_constant(kernel, arg) for arg in kernel.op(value).args[1:])
    )


def _is_constant(kernel: KernelView, value: int) -> bool:
    """A number, a tile of one number, or an array with one element set to a number."""
    op = kernel.op(kernel.strip(value))
    if op.kind is Kind.SHAPE and op.name == "insert":
        return _is_constant(kernel, op.args[1])
    return op.kind in (Kind.CONST, Kind.FULL) or kernel.fold(value) is not None


def comparisons(kernel: KernelView, condition: int) -> Iterator[int]:
    """Comparisons of element positions that a condition is made of."""

    def through(op: Op) -> bool:
        logic = op.kind is Kind.ELEMENTWISE and op.name in (*LOGIC, "where")
        return logic or op.kind in (Kind.SHAPE, Kind.CAST) or (op.kind is Kind.PHI and op.name == "if")

    for at in kernel.walk(condition, through):
        op = kernel.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in LESS and differs_within(kernel, at):
            yield at


def edge_of(kernel: KernelView, comparison: int, loop: int) -> str | None:
    """diagonal window tail boundary, or None if the comparison does not change with the loop or the block."""
    left, right = kernel.op(comparison).args[:2]
    for position, bound in ((left, right), (right, left)):
        if not _moves(kernel, position, loop):
            continue
        if differs_within(kernel, bound) and (differs_within(kernel, position) or rests_on_tile(kernel, bound)):
            if not _is_position(kernel, bound, loop):
                return None  # a comparison of data
            return "window" if _is_shifted(kernel, position, bound, loop) else "diagonal"
        # `element < length - start` is `start + element < length`
        return "boundary" if kernel.fold(bound) == 0 else "tail"
    return None


def _is_position(kernel: KernelView, value: int, loop: int) -> bool:
    """Made of ranges, thread and block numbers; each element's own data, and what the loop finds, are no positions."""
    places = (Kind.ARANGE, Kind.THREAD_INDEX, Kind.LANE, Kind.WARP, Kind.BLOCK_INDEX)
    cone = index_cone(kernel, value)
    for at in cone:
        op = kernel.op(at)
        if op.kind is Kind.LOAD and any(arg != NONE and differs_within(kernel, arg) for arg in op.args[:1]):
            return False
        if op.kind is Kind.ATOMIC or (op.kind is Kind.PHI and op.name == "loop" and loop in kernel.loops_of(at)):
            return False
    return any(kernel.op(at).kind in places for at in cone)


def _moves(kernel: KernelView, position: int, loop: int) -> bool:
    if loop == NONE:
        # the number of a lane is no position in an array, a range of elements is
        of_tile = any(kernel.op(at).kind is Kind.ARANGE for at in index_cone(kernel, position))
        return differs_within(kernel, position) and (of_tile or rests_on_tile(kernel, position))
    return not _moving(kernel, loop).isdisjoint(index_cone(kernel, position))


def _moving(kernel: KernelView, loop: int) -> frozenset[int]:
    one = kernel.loop(loop)
    return frozenset({one.variable, *(carried.phi for carried in one.carried)} - {NONE})


def _is_shifted(kernel: KernelView, left: int, right: int, loop: int) -> bool:
    """The two positions are compared at a distance, a window's width, that is no difference of two lengths."""
    numbers = numbering(kernel)
    distance = difference(numbers.index(left), numbers.index(right))
    tiles = {
        tuple(other for other in monomial if other != factor)
        for monomial in distance
        for factor in monomial
        if rests_on_tile(kernel, numbers.example(factor))
    }
    step = numbers.index(kernel.loop(loop).step) if loop != NONE and kernel.loop(loop).step != NONE else {}
    signs: list[bool] = []
    for monomial, times in distance.items():
        if monomial in step:
            continue  # a whole block of the loop
        examples = [numbers.example(factor) for factor in monomial]
        if not monomial:
            if abs(times) > 1:
                signs.append(times > 0)
        elif not any(_is_part(tile, monomial) for tile in tiles) and all(_is_length(kernel, one) for one in examples):
            signs.append(times > 0)
    return len(set(signs)) == 1


def _is_part(tile: Monomial, monomial: Monomial) -> bool:
    """A whole number of tiles: the tiles are counted from another end."""
    return bool(tile) and not Counter(tile) - Counter(monomial)


def _is_length(kernel: KernelView, value: int) -> bool:
    """An argument or a loaded number, the same for all tiles and iterations."""
    if differs_within(kernel, value) or rests_on_tile(kernel, value):
        return False
    return any(kernel.op(at).kind in (Kind.PARAM, Kind.LOAD, Kind.CONST) for at in index_cone(kernel, value))


def _same_work(kernel: KernelView, plain: Region, masked: Region) -> bool:
    """They read the same arrays and multiply or not, as two loops, as branches, or as a loop and its remainder."""
    if not plain.fetches and not plain.products:
        return False  # what they read is not known, and nothing else tells that it is the same
    if set(plain.fetches) != set(masked.fetches) or (plain.products > 0) != (masked.products > 0):
        return False
    if NONE not in (plain.loop, masked.loop) and plain.loop != masked.loop:
        one, other = kernel.loop(plain.loop), kernel.loop(masked.loop)
        return one.parent == other.parent and not _are_alternatives(kernel, one.guards, other.guards)
    if plain.loop == masked.loop:
        return any(Guard(guard.value, not guard.expected) in masked.guards for guard in plain.guards)
    mask = masked.masks.get("tail")
    if plain.loop == NONE or mask is None or numbering(kernel).number(mask) in plain.compared:
        return False  # the same mask in the loop and after it
    return _continues(kernel, plain, masked)


def _are_alternatives(kernel: KernelView, some: tuple[Guard, ...], others: tuple[Guard, ...]) -> bool:
    """All blocks of a launch take the same one of two branches."""
    return any(Guard(one.value, not one.expected) in others and not _lies(kernel, one.value) for one in some)


def _continues(kernel: KernelView, plain: Region, masked: Region) -> bool:
    """What the remainder fetches is added to what the loop carries."""
    data = flow(kernel)
    carried = {one.phi for one in kernel.loop(plain.loop).carried if one.next != one.phi}
    grown = frozenset(data.forward(carried))
    fetched = [fetch for fetches in masked.fetches.values() for fetch in fetches]
    return any(at in grown for at in data.forward(fetched))


def _lies(kernel: KernelView, condition: int) -> bool:
    """The condition says how a block lies: it differs from block to block or from iteration to iteration."""
    return rests_on_tile(kernel, condition) and not differs_within(kernel, condition)


def _branched(kernel: KernelView) -> Iterator[Peeled]:
    """Masks under a branch on how the block lies, which the others leave their data without."""
    for value in _choices(kernel):
        op = kernel.op(value)
        outer = frozenset() if op.loop == NONE else frozenset(kernel.loop(op.loop).guards)
        for guard in op.guards:
            if guard in outer or not _lies(kernel, guard.value) or not _is_left_out(kernel, value, guard):
                continue
            for comparison in comparisons(kernel, op.args[0]):
                edge = edge_of(kernel, comparison, op.loop)
                if edge in POSITIONS or (edge is not None and _strikes_out(kernel, value)):
                    yield Peeled(edge, comparison, guard.value, "a branch leaves the mask out of interior blocks")


def _strikes_out(kernel: KernelView, choice: int) -> bool:
    """Masked scores become so small that their exponential is zero."""
    numbers = [kernel.fold(arg) for arg in kernel.op(choice).args[1:]]
    return any(isinstance(one, (int, float)) and one <= LOWEST for one in numbers)


def _is_left_out(kernel: KernelView, value: int, guard: Guard) -> bool:
    """Behind the branch the data goes on masked, or else as it was."""
    data = flow(kernel)
    unmasked = frozenset(data.back(data.operands(value), lambda op: op.kind is not Kind.MMA))
    masked = frozenset(data.forward((value,), lambda op: op.kind in (Kind.PHI, Kind.SHAPE, Kind.CAST)))
    for phi in kernel.values(Kind.PHI, name="if"):
        condition, then, other = kernel.op(phi).args
        if condition == guard.value:
            taken, left = (then, other) if guard.expected else (other, then)
            if taken in masked and left in unmasked:
                return True
    return False
