"""Associative scan of pairs: a recurrence h = a*h + x is computed by scanning pairs with (a1, x1)*(a2, x2) =
(a1*a2, a2*x1 + x2), in one scan of a tile or in log steps across lanes. A reset is a zero factor.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.spec.facts import Kind
from d2k.spec.finding import Status

RECURRENCES = frozenset({"linear_recurrence", "log_linear_recurrence", "segmented_sum"})


def detect(kernel: KernelView) -> Detection:
    found = (*_scans(kernel), *_steps(kernel))
    if found:
        value, factor, text = found[0]
        resets = kernel.op(value).attrs.get("combine") == "segmented_sum" or _has_reset(kernel, factor)
        return (Match((Evidence(kernel.place(value), text),), {"reset": resets}),)
    others = kernel.values(Kind.SCAN)
    if others:
        evidence = (Evidence(kernel.place(others[0]), "scan"),)
        return Miss(detail="the scan combines single values, not pairs of factor and sum", evidence=evidence)
    return Miss(detail="nothing is scanned")


def _scans(kernel: KernelView) -> Iterator[tuple[int, int, str]]:
    for value in kernel.values(Kind.SCAN, name="associative"):
        op = kernel.op(value)
        if op.attrs.get("combine") in RECURRENCES and len(op.args) >= 2:
            yield value, op.args[0], "scan with (a1*a2, a2*x1 + x2)"


def _steps(kernel: KernelView) -> Iterator[tuple[int, int, str]]:
    """x + a * x of an earlier lane, beside a * a of that lane."""
    data = flow(kernel)
    for value in kernel.values(Kind.ELEMENTWISE, name=("fma", "add")):
        for factor, other, own in _affine(kernel, value):
            if _from_lane(kernel, other) is None:
                continue
            source = _from_lane(kernel, other)
            same = source is not None and kernel.strip(own) in set(data.back((source,), lambda op: op.kind is Kind.PHI))
            if same and any(_squares(kernel, user, factor) for user in kernel.users(factor)):
                yield value, factor, "x + a * (x of an earlier lane), a * (a of that lane)"
                return


def _affine(kernel: KernelView, value: int) -> Iterator[tuple[int, int, int]]:
    """(factor, multiplied, added) of a * y + x in all orders."""
    op = kernel.op(value)
    if len(op.args) != (3 if op.name == "fma" else 2):
        return
    if op.name == "fma":
        a, y, x = op.args
        yield from ((a, y, x), (y, a, x))
        return
    for product, x in (op.args, op.args[::-1]):
        inner = kernel.op(kernel.strip(product))
        if inner.kind is Kind.ELEMENTWISE and inner.name == "mul":
            a, y = inner.args
            yield from ((a, y, x), (y, a, x))


def _from_lane(kernel: KernelView, value: int) -> int | None:
    """What another lane's value was before the exchange; None if it comes from no other lane."""
    inner = kernel.strip(value)
    while kernel.op(inner).kind is Kind.ELEMENTWISE and kernel.op(inner).name == "where":
        inner = kernel.strip(kernel.op(inner).args[1])
    op = kernel.op(inner)
    if op.kind is Kind.PHI and op.name == "if":
        inner = kernel.strip(op.args[1])
        op = kernel.op(inner)
    return kernel.strip(op.args[0]) if op.kind is Kind.SHUFFLE and op.name in ("up", "idx", "down") else None


def _squares(kernel: KernelView, user: int, factor: int) -> bool:
    op = kernel.op(user)
    if op.kind is not Kind.ELEMENTWISE or op.name != "mul" or len(op.args) != 2:
        return False
    other = op.args[1] if op.args[0] == factor else op.args[0]
    return _from_lane(kernel, other) is not None


def _has_reset(kernel: KernelView, factor: int) -> bool:
    """The factor is set to zero where a segment starts."""
    data = flow(kernel)
    for at in data.back((factor,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.ELEMENTWISE, Kind.PHI)):
        op = kernel.op(at)
        selects = (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if")
        if selects and any(kernel.fold(arg) == 0 and kernel.fold(arg) is not None for arg in op.args[1:]):
            return True
    return False


_SCAN = """
@triton.jit
def compose(a1, x1, a2, x2):
    return a1 * a2, a2 * x1 + x2


@triton.jit
def scan(A, X, H, T: tl.constexpr):
    at = tl.program_id(0) * T + tl.arange(0, T)
    _, h = tl.associative_scan((tl.load(A + at), tl.load(X + at)), 0, compose)
    tl.store(H + at, h)


def run(a, x, h):
    scan[(a.numel() // 256,)](a, x, h, T=256)
"""

_RESETS = (
    _SCAN.replace("A, X, H, T", "A, X, Start, H, T")
    .replace("(a, x, h, T", "(a, x, start, h, T")
    .replace("def run(a, x, h)", "def run(a, x, start, h)")
    .replace("tl.load(A + at), tl", "tl.where(tl.load(Start + at) != 0, 0.0, tl.load(A + at)), tl")
)

_SUMS = """
@triton.jit
def sums(X, H, T: tl.constexpr):
    at = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(H + at, tl.cumsum(tl.load(X + at), 0))


def run(x, h):
    sums[(x.numel() // 256,)](x, h, T=256)
"""

_STEPS = """
@triton.jit
def recurrence(A, X, H, T, D: tl.constexpr):
    cols = tl.program_id(0) * D + tl.arange(0, D)
    h = tl.zeros((D,), tl.float32)
    for t in range(T):
        h = tl.load(A + t * D + cols) * h + tl.load(X + t * D + cols)
        tl.store(H + t * D + cols, h)


def run(a, x, h):
    recurrence[(a.shape[1] // 128,)](a, x, h, a.shape[0], D=128)
"""

_CUDA = """
__global__ void scan(const float* a_in, const float* x_in, float* h, int T) {
    int i = blockIdx.x * T + threadIdx.x, lane = threadIdx.x % 32;
    float a = a_in[i], x = x_in[i];
    for (int o = 1; o < 32; o <<= 1) {
        float pa = __shfl_up_sync(0xffffffff, a, o), px = __shfl_up_sync(0xffffffff, x, o);
        if (lane >= o) {
            x = a * px + x;
            a = a * pa;
        }
    }
    h[i] = x;
}

void run(const float* a, const float* x, float* h, int rows) { scan<<<rows, 32>>>(a, x, h, 32); }
"""

_CUDA_SUM = """
__global__ void scan(const float* x_in, float* h, int T) {
    int i = blockIdx.x * T + threadIdx.x, lane = threadIdx.x % 32;
    float x = x_in[i];
    for (int o = 1; o < 32; o <<= 1) {
        float px = __shfl_up_sync(0xffffffff, x, o);
        if (lane >= o) x += px;
    }
    h[i] = x;
}

void run(const float* x, float* h, int rows) { scan<<<rows, 32>>>(x, h, 32); }
"""

EXAMPLES = (
    Example("scan of a tile", "triton", _SCAN, Status.PRESENT, {"reset": False}),
    Example("resets are zero factors", "triton", _RESETS, Status.PRESENT, {"reset": True}),
    Example("plain prefix sum", "triton", _SUMS, Status.ABSENT, trap="look-alike: a scan of single values"),
    Example("step by step", "triton", _STEPS, Status.ABSENT, trap="a serial recurrence"),
    Example("log steps across lanes", "cuda", _CUDA, Status.PRESENT, {"reset": False}),
    Example("plain prefix sum", "cuda", _CUDA_SUM, Status.ABSENT, trap="look-alike: a scan of single values"),
)
