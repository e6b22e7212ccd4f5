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


EXAMPLES: tuple[Example, ...] = ()
_ = Status
