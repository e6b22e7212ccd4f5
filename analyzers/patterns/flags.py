"""Words in global memory by which blocks signal each other: polled until they change, or counted up to the last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.loops import where
from d2k.analyzers.patterns.widths import element_bits
from d2k.spec.facts import NONE, Kind, Op

ACQUIRING = frozenset({"acquire", "acq_rel", "sc"})
RELEASING = frozenset({"release", "acq_rel", "sc"})
WIDE_SCOPES = frozenset({"gpu", "sys", "device", "system"})
PACKED_BITS = 64


@dataclass(frozen=True, slots=True)
class Flag:
    """`read` reads the flag of `tensor` and decides by it: `how` is polled (read in a loop until it changes) or counted
    (the last to arrive goes on). `writes` are the operations that change it in this kernel.

    `packed` says that the word that is read carries data beside the status.
    """

    read: int
    how: str
    tensor: str | None
    writes: tuple[int, ...]
    packed: bool


def flags(kernel: KernelView) -> Iterator[Flag]:
    """Every flag that blocks of the kernel signal by, in program order of its reads."""
    for read, how in sorted({**dict(_counted(kernel)), **dict(_polled(kernel))}.items()):
        tensor = kernel.pointer(kernel.op(read).args[0])
        writes = tuple(
            value
            for value in kernel.values(Kind.STORE, Kind.ATOMIC)
            if flow(kernel).is_output(value) and kernel.pointer(kernel.op(value).args[0]) == tensor
        )
        yield Flag(read, how, tensor, writes, how == "polled" and _is_packed(kernel, read))


def _polled(kernel: KernelView) -> Iterator[tuple[int, str]]:
    """Reads that a loop repeats at the same place until its condition changes."""
    data = flow(kernel)
    for index, loop in enumerate(kernel.body.loops):
        if loop.variable != NONE:
            continue
        for value in kernel.values(Kind.LOAD, Kind.ATOMIC):
            outside = kernel.op(value).kind is Kind.ATOMIC or data.is_fetch(value)
            if not outside or index not in kernel.loops_of(value) or not _stands_still(kernel, value, index):
                continue
            by_condition = loop.condition != NONE and kernel.depends(loop.condition, value)
            if by_condition or (loop.condition == NONE and _guards_exit(kernel, value, index)):
                yield value, "polled"
    for value in kernel.values(Kind.LOAD, name="atomic_poll"):
        yield value, "polled"


def _stands_still(kernel: KernelView, value: int, loop: int) -> bool:
    """The same word in every iteration: only another block can change what the loop waits for."""
    changing = frozenset(one.phi for one in kernel.loop(loop).carried)
    return not any(arg != NONE and kernel.slice(arg) & changing for arg in where(kernel, value))


def _guards_exit(kernel: KernelView, value: int, loop: int) -> bool:
    """An endless loop in which what follows the read runs only on some condition on it."""
    return any(
        kernel.depends(guard.value, value)
        for at in kernel.inside(loop)
        for guard in kernel.op(at).guards
        if kernel.op(at).kind is not Kind.CONST
    )


def _counted(kernel: KernelView) -> Iterator[tuple[int, str]]:
    """Counters of arrivals: the block that finds a certain number reads what the others wrote."""
    for value in kernel.values(Kind.ATOMIC, name=("add", "inc")):
        tests = frozenset(at for at in kernel.flows_to(value, _decides) if _is_equality(kernel.op(at)))
        guarded = any(
            kernel.op(at).kind is Kind.LOAD
            and at > value
            and flow(kernel).is_fetch(at)
            and any(kernel.slice(guard.value) & tests for guard in kernel.op(at).guards)
            for at in (kernel.values(Kind.LOAD) if tests else ())
        )
        if guarded:
            yield value, "counted"


def _decides(op: Op) -> bool:
    kinds = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.STORE, Kind.BARRIER, Kind.VOTE)
    return op.kind in kinds or (op.kind is Kind.LOAD and op.attrs.get("space") == "shared")


def _is_equality(op: Op) -> bool:
    return op.kind is Kind.ELEMENTWISE and op.name in ("eq", "ne", "ge", "lt")


def _is_packed(kernel: KernelView, read: int) -> bool:
    """A word of 64 bits or more of which a part is tested and another part used as data."""
    op = kernel.op(read)
    bits = op.attrs.get("bits")
    size = bits if isinstance(bits, int) else element_bits(op.dtype)
    if size is None or size < PACKED_BITS:
        return False
    used = flow(kernel).forward((read,), lambda one: one.kind not in (Kind.LOAD, Kind.ATOMIC, Kind.MMA))
    return any(
        (kernel.op(at).kind is Kind.STORE and flow(kernel).is_output(at))
        or (kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("add", "fma", "max"))
        for at in used
        if at != read
    )


def acquires(kernel: KernelView, read: int) -> bool:
    """The read orders what follows after it: by its own semantics, or by a fence behind it."""
    return _has(kernel, read, ACQUIRING) or any(fence > read for fence in _fences(kernel))


def releases(kernel: KernelView, write: int) -> bool:
    """The write orders what went before: by its own semantics, or by a fence in front of it."""
    return _has(kernel, write, RELEASING) or any(fence < write for fence in _fences(kernel))


def _has(kernel: KernelView, value: int, wanted: frozenset[str]) -> bool:
    op = kernel.op(value)
    sem = op.attrs.get("sem")
    if sem is None and op.kind is Kind.ATOMIC and is_triton(kernel):
        # Triton's atomics acquire and release unless another order is written
        return True
    return sem in wanted


def _fences(kernel: KernelView) -> tuple[int, ...]:
    return tuple(
        value for value in kernel.values(Kind.FENCE) if kernel.op(value).attrs.get("scope", "gpu") in WIDE_SCOPES
    )
