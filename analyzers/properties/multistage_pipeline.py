"""Multi-stage pipeline: loads for later iterations are under way in buffers of their own while the present one is used.

In Triton `num_stages` asks for it: of a launch it counts for loops in which loads feed a matrix product, of `tl.range`
for any loop with loads. Without a number only the compiled code can tell. By hand it takes a ring of shared buffers
that is filled ahead, or operands that are fetched an iteration early and carried in registers. Fewer iterations than
stages, and a wait right after the copy, overlap nothing.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.analyzers.patterns.loops import trip_count
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.pipelines import Pipelined, pipelined
from d2k.analyzers.patterns.prefetch import prefetches
from d2k.analyzers.patterns.rings import Ring, rings
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Reason, Status

COPIES = ("cp.async", "__pipeline_memcpy_async", "cp.async.bulk", "async_copy_global_to_shared")
HOW = {"registers": "through registers", "cp_async": "by asynchronous copies", "tma": "by tensor copies"}


def detect(kernel: KernelView) -> Detection:
    asked = pipelined(kernel)
    kept = [one for one in rings(kernel) if one.ahead and one.stages != 1]
    matches = {match.attributes.get("stages"): match for match in _by_hand(kernel, kept)}
    for one in asked:
        if _runs(kernel, one.loop, one.stages) and one.stages is not None and one.stages >= 2:
            matches.setdefault(one.stages, _asked_for(kernel, one))
    if matches:
        return tuple(matches.values())
    if any(one.stages is None for one in asked):
        place = Evidence(kernel.loop(asked[0].loop).place, "loads feed a matrix product")
        return Undecided(f"{NEEDS_COMPILED}: the number of stages is left to the compiler", (place,))
    return _miss(kernel, asked)


def _by_hand(kernel: KernelView, kept: list[Ring]) -> list[Match]:
    found: list[Match] = []
    for one in kept:
        if not _runs(kernel, one.loop, one.stages):
            continue
        how = HOW.get(one.how, "by bulk copies")
        text = f"{one.stages or 'several'} buffers filled ahead {how}"
        place = Evidence(kernel.place(one.fill), text)
        if one.stages is None:
            found.append(Match((place,), {}, {"stages": "the number of buffers is no constant here"}))
        else:
            found.append(Match((place,), {"stages": one.stages}))
    for early in prefetches(kernel):
        stages = len(early.phis) + 1
        if _runs(kernel, early.loop, stages):
            text = f"fetched {len(early.phis)} iteration{'s' if stages > 2 else ''} ahead of its use"
            found.append(Match((Evidence(kernel.place(early.fetch), text),), {"stages": stages}))
    return found


def _runs(kernel: KernelView, loop: int, stages: int | None) -> bool:
    """The loop runs at least as often as there are stages, as far as is known."""
    trips = trip_count(kernel, loop)
    return trips is None or stages is None or trips >= stages


def _asked_for(kernel: KernelView, one: Pipelined) -> Match:
    what = "feed a matrix product" if one.products else "move with the loop"
    evidence = (
        Evidence(kernel.loop(one.loop).place, f"num_stages={one.stages}"),
        Evidence(kernel.place(one.loads[0]), f"{len(one.loads)} loads {what}"),
    )
    return Match(evidence, {"stages": one.stages} if one.stages is not None else {})


def _miss(kernel: KernelView, asked: tuple[Pipelined, ...]) -> Miss:
    for one in asked:
        place = Evidence(kernel.loop(one.loop).place, f"num_stages={one.stages}")
        if one.stages is not None and one.stages < 2:
            return Miss(Reason.WRONG_PARAMETER, "one stage: nothing is loaded ahead", (place,))
        text = f"the loop runs {one.trips} times, fewer than its {one.stages} stages"
        return Miss(Reason.NOT_LOAD_BEARING, text, (place,))
    for ring in rings(kernel):
        if not ring.ahead and ring.waits != NONE and ring.how != "registers":
            waits = Evidence(kernel.place(ring.waits), "waits for all copies")
            text = "each copy is waited for before anything is computed"
            return Miss(Reason.NOT_LOAD_BEARING, text, (Evidence(kernel.place(ring.fill), "a copy"), waits))
    if kernel.kernel.language == "triton" and (kernel.launch.num_stages or 0) > 1:
        text = f"num_stages={kernel.launch.num_stages} means nothing here: no loop loads operands of a matrix product"
        loads = kernel.values(Kind.LOAD)[:1]
        return Miss(Reason.NOT_LOAD_BEARING, text, tuple(Evidence(kernel.place(one), "a load") for one in loads))
    return mentioned(kernel, COPIES) or Miss(
        detail="nothing is loaded ahead of its use", certain=moves_all_memory(kernel)
    )


TRITON = """
@triton.jit
def matmul(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in LOOP:
        k = start + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + k[None, :])
        b = tl.load(B + k[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(C + rows[:, None] * N + columns[None, :], total)

def run(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    matmul[(M // 64, N // 64)](A, B, C, M, N, K, BM=64, BN=64, BK=32, STAGES=4LAUNCH)
"""


def _triton(loop: str = "range(0, K, BK)", launch: str = "") -> str:
    return TRITON.replace("LOOP", loop).replace("LAUNCH", launch)


ROW_SUM = """
@triton.jit
def row_sum(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
BODY
    tl.store(Y + row, tl.sum(total))

def run(X, Y):
    row_sum[(X.shape[0],)](X, Y, X.shape[1], BLOCK=1024, num_stages=4)
"""
CARRIED = """    ahead = tl.load(X + row * N + columns, mask=columns < N, other=0.0)
    for start in range(0, N, BLOCK):
        x = ahead
        following = start + BLOCK + columns
        ahead = tl.load(X + row * N + following, mask=following < N, other=0.0)
        total += x * x"""
WINDOW = """    before = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N, BLOCK):
        x = tl.load(X + row * N + start + columns, mask=start + columns < N, other=0.0)
        total += x * before
        before = x"""
PLAIN = """    for start in range(0, N, BLOCK):
        total += tl.load(X + row * N + start + columns, mask=start + columns < N, other=0.0)"""

CUDA = r"""
#include <cuda_pipeline.h>
constexpr int STAGES = 3, TILE = 64, DEPTH = 16;
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float a[STAGES][DEPTH][TILE], b[STAGES][DEPTH][TILE];
  const int row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {};
  auto fetch = [&](int step) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
      const float* from_a = &A[(row0 + i / DEPTH) * K + step * DEPTH + i % DEPTH];
      const float* from_b = &B[(step * DEPTH + i / TILE) * N + column0 + i % TILE];
      __pipeline_memcpy_async(&a[step % STAGES][i % DEPTH][i / DEPTH], from_a, 4);
      __pipeline_memcpy_async(&b[step % STAGES][i / TILE][i % TILE], from_b, 4);
    }
    __pipeline_commit();
  };
  PROLOGUE
  for (int step = 0; step < K / DEPTH; ++step) {
    FETCH
    __syncthreads();
    for (int k = 0; k < DEPTH; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] += a[step % STAGES][k][ty * 4 + i] * b[step % STAGES][k][tx * 4 + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) C[(row0 + ty * 4 + i) * N + column0 + tx * 4 + j] = sum[i][j];
}
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  matmul<<<dim3(N / TILE, M / TILE), 256>>>(A, B, C, M, N, K);
}
"""
AHEAD = (
    "if (step + STAGES - 1 < K / DEPTH) fetch(step + STAGES - 1); else __pipeline_commit();"
    " __pipeline_wait_prior(STAGES - 1);"
)


def _cuda(prologue: str, fetch: str) -> str:
    return CUDA.replace("PROLOGUE", prologue).replace("FETCH", fetch)


REGISTERS = r"""
__global__ void row_sums(const float* x, float* y, int n) {
  const float* row = x + blockIdx.x * n;
  float sum = 0.f;
  BODY
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
void run(const float* x, float* y, int rows, int n) { row_sums<<<rows, 32>>>(x, y, n); }
"""
EARLY = """float ahead = row[threadIdx.x];
  for (int i = threadIdx.x; i < n; i += 32) {
    const float now = ahead;
    ahead = i + 32 < n ? row[i + 32] : 0.f;
    sum += now * now;
  }"""
LATE = """for (int i = threadIdx.x; i < n; i += 32) {
    const float now = row[i];
    sum += now * now;
  }"""

EXAMPLES = (
    Example("stages of the launch", "triton", _triton(launch=", num_stages=3"), Status.PRESENT, {"stages": 3}),
    Example(
        "stages of the loop",
        "triton",
        _triton("tl.range(0, K, BK, num_stages=STAGES)"),
        Status.PRESENT,
        {"stages": 4},
    ),
    Example("fetched one block early", "triton", ROW_SUM.replace("BODY", CARRIED), Status.PRESENT, {"stages": 2}),
    Example("one stage", "triton", _triton(launch=", num_stages=1"), Status.ABSENT, trap="parameter of size one"),
    Example(
        "fewer iterations than stages",
        "triton",
        _triton("range(0, 64, BK)", ", num_stages=3"),
        Status.ABSENT,
        trap="two iterations cannot fill three stages",
    ),
    Example(
        "number of stages not given",
        "triton",
        _triton(),
        Status.UNKNOWN,
        trap="nothing is asked for: only the compiled code can tell",
    ),
    Example(
        "loop without a matrix product",
        "triton",
        ROW_SUM.replace("BODY", PLAIN),
        Status.ABSENT,
        trap="num_stages of a launch means nothing to a loop without a matrix product",
    ),
    Example(
        "kernel without a loop",
        "triton",
        ROW_SUM.replace("BODY", "    total += tl.load(X + row * N + columns, mask=columns < N, other=0.0)"),
        Status.ABSENT,
        trap="num_stages on a kernel without a loop",
    ),
    Example(
        "sliding window",
        "triton",
        ROW_SUM.replace("BODY", WINDOW),
        Status.ABSENT,
        trap="look-alike: a value that this iteration uses and keeps is no prefetch",
    ),
    Example(
        "ring of three buffers",
        "cuda",
        _cuda("for (int s = 0; s < STAGES - 1; ++s) fetch(s);", AHEAD),
        Status.PRESENT,
        {"stages": 3},
    ),
    Example("fetched one step early", "cuda", REGISTERS.replace("BODY", EARLY), Status.PRESENT, {"stages": 2}),
    Example(
        "waits right after the copy",
        "cuda",
        _cuda("", "fetch(step); __pipeline_wait_prior(0);"),
        Status.ABSENT,
        trap="wait_group 0 right after commit is no overlap",
    ),
    Example(
        "a single buffer",
        "cuda",
        _cuda("", "fetch(step); __pipeline_wait_prior(0);").replace("STAGES = 3", "STAGES = 1"),
        Status.ABSENT,
        trap="parameter of size one",
    ),
    Example(
        "fetched when it is needed",
        "cuda",
        REGISTERS.replace("BODY", f"// {EARLY.splitlines()[0]}\n  {LATE}"),
        Status.ABSENT,
        trap="comment",
    ),
)
