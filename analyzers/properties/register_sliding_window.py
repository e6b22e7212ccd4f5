"""Sliding window in registers: a loop that streams along an axis keeps the last few values or planes and hands each on
to the next iteration, so that every one is fetched once and used several times.

A value that is only fetched an iteration ahead, to be used once, is a prefetch and no window.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.loops import trip_count
from d2k.analyzers.patterns.windows import Window, windows
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(windows(kernel))
    sliding = [one for one in found if one.uses >= 2 and one.depth != 0 and _streams(kernel, one)]
    if sliding:
        return (_match(kernel, max(sliding, key=lambda one: one.depth or 0)),)
    if found:
        one = found[0]
        once = trip_count(kernel, one.loop) in (0, 1)
        detail = "the loop runs once" if once else "what the loop hands on is used in one iteration only: a prefetch"
        return Miss(Reason.NOT_LOAD_BEARING, detail, (Evidence(kernel.place(one.shift), "handed on"),))
    return Miss(detail="no loop hands fetched values on")


def _streams(kernel: KernelView, one: Window) -> bool:
    return trip_count(kernel, one.loop) not in (0, 1)


def _match(kernel: KernelView, one: Window) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if one.depth is None:
        undecided["depth"] = "the length of the window is not known here"
    else:
        attributes["depth"] = one.depth
    evidence = (
        Evidence(kernel.place(one.fetch), "fetched once"),
        Evidence(kernel.place(one.shift), f"kept for {one.depth or 'several'} more iterations"),
    )
    return Match(evidence, attributes, undecided)


TRITON = """
@triton.jit
def conv(X, W, Y, T, C, BC: tl.constexpr):
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    w0 = tl.load(W + c * 4)
    w1 = tl.load(W + c * 4 + 1)
    w2 = tl.load(W + c * 4 + 2)
    w3 = tl.load(W + c * 4 + 3)
    x0 = tl.zeros((BC,), tl.float32)
    x1 = tl.zeros((BC,), tl.float32)
    x2 = tl.zeros((BC,), tl.float32)
    for t in range(START, STOP):
BODY

def run(X, W, Y):
    T, C = X.shape
    conv[(C // 128,)](X, W, Y, T, C, BC=128)
"""
SHIFTED = """
        x3 = tl.load(X + t * C + c).to(tl.float32)
        tl.store(Y + t * C + c, x0 * w0 + x1 * w1 + x2 * w2 + x3 * w3)
        x0 = x1
        x1 = x2
        x2 = x3
"""
RELOADED = """
        x0 = tl.load(X + (t - 3) * C + c)
        x1 = tl.load(X + (t - 2) * C + c)
        x2 = tl.load(X + (t - 1) * C + c)
        x3 = tl.load(X + t * C + c)
        tl.store(Y + t * C + c, x0 * w0 + x1 * w1 + x2 * w2 + x3 * w3)
"""
AHEAD = """
        tl.store(Y + t * C + c, x0 * w0 + w1 + w2 + w3)
        x0 = tl.load(X + (t + 1) * C + c).to(tl.float32)
"""
PREVIOUS = """
        now = tl.load(X + t * C + c).to(tl.float32)
        tl.store(Y + t * C + c, x0 * w0 + now * w1 + w2 + w3)
        x0 = now
"""
EVERY = TRITON.replace("START", "0").replace("STOP", "T")
CUDA = """
__global__ void conv(const float* x, const float* w, float* y, int t, int c) {
  int channel = blockIdx.x * 128 + threadIdx.x;
  float window[4] = {0.f, 0.f, 0.f, 0.f}, k[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) k[i] = w[channel * 4 + i];
  for (int s = 0; s < t; ++s) {
    float sum = 0.f;
BODY
    y[s * c + channel] = sum;
  }
}
void run(const float* x, const float* w, float* y, int t, int c) { conv<<<c / 128, 128>>>(x, w, y, t, c); }
"""
ARRAY = """
#pragma unroll
    for (int i = 0; i < 3; ++i) window[i] = window[i + 1];
    window[3] = x[s * c + channel];
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += window[i] * k[i];
"""
FRESH = """
#pragma unroll
    for (int i = 0; i < 4; ++i) window[i] = x[(s + i) * c + channel];
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += window[i] * k[i];
"""
PLANES = """
__global__ void wave(const float* u, float* v, int nx, int ny, int nz) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  size_t at = (size_t)y * nx + x, plane = (size_t)nx * ny;
  float below = u[at], here = u[at + plane];
  for (int z = 1; z < nz - 1; ++z) {
    float above = u[at + (size_t)(z + 1) * plane];
    v[at + (size_t)z * plane] = below + above - 2.f * here;
    below = here;
    here = above;
  }
}
void run(const float* u, float* v, int nx, int ny, int nz) {
  wave<<<dim3(nx / 32, ny / 8), dim3(32, 8)>>>(u, v, nx, ny, nz);
}
"""
ONE_PLANE = PLANES.replace("below + above - 2.f * here", "2.f * below")

EXAMPLES = (
    Example("renamed variables", "triton", EVERY.replace("BODY", SHIFTED), Status.PRESENT, {"depth": 3}),
    Example("the previous value", "triton", EVERY.replace("BODY", PREVIOUS), Status.PRESENT, {"depth": 1}),
    Example(
        "loaded again",
        "triton",
        EVERY.replace("BODY", RELOADED),
        Status.ABSENT,
        trap="look-alike: neighbours that every iteration loads again",
    ),
    Example(
        "loaded ahead",
        "triton",
        EVERY.replace("BODY", AHEAD),
        Status.ABSENT,
        trap="look-alike: a value fetched ahead is used once",
    ),
    Example(
        "loop of one iteration",
        "triton",
        TRITON.replace("START", "0").replace("STOP", "1").replace("BODY", SHIFTED),
        Status.ABSENT,
        trap="parameter of size one",
    ),
    Example("shifted array", "cuda", CUDA.replace("BODY", ARRAY), Status.PRESENT, {"depth": 3}),
    Example("planes of a stencil", "cuda", PLANES, Status.PRESENT, {"depth": 2}),
    Example(
        "array filled anew",
        "cuda",
        CUDA.replace("BODY", FRESH),
        Status.ABSENT,
        trap="look-alike: an array of registers that nothing shifts",
    ),
    Example(
        "planes kept and used once",
        "cuda",
        ONE_PLANE,
        Status.ABSENT,
        trap="handed on, but each plane serves one iteration",
    ),
)
