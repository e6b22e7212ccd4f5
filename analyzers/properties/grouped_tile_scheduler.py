"""One launch over all groups: blocks number their tiles across the groups, and each finds its group and the tile in it
from prefix sums of the groups' sizes: by walking them, by bisection, or from a table that was made of them.

A grid with an axis for groups, blocks that return where their group ends, and one launch for each group are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.entry import before
from d2k.analyzers.patterns.indirection import segment_arrays
from d2k.analyzers.patterns.loops import LESS, index_cone, moves, where
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.numbering import difference, numbering
from d2k.analyzers.patterns.skipping import touching_tiles
from d2k.analyzers.patterns.tiles import differs_within, tile_numbers
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Status


@dataclass(frozen=True, slots=True)
class _Lookup:
    """How the tile finds its group: `lookup` is linear, binary or table; `value` compares or reads."""

    lookup: str
    value: int
    group: int


def detect_program(program: ProgramView) -> Detection:
    found: dict[str, Match] = {}
    for kernel in program.kernels:
        if kernel.kernel.name not in found:
            for one in _lookups(kernel):
                found[kernel.kernel.name] = _match(kernel, one)
                break
    if found:
        return tuple(found.values())
    return _miss(program)


def _match(kernel: KernelView, one: _Lookup) -> Match:
    how = {"linear": "walks the groups' ends", "binary": "bisects the groups' ends", "table": "reads a table of tiles"}
    evidence = (
        Evidence(kernel.place(one.value), f"{kernel.kernel.name}: {how[one.lookup]}"),
        Evidence(kernel.place(one.group), "group of the tile"),
    )
    return Match(evidence, {"lookup": one.lookup})


def _lookups(kernel: KernelView) -> Iterator[_Lookup]:
    yield from _searched(kernel)
    yield from _counted(kernel)
    yield from _listed(kernel)


# searched in a loop


def _searched(kernel: KernelView) -> Iterator[_Lookup]:
    """A loop over the groups compares the block's tile with ends that it reads or sums up."""
    for value in kernel.values(Kind.ELEMENTWISE, name=LESS):
        sides = kernel.op(value).args
        if len(sides) != 2:
            continue
        left, right = sides
        for tile, end in ((left, right), (right, left)):
            if differs_within(kernel, tile) or differs_within(kernel, end) or not _is_tile(kernel, tile):
                continue
            for loop in _loops_near(kernel, value):
                group = _end_of_group(kernel, end, loop)
                if group != NONE and _goes_on(kernel, tile, loop) and _steers(kernel, value):
                    lookup = "binary" if _bisects(kernel, group, loop) else "linear"
                    yield _Lookup(lookup, value, group)


def _loops_near(kernel: KernelView, value: int) -> tuple[int, ...]:
    """Loops around a comparison, and those whose condition it is."""
    own = [index for index, loop in enumerate(kernel.body.loops) if loop.condition != NONE]
    own = [index for index in own if value in kernel.slice(kernel.loop(index).condition)]
    return tuple(dict.fromkeys((*kernel.loops_of(value), *own)))


def _is_tile(kernel: KernelView, value: int) -> bool:
    """A number that starts from the block's and is not read from memory."""
    kinds = {kernel.op(at).kind for at in index_cone(kernel, value)}
    return Kind.BLOCK_INDEX in kinds and Kind.LOAD not in kinds


def _goes_on(kernel: KernelView, tile: int, loop: int) -> bool:
    """The tile's number is not started anew for each group."""
    at = tile
    for _ in range(len(kernel.body.loops) + 1):
        counter = next((one for one in index_cone(kernel, at) if _is_counter(kernel, one)), NONE)
        if counter == NONE:
            return True
        own = kernel.op(counter).loop
        if own == loop or own in kernel.ancestors(kernel.loop(loop).parent):
            return True
        start = before(kernel, counter)
        if start == NONE or not _is_counter(kernel, kernel.strip(start)):
            return False
        at = start
    return False


def _is_counter(kernel: KernelView, value: int) -> bool:
    op = kernel.op(value)
    return op.kind is Kind.PHI and op.name == "loop"


def _end_of_group(kernel: KernelView, end: int, loop: int) -> int:
    """The read, at a place that the loop moves, that an end is or is summed from; NONE if it is no end of a group."""
    for at in index_cone(kernel, end):
        op = kernel.op(at)
        if op.kind is Kind.LOAD and _is_walked(kernel, op.args[0], loop):
            return at
        if _is_counter(kernel, at) and op.loop in (loop, *kernel.ancestors(kernel.loop(loop).parent)):
            size = _summed(kernel, at)
            if size != NONE:
                return size
    return NONE


def _is_walked(kernel: KernelView, place: int, loop: int) -> bool:
    """A place that a loop over the groups moves, rather than one over the block's own tiles."""
    return (
        not differs_within(kernel, place)
        and moves(kernel, place, loop)
        and all(kernel.op(at).kind is not Kind.BLOCK_INDEX for at in index_cone(kernel, place))
    )


def _summed(kernel: KernelView, phi: int) -> int:
    """The size, read at the group's number, that a carried sum grows by."""
    own = kernel.op(phi).loop
    carried = next((one for one in kernel.loop(own).carried if one.phi == phi), None)
    if carried is None or carried.next == NONE:
        return NONE
    for at in index_cone(kernel, carried.next):
        op = kernel.op(at)
        if op.kind is Kind.LOAD and phi in index_cone(kernel, carried.next) and _is_walked(kernel, op.args[0], own):
            return at
    return NONE


def _bisects(kernel: KernelView, group: int, loop: int) -> bool:
    """The place that is read lies halfway between two bounds that the loop carries."""
    carried = {one.phi for one in kernel.loop(loop).carried}
    for at in index_cone(kernel, kernel.op(group).args[0]):
        op = kernel.op(at)
        halves = (op.name in ("floordiv", "div") and kernel.fold_int(op.args[-1]) == 2) or (
            op.name == "shr" and kernel.fold_int(op.args[-1]) == 1
        )
        if op.kind is Kind.ELEMENTWISE and halves and len(carried & set(index_cone(kernel, op.args[0]))) >= 2:
            return True
    return False


def _steers(kernel: KernelView, comparison: int) -> bool:
    """Whether, or where, other data are fetched depends on the comparison, or on how far a loop goes by it."""
    data = flow(kernel)
    ended = [
        loop for loop in kernel.body.loops if loop.condition != NONE and comparison in kernel.slice(loop.condition)
    ]
    decided = {comparison, *(one.phi for loop in ended for one in loop.carried)} | {loop.variable for loop in ended}
    decided.discard(NONE)
    for fetch in kernel.values(Kind.LOAD, Kind.COPY):
        if not data.is_fetch(fetch) or fetch in kernel.slice(comparison):
            continue
        conditions = [guard.value for guard in kernel.op(fetch).guards]
        conditions += [kernel.loop(loop).condition for loop in kernel.loops_of(fetch)]
        conditions += where(kernel, fetch)
        if any(at != NONE and decided & kernel.slice(at) for at in conditions):
            return True
    return False


# compared with all ends at once


def _counted(kernel: KernelView) -> Iterator[_Lookup]:
    """The tile's number is compared with a range of ends, and those before it are counted."""
    data = flow(kernel)
    for value in kernel.values(Kind.ELEMENTWISE, name=LESS):
        sides = kernel.op(value).args
        if len(sides) != 2:
            continue
        left, right = sides
        for tile, end in ((left, right), (right, left)):
            if differs_within(kernel, tile) or not _is_tile(kernel, tile):
                continue
            ends = [at for at in data.fetches(end) if differs_within(kernel, kernel.op(at).args[0])]
            if not ends or any(_is_tile(kernel, kernel.op(at).args[0]) for at in ends):
                continue
            for counted in kernel.flows_to(value, lambda op: op.kind in (Kind.CAST, Kind.ELEMENTWISE)):
                op = kernel.op(counted)
                if op.kind is Kind.REDUCE and op.name in ("sum", "argmax", "max") and _places(kernel, counted):
                    yield _Lookup("linear", value, ends[0])


def _places(kernel: KernelView, group: int) -> bool:
    """Something is read at the group's number."""
    return any(
        at != NONE and group in kernel.slice(at)
        for fetch in kernel.values(Kind.LOAD, Kind.COPY)
        if flow(kernel).is_fetch(fetch)
        for at in where(kernel, fetch)
    )


# read from a table


def _listed(kernel: KernelView) -> Iterator[_Lookup]:
    data = flow(kernel)
    entries = [
        value
        for value in kernel.values(Kind.LOAD)
        if data.is_fetch(value)
        and not differs_within(kernel, kernel.op(value).args[0])
        and _is_tile(kernel, kernel.op(value).args[0])
    ]
    segments = segment_arrays(kernel)
    for entry in entries:
        if data.memory(kernel.op(entry).args[0]) in segments:
            continue  # where a group starts is not which group it is
        if _touches(kernel, entry):
            # the tile in the group; beside it, at the same number, stands the group
            for other in entries:
                if other != entry and _same_tile(kernel, entry, other) and _is_group(kernel, other):
                    yield _Lookup("table", entry, other)
        elif _chooses_matrix(kernel, entry) and _is_cut_by(kernel, entry):
            yield _Lookup("table", entry, entry)
        else:
            # pairs of group and tile, the tile counted in whatever way
            for other in entries:
                if _is_next(kernel, entry, other) and _is_group(kernel, entry) and not _indexes(kernel, other):
                    yield _Lookup("table", other, entry)


def _touches(kernel: KernelView, entry: int) -> bool:
    """The entry numbers tiles that lie side by side."""
    numbers = numbering(kernel)
    wanted = numbers.number(entry)
    for access in (*kernel.values(Kind.LOAD, Kind.COPY), *flow(kernel).outputs()):
        for place in where(kernel, access):
            for edge in touching_tiles(kernel, place) if place != NONE else ():
                factors = {
                    factor for monomial in edge if len(monomial) > 1 or edge[monomial] > 1 for factor in monomial
                }
                if any(wanted == numbers.number(kernel.strip(numbers.example(factor))) for factor in factors):
                    return True
    return False


def _is_next(kernel: KernelView, entry: int, other: int) -> bool:
    """`other` stands right behind `entry` in memory, and the pairs of other tiles two or more apart."""
    numbers = numbering(kernel)
    tiles = _tiles(kernel, entry)
    steps = {
        abs(times)
        for at in where(kernel, entry)
        if at != NONE
        for monomial, times in numbers.index(at).items()
        if any(tiles & tile_numbers(kernel, numbers.example(factor)) for factor in monomial)
    }
    if not steps or min(steps) < 2:
        return False
    places = [[numbers.index(at) for at in where(kernel, one) if at != NONE] for one in (other, entry)]
    if len(places[0]) != len(places[1]):
        return False
    return [d for a, b in zip(*places, strict=True) if (d := difference(a, b))] == [{(): 1}]


def _indexes(kernel: KernelView, entry: int) -> bool:
    """Neighbouring numbers that are both read at, such as the ends of a segment, are no group and tile."""
    numbers = numbering(kernel)
    own = numbers.number(entry)
    return any(
        numbers.number(at) == own
        for value in kernel.values(Kind.LOAD)
        if value != entry and not differs_within(kernel, kernel.op(value).args[0])
        for at in index_cone(kernel, kernel.op(value).args[0])
    )


def _same_tile(kernel: KernelView, left: int, right: int) -> bool:
    return bool(_tiles(kernel, left) & _tiles(kernel, right))


def _tiles(kernel: KernelView, load: int) -> frozenset[int]:
    return frozenset(tile for place in where(kernel, load) if place != NONE for tile in tile_numbers(kernel, place))


def _is_group(kernel: KernelView, entry: int) -> bool:
    """Two neighbouring offsets, or a length, are read at the entry, or it chooses a matrix."""
    numbers = numbering(kernel)
    own = numbers.number(entry)
    reads = [
        value
        for value in kernel.values(Kind.LOAD)
        if value != entry
        and not differs_within(kernel, kernel.op(value).args[0])
        and any(numbers.number(at) == own for at in index_cone(kernel, kernel.op(value).args[0]))
    ]
    return bool(reads) or _chooses_matrix(kernel, entry)


def _chooses_matrix(kernel: KernelView, entry: int) -> bool:
    """An operand of a product that a loop sums up is addressed by the entry."""
    numbers = numbering(kernel)
    own = numbers.number(entry)
    for product in products(kernel):
        if product.reduction == NONE:
            continue
        for fetch in (*product.a_fetches, *product.b_fetches):
            for place in where(kernel, fetch):
                if place != NONE and any(numbers.number(at) == own for at in index_cone(kernel, place)):
                    return True
    return False


def _is_cut_by(kernel: KernelView, entry: int) -> bool:
    """The number at which the table is read also numbers tiles that lie side by side: rows of all groups."""
    numbers = numbering(kernel)
    tiles = _tiles(kernel, entry)
    accesses = (*kernel.values(Kind.LOAD, Kind.COPY), *flow(kernel).outputs())
    for access in accesses:
        for place in where(kernel, access):
            for edge in touching_tiles(kernel, place) if place != NONE else ():
                for monomial in edge:
                    for factor in monomial:
                        if tiles & tile_numbers(kernel, numbers.example(factor)):
                            return True
    return False


def _miss(program: ProgramView) -> Miss:
    for view in program.live_hosts.values():
        for launch in view.values(Kind.LAUNCH):
            op = view.op(launch)
            if op.loop != NONE and any(moves(view, arg, op.loop) for arg in op.args if arg != NONE):
                evidence = (Evidence(op.place, f"launch of {op.name} in a loop"),)
                return Miss(
                    detail="no block looks up the group of its tile; host code launches in a loop", evidence=evidence
                )
    return Miss(detail="no block looks up the group of its tile")


TRITON = """
@triton.jit
def grouped(X, W, Y, Offsets, Tiles, G, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
FIND
    rows = first + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(X + rows[:, None] * K + (k + ks)[None, :], mask=rows[:, None] < last, other=0.0)
        w = tl.load(W + g * N * K + (k + ks)[:, None] * N + cols[None, :])
        total = tl.dot(x, w, total)
    tl.store(Y + rows[:, None] * N + cols[None, :], total, mask=rows[:, None] < last)

def run(X, W, Y, Offsets, Tiles):
    G, K, N = W.shape
    LAUNCH
"""
ONCE = "grouped[(Tiles.shape[0], N // 64)](X, W, Y, Offsets, Tiles, G, N, K, BM=64, BN=64, BK=32)"
PER_GROUP = (
    "for g in range(G):\n"
    "        grouped[(Tiles.shape[0], N // 64)](X, W[g], Y, Offsets[g], Tiles, G, N, K, BM=64, BN=64, BK=32)"
)
WALK = """
    g = 0
    before = 0
    count = tl.cdiv(tl.load(Offsets + 1) - tl.load(Offsets), BM)
    while tile >= before + count:
        before += count
        g += 1
        count = tl.cdiv(tl.load(Offsets + g + 1) - tl.load(Offsets + g), BM)
    first = tl.load(Offsets + g) + (tile - before) * BM
    last = tl.load(Offsets + g + 1)
"""
COUNT = """
    ends = tl.load(Tiles + tl.arange(0, 64), mask=tl.arange(0, 64) < G, other=1 << 30)
    g = tl.sum((ends <= tile).to(tl.int32), 0)
    first = tl.load(Offsets + g) + (tile - tl.load(Tiles + g)) * BM
    last = tl.load(Offsets + g + 1)
"""
TABLE = """
    g = tl.load(Tiles + tile * 2)
    first = tl.load(Offsets + g) + tl.load(Tiles + tile * 2 + 1) * BM
    last = tl.load(Offsets + g + 1)
"""
GRID_AXIS = """
    g = tl.program_id(2)
    first = tl.load(Offsets + g) + tile * BM
    last = tl.load(Offsets + g + 1)
    if first >= last:
        return
"""
ONE = """
    g = 0
    first = tl.load(Offsets) + tile * BM
    last = tl.load(Offsets + 1)
"""
CUDA = """
__global__ void grouped(const float* x, const float* w, float* y, const int* ends, const int* rows, int groups, int k) {
  int tile = blockIdx.x, g = 0;
FIND
  int first = g ? rows[g - 1] + (tile - ends[g - 1]) * 32 : tile * 32;
  float sum = 0.f;
  for (int i = 0; i < k; ++i) sum += x[(size_t)(first + threadIdx.x) * k + i] * w[(size_t)g * k + i];
  y[first + threadIdx.x] = sum;
}
void run(const float* x, const float* w, float* y, const int* ends, const int* rows, int groups, int k, int tiles) {
  grouped<<<tiles, 32>>>(x, w, y, ends, rows, groups, k);
}
"""
STEP = "  while (g < groups && tile >= ends[g]) ++g;"
HALVE = """
  int low = 0, high = groups;
  while (low < high) {
    int middle = (low + high) / 2;
    if (ends[middle] <= tile) low = middle + 1;
    else high = middle;
  }
  g = low;
"""
Y_AXIS = "  g = blockIdx.y;\n  if (tile >= ends[g]) return;"

EXAMPLES = (
    Example(
        "walk over the groups",
        "triton",
        TRITON.replace("FIND", WALK).replace("LAUNCH", ONCE),
        Status.PRESENT,
        {"lookup": "linear"},
    ),
    Example(
        "ends compared at once",
        "triton",
        TRITON.replace("FIND", COUNT).replace("LAUNCH", ONCE),
        Status.PRESENT,
        {"lookup": "linear"},
    ),
    Example(
        "table of tiles",
        "triton",
        TRITON.replace("FIND", TABLE).replace("LAUNCH", ONCE),
        Status.PRESENT,
        {"lookup": "table"},
    ),
    Example(
        "grid axis of groups",
        "triton",
        TRITON.replace("FIND", GRID_AXIS).replace("LAUNCH", ONCE),
        Status.ABSENT,
        trap="look-alike: as many blocks for each group as the largest needs",
    ),
    Example(
        "launch for each group",
        "triton",
        TRITON.replace("FIND", ONE).replace("LAUNCH", PER_GROUP),
        Status.ABSENT,
        trap="host code: a loop of launches",
    ),
    Example("steps over the ends", "cuda", CUDA.replace("FIND", STEP), Status.PRESENT, {"lookup": "linear"}),
    Example("bisection", "cuda", CUDA.replace("FIND", HALVE), Status.PRESENT, {"lookup": "binary"}),
    Example(
        "grid axis of groups",
        "cuda",
        CUDA.replace("FIND", Y_AXIS),
        Status.ABSENT,
        trap="look-alike: as many blocks for each group as the largest needs",
    ),
    Example("search in a comment", "cuda", CUDA.replace("FIND", f"  //{STEP}"), Status.ABSENT, trap="comment"),
)
