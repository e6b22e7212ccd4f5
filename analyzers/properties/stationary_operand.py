"""Stationary operand: a tile is fetched once, before a loop, and stays in registers or shared memory while other
operands stream past it: a query tile under keys, weights under rows. A state that a loop carries, and multiplies with
what it streams, stays in the same way. Fetching the tile again in each iteration, even from the same place, is not
staying.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.known import computes_all_results
from d2k.analyzers.patterns.loops import fetch_moves, walked
from d2k.analyzers.patterns.stationary import Held, State, held, states
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Status


def detect(kernel: KernelView) -> Detection:
    matches: dict[str, Match] = {}
    for one in held(kernel):
        name = kernel.pointer(flow(kernel).source_address(one.fetch))
        matches.setdefault(name or f"%{one.fetch}", _kept(kernel, one, name))
    for state in states(kernel):
        name = _state_name(kernel, state)
        matches.setdefault(name, _carried(kernel, state, name))
    return tuple(matches.values()) or _miss(kernel)


def _kept(kernel: KernelView, one: Held, name: str | None) -> Match:
    evidence = (
        Evidence(kernel.place(one.fetch), f"{name or 'a tile'} is fetched before the loop"),
        Evidence(kernel.place(one.use), "meets what the loop streams"),
    )
    if name is None:
        return Match(evidence, {}, {"operand": "the address is derived from no single argument"})
    return Match(evidence, {"operand": name})


def _state_name(kernel: KernelView, state: State) -> str:
    """The tensor that the state starts from, or the word itself."""
    names = [kernel.pointer(flow(kernel).source_address(fetch)) for fetch in state.fetches]
    return next((name for name in names if name is not None), "state")


def _carried(kernel: KernelView, state: State, name: str) -> Match:
    evidence = (
        Evidence(kernel.loop(state.loop).place, "the loop carries the state"),
        Evidence(kernel.place(state.use), "the state meets what the loop streams"),
    )
    return Match(evidence, {"operand": name})


def _miss(kernel: KernelView) -> Miss:
    data = flow(kernel)
    for loop in range(len(kernel.body.loops)):
        if not walked(kernel, loop):
            continue
        for fetch in kernel.values(Kind.LOAD, Kind.COPY):
            op = kernel.op(fetch)
            if op.loop != NONE and loop == op.loop and data.is_fetch(fetch) and not fetch_moves(kernel, fetch, loop):
                name = kernel.pointer(data.source_address(fetch)) or "a tile"
                place = Evidence(kernel.place(fetch), f"fetches {name} again in each iteration")
                return Miss(detail="what could stay is fetched again in each iteration", evidence=(place,))
    return Miss(detail="no loop uses a tile that was fetched before it", certain=computes_all_results(kernel))


TRITON = """
@triton.jit
def scores(Q, K, O, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    BEFORE
    top = tl.full((BM,), -1e30, tl.float32)
    for start in range(0, S, BN):
        keys = start + tl.arange(0, BN)
        INSIDE
        k = tl.load(K + keys[:, None] * D + dims[None, :])
        top = tl.maximum(top, tl.max(tl.dot(q, tl.trans(k)), 1))
    tl.store(O + rows, top)

def run(Q, K, O):
    scores[(Q.shape[0] // 128,)](Q, K, O, K.shape[0], D=64, BM=128, BN=32)
"""
LOAD = "q = tl.load(Q + rows[:, None] * D + dims[None, :])"

NORM = """
@triton.jit
def norm(X, W, Y, rows, N, rows_each, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    ok = columns < N
    BEFORE
    first = tl.program_id(0) * rows_each
    for row in range(first, min(first + rows_each, rows)):
        INSIDE
        x = tl.load(X + row * N + columns, mask=ok, other=0.0)
        y = x * tl.rsqrt(tl.sum(x * x) / N + 1e-6) * w
        tl.store(Y + row * N + columns, y, mask=ok)

def run(X, W, Y):
    rows, N = X.shape
    norm[(128,)](X, W, Y, rows, N, triton.cdiv(rows, 128), BLOCK=triton.next_power_of_2(N))
"""
WEIGHT = "w = tl.load(W + columns, mask=ok, other=0.0)"

STATE = """
@triton.jit
def recur(Q, K, V, H0, O, T, D: tl.constexpr, BT: tl.constexpr):
    dims = tl.arange(0, D)
    state = tl.load(H0 + dims[:, None] * D + dims[None, :]).to(tl.float32)
    for start in range(0, T, BT):
        steps = start + tl.arange(0, BT)
        place = steps[:, None] * D + dims[None, :]
        q, k, v = tl.load(Q + place), tl.load(K + place), tl.load(V + place)
        tl.store(O + place, OUT)
        state += tl.dot(tl.trans(k), v)

def run(Q, K, V, H0, O):
    recur[(1,)](Q, K, V, H0, O, Q.shape[0], D=64, BT=64)
"""

CUDA = r"""
__global__ void matvec(const float* W, const float* x, float* y, int n, int k) {
  extern __shared__ float kept[];
  STAGE
  __syncthreads();
  for (int row = blockIdx.x; row < n; row += gridDim.x) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < k; i += 256) sum += W[row * k + i] * OPERAND;
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0) atomicAdd(&y[row], sum);
  }
}
void run(const float* W, const float* x, float* y, int n, int k) {
  matvec<<<132, 256, k * sizeof(float)>>>(W, x, y, n, k);
}
"""
STAGE = "for (int i = threadIdx.x; i < k; i += 256) kept[i] = x[i];"

FILTER = r"""
__global__ void filter(const float* x, const float* w, float* y, int channels, int steps) {
  const int c = blockIdx.x * 128 + threadIdx.x;
  BEFORE
  for (int t = 1; t < steps; ++t) {
    INSIDE
    y[t * channels + c] = w0 * x[(t - 1) * channels + c] + w1 * x[t * channels + c];
  }
}
void run(const float* x, const float* w, float* y, int channels, int steps) {
  filter<<<channels / 128, 128>>>(x, w, y, channels, steps);
}
"""
TAPS = "const float w0 = w[2 * c], w1 = w[2 * c + 1];"


def _at(code: str, line: str, before: bool) -> str:
    empty = "" if "__global__" in code else "pass"
    return code.replace("BEFORE", line if before else empty).replace("INSIDE", empty if before else line)


EXAMPLES = (
    Example("query tile", "triton", _at(TRITON, LOAD, True), Status.PRESENT, {"operand": "Q"}),
    Example("weights under rows", "triton", _at(NORM, WEIGHT, True), Status.PRESENT, {"operand": "W"}),
    Example("carried state", "triton", STATE.replace("OUT", "tl.dot(q, state)"), Status.PRESENT, {"operand": "H0"}),
    Example(
        "query fetched for each block of keys",
        "triton",
        _at(TRITON, LOAD, False),
        Status.ABSENT,
        trap="fetched again in each iteration",
    ),
    Example(
        "weights fetched for each row",
        "triton",
        _at(NORM, WEIGHT, False),
        Status.ABSENT,
        trap="fetched again in each iteration",
    ),
    Example(
        "a sum that starts from memory",
        "triton",
        STATE.replace("OUT", "q"),
        Status.ABSENT,
        trap="look-alike: a sum that no product of the loop uses is no operand",
    ),
    Example(
        "vector in shared memory",
        "cuda",
        CUDA.replace("STAGE", STAGE).replace("OPERAND", "kept[i]"),
        Status.PRESENT,
        {"operand": "x"},
    ),
    Example("taps in registers", "cuda", _at(FILTER, TAPS, True), Status.PRESENT, {"operand": "w"}),
    Example(
        "vector read from global memory",
        "cuda",
        CUDA.replace("STAGE", STAGE).replace("OPERAND", "x[i]"),
        Status.ABSENT,
        trap="declared but unused: the staged copy is not read",
    ),
    Example(
        "taps fetched for each step",
        "cuda",
        _at(FILTER, TAPS, False),
        Status.ABSENT,
        trap="fetched again in each iteration",
    ),
)
