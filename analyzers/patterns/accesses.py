"""Reads and writes of global memory: which tensor, which way, and roughly how many of its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import trip_count
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import Kind

UNKNOWN_TRIPS = 64
UNKNOWN_EXTENT = 64
"""Stand-ins for numbers that the source does not say; only the order of magnitude of a share depends on them."""

HALF = 0.5

STREAMING = 0.1
"""A tensor with less than this part of what a kernel moves is not on its streaming path."""


@dataclass(frozen=True, slots=True)
class Access:
    """One operation on global memory. `direction`: load store gather scatter reduce prefetch.

    `how`: pointer block_pointer descriptor vector array cp_async tma bulk. `tensor` is the kernel's parameter, None if
    it is not known. `elements` estimates how many elements the block moves over all iterations.
    """

    value: int
    direction: str
    how: str
    tensor: str | None
    elements: int


@memo
def accesses(kernel: KernelView) -> tuple[Access, ...]:
    """Every read, write and reduction of global memory, in program order."""
    data = flow(kernel)
    values = kernel.values(Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.COPY)
    return tuple(_access(kernel, value) for value in values if data.is_fetch(value) or data.is_output(value))


def _access(kernel: KernelView, value: int) -> Access:
    op = kernel.op(value)
    if op.kind is Kind.COPY:
        direction, how = str(op.attrs.get("direction", "load")), op.name
    else:
        direction = _direction(op.kind, op.name)
        how = str(op.attrs.get("via", "pointer"))
    outward = direction in ("store", "scatter", "reduce")
    address = op.args[0] if outward or op.kind is not Kind.COPY else flow(kernel).source_address(value)
    return Access(value, direction, how, kernel.pointer(address), _elements(kernel, value))


def _direction(kind: Kind, name: str) -> str:
    match kind:
        case Kind.ATOMIC:
            return "reduce"
        case Kind.STORE:
            return "scatter" if name == "scatter" else "store"
        case _:
            return "gather" if name == "gather" else "load"


def _elements(kernel: KernelView, value: int) -> int:
    """Elements of the tile times the iterations of the loops around it."""
    op = kernel.op(value)
    tile = op.args[1] if op.kind in (Kind.STORE, Kind.ATOMIC) and len(op.args) > 1 else value
    count = 1
    for extent in kernel.dims(tile) or ():
        count *= UNKNOWN_EXTENT if extent is None else extent
    for loop in kernel.loops_of(value):
        trips = trip_count(kernel, loop)
        count *= UNKNOWN_TRIPS if trips is None else max(1, trips)
    return count


def share(chosen: Iterable[Access], of: Iterable[Access]) -> float:
    """The part of the elements moved by `of` that `chosen` moves, an estimate between 0 and 1."""
    total = sum(one.elements for one in of)
    return sum(one.elements for one in chosen) / total if total else 0.0


def by_tensor(found: Iterable[Access]) -> dict[str, tuple[Access, ...]]:
    """Accesses of each known tensor, in order of first appearance."""
    groups: dict[str, list[Access]] = {}
    for one in found:
        if one.tensor is not None:
            groups.setdefault(one.tensor, []).append(one)
    return {tensor: tuple(group) for tensor, group in groups.items()}
