"""How many results each fetched element serves before it is fetched again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.addresses import is_tile
from d2k.analyzers.patterns.contraction import Contraction, accumulation, contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, moves, trip_count, where
from d2k.analyzers.patterns.matmul import Product, operand_path, products
from d2k.analyzers.patterns.rope import rotations, tables
from d2k.spec.facts import NONE, Kind, Op

MAX_PADDING = 16


@dataclass(frozen=True, slots=True)
class Reuse:
    """`fetch` serves `consumers` results each (None if that depends on what is not known), because of `use`."""

    fetch: int
    consumers: int | None
    use: int
    how: str


def reuses(view: BodyView) -> tuple[Reuse, ...]:
    """Every fetch that serves more than one result, in program order."""
    found = (
        *_matrix(view),
        *_dots(view),
        *_tables(view),
        *_copies(view),
        *_layouts(view),
        *_neighbours(view),
        *_both_ways(view),
    )
    return tuple(sorted(found, key=lambda one: (one.fetch, one.use)))


def _matrix(view: BodyView) -> Iterator[Reuse]:
    """An element of an operand meets all columns, or all rows, of the other."""
    served: dict[int, dict[frozenset[int], tuple[int | None, int]]] = {}
    for one in products(view):
        sums = accumulation(view, one.value)
        for fetches, extent in ((one.a_fetches, _columns(view, one)), (one.b_fetches, _rows(view, one))):
            for fetch in fetches:
                if extent != 1:
                    whole = view.op(one.value).attrs.get("instr", "any") in ("any", None)
                    times = _again(view, fetch, one.value, extent) if whole and extent is not None else extent
                    served.setdefault(fetch, {}).setdefault(sums, (times, one.value))
    for fetch, uses in served.items():
        extents = [extent for extent, _ in uses.values()]
        known = [extent for extent in extents if extent is not None]
        total = sum(known) if len(known) == len(extents) else None
        use = next(iter(uses.values()))[1]
        accumulators = f"{len(uses)} accumulators" if len(uses) > 1 else "one product"
        yield Reuse(fetch, total, use, f"multiplied in {accumulators}")


def _columns(view: BodyView, one: Product) -> int | None:
    return _block_extent(view, one, one.b, one.a, one.n)


def _rows(view: BodyView, one: Product) -> int | None:
    return _block_extent(view, one, one.a, one.b, one.m)


def _block_extent(view: BodyView, one: Product, other: int, own: int, instruction: int | None) -> int | None:
    """Rows (or columns) of the whole block's tile: those of the instruction if the block issues it as a whole,
    else those
    of the array that the other operand is kept in."""
    if view.op(one.value).attrs.get("instr", "any") in ("any", "tcgen05", None):
        return instruction
    theirs, ours = kept_in(view, other), kept_in(view, own)
    if ours is None:
        return None
    if theirs is None:
        return _by_warps(view, one, own, instruction)
    # [rows, depth] and [columns, depth], or one of them the other way round; rows may be padded
    if _unpadded(theirs[-1]) in (_unpadded(ours[-1]), _unpadded(ours[0])):
        return theirs[0]
    if _unpadded(theirs[0]) in (_unpadded(ours[-1]), _unpadded(ours[0])):
        return _unpadded(theirs[-1])
    return None


def _by_warps(view: BodyView, one: Product, own: int, instruction: int | None) -> int | None:
    """The other operand is in registers: if every warp reads the same elements, each serves the rows of all warps."""
    threads = view.launch.threads if isinstance(view, KernelView) else None
    if threads is None or instruction is None:
        return None
    reads = [at for at in flow(view).back((own,), operand_path) if view.op(at).kind is Kind.LOAD]
    places = [cone for at in reads for arg in view.op(at).args if arg != NONE for cone in (index_cone(view, arg),)]
    if not places or any(view.op(at).kind is Kind.WARP for cone in places for at in cone):
        return None
    for loop in view.loops_of(one.value):
        if loop == one.reduction:
            break
        if any(at == view.loop(loop).variable for cone in places for at in cone):
            continue
        return None
    return instruction * (threads // 32)


def _unpadded(extent: int) -> int:
    """An extent without the few elements that keep rows in different banks."""
    power = 1 << (extent.bit_length() - 1)
    return power if 0 < extent - power <= MAX_PADDING else extent


def kept_in(view: BodyView, operand: int) -> tuple[int, ...] | None:
    """Shape of the shared array behind an operand, without a leading dimension of stages."""
    if operand == NONE:
        return None
    data = flow(view)
    for at in data.back((operand,), lambda op: op.kind is not Kind.MMA):
        op = view.op(at)
        arrays = (
            data.arrays(op.args[0]) if op.kind is Kind.LOAD and op.args else ((at,) if op.kind is Kind.ALLOC else ())
        )
        for array in arrays:
            dims = view.dims(array)
            if view.op(array).attrs.get("space") == "shared" and dims and None not in dims and len(dims) >= 2:
                return tuple(dim for dim in dims[-2:] if dim is not None)
    return None


def _dots(view: BodyView) -> Iterator[Reuse]:
    """Sums of products without a matrix instruction: an operand is broadcast, or meets several vectors."""
    uses: dict[int, list[tuple[Contraction, int | None]]] = {}
    for one in contractions(view):
        if one.matrix:
            continue
        for fetch in one.fetches:
            uses.setdefault(fetch, []).append((one, _fan_out(view, fetch, one.value)))
    for fetch, found in uses.items():
        total = None if any(times is None for _, times in found) else sum(times or 0 for _, times in found)
        staged = any(kept_in(view, side) is not None for one, _ in found for side in view.op(one.value).args[:2])
        if (total is None and staged) or (total is not None and total >= 2):
            yield Reuse(fetch, total, found[0][0].value, "meets several vectors")


def _fan_out(view: BodyView, fetch: int, product: int) -> int | None:
    """By how much the product has more elements than the fetched tile, and how often inner loops use it again."""
    whole, own = view.dims(product), view.dims(fetch)
    times = 1
    if whole and own is not None:
        if None in whole or None in own:
            return None
        times = max(1, prod(dim or 1 for dim in whole) // max(1, prod(dim or 1 for dim in own)))
    return _again(view, fetch, product, times)


def _again(view: BodyView, fetch: int, use: int, times: int) -> int | None:
    """`times`, multiplied by the iterations of loops around the use that the fetch stands outside of."""
    around = view.loops_of(fetch)
    for loop in view.loops_of(use):
        if loop not in around:
            trips = trip_count(view, loop)
            if trips is None:
                return None
            times *= trips
    return times


def _tables(view: BodyView) -> Iterator[Reuse]:
    """A cosine or sine row that turns several heads."""
    for one in rotations(view):
        for fetch in tables(view, one):
            times = _fan_out(view, fetch, one.value)
            if times is None or times >= 2:
                yield Reuse(fetch, times, one.value, "turns several vectors")


def _copies(view: BodyView) -> Iterator[Reuse]:
    """A fetched tile that is stored to several places of one array."""
    data = flow(view)
    stores: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for store in data.outputs():
        if view.op(store).kind is Kind.ATOMIC or len(view.op(store).args) < 2:
            continue
        for fetch in data.fetches(view.op(store).args[1], lambda op: op.kind in (Kind.CAST, Kind.SHAPE)):
            if not is_tile(view, fetch):
                continue  # one number, no row
            target = data.memory(view.op(store).args[0])
            stores.setdefault((fetch, target), []).append(store)
    for (fetch, _), found in stores.items():
        times = 0
        unknown = False
        for store in found:
            again = _again(view, fetch, store, 1)
            moving = [
                loop
                for loop in view.loops_of(store)
                if loop not in view.loops_of(fetch)
                and any(moves(view, arg, loop) for arg in where(view, store) if arg >= 0)
            ]
            unknown = unknown or again is None
            times += (again or 1) if moving or again == 1 else 1
        if times >= 2 or (unknown and found):
            yield Reuse(fetch, None if unknown else times, found[0], "stored to several places")


def _layouts(view: BodyView) -> Iterator[Reuse]:
    """A fetched tile that is written as it is to one array and transposed to another."""
    data = flow(view)
    for fetch in view.values(Kind.LOAD, Kind.COPY):
        if not data.is_fetch(fetch) or not is_tile(view, fetch) or view.values(Kind.MMA):
            continue
        made = tuple(data.forward((fetch,), lambda op: op.kind is not Kind.REDUCE))
        turned = [at for at in made if _turns(view.op(at))]
        if not turned:
            continue
        straight = frozenset(data.forward((fetch,), lambda op: op.kind is not Kind.REDUCE and not _turns(op)))
        after = frozenset(data.forward(turned, lambda op: op.kind is not Kind.REDUCE))
        targets = [
            {data.memory(view.op(out).args[0]) for out in data.outputs() if out in side} for side in (straight, after)
        ]
        if targets[0] - targets[1] and targets[1] - targets[0]:
            yield Reuse(fetch, 2, turned[0], "written in two layouts")


def _both_ways(view: BodyView) -> Iterator[Reuse]:
    """A fetched tile that is summed along one axis for its rows and along the other for its columns.

    Sums of a row that only prepare its own elements, as in a normalisation, are one use after the other.
    """
    data = flow(view)
    ends = set(data.outputs())
    for fetch in view.values(Kind.LOAD, Kind.COPY):
        dims = view.dims(fetch)
        if not data.is_fetch(fetch) or not is_tile(view, fetch) or dims is None or view.values(Kind.MMA):
            continue
        made = frozenset(data.forward((fetch,), lambda op: op.kind in POINTWISE))
        axes: dict[int, int] = {}
        for at in made:
            for user in view.users(at):
                op = view.op(user)
                axis = 0 if len(dims) == 1 else op.attrs.get("axis")
                if op.kind is Kind.REDUCE and op.name == "sum" and isinstance(axis, int) and dims:
                    shape = view.op(op.args[0]).shape
                    if (
                        view.op(user).loop == view.op(fetch).loop
                        and shape is not None
                        and len(shape) == len(dims)
                        and ends & set(data.forward((user,)))
                    ):
                        axes.setdefault(axis % len(dims), user)
        rows = _over_rows(view, fetch, made)
        # sums that all come back to the tile's own elements normalise it
        kept = rows or any(_is_kept(view, user, len(dims)) for user in axes.values())
        axes |= rows
        if len(axes) >= 2 and kept:
            yield Reuse(fetch, 2, max(axes.values()), "summed for its row and for its column")


def _is_kept(view: BodyView, reduction: int, rank: int) -> bool:
    """The sum is stored as it is, with fewer axes than the tile."""
    data = flow(view)
    made = frozenset(data.forward((reduction,), lambda op: op.kind is not Kind.REDUCE))
    values = (view.op(at).args[1] for at in data.outputs() if at in made and len(view.op(at).args) > 1)
    shapes = (view.op(value).shape for value in values if value in made)
    return any(shape is not None and len(shape) < rank for shape in shapes)


def _over_rows(view: BodyView, fetch: int, made: frozenset[int]) -> dict[int, int]:
    """The fetched rows, one in each iteration, are added up element by element: {-1: the sum}."""
    data = flow(view)
    for loop in view.loops_of(fetch)[:1]:
        for carried in view.loop(loop).carried:
            dims = view.dims(fetch)
            if not dims or carried.next not in made or view.dims(carried.phi) != dims:
                continue
            if carried.phi in data.back((carried.next,), lambda op: op.kind in POINTWISE):
                return {-1: carried.next}
    return {}


POINTWISE = frozenset({Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.ITEM})


def _turns(op: Op) -> bool:
    return op.kind is Kind.SHAPE and op.name in ("trans", "permute")


def _neighbours(view: BodyView) -> Iterator[Reuse]:
    """A tile in shared memory, or a window of registers, from which each element is read at several distances."""
    data = flow(view)
    operands = _multiplied(view)
    for array, loads in data.loads.items():
        if view.op(array).attrs.get("space") != "shared" or array in operands:
            continue
        fetched = [at for source in data.written(array) for at in data.fetches(source, _moved)]
        if not fetched:
            continue
        places = {_offset(view, load) for load in loads if view.op(load).kind is Kind.LOAD}
        bases = {base for base, _ in places}
        if len(bases) == 1 and len(places) >= 2:
            yield Reuse(fetched[0], len(places), loads[0], "read at several distances")


def _multiplied(view: BodyView) -> frozenset[int]:
    """Arrays that hold operands of matrix products."""
    data = flow(view)
    operands = [side for one in products(view) for side in (one.a, one.b) if side != NONE]
    reads = (view.op(at) for at in data.back(operands, lambda op: op.kind is not Kind.MMA))
    return frozenset(array for op in reads if op.kind is Kind.LOAD and op.args for array in data.arrays(op.args[0]))


def _moved(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name == "where"
    )


def _offset(view: BodyView, load: int) -> tuple[object, object]:
    """The indices of an access as what moves and the constant distances from it."""
    from d2k.analyzers.patterns.addresses import place_polynomials

    moving: list[object] = []
    constant: list[int] = []
    for polynomial in place_polynomials(view, load):
        moving.append(frozenset((m, c) for m, c in polynomial.items() if m))
        constant.append(polynomial.get((), 0))
    return tuple(moving), tuple(constant)
