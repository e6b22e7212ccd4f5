"""Single-pass statistics: what a transformation must know of its data (moments, maxima, dot products) is
gathered while the
same data is on chip; the source fetches no element a second time to transform it.

A reduction whose result is all that is wanted transforms nothing and needs no second pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.addresses import memory_of
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import walked, where
from d2k.analyzers.patterns.normalise import Transformed, transformed
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.skipping import tiled_offsets
from d2k.analyzers.patterns.softmax import RunningSoftmax, running_softmaxes
from d2k.analyzers.patterns.statistics import statistics
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import FoundValue, Status

GROUP = 256
"""Elements that share a scale at most; longer blocks that lie one after the other are rows."""

WORDS = {"sum": "sum", "sumsq": "sumsq", "dot": "dot", "max": "max", "amax": "amax", "expsum": "sum"}


def detect(kernel: KernelView) -> Detection:
    running = tuple(_online(kernel))
    if running:
        return running
    found = tuple(_needed(transformed(kernel)))
    again = [one for one in found if one.again]
    if again:
        one = again[0]
        name = kernel.pointer(flow(kernel).source_address(one.fetch)) or "the data"
        return Miss(
            detail=f"{name} is fetched again to be transformed by its own statistics",
            evidence=(
                Evidence(kernel.place(one.statistic.value), "statistic"),
                Evidence(kernel.place(one.fetch), "second fetch of the same data"),
            ),
        )
    if found:
        return (_match(kernel, found),)
    if statistics(kernel):
        place = kernel.place(statistics(kernel)[0].value)
        return Miss(detail="no data is transformed by its own statistics", evidence=(Evidence(place, "reduction"),))
    return Miss(detail="no statistic is taken")


def _needed(pairs: Iterable[Transformed]) -> Iterable[Transformed]:
    """Statistics that normalise, centre, scale or correct the data; a dot product corrects only if it is subtracted."""
    kept = [one for one in pairs if one.value_name in ("mul", "div", "sub", "fma", "add")]
    names_of: dict[int, set[str]] = {}
    for one in kept:
        names_of.setdefault(one.statistic.value, set()).add(one.value_name)
    for one in kept:
        names = names_of[one.statistic.value]
        if one.statistic.kinds == {"dot"} and not ("sub" in names or {"mul", "add"} <= names):
            continue
        if names == {"add"}:
            continue
        yield one


def _match(kernel: KernelView, found: tuple[Transformed, ...]) -> Match:
    words = {WORDS[kind] for one in found for kind in one.statistic.kinds}
    attributes: dict[str, FoundValue] = {"stat": tuple(sorted(words))}
    undecided: dict[str, str] = {}
    attributes["method"] = _method(kernel, found)
    first = found[0]
    evidence = (
        Evidence(kernel.place(first.fetch), "the only fetch of the data"),
        Evidence(kernel.place(first.statistic.value), f"{', '.join(sorted(words))} of it"),
        Evidence(kernel.place(first.value), "transforms the same data"),
    )
    return Match(evidence, attributes, undecided)


def _method(kernel: KernelView, found: Iterable[Transformed]) -> str:
    """online: a loop carries the statistic while it transforms; blockwise: each group has its own; else row_cached."""
    methods = {_one_method(kernel, one) for one in found}
    return next(word for word in ("online", "row_cached", "blockwise") if word in methods)


def _one_method(kernel: KernelView, one: Transformed) -> str:
    op = kernel.op(one.statistic.value)
    if op.kind is Kind.SCAN or (op.kind is Kind.ELEMENTWISE and kernel.op(one.value).loop == op.loop != -1):
        return "online"
    return "blockwise" if _is_group(kernel, one) else "row_cached"


def _is_group(kernel: KernelView, one: Transformed) -> bool:
    """The reduction leaves several groups of one row, or covers neighbours of the next block's elements."""
    op = kernel.op(one.statistic.value)
    if op.kind is not Kind.REDUCE or not op.args:
        return False
    axis = op.attrs.get("axis")
    kinds = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE)
    behind = kernel.walk(op.args[0], lambda inner: inner.kind in kinds)
    if axis is not None and any(kernel.op(at).kind is Kind.SHAPE and kernel.op(at).name == "reshape" for at in behind):
        return True
    return any(_counts_groups(kernel, place, op) for place in where(kernel, one.fetch) if place != NONE)


def _counts_groups(kernel: KernelView, place: int, reduction: Op) -> bool:
    """The reduced elements lie beside those of the next block, as in `group * 128 + arange(128)`, and are few."""
    shape = kernel.op(reduction.args[0]).shape
    axis = reduction.attrs.get("axis")
    if shape is None or not shape:
        return False
    reduced = shape if not isinstance(axis, int) else (shape[axis],)
    numbers = numbering(kernel)
    extents = [numbers.index(dim) for dim in reduced]
    small = all((kernel.fold_int(dim) or 0) <= GROUP for dim in reduced)
    return small and any(extent in extents for _, extent in tiled_offsets(kernel, place))


def _online(kernel: KernelView) -> Iterable[Match]:
    """A running softmax, if what it weighs or sums is not fetched a second time."""
    for one in running_softmaxes(kernel):
        if not one.factors or not (one.accumulators or one.sums):
            continue
        if not one.accumulators and _is_walked_again(kernel, one):
            continue
        stat: tuple[str, ...] = ("max", "sum") if one.sums else ("max",)
        rescaled = (*one.accumulators, *one.sums)[0].product
        evidence = (
            Evidence(kernel.place(one.maximum.update), "running maximum"),
            Evidence(kernel.place(rescaled), "results so far are rescaled, no data is fetched again"),
        )
        yield Match(evidence, {"stat": stat, "method": "online"})
        return


def _is_walked_again(kernel: KernelView, one: RunningSoftmax) -> bool:
    """Another loop fetches tiles of the arrays that the running softmax has walked."""
    inside = walked(kernel, one.loop)
    arrays = {memory_of(kernel, fetch) for fetch in inside}
    data = flow(kernel)
    return any(
        data.is_fetch(fetch)
        and fetch not in inside
        and memory_of(kernel, fetch) in arrays
        and kernel.op(fetch).loop != NONE
        for fetch in kernel.values(Kind.LOAD, Kind.COPY)
    )


_ROW = """
@triton.jit
def norm(X, W, Y, H, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * H + cols, mask=cols < H, other=0.0).to(tl.float32)
    mean = tl.sum(x) / H
    centred = tl.where(cols < H, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred) / H + eps)
    tl.store(Y + row * H + cols, centred * rstd * tl.load(W + cols, mask=cols < H), mask=cols < H)


def run(x, w, y):
    norm[(x.shape[0],)](x, w, y, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_GROUPS = """
@triton.jit
def quantise(X, Q, S):
    group = tl.program_id(0)
    at = group * 128 + tl.arange(0, 128)
    x = tl.load(X + at).to(tl.float32)
    scale = tl.max(tl.abs(x)) / 448.0
    tl.store(S + group, scale)
    tl.store(Q + at, (x / scale).to(tl.float8e4nv))


def run(x, q, s):
    quantise[(x.numel() // 128,)](x, q, s)
"""

_TWICE = """
@triton.jit
def norm(X, W, Y, H, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, H, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * H + cols, mask=cols < H, other=0.0).to(tl.float32)
        total += x * x
    rstd = tl.rsqrt(tl.sum(total) / H + eps)
    for start in range(0, H, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * H + cols, mask=cols < H, other=0.0).to(tl.float32)
        tl.store(Y + row * H + cols, x * rstd * tl.load(W + cols, mask=cols < H), mask=cols < H)


def run(x, w, y):
    norm[(x.shape[0],)](x, w, y, x.shape[1], 1e-6, BLOCK=1024)
"""

_ONLY_SUM = """
@triton.jit
def sum_of_squares(X, Y, H, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * H + cols, mask=cols < H, other=0.0).to(tl.float32)
    tl.store(Y + row, tl.sum(x * x))


def run(x, y):
    sum_of_squares[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096)
"""

_CUDA = """
template <int PER_THREAD>
__global__ void norm(const float* x, const float* w, float* y, int H, float eps) {
    __shared__ float sums[32];
    const float* row = x + (size_t)blockIdx.x * H;
    float kept[PER_THREAD];
    float sum = 0.f;
    #pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
        kept[i] = row[i * 256 + threadIdx.x];
        sum += kept[i] * kept[i];
    }
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float total = 0.f;
    for (int i = 0; i < 8; ++i) total += sums[i];
    float rstd = rsqrtf(total / H + eps);
    #pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
        int c = i * 256 + threadIdx.x;
        y[(size_t)blockIdx.x * H + c] = kept[i] * rstd * w[c];
    }
}

void run(const float* x, const float* w, float* y, int T) { norm<16><<<T, 256>>>(x, w, y, 4096, 1e-6f); }
"""

_CUDA_TWICE = _CUDA.replace("kept[i] * rstd * w[c]", "row[c] * rstd * w[c]")

EXAMPLES = (
    Example("row kept", "triton", _ROW, Status.PRESENT, {"stat": ("sum", "sumsq"), "method": "row_cached"}),
    Example("scale for each group", "triton", _GROUPS, Status.PRESENT, {"stat": ("amax",), "method": "blockwise"}),
    Example("row fetched twice", "triton", _TWICE, Status.ABSENT, trap="second pass over the same elements"),
    Example("sum alone", "triton", _ONLY_SUM, Status.ABSENT, trap="a reduction that transforms nothing"),
    Example("row kept in registers", "cuda", _CUDA, Status.PRESENT, {"stat": ("sumsq",), "method": "row_cached"}),
    Example(
        "row fetched twice", "cuda", _CUDA_TWICE, Status.ABSENT, trap="declared but unused: registers not read again"
    ),
)
