"""Shared operand reuse: what is fetched once serves several results: the rows or columns of a matrix product, several
accumulators, the heads that a rotary row turns, the places that a row is copied to, the neighbours in a stencil.

A block of elements that are each used once, however large, is not reuse; neither is a vector that is broadcast
over the rows
that happen to share a block.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.reuse import Reuse, reuses
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    best: dict[str, Reuse] = {}
    for one in reuses(kernel):
        name = kernel.pointer(flow(kernel).source_address(one.fetch)) or ""
        if name not in best or (one.consumers or 0) > (best[name].consumers or 0):
            best[name] = one
    served = {name: one for name, one in best.items() if one.consumers is None or one.consumers >= 2}
    if served:
        return tuple(_match(kernel, name, one) for name, one in served.items())
    if best:
        one = next(iter(best.values()))
        return Miss(
            Reason.WRONG_PARAMETER,
            "each fetched element serves one result",
            (Evidence(kernel.place(one.use), f"serves {one.consumers}"),),
            certain=True,
        )
    return Miss(detail="no fetched element serves more than one result")


def _match(kernel: KernelView, name: str, one: Reuse) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if name:
        attributes["operand"] = name
    else:
        undecided["operand"] = "the address is derived from no single argument"
    if one.consumers is not None:
        attributes["consumers"] = one.consumers
    else:
        undecided["consumers"] = "the extent of the tile, or the number of uses, is not known here"
    evidence = (
        Evidence(kernel.place(one.fetch), f"fetch of {name}".rstrip()),
        Evidence(kernel.place(one.use), f"{one.how}, {one.consumers or 'several'} results an element"),
    )
    return Match(evidence, attributes, undecided)


_GEMM = """
@triton.jit
def gemm(A, W, Y, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + ks[None, :])
        acc = tl.dot(a, tl.load(W + ks[:, None] * N + cols[None, :]), acc)
    tl.store(Y + rows[:, None] * N + cols[None, :], acc)


def run(a, w, y):
    (M, K), N = a.shape, w.shape[1]
    gemm[(M // 64, N // 128)](a, w, y, N, K, BM=64, BN=128, BK=64)
"""

_ROPE = """
@triton.jit
def rope(q, cos, sin, HEADS: tl.constexpr, D: tl.constexpr):
    token = tl.program_id(0)
    half = tl.arange(0, D // 2)
    c = tl.load(cos + token * (D // 2) + half)[None, :]
    s = tl.load(sin + token * (D // 2) + half)[None, :]
    at = q + token * HEADS * D + tl.arange(0, HEADS)[:, None] * D + half[None, :]
    left = tl.load(at)
    right = tl.load(at + D // 2)
    tl.store(at, left * c - right * s)
    tl.store(at + D // 2, right * c + left * s)


def run(q, cos, sin):
    rope[(q.shape[0],)](q, cos, sin, HEADS=8, D=128)
"""

_SCALE_ROWS = """
@triton.jit
def scale(X, w, Y, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    x = tl.load(X + rows[:, None] * N + cols[None, :])
    tl.store(Y + rows[:, None] * N + cols[None, :], x * tl.load(w + cols)[None, :])


def run(x, w, y):
    scale[(x.shape[0] // 64, x.shape[1] // 64)](x, w, y, x.shape[1], BM=64, BN=64)
"""

_ONE_VECTOR = """
@triton.jit
def gemv(W, x, y, K, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, K, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        acc += tl.load(W + row * K + cols) * tl.load(x + cols)
    tl.store(y + row, tl.sum(acc))


def run(w, x, y):
    gemv[(w.shape[0],)](w, x, y, w.shape[1], BLOCK=1024)
"""

_CUDA = """
template <int T>
__global__ void gemm(const float* a, const float* w, float* y, int N, int K) {
    __shared__ float as[T][T], ws[T][T];
    int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    float acc = 0.f;
    for (int k0 = 0; k0 < K; k0 += T) {
        as[threadIdx.y][threadIdx.x] = a[row * K + k0 + threadIdx.x];
        ws[threadIdx.y][threadIdx.x] = w[(k0 + threadIdx.y) * N + col];
        __syncthreads();
        for (int k = 0; k < T; ++k) acc += as[threadIdx.y][k] * ws[k][threadIdx.x];
        __syncthreads();
    }
    y[row * N + col] = acc;
}

void run(const float* a, const float* w, float* y, int M, int N, int K) {
    gemm<16><<<dim3(N / 16, M / 16), dim3(16, 16)>>>(a, w, y, N, K);
}
"""

_STENCIL = """
__global__ void blur(const float* x, float* y, int n) {
    __shared__ float tile[130];
    int i = blockIdx.x * 128 + threadIdx.x;
    tile[threadIdx.x + 1] = x[i];
    if (threadIdx.x == 0) tile[0] = i > 0 ? x[i - 1] : 0.f;
    if (threadIdx.x == 127) tile[129] = i + 1 < n ? x[i + 1] : 0.f;
    __syncthreads();
    y[i] = 0.25f * tile[threadIdx.x] + 0.5f * tile[threadIdx.x + 1] + 0.25f * tile[threadIdx.x + 2];
}

void run(const float* x, float* y, int n) { blur<<<n / 128, 128>>>(x, y, n); }
"""

_NO_TILE = """
__global__ void gemm(const float* a, const float* w, float* y, int N, int K) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    float acc = 0.f;
    for (int k = 0; k < K; ++k) acc += a[row * K + k] * w[k * N + col];
    y[row * N + col] = acc;
}

void run(const float* a, const float* w, float* y, int M, int N, int K) {
    gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(a, w, y, N, K);
}
"""

_GRADIENTS = """
@triton.jit
def gradients(X, DY, DX, DW, rows, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    first = tl.program_id(0) * rows
    for row in range(first, first + rows):
        x = tl.load(X + row * N + cols)
        dy = tl.load(DY + row * N + cols)
        total += x * dy
        tl.store(DX + row * N + cols, dy - x * tl.sum(x * dy))
    tl.store(DW + tl.program_id(0) * N + cols, total)


def run(x, dy, dx, dw):
    gradients[(64,)](x, dy, dx, dw, x.shape[0] // 64, x.shape[1], BLOCK=1024)
"""

_ROWS = _GRADIENTS.replace("        total += x * dy\n", "")

EXAMPLES = (
    Example("rows for two gradients", "triton", _GRADIENTS, Status.PRESENT, {"operand": "X", "consumers": 2}),
    Example("rows for one gradient", "triton", _ROWS, Status.ABSENT, trap="a sum that only prepares its own row"),
    Example("operands of a product", "triton", _GEMM, Status.PRESENT, {"operand": "W", "consumers": 64}),
    Example("rotary row for all heads", "triton", _ROPE, Status.PRESENT, {"operand": "cos", "consumers": 8}),
    Example("block of elements", "triton", _SCALE_ROWS, Status.ABSENT, trap="an elementwise block is not a reuse tile"),
    Example("one vector", "triton", _ONE_VECTOR, Status.ABSENT, trap="parameter of size one: one consumer"),
    Example(
        "rotary row for one head",
        "triton",
        _ROPE.replace("HEADS=8", "HEADS=1"),
        Status.ABSENT,
        trap="parameter of size one: one head",
    ),
    Example("tiles in shared memory", "cuda", _CUDA, Status.PRESENT, {"operand": "w", "consumers": 16}),
    Example("neighbours in shared memory", "cuda", _STENCIL, Status.PRESENT, {"operand": "x", "consumers": 3}),
    Example("every thread fetches for itself", "cuda", _NO_TILE, Status.ABSENT, trap="no tile: caches are no design"),
    Example(
        "staged and used once",
        "cuda",
        _STENCIL.replace(
            "0.25f * tile[threadIdx.x] + 0.5f * tile[threadIdx.x + 1] + 0.25f * tile[threadIdx.x + 2]",
            "2.f * tile[threadIdx.x + 1]",
        ),
        Status.ABSENT,
        trap="declared but unused: a shared tile that is read once",
    ),
)
