"""Decays from differences of log sums: the decay between two positions is exp(c_i - c_j), where c is a running sum of
log decays (or an array of such sums), so that no product of many factors under- or overflows.

A softmax also subtracts inside an exponential, but a maximum or a log-sum-exp, not the same sum at another position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.addresses import memory_of
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import difference, exponentials
from d2k.analyzers.patterns.softmax import is_greater_of
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import FoundValue, Status

WORDS = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}


@dataclass(frozen=True, slots=True)
class _Decay:
    exponential: int
    plus: int
    minus: int
    sums: tuple[int, ...]
    """The scans that both terms come from; () if the sums are read from memory."""


def detect(kernel: KernelView) -> Detection:
    found = tuple(_decays(kernel))
    if found:
        return (_match(kernel, found),)
    exps = exponentials(kernel)
    if not exps:
        return Miss(detail="no exponential is taken")
    return Miss(
        detail="no exponential of a difference of one running sum at two positions",
        evidence=(Evidence(kernel.place(exps[0]), "exponential"),),
    )


def _decays(kernel: KernelView) -> Iterator[_Decay]:
    data = flow(kernel)
    for value in exponentials(kernel):
        terms = difference(kernel, kernel.op(value).args[0])
        for plus in terms.plus:
            for minus in terms.minus:
                a = frozenset(data.back((plus,), _is_sum))
                b = frozenset(data.back((minus,), _is_sum))
                scans = tuple(at for at in sorted(a & b) if kernel.op(at).kind is Kind.SCAN)
                if any(is_greater_of(kernel, at) for at in b):
                    continue
                if (scans or _one_array(kernel, a, b)) and (plus != minus or _is_outer(kernel, value, plus)):
                    yield _Decay(value, plus, minus, scans)


def _is_outer(kernel: KernelView, exponential: int, term: int) -> bool:
    """A vector less itself along another axis: every pair of positions."""
    whole, own = kernel.op(exponential).shape, kernel.op(term).shape
    return whole is not None and own is not None and len(whole) > len(own) > 0


def _is_sum(op: Op) -> bool:
    """From a term to the running sum: conversions, choices of an element, sums of parts; no maximum."""
    return (
        op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.LOAD)
        or (op.kind is Kind.ELEMENTWISE and op.name in ("where", "mul", "add"))
        or (op.kind is Kind.REDUCE and op.name == "sum")
    )


def _one_array(kernel: KernelView, left: frozenset[int], right: frozenset[int]) -> bool:
    """Both terms are elements of the same array in memory."""
    data = flow(kernel)
    arrays = [{memory_of(kernel, at) for at in side if data.is_fetch(at)} for side in (left, right)]
    return bool(arrays[0] & arrays[1] - {()})


def _match(kernel: KernelView, found: tuple[_Decay, ...]) -> Match:
    first = found[0]
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    dtype = _dtype(kernel, first)
    if dtype is None:
        undecided["dtype"] = "the element type of the running sum is not known here"
    else:
        attributes["dtype"] = dtype
    evidence = [Evidence(kernel.place(first.exponential), "exp(c_i - c_j)")]
    evidence += [Evidence(kernel.place(scan), "running sum c") for scan in first.sums[:1]]
    return Match(tuple(evidence), attributes, undecided)


def _dtype(kernel: KernelView, one: _Decay) -> str | None:
    """The type that the difference is taken in."""
    for value in (*one.sums, one.plus, kernel.op(one.exponential).args[0]):
        word = WORDS.get(kernel.op(value).dtype or "")
        if word is not None:
            return word
    return None


_PAIRS = """
@triton.jit
def decay_matrix(G, A, T: tl.constexpr):
    at = tl.arange(0, T)
    c = tl.cumsum(tl.load(G + tl.program_id(0) * T + at).to(tl.float32), 0)
    decay = tl.where(at[:, None] >= at[None, :], tl.exp(c[:, None] - c[None, :]), 0.0)
    tl.store(A + (tl.program_id(0) * T + at[:, None]) * T + at[None, :], decay)


def run(g, a):
    decay_matrix[(g.numel() // 64,)](g, a, T=64)
"""

_TO_END = """
@triton.jit
def weigh_keys(C, K, Out, T: tl.constexpr, D: tl.constexpr):
    first = tl.program_id(0) * T
    at = first + tl.arange(0, T)
    dims = tl.arange(0, D)
    last = tl.load(C + first + T - 1)
    weight = tl.exp2(last - tl.load(C + at))
    k = tl.load(K + at[:, None] * D + dims[None, :])
    tl.store(Out + at[:, None] * D + dims[None, :], k * weight[:, None])


def run(c, k, out):
    weigh_keys[(c.numel() // 64,)](c, k, out, T=64, D=128)
"""

_QUOTIENT = _PAIRS.replace("tl.exp(c[:, None] - c[None, :])", "tl.exp(c)[:, None] / tl.exp(c)[None, :]")

_SOFTMAX = """
@triton.jit
def softmax(X, Y, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + tl.program_id(0) * N + cols, mask=cols < N, other=-float("inf"))
    p = tl.exp(x - tl.max(x))
    tl.store(Y + tl.program_id(0) * N + cols, p / tl.sum(p), mask=cols < N)


def run(x, y):
    softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_CUDA = """
__global__ void decay_matrix(const float* g, float* a) {
    __shared__ float c[64];
    if (threadIdx.x == 0) {
        float sum = 0.f;
        for (int i = 0; i < 64; ++i) { sum += g[blockIdx.x * 64 + i]; c[i] = sum; }
    }
    __syncthreads();
    for (int j = 0; j <= threadIdx.x; ++j)
        a[(blockIdx.x * 64 + threadIdx.x) * 64 + j] = __expf(c[threadIdx.x] - c[j]);
}

void run(const float* g, float* a, int chunks) { decay_matrix<<<chunks, 64>>>(g, a); }
"""

EXAMPLES = (
    Example("pairs in a chunk", "triton", _PAIRS, Status.PRESENT, {"dtype": "fp32"}),
    Example("to the end of the chunk", "triton", _TO_END, Status.PRESENT),
    Example("quotient of exponentials", "triton", _QUOTIENT, Status.ABSENT, trap="ratio of two exponentials"),
    Example("softmax", "triton", _SOFTMAX, Status.ABSENT, trap="look-alike: a maximum is subtracted"),
    Example("pairs in a chunk", "cuda", _CUDA, Status.PRESENT),
    Example(
        "quotient of exponentials",
        "cuda",
        _CUDA.replace("__expf(c[threadIdx.x] - c[j])", "__expf(c[threadIdx.x]) / __expf(c[j])"),
        Status.ABSENT,
        trap="ratio of two exponentials",
    ),
)
