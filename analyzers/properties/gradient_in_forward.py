"""Gradient while the logits are live: softmax minus one-hot is formed from the logits chunk that was just
multiplied, and
contracted at once into the gradients of input and weight, in one kernel or in one iteration of the host's loop
over chunks.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import BodyView, KernelView, ProgramView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.gradients import less_onehot, probabilities
from d2k.analyzers.patterns.hosts import short
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Reason, Status

PRODUCTS = frozenset({"matmul", "mm", "addmm", "addmm_", "bmm", "linear", "einsum", "cublasGemmEx", "cublasLtMatmul"})


def detect_program(program: ProgramView) -> Detection:
    gradients = [(kernel, value) for kernel in program.kernels for value in _gradients(kernel)]
    for kernel, value in gradients:
        if _inside(kernel, value):
            text = "gradient of the logits of this block, multiplied on"
            return (
                Match(
                    (Evidence(kernel.place(value), text),),
                    {},
                    {"chunk_axis": "the axis of the chunks is not told by the kernel"},
                ),
            )
    for kernel, value in gradients:
        for host in program.live_hosts.values():
            before_after = _between_products(host, kernel.kernel.name)
            if before_after is not None:
                before, after = before_after
                evidence = (
                    Evidence(host.op(before).place, "logits of one chunk"),
                    Evidence(kernel.place(value), "softmax minus one-hot"),
                    Evidence(host.op(after).place, "contracted in the same iteration"),
                )
                return (Match(evidence, {"chunk_axis": "tokens"}),)
    if gradients:
        kernel, value = gradients[0]
        return Miss(
            Reason.PREREQUISITE_MISSING,
            "the gradient of the logits is formed, but not between the products that make and consume them",
            (Evidence(kernel.place(value), "softmax minus one-hot"),),
        )
    return Miss(detail="no gradient of logits is formed")


def _gradients(kernel: KernelView) -> Iterator[int]:
    for one in probabilities(kernel):
        yield from less_onehot(kernel, one)


def _inside(kernel: KernelView, value: int) -> bool:
    """In one kernel: a product makes the logits, and another multiplies their gradient."""
    data = flow(kernel)
    made = [at for at in data.back((value,)) if kernel.op(at).kind is Kind.MMA]
    after = frozenset(data.forward((value,), lambda op: op.kind is not Kind.MMA))
    used = any(set(kernel.op(at).args[:2]) & after for at in kernel.values(Kind.MMA))
    return bool(made) and used


def _between_products(host: BodyView, kernel: str) -> tuple[int, int] | None:
    """Library products before and after the launch in the same iteration of a loop, on the same array."""
    for launch in host.values(Kind.LAUNCH):
        op = host.op(launch)
        if short(op.name) != kernel or op.loop == NONE:
            continue
        calls = [
            value
            for value in host.values(Kind.HOST_CALL)
            if short(host.op(value).name) in PRODUCTS and host.op(value).loop == op.loop
        ]
        arguments = set(op.args)
        before = [value for value in calls if value < launch and arguments & set(host.flows_to(value, _same))]
        after = [value for value in calls if value > launch and _uses(host, value, before)]
        if before and after:
            return before[-1], after[0]
    return None


def _same(op: object) -> bool:
    return getattr(op, "kind", None) in (Kind.SHAPE, Kind.CAST, Kind.PHI, Kind.HOST_CALL, Kind.ATTRIBUTE)


def _uses(host: BodyView, value: int, before: list[int]) -> bool:
    return any(value in set(host.flows_to(one)) for one in before)


_KERNEL = """
@triton.jit
def cross_entropy(Logits, Labels, Loss, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(Labels + row)
    top = -float("inf")
    total = 0.0
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(Logits + row * V + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new))
        top = new
    tl.store(Loss + row, top + tl.log(total) - tl.load(Logits + row * V + label).to(tl.float32))
    tl.debug_barrier()
    for start in range(0, V, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(Logits + row * V + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
        p = tl.exp(x - top) / total
        tl.store(Logits + row * V + cols, tl.where(cols == label, p - 1.0, p), mask=cols < V)
"""

_CHUNKS = (
    _KERNEL
    + """

def run(x, w, labels, loss, dx, dw):
    V = w.shape[0]
    for start in range(0, x.shape[0], 1024):
        part = x[start : start + 1024]
        logits = part @ w.t()
        cross_entropy[(part.shape[0],)](logits, labels[start:], loss[start:], V, BLOCK=4096)
        dx[start : start + 1024] = logits @ w
        dw += logits.t() @ part
"""
)

_APART = (
    _KERNEL
    + """

def run(x, w, labels, loss):
    logits = x @ w.t()
    cross_entropy[(x.shape[0],)](logits, labels, loss, w.shape[0], BLOCK=4096)
    return logits
"""
)

_LOSS_ONLY = _CHUNKS.replace("tl.where(cols == label, p - 1.0, p)", "p")

EXAMPLES = (
    Example("in the host's loop over chunks", "triton", _CHUNKS, Status.PRESENT, {"chunk_axis": "tokens"}),
    Example("gradient handed out", "triton", _APART, Status.ABSENT, trap="contracted later, not while it is live"),
    Example("probabilities only", "triton", _LOSS_ONLY, Status.ABSENT, trap="look-alike: no one-hot is subtracted"),
)
