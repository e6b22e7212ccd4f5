"""Parallelism along the reduction axis: several blocks share the sum (or scan, or softmax) that makes one
output, each walking a
part of the contracted axis; their partial results are added atomically or merged afterwards.

With one part, or where a block's bounds only follow a mask, nothing is shared.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import axis_name
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.splitting import Split, splits
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(splits(kernel))
    shared = [one for one in found if one.splits != 1]
    if shared:
        return (_match(kernel, shared[0]),)
    if found:
        one = found[0]
        place = kernel.place(numbering(kernel).example(one.tile))
        return Miss(
            Reason.WRONG_PARAMETER, "the axis is cut into one part", (Evidence(place, "splits = 1"),), certain=True
        )
    return Miss(detail="no reduction is shared by several blocks")


def _match(kernel: KernelView, one: Split) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    axis = _axis(kernel, one)
    if axis is None:
        undecided["axis"] = "the extent of the axis is no single argument of the kernel"
    else:
        attributes["axis"] = axis
    if one.splits is None:
        undecided["splits"] = "the number of parts is computed at run time"
    else:
        attributes["splits"] = one.splits
    tile = kernel.place(numbering(kernel).example(one.tile))
    evidence = (Evidence(tile, "chooses the part of the axis"), Evidence(kernel.place(one.value), one.how))
    return Match(evidence, attributes, undecided)


def _axis(kernel: KernelView, one: Split) -> str | None:
    if one.loop != NONE:
        return axis_name(kernel, one.loop)
    op = kernel.op(one.value)
    fetched = flow(kernel).fetches(op.args[1]) if op.kind in (Kind.STORE, Kind.ATOMIC) else ()
    names = [kernel.pointer(flow(kernel).source_address(fetch)) for fetch in fetched]
    return next((name for name in names if name is not None), None)


_STRIDED = """
@triton.jit
def gemm(A, W, Y, M, N, K, SPLIT_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    ks = part * BK + tl.arange(0, BK)
    a_ptrs = A + rows[:, None] * K + ks[None, :]
    w_ptrs = W + ks[:, None] * N + cols[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, tl.cdiv(K, BK * SPLIT_K)):
        acc = tl.dot(tl.load(a_ptrs), tl.load(w_ptrs), acc)
        a_ptrs += BK * SPLIT_K
        w_ptrs += BK * SPLIT_K * N
    tl.atomic_add(Y + rows[:, None] * N + cols[None, :], acc)


def run(a, w, y):
    (M, K), N = a.shape, w.shape[1]
    gemm[(M // 16, N // 64, 4)](a, w, y, M, N, K, SPLIT_K=4, BM=16, BN=64, BK=64)
"""

_COLUMNS = """
@triton.jit
def column_sums(X, Partial, rows, N, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(part, rows, tl.num_programs(0)):
        total += tl.load(X + row * N + cols, mask=cols < N, other=0.0)
    tl.store(Partial + part * N + cols, total, mask=cols < N)


def run(x, partial):
    column_sums[(132,)](x, partial, x.shape[0], x.shape[1], BLOCK=1024)
    return partial.sum(0)
"""

_ROWS = """
@triton.jit
def row_sums(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(X + row * N + cols, mask=cols < N, other=0.0)
    tl.store(Y + row, tl.sum(total))


def run(x, y):
    row_sums[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
"""

_CAUSAL = """
@triton.jit
def prefix_products(A, B, Y, N, D: tl.constexpr, BM: tl.constexpr):
    tile = tl.program_id(0)
    rows = tile * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    a = tl.load(A + rows[:, None] * D + dims[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, (tile + 1) * BM, BM):
        cols = start + tl.arange(0, BM)
        b = tl.load(B + cols[:, None] * D + dims[None, :])
        s = tl.where(cols[None, :] <= rows[:, None], tl.dot(a, tl.trans(b)), 0.0)
        acc += tl.dot(s.to(tl.bfloat16), b)
    tl.store(Y + rows[:, None] * D + dims[None, :], acc)


def run(a, b, y):
    prefix_products[(a.shape[0] // 64,)](a, b, y, a.shape[0], D=64, BM=64)
"""

_CUDA = """
__global__ void gemv(const float* w, const float* x, float* y, int N, int K, int part) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int first = blockIdx.y * part, last = min(K, first + part);
    float acc = 0.f;
    for (int k = first; k < last; ++k) acc += w[(size_t)k * N + col] * x[k];
    atomicAdd(&y[col], acc);
}

void run(const float* w, const float* x, float* y, int N, int K) {
    gemv<<<dim3(N / 128, 8), 128>>>(w, x, y, N, K, (K + 7) / 8);
}
"""

_CUDA_ROWS = """
__global__ void column_sums(const float* x, float* partial, int rows, int N) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    float total = 0.f;
    for (int r = blockIdx.y; r < rows; r += gridDim.y) total += x[(size_t)r * N + col];
    partial[blockIdx.y * N + col] = total;
}

void run(const float* x, float* partial, int rows, int N) {
    column_sums<<<dim3(N / 128, 64), 128>>>(x, partial, rows, N);
}
"""

_CUDA_WHOLE = """
__global__ void gemv(const float* w, const float* x, float* y, int N, int K) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0.f;
    for (int k = 0; k < K; ++k) acc += w[(size_t)k * N + col] * x[k];
    y[col] = acc;
}

void run(const float* w, const float* x, float* y, int N, int K) { gemv<<<N / 128, 128>>>(w, x, y, N, K); }
"""

EXAMPLES = (
    Example("split K", "triton", _STRIDED, Status.PRESENT, {"axis": "K", "splits": 4}),
    Example("column sums over strips of rows", "triton", _COLUMNS, Status.PRESENT, {"axis": "rows", "splits": 132}),
    Example(
        "one part",
        "triton",
        _STRIDED.replace("SPLIT_K=4", "SPLIT_K=1").replace("N // 64, 4)", "N // 64, 1)"),
        Status.ABSENT,
        trap="parameter of size one: SPLIT_K=1",
    ),
    Example("a block for each row", "triton", _ROWS, Status.ABSENT, trap="look-alike: rows, not parts of a row"),
    Example("loop ends at the diagonal", "triton", _CAUSAL, Status.ABSENT, trap="look-alike: bounds of a mask"),
    Example("split K with atomics", "cuda", _CUDA, Status.PRESENT, {"splits": 8}),
    Example("column sums over strips of rows", "cuda", _CUDA_ROWS, Status.PRESENT, {"axis": "rows", "splits": 64}),
    Example(
        "one part", "cuda", _CUDA.replace("N / 128, 8)", "N / 128, 1)"), Status.ABSENT, trap="parameter of size one"
    ),
    Example("the whole axis", "cuda", _CUDA_WHOLE, Status.ABSENT, trap="a loop over the whole axis"),
)
