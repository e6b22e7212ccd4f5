"""The tile of the output that a block makes at once, and the depth of one step of its reduction loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.contraction import Contraction, contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, movers, trip_count
from d2k.analyzers.patterns.matmul import Product, products
from d2k.analyzers.patterns.memo import memo
from d2k.analyzers.patterns.numbering import difference, numbering
from d2k.analyzers.patterns.spans import span
from d2k.analyzers.patterns.terms import Term, terms
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile
from d2k.spec.facts import NONE, Kind


@dataclass(frozen=True, slots=True)
class OutputTile:
    """`value` is the product that is summed in `loop` (NONE if no loop sums it); extents are None where not known."""

    value: int
    loop: int
    m: int | None
    n: int | None
    k: int | None


@memo
def output_tiles(kernel: KernelView) -> tuple[OutputTile, ...]:
    """One for each product whose sum leaves the block, in program order."""
    whole = {one.value: one for one in products(kernel)}
    found = []
    for one in contractions(kernel):
        if not _leaves(kernel, one):
            continue
        product = whole.get(one.value)
        if product is not None and kernel.kernel.language != "cuda":
            # in a language of tiles one product is that of the whole block
            loop = _summed_in(kernel, one)
            depth = product.k if product.k is not None else _depth(kernel, one, loop)
            found.append(OutputTile(one.value, loop, product.m, product.n, depth))
        else:
            found.append(_by_places(kernel, one, product))
    return tuple(found)


def _leaves(kernel: KernelView, one: Contraction) -> bool:
    data = flow(kernel)
    return any(data.is_output(at) for at in data.forward(one.sums))


def _summed_in(kernel: KernelView, one: Contraction) -> int:
    """The innermost loop that carries the sum and walks an operand, or waits for one that another role fetches."""
    walking = {loop for fetch in one.fetches for loop in kernel.loops_of(fetch) if _steps(kernel, fetch, loop)}
    around = [loop for loop in kernel.loops_of(one.value) if any(c.olds & one.sums for c in cells(kernel, loop))]
    shared = [loop for loop in around if loop in walking]
    if shared or not walking:
        return shared[0] if shared else NONE
    return next((loop for loop in around if trip_count(kernel, loop) is None), around[0] if around else NONE)


def _steps(kernel: KernelView, fetch: int, loop: int) -> bool:
    moving = movers(kernel, loop)
    return any(at in moving for term in terms(kernel, fetch) for at in index_cone(kernel, term.index)) or any(
        at in moving for at in _places(kernel, fetch)
    )


def _places(kernel: KernelView, fetch: int) -> Iterator[int]:
    address = flow(kernel).source_address(fetch)
    if address != NONE:
        yield from index_cone(kernel, address)


# CUDA: one thread's view of the tile


def _by_places(kernel: KernelView, one: Contraction, product: Product | None) -> OutputTile:
    """Extents from how far the places of outputs and operands move from tile to tile and from step to step."""
    loop = _summed_in(kernel, one)
    stored = [at for at in flow(kernel).forward(one.sums) if flow(kernel).is_output(at)]
    rows, columns = _sides(kernel, stored)
    if product is not None:
        rows = rows or _first(_across(kernel, fetch, loop) for fetch in product.a_fetches)
        columns = columns or _first(_across(kernel, fetch, loop) for fetch in product.b_fetches)
        if kernel.op(one.value).attrs.get("instr") == "tcgen05":
            rows, columns = rows or product.m, columns or product.n
    if rows is None and stored and all(_is_vector(kernel, at) for at in stored):
        rows = 1
    return OutputTile(one.value, loop, rows, columns, _depth(kernel, one, loop))


def _across(kernel: KernelView, fetch: int, loop: int) -> int | None:
    """How far an operand's place moves from tile to tile, the walk along the reduction left out."""
    walk = _walk_of(kernel, fetch, loop)
    moving = movers(kernel, walk) if walk != NONE else frozenset[int]()
    places = tuple(one for one in terms(kernel, fetch) if moving.isdisjoint(index_cone(kernel, one.index)))
    return _first(abs(one.scale) for one in places if _is_tile(kernel, one) and abs(one.scale) > 1)


def _walk_of(kernel: KernelView, fetch: int, loop: int) -> int:
    """The loop that moves a fetch along the reduction: that of the sum, or that of the role which fetches."""
    around = kernel.loops_of(fetch)
    if loop in around:
        return loop
    return next(
        (other for other in around if _steps(kernel, fetch, other) and not _is_of_elements(kernel, other)), NONE
    )


def _is_of_elements(kernel: KernelView, loop: int) -> bool:
    variable = kernel.loop(loop).variable
    return variable != NONE and differs_within(kernel, variable)


def _is_vector(kernel: KernelView, access: int) -> bool:
    """The elements of a block lie along one direction."""
    within = [one for one in terms(kernel, access) if differs_within(kernel, one.index) or _is_short(kernel, one)]
    if any(one.coordinate for one in terms(kernel, access)) or len({one.stride for one in within}) > 1:
        return False
    length = 1
    for one in sorted(within, key=_scale):
        extent = span(kernel, one.index)
        if extent is None or (within[0].stride == () and abs(one.scale) > length):
            return False
        length += abs(one.scale) * (extent - 1)
    return True


def _first(found: Iterable[int | None]) -> int | None:
    return next((one for one in found if one is not None), None)


def _sides(kernel: KernelView, accesses: Iterable[int]) -> tuple[int | None, int | None]:
    """(rows, columns) of the tile that accesses of one array cover: how far their places move from tile to tile."""
    rows = columns = None
    for access in accesses:
        places = terms(kernel, access)
        columns = columns or _first(_columns(kernel, places))
        rows = rows or _first(_rows(kernel, places, columns))
    return rows, columns


def _columns(kernel: KernelView, places: tuple[Term, ...]) -> Iterator[int]:
    """Along the contiguous axis: the step of the tile number, else what the elements cover."""
    copied = any(one.coordinate for one in places)
    # the first operand of a tensor copy is the descriptor, the next one the innermost coordinate
    inner = [one for one in places if one.coordinate == int(copied) and not one.stride]
    if copied:
        yield from (abs(one.scale) for one in inner if _is_tile(kernel, one) and abs(one.scale) > 1)
        return
    covered = _covered(kernel, inner)
    if covered is not None:
        steps = [abs(one.scale) for one in inner if _is_tile(kernel, one) and 1 < abs(one.scale) <= covered]
        yield min(steps, default=covered)


def _covered(kernel: KernelView, inner: Iterable[Term]) -> int | None:
    """Length of the run of neighbouring elements that indices within the block reach from its first element."""
    length = 1
    for one in sorted(
        (one for one in inner if differs_within(kernel, one.index) or _is_short(kernel, one)), key=_scale
    ):
        extent = span(kernel, one.index)
        if abs(one.scale) > length:
            break
        if extent is None:
            return None
        length += abs(one.scale) * (extent - 1)
    return length if length > 1 else None


def _rows(kernel: KernelView, places: tuple[Term, ...], columns: int | None) -> Iterator[int]:
    """Across the contiguous axis: the step of the tile number in rows."""
    for one in places:
        if not _is_tile(kernel, one):
            continue
        if one.coordinate > 1 or one.stride:
            # a batch or head has no elements beside it that move with the same stride
            beside = [other for other in places if other.stride == one.stride and other.coordinate == one.coordinate]
            if abs(one.scale) > 1 and (
                one.coordinate > 1 or any(differs_within(kernel, other.index) for other in beside)
            ):
                yield abs(one.scale)
        elif columns is not None and abs(one.scale) > columns and not one.coordinate:
            # rows of constant length: their number is the tile's step in elements over the step of one row
            units = [
                abs(other.scale)
                for other in places
                if not other.stride and abs(other.scale) >= columns and differs_within(kernel, other.index)
            ]
            if units and abs(one.scale) > min(units) and abs(one.scale) % min(units) == 0:
                yield abs(one.scale) // min(units)


def _scale(term: Term) -> int:
    return abs(term.scale)


def _is_tile(kernel: KernelView, term: Term) -> bool:
    return rests_on_tile(kernel, term.index) and not differs_within(kernel, term.index) and not _is_short(kernel, term)


def _is_short(kernel: KernelView, term: Term) -> bool:
    """The counter of a loop of known length: one of the elements that a thread holds."""
    op = kernel.op(term.index)
    return op.kind is Kind.PHI and op.loop != NONE and trip_count(kernel, op.loop) is not None


def _depth(kernel: KernelView, one: Contraction, loop: int) -> int | None:
    """How far the operands' places move in one iteration of the loop that sums."""
    for fetch in one.fetches:
        walk = _walk_of(kernel, fetch, loop)
        for term in terms(kernel, fetch) if walk != NONE else ():
            step = _step(kernel, walk, term)
            if step is not None:
                return step
    return None


def _step(kernel: KernelView, loop: int, term: Term) -> int | None:
    """How much the term grows from one iteration to the next, without its stride."""
    one = kernel.loop(loop)
    index = kernel.strip(term.index)
    if index == one.variable:
        step = 1 if one.step == NONE else kernel.fold_int(one.step)
        return None if step is None else abs(step * term.scale)
    carried = next((carried for carried in one.carried if carried.phi == index), None)
    if carried is None or carried.next == NONE:
        return None
    advance = difference(numbering(kernel).index(carried.next), numbering(kernel).index(index))
    grown = [
        times * prod(kernel.fold_int(numbering(kernel).example(factor)) or 1 for factor in monomial)
        for monomial, times in advance.items()
    ]
    return abs(grown[0] * term.scale) if len(grown) == 1 else None
