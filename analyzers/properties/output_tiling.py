"""Output tiling: a block owns a rectangular tile of the output and sums it up in slices along the reduction axis.

A tile of one row is a vector, a product over the whole depth at once has no slices, and elementwise blocks have no
reduction at all.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.known import computes_all_results
from d2k.analyzers.patterns.output_tile import OutputTile, output_tiles
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = output_tiles(kernel)
    rectangular = [one for one in found if one.m != 1 and one.n != 1]
    looped = [one for one in rectangular if one.loop != NONE]
    if looped:
        matches = {(one.m, one.n, one.k): _match(kernel, one) for one in reversed(looped)}
        return tuple(reversed(matches.values()))
    if rectangular:
        one = rectangular[0]
        place = Evidence(kernel.place(one.value), "the product")
        return Miss(detail="the whole depth is multiplied at once, without a loop over slices", evidence=(place,))
    if found:
        text = f"tile of {found[0].m or 'several'} x {found[0].n or 'several'}"
        place = Evidence(kernel.place(found[0].value), text)
        return Miss(Reason.WRONG_PARAMETER, "the tile has one row", (place,))
    multiplied = kernel.values(Kind.MMA)
    if multiplied:
        place = Evidence(kernel.place(multiplied[0]), "the product")
        return Undecided("the product cannot be followed from its accumulator to what is stored", (place,))
    return Miss(detail="no output is a sum of products along a loop", certain=computes_all_results(kernel))


def _match(kernel: KernelView, one: OutputTile) -> Match:
    extents = {"block_m": one.m, "block_n": one.n, "block_k": one.k}
    attributes: dict[str, FoundValue] = {name: extent for name, extent in extents.items() if extent is not None}
    undecided = {name: "the extent of the tile is not known here" for name, extent in extents.items() if extent is None}
    sizes = " x ".join(str(extent) if extent is not None else "?" for extent in (one.m, one.n))
    evidence = (
        Evidence(kernel.place(one.value), f"tile of {sizes}"),
        Evidence(kernel.loop(one.loop).place, f"reduction in steps of {one.k if one.k is not None else '?'}"),
    )
    return Match(evidence, attributes, undecided)


TRITON = """
@triton.jit
def matmul(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        b = tl.load(B + k[:, None] * N + columns[None, :], mask=k[:, None] < K, other=0.0)
        total = tl.dot(a, b, total)
    tl.store(C + rows[:, None] * N + columns[None, :], total)

def run(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    matmul[(M // 64, N // 128)](A, B, C, M, N, K, BM=64, BN=128, BK=32)
"""
LOOP = """    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
"""

ATTENTION = """
@triton.jit
def attend(Q, K, V, O, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, S, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(K + keys[:, None] * D + dims[None, :])
        score = tl.dot(q, tl.trans(k))
        new = tl.maximum(top, tl.max(score, 1))
        p = tl.exp(score - new[:, None])
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(V + keys[:, None] * D + dims[None, :])
        acc = acc * shrink[:, None] + tl.dot(p.to(tl.bfloat16), v)
        top = new
    tl.store(O + rows[:, None] * D + dims[None, :], acc / total[:, None])

def run(Q, K, V, O):
    attend[(Q.shape[0] // 128,)](Q, K, V, O, K.shape[0], D=64, BM=128, BN=32)
"""

VECTOR = """
@triton.jit
def matvec(W, x, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        w = tl.load(W + rows[:, None] * K + k[None, :])
        total += tl.sum(w * tl.load(x + k)[None, :], 1)
    tl.store(y + rows, total)

def run(W, x, y):
    N, K = W.shape
    matvec[(N // 16,)](W, x, y, N, K, BN=16, BK=256)
"""

ELEMENTWISE = """
@triton.jit
def scale(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    for start in range(0, N, BN):
        columns = start + tl.arange(0, BN)
        place = rows[:, None] * N + columns[None, :]
        tl.store(Y + place, 2 * tl.load(X + place))

def run(X, Y):
    scale[(X.shape[0] // 64,)](X, Y, X.shape[0], X.shape[1], BM=64, BN=64)
"""

CUDA = r"""
constexpr int TILE = 64, DEPTH = 16;
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[DEPTH][TILE], b[DEPTH][TILE];
  const int row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < K; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
      a[i % DEPTH][i / DEPTH] = A[(row0 + i / DEPTH) * K + k0 + i % DEPTH];
      b[i / TILE][i % TILE] = B[(k0 + i / TILE) * N + column0 + i % TILE];
    }
    __syncthreads();
    for (int k = 0; k < DEPTH; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] += a[k][ty * 4 + i] * b[k][tx * 4 + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) C[(row0 + ty * 4 + i) * N + column0 + tx * 4 + j] = sum[i][j];
}
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  matmul<<<dim3(N / TILE, M / TILE), 256>>>(A, B, C, M, N, K);
}
"""

CUDA_VECTOR = r"""
__global__ void matvec(const float* W, const float* x, float* y, int N, int K) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32;
  float sum = 0.f;
  for (int k = threadIdx.x % 32; k < K; k += 32) sum += W[row * K + k] * x[k];
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x % 32 == 0) y[row] = sum;
}
void run(const float* W, const float* x, float* y, int N, int K) { matvec<<<N / 8, 256>>>(W, x, y, N, K); }
"""

CUDA_ELEMENTWISE = r"""
__global__ void transpose(const float* x, float* y, int rows, int columns) {
  __shared__ float tile[32][33];
  const int row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
  for (int i = 0; i < 32; i += 8)
    tile[threadIdx.y + i][threadIdx.x] = x[(row0 + threadIdx.y + i) * columns + column0 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 32; i += 8)
    y[(column0 + threadIdx.y + i) * rows + row0 + threadIdx.x] = tile[threadIdx.x][threadIdx.y + i];
}
void run(const float* x, float* y, int rows, int columns) {
  transpose<<<dim3(columns / 32, rows / 32), dim3(32, 8)>>>(x, y, rows, columns);
}
"""

EXAMPLES = (
    Example("matrix product", "triton", TRITON, Status.PRESENT, {"block_m": 64, "block_n": 128, "block_k": 32}),
    Example("attention", "triton", ATTENTION, Status.PRESENT, {"block_m": 128, "block_n": 64, "block_k": 32}),
    Example(
        "whole depth at once",
        "triton",
        TRITON.replace(LOOP, "    if True:\n        k = tl.arange(0, BK)\n"),
        Status.ABSENT,
        trap="a product without a loop over slices",
    ),
    Example("matrix times vector", "triton", VECTOR, Status.ABSENT, trap="parameter of size one: a tile of one row"),
    Example(
        "elementwise blocks", "triton", ELEMENTWISE, Status.ABSENT, trap="look-alike: an elementwise block is no tile"
    ),
    Example(
        "register tiles of multiply-adds",
        "cuda",
        CUDA,
        Status.PRESENT,
        {"block_m": 64, "block_n": 64, "block_k": 16},
    ),
    Example(
        "deeper slices",
        "cuda",
        CUDA.replace("DEPTH = 16", "DEPTH = 32")
        .replace("TILE = 64", "TILE = 128")
        .replace("< 4;", "< 8;")
        .replace("* 4", "* 8"),
        Status.PRESENT,
        {"block_m": 128, "block_n": 128, "block_k": 32},
    ),
    Example("matrix times vector", "cuda", CUDA_VECTOR, Status.ABSENT, trap="parameter of size one: a tile of one row"),
    Example(
        "transposition", "cuda", CUDA_ELEMENTWISE, Status.ABSENT, trap="look-alike: tiles without a sum of products"
    ),
)
