"""Roles of warps: regions of a kernel that only some warps run, what they do, and how they hand over."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import Kind, Op

HANDOVER = frozenset({"mbarrier_wait", "mbarrier_arrive", "mbarrier_expect", "named"})


@dataclass(frozen=True, slots=True)
class Partition:
    """`roles` are words such as load, mma, softmax, correction, epilogue, store; `first` is its first operation.

    `barriers` are its waits and arrivals, `products` its matrix instructions.
    """

    name: str
    first: int
    roles: frozenset[str]
    barriers: tuple[int, ...]
    products: tuple[int, ...]


@memo
def partitions(kernel: KernelView) -> tuple[Partition, ...]:
    """Regions in program order; an inner region, such as one elected thread, belongs to the region around it."""
    names = dict.fromkeys(op.partition for op in kernel.body.ops if op.partition)
    outermost = [name for name in names if not any(name.startswith(f"{other}/") for other in names)]
    return tuple(_partition(kernel, name) for name in outermost)


def _partition(kernel: KernelView, name: str) -> Partition:
    inside = [value for value, op in enumerate(kernel.body.ops) if _belongs(op, name)]
    barriers = tuple(value for value in inside if _hands_over(kernel.op(value)))
    products = tuple(value for value in inside if kernel.op(value).kind is Kind.MMA)
    return Partition(name, inside[0], _roles(kernel, inside, products), barriers, products)


def _belongs(op: Op, name: str) -> bool:
    return op.partition == name or op.partition.startswith(f"{name}/")


def _hands_over(op: Op) -> bool:
    # a commit to a barrier tells a waiting role that matrix work is done
    return (op.kind is Kind.BARRIER and op.name in HANDOVER) or (op.kind is Kind.COMMIT and op.name == "tcgen05")


def _roles(kernel: KernelView, inside: list[int], products: tuple[int, ...]) -> frozenset[str]:
    data = flow(kernel)
    found: set[str] = set()
    fetches = [value for value in inside if data.is_fetch(value)]
    outputs = [value for value in inside if data.is_output(value)]
    if any(kernel.op(value).kind is Kind.COPY or _goes_to_shared(kernel, value) for value in fetches):
        found.add("load")
    if products:
        found.add("mma")
    exponentials = [value for value in inside if _is(kernel.op(value), "exp", "exp2")]
    if (
        exponentials
        and any(_of_product(kernel, value) for value in exponentials[:4])
        and _takes_maximum(kernel, inside)
    ):
        found.add("softmax")
    elif _rescales(kernel, inside) and not products:
        found.add("correction")
    if outputs:
        copies = all(kernel.op(value).kind is Kind.COPY for value in outputs)
        reads = any(kernel.op(value).kind is Kind.LOAD and not data.is_fetch(value) for value in inside)
        found.add("store" if copies and not reads and not products else "epilogue")
    return frozenset(found)


def _is(op: Op, *names: str) -> bool:
    return op.kind is Kind.ELEMENTWISE and op.name in names


def _goes_to_shared(kernel: KernelView, fetch: int) -> bool:
    data = flow(kernel)
    through = (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ELEMENTWISE)
    for at in data.forward((fetch,), lambda op: op.kind in through):
        for user in kernel.users(at):
            op = kernel.op(user)
            if op.kind is Kind.STORE and op.args[1] == at and data.arrays(op.args[0]):
                return True
    return False


def _of_product(kernel: KernelView, value: int) -> bool:
    return any(kernel.op(at).kind is Kind.MMA for at in flow(kernel).back((value,)))


def _takes_maximum(kernel: KernelView, inside: list[int]) -> bool:
    return any(_is(kernel.op(value), "max") or kernel.op(value).name == "max" for value in inside)


def _rescales(kernel: KernelView, inside: list[int]) -> bool:
    """Reads an accumulator from tensor memory, multiplies it and writes it back."""
    spaces = {
        (kernel.op(value).kind, kernel.op(value).attrs.get("space"))
        for value in inside
        if kernel.op(value).kind in (Kind.LOAD, Kind.STORE)
    }
    multiplied = any(_is(kernel.op(value), "mul") for value in inside)
    return {(Kind.LOAD, "tmem"), (Kind.STORE, "tmem")} <= spaces and multiplied
