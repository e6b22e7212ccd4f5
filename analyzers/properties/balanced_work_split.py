"""Work units of equal cost: work is cut into pieces, or ordered, by what it costs, so that blocks finish together: the
longest tiles first, pieces of one length, or ranges of steps that run on from tile to tile. The order of block numbers
under a causal mask, which starts the shortest loops first, and parts of an item's own length are not balanced.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.patterns.balance import Balance, balances, shortest_first
from d2k.spec.finding import Reason, Status

MEASURED = "needs a profile: equal cost is measured"


def detect_program(program: ProgramView) -> Detection:
    found: dict[str, Balance] = {}
    for kernel in program.kernels:
        for one in balances(kernel):
            found.setdefault(one.policy, one)
    if found:
        return tuple(_match(one) for one in found.values())
    for kernel in program.kernels:
        loop = shortest_first(kernel)
        if loop is not None:
            place = Evidence(kernel.loop(loop).place, "later blocks have longer loops")
            return Miss(Reason.WRONG_PARAMETER, "the longest loops start last", (place,))
    return Miss(detail="work is neither cut nor ordered by its cost")


def _match(one: Balance) -> Match:
    evidence = (Evidence(one.place, one.text),)
    if one.policy == "equal":
        return Match(evidence, {}, {"policy": MEASURED})
    return Match(evidence, {"policy": one.policy})


CAUSAL = """
@triton.jit
def scores(Q, K, O, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    tile = TILE
    rows = tile * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :])
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, END, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(K + keys[:, None] * D + dims[None, :])
        score = tl.where(keys[None, :] <= rows[:, None], tl.dot(q, tl.trans(k)), -1e30)
        total += tl.sum(tl.exp(score), 1)
    tl.store(O + rows, total)

def run(Q, K, O):
    scores[(Q.shape[0] // 128,)](Q, K, O, K.shape[0], D=64, BM=128, BN=32)
"""
BACKWARDS = "tl.num_programs(0) - 1 - tl.program_id(0)"


def _causal(tile: str, end: str = "(tile + 1) * BM") -> str:
    return CAUSAL.replace("TILE", tile).replace("END", end)


SPLIT = """
@triton.jit
def product(A, B, C, M, N, K, steps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    RANGE
    for start in range(first, last, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        b = tl.load(B + k[:, None] * N + columns[None, :], mask=k[:, None] < K, other=0.0)
        total = tl.dot(a, b, total)
    tl.atomic_add(C + rows[:, None] * N + columns[None, :], total)

def run(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    product[(M // 64, N // 64, 8)](A, B, C, M, N, K, K // 256, BM=64, BN=64, BK=32)
"""
PIECES = """first = tl.program_id(2) * steps * BK
    last = min(first + steps * BK, K)"""

STREAM = """
@triton.jit
def product(A, B, C, M, N, K, each, total_steps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    steps = tl.cdiv(K, BK)
    across = tl.cdiv(N, BN)
    at = tl.program_id(0) * each
    end = min(at + each, total_steps)
    while at < end:
        tile = at // steps
        until = min(end, (tile + 1) * steps)
        rows = tile // across * BM + tl.arange(0, BM)
        columns = tile % across * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for step in range(at % steps, until - tile * steps):
            k = step * BK + tl.arange(0, BK)
            a = tl.load(A + rows[:, None] * K + k[None, :])
            b = tl.load(B + k[:, None] * N + columns[None, :])
            total = tl.dot(a, b, total)
        tl.atomic_add(C + rows[:, None] * N + columns[None, :], total)
        at = until

def run(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    steps = (M // 64) * (N // 64) * (K // 32)
    product[(132,)](A, B, C, M, N, K, triton.cdiv(steps, 132), steps, BM=64, BN=64, BK=32)
"""

CUDA = r"""
__global__ void scores(const float* q, const float* k, float* out, int rows) {
  const int tile = TILE;
  const int row = tile * 128 + threadIdx.x;
  float total = 0.f;
  for (int key = 0; key < (tile + 1) * 128; ++key) {
    float score = 0.f;
    for (int d = 0; d < 64; ++d) score += q[row * 64 + d] * k[key * 64 + d];
    if (key > row) score = -1e30f;
    total += __expf(score);
  }
  out[row] = total;
}
void run(const float* q, const float* k, float* out, int rows) { scores<<<rows / 128, 128>>>(q, k, out, rows); }
"""

CUDA_SPLIT = r"""
__global__ void matvec(const float* W, const float* x, float* y, int n, int k) {
  const int row = blockIdx.x, first = FIRST, last = LAST;
  float sum = 0.f;
  for (int i = first; i < last; i += 256) sum += W[row * k + i + threadIdx.x] * x[i + threadIdx.x];
  atomicAdd(&y[row], sum);
}
void run(const float* W, const float* x, float* y, int n, int k) {
  matvec<<<dim3(n, (k + 4095) / 4096), 256>>>(W, x, y, n, k);
}
"""

EXAMPLES = (
    Example("tiles from the far end", "triton", _causal(BACKWARDS), Status.PRESENT, {"policy": "longest_first"}),
    Example(
        "equal pieces of the reduction",
        "triton",
        SPLIT.replace("RANGE", PIECES),
        Status.PRESENT,
        {"policy": "fixed_chunk"},
    ),
    Example("range of steps over tiles", "triton", STREAM, Status.PRESENT, {"policy": "stream_k"}),
    Example(
        "order of block numbers",
        "triton",
        _causal("tl.program_id(0)"),
        Status.ABSENT,
        trap="the longest loops start last",
    ),
    Example(
        "far end without a mask's edge",
        "triton",
        _causal(BACKWARDS, "S"),
        Status.ABSENT,
        trap="look-alike: the order of tiles of equal cost is no balance",
    ),
    Example(
        "whole reduction",
        "triton",
        SPLIT.replace("RANGE", "first, last = 0, K"),
        Status.ABSENT,
        trap="nothing is cut",
    ),
    Example(
        "tiles from the far end",
        "cuda",
        CUDA.replace("TILE", "gridDim.x - 1 - blockIdx.x"),
        Status.PRESENT,
        {"policy": "longest_first"},
    ),
    Example(
        "pieces of 4096",
        "cuda",
        CUDA_SPLIT.replace("FIRST", "blockIdx.y * 4096").replace("LAST", "min(first + 4096, k)"),
        Status.PRESENT,
        {"policy": "fixed_chunk"},
    ),
    Example(
        "order of block numbers",
        "cuda",
        CUDA.replace("TILE", "blockIdx.x /* gridDim.x - 1 - blockIdx.x */"),
        Status.ABSENT,
        trap="comment",
    ),
    Example(
        "whole rows",
        "cuda",
        CUDA_SPLIT.replace("FIRST", "0").replace("LAST", "k"),
        Status.ABSENT,
        trap="nothing is cut",
    ),
)
