"""Block sparsity skip: blocks that a mask, a window or a list rules out are not visited: the bounds of the
loop over them, a
branch around their loads, or a list of blocks leaves them out. Masking the elements of every block is not skipping.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.skipping import Skip, masks_triangle, skips
from d2k.spec.finding import Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(skips(kernel))
    if found:
        return (_match(kernel, found),)
    masked = masks_triangle(kernel)
    if masked is not None:
        evidence = (Evidence(kernel.place(masked), "compares row and column"),)
        return Miss(detail="elements are masked, but every block is visited", evidence=evidence)
    return Miss(detail="every block is visited")


def _match(kernel: KernelView, found: tuple[Skip, ...]) -> Match:
    return Match(tuple(_evidence(found)), {"pattern": tuple(sorted({one.pattern for one in found}))})


def _evidence(found: tuple[Skip, ...]) -> Iterator[Evidence]:
    for pattern in sorted({one.pattern for one in found}):
        first = next(one for one in found if one.pattern == pattern)
        yield Evidence(first.place, first.text)


_CAUSAL = """
@triton.jit
def attention(Q, K, V, O, S, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    tile = tl.program_id(0)
    rows = tile * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(S, (tile + 1) * BM) if CAUSAL else S
    for start in range(0, end, BN):
        cols = start + tl.arange(0, BN)
        s = tl.dot(q, tl.load(K + cols[None, :] * D + dims[:, None]))
        if CAUSAL:
            s = tl.where(cols[None, :] <= rows[:, None], s, 0.0)
        acc += tl.dot(s.to(tl.bfloat16), tl.load(V + cols[:, None] * D + dims[None, :]))
    tl.store(O + rows[:, None] * D + dims[None, :], acc)


def run(q, k, v, o):
    S, D = q.shape
    attention[(triton.cdiv(S, 64),)](q, k, v, o, S, CAUSAL=True, D=D, BM=64, BN=64)
"""

_WINDOW = _CAUSAL.replace("range(0, end, BN)", "range(tl.maximum(0, tile * BM - 1024) // BN * BN, end, BN)").replace(
    "cols[None, :] <= rows[:, None], s", "(cols[None, :] <= rows[:, None]) & (cols[None, :] > rows[:, None] - 1024), s"
)

_LIST = """
@triton.jit
def selected(Q, K, Blocks, Out, COUNT: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    token = tl.program_id(0)
    dims = tl.arange(0, D)
    q = tl.load(Q + token * D + dims)
    best = tl.full((SIZE,), -1e30, tl.float32)
    for i in range(COUNT):
        first = tl.load(Blocks + token * COUNT + i) * SIZE
        if first <= token:
            cols = first + tl.arange(0, SIZE)
            k = tl.load(K + cols[:, None] * D + dims[None, :])
            best = tl.maximum(best, tl.where(cols <= token, tl.sum(k * q[None, :], 1), -1e30))
    tl.store(Out + token, tl.max(best))


def run(q, k, blocks, out):
    selected[(q.shape[0],)](q, k, blocks, out, COUNT=16, SIZE=64, D=128)
"""

_GROUPS = """
@triton.jit
def grouped(X, W, Y, offsets, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    group = tl.program_id(0)
    first = tl.load(offsets + group)
    size = tl.load(offsets + group + 1) - first
    if size > 0:
        cols = tl.program_id(1) * BN + tl.arange(0, BN)
        for m in range(0, size, BM):
            rows = first + m + tl.arange(0, BM)
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(0, K, BK):
                ks = k + tl.arange(0, BK)
                a = tl.load(X + rows[:, None] * K + ks[None, :])
                acc = tl.dot(a, tl.load(W + group * K * N + ks[:, None] * N + cols[None, :]), acc)
            tl.store(Y + rows[:, None] * N + cols[None, :], acc, mask=(m + tl.arange(0, BM) < size)[:, None])


def run(x, w, y, offsets):
    G, K, N = w.shape
    grouped[(G, N // 64)](x, w, y, offsets, N, K, BM=64, BN=64, BK=64)
"""

_SPLIT = """
@triton.jit
def partial_products(A, W, P, M, N, K, PART: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    part = tl.program_id(1)
    cols = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(part * PART, (part + 1) * PART, BK):
        ks = k + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + ks[None, :], mask=ks[None, :] < K, other=0.0)
        acc = tl.dot(a, tl.load(W + ks[:, None] * N + cols[None, :]), acc)
    tl.store(P + (part * M + rows[:, None]) * N + cols[None, :], acc)


def run(a, w, p):
    M, K = a.shape
    partial_products[(M // 64, 8)](a, w, p, M, 64, K, PART=K // 8, BM=64, BN=64, BK=64)
"""

_CUDA = """
template <int BM, int BN, bool CAUSAL>
__global__ void scores(const float* q, const float* k, float* out, int S, int D) {
    __shared__ float tile[BN][64];
    int row = blockIdx.x * BM + threadIdx.x;
    int end = CAUSAL ? min(S, (int)(blockIdx.x + 1) * BM) : S;
    float total = 0.f;
    for (int start = 0; start < end; start += BN) {
        for (int i = threadIdx.x; i < BN * 64; i += BM) tile[i / 64][i % 64] = k[(start + i / 64) * D + i % 64];
        __syncthreads();
        for (int j = 0; j < BN; ++j) {
            float s = 0.f;
            for (int d = 0; d < 64; ++d) s += q[row * D + d] * tile[j][d];
            if (!CAUSAL || start + j <= row) total += s;
        }
        __syncthreads();
    }
    out[row] = total;
}

void run(const float* q, const float* k, float* out, int S) {
    scores<64, 64, true><<<S / 64, 64>>>(q, k, out, S, 64);
}
"""

_CUDA_BRANCH = _CUDA.replace("int end = CAUSAL ? min(S, (int)(blockIdx.x + 1) * BM) : S;", "int end = S;").replace(
    "start += BN) {\n", "start += BN) {\n        if (CAUSAL && start >= (int)(blockIdx.x + 1) * BM) continue;\n"
)

EXAMPLES = (
    Example("loop ends at the diagonal", "triton", _CAUSAL, Status.PRESENT, {"pattern": ("causal",)}),
    Example("loop starts at the window", "triton", _WINDOW, Status.PRESENT, {"pattern": ("causal", "window")}),
    Example("list of blocks", "triton", _LIST, Status.PRESENT, {"pattern": ("block_list",)}),
    Example("empty groups", "triton", _GROUPS, Status.PRESENT, {"pattern": ("empty_group",)}),
    Example(
        "all blocks, masked",
        "triton",
        _CAUSAL.replace("tl.minimum(S, (tile + 1) * BM) if CAUSAL else S", "S"),
        Status.ABSENT,
        trap="masks alone",
    ),
    Example(
        "causal switched off",
        "triton",
        _CAUSAL.replace("CAUSAL=True", "CAUSAL=False"),
        Status.ABSENT,
        trap="constexpr off",
    ),
    Example("part of the reduction", "triton", _SPLIT, Status.ABSENT, trap="look-alike: bounds of a split reduction"),
    Example("loop ends at the diagonal", "cuda", _CUDA, Status.PRESENT, {"pattern": ("causal",)}),
    Example("branch around whole blocks", "cuda", _CUDA_BRANCH, Status.PRESENT, {"pattern": ("causal",)}),
    Example(
        "all blocks, masked",
        "cuda",
        _CUDA.replace("CAUSAL ? min(S, (int)(blockIdx.x + 1) * BM) : S", "S"),
        Status.ABSENT,
        trap="masks alone",
    ),
    Example(
        "causal switched off", "cuda", _CUDA.replace("64, true>", "64, false>"), Status.ABSENT, trap="constexpr off"
    ),
)
