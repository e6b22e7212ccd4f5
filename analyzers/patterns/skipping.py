"""Blocks that are left out: loop bounds that follow a diagonal or a window, branches around whole blocks,
lists of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.addresses import block_indices
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import LESS, arithmetic, movers, walked, where
from d2k.analyzers.patterns.numbering import Monomial, Polynomial, numbering
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile, tile_numbers
from d2k.spec.facts import NONE, Kind, Place

MAX_ALTERNATIVES = 16


@dataclass(frozen=True, slots=True)
class Skip:
    """`pattern` is causal, window, block_list or empty_group."""

    pattern: str
    place: Place
    text: str


def skips(view: BodyView) -> Iterator[Skip]:
    for loop in range(len(view.body.loops)):
        fetched = walked(view, loop)
        if fetched:
            yield from _bounded(view, loop)
            yield from _guarded(view, loop, fetched)
            yield from _listed(view, loop, fetched)
    yield from _unvisited(view)
    yield from _empty(view)


# bounds


@dataclass(frozen=True, slots=True)
class _Bound:
    """A loop bound that follows the tile: `shift` are the terms that move it away from the tile's own edge."""

    value: int
    shift: frozenset[Monomial]
    down: bool


def _bounded(view: BodyView, loop: int) -> Iterator[Skip]:
    one = view.loop(loop)
    rows = row_tiles(view, loop)
    start = _bound(view, one.start, rows)
    stop = _bound(view, one.stop, rows)
    if start is None and stop is None:
        if _starts_in_window(view, one.start):
            yield Skip("window", one.place, "the loop starts a window's length before the end")
        return
    lower, upper = compared(view, loop)
    for bound, pattern in _patterns(start, stop, lower, upper):
        edge = "starts" if bound is start else "ends"
        what = "the diagonal of its tile" if pattern == "causal" else "the edge of the window"
        yield Skip(pattern, one.place, f"the loop {edge} at {what}")


def _patterns(start: _Bound | None, stop: _Bound | None, lower: bool, upper: bool) -> Iterator[tuple[_Bound, str]]:
    """Which side is the diagonal and which the window; `lower` and `upper` say how masks bound the loop's index."""
    only_lower = lower and not upper
    if start is not None and stop is not None:
        if not start.shift and not only_lower:
            # the blocks on the diagonal, in a loop of their own: what lies before was walked already
            yield stop, "causal"
            return
        starts_window = bool(start.shift and start.down)
        yield start, "window" if starts_window else "causal"
        same_width = bool(stop.shift) and stop.shift == start.shift
        yield stop, "window" if same_width or not starts_window else "causal"
    elif start is not None:
        yield start, "window" if start.shift and start.down and not only_lower else "causal"
    elif stop is not None:
        yield stop, "window" if only_lower else "causal"


def row_tiles(view: BodyView, loop: int) -> frozenset[int]:
    """Tile numbers of the positions that do not move with the loop: rows of the output, or sides of its masks."""
    moving = movers(view, loop)
    found: set[int] = set()
    for value in view.values(Kind.ELEMENTWISE, name=LESS):
        if loop not in view.loops_of(value):
            continue
        left, right = view.op(value).args[:2]
        for fixed, other in ((left, right), (right, left)):
            if _moves(view, other, moving) and not _moves(view, fixed, moving) and differs_within(view, fixed):
                found |= tile_numbers(view, fixed)
    data = flow(view)
    for store in data.outputs():
        for place in where(view, store):
            if place != NONE:
                found |= touching_tiles(view, place)
    return frozenset(found)


def _moves(view: BodyView, value: int, moving: frozenset[int]) -> bool:
    return any(at in moving for at in view.walk(value, arithmetic))


def touching_tiles(view: BodyView, address: int) -> frozenset[int]:
    """Tile numbers that a position inside a tile is added to: `pid` in `pid * BLOCK + arange(BLOCK)`."""
    numbers = numbering(view)
    found: set[int] = set()
    for at in view.walk(address, arithmetic):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name == "add" and len(op.args) == 2:
            for offset, inner in (op.args, op.args[::-1]):
                extent = _extent(view, view.strip(inner))
                if extent is not None and not differs_within(view, offset):
                    found |= _steps_by(view, offset, extent)
        elif op.kind is Kind.SHAPE and op.name == "block_pointer" and op.shape is not None:
            rank = len(op.shape)
            for offset, dim in zip(op.args[-rank:], op.shape, strict=True):
                found |= _steps_by(view, offset, numbers.index(dim))
    return frozenset(found)


def _extent(view: BodyView, value: int) -> Polynomial | None:
    """How many elements a range or the threads along an axis cover."""
    op = view.op(value)
    if op.kind is Kind.ARANGE and op.shape:
        return numbering(view).index(op.shape[0])
    return None


def _steps_by(view: BodyView, offset: int, extent: Polynomial) -> frozenset[int]:
    """Tile numbers that `offset` multiplies by just this extent, so that neighbouring tiles touch."""
    numbers = numbering(view)
    (size, times), *more = extent.items() or ((((), 0)),)
    found: set[int] = set()
    if more:
        return frozenset()
    for monomial, count in numbers.index(offset).items():
        for factor in monomial:
            rest = list(monomial)
            rest.remove(factor)
            if tuple(rest) == size and count == times:
                found |= tile_numbers(view, numbers.example(factor))
    return frozenset(found)


def _bound(view: BodyView, value: int, rows: frozenset[int]) -> _Bound | None:
    """`value` as a bound that follows one of the tiles `rows`."""
    if value == NONE or not rest_on(view, value, rows):
        return None
    numbers = numbering(view)
    shift: set[Monomial] = set()
    down = False
    for alternative in _alternatives(view, value):
        if not rest_on(view, alternative, rows):
            continue
        polynomial = numbers.index(alternative)
        scales = {
            factor
            for monomial in polynomial
            if any(rest_on(view, numbers.example(one), rows) for one in monomial)
            for factor in monomial
        } | {0}
        for monomial, times in polynomial.items():
            tiled = any(rest_on(view, numbers.example(one), rows) for one in monomial)
            own_extent = len(monomial) == 1 and monomial[0] in scales
            if not tiled and not own_extent and _is_width(view, monomial, times):
                shift.add(monomial)
                down = down or times < 0
    return _Bound(value, frozenset(shift), down)


def rest_on(view: BodyView, value: int, tiles: frozenset[int]) -> bool:
    return bool(tile_numbers(view, value) & tiles)


def _is_width(view: BodyView, monomial: Monomial, times: int) -> bool:
    """A term that can be a window: a parameter, or a constant well below zero."""
    if not monomial:
        return times < -1
    numbers = numbering(view)
    for factor in monomial:
        example = numbers.example(factor)
        for at in view.walk(example, arithmetic):
            if view.op(at).kind in (Kind.PARAM, Kind.LOAD):
                return True
    return False


def _alternatives(view: BodyView, value: int) -> tuple[int, ...]:
    """What a bound may be: operands of min, max and selections, and what is only rounded to a multiple."""
    found: list[int] = []
    stack = [value]
    seen: set[int] = set()
    while stack and len(seen) < MAX_ALTERNATIVES:
        at = view.strip(stack.pop())
        if at in seen:
            continue
        seen.add(at)
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in ("min", "max"):
            stack.extend(op.args)
        elif (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if"):
            stack.extend(op.args[1:])
        elif op.kind is Kind.ELEMENTWISE and op.name in ("floordiv", "div") and view.fold_int(op.args[1]):
            stack.append(op.args[0])
        elif op.kind is Kind.ELEMENTWISE and op.name == "mul" and any(view.fold_int(arg) for arg in op.args):
            rounded = [arg for arg in op.args if view.op(view.strip(arg)).name in ("floordiv", "div")]
            if rounded:
                stack.extend(rounded)
            else:
                found.append(at)
        else:
            found.append(at)
    return tuple(found)


def _starts_in_window(view: BodyView, start: int) -> bool:
    """`max(0, length - window)`, whatever block it is."""
    if start == NONE:
        return False
    for at in view.walk(start, lambda op: arithmetic(op) and op.name != "max"):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name == "max" and any(view.fold(arg) == 0 for arg in op.args):
            rest = [arg for arg in op.args if view.fold(arg) != 0]
            if rest and not block_indices(view, rest[0]) and _subtracts_width(view, rest[0]):
                return True
    return False


def _subtracts_width(view: BodyView, value: int) -> bool:
    polynomial = numbering(view).index(view.strip(value))
    signs = {times > 0 for monomial, times in polynomial.items()}
    return len(signs) == 2 and any(times < 0 and _is_width(view, m, times) for m, times in polynomial.items())


def compared(view: BodyView, loop: int) -> tuple[bool, bool]:
    """Whether masks bound the loop's index from below and from above by positions of the tile."""
    moving = movers(view, loop)
    lower = upper = False
    for value in view.values(Kind.ELEMENTWISE, name=LESS):
        if loop not in view.loops_of(value):
            continue
        left, right = view.op(value).args[:2]
        less = view.op(value).name in ("lt", "le")
        for index, position, is_left in ((left, right, True), (right, left, False)):
            if _moves(view, index, moving) and not _moves(view, position, moving) and differs_within(view, position):
                if less is is_left:
                    upper = True
                else:
                    lower = True
    return lower, upper


def masks_triangle(view: BodyView) -> int | None:
    """A comparison of positions that move with a loop with positions of the tile, if there is one."""
    for loop in range(len(view.body.loops)):
        moving = movers(view, loop)
        for value in view.values(Kind.ELEMENTWISE, name=LESS):
            if loop not in view.loops_of(value):
                continue
            left, right = view.op(value).args[:2]
            for index, position in ((left, right), (right, left)):
                if (
                    _moves(view, index, moving)
                    and not _moves(view, position, moving)
                    and differs_within(view, position)
                    and differs_within(view, index)
                ):
                    return value
    return None


# branches


def _guarded(view: BodyView, loop: int, fetched: tuple[int, ...]) -> Iterator[Skip]:
    """A branch inside the loop around the block's loads, on how the block lies to the tile."""
    moving = movers(view, loop)
    rows = row_tiles(view, loop)
    outer = {guard.value for guard in view.loop(loop).guards}
    for condition in dict.fromkeys(
        guard.value for fetch in fetched for guard in view.op(fetch).guards if guard.value not in outer
    ):
        for comparison in _comparisons(view, condition):
            left, right = view.op(comparison).args[:2]
            if differs_within(view, left) or differs_within(view, right):
                continue
            for index, tile in ((left, right), (right, left)):
                if _moves(view, index, moving) and not _moves(view, tile, moving) and rest_on(view, tile, rows):
                    yield Skip(
                        "causal", view.op(comparison).place, "a branch leaves out blocks beyond the tile's diagonal"
                    )


def _comparisons(view: BodyView, condition: int) -> tuple[int, ...]:
    logic = ("and", "or", "not")
    return tuple(
        at
        for at in view.walk(condition, lambda op: op.kind is Kind.ELEMENTWISE and op.name in logic)
        if view.op(at).kind is Kind.ELEMENTWISE and view.op(at).name in LESS
    )


def _unvisited(view: BodyView) -> Iterator[Skip]:
    """Blocks of a two-dimensional grid that return at once because they lie on the wrong side of the diagonal."""
    seen: set[int] = set()
    for fetch in view.values(Kind.LOAD, Kind.COPY):
        if not flow(view).is_fetch(fetch):
            continue
        for guard in view.op(fetch).guards:
            if guard.value in seen:
                continue
            seen.add(guard.value)
            for comparison in _comparisons(view, guard.value):
                left, right = view.op(comparison).args[:2]
                if differs_within(view, left) or differs_within(view, right):
                    continue
                a, b = tile_numbers(view, left), tile_numbers(view, right)
                if a and b and not a & b and not _counts_blocks(view, left) and not _counts_blocks(view, right):
                    text = "blocks on the wrong side of the diagonal return at once"
                    yield Skip("causal", view.op(comparison).place, text)


def _counts_blocks(view: BodyView, value: int) -> bool:
    return any(view.op(at).kind in (Kind.GRID_SIZE, Kind.LOAD) for at in view.walk(value, arithmetic))


# lists


def _listed(view: BodyView, loop: int, fetched: tuple[int, ...]) -> Iterator[Skip]:
    """Blocks whose numbers the loop reads from a list and compares as positions, or whose list has its own
    bounds for each row."""
    for fetch in fetched:
        for place in where(view, fetch):
            for entry in _entries(view, loop, place):
                if _is_position(view, loop, entry) or _is_compressed(view, loop):
                    text = "visits the blocks that a list names"
                    yield Skip("block_list", view.op(entry).place, text)


def _entries(view: BodyView, loop: int, place: int) -> Iterator[int]:
    """Scalars read from memory at the loop's own position that, times a block's extent, are part of an address."""
    if place == NONE:
        return
    moving = movers(view, loop)
    numbers = numbering(view)
    for monomial, times in numbers.index(place).items():
        for factor in monomial:
            entry = view.strip(numbers.example(factor))
            op = view.op(entry)
            if op.kind is not Kind.LOAD or loop not in view.loops_of(entry):
                continue
            if differs_within(view, op.args[0]) or not _moves(view, op.args[0], moving):
                continue
            if len(monomial) > 1 or abs(times) > 1:
                yield entry


def _is_position(view: BodyView, loop: int, entry: int) -> bool:
    """The entry, as a block's position, is compared with other positions."""
    made = frozenset(view.flows_to(entry, arithmetic))
    return any(
        any(arg in made for arg in view.op(value).args)
        for value in view.values(Kind.ELEMENTWISE, name=LESS)
        if loop in view.loops_of(value)
    )


def _is_compressed(view: BodyView, loop: int) -> bool:
    """The loop's bounds are two neighbouring entries of an offsets array, and it multiplies what it visits."""
    one = view.loop(loop)
    start, stop = (view.strip(value) if value != NONE else NONE for value in (one.start, one.stop))
    if NONE in (start, stop) or any(view.op(value).kind is not Kind.LOAD for value in (start, stop)):
        return False
    return any(loop in view.loops_of(value) for value in view.values(Kind.MMA))


# groups


def _empty(view: BodyView) -> Iterator[Skip]:
    """Groups without rows: a branch on a group's size around its loads, or tiles counted from its size."""
    data = flow(view)
    seen: set[int] = set()
    for fetch in view.values(Kind.LOAD, Kind.COPY):
        if not data.is_fetch(fetch):
            continue
        for guard in view.op(fetch).guards:
            if guard.value not in seen:
                seen.add(guard.value)
                if any(_tests_size(view, at) for at in view.walk(guard.value, _is_logic)):
                    yield Skip("empty_group", view.op(guard.value).place, "a branch leaves out groups without rows")


def _is_logic(op: object) -> bool:
    return getattr(op, "kind", None) is Kind.ELEMENTWISE and getattr(op, "name", "") in ("and", "or", "not")


def _tests_size(view: BodyView, value: int) -> bool:
    """`size > 0`, where the size is read from memory or the difference of two neighbouring offsets."""
    op = view.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name not in (*LESS, "eq", "ne"):
        return False
    for size, zero in (op.args[:2], op.args[1::-1]):
        if view.fold(zero) not in (0, 1) or isinstance(view.fold(zero), bool):
            continue
        inner = view.strip(size)
        if differs_within(view, inner) or not rests_on_tile_load(view, inner):
            continue
        return True
    return False


def rests_on_tile_load(view: BodyView, value: int) -> bool:
    """`value` is the difference of two loads from one array, or a load, at the number of a group."""
    op = view.op(value)
    data = flow(view)
    if op.kind is Kind.ELEMENTWISE and op.name == "sub":
        ends = [view.strip(arg) for arg in op.args]
        if all(view.op(end).kind is Kind.LOAD for end in ends):
            arrays = {data.memory(view.op(end).args[0]) for end in ends}
            return len(arrays) == 1
        return False
    return op.kind is Kind.LOAD and rests_on_tile(view, op.args[0])
