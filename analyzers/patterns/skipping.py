"""Blocks that are left out: loop bounds that follow a diagonal or a window, branches around whole blocks,
lists of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.addresses import block_indices
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import LESS, arithmetic, index_cone, movers, walked, where
from d2k.analyzers.patterns.memo import memo_loop
from d2k.analyzers.patterns.numbering import Monomial, Polynomial, difference, numbering
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
        yield from _listed(view, loop)
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
    low, high = (
        (one.stop, one.start)
        if (view.fold_int(one.step) or 1) < 0 or _is_negated(view, one.step)
        else (one.start, one.stop)
    )
    edges = tile_edges(view, loop)
    own = frozenset(numbering(view).index(one.step)) if one.step != NONE else frozenset()
    start, stop = (_bound(view, value, edges, own) for value in (low, high))
    if start is None and stop is None:
        if _starts_in_window(view, low):
            yield Skip("window", one.place, "the loop starts a window's length before the end")
        return
    lower, upper = compared(view, loop)
    for bound, pattern in _patterns(start, stop, lower, upper):
        edge = "starts" if bound is start else "ends"
        what = "the diagonal of its tile" if pattern == "causal" else "the edge of the window"
        yield Skip(pattern, one.place, f"the loop {edge} at {what}")


def follows_tile(view: BodyView, loop: int) -> bool:
    """A bound of the loop moves with the edge of the block's tile, as under a causal mask."""
    one = view.loop(loop)
    edges = tile_edges(view, loop)
    return any(_bound(view, value, edges) is not None for value in (one.start, one.stop))


def _is_negated(view: BodyView, step: int) -> bool:
    return step != NONE and view.op(step).kind is Kind.ELEMENTWISE and view.op(step).name == "neg"


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


@memo_loop
def tile_edges(view: BodyView, loop: int) -> tuple[Polynomial, ...]:
    """First positions of the tile that a block works on while the loop goes on: rows of its outputs, sides of
    its masks."""
    moving = movers(view, loop)
    found: list[Polynomial] = []
    for value in view.values(Kind.ELEMENTWISE, name=LESS):
        if loop not in view.loops_of(value):
            continue
        left, right = view.op(value).args[:2]
        for fixed, other in ((left, right), (right, left)):
            if _moves(view, other, moving) and not _moves(view, fixed, moving) and differs_within(view, fixed):
                found.append(_without_position(view, fixed))
    for store in flow(view).outputs():
        for place in where(view, store):
            if place != NONE:
                found.extend(edge for edge in touching_tiles(view, place) if not _rests_on(view, edge, moving))
    distinct = {frozenset(edge.items()): edge for edge in found if _tiled(view, edge)}
    return tuple(distinct.values())


def _without_position(view: BodyView, value: int) -> Polynomial:
    """A position less its place inside the tile: what all elements of the tile share."""
    numbers = numbering(view)
    return {
        monomial: times
        for monomial, times in numbers.index(value).items()
        if not any(differs_within(view, numbers.example(factor)) for factor in monomial)
    }


def _tiled(view: BodyView, edge: Polynomial) -> frozenset[Monomial]:
    """The terms of an edge that differ from block to block."""
    numbers = numbering(view)
    return frozenset(m for m in edge if any(tile_numbers(view, numbers.example(one), loaded=True) for one in m))


def _rests_on(view: BodyView, edge: Polynomial, values: frozenset[int]) -> bool:
    numbers = numbering(view)
    return any(_moves(view, numbers.example(factor), values) for monomial in edge for factor in monomial)


def _moves(view: BodyView, value: int, moving: frozenset[int]) -> bool:
    return any(at in moving for at in index_cone(view, value))


def touching_tiles(view: BodyView, address: int) -> tuple[Polynomial, ...]:
    """Offsets in an address that are a multiple of a tile's extent: `pid * BLOCK` beside `arange(BLOCK)`."""
    return tuple(offset for offset, _ in tiled_offsets(view, address))


@memo_loop
def tiled_offsets(view: BodyView, address: int) -> tuple[tuple[Polynomial, Polynomial], ...]:
    """As `touching_tiles`, each with the extent of its tile."""
    numbers = numbering(view)
    found: list[tuple[Polynomial, Polynomial]] = []
    for at in index_cone(view, address):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name == "add" and len(op.args) == 2:
            for offset, inner in (op.args, op.args[::-1]):
                extent = _extent(view, view.strip(inner))
                if extent is not None and not differs_within(view, offset) and _steps_by(view, offset, extent):
                    found.append((numbers.index(offset), extent))
        elif op.kind is Kind.SHAPE and op.name == "block_pointer" and op.shape is not None:
            rank = len(op.shape)
            for offset, dim in zip(op.args[-rank:], op.shape, strict=True):
                if _steps_by(view, offset, numbers.index(dim)):
                    found.append((numbers.index(offset), numbers.index(dim)))
    return tuple(found)


def _extent(view: BodyView, value: int) -> Polynomial | None:
    """How many elements a range covers."""
    op = view.op(value)
    if op.kind is Kind.ARANGE and op.shape:
        return numbering(view).index(op.shape[0])
    return None


def _steps_by(view: BodyView, offset: int, extent: Polynomial) -> bool:
    """Some tile number in `offset` is multiplied by just this extent, so that neighbouring tiles touch."""
    numbers = numbering(view)
    if len(extent) != 1:
        return False
    ((size, times),) = extent.items()
    for monomial, count in numbers.index(offset).items():
        for factor in monomial:
            rest = list(monomial)
            rest.remove(factor)
            if tuple(rest) == size and abs(count) == times and tile_numbers(view, numbers.example(factor), loaded=True):
                return True
    return False


def _bound(
    view: BodyView, value: int, edges: tuple[Polynomial, ...], step: frozenset[Monomial] = frozenset()
) -> _Bound | None:
    """`value` as a bound that follows the edge of a tile: they move together from block to block.

    A shift by one step of the loop is no width.
    """
    if value == NONE:
        return None
    numbers = numbering(view)
    for alternative in _alternatives(view, value):
        bound = numbers.index(alternative)
        tiled = _tiled(view, bound)
        if not tiled:
            continue
        for edge in edges:
            shift = _shift(view, bound, edge)
            if shift is not None:
                widths = {m: n for m, n in shift.items() if _is_width(view, m, n) and m not in step - {()}}
                return _Bound(value, frozenset(widths), any(times < 0 for times in widths.values()))
    return None


def _shift(view: BodyView, bound: Polynomial, edge: Polynomial) -> Polynomial | None:
    """What is left of bound - edge, in elements or in blocks; None if the two do not move together from block to block.

    The edge may have an origin of its own, such as the first row of a sequence.
    """
    for scale in _scales(view, bound, edge):
        scaled = {tuple(sorted((*monomial, *scale))): times for monomial, times in bound.items()}
        tiled = _tiled(view, scaled)
        if tiled and all(edge.get(monomial) == scaled[monomial] for monomial in tiled):
            rest = difference(scaled, edge)
            own = _tiled(view, edge)
            return {m: times for m, times in rest.items() if m not in own and (m != scale or not m)}
    return None


def _scales(view: BodyView, bound: Polynomial, edge: Polynomial) -> tuple[Monomial, ...]:
    """() for a bound in elements, the tile's extent for one in blocks."""
    found: list[Monomial] = [()]
    for monomial in _tiled(view, edge):
        for factor in monomial:
            if (factor,) in bound:
                rest = list(monomial)
                rest.remove(factor)
                found.append(tuple(rest))
    return tuple(dict.fromkeys(found))


def _is_width(view: BodyView, monomial: Monomial, times: int) -> bool:
    """A term that can be a window: a parameter, or a constant well below zero."""
    if not monomial:
        return times < -1
    numbers = numbering(view)
    for factor in monomial:
        example = numbers.example(factor)
        for at in index_cone(view, example):
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
    for at in index_cone(view, start):
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
        less = (view.op(value).name in ("lt", "le")) is not _strikes_out(view, value)
        for index, position, is_left in ((left, right, True), (right, left, False)):
            if _moves(view, index, moving) and not _moves(view, position, moving) and differs_within(view, position):
                if less is is_left:
                    upper = True
                else:
                    lower = True
    return lower, upper


def _strikes_out(view: BodyView, condition: int) -> bool:
    """Where the condition holds, a constant takes the place of the element: it says what is masked."""
    logic = view.flows_to(condition, lambda op: op.kind is Kind.ELEMENTWISE and op.name in ("and", "or"))
    for at in logic:
        for user in view.users(at):
            op = view.op(user)
            selects = (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if")
            if selects and op.args[0] == at and len(op.args) == 3:
                return isinstance(view.fold(view.strip(op.args[1])), (int, float))
    return False


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
    edges = tile_edges(view, loop)
    outer = {guard.value for guard in view.loop(loop).guards}
    for condition in dict.fromkeys(
        guard.value for fetch in fetched for guard in view.op(fetch).guards if guard.value not in outer
    ):
        for comparison in _comparisons(view, condition):
            left, right = view.op(comparison).args[:2]
            if differs_within(view, left) or differs_within(view, right):
                continue
            for index, tile in ((left, right), (right, left)):
                if _moves(view, index, moving) and not _moves(view, tile, moving) and _bound(view, tile, edges):
                    text = "a branch leaves out blocks beyond the tile's diagonal"
                    yield Skip("causal", view.op(comparison).place, text)


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
                sides = view.op(comparison).args[:2]
                tiles = [frozenset(_block_numbers(view, side)) for side in sides]
                if all(tiles) and not tiles[0] & tiles[1]:
                    text = "blocks on the wrong side of the diagonal return at once"
                    yield Skip("causal", view.op(comparison).place, text)


def _block_numbers(view: BodyView, side: int) -> Iterator[int]:
    """Tile numbers of a position that is made of block indices, constants and extents only."""
    if differs_within(view, side) or _counts_blocks(view, side):
        return
    if any(view.op(at).kind is Kind.PHI for at in index_cone(view, side)):
        return
    yield from tile_numbers(view, side)


def _counts_blocks(view: BodyView, value: int) -> bool:
    return any(view.op(at).kind in (Kind.GRID_SIZE, Kind.LOAD) for at in index_cone(view, value))


# lists


def _listed(view: BodyView, loop: int) -> Iterator[Skip]:
    """Blocks whose numbers the loop reads from a list: they are positions, or the list has bounds for each row."""
    data = flow(view)
    for fetch in view.values(Kind.LOAD, Kind.COPY):
        if not data.is_fetch(fetch) or loop not in view.loops_of(fetch):
            continue
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
    # sizes are not negative: `size < 0` tests a mark
    empty = {("eq", 0), ("ne", 0), ("gt", 0), ("le", 0), ("lt", 1), ("ge", 1)}
    swapped = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}
    for (size, zero), name in ((op.args[:2], op.name), (op.args[1::-1], swapped.get(op.name, op.name))):
        if (name, view.fold_int(zero)) not in empty:
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
    if op.kind is not Kind.LOAD or not rests_on_tile(view, op.args[0]):
        return False
    # a size bounds something else too, a flag or a row number is only tested
    made = frozenset(view.flows_to(value, arithmetic))
    if any(bound in made for loop in view.body.loops for bound in (loop.start, loop.stop)):
        return True
    compared = (view.op(at) for at in made if view.op(at).name in LESS)
    return any(not isinstance(view.fold(arg), int) for one in compared for arg in one.args if arg not in made)
