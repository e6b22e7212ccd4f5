"""Lanes along the contiguous axis: neighbouring lanes own neighbouring elements, whichever axis is reduced or scanned,
for at least half of what is moved. Elements that lie a stride apart, and a chunk of neighbours for each thread that it
walks alone, are not.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accesses import HALF
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.analyzers.patterns.lanes import Lanes, axis, lanes
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = [one for one in lanes(kernel) if one.how != "uniform"]
    total = sum(one.access.elements for one in found)
    along = [one for one in found if one.how == "contiguous"]
    open_ones = [one for one in found if one.how == "unknown"]
    moved = sum(one.access.elements for one in along)
    if total and moved >= HALF * total:
        return _matches(kernel, along)
    if open_ones and moved + sum(one.access.elements for one in open_ones) >= HALF * total:
        place = _place(kernel, open_ones[0], "the strides are arguments")
        return Undecided("no launch in this file says which stride is one", (place,))
    if not found and kernel.values(Kind.CALL) and not moves_all_memory(kernel):
        return Undecided("memory is moved by calls into code that was not given")
    if not found:
        return Miss(detail="neighbouring lanes move nothing of their own")
    if total <= 0:
        return Miss(detail="the tiles that lanes move are empty")
    apart = next(one for one in found if one.how != "contiguous")
    step = f"{apart.step} elements" if apart.step is not None else "a row, or places that are read from memory,"
    text = f"neighbouring lanes are {step} apart"
    reason = Reason.NOT_LOAD_BEARING if along else Reason.NO_TRACE
    return Miss(reason, text, (_place(kernel, apart, text),))


def _matches(kernel: KernelView, along: list[Lanes]) -> tuple[Match, ...]:
    by_axis: dict[str | None, list[Lanes]] = {}
    for one in along:
        by_axis.setdefault(axis(kernel, one), []).append(one)
    matches = []
    for name, group in by_axis.items():
        evidence = tuple(
            _place(
                kernel, one, f"{one.access.direction} of {one.access.tensor or 'a tensor'} along its contiguous axis"
            )
            for one in group[:4]
        )
        if name is None:
            matches.append(Match(evidence, {}, {"axis": "the address is derived from no single argument"}))
        else:
            matches.append(Match(evidence, {"axis": name}))
    return tuple(matches)


def _words(one: Lanes) -> str:
    return f"{one.access.direction} of {one.access.tensor or 'a tensor'} along its contiguous axis"


def _place(kernel: KernelView, one: Lanes, text: str) -> Evidence:
    return Evidence(kernel.place(one.access.value), text)


TRITON = """
@triton.jit
def decay(X, Y, T, C, BLOCK: tl.constexpr):
    INDEX
    state = tl.zeros((BLOCK,), tl.float32)
    for t in range(0, STEPS):
        place = PLACE
        state = 0.5 * state + tl.load(X + place, mask=i < LIMIT, other=0.0)
        tl.store(Y + place, state, mask=i < LIMIT)

def run(X, Y):
    T, C = X.shape
    decay[(triton.cdiv(C, 256),)](X, Y, T, C, BLOCK=256)
"""


def _triton(place: str, steps: str, limit: str) -> str:
    code = TRITON.replace("INDEX", "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
    return code.replace("PLACE", place).replace("STEPS", steps).replace("LIMIT", limit)


STRIDES = """
@triton.jit
def double(X, Y, M, N, stride_m, stride_n, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    place = rows[:, None] * stride_m + columns[None, :] * stride_n
    tl.store(Y + place, 2 * tl.load(X + place))
"""
LAUNCHED = """
def run(X, Y):
    M, N = X.shape
    double[(M // 32, N // 32)](X, Y, M, N, X.stride(0), X.stride(1), BM=32, BN=32)
"""

CUDA = r"""
__global__ void scale(const float* x, float* y, int rows, int n) {
  BODY
}
void run(const float* x, float* y, int rows, int n) { scale<<<(rows + 255) / 256, 256>>>(x, y, rows, n); }
"""
ALONG = "for (int i = threadIdx.x; i < n; i += 256) y[blockIdx.x * n + i] = 2.f * x[blockIdx.x * n + i];"
WIDE = """const float4* from = reinterpret_cast<const float4*>(x);
  const int i = blockIdx.x * 256 + threadIdx.x;
  const float4 v = from[i];
  reinterpret_cast<float4*>(y)[i] = make_float4(2.f * v.x, 2.f * v.y, 2.f * v.z, 2.f * v.w);"""
ROW_EACH = """const int row = blockIdx.x * 256 + threadIdx.x;
  for (int i = 0; i < n; ++i) y[row * n + i] = 2.f * x[row * n + i];"""
CHUNK_EACH = """const int first = (blockIdx.x * 256 + threadIdx.x) * 8;
  for (int i = 0; i < 8; ++i) y[first + i] = 2.f * x[first + i];"""

EXAMPLES = (
    Example("channels, scanned along time", "triton", _triton("t * C + i", "T", "C"), Status.PRESENT, {"axis": "C"}),
    Example("strides of the launch", "triton", STRIDES + LAUNCHED, Status.PRESENT),
    Example(
        "rows a stride apart",
        "triton",
        _triton("i * C + t", "C", "T"),
        Status.ABSENT,
        trap="the range runs across the contiguous axis",
    ),
    Example(
        "strides that nobody names",
        "triton",
        STRIDES,
        Status.UNKNOWN,
        trap="no launch says which stride is one",
    ),
    Example("lanes along a row", "cuda", CUDA.replace("BODY", ALONG), Status.PRESENT, {"axis": "n"}),
    Example("four neighbours for each lane", "cuda", CUDA.replace("BODY", WIDE), Status.PRESENT),
    Example(
        "a row for each lane",
        "cuda",
        CUDA.replace("BODY", ROW_EACH),
        Status.ABSENT,
        trap="neighbouring lanes are a row apart",
    ),
    Example(
        "a chunk for each lane",
        "cuda",
        CUDA.replace("BODY", CHUNK_EACH),
        Status.ABSENT,
        trap="look-alike: neighbours that one lane walks alone",
    ),
)
