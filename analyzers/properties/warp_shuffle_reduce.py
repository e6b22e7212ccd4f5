"""Shuffle reductions: sums, maxima and scans inside a warp go from register to register, with shared memory only
across warps. In Triton, reductions and scans of tiles whose reduced axis lies across lanes. A shuffle that broadcasts
a value or moves it to another lane reduces nothing, and a tree of partial sums through shared memory is the opposite.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.butterflies import butterflies
from d2k.analyzers.patterns.contiguity import access_steps
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import arithmetic
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status

WORDS = {"sum": "sum", "max": "max", "min": "max", "argmax": "argmax", "argmin": "argmax"}
IN_THREAD = 4
"""Neighbouring elements that one thread holds anyway: no lane takes part in their reduction."""
ACROSS = 128
"""A row of this many elements may leave no lane to the other axis."""
BEYOND = 256
"""A row of this many elements occupies all lanes of a warp, eight elements each."""

LIBRARY = {"Sum": "sum", "Reduce": "", "InclusiveSum": "scan", "ExclusiveSum": "scan", "InclusiveScan": "scan"}
CLASSES = ("WarpReduce", "BlockReduce", "WarpScan", "BlockScan")
NAMES = (
    "__shfl_xor_sync",
    "__shfl_down_sync",
    "__shfl_up_sync",
    "__reduce_add_sync",
    "__reduce_max_sync",
    "WarpReduce",
)


def detect(kernel: KernelView) -> Detection:
    found = dict(_instructions(kernel))
    unsure: list[int] = []
    for value in kernel.values(Kind.REDUCE, Kind.SCAN):
        if _only_places(kernel, value):
            continue
        verdict = _across_lanes(kernel, value)
        if verdict:
            op = kernel.op(value)
            found[value] = "scan" if op.kind is Kind.SCAN else WORDS.get(op.name, "")
        elif verdict is None:
            unsure.append(value)
    if found:
        return (_match(kernel, found),)
    if unsure:
        axis = kernel.op(unsure[0]).attrs.get("axis")
        detail = f"{NEEDS_COMPILED}: whether axis {axis} of the tile lies across the lanes of a warp"
        return Undecided(detail, (Evidence(kernel.place(unsure[0]), kernel.op(unsure[0]).name),))
    return _miss(kernel)


def _instructions(kernel: KernelView) -> Iterator[tuple[int, str]]:
    for one in butterflies(kernel):
        yield one.value, one.op
    for value in kernel.values(Kind.REDUX):
        yield value, WORDS.get(kernel.op(value).name, "")
    for value in kernel.values(Kind.CALL):
        name = kernel.op(value).name.replace("::", ".")
        method = name.rsplit(".", 1)[-1]
        if method in LIBRARY and any(one in name for one in CLASSES):
            yield value, LIBRARY[method]


def _only_places(kernel: KernelView, value: int) -> bool:
    """The sum is an offset, added up from a few counts: it goes into addresses and bounds and into no result."""
    if kernel.op(value).kind is not Kind.REDUCE or kernel.op(value).name != "sum":
        return False
    made = frozenset(kernel.flows_to(value, arithmetic))
    accesses = [at for at in made if kernel.op(at).kind in (Kind.LOAD, Kind.STORE, Kind.ATOMIC)]
    moved = any(arg in made for at in accesses for arg in flow(kernel).operands(at))
    other = any(not arithmetic(kernel.op(at)) and at not in accesses and at != value for at in made)
    return bool(accesses) and not moved and not other


def _across_lanes(kernel: KernelView, value: int) -> bool | None:
    """Whether the reduced axis of a tile lies across lanes; None if that is up to the compiler."""
    op = kernel.op(value)
    dims = kernel.dims(op.args[0])
    axis = op.attrs.get("axis")
    if dims is None or axis is None:
        return True
    if not isinstance(axis, int):
        return None
    axis %= max(1, len(dims))
    if not dims or dims[axis] == 1:
        return False
    fastest = _fastest_axis(kernel, op.args[0], len(dims))
    extent = dims[axis]
    if axis == fastest or len([one for one in dims if one != 1]) == 1:
        return extent is None or extent > IN_THREAD
    if _is_product(kernel, op.args[0]):
        # rows and columns of a matrix result are both spread over lanes
        return True
    row = dims[fastest]
    return None if row is None or ACROSS <= row < BEYOND else row < ACROSS


def _fastest_axis(kernel: KernelView, tile: int, rank: int) -> int:
    """The axis along which the tile's elements lie next to each other in memory, the last if nothing says so."""
    for fetch in flow(kernel).fetches(tile, lambda op: op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.PHI)):
        found = access_steps(kernel, fetch) if kernel.op(fetch).kind is Kind.LOAD else None
        if found is not None and len(found) == rank:
            unit = [axis for axis, step in enumerate(found) if step is not None and step.how == "unit"]
            if len(unit) == 1:
                return unit[0]
    return rank - 1


def _is_product(kernel: KernelView, tile: int) -> bool:
    return any(kernel.op(at).kind is Kind.MMA for at in flow(kernel).back((tile,), _keeps_layout))


def _keeps_layout(op: Op) -> bool:
    return op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.PHI)


def _match(kernel: KernelView, found: dict[int, str]) -> Match:
    words = tuple(sorted({word for word in found.values() if word}))
    evidence: list[Evidence] = []
    for word in words or ("",):
        value = next(value for value, one in found.items() if one == word)
        evidence.append(Evidence(kernel.place(value), f"{word or 'a combination'} across lanes"))
    attributes: dict[str, FoundValue] = {"op": words} if words else {}
    return Match(tuple(evidence), attributes, {} if words else {"op": "the combination has no word in the vocabulary"})


def _miss(kernel: KernelView) -> Miss:
    found = mentioned(kernel, NAMES)
    if found is not None:
        return found
    moved = kernel.values(Kind.SHUFFLE)
    if moved:
        detail = "shuffles move or broadcast values; none is combined with the lane's own"
        return Miss(Reason.WRONG_PARAMETER, detail, (Evidence(kernel.place(moved[0]), "a shuffle"),))
    small = kernel.values(Kind.REDUCE, Kind.SCAN)
    if small:
        detail = "the reduced axis lies within each thread"
        return Miss(Reason.WRONG_PARAMETER, detail, (Evidence(kernel.place(small[0]), kernel.op(small[0]).name),))
    return Miss(detail="nothing is reduced or scanned across lanes")


TRITON = """
@triton.jit
def stats(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=0.0)
    CODE

def run(X, Y):
    stats[(X.shape[0],)](X, Y, X.shape[1], BLOCK=4096)
"""
COLUMNS = """
@triton.jit
def columns(X, Y, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + tl.arange(0, ROWS)[:, None] * N + i[None, :])
    tl.store(Y + i, tl.sum(x, axis=0))

def run(X, Y):
    columns[(X.shape[1] // WIDTH,)](X, Y, X.shape[1], ROWS=32, BLOCK=WIDTH)
"""
CUDA = r"""
__global__ void row_sum(const float* x, float* y, int n) {
  __shared__ float partial[32];
  float v = 0.f;
  for (int i = threadIdx.x; i < n; i += 256) v += x[blockIdx.x * n + i];
  REDUCE
  if (threadIdx.x == 0) y[blockIdx.x] = v;
}
void run(const float* x, float* y, int n) { row_sum<<<64, 256>>>(x, y, n); }
"""
SHUFFLES = """for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffffu, v, offset);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  v = 0.f;
  for (int i = 0; i < 8; ++i) v += partial[i];"""
TREE = """__shared__ float all[256];
  all[threadIdx.x] = v;
  for (int half = 128; half > 0; half >>= 1) {
    __syncthreads();
    if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
  }
  v = all[0];"""
ARGMAX = r"""
__global__ void best(const float* x, int* y) {
  float v = x[threadIdx.x];
  int at = threadIdx.x;
  for (int offset = 16; offset > 0; offset /= 2) {
    float other = __shfl_down_sync(0xffffffffu, v, offset);
    int other_at = __shfl_down_sync(0xffffffffu, at, offset);
    if (other > v) {
      v = other;
      at = other_at;
    }
  }
  if (threadIdx.x == 0) y[blockIdx.x] = at;
}
void run(const float* x, int* y) { best<<<1, 32>>>(x, y); }
"""
SCAN = r"""
__global__ void prefix(const int* x, int* y) {
  int lane = threadIdx.x & 31;
  int v = x[threadIdx.x];
  for (int offset = 1; offset < 32; offset <<= 1) {
    int left = __shfl_up_sync(0xffffffffu, v, offset);
    if (lane >= offset) v += left;
  }
  y[threadIdx.x] = v;
}
void run(const int* x, int* y) { prefix<<<1, 32>>>(x, y); }
"""

OFFSET = """
@triton.jit
def copy(X, counts, Y, rank, D: tl.constexpr, RANKS: tl.constexpr):
    ranks = tl.arange(0, RANKS)
    before = tl.sum(tl.load(counts + ranks, mask=ranks < rank, other=0))
    i = tl.program_id(0) * D + tl.arange(0, D)
    tl.store(Y + before * D + i, tl.load(X + i))

def run(X, counts, Y, rank):
    copy[(X.shape[0],)](X, counts, Y, rank, D=1024, RANKS=8)
"""

EXAMPLES = (
    Example(
        "offset added up from counts", "triton", OFFSET, Status.ABSENT, trap="carries no work: it only places rows"
    ),
    Example(
        "sum and maximum of a row",
        "triton",
        TRITON.replace("CODE", "tl.store(Y + row, tl.sum(x) / tl.max(x))"),
        Status.PRESENT,
        {"op": ("max", "sum")},
    ),
    Example(
        "prefix sum",
        "triton",
        TRITON.replace("CODE", "tl.store(Y + row * N + i, tl.cumsum(x, 0))"),
        Status.PRESENT,
        {"op": ("scan",)},
    ),
    Example(
        "no reduction",
        "triton",
        TRITON.replace("CODE", "tl.store(Y + row * N + i, x * 2)"),
        Status.ABSENT,
        trap="a loop or tile without a reduction",
    ),
    Example(
        "columns of a wide tile",
        "triton",
        COLUMNS.replace("WIDTH", "512"),
        Status.ABSENT,
        trap="look-alike: lanes lie along the other axis",
    ),
    Example("butterfly", "cuda", CUDA.replace("REDUCE", SHUFFLES), Status.PRESENT, {"op": ("sum",)}),
    Example("maximum and its place", "cuda", ARGMAX, Status.PRESENT, {"op": ("argmax", "max")}),
    Example("scan", "cuda", SCAN, Status.PRESENT, {"op": ("scan",)}),
    Example(
        "hardware reduction",
        "cuda",
        SCAN.replace("y[threadIdx.x] = v", "y[threadIdx.x] = __reduce_max_sync(0xffffffffu, v)").replace(
            "if (lane >= offset) v += left", "v = left"
        ),
        Status.PRESENT,
        {"op": ("max",)},
    ),
    Example(
        "broadcast",
        "cuda",
        CUDA.replace("REDUCE", TREE + "\n  v = __shfl_sync(0xffffffffu, v, 0);"),
        Status.ABSENT,
        trap="look-alike: a shuffle that broadcasts is no reduction",
    ),
    Example("tree in shared memory", "cuda", CUDA.replace("REDUCE", TREE), Status.ABSENT, trap="no shuffle at all"),
    Example(
        "butterfly in a helper that nothing calls",
        "cuda",
        "__device__ float warp_sum(float v) {\n  "
        + SHUFFLES.split("\n")[0]
        + "\n  return v;\n}\n"
        + CUDA.replace("REDUCE", TREE),
        Status.ABSENT,
        trap="helper that nothing calls",
    ),
)
