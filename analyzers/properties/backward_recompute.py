"""Recomputation in the backward pass: a kernel that makes gradients builds what the forward pass had
(probabilities from
scores and a saved log-sum-exp, normalised rows from a saved mean and deviation) again instead of reading it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.activation import derivatives, sigmoids
from d2k.analyzers.patterns.addresses import indices, memory_of
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import exponentials
from d2k.analyzers.patterns.gradients import (
    Probabilities,
    is_saved,
    jacobians,
    less_onehot,
    probabilities,
    runs_backward,
)
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.statistics import Statistic, statistics
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Status


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    word: str
    stat: str
    value: int
    text: str


def detect(kernel: KernelView) -> Detection:
    found = (*_probabilities(kernel), *_rows(kernel)) or (*_activations(kernel), *_decays(kernel))
    if not found:
        return Miss(detail="no gradient is made from forward values that are built again")
    stat = next((one.stat for one in found if one.stat != "none"), "none")
    words = tuple(sorted({one.word for one in found if one.word}))
    evidence = tuple(Evidence(kernel.place(one.value), one.text) for one in found)[:4]
    if not words:
        return (Match(evidence, {"saved_stat": stat}, {"rebuilt": "activations and decays have no word"}),)
    return (Match(evidence, {"rebuilt": words, "saved_stat": stat}),)


def _activations(kernel: KernelView) -> Iterator[_Rebuilt]:
    """The derivative of an activation, from the activation of an input: it was not saved."""
    data = flow(kernel)
    stored = frozenset(data.back(data.outputs()))
    for value, product in derivatives(kernel):
        if product in stored and data.fetches(value):
            yield _Rebuilt("", "none", value, "activation built again for its derivative")
            return


def _decays(kernel: KernelView) -> Iterator[_Rebuilt]:
    """Exponentials and sigmoids of what was fetched, in a kernel that runs for gradients alone, or in a loop that goes
    back in time over a state."""
    data = flow(kernel)
    backward = runs_backward(kernel)
    returning = frozenset(_returning(kernel)) if not backward else frozenset()
    stored = frozenset(data.back(data.outputs()))
    for value in sorted((*exponentials(kernel), *sigmoids(kernel))):
        if value not in stored or not data.fetches(value, _pointwise):
            continue
        if backward or value in returning:
            yield _Rebuilt("", "none", value, "decay or activation built again from its input")
            return


def _returning(kernel: KernelView) -> Iterator[int]:
    """What scales a carried state in a loop that goes back in time, as gradients of a recurrence do."""
    data = flow(kernel)
    for loop in kernel.body.loops:
        if loop.step == NONE or (kernel.fold_int(loop.step) or 0) >= 0:
            continue
        for carried in loop.carried:
            behind = frozenset(data.back((carried.next,), lambda op: _pointwise(op) or op.kind is Kind.MMA))
            if carried.phi in behind:
                yield from behind


def _probabilities(kernel: KernelView) -> Iterator[_Rebuilt]:
    for one in probabilities(kernel):
        if not is_saved(kernel, one.offset):
            continue
        if not one.scores:
            if _is_graded(kernel, one):
                yield _Rebuilt("probs", "lse", one.value, "exp(logit - saved log-sum-exp), less one-hot or weighted")
                return
            continue
        gradient = next(iter(jacobians(kernel, one)), None)
        if gradient is not None:
            yield _Rebuilt("probs", "lse", one.value, "exp(product - saved log-sum-exp)")
            yield _Rebuilt("probs", "lse", gradient, "p * (dp - delta)")
            return
        label = next(iter(less_onehot(kernel, one)), None)
        if label is not None:
            yield _Rebuilt("logits", "lse", one.scores[0], "logits multiplied again")
            yield _Rebuilt("probs", "lse", one.value, "exp(logit - saved log-sum-exp)")
            return


def _is_graded(kernel: KernelView, one: Probabilities) -> bool:
    """Probabilities of fetched logits become a gradient: less one-hot, or times the gradient of the row's loss."""
    if next(iter(less_onehot(kernel, one)), None) is not None:
        return True
    data = flow(kernel)
    stored = frozenset(data.back(data.outputs(), _pointwise))
    made = frozenset(data.forward((one.value,), _pointwise))
    weights = {
        kernel.strip(arg)
        for at in made & stored
        if kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name == "mul"
        for arg in kernel.op(at).args
        if arg not in made and _is_row_scalar(kernel, arg)
    }
    return bool(weights - set(data.back((one.offset,), _pointwise)))


def _rows(kernel: KernelView) -> Iterator[_Rebuilt]:
    """Gradients of a normalisation: of its input, from a dot product with the row; of its weight, summed over rows."""
    for one in statistics(kernel):
        if "dot" not in one.kinds:
            continue
        for value in _input_gradients(kernel, one):
            saved = any(_is_row_scalar(kernel, at) for at in _factors(kernel, value))
            if saved or _has_deviation(kernel, value):
                yield _Rebuilt("xhat", "mean_rstd" if saved else "none", one.value, "row times the output's gradient")
                yield _Rebuilt("xhat", "mean_rstd" if saved else "none", value, "gradient made of the normalised row")
                return
        if _is_weight_gradient(kernel, one):
            yield _Rebuilt("xhat", "mean_rstd", one.value, "normalised row times the output's gradient, over rows")
            return


def _input_gradients(kernel: KernelView, dot: Statistic) -> Iterator[int]:
    """m - (dot * x …): a sum of a term without the dot product and one with it, times the row itself."""
    data = flow(kernel)
    stored = frozenset(data.back(data.outputs()))
    with_dot = frozenset(data.forward((dot.value,), _pointwise))
    arrays = {memory_of(kernel, fetch) for fetch in dot.fetches}
    for value in kernel.values(Kind.ELEMENTWISE, name=("add", "sub", "fma")):
        op = kernel.op(value)
        sides = [arg for arg in op.args if arg in with_dot]
        others = [arg for arg in op.args if arg not in with_dot]
        if value not in stored or not sides or not others:
            continue
        row = {memory_of(kernel, at) for side in sides for at in _raw(kernel, side)} & arrays
        rest = {memory_of(kernel, at) for other in others for at in _raw(kernel, other)} & arrays
        if row and rest - row and _deviations(kernel, sides) > _deviations(kernel, others):
            yield value


def _deviations(kernel: KernelView, values: list[int]) -> int:
    """How often a row's own number is multiplied in: once more for a row that is normalised here, not read so."""
    data = flow(kernel)
    behind = data.back(values, lambda op: _pointwise(op) or (op.kind is Kind.REDUCE and op.name == "sum"))
    return sum(
        _is_row_scalar(kernel, arg) or _is_reciprocal(kernel, kernel.strip(arg))
        for at in behind
        if kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("mul", "fma")
        for arg in kernel.op(at).args[:2]
    )


def _is_reciprocal(kernel: KernelView, value: int) -> bool:
    op = kernel.op(value)
    return op.kind is Kind.ELEMENTWISE and (
        op.name in ("rsqrt", "rcp") or (op.name == "div" and kernel.fold(op.args[0]) == 1)
    )


def _raw(kernel: KernelView, value: int) -> tuple[int, ...]:
    return flow(kernel).fetches(value, _pointwise)


def _factors(kernel: KernelView, value: int) -> Iterator[int]:
    """Everything that the terms behind a value, or what is made of it, are multiplied by."""
    data = flow(kernel)
    for at in (*data.back((value,), _pointwise), *data.forward((value,), _pointwise)):
        op = kernel.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma", "div"):
            yield from op.args


def _has_deviation(kernel: KernelView, value: int) -> bool:
    """A reciprocal deviation is computed here and is part of the gradient."""
    behind = flow(kernel).back((value,), lambda op: op.kind is not Kind.MMA)
    return any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("rsqrt", "sqrt") for at in behind)


def _is_weight_gradient(kernel: KernelView, dot: Statistic) -> bool:
    """Two arrays of one extent are multiplied with a number for each row, and summed over the rows."""
    data = flow(kernel)
    streams = [fetch for fetch in dot.fetches if not _is_row_scalar(kernel, fetch)]
    if (
        len({memory_of(kernel, fetch) for fetch in streams}) < 2
        or len({indices(kernel, fetch) for fetch in streams}) != 1
    ):
        return False
    made = set(data.forward((dot.value,)))
    kept = {at for store in data.outputs() if store in made for at in indices(kernel, store)}
    scaled = {kernel.strip(at) for term in dot.terms for at in _factors(kernel, term) if _is_row_scalar(kernel, at)}
    rows = [_within(kernel, indices(kernel, at)) for at in scaled]
    return any(row and not row & kept for row in rows)


def _within(kernel: KernelView, numbers: frozenset[int]) -> frozenset[int]:
    """The indices that one block goes through: ranges and loop variables."""
    example = numbering(kernel).example
    return frozenset(one for one in numbers if kernel.op(example(one)).kind in (Kind.ARANGE, Kind.PHI))


def _pointwise(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ELEMENTWISE)


def _is_row_scalar(kernel: KernelView, value: int) -> bool:
    """Read from memory, one number for each row: it does not go along an axis that the kernel sums over."""
    inner = kernel.strip(value)
    if not flow(kernel).is_fetch(inner):
        return False
    shape = kernel.op(inner).shape
    if shape is None:
        return False
    if not shape:
        # a thread's own element is no number for a row
        return bool(kernel.op(value).shape) or not differs_within(kernel, flow(kernel).source_address(inner))
    numbers = numbering(kernel)
    summed = [numbers.index(dim) for dim in _summed_extents(kernel)]
    return len(shape) == 1 and bool(summed) and numbers.index(shape[0]) not in summed


def _summed_extents(kernel: KernelView) -> Iterator[int]:
    """Extents of the axes of tiles of rows that sums are taken along."""
    for value in kernel.values(Kind.REDUCE, name="sum"):
        axis = kernel.op(value).attrs.get("axis")
        shape = kernel.op(kernel.op(value).args[0]).shape
        if shape and len(shape) >= 2 and isinstance(axis, int) and -len(shape) <= axis < len(shape) and axis != 0:
            yield shape[axis]


_ATTENTION = """
@triton.jit
def backward(Q, K, V, DO, LSE, Delta, DK, DV, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    dims = tl.arange(0, D)
    k = tl.load(K + cols[:, None] * D + dims[None, :])
    v = tl.load(V + cols[:, None] * D + dims[None, :])
    dk = tl.zeros((BN, D), tl.float32)
    dv = tl.zeros((BN, D), tl.float32)
    for start in range(0, S, BM):
        rows = start + tl.arange(0, BM)
        q = tl.load(Q + rows[:, None] * D + dims[None, :])
        do = tl.load(DO + rows[:, None] * D + dims[None, :])
        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale - tl.load(LSE + rows)[:, None])
        dv += tl.dot(tl.trans(p).to(do.dtype), do)
        ds = p * (tl.dot(do, tl.trans(v)) - tl.load(Delta + rows)[:, None])
        dk += tl.dot(tl.trans(ds).to(q.dtype), q)
    tl.store(DK + cols[:, None] * D + dims[None, :], dk)
    tl.store(DV + cols[:, None] * D + dims[None, :], dv)


def run(q, k, v, do, lse, delta, dk, dv, scale):
    S, D = q.shape
    backward[(S // 64,)](q, k, v, do, lse, delta, dk, dv, S, scale, D=D, BM=64, BN=64)
"""

_NORM = """
@triton.jit
def norm_backward(X, W, DY, Mean, Rstd, DX, H, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    x = tl.load(X + row * H + cols, mask=mask, other=0.0).to(tl.float32)
    wdy = tl.load(DY + row * H + cols, mask=mask, other=0.0) * tl.load(W + cols, mask=mask, other=0.0)
    rstd = tl.load(Rstd + row)
    xhat = (x - tl.load(Mean + row)) * rstd
    c1 = tl.sum(xhat * wdy) / H
    c2 = tl.sum(wdy) / H
    tl.store(DX + row * H + cols, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)


def run(x, w, dy, mean, rstd, dx):
    norm_backward[(x.shape[0],)](x, w, dy, mean, rstd, dx, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_SILU = """
@triton.jit
def silu_backward(X, DY, DX, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n).to(tl.float32)
    s = tl.sigmoid(x)
    tl.store(DX + i, tl.load(DY + i, mask=i < n) * (s * (1 + x * (1 - s))), mask=i < n)


def run(x, dy, dx):
    silu_backward[(triton.cdiv(x.numel(), 1024),)](x, dy, dx, x.numel(), BLOCK=1024)
"""

_SAVED = _SILU.replace("s = tl.sigmoid(x)", "s = x").replace("(1 + x * (1 - s))", "(1 - s)")

_DECAY = """
@triton.jit
def decay_kernel(G, DY, DX, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(DX + i, tl.load(DY + i, mask=i < n) * tl.exp(tl.load(G + i, mask=i < n)), mask=i < n)


class Decay(torch.autograd.Function):
    @staticmethod
    def METHOD(ctx, dy):
        (g,) = ctx.saved_tensors
        dx = torch.empty_like(dy)
        decay_kernel[(triton.cdiv(g.numel(), 1024),)](g, dy, dx, g.numel(), BLOCK=1024)
        return dx
"""

_STORED = _NORM.replace("xhat = (x - tl.load(Mean + row)) * rstd", "xhat = x")

_FORWARD = """
@triton.jit
def weigh(Q, K, V, LSE, O, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :])
    lse = tl.load(LSE + rows)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, S, BN):
        cols = start + tl.arange(0, BN)
        k = tl.load(K + cols[None, :] * D + dims[:, None])
        p = tl.exp2(tl.dot(q, k) * scale - lse[:, None])
        acc += tl.dot(p.to(q.dtype), tl.load(V + cols[:, None] * D + dims[None, :]))
    tl.store(O + rows[:, None] * D + dims[None, :], acc)


def run(q, k, v, lse, o, scale):
    S, D = q.shape
    weigh[(S // 64,)](q, k, v, lse, o, S, scale, D=D, BM=64, BN=64)
"""

_CUDA = """
__global__ void norm_backward(const float* x, const float* w, const float* dy, const float* rstd, float* dx, int H) {
    __shared__ float sums[32];
    size_t base = (size_t)blockIdx.x * H;
    float r = rstd[blockIdx.x];
    float sum = 0.f;
    for (int i = threadIdx.x; i < H; i += blockDim.x) sum += x[base + i] * r * dy[base + i] * w[i];
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    float c = 0.f;
    for (int i = 0; i < blockDim.x / 32; ++i) c += sums[i];
    c /= H;
    for (int i = threadIdx.x; i < H; i += blockDim.x) {
        float xhat = x[base + i] * r;
        dx[base + i] = (dy[base + i] * w[i] - xhat * c) * r;
    }
}

void run(const float* x, const float* w, const float* dy, const float* rstd, float* dx, int T, int H) {
    norm_backward<<<T, 256>>>(x, w, dy, rstd, dx, H);
}
"""

_CUDA_STORED = _CUDA.replace("x[base + i] * r * dy", "x[base + i] * dy").replace("x[base + i] * r;", "x[base + i];")

EXAMPLES = (
    Example(
        "probabilities from a log-sum-exp",
        "triton",
        _ATTENTION,
        Status.PRESENT,
        {"rebuilt": ("probs",), "saved_stat": "lse"},
    ),
    Example("normalised rows", "triton", _NORM, Status.PRESENT, {"rebuilt": ("xhat",), "saved_stat": "mean_rstd"}),
    Example("activation from its input", "triton", _SILU, Status.PRESENT, {"saved_stat": "none"}),
    Example("activation was stored", "triton", _SAVED, Status.ABSENT, trap="reads the intermediate back"),
    Example(
        "decay in backward", "triton", _DECAY.replace("METHOD", "backward"), Status.PRESENT, {"saved_stat": "none"}
    ),
    Example(
        "decay in forward",
        "triton",
        _DECAY.replace("METHOD", "forward"),
        Status.ABSENT,
        trap="look-alike: the same kernel makes no gradient",
    ),
    Example("normalised rows were stored", "triton", _STORED, Status.ABSENT, trap="reads the intermediate back"),
    Example("forward with a known log-sum-exp", "triton", _FORWARD, Status.ABSENT, trap="look-alike: no gradient"),
    Example("normalised rows", "cuda", _CUDA, Status.PRESENT, {"rebuilt": ("xhat",), "saved_stat": "mean_rstd"}),
    Example("normalised rows were stored", "cuda", _CUDA_STORED, Status.ABSENT, trap="reads the intermediate back"),
)
