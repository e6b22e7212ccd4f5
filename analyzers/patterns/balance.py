"""How work is cut and ordered so that blocks finish together: long tiles first, equal pieces, flattened ranges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.carried import Cell, cells
from d2k.analyzers.patterns.combining import shared_reductions
from d2k.analyzers.patterns.contraction import Contraction, contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.hosts import launches, short
from d2k.analyzers.patterns.loops import index_cone, movers, walked, where
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.numbering import Polynomial, difference, numbering
from d2k.analyzers.patterns.skipping import follows_tile
from d2k.analyzers.patterns.softmax import running_softmaxes
from d2k.analyzers.patterns.splitting import Split
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile, tile_numbers
from d2k.spec.facts import NONE, Kind, Place

ORDERS = ("argsort", "sort", "msort")
MAX_ALTERNATIVES = 16


@dataclass(frozen=True, slots=True)
class Balance:
    """`policy` is longest_first, fixed_chunk or stream_k; `equal` where two loops of opposite length share a block."""

    policy: str
    place: Place
    text: str


def balances(kernel: KernelView) -> Iterator[Balance]:
    """Every policy that a kernel and its launches show, strongest first."""
    yield from _flattened(kernel)
    yield from _reversed(kernel)
    yield from _sorted(kernel)
    yield from _paired(kernel)
    yield from _chunked(kernel)


# longest first


def _reversed(kernel: KernelView) -> Iterator[Balance]:
    """The end of a loop falls as block numbers grow: the blocks that start first have the longest loops."""
    for loop in range(len(kernel.body.loops)):
        if not walked(kernel, loop) or not follows_tile(kernel, loop):
            continue
        length = _length(kernel, loop)
        if length is not None and _slope(kernel, length) < 0 and _counts_back(kernel, kernel.loop(loop).stop):
            place = kernel.loop(loop).place
            yield Balance("longest_first", place, "the first blocks have the longest loops")
            return


def shortest_first(kernel: KernelView) -> int | None:
    """A loop that grows longer with the block's number, if there is one."""
    for loop in range(len(kernel.body.loops)):
        if walked(kernel, loop) and follows_tile(kernel, loop):
            length = _length(kernel, loop)
            if length is not None and _slope(kernel, length) > 0:
                return loop
    return None


def _length(kernel: KernelView, loop: int) -> Polynomial | None:
    """stop - start as a sum of products; limits that clamp them are left out."""
    one = kernel.loop(loop)
    if one.stop == NONE:
        return None
    numbers = numbering(kernel)
    stop = _unclamped(kernel, one.stop)
    start = numbers.index(_unclamped(kernel, one.start)) if one.start != NONE else {}
    return difference(numbers.index(stop), start)


def _unclamped(kernel: KernelView, value: int) -> int:
    """The operand of minima, maxima and selections that differs from block to block."""
    for _ in range(MAX_ALTERNATIVES):
        value = kernel.strip(value)
        op = kernel.op(value)
        chosen: tuple[int, ...] = ()
        if op.kind is Kind.ELEMENTWISE and op.name in ("min", "max"):
            chosen = op.args
        elif (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if"):
            chosen = op.args[1:]
        moving = [arg for arg in chosen if rests_on_tile(kernel, arg)]
        if not moving:
            return value
        value = moving[0]
    return value


def _slope(kernel: KernelView, length: Polynomial) -> int:
    """Sign of the change from one block to the next; 0 if there is none, or terms disagree."""
    numbers = numbering(kernel)
    signs = set()
    for monomial, times in length.items():
        sign = times
        tiled = False
        for factor in monomial:
            example = numbers.example(factor)
            constant = kernel.fold_int(example)
            if constant is not None and constant < 0:
                sign = -sign
            tiled = tiled or _is_tile_number(kernel, example)
        if tiled:
            signs.add(sign > 0)
    return (1 if signs.pop() else -1) if len(signs) == 1 else 0


def _is_tile_number(kernel: KernelView, value: int) -> bool:
    return bool(tile_numbers(kernel, value)) and not differs_within(kernel, value)


def _counts_back(kernel: KernelView, stop: int) -> bool:
    """The loop ends at `(tiles - 1 - tile) * extent`: tiles are numbered from the far end.

    A length that is left after some chunks, `length - chunk * extent`, counts no tiles.
    """
    numbers = numbering(kernel)
    end = numbers.index(_unclamped(kernel, stop))
    for monomial, times in end.items():
        for factor in monomial:
            if times >= 0 or not _is_tile_number(kernel, numbers.example(factor)):
                continue
            unit = Counter(monomial) - Counter([factor])
            for other, count in end.items():
                extra = Counter(other) - unit
                if count == -times and not unit - Counter(other) and extra and factor not in other:
                    return True
    return False


def _sorted(kernel: KernelView) -> Iterator[Balance]:
    """Blocks take their item from a list that host code has sorted, the largest first."""
    for host, launch in launches(kernel):
        op = host.op(launch)
        names, first = op.attrs.get("params"), op.attrs.get("grid")
        if not isinstance(names, tuple) or not isinstance(first, int):
            continue
        for name, argument in zip(names, op.args[first:], strict=False):
            order = _order(host, argument) if argument != NONE else None
            if order is not None and _chooses_item(kernel, str(name)):
                yield Balance("longest_first", host.op(order).place, f"`{name}` lists the items, the largest first")
                return


def _order(host: BodyView, value: int) -> int | None:
    """A descending sort that the argument comes from."""
    for at in host.walk(value, lambda op: op.kind in (Kind.ITEM, Kind.HOST_CALL, Kind.ATTRIBUTE, Kind.PHI, Kind.CAST)):
        op = host.op(at)
        if op.kind is not Kind.HOST_CALL or short(op.name) not in ORDERS:
            continue
        keywords = op.attrs.get("keywords")
        if isinstance(keywords, tuple) and "descending" in keywords:
            if host.fold(op.args[len(op.args) - len(keywords) + keywords.index("descending")]) is True:
                return at
        elif op.args and host.op(op.args[0]).name == "neg":
            return at
    return None


def _chooses_item(kernel: KernelView, name: str) -> bool:
    """The kernel reads the list at its block's number and addresses memory by what it reads."""
    data = flow(kernel)
    for load in kernel.values(Kind.LOAD):
        op = kernel.op(load)
        if not data.is_fetch(load) or kernel.pointer(op.args[0]) != name or not rests_on_tile(kernel, op.args[0]):
            continue
        for other in kernel.values(Kind.LOAD, Kind.STORE, Kind.COPY):
            if other != load and any(
                place != NONE and load in index_cone(kernel, place) for place in where(kernel, other)
            ):
                return True
    return False


# pairs


def _paired(kernel: KernelView) -> Iterator[Balance]:
    """Two loops of one block, one longer and one shorter by the same for each block."""
    found: dict[int, int] = {}
    for loop in range(len(kernel.body.loops)):
        if walked(kernel, loop) and follows_tile(kernel, loop):
            length = _length(kernel, loop)
            slope = _slope(kernel, length) if length is not None else 0
            found.setdefault(slope, loop)
    longer, shorter = found.get(1), found.get(-1)
    if longer is None or shorter is None or kernel.loop(longer).parent != kernel.loop(shorter).parent:
        return
    stops = [kernel.loop(loop).stop for loop in (longer, shorter)]
    if sum(_counts_back(kernel, stop) for stop in stops) == 1:
        yield Balance("equal", kernel.loop(shorter).place, "a long tile and a short one share a block")


# equal pieces


def _chunked(kernel: KernelView) -> Iterator[Balance]:
    """A reduction is cut into pieces of one length for all blocks, whatever the length of the item."""
    for one in shared_reductions(kernel):
        if one.splits == 1 or one.loop == NONE or not _makes_results(kernel, one.loop):
            continue
        if _is_uniform(kernel, one):
            yield Balance("fixed_chunk", kernel.loop(one.loop).place, "every block walks a piece of the same length")
            return


def _makes_results(kernel: KernelView, loop: int) -> bool:
    """The loop contracts, attends or gathers; ranges of rows whose columns are summed are no work of uneven cost."""
    inside = frozenset(walked(kernel, loop))
    for one in contractions(kernel):
        if inside & frozenset(one.fetches) and any(_contracts(kernel, one, cell) for cell in cells(kernel, loop)):
            return True
    if any(one.loop == loop for one in running_softmaxes(kernel)):
        return True
    bounds = [bound for bound in (kernel.loop(loop).start, kernel.loop(loop).stop) if bound != NONE]
    return any(kernel.op(at).kind is Kind.LOAD for bound in bounds for at in index_cone(kernel, bound))


def _contracts(kernel: KernelView, one: Contraction, cell: Cell) -> bool:
    """What the loop carries are sums of elements, or outer products; sums of columns only add tile to tile."""
    if not cell.olds & one.sums:
        return False
    if one.matrix or kernel.kernel.language == "cuda":
        return True
    added = frozenset(flow(kernel).back(cell.news)) & one.sums
    if any(kernel.op(at).kind is Kind.REDUCE for at in added):
        return True
    rank = len(kernel.op(one.value).shape or ())
    return all(len(kernel.op(fetch).shape or ()) < rank for fetch in one.fetches)


def _is_uniform(kernel: KernelView, one: Split) -> bool:
    """The length of a piece is no function of the item."""
    loop = kernel.loop(one.loop)
    if loop.start != NONE and rests_on_tile(kernel, loop.start):
        spread = _spread(kernel, loop.start, one.tile)
    else:
        fetch = walked(kernel, one.loop)[0]
        places = [place for place in where(kernel, fetch) if place != NONE and rests_on_tile(kernel, place)]
        spread = _spread(kernel, _entry(kernel, one.loop, places[0]), one.tile) if places else None
        if spread is None:
            return _is_skipping(kernel, one.loop)
    return spread is not None and not any(_varies(kernel, factor) for monomial in spread for factor in monomial)


def _entry(kernel: KernelView, loop: int, place: int) -> int:
    stripped = kernel.strip(place)
    return next((one.before for one in kernel.loop(loop).carried if one.phi == stripped), place)


def _spread(kernel: KernelView, start: int, tile: int) -> tuple[tuple[int, ...], ...] | None:
    """What the tile number is multiplied by in the place where a piece begins: the length of a piece."""
    found = []
    for monomial in numbering(kernel).index(start):
        if tile in monomial:
            rest = list(monomial)
            rest.remove(tile)
            found.append(tuple(rest))
    return tuple(found) or None


def _varies(kernel: KernelView, factor: int) -> bool:
    """The number is read, or computed from what is read, for the block's own item."""
    example = numbering(kernel).example(factor)
    loads = [at for at in index_cone(kernel, example) if kernel.op(at).kind is Kind.LOAD]
    return any(rests_on_tile(kernel, kernel.op(at).args[0]) for at in loads) or rests_on_tile(kernel, example)


def _is_skipping(kernel: KernelView, loop: int) -> bool:
    """All blocks walk the whole axis in strides: their numbers of steps differ by one at most."""
    one = kernel.loop(loop)
    return one.stop != NONE and not rests_on_tile(kernel, one.stop)


# flattened ranges


def _flattened(kernel: KernelView) -> Iterator[Balance]:
    """A block walks a range of steps that runs on from one output tile to the next."""
    for loop in sorted({one.reduction for one in products(kernel)} - {NONE}):
        for outer in (loop, *kernel.ancestors(kernel.loop(loop).parent)):
            for counter in sorted(movers(kernel, outer)):
                if _starts_at_block(kernel, outer, counter) and _is_split_in_two(kernel, loop, counter):
                    text = "a range of steps runs on from one output tile to the next"
                    yield Balance("stream_k", kernel.loop(outer).place, text)
                    return


def _starts_at_block(kernel: KernelView, loop: int, counter: int) -> bool:
    """The counter starts at a multiple of the block's number, or is moved there by clamping."""
    one = kernel.loop(loop)
    before = one.start if counter == one.variable else next(c.before for c in one.carried if c.phi == counter)
    return before != NONE and any(kernel.op(at).kind is Kind.BLOCK_INDEX for at in index_cone(kernel, before))


def _is_split_in_two(kernel: KernelView, loop: int, counter: int) -> bool:
    """counter // n chooses the output tile, counter % n the first step in it."""
    numbers = numbering(kernel)
    divided: set[int] = set()
    remaining: set[int] = set()
    for value in kernel.values(Kind.ELEMENTWISE, name=("floordiv", "div", "mod")):
        op = kernel.op(value)
        if kernel.strip(op.args[0]) == counter:
            (remaining if op.name == "mod" else divided).add(value)
    by = {numbers.number(kernel.op(value).args[1]) for value in divided}
    pairs = [value for value in remaining if numbers.number(kernel.op(value).args[1]) in by]
    stores = [place for store in flow(kernel).outputs() for place in where(kernel, store) if place != NONE]
    chooses = any(not divided.isdisjoint(index_cone(kernel, place)) for place in stores)
    return chooses and bool(pairs) and _begins_at(kernel, loop, counter, pairs)


def _begins_at(kernel: KernelView, loop: int, counter: int, remainders: list[int]) -> bool:
    """The walk along the reduction begins at the counter, or at its remainder, and not at a tile's edge."""
    if follows_tile(kernel, loop):
        return False
    numbers = numbering(kernel)
    one = kernel.loop(loop)
    if counter in (one.variable, *(carried.phi for carried in one.carried)):
        return True  # one flat loop over the steps of all tiles
    if one.start == NONE:
        return False
    begins = {numbers.number(counter), *(numbers.number(value) for value in remainders)}
    return any(factor in begins for monomial in numbers.index(one.start) for factor in monomial)
