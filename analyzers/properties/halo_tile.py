"""Tile with a halo: a block stages its tile together with a border as wide as the stencil or filter reaches, and reads
the neighbours from what it staged: in shared memory, in one loaded tile that is shifted, or in a window of registers
that starts before the block's strip.

The border shows in how the tile is filled: what goes to place s comes from the tile's start plus s minus the border.
Padding against bank conflicts moves nothing, neighbours fetched again from memory are no halo, and a tile that is only
read at several distances (a tree reduction, an unrolled contraction) has no border.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.entry import entry_place
from d2k.analyzers.patterns.loops import trip_count, where
from d2k.analyzers.patterns.numbering import Monomial, Polynomial, difference, numbering
from d2k.analyzers.patterns.spans import block_extent
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile
from d2k.analyzers.patterns.windows import windows
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status

MAX_RADIUS = 64
"""Wider borders than this are distances of another kind."""
NEAR = 16
"""Places farther apart than this are other tiles, not neighbours."""


@dataclass(frozen=True, slots=True)
class _Halo:
    fetch: int
    read: int
    radius: int | None
    how: str


@dataclass(frozen=True, slots=True)
class _Axis:
    """Along one axis of a staged tile: places `low` to `high` are read around the same moving index."""

    low: int
    high: int


def detect(kernel: KernelView) -> Detection:
    found = (*_shared(kernel), *_shifted_tiles(kernel), *_strips(kernel))
    if found:
        return (_match(kernel, max(found, key=lambda one: one.radius or 0)),)
    return _miss(kernel)


def _match(kernel: KernelView, one: _Halo) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if one.radius is None:
        undecided["radius"] = "the width of the border is not known here"
    else:
        attributes["radius"] = one.radius
    evidence = (
        Evidence(kernel.place(one.fetch), f"fetched with a border of {one.radius or 'some'}"),
        Evidence(kernel.place(one.read), one.how),
    )
    return Match(evidence, attributes, undecided)


# tiles in shared memory


def _shared(kernel: KernelView) -> Iterator[_Halo]:
    data = flow(kernel)
    for array, loads in data.loads.items():
        if kernel.op(array).attrs.get("space") != "shared":
            continue
        reads = [load for load in loads if kernel.op(load).kind is Kind.LOAD]
        axes = _distances(kernel, [where(kernel, read)[1:] or where(kernel, read) for read in reads])
        if not any(axis.high > axis.low for axis in axes):
            continue
        for fill in data.stores.get(array, ()):
            radius = _border(kernel, array, fill, axes)
            if radius is not None:
                fetched = _fetched(kernel, fill)
                yield _Halo(min(fetched), reads[0], radius, "neighbours are read from the staged tile")


def _distances(kernel: KernelView, places: list[tuple[int, ...]]) -> tuple[_Axis, ...]:
    """For each axis how far apart the places lie that share their moving index; loops of known length included."""
    groups: dict[tuple[frozenset[tuple[Monomial, int]], ...], list[list[_Axis]]] = {}
    for place in places:
        split = [_spread(kernel, numbering(kernel).index(index)) for index in place if index != NONE]
        groups.setdefault(tuple(moving for moving, _ in split), []).append([axis for _, axis in split])
    best: tuple[_Axis, ...] = ()
    for members in groups.values():
        merged = tuple(
            _Axis(min(axis.low for axis in column), max(axis.high for axis in column))
            for column in zip(*members, strict=True)
        )
        if sum(axis.high - axis.low for axis in merged) > sum(axis.high - axis.low for axis in best):
            best = merged
    return best


def _spread(kernel: KernelView, place: Polynomial) -> tuple[frozenset[tuple[Monomial, int]], _Axis]:
    """The moving part of an index, and the distances that constants and loops over taps add to it."""
    low = high = 0
    moving: set[tuple[Monomial, int]] = set()
    for monomial, times in place.items():
        taps = _taps(kernel, monomial)
        if not monomial:
            low, high = low + times, high + times
        elif taps is not None:
            ends = (taps[0] * times, taps[1] * times)
            low, high = low + min(ends), high + max(ends)
        else:
            moving.add((monomial, times))
    return frozenset(moving), _Axis(low, high)


def _taps(kernel: KernelView, monomial: Monomial) -> tuple[int, int] | None:
    """First and last value of a loop counter of known range, None for other indices."""
    if len(monomial) != 1:
        return None
    value = kernel.strip(numbering(kernel).example(monomial[0]))
    op = kernel.op(value)
    if op.kind is not Kind.PHI or op.loop == NONE or kernel.loop(op.loop).variable != value:
        return None
    loop = kernel.loop(op.loop)
    start, trips, step = kernel.fold_int(loop.start), trip_count(kernel, op.loop), kernel.fold_int(loop.step)
    if start is None or not trips or trips > 2 * MAX_RADIUS:
        return None
    return start, start + (trips - 1) * (1 if step is None else step)


def _fetched(kernel: KernelView, fill: int) -> tuple[int, ...]:
    op = kernel.op(fill)
    return (fill,) if op.kind is Kind.COPY else flow(kernel).fetches(op.args[1], _copied) if len(op.args) > 1 else ()


def _copied(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM) or (
        op.kind is Kind.ELEMENTWISE and op.name == "where"
    )


def _border(kernel: KernelView, array: int, fill: int, axes: tuple[_Axis, ...]) -> int | None:
    """The widest border on any axis that is read at several distances, None if there is none."""
    dims = kernel.dims(array) or ()
    widest = 0
    for fetch in _fetched(kernel, fill):
        if kernel.op(fetch).kind is Kind.COPY and kernel.op(fetch).attrs.get("tensor"):
            coordinates = [numbering(kernel).index(at) for at in where(kernel, fetch)[1:] if at != NONE]
            lefts = [-place.get((), 0) for place in coordinates if _tile_step(kernel, place, ()) != 0]
            widest = max([widest, *lefts])
            continue
        source = _one(kernel, where(kernel, fetch))
        stored = [numbering(kernel).index(at) for at in (where(kernel, fill)[1:] or where(kernel, fill)) if at != NONE]
        for position, place in enumerate(stored):
            axis = axes[position] if position < len(axes) else None
            stride = _stride(kernel, place, source)
            if axis is None or axis.high == axis.low or stride is None:
                continue
            step = _tile_step(kernel, source, stride)
            if step == 0:
                continue
            left = place.get((), 0) - source.get(stride, 0)
            extent = dims[position] if position < len(dims) else None
            right = axis.high - left if step is None or extent is None else extent - step - left
            if left > 0 or (step is not None and extent is not None and 0 < right <= axis.high):
                widest = max(widest, left, min(right, axis.high - axis.low))
    return widest if 0 < widest <= MAX_RADIUS else None


def _one(kernel: KernelView, places: tuple[int, ...]) -> Polynomial:
    return numbering(kernel).index(places[0]) if places else {}


def _stride(kernel: KernelView, place: Polynomial, source: Polynomial) -> Monomial | None:
    """What the source address multiplies the stored index with; None if the index does not stand in it."""
    numbers = numbering(kernel)
    for monomial in place:
        if len(monomial) == 1 and differs_within(kernel, numbers.example(monomial[0])):
            for other, times in source.items():
                if monomial[0] in other and times == place[monomial]:
                    rest = list(other)
                    rest.remove(monomial[0])
                    return tuple(rest)
    return None


def _tile_step(kernel: KernelView, source: Polynomial, stride: Monomial) -> int | None:
    """By how much the tile's start moves along the axis from block to block; 0 if it does not, None if not known."""
    numbers = numbering(kernel)
    for monomial, times in source.items():
        rest = list(monomial)
        if any(factor not in rest for factor in stride):
            continue
        for factor in stride:
            rest.remove(factor)
        tiles = [one for one in rest if _is_tile(kernel, numbers.example(one))]
        if len(tiles) != 1:
            continue
        rest.remove(tiles[0])
        for factor in rest:
            extent = _extent(kernel, numbers.example(factor))
            if extent is None:
                return None
            times *= extent
        return times
    return 0


def _is_tile(kernel: KernelView, value: int) -> bool:
    return rests_on_tile(kernel, value) and not differs_within(kernel, value)


def _extent(kernel: KernelView, value: int) -> int | None:
    op = kernel.op(value)
    return block_extent(kernel, op.attrs.get("axis")) if op.kind is Kind.BLOCK_SIZE else kernel.fold_int(value)


# one loaded tile, shifted


def _shifted_tiles(kernel: KernelView) -> Iterator[_Halo]:
    """Elements picked from one fetched tile at several distances."""
    picks: dict[int, list[int]] = {}
    for value in kernel.values(Kind.SHAPE, name="gather"):
        picks.setdefault(kernel.strip(kernel.op(value).args[0]), []).append(value)
    for source, gathers in picks.items():
        if not flow(kernel).is_fetch(source):
            continue
        axes = _distances(kernel, [kernel.op(one).args[1:2] for one in gathers])
        place = _one(kernel, where(kernel, source))
        left = -min((times for monomial, times in place.items() if not _moves(kernel, monomial)), default=0)
        span = max((axis.high - axis.low for axis in axes), default=0)
        if span > 0 and _tile_step(kernel, place, ()) != 0 and 0 < left <= MAX_RADIUS:
            yield _Halo(source, gathers[0], max(left, span - left), "the loaded tile is shifted")


def _moves(kernel: KernelView, monomial: Monomial) -> bool:
    numbers = numbering(kernel)
    return any(
        rests_on_tile(kernel, numbers.example(one)) or differs_within(kernel, numbers.example(one)) for one in monomial
    )


# strips that start with what lies before them


def _strips(kernel: KernelView) -> Iterator[_Halo]:
    data = flow(kernel)
    for one in windows(kernel):
        if one.uses < 2:
            continue
        start = _entry(kernel, one.fetch)
        reach: list[int] = []
        for before in one.befores:
            for fetch in data.fetches(before, lambda op: _copied(op) or op.kind is Kind.SHAPE):
                if data.memory(data.source_address(fetch)) != data.memory(data.source_address(one.fetch)):
                    continue
                for monomial, times in difference(_entry(kernel, fetch), start).items():
                    if times < 0 and not _moves(kernel, monomial) and _tile_step(kernel, start, monomial) != 0:
                        reach.append(-times)
        if reach and max(reach) <= MAX_RADIUS:
            yield _Halo(one.fetch, one.shift, max(reach), "the window starts before the strip")


def _entry(kernel: KernelView, fetch: int) -> Polynomial:
    places = [place for place in where(kernel, fetch) if place != NONE]
    return entry_place(kernel, places[0]) if places else {}


def _miss(kernel: KernelView) -> Miss:
    data = flow(kernel)
    fetched = [value for value in kernel.values(Kind.LOAD) if data.is_fetch(value)]
    places: dict[tuple[object, ...], list[int]] = {}
    for value in fetched:
        polynomial = _one(kernel, where(kernel, value))
        moving = frozenset(item for item in polynomial.items() if _moves(kernel, item[0]))
        if moving:
            places.setdefault((data.memory(data.source_address(value)), moving), []).append(value)
    for group in places.values():
        if len(group) >= 3 and _neighbours(kernel, group):
            evidence = tuple(Evidence(kernel.place(value), "fetched") for value in group[:3])
            return Miss(Reason.NOT_LOAD_BEARING, "each neighbour is fetched from memory", evidence)
    return Miss(detail="no tile is staged with a border")


def _neighbours(kernel: KernelView, group: list[int]) -> bool:
    """The places lie whole elements of one index apart, not fields of one record."""
    numbers = numbering(kernel)
    source = _one(kernel, where(kernel, group[0]))
    steps = {abs(n) for m, n in source.items() if len(m) == 1 and differs_within(kernel, numbers.example(m[0]))}
    apart = [difference(_one(kernel, where(kernel, other)), source) for other in group[1:]]
    return all(len(one) == 1 for one in apart) and any(
        times % step == 0 and abs(times) < NEAR * step
        for one in apart
        for monomial, times in one.items()
        for step in steps
        if not monomial
    )


TRITON = """
@triton.jit
def conv(X, W, Y, T, C, STRIP: tl.constexpr, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    t0 = tl.program_id(1) * STRIP
    w0 = tl.load(W + c * 3)
    w1 = tl.load(W + c * 3 + 1)
    w2 = tl.load(W + c * 3 + 2)
    x0 = FIRST
    x1 = SECOND
    for t in range(t0, t0 + STRIP):
        x2 = tl.load(X + t * C + c)
        tl.store(Y + t * C + c, x0 * w0 + x1 * w1 + x2 * w2)
        x0 = x1
        x1 = x2

def run(X, W, Y):
    T, C = X.shape
    conv[(C // 128, T // 64)](X, W, Y, T, C, STRIP=64, BC=128)
"""
STRIPS = TRITON.replace("FIRST", "tl.load(X + (t0 - 2) * C + c, mask=c * 0 + t0 > 1, other=0.0)").replace(
    "SECOND", "tl.load(X + (t0 - 1) * C + c, mask=c * 0 + t0 > 0, other=0.0)"
)
ZEROS = TRITON.replace("FIRST", "tl.zeros((BC,), tl.float32)").replace("SECOND", "tl.zeros((BC,), tl.float32)")
PICKED = """
@triton.jit
def blur(X, Y, B: tl.constexpr, P: tl.constexpr):
    start = tl.program_id(0) * B
    whole = tl.load(X + start - 2 + tl.arange(0, P))
    i = tl.arange(0, B)
    total = tl.gather(whole, i, 0) + tl.gather(whole, i + 2, 0) + tl.gather(whole, i + 4, 0)
    tl.store(Y + start + i, total)

def run(X, Y):
    blur[(X.numel() // 1024,)](X, Y, B=1024, P=2048)
"""
AGAIN = """
@triton.jit
def blur(X, Y, B: tl.constexpr, P: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.load(X + i - 2) + tl.load(X + i) + tl.load(X + i + 2)
    tl.store(Y + i, total)

def run(X, Y):
    blur[(X.numel() // 1024,)](X, Y, B=1024, P=2048)
"""
CUDA = """
constexpr int R = 2, TX = 32, TY = 8, W = TX + 2 * R, H = TY + 2 * R;
__global__ void blur(const float* u, float* v, int nx, int ny) {
  __shared__ float tile[HEIGHT][WIDTH];
  int x0 = blockIdx.x * TX, y0 = blockIdx.y * TY;
  float sum = 0.f;
BODY
  v[(y0 + threadIdx.y) * nx + x0 + threadIdx.x] = sum;
}
void run(const float* u, float* v, int nx, int ny) { blur<<<dim3(nx / TX, ny / TY), dim3(TX, TY)>>>(u, v, nx, ny); }
"""
HALO = """
  for (int i = threadIdx.y * TX + threadIdx.x; i < H * W; i += TX * TY) {
    int y = y0 + i / W - R, x = x0 + i % W - R;
    bool inside = (x >= 0) & (y >= 0);
    tile[i / W][i % W] = inside ? u[y * nx + x] : 0.f;
  }
  __syncthreads();
  for (int d = -R; d <= R; ++d)
    sum += tile[threadIdx.y + R][threadIdx.x + R + d] + tile[threadIdx.y + R + d][threadIdx.x + R];
"""
NO_BORDER = """
  tile[threadIdx.y][threadIdx.x] = u[(y0 + threadIdx.y) * nx + x0 + threadIdx.x];
  __syncthreads();
  for (int d = 0; d < 8; ++d) sum += tile[d][threadIdx.x];
"""
NO_STAGE = """
  for (int d = -R; d <= R; ++d) sum += u[(y0 + threadIdx.y) * nx + x0 + threadIdx.x + d];
"""
LINE = """
constexpr int K = 4, B = 256;
__global__ void conv(const float* x, const float* w, float* y, int n) {
  __shared__ float line[B + K - 1];
  int at = blockIdx.x * B + threadIdx.x;
  line[threadIdx.x + K - 1] = x[at];
  if (threadIdx.x < K - 1) line[threadIdx.x] = at >= K - 1 ? x[at - (K - 1)] : 0.f;
  __syncthreads();
  float sum = 0.f;
#pragma unroll
  for (int k = 0; k < K; ++k) sum += line[threadIdx.x + k] * w[k];
  y[at] = sum;
}
void run(const float* x, const float* w, float* y, int n) { conv<<<n / B, B>>>(x, w, y, n); }
"""
TREE = """
__global__ void total(const float* x, float* y) {
  __shared__ float part[256];
  part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 128) part[threadIdx.x] += part[threadIdx.x + 128];
  __syncthreads();
  if (threadIdx.x < 64) part[threadIdx.x] += part[threadIdx.x + 64];
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = part[0] + part[1];
}
void run(const float* x, float* y) { total<<<64, 256>>>(x, y); }
"""

EXAMPLES = (
    Example("strips with what lies before them", "triton", STRIPS, Status.PRESENT, {"radius": 2}),
    Example("one tile, shifted", "triton", PICKED, Status.PRESENT, {"radius": 2}),
    Example(
        "strips that start from zero",
        "triton",
        ZEROS,
        Status.ABSENT,
        trap="a window without a border: each strip starts anew",
    ),
    Example(
        "neighbours loaded again",
        "triton",
        AGAIN,
        Status.ABSENT,
        trap="look-alike: overlapping loads that no staged tile serves",
    ),
    Example(
        "tile and border in shared memory",
        "cuda",
        CUDA.replace("HEIGHT", "H").replace("WIDTH", "W").replace("BODY", HALO),
        Status.PRESENT,
        {"radius": 2},
    ),
    Example("border on one side", "cuda", LINE, Status.PRESENT, {"radius": 3}),
    Example(
        "padded tile",
        "cuda",
        CUDA.replace("HEIGHT", "TY").replace("WIDTH", "TX + 1").replace("BODY", NO_BORDER),
        Status.ABSENT,
        trap="look-alike: padding against bank conflicts is no border",
    ),
    Example(
        "neighbours fetched",
        "cuda",
        CUDA.replace("HEIGHT", "H").replace("WIDTH", "W").replace("BODY", NO_STAGE),
        Status.ABSENT,
        trap="declared but unused: the tile is not filled",
    ),
    Example(
        "tree of sums", "cuda", TREE, Status.ABSENT, trap="look-alike: read at several distances to reduce, no border"
    ),
)
