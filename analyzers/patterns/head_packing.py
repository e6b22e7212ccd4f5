"""Query heads as rows of a score tile: which scores there are, and whether the rows of their query tile are heads that
share the keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import exponentials
from d2k.analyzers.patterns.loops import LESS, index_cone, movers, trip_count, where
from d2k.analyzers.patterns.matmul import operand_path
from d2k.analyzers.patterns.numbering import Monomial, numbering
from d2k.analyzers.patterns.origins import Move, moves
from d2k.analyzers.patterns.spans import span
from d2k.analyzers.patterns.terms import value_terms
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op

MAX_TILE = 512
"""More rows than any tile has."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of `query` are heads; `heads` of them share a tile of `key`, None if the source does not say how many.

    `decoded` says that the rows hold several tokens too, whose number and head are decoded from the row.
    """

    query: int
    key: int
    score: int
    heads: int | None
    how: str
    decoded: bool = False


def scores(kernel: KernelView) -> Iterator[tuple[int, int, int]]:
    """(product, query fetch, key fetch) for products that end up in an exponent; both ways round."""
    data = flow(kernel)
    exponents = [kernel.op(value).args[0] for value in exponentials(kernel)]
    for value in sorted(data.back(exponents, _linear)):
        op = kernel.op(value)
        product = op.kind is Kind.MMA or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma"))
        if not product or len(op.args) < 2 or NONE in op.args[:2]:
            continue
        if op.kind is not Kind.MMA and not _is_summed(kernel, value):
            continue
        left, right = (data.fetches(arg, operand_path) for arg in op.args[:2])
        for a in left:
            for b in right:
                if set(data.memory(data.source_address(a))).isdisjoint(data.memory(data.source_address(b))):
                    yield value, a, b
                    yield value, b, a


def _is_summed(kernel: KernelView, score: int) -> bool:
    """Products of elements that are added up to a score: across a tile, across lanes, or element by element."""
    through = (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM)
    if kernel.op(score).name == "fma":
        return True
    for at in flow(kernel).forward((score,), lambda op: op.kind in through or op.name in ("add", "fma", "where")):
        for user in flow(kernel).consumers(at):
            op = kernel.op(user)
            if op.kind in (Kind.SHUFFLE, Kind.REDUX) or (op.kind is Kind.REDUCE and op.name == "sum"):
                return True
    return False


def _linear(op: Op) -> bool:
    """What stands between a score and its exponential."""
    return op.kind in (
        Kind.CAST,
        Kind.SHAPE,
        Kind.PHI,
        Kind.ITEM,
        Kind.LOAD,
        Kind.ALLOC,
        Kind.SHUFFLE,
        Kind.CONTROL,
    ) or (
        (op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "fma", "where", "div", "tanh", "max", "neg"))
        or (op.kind in (Kind.REDUCE, Kind.REDUX) and op.name == "sum")
    )


# rows that are heads


def packed(kernel: KernelView, score: int, query: int, key: int) -> Iterator[Packed]:
    of_query, of_key = moves(kernel, query), moves(kernel, key)
    shared = {_signature(kernel, one) for one in of_key if one.within}
    contracted = _contracted(kernel, score, key)
    for row in of_query:
        if not row.within or _signature(kernel, row) in shared or _is_unit(row):
            continue
        if row.index != NONE and numbering(kernel).number(row.index) in contracted:
            continue
        count = _heads(kernel, query, of_query, of_key, row)
        if count is not None:
            decoded = _holds_tokens(kernel, query)
            yield Packed(query, key, score, count[0], "counted from the KV head of the block", decoded)
            return
        if _is_single_head(kernel, query, key, row):
            yield Packed(query, key, score, _extent(kernel, row), "all of one sequence's, of one KV head")
            return


def _holds_tokens(kernel: KernelView, query: int) -> bool:
    """Rows are divided by the number of heads: the quotient is a token."""
    for place in where(kernel, query):
        for at in index_cone(kernel, place) if place != NONE else ():
            op = kernel.op(at)
            if op.kind is Kind.ELEMENTWISE and op.name == "mod" and differs_within(kernel, at):
                return True
    return False


def _contracted(kernel: KernelView, score: int, key: int) -> frozenset[int]:
    """Numbers of the indices of on-chip arrays that the keys pass through on their way to the score."""
    numbers = numbering(kernel)
    data = flow(kernel)
    found: set[int] = set()
    for at in data.back(kernel.op(score).args[:2], operand_path):
        op = kernel.op(at)
        if op.kind is Kind.LOAD and data.arrays(op.args[0]) and key in data.fetches(at, operand_path):
            for place in where(kernel, at):
                if place != NONE:
                    found.update(numbers.number(term.index) for term in value_terms(kernel, place))
    return frozenset(found)


def _heads(
    kernel: KernelView, query: int, of_query: tuple[Move, ...], of_key: tuple[Move, ...], row: Move
) -> tuple[int | None] | None:
    """How many rows belong to one KV head, (None,) if only the launch knows; None if rows are no heads.

    What encloses the rows most tightly must be the number of the KV head.
    """
    steps = []
    for tile in of_query:
        if tile.within or tile.index == NONE or tile.coordinate != row.coordinate:
            continue
        step = _step(kernel, row, tile)
        if step is not None:
            left, ratio = step
            whole = _is_extent(kernel, row, left, ratio) or _is_decoded(kernel, query, left, ratio)
            steps.append(((not whole, len(left), ratio), tile))
    tightest = min((size for size, _ in steps), default=None)
    tiles = [tile for size, tile in steps if size[:2] == (tightest or ())[:2] and (size == tightest or size[1])]
    chosen = [tile for tile in tiles if _selects(kernel, of_key, tile.index)]
    # of two that cannot be compared, sequence and KV head, both must place the keys
    if tightest is None or not chosen or len(chosen) < min(2, len(tiles)):
        return None
    loose, left_over, ratio = tightest
    if left_over:
        return (None,)
    extent = _extent(kernel, row)
    return (ratio,) if ratio >= 1 and (not loose or extent is None or extent >= ratio) else None


def _signature(kernel: KernelView, one: Move) -> tuple[object, ...]:
    index = numbering(kernel).number(one.index) if one.index != NONE else None
    return (index, one.stride, one.scale, one.coordinate if index is None else 0)


def _is_unit(row: Move) -> bool:
    """Elements of a vector lie side by side; heads never do. Axes of a tensor map have strides of their own."""
    return row.scale == 1 and not row.stride and row.coordinate == 0


def _is_extent(kernel: KernelView, row: Move, factors: Monomial, ratio: int) -> bool:
    """A step of `factors * ratio` rows is just the extent of the tile."""
    if not factors:
        return _extent(kernel, row) == ratio
    value = row.extent if row.index == NONE else next(iter(kernel.op(kernel.strip(row.index)).shape or ()), NONE)
    return value != NONE and numbering(kernel).index(value) == {factors: ratio}


def _step(kernel: KernelView, row: Move, tile: Move) -> tuple[Monomial, int] | None:
    """How many rows one step of `tile` is, as run-time factors and a constant; None if it moves along another axis."""
    left = list(tile.stride)
    for factor in row.stride:
        if factor not in left:
            return None
        left.remove(factor)
    if row.scale == 0 or tile.scale % row.scale:
        return None
    ratio = tile.scale // row.scale
    return tuple(left), ratio


def _is_decoded(kernel: KernelView, query: int, factors: Monomial, ratio: int) -> bool:
    """A row number is taken modulo the group: token and head share the rows."""
    numbers = numbering(kernel)
    for place in where(kernel, query):
        for at in index_cone(kernel, place) if place != NONE else ():
            op = kernel.op(at)
            if op.kind is Kind.ELEMENTWISE and op.name == "mod" and len(op.args) == 2:
                known = kernel.fold_int(op.args[1])
                if (known == ratio and not factors) or (known is None and (numbers.number(op.args[1]),) == factors):
                    return True
    return False


def _extent(kernel: KernelView, row: Move) -> int | None:
    if row.index == NONE:
        return kernel.fold_int(row.extent)
    dims = kernel.dims(kernel.strip(row.index))
    if dims:
        known = [dim for dim in dims if dim != 1]
        return known[0] if len(known) == 1 else None
    return span(kernel, row.index)


def _selects(kernel: KernelView, of_key: tuple[Move, ...], tile: int) -> bool:
    """Keys are addressed by `tile`, other than along the axis of their own rows."""
    if tile == NONE:
        return False
    numbers = numbering(kernel)
    wanted = numbers.number(tile)
    for one in of_key:
        if one.within or one.index == NONE or _is_loop_counter(kernel, one.index) or _is_position(kernel, of_key, one):
            continue
        index = kernel.strip(one.index)
        op = kernel.op(index)
        if op.kind is Kind.ELEMENTWISE and op.name in ("floordiv", "div"):
            index = op.args[0]  # several tiles of one KV head
        if wanted in (numbers.number(one.index), numbers.number(index)):
            return True
    return False


def _is_loop_counter(kernel: KernelView, value: int) -> bool:
    op = kernel.op(kernel.strip(value))
    return op.kind is Kind.PHI and op.name == "loop"


def _is_position(kernel: KernelView, of_key: tuple[Move, ...], tile: Move) -> bool:
    """`tile` numbers the tiles along the rows of keys, as where a loop starts at a diagonal."""
    dense = [one.scale for one in of_key if one.within and not one.stride]
    for row in of_key:
        if row.index != NONE and _is_loop_counter(kernel, row.index):
            if trip_count(kernel, kernel.op(kernel.strip(row.index)).loop) is not None:
                continue  # elements that a thread holds
        elif not row.within or (not row.stride and row.scale == min(dense)):
            continue  # along the vector of one key
        step = _step(kernel, row, tile) if row.coordinate == tile.coordinate else None
        if step is None:
            continue
        left, ratio = step
        if _is_extent(kernel, row, left, ratio) or (not left and (row.stride or abs(ratio) <= MAX_TILE)):
            return True
    return False


def _touches(kernel: KernelView, row: Move, tile: Move) -> bool:
    """`tile` steps by just the extent of the rows: it numbers the tiles along their axis."""
    extent = _extent(kernel, row)
    along = row.coordinate == tile.coordinate and row.stride == tile.stride
    return along and extent is not None and extent > 1 and abs(tile.scale) == extent * abs(row.scale)


def _is_single_head(kernel: KernelView, query: int, key: int, row: Move) -> bool:
    """Rows are not positions of the sequence: its length is read at an index that says all that places the query tile,
    and no mask compares rows with keys."""
    numbers = numbering(kernel)
    for loop in kernel.loops_of(key):
        one = kernel.loop(loop)
        lengths = [
            at
            for bound in (one.start, one.stop)
            if bound != NONE
            for at in index_cone(kernel, bound)
            if kernel.op(at).kind is Kind.LOAD
        ]
        if not lengths or _is_masked(kernel, loop, row):
            continue
        sequence = {numbers.number(at) for length in lengths for at in index_cone(kernel, kernel.op(length).args[0])}
        others = [
            move
            for move in moves(kernel, query)
            if not move.within and move.index != NONE and not _touches(kernel, row, move)
        ]
        if others and all(numbers.number(move.index) in sequence for move in others):
            return True
    return False


def _is_masked(kernel: KernelView, loop: int, row: Move) -> bool:
    """A comparison sets positions that the loop moves against the rows."""
    if row.index == NONE:
        return True
    numbers = numbering(kernel)
    moving = movers(kernel, loop)
    ranges = {numbers.number(at) for at in index_cone(kernel, row.index) if kernel.op(at).kind is Kind.ARANGE}
    for value in kernel.values(Kind.ELEMENTWISE, name=LESS):
        if loop in kernel.loops_of(value):
            sides = [index_cone(kernel, arg) for arg in kernel.op(value).args[:2]]
            for left, right in (sides, sides[::-1]):
                if any(at in moving for at in left) and any(numbers.number(at) in ranges for at in right):
                    return True
    return False
