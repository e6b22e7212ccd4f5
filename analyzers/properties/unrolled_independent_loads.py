"""Independent loads in flight: a thread issues several loads of a tensor before it uses the first, by an unrolled loop,
by loads written one after another, or by a tile with more elements than one load of every thread fetches. An unrolled
loop without loads, a chain in which each load needs the one before it, and loops left to the compiler do not count.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.inflight import InFlight, in_flight
from d2k.spec.finding import Reason, Status

SEVERAL = 2


def detect(kernel: KernelView) -> Detection:
    found = tuple(in_flight(kernel))
    sure = [one for one in found if one.least >= SEVERAL]
    if sure:
        return (_match(kernel, max(sure, key=lambda one: one.least)),)
    unsure = next((one for one in found if one.most is None or one.most >= SEVERAL), None)
    if unsure is not None:
        detail = f"{NEEDS_COMPILED}: how many loads of {unsure.tensor} a thread needs is not known here"
        return Undecided(detail, _evidence(kernel, unsure))
    unrolled = next((index for index in range(len(kernel.body.loops)) if kernel.loop(index).attrs.get("unroll")), None)
    if unrolled is not None:
        place = (Evidence(kernel.loop(unrolled).place, "an unrolled loop"),)
        return Miss(Reason.NOT_LOAD_BEARING, "no tensor is loaded ahead in the unrolled loop", place)
    if found:
        detail = f"a thread has one load of {found[0].tensor} in flight"
        return Miss(Reason.WRONG_PARAMETER, detail, _evidence(kernel, found[0]))
    return Miss(detail="no thread loads a tensor by itself")


def _match(kernel: KernelView, one: InFlight) -> Match:
    evidence = _evidence(kernel, one)
    if one.count is not None:
        return Match(evidence, {"factor": one.count})
    return Match(evidence, {}, {"factor": f"{one.least} at least; more with a wider element type"})


def _evidence(kernel: KernelView, one: InFlight) -> tuple[Evidence, ...]:
    return tuple(Evidence(kernel.place(load), f"load of {one.tensor}: {one.how}") for load in one.loads[:4])


ROW = """
@triton.jit
def row_sum(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    BODY
    tl.store(Y + row, tl.sum(total))

def run(X):
    Y = torch.empty((X.shape[0],), dtype=torch.float32)
    row_sum[(X.shape[0],)](X, Y, X.shape[1], BLOCK=SIZE, num_warps=4)
"""
STATIC = """for at in tl.static_range(4):
        total += tl.load(X + row * N + at * BLOCK + i).to(tl.float32)"""
LOOP = """for at in range(0, N, BLOCK):
        total += tl.load(X + row * N + at + i).to(tl.float32)"""
CUDA = r"""
__global__ void row_sum(const float4* __restrict__ x, float* y, int n) {
  float total = 0.f;
  BODY
  y[blockIdx.x * 128 + threadIdx.x] = total;
}
void run(const float4* x, float* y, int n) { row_sum<<<64, 128>>>(x, y, n); }
"""
FILLED = """float4 v[4];
  for (int at = threadIdx.x; at < n; at += 4 * 128) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) v[i] = x[blockIdx.x * n + at + i * 128];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) total += v[i].x + v[i].y + v[i].z + v[i].w;
  }"""
ONE = """for (int at = threadIdx.x; at < n; at += 128) {
    float4 v = x[blockIdx.x * n + at];
    total += v.x + v.y + v.z + v.w;
  }"""
IDLE = (
    ONE
    + """
#pragma unroll
  for (int i = 0; i < 4; ++i) total = total * 0.5f + i;"""
)
CHAIN = r"""
__global__ void walk(const int* next, int* y) {
  int at = threadIdx.x;
#pragma unroll
  for (int i = 0; i < 4; ++i) at = next[at];
  y[threadIdx.x] = at;
}
void run(const int* next, int* y) { walk<<<1, 128>>>(next, y); }
"""

EXAMPLES = (
    Example(
        "unrolled at compile time",
        "triton",
        ROW.replace("BODY", STATIC).replace("SIZE", "128"),
        Status.PRESENT,
        {"factor": 4},
    ),
    Example("wide tile", "triton", ROW.replace("BODY", LOOP).replace("SIZE", "8192"), Status.PRESENT),
    Example(
        "one element a thread",
        "triton",
        ROW.replace("BODY", LOOP).replace("SIZE", "128"),
        Status.ABSENT,
        trap="parameter of size one: the tile has no more elements than threads",
    ),
    Example(
        "element type not known",
        "triton",
        ROW.replace("BODY", LOOP).replace("SIZE", "1024"),
        Status.UNKNOWN,
        trap="eight elements are one load or two, by their type",
    ),
    Example(
        "register array", "cuda", CUDA.replace("BODY", FILLED.replace("COUNT", "4")), Status.PRESENT, {"factor": 4}
    ),
    Example(
        "loads in a row",
        "cuda",
        CUDA.replace(
            "BODY",
            "float4 a = x[threadIdx.x], b = x[threadIdx.x + 128];\n  total = a.x + a.y + b.x + b.y;",
        ),
        Status.PRESENT,
        {"factor": 2},
    ),
    Example(
        "array of one",
        "cuda",
        CUDA.replace("BODY", FILLED.replace("COUNT", "1")),
        Status.ABSENT,
        trap="parameter of size one",
    ),
    Example("one load at a time", "cuda", CUDA.replace("BODY", ONE), Status.ABSENT, trap="a loop left to the compiler"),
    Example(
        "unrolled loop without loads", "cuda", CUDA.replace("BODY", IDLE), Status.ABSENT, trap="loop without loads"
    ),
    Example("chain of loads", "cuda", CHAIN, Status.ABSENT, trap="look-alike: each load needs the one before it"),
)
