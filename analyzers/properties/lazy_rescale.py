"""Conditional rescaling: in online softmax, the accumulator is multiplied by exp(old maximum - new maximum) only where
the maximum has grown, or has grown beyond a threshold; the final division absorbs the rest. A selection between the
rescaled and the old accumulator computes both and skips nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import e, log2

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.softmax import Rescaled, RunningSoftmax, running_softmaxes, same_value
from d2k.spec.facts import Guard, Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status

COMPARISONS = ("gt", "ge", "lt", "le", "ne", "eq")


def detect(kernel: KernelView) -> Detection:
    found = tuple(one for one in running_softmaxes(kernel) if one.factors and one.accumulators)
    for one in found:
        for rescaled in one.accumulators:
            guard = next(_guards(kernel, one, rescaled), None)
            if guard is not None:
                return (_match(kernel, one, rescaled, guard),)
    if not found:
        return Miss(detail="no accumulator is rescaled by a running maximum")
    product = found[0].accumulators[0].product
    selected = _selects(kernel, product)
    what = "a selection computes the rescaled accumulator anyway" if selected else "the accumulator is always rescaled"
    return Miss(Reason.PREREQUISITE_MISSING, what, (Evidence(kernel.place(product), "rescaled accumulator"),))


def _guards(kernel: KernelView, softmax: RunningSoftmax, rescaled: Rescaled) -> Iterator[Guard]:
    """Conditions inside the loop on which the multiplication runs, made of the running maximum."""
    loops = kernel.ancestors(kernel.op(rescaled.product).loop)
    around = {guard for loop in kernel.ancestors(softmax.loop) for guard in kernel.loop(loop).guards}
    guards = list(kernel.op(rescaled.product).guards)
    for loop in loops:
        if softmax.loop in kernel.ancestors(loop)[1:]:
            guards += kernel.loop(loop).guards
    growth = frozenset(softmax.maximum.values) | frozenset(softmax.factors)
    for guard in dict.fromkeys(guards):
        if guard not in around and any(at in growth for at in kernel.walk(guard.value, _decides)):
            yield guard


def _decides(op: Op) -> bool:
    """What may stand between a maximum and the condition on its growth: comparisons, votes, reductions over rows."""
    kinds = (Kind.ELEMENTWISE, Kind.VOTE, Kind.REDUCE, Kind.REDUX, Kind.CAST, Kind.SHAPE, Kind.SHUFFLE, Kind.PHI)
    return op.kind in kinds or (op.kind is Kind.BARRIER and bool(op.attrs.get("reduces")))


def _match(kernel: KernelView, softmax: RunningSoftmax, rescaled: Rescaled, guard: Guard) -> Match:
    evidence = (
        Evidence(kernel.place(guard.value), "condition on the growth of the maximum"),
        Evidence(kernel.place(rescaled.product), f"{rescaled.cell.variable or 'the accumulator'} rescaled there only"),
    )
    threshold = _threshold(kernel, softmax, guard.value)
    if threshold is None:
        return Match(evidence, {}, {"threshold_log2": "the tolerated growth is no constant here"})
    attributes: dict[str, FoundValue] = {"threshold_log2": threshold}
    return Match(evidence, attributes)


def _threshold(kernel: KernelView, softmax: RunningSoftmax, condition: int) -> int | None:
    """The growth that is tolerated, in powers of two, rounded."""
    base_two = any(kernel.op(value).name == "exp2" for value in softmax.factors)
    for at in kernel.walk(condition, _decides):
        op = kernel.op(at)
        if op.kind is not Kind.ELEMENTWISE or op.name not in COMPARISONS:
            continue
        left, right = op.args[:2]
        for side, bound in ((left, kernel.fold(right)), (right, kernel.fold(left))):
            if not isinstance(bound, (int, float)) or isinstance(bound, bool):
                continue
            if set(softmax.factors) & set(flow(kernel).back((side,), same_value)):
                # the factor itself is compared: it shrinks as the maximum grows
                return round(-log2(bound)) if 0 < bound <= 1 else None
            return round(abs(bound) if base_two else abs(bound) * log2(e))
        if all(kernel.fold(arg) is None for arg in op.args):
            margin = abs(_constant(kernel, left) - _constant(kernel, right))
            return round(margin if base_two else margin * log2(e))
    return None


def _constant(kernel: KernelView, value: int) -> float:
    """What a sum adds to a value: 8 in `m + 8`."""
    op = kernel.op(kernel.strip(value))
    if op.kind is not Kind.ELEMENTWISE or op.name not in ("add", "sub"):
        return 0.0
    left, right = (kernel.fold(arg) for arg in op.args)
    if isinstance(right, (int, float)):
        return float(right) if op.name == "add" else -float(right)
    return float(left) if isinstance(left, (int, float)) and op.name == "add" else 0.0


def _selects(kernel: KernelView, product: int) -> bool:
    return any(
        kernel.op(user).kind is Kind.ELEMENTWISE and kernel.op(user).name == "where" for user in kernel.users(product)
    )


ATTENTION = """
@triton.jit
def attend(Q, K, V, O, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + d[None, :])
    m = tl.full((BM,), -float("inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, S, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + n[None, :] * D + d[:, None])
        v = tl.load(V + n[:, None] * D + d[None, :])
        s = tl.dot(q, k) * scale
        new = tl.maximum(m, tl.max(s, 1))
        RESCALE
        p = tl.exp2(s - m[:, None])
        l += tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc)
    tl.store(O + rows[:, None] * D + d[None, :], acc / l[:, None])

def run(Q, K, V, O):
    S, D = Q.shape
    attend[(S // 64,)](Q, K, V, O, S, 1.44269504 / D**0.5, D=D, BM=64, BN=64)
"""
ALWAYS = """r = tl.exp2(m - new)
        l = l * r
        acc = acc * r[:, None]
        m = new"""
LAZY = """if tl.max(new - m) > 8.0:
            r = tl.exp2(m - new)
            l = l * r
            acc = acc * r[:, None]
            m = new"""
SELECTED = """r = tl.exp2(m - new)
        grown = tl.max(new - m) > 8.0
        l = tl.where(grown, l * r, l)
        acc = tl.where(grown, acc * r[:, None], acc)
        m = tl.where(grown, new, m)"""
SWITCH = """if D > 64:
            r = tl.exp2(m - new)
            l = l * r
            acc = acc * r[:, None]
        m = new"""
CUDA = r"""
__global__ void attend(const float* q, const float* k, const float* v, float* o, int s, float scale) {
  float m = -INFINITY, l = 0.f, acc[8];
  for (int d = 0; d < 8; ++d) acc[d] = 0.f;
  for (int n = 0; n < s; ++n) {
    float x = q[threadIdx.x] * k[n] * scale;
    float grown = fmaxf(m, x);
    RESCALE
    float p = exp2f(x - m);
    l += p;
    for (int d = 0; d < 8; ++d) acc[d] += p * v[n * 8 + d];
  }
  for (int d = 0; d < 8; ++d) o[threadIdx.x * 8 + d] = acc[d] / l;
}
void run(const float* q, const float* k, const float* v, float* o, int s, float scale) {
  attend<<<1, 32>>>(q, k, v, o, s, scale);
}
"""
VOTED = """if (__any_sync(0xffffffffu, grown > m + 8.f)) {
      float r = exp2f(m - grown);
      l *= r;
      for (int d = 0; d < 8; ++d) acc[d] *= r;
      m = grown;
    }"""
PLAIN = """float r = exp2f(m - grown);
    l *= r;
    for (int d = 0; d < 8; ++d) acc[d] *= r;
    m = grown;"""

EXAMPLES = (
    Example(
        "beyond a threshold",
        "triton",
        ATTENTION.replace("RESCALE", LAZY),
        Status.PRESENT,
        {"threshold_log2": 8},
    ),
    Example(
        "where the maximum grew",
        "triton",
        ATTENTION.replace("RESCALE", LAZY.replace("tl.max(new - m) > 8.0", "tl.max((new > m).to(tl.int32)) != 0")),
        Status.PRESENT,
        {"threshold_log2": 0},
    ),
    Example("always", "triton", ATTENTION.replace("RESCALE", ALWAYS), Status.ABSENT, trap="ordinary online softmax"),
    Example(
        "selected",
        "triton",
        ATTENTION.replace("RESCALE", SELECTED),
        Status.ABSENT,
        trap="look-alike: a selection computes both sides",
    ),
    Example(
        "another condition",
        "triton",
        ATTENTION.replace("RESCALE", SWITCH),
        Status.ABSENT,
        trap="a branch that does not rest on the maximum",
    ),
    Example("voted by a warp", "cuda", CUDA.replace("RESCALE", VOTED), Status.PRESENT, {"threshold_log2": 8}),
    Example(
        "where the factor is below one",
        "cuda",
        CUDA.replace(
            "RESCALE",
            "float r = exp2f(m - grown);\n    m = grown;\n    if (r < 1.f) {\n      l *= r;\n"
            "      for (int d = 0; d < 8; ++d) acc[d] *= r;\n    }",
        ),
        Status.PRESENT,
        {"threshold_log2": 0},
    ),
    Example("always", "cuda", CUDA.replace("RESCALE", PLAIN), Status.ABSENT, trap="ordinary online softmax"),
    Example(
        "in a comment",
        "cuda",
        CUDA.replace("RESCALE", PLAIN + "  // if (__any_sync(~0u, grown > m))"),
        Status.ABSENT,
        trap="comment",
    ),
)
