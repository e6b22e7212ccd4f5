"""Reductions that are cut over blocks: a loop over a part of an axis, partial sums of a tiled axis, atomic sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.fold import fold
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.addresses import is_tile
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.hosts import launches, short
from d2k.analyzers.patterns.loops import index_cone, movers, walked, where
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.skipping import follows_tile, tiled_offsets, touching_tiles
from d2k.analyzers.patterns.tiles import tile_numbers
from d2k.spec.facts import NONE, Kind, Op


@dataclass(frozen=True, slots=True)
class Split:
    """A reduction whose part is chosen by the tile number `tile`; `loop` walks the part, NONE where a block
    has it at once.

    `value` is what is reduced or stored, `splits` the number of parts where it is known.
    """

    tile: int
    loop: int
    value: int
    splits: int | None
    how: str


def splits(kernel: KernelView) -> Iterator[Split]:
    """Every reduction of the kernel that several blocks share."""
    for loop in range(len(kernel.body.loops)):
        if _reduces(kernel, loop):
            yield from _looped(kernel, loop)
    yield from _atomic(kernel)
    yield from _summed_by_host(kernel)


def _reduces(kernel: KernelView, loop: int) -> bool:
    """The loop walks memory and carries something that it adds to and that is wanted after it."""
    if not walked(kernel, loop):
        return False
    data = flow(kernel)
    moving = movers(kernel, loop)
    for cell in cells(kernel, loop):
        if cell.olds & moving:
            continue
        behind = tuple(data.back(cell.news, _accumulates))
        if not any(_adds(kernel.op(at)) for at in behind):
            continue
        after = (at for at in data.forward(cell.olds) if loop not in kernel.loops_of(at))
        if any(data.is_output(at) for at in after):
            return True
    return False


def _accumulates(op: Op) -> bool:
    return op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "where", "mul", "max", "fma")
    )


def _adds(op: Op) -> bool:
    return op.kind is Kind.MMA or (op.kind is Kind.ELEMENTWISE and op.name in ("add", "fma", "max"))


def _looped(kernel: KernelView, loop: int) -> Iterator[Split]:
    one = kernel.loop(loop)
    if follows_tile(kernel, loop):
        return  # a mask's edge, not a part of the axis
    bounds = _tiles(kernel, one.start)
    offsets = frozenset(number for fetch in walked(kernel, loop) for number in _along(kernel, loop, fetch))
    for tile in sorted((bounds | offsets) - _positions(kernel) - _chosen(kernel, loop)):
        yield Split(tile, loop, _walked_place(kernel, loop), _parts(kernel, tile, loop), "walks a part of the axis")
        return


def _positions(kernel: KernelView) -> frozenset[int]:
    """Tile numbers that place what is stored beside the neighbouring tiles: they choose the output, not a part
    of a sum."""
    numbers = numbering(kernel)
    return frozenset(
        number
        for store in flow(kernel).outputs()
        for place in where(kernel, store)
        if place != NONE
        for edge in touching_tiles(kernel, place)
        for monomial in edge
        for factor in monomial
        for number in tile_numbers(kernel, numbers.example(factor))
    )


def _chosen(kernel: KernelView, loop: int) -> frozenset[int]:
    """Tile numbers that place what the loop does not walk: heads or batches, each with sums of its own."""
    inside = walked(kernel, loop)
    data = flow(kernel)
    return frozenset(
        number
        for fetch in kernel.values(Kind.LOAD, Kind.COPY)
        if data.is_fetch(fetch) and fetch not in inside and is_tile(kernel, fetch)
        for place in where(kernel, fetch)
        for number in _tiles(kernel, place)
    )


def _walked_place(kernel: KernelView, loop: int) -> int:
    return walked(kernel, loop)[0]


def _along(kernel: KernelView, loop: int, fetch: int) -> frozenset[int]:
    """Tile numbers that offset a walked address along the very axis that the loop walks."""
    numbers = numbering(kernel)
    steps = _step_factors(kernel, loop)
    if steps is None:
        return frozenset()
    found: set[int] = set()
    for place in where(kernel, fetch):
        if place == NONE:
            continue
        for monomial, _ in numbers.index(_entry(kernel, loop, place)).items():
            for factor in monomial:
                tiles = tile_numbers(kernel, numbers.example(factor))
                rest = [other for other in monomial if other != factor]
                if tiles and rest and all(other in steps for other in rest):
                    found |= tiles
    return frozenset(found)


def _entry(kernel: KernelView, loop: int, place: int) -> int:
    """What a bumped pointer is before the loop."""
    stripped = kernel.strip(place)
    for carried in kernel.loop(loop).carried:
        if carried.phi == stripped:
            return carried.before
    return place


def _step_factors(kernel: KernelView, loop: int) -> frozenset[int] | None:
    """Numbers of everything that one step of the loop is a product of."""
    numbers = numbering(kernel)
    one = kernel.loop(loop)
    found: set[int] = set()
    for carried in one.carried:
        if carried.phi in movers(kernel, loop) and carried.next != NONE:
            op = kernel.op(carried.next)
            for arg in op.args if op.name == "add" else ():
                if arg != carried.phi:
                    found.update(factor for monomial in numbers.index(arg) for factor in monomial)
    if one.step != NONE:
        found.update(factor for monomial in numbers.index(one.step) for factor in monomial)
    if one.stop != NONE:
        # a bare argument is the length of a row, and rows that lie one after the other are no parts of one axis
        stops = {factor for monomial in numbers.index(one.stop) for factor in monomial}
        found.update(number for number in stops if kernel.op(numbers.example(number)).kind is not Kind.PARAM)
    return frozenset(found) or None


def _parts(kernel: KernelView, tile: int, loop: int) -> int | None:
    """How many blocks share the axis: the grid's extent along the tile's axis, or the constant that the loop
    skips by."""
    example = numbering(kernel).example(tile)
    if kernel.op(example).kind is Kind.BLOCK_INDEX:
        extent = _grid_extent(kernel, kernel.op(example).attrs.get("axis"))
        if extent is not None:
            return extent
    if loop != NONE:
        return _skipped(kernel, loop, example)
    return None


def _grid_extent(kernel: KernelView, axis: object) -> int | None:
    """The grid's extent along `axis` if all launches agree on a constant."""
    found: set[int | None] = set()
    for host, launch in launches(kernel):
        op = host.op(launch)
        count = op.attrs.get("grid")
        if not isinstance(count, int) or not isinstance(axis, int):
            return None
        sizes = op.args[:count]
        if count == 1 and host.op(sizes[0]).name == "dim3":
            sizes = host.op(sizes[0]).args
        value = fold(host.body, sizes[axis], kernel.variant.constants) if axis < len(sizes) else 1
        found.add(value if isinstance(value, int) and not isinstance(value, bool) else None)
    if len(found) != 1:
        return None
    kernel.reads.update(kernel.variant.constants)
    return found.pop()


def _skipped(kernel: KernelView, loop: int, tile: int) -> int | None:
    """A constant factor of the loop's step, or a divisor of its range, that is the extent of no tile."""
    one = kernel.loop(loop)
    extents = {dim for value in kernel.values(Kind.ARANGE) for dim in kernel.op(value).args}
    blocks = {kernel.op(at).name for extent in extents for at in index_cone(kernel, extent)}
    names: dict[str, int] = {}
    parts = [one.start, one.stop, one.step, tile]
    parts += [carried.next for carried in one.carried if carried.phi in movers(kernel, loop)]
    for part in parts:
        if part == NONE:
            continue
        for at in index_cone(kernel, part):
            op = kernel.op(at)
            size = kernel.fold_int(at)
            if op.kind is Kind.PARAM and op.attrs.get("constexpr") and op.name not in blocks and size is not None:
                names[op.name] = size
    return next(iter(names.values())) if len(names) == 1 else None


# without a loop


def _atomic(kernel: KernelView) -> Iterator[Split]:
    """Atomic sums at a place that does not say which block adds."""
    data = flow(kernel)
    for store in data.outputs():
        op = kernel.op(store)
        if op.kind is not Kind.ATOMIC or op.name not in ("add", "max", "min") or len(op.args) < 2:
            continue
        if any(kernel.op(at).kind is Kind.LOAD for place in where(kernel, store) for at in _walk(kernel, place)):
            continue  # a scatter: the places are data
        own = frozenset(number for place in where(kernel, store) for number in _tiles(kernel, place))
        fetched = data.fetches(op.args[1])
        theirs = frozenset(
            number for one in fetched for place in where(kernel, one) for number in _tiles(kernel, place)
        )
        for tile in sorted(theirs - own):
            yield Split(tile, NONE, store, _parts(kernel, tile, NONE), "adds its part atomically")
            return


def _walk(kernel: KernelView, place: int) -> Iterator[int]:
    if place != NONE:
        yield from index_cone(kernel, place)


def _tiles(kernel: KernelView, place: int) -> frozenset[int]:
    """Tile numbers of a place that blocks differ in; not those of loops."""
    if place == NONE:
        return frozenset()
    numbers = numbering(kernel)
    return frozenset(
        number for number in tile_numbers(kernel, place) if kernel.op(numbers.example(number)).kind is not Kind.PHI
    )


def _summed_by_host(kernel: KernelView) -> Iterator[Split]:
    """Each block stores the sum of its tile of an axis, and host code or a later kernel reduces the stored parts."""
    data = flow(kernel)
    for store in data.outputs():
        op = kernel.op(store)
        if op.kind is not Kind.STORE or not (_host_sums(kernel, op.args[0]) or _is_reduced_later(kernel, op.args[0])):
            continue
        if any(is_tile(kernel, fetch) for fetch in data.fetches(op.args[1], _keeps_elements)):
            continue  # the tile itself is stored, not what it was reduced to
        own = frozenset(number for place in where(kernel, store) for number in _tiles(kernel, place))
        for reduced in data.back((op.args[1],), lambda inner: inner.kind is not Kind.LOAD):
            inner = kernel.op(reduced)
            if (inner.kind is Kind.REDUCE and inner.name in ("sum", "max", "min")) or inner.kind is Kind.MMA:
                theirs = _cut(kernel, reduced)
                for tile in sorted(own & theirs):
                    yield Split(tile, NONE, store, _parts(kernel, tile, NONE), "stores the sum of its part")
                    return


def _cut(kernel: KernelView, reduced: int) -> frozenset[int]:
    """Tile numbers that cut the axis which is reduced: its elements lie beside those of the next block."""
    op = kernel.op(reduced)
    shape = kernel.op(op.args[0]).shape
    if not shape:
        return frozenset()
    axis = op.attrs.get("axis") if op.kind is Kind.REDUCE else -1
    numbers = numbering(kernel)
    extents = [numbers.index(dim) for dim in ((shape[axis],) if isinstance(axis, int) else shape)]
    return frozenset(
        number
        for fetch in flow(kernel).fetches(reduced)
        for place in where(kernel, fetch)
        if place != NONE
        for offset, extent in tiled_offsets(kernel, place)
        if extent in extents
        for monomial in offset
        for factor in monomial
        for number in _tiles(kernel, numbers.example(factor))
    )


def _keeps_elements(op: Op) -> bool:
    return op.kind not in (Kind.REDUCE, Kind.MMA, Kind.SCAN)


def _is_reduced_later(kernel: KernelView, address: int) -> bool:
    """The array that a kernel stores to is handed to a later kernel, which reduces it."""
    name = kernel.pointer(address)
    for host, launch in launches(kernel):
        buffer = _argument(host.op(launch), name)
        for later in host.values(Kind.LAUNCH) if buffer is not None else ():
            op = host.op(later)
            if later <= launch or short(op.name) == kernel.kernel.name:
                continue
            handed = [param for param in _params(op) if _argument(op, param) == buffer]
            if any(
                _reduces_argument(other, param)
                for other in kernel.program.kernels
                for param in handed
                if other.kernel.name == short(op.name)
            ):
                return True
    return False


def _params(launch: Op) -> tuple[str, ...]:
    names = launch.attrs.get("params")
    return tuple(str(one) for one in names) if isinstance(names, tuple) else ()


def _argument(launch: Op, name: str | None) -> int | None:
    """The value passed for a kernel's parameter."""
    names = _params(launch)
    grid = launch.attrs.get("grid")
    if name not in names:
        return None
    at = (grid if isinstance(grid, int) else 0) + names.index(name)
    return launch.args[at] if at < len(launch.args) else None


def _reduces_argument(kernel: KernelView, param: str) -> bool:
    """The kernel reduces what it fetches from the parameter, and nothing else with it."""
    data = flow(kernel)
    for value in kernel.values(Kind.REDUCE):
        names = {kernel.pointer(data.source_address(fetch)) for fetch in data.fetches(value)}
        if names == {param}:
            return True
    return False


def _host_sums(kernel: KernelView, address: int) -> bool:
    """Host code sums the array that a kernel stores to, after the launch."""
    name = kernel.pointer(address)
    for host, launch in launches(kernel):
        buffer = _argument(host.op(launch), name)
        if buffer is not None and any(
            host.op(user).kind is Kind.HOST_CALL and host.op(user).name.rsplit(".", 1)[-1] == "sum"
            for user in host.flows_to(buffer, lambda one: one.kind in (Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.ATTRIBUTE))
            if user > launch
        ):
            return True
    return False
