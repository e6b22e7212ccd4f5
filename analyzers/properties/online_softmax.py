"""Online softmax: while a loop walks the blocks of a row, it carries the running maximum and the running sum
of exponentials,
and multiplies what it has gathered so far by exp(old maximum - new maximum). No whole row of scores is ever held.

A maximum over a whole row that is known before the exponentials are taken is not online, however fused.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.exponent import exponentials
from d2k.analyzers.patterns.loops import axis_name, trip_count, walked
from d2k.analyzers.patterns.softmax import RunningSoftmax, running_softmaxes
from d2k.spec.facts import Kind
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(one for one in running_softmaxes(kernel) if one.factors and (one.sums or one.accumulators))
    outermost = tuple(one for one in found if not any(_encloses(kernel, other, one) for other in found))
    loops = tuple(one for one in outermost if trip_count(kernel, one.loop) not in (0, 1))
    if loops:
        return tuple(_match(kernel, one) for one in _merged(kernel, loops))
    if found:
        place = kernel.loop(found[0].loop).place
        return Miss(
            Reason.NOT_LOAD_BEARING,
            "the loop runs once: one block holds the whole row",
            (Evidence(place, "runs once"),),
            certain=True,
        )
    return _miss(kernel)


def _encloses(kernel: KernelView, outer: RunningSoftmax, inner: RunningSoftmax) -> bool:
    """The same maximum runs through `outer` too, so that `inner` is only a part of its loop."""
    return (
        outer.loop in kernel.ancestors(kernel.loop(inner.loop).parent)
        and bool(outer.maximum.values & inner.maximum.values)
        and bool(walked(kernel, outer.loop))
    )


def _merged(kernel: KernelView, loops: tuple[RunningSoftmax, ...]) -> tuple[RunningSoftmax, ...]:
    """One for each chain of loops that hand the same maximum on, such as interior and masked blocks."""
    kept: list[RunningSoftmax] = []
    for one in loops:
        if not any(one.maximum.values & other.maximum.values and _carried(one) == _carried(other) for other in kept):
            kept.append(one)
    return tuple(kept)


def _carried(one: RunningSoftmax) -> tuple[str, ...]:
    words = {"max"} | ({"sum"} if one.sums else set()) | ({"acc"} if one.accumulators else set())
    return tuple(sorted(words))


def _match(kernel: KernelView, one: RunningSoftmax) -> Match:
    attributes: dict[str, FoundValue] = {"carried": _carried(one)}
    undecided: dict[str, str] = {}
    axis = axis_name(kernel, one.loop)
    if axis is None:
        undecided["axis"] = "the extent of the loop is no single argument of the kernel"
    else:
        attributes["axis"] = axis
    rescaled = [cell.cell.variable or "a partial result" for cell in (*one.sums, *one.accumulators)]
    evidence = (
        Evidence(kernel.place(one.maximum.update), f"running maximum {one.maximum.cell.variable}".rstrip()),
        Evidence(kernel.place(one.factors[0]), "exp(old maximum - new maximum)"),
        Evidence(
            kernel.place((one.sums + one.accumulators)[0].product), f"{', '.join(rescaled)} multiplied by that factor"
        ),
    )
    return Match(evidence, attributes, undecided)


def _miss(kernel: KernelView) -> Miss:
    exps = exponentials(kernel)
    if not exps:
        return Miss(detail="no exponential is taken")
    where = (Evidence(kernel.place(exps[0]), "exponential"),)
    running = tuple(running_softmaxes(kernel))
    if running:
        place = kernel.place(running[0].maximum.update)
        return Miss(
            Reason.PREREQUISITE_MISSING,
            "a running maximum is carried, but nothing gathered before is rescaled by exp(old - new)",
            (Evidence(place, "running maximum"),),
        )
    rows = kernel.values(Kind.REDUCE, name="max")
    if rows:
        return Miss(
            Reason.PREREQUISITE_MISSING,
            "the maximum is taken over all scores before the exponentials; none is carried from block to block",
            (Evidence(kernel.place(rows[0]), "maximum of a whole row"), *where),
        )
    return Miss(detail="exponentials are taken, but no maximum is carried from block to block", evidence=where)


_TRITON = """
@triton.jit
def attention(Q, K, V, O, S, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :], mask=rows[:, None] < S, other=0.0)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, S, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        k = tl.load(K + cols[None, :] * D + dims[:, None], mask=cols[None, :] < S, other=0.0)
        v = tl.load(V + cols[:, None] * D + dims[None, :], mask=cols[:, None] < S, other=0.0)
        s = tl.where(cols[None, :] < S, tl.dot(q, k) * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        r = tl.exp(m - m_new)
        l = l * r + tl.sum(p, 1)
        acc = acc * r[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    tl.store(O + rows[:, None] * D + dims[None, :], acc / l[:, None], mask=rows[:, None] < S)


def run(q, k, v, o, scale):
    S, D = q.shape
    attention[(triton.cdiv(S, 64),)](q, k, v, o, S, scale, D=D, BLOCK_M=64, BLOCK_N=64)
"""

_HELPER = """
@triton.jit
def fold_in(m, l, x):
    top = tl.maximum(m, tl.max(x))
    l = l * tl.exp2((m - top) * 1.4426950408889634) + tl.sum(tl.exp2((x - top) * 1.4426950408889634))
    return top, l


@triton.jit
def row_lse(X, Out, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = float("-inf")
    l = 0.0
    for i in range(0, n_cols, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        x = tl.load(X + row * n_cols + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m, l = fold_in(m, l, x)
    tl.store(Out + row, m + tl.log(l))


def run(x, out):
    row_lse[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
"""

_WHOLE_ROW = """
@triton.jit
def softmax(X, Y, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
    p = tl.exp(x - tl.max(x))
    tl.store(Y + row * n_cols + cols, p / tl.sum(p), mask=cols < n_cols)


def run(x, y):
    softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_TWO_PASSES = """
@triton.jit
def row_lse(X, Out, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = float("-inf")
    for i in range(0, n_cols, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        m = tl.maximum(m, tl.max(tl.load(X + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))))
    l = 0.0
    for i in range(0, n_cols, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        l += tl.sum(tl.exp(tl.load(X + row * n_cols + cols, mask=cols < n_cols, other=-float("inf")) - m))
    tl.store(Out + row, m + tl.log(l))


def run(x, out):
    row_lse[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
"""

_CUDA = """
__global__ void attention(const float* Q, const float* K, const float* V, float* O, int S, float scale) {
    constexpr int D = 64;
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= S) return;
    float q[D], acc[D];
    for (int d = 0; d < D; ++d) { q[d] = Q[row * D + d]; acc[d] = 0.f; }
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < S; ++j) {
        float s = 0.f;
        for (int d = 0; d < D; ++d) s += q[d] * K[j * D + d];
        s *= scale;
        float m_new = fmaxf(m, s);
        float r = __expf(m - m_new);
        float p = __expf(s - m_new);
        l = l * r + p;
        for (int d = 0; d < D; ++d) acc[d] = acc[d] * r + p * V[j * D + d];
        m = m_new;
    }
    for (int d = 0; d < D; ++d) O[row * D + d] = acc[d] / l;
}

void run(const float* q, const float* k, const float* v, float* o, int S, float scale) {
    attention<<<(S + 127) / 128, 128>>>(q, k, v, o, S, scale);
}
"""

_CUDA_ROW = """
template <int THREADS>
__global__ void row_lse(const float* x, float* out, int n) {
    __shared__ float tops[32];
    const float* row = x + (size_t)blockIdx.x * n;
    float top = -INFINITY, total = 0.f;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float v = row[i];
        if (v > top) {
            total *= exp2f((top - v) * 1.44269504f);
            top = v;
        }
        total += exp2f((v - top) * 1.44269504f);
    }
    float best = top;
    for (int o = 16; o > 0; o >>= 1) best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, o));
    total *= exp2f((top - best) * 1.44269504f);
    for (int o = 16; o > 0; o >>= 1) total += __shfl_xor_sync(0xffffffff, total, o);
    if (threadIdx.x == 0) out[blockIdx.x] = best + logf(total);
}

void run(const float* x, float* out, int rows, int n) { row_lse<32><<<rows, 32>>>(x, out, n); }
"""

EXAMPLES = (
    Example("attention", "triton", _TRITON, Status.PRESENT, {"carried": ("acc", "max", "sum"), "axis": "S"}),
    Example(
        "log-sum-exp through a helper", "triton", _HELPER, Status.PRESENT, {"carried": ("max", "sum"), "axis": "n_cols"}
    ),
    Example("whole row at once", "triton", _WHOLE_ROW, Status.ABSENT, trap="one-pass softmax over a whole row"),
    Example("maximum in a pass of its own", "triton", _TWO_PASSES, Status.ABSENT, trap="two passes"),
    Example(
        "loop of one block",
        "triton",
        _HELPER.replace("range(0, n_cols, BLOCK)", "range(0, BLOCK, BLOCK)"),
        Status.ABSENT,
        trap="parameter of size one: the loop runs once",
    ),
    Example(
        "helper that nothing calls",
        "triton",
        _HELPER.replace("m, l = fold_in(m, l, x)", "l += tl.sum(x)"),
        Status.ABSENT,
        trap="helper that nothing calls",
    ),
    Example(
        "maximum carried, sum not rescaled",
        "triton",
        _TRITON.replace("l * r + tl.sum(p, 1)", "l + tl.sum(p, 1)").replace("acc * r[:, None] +", "acc +"),
        Status.ABSENT,
        trap="declared but unused: the factor",
    ),
    Example("attention", "cuda", _CUDA, Status.PRESENT, {"carried": ("acc", "max", "sum"), "axis": "S"}),
    Example("log-sum-exp with a branch", "cuda", _CUDA_ROW, Status.PRESENT, {"carried": ("max", "sum"), "axis": "n"}),
    Example(
        "fixed maximum",
        "cuda",
        _CUDA.replace("float m_new = fmaxf(m, s);", "float m_new = m;").replace(
            "float m = -INFINITY,", "float m = 8.f,"
        ),
        Status.ABSENT,
        trap="look-alike: exponentials of a difference to a constant",
    ),
    Example(
        "disabled by the preprocessor",
        "cuda",
        _CUDA.replace("float s = 0.f;", "float s = 0.f;\n#if 0").replace("        m = m_new;", "#endif"),
        Status.ABSENT,
        trap="#if 0",
    ),
)
