"""Base-2 exponentials with a folded scale: exponentials of scores or decays are powers of two, and the change of base,
log2(e), is merged into the scale that is multiplied in anyway. Powers of two without that factor are another function;
natural exponentials leave the multiplication to the compiler; exponents of quantisation scales are no exponentials.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.activation import sigmoids
from d2k.analyzers.patterns.base_two import Change, changes, linear, open_ends, other_scale, prepared_by_host
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import AttrValue, Kind, Op
from d2k.spec.finding import Reason, Status

NAMES = ("exp2", "exp2f", "ex2.approx")
INTEGRAL = frozenset({"floor", "ceil", "round", "log2", "log", "rint", "nearbyint", "trunc"})

BIASES = (7, 15, 127)
"""Exponent biases of stored scales: who subtracts one decodes a power of two."""


def detect(kernel: KernelView) -> Detection:
    powers = tuple(_powers(kernel))
    best: Match | None = None
    for value in powers:
        exponent = kernel.op(value).args[0]
        for change in changes(kernel, exponent):
            match = _match(kernel, value, change)
            if match.attributes["folded_scale"]:
                return (match,)
            best = best or match
    if best is not None:
        return (best,)
    ready = next((value for value in powers if prepared_by_host(kernel, kernel.op(value).args[0])), None)
    if ready is not None:
        evidence = (Evidence(kernel.place(ready), "exp2 of what host code prepared with log2(e)"),)
        return (Match(evidence, {"folded_scale": True}),)
    for value in powers:
        ends = open_ends(kernel, kernel.op(value).args[0])
        if ends and _is_decay(kernel, kernel.op(value).args[0]):
            evidence = (Evidence(kernel.place(value), "exp2 of decays that are kept in units of log2"),)
            return (Match(evidence, {}, {"folded_scale": "who wrote the decays merged log2(e) into them"}),)
        if ends:
            what = kernel.op(ends[0]).variable or kernel.op(ends[0]).name
            place = (Evidence(kernel.place(value), "exp2"),)
            return Undecided(f"whether {what} holds log2(e) already is up to who hands it over", place)
    return _miss(kernel, powers)


def _powers(kernel: KernelView) -> Iterator[int]:
    """Powers of two of data: not of whole numbers, of indices alone, or inside a sigmoid."""
    data = flow(kernel)
    logistic = frozenset(at for value in sigmoids(kernel) for at in data.back((value,), _near))
    logistic |= frozenset(_softplus(kernel))
    for value in kernel.values(Kind.ELEMENTWISE, name="exp2"):
        if value in logistic or not kernel.users(value):
            continue
        behind = tuple(data.back((kernel.op(value).args[0],), lambda op: op.name not in INTEGRAL))
        if any(_is_whole(kernel, at) for at in _close(kernel, value)):
            continue
        if any(data.is_fetch(at) or kernel.op(at).kind is Kind.MMA for at in behind):
            yield value


def _softplus(kernel: KernelView) -> Iterator[int]:
    """Exponentials in log(1 + exp(x)): an activation, with no scale to merge a factor into."""
    data = flow(kernel)
    for value in kernel.values(Kind.ELEMENTWISE, name="exp2"):
        for user in kernel.users(value):
            op = kernel.op(user)
            if op.name == "add" and any(kernel.fold(arg) == 1 for arg in op.args):
                if any(kernel.op(at).name in ("log", "log2") for one in data.consumers(user) for at in (one,)):
                    yield value
            elif op.name == "log1p":
                yield value


def _is_decay(kernel: KernelView, exponent: int) -> bool:
    """Read from memory and used as it is, without a maximum subtracted: nothing else makes sense of a power of two."""
    data = flow(kernel)
    cone = tuple(data.back((exponent,), linear))
    if any(kernel.op(at).kind is Kind.MMA or _is_maximum(kernel, at) for at in cone):
        return False
    return any(data.is_fetch(at) for at in cone)


def _is_maximum(kernel: KernelView, value: int) -> bool:
    """A maximum of data; one with a constant only bounds it."""
    op = kernel.op(value)
    if op.kind in (Kind.REDUCE, Kind.REDUX):
        return op.name == "max"
    return op.kind is Kind.ELEMENTWISE and op.name == "max" and all(kernel.fold(arg) is None for arg in op.args)


def _near(op: Op) -> bool:
    """What stands between an exponential and the sigmoid that is made of it."""
    return op.name in ("div", "rcp", "add", "cast", "expand_dims", "broadcast")


def _is_whole(kernel: KernelView, value: int) -> bool:
    """Part of a whole exponent: rounded, or with the bias of a stored one."""
    op = kernel.op(value)
    return op.name in INTEGRAL or (op.kind is Kind.CONST and abs(_number(op.attrs.get("value"))) in BIASES)


def _number(constant: AttrValue) -> float:
    return float(constant) if isinstance(constant, (int, float)) else 0.0


def _close(kernel: KernelView, value: int) -> Iterator[int]:
    """The arithmetic right in front of an exponential."""
    yield from kernel.walk(
        kernel.op(value).args[0],
        lambda op: (
            op.kind in (Kind.CAST, Kind.SHAPE) or op.name in ("neg", "add", "sub", "min", "max", "clamp", "where")
        ),
    )


def _match(kernel: KernelView, value: int, change: Change) -> Match:
    exponent = kernel.op(value).args[0]
    other = None if change.merged else other_scale(kernel, exponent, change)
    folded = change.merged or (other is None and not _is_after_difference(kernel, change))
    text = "a factor that holds log2(e)" if folded else "log2(e) multiplied apart"
    evidence = [Evidence(kernel.place(change.product), text), Evidence(kernel.place(value), "exp2")]
    if other is not None:
        evidence.append(Evidence(kernel.place(other), "another scale"))
    return Match(tuple(evidence), {"folded_scale": folded})


def _is_after_difference(kernel: KernelView, change: Change) -> bool:
    """(s - m) * log2(e): no multiply-add can take it in."""
    op = kernel.op(change.product)
    return op.name != "fma" and any(kernel.op(kernel.strip(arg)).name == "sub" for arg in op.args)


def _miss(kernel: KernelView, powers: tuple[int, ...]) -> Miss:
    if powers:
        detail = "powers of two whose exponent nothing multiplies by log2(e): another function than exp"
        return Miss(Reason.WRONG_PARAMETER, detail, (Evidence(kernel.place(powers[0]), "exp2"),))
    natural = kernel.values(Kind.ELEMENTWISE, name="exp")
    found = mentioned(kernel, NAMES)
    if found is not None:
        return found
    if natural:
        place = (Evidence(kernel.place(natural[0]), "exp"),)
        return Miss(Reason.WRONG_PARAMETER, "exponentials have base e", place)
    return Miss(detail="no exponential is taken")


TRITON = """
@triton.jit
def softmax(X, Y, N, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    s = tl.load(X + row * N + i, mask=i < N, other=-float("inf")).to(tl.float32)
    CODE
    tl.store(Y + row * N + i, p / tl.sum(p), mask=i < N)

def run(X, Y, D):
    softmax[(X.shape[0],)](X, Y, X.shape[1], SCALE, BLOCK=1024)
"""
ATTENTION = """
@triton.jit
def attend(Q, K, V, O, S, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + d[None, :])
    PREPARE
    m = tl.full((BM,), -float("inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, S, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + n[None, :] * D + d[:, None])
        v = tl.load(V + n[:, None] * D + d[None, :])
        s = SCORES
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        r = tl.math.exp2(m - new)
        l = l * r + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * r[:, None])
        m = new
    tl.store(O + rows[:, None] * D + d[None, :], acc / l[:, None])

def run(Q, K, V, O):
    S, D = Q.shape
    attend[(S // 64,)](Q, K, V, O, S, ARGUMENT, D=D, BM=64, BN=64)
"""
CUDA = r"""
__global__ void softmax(const float* x, float* y, float scale, int n) {
  float m = -INFINITY, l = 0.f;
  const float* row = x + blockIdx.x * n;
  for (int i = 0; i < n; ++i) m = fmaxf(m, row[i]);
  for (int i = 0; i < n; ++i) {
    EXPONENTIAL
    l += p;
    y[blockIdx.x * n + i] = p;
  }
  y[0] = l;
}
void run(const float* x, float* y, int n, int d) { softmax<<<64, 1>>>(x, y, SCALE, n); }
"""


def _triton(code: str, scale: str) -> str:
    return TRITON.replace("CODE", code).replace("SCALE", scale)


def _attention(scores: str, argument: str, prepare: str = "pass") -> str:
    return ATTENTION.replace("SCORES", scores).replace("ARGUMENT", argument).replace("PREPARE", prepare)


def _cuda(exponential: str, scale: str) -> str:
    return CUDA.replace("EXPONENTIAL", exponential).replace("SCALE", scale)


_SOFTPLUS = """
@triton.jit
def softplus(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n)
    tl.store(Y + i, tl.log2(1.0 + tl.exp2(x * 1.44269504)) * 0.69314718, mask=i < n)

def run(X, Y):
    softplus[(triton.cdiv(X.numel(), 1024),)](X, Y, X.numel(), BLOCK=1024)
"""

EXAMPLES = (
    Example("softplus in base 2", "triton", _SOFTPLUS, Status.ABSENT, trap="look-alike: an activation without a scale"),
    Example(
        "merged by the launcher",
        "triton",
        _attention("tl.dot(q, k) * scale", "1.44269504 / D**0.5"),
        Status.PRESENT,
        {"folded_scale": True},
    ),
    Example(
        "merged in the kernel",
        "triton",
        _attention("tl.dot(q, k) * (scale * 1.4426950408889634)", "D**-0.5"),
        Status.PRESENT,
        {"folded_scale": True},
    ),
    Example(
        "queries scaled once",
        "triton",
        _attention("tl.dot(q, k)", "D**-0.5", "q = (q * (scale * 1.44269504)).to(tl.bfloat16)"),
        Status.PRESENT,
        {"folded_scale": True},
    ),
    Example(
        "change of base apart",
        "triton",
        _triton("s = s * scale\n    p = tl.exp2((s - tl.max(s)) * 1.44269504)", "D**-0.5"),
        Status.PRESENT,
        {"folded_scale": False},
    ),
    Example(
        "no factor",
        "triton",
        _attention("tl.dot(q, k) * scale", "1 / D**0.5"),
        Status.ABSENT,
        trap="look-alike: exp2 without the factor log2(e) is another function",
    ),
    Example(
        "a size as the scale",
        "triton",
        _attention("tl.dot(q, k) * scale", "D"),
        Status.ABSENT,
        trap="a size is no scale that may hold log2(e)",
    ),
    Example(
        "decays in units of log2",
        "triton",
        _triton("p = tl.exp2(s - tl.load(X + row * N + N - 1))", "D"),
        Status.PRESENT,
    ),
    Example(
        "stored scale decoded",
        "triton",
        _triton("p = tl.exp2(s - 127.0)", "D"),
        Status.ABSENT,
        trap="look-alike: the exponent of a stored scale",
    ),
    Example(
        "natural exponential",
        "triton",
        _triton("s = s * scale\n    p = tl.exp(s - tl.max(s))", "D**-0.5 * 1.44269504"),
        Status.ABSENT,
        trap="look-alike: the factor alone, with a natural exponential",
    ),
    Example(
        "scale of a code",
        "triton",
        _triton("p = s / tl.exp2(tl.ceil(tl.log2(tl.max(s) * 1.44269504)))", "D"),
        Status.ABSENT,
        trap="look-alike: a power of two as quantisation scale",
    ),
    Example(
        "merged by the launcher",
        "cuda",
        _cuda("float p = exp2f(row[i] * scale - m * scale);", "1.44269504f / sqrtf(d)"),
        Status.PRESENT,
        {"folded_scale": True},
    ),
    Example(
        "merged in the kernel",
        "cuda",
        _cuda("float p = exp2f((row[i] - m) * (scale * 1.44269504f));", "1.f / sqrtf(d)"),
        Status.PRESENT,
        {"folded_scale": True},
    ),
    Example(
        "no factor",
        "cuda",
        _cuda("float p = exp2f(row[i] * scale - m * scale);", "1.f / sqrtf(64.f)"),
        Status.UNKNOWN,
        trap="scores that are read may be in units of log2 already",
    ),
    Example(
        "natural exponential",
        "cuda",
        _cuda("float p = __expf((row[i] - m) * scale);", "1.44269504f / sqrtf(d)"),
        Status.ABSENT,
        trap="look-alike: the factor alone, with a natural exponential",
    ),
    Example(
        "in a comment",
        "cuda",
        _cuda("float p = __expf(row[i] * scale - m * scale);  // exp2f(x * 1.44269504f)", "1.f / sqrtf(d)"),
        Status.ABSENT,
        trap="comment",
    ),
)
