"""Counting sort by key: items are counted for each key, the counts are summed to offsets, and each item goes to
offset[key] + its rank, so that every key owns a contiguous range.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.hosts import short
from d2k.analyzers.patterns.loops import arithmetic, where
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Reason, Status


def detect_program(program: ProgramView) -> Detection:
    scattered = [(kernel, store, rank) for kernel in program.kernels for store, rank in _scatters(kernel)]
    counted = [(kernel, value) for kernel in program.kernels for value in _counts(kernel)]
    summed = [(kernel, value) for kernel in program.kernels for value in kernel.values(Kind.SCAN, name="sum")]
    by_host = [
        (host, value)
        for host in program.live_hosts.values()
        for value in host.values(Kind.HOST_CALL)
        if short(host.op(value).name) in ("cumsum", "ExclusiveSum", "exclusive_scan", "bincount", "histc")
    ]
    if scattered and (counted or summed or by_host):
        kernel, store, rank = scattered[0]
        evidence = [
            Evidence(kernel.place(store), "stores to offset[key] + rank"),
            Evidence(kernel.place(rank), "rank among equal keys"),
        ]
        evidence += [Evidence(one.place(value), "counts the items of each key") for one, value in counted[:1]]
        evidence += [Evidence(one.place(value), "sums the counts") for one, value in summed[:1]]
        return (Match(tuple(evidence)),)
    if counted:
        kernel, value = counted[0]
        return Miss(
            Reason.PREREQUISITE_MISSING,
            "keys are counted, but no item goes to offset[key] + rank",
            (Evidence(kernel.place(value), "counts keys"),),
        )
    return Miss(detail="nothing is placed by key")


def _scatters(kernel: KernelView) -> Iterator[tuple[int, int]]:
    """Stores whose place is made of a rank: the old value of a counter that a key names, or a prefix sum of
    equal keys."""
    data = flow(kernel)
    for store in data.outputs():
        if kernel.op(store).kind is not Kind.STORE:
            continue
        for place in where(kernel, store):
            rank = _rank(kernel, place) if place != NONE else None
            if rank is not None:
                yield store, rank
                break


def _rank(kernel: KernelView, place: int) -> int | None:
    data = flow(kernel)
    loaded = False
    found: int | None = None
    for at in data.back((place,), _indexes):
        op = kernel.op(at)
        if op.kind is Kind.ATOMIC and op.name in ("add", "inc") and _names_key(kernel, at):
            return at
        if op.kind is Kind.SCAN and op.name == "sum":
            found = at
        if op.kind is Kind.LOAD and _names_key(kernel, at):
            loaded = True
    return found if loaded else None


def _indexes(op: Op) -> bool:
    return arithmetic(op) or op.kind in (Kind.SCAN, Kind.REDUCE, Kind.SHUFFLE, Kind.LOAD)


def _names_key(kernel: KernelView, access: int) -> bool:
    """The place of an access is read from memory: a key, not a position."""
    return any(
        kernel.op(at).kind is Kind.LOAD
        for place in where(kernel, access)
        if place != NONE
        for at in flow(kernel).back((place,), arithmetic)
    )


def _counts(kernel: KernelView) -> Iterator[int]:
    yield from kernel.values(Kind.HISTOGRAM)
    for value in kernel.values(Kind.ATOMIC, name=("add", "inc")):
        op = kernel.op(value)
        if len(op.args) > 1 and kernel.fold(op.args[1]) == 1 and _names_key(kernel, value):
            yield value


EXAMPLES: tuple[Example, ...] = ()
_ = Status
