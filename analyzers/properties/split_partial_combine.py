"""Combine partial results: the parts of a reduction that several blocks share are merged by a second kernel or host
code, by the block that comes last, atomically, or within a cluster, in a way that handles their scaling. A ticket for
work, a histogram and a reduction inside one block merge no parts.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.patterns.combining import Combination, combinations, shared_reductions
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import Reach
from d2k.spec.finding import Reason, Status

WORDS = {
    "second_kernel": "reduced after the launch",
    "last_block": "the block that comes last reads the parts",
    "atomic": "every block adds its part in memory",
    "cluster": "parts are read from the other blocks of the cluster",
}


def detect_program(program: ProgramView) -> Detection:
    found: dict[tuple[str, str], Combination] = {}
    for kernel in program.kernels:
        for one in combinations(kernel):
            found.setdefault((one.mechanism, one.payload), one)
    if found:
        return tuple(_match(one) for one in found.values())
    return _miss(program)


def _match(one: Combination) -> Match:
    evidence = (Evidence(one.partial, "a part of the result"), Evidence(one.merged, WORDS[one.mechanism]))
    return Match(evidence, {"mechanism": one.mechanism, "payload": one.payload})


def _miss(program: ProgramView) -> Miss | Undecided:
    for kernel in program.kernels:
        for one in shared_reductions(kernel):
            place = Evidence(kernel.place(numbering(kernel).example(one.tile)), "chooses the part")
            if one.splits == 1:
                return Miss(Reason.WRONG_PARAMETER, "the reduction is cut into one part", (place,))
            if kernel.kernel.reach is Reach.EXPORTED:
                return Undecided("what becomes of the parts is not in this file", (place,))
            return Miss(detail="nothing merges the parts", evidence=(place,))
    return Miss(detail="no reduction is shared by several blocks")


TRITON = """
@triton.jit
def matvec(W, x, y, work, N, K, each, SPLITS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    part = tl.program_id(1)
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(part * each, part * each + each, BK):
        k = start + tl.arange(0, BK)
        w = tl.load(W + rows[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        total += tl.sum(w * tl.load(x + k, mask=k < K, other=0.0)[None, :], 1)
    LEAVE

@triton.jit
def add_up(work, y, N, SPLITS: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    parts = tl.arange(0, SPLITS)
    tl.store(y + rows, tl.sum(tl.load(work + parts[:, None] * N + rows[None, :]), 0))

def run(W, x, y):
    N, K = W.shape
    work = torch.empty((COUNT, N), dtype=torch.float32, device=W.device)
    matvec[(N // 16, COUNT)](W, x, y, work, N, K, K // COUNT, SPLITS=COUNT, BN=16, BK=128)
    AFTER
"""
STORED = "tl.store(work + part * N + rows, total)"
ADDED = "tl.atomic_add(y + rows, total)"
SECOND = "add_up[(N // 16,)](work, y, N, SPLITS=COUNT, BN=16)"


def _triton(leave: str, after: str = "pass", splits: int = 8) -> str:
    return TRITON.replace("LEAVE", leave).replace("AFTER", after).replace("COUNT", str(splits))


DECODE = """
@triton.jit
def attend(Q, K, V, parts, lse, S, each, D: tl.constexpr, BN: tl.constexpr):
    head, part = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, D)
    q = tl.load(Q + head * D + dims)
    acc = tl.zeros((D,), tl.float32)
    top = -1e30
    total = 0.0
    for start in range(part * each, min(part * each + each, S), BN):
        keys = start + tl.arange(0, BN)
        place = (head * S + keys[:, None]) * D + dims[None, :]
        k = tl.load(K + place, mask=keys[:, None] < S, other=0.0)
        score = tl.where(keys < S, tl.sum(q[None, :] * k, 1), -1e30)
        new = tl.maximum(top, tl.max(score, 0))
        p = tl.exp(score - new)
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(p, 0)
        v = tl.load(V + place, mask=keys[:, None] < S, other=0.0)
        acc = acc * shrink + tl.sum(p[:, None] * v, 0)
        top = new
    tl.store(parts + (head * tl.num_programs(1) + part) * D + dims, acc / total)
    tl.store(lse + head * tl.num_programs(1) + part, top + tl.log(total))

@triton.jit
def merge(parts, lse, O, PARTS: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(0)
    part, dims = tl.arange(0, PARTS), tl.arange(0, D)
    logs = tl.load(lse + head * PARTS + part)
    weights = tl.exp(logs - tl.max(logs, 0))
    values = tl.load(parts + (head * PARTS + part[:, None]) * D + dims[None, :])
    tl.store(O + head * D + dims, tl.sum(weights[:, None] * values, 0) / tl.sum(weights, 0))

def run(Q, K, V, O):
    heads, S, D = K.shape
    parts = torch.empty((heads, 8, D), dtype=torch.float32, device=Q.device)
    lse = torch.empty((heads, 8), dtype=torch.float32, device=Q.device)
    attend[(heads, 8)](Q, K, V, parts, lse, S, triton.cdiv(S, 8), D=64, BN=64)
    merge[(heads,)](parts, lse, O, PARTS=8, D=64)
"""

HISTOGRAM = """
@triton.jit
def count(keys, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(keys + i, mask=i < n, other=0), 1, mask=i < n)

def run(keys, counts):
    count[(triton.cdiv(keys.numel(), 1024),)](keys, counts, keys.numel(), BLOCK=1024)
"""

CUDA = r"""
__device__ float block_sum(float value) {
  __shared__ float warps[8];
  for (int o = 16; o > 0; o >>= 1) value += __shfl_xor_sync(0xffffffffu, value, o);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.f;
  for (int i = 0; i < 8; ++i) total += warps[i];
  return total;
}
__global__ void matvec(const float* W, const float* x, float* y, float* work, int* done, int n, int k) {
  const int row = blockIdx.x, first = FIRST, last = LAST;
  float sum = 0.f;
  for (int i = first + threadIdx.x; i < last; i += 256) sum += W[row * k + i] * x[i];
  sum = block_sum(sum);
  LEAVE
}
__global__ void add_up(const float* work, float* y, int n, int parts) {
  const int row = blockIdx.x * 256 + threadIdx.x;
  float sum = 0.f;
  for (int p = 0; p < parts; ++p) sum += work[p * n + row];
  y[row] = sum;
}
void run(const float* W, const float* x, float* y, float* work, int* done, int n, int k) {
  matvec<<<dim3(n, 8), 256>>>(W, x, y, work, done, n, k);
  AFTER
}
"""
CUDA_STORED = "if (threadIdx.x == 0) work[blockIdx.y * n + row] = sum;"
CUDA_SECOND = "add_up<<<n / 256, 256>>>(work, y, n, 8);"
CUDA_LAST = """if (threadIdx.x == 0) {
    work[blockIdx.y * n + row] = sum;
    __threadfence();
    if (atomicAdd(&done[row], 1) == 7) {
      float total = 0.f;
      for (int p = 0; p < 8; ++p) total += work[p * n + row];
      y[row] = total;
    }
  }"""


def _cuda(leave: str, after: str = "", first: str = "blockIdx.y * (k / 8)", last: str = "first + k / 8") -> str:
    code = CUDA.replace("LEAVE", leave).replace("AFTER", after)
    return code.replace("FIRST", first).replace("LAST", last)


EXAMPLES = (
    Example(
        "second kernel",
        "triton",
        _triton(STORED, SECOND),
        Status.PRESENT,
        {"mechanism": "second_kernel", "payload": "sum"},
    ),
    Example(
        "parts of attention",
        "triton",
        DECODE,
        Status.PRESENT,
        {"mechanism": "second_kernel", "payload": "lse_weighted"},
    ),
    Example("atomic sum", "triton", _triton(ADDED), Status.PRESENT, {"mechanism": "atomic", "payload": "sum"}),
    Example(
        "host code adds the parts up",
        "triton",
        _triton(STORED, "y.copy_(work.sum(0))"),
        Status.PRESENT,
        {"mechanism": "second_kernel", "payload": "sum"},
    ),
    Example("one part", "triton", _triton(ADDED, splits=1), Status.ABSENT, trap="SPLIT = 1"),
    Example("nothing merges", "triton", _triton(STORED), Status.ABSENT, trap="a workspace that nothing reads"),
    Example("histogram", "triton", HISTOGRAM, Status.ABSENT, trap="look-alike: a counter is no reduction by atomics"),
    Example(
        "second kernel",
        "cuda",
        _cuda(CUDA_STORED, CUDA_SECOND),
        Status.PRESENT,
        {"mechanism": "second_kernel", "payload": "sum"},
    ),
    Example("last block", "cuda", _cuda(CUDA_LAST), Status.PRESENT, {"mechanism": "last_block", "payload": "sum"}),
    Example(
        "atomic sum",
        "cuda",
        _cuda("if (threadIdx.x == 0) atomicAdd(&y[row], sum);"),
        Status.PRESENT,
        {"mechanism": "atomic", "payload": "sum"},
    ),
    Example(
        "whole rows",
        "cuda",
        _cuda("if (threadIdx.x == 0) y[row] = sum;", first="0", last="k"),
        Status.ABSENT,
        trap="a reduction inside one block merges no parts",
    ),
)
