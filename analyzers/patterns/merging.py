"""What becomes, after a launch, of an array that the kernel wrote: host code or a later kernel adds it up."""

from __future__ import annotations

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.arguments import arguments
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.hosts import launches, short
from d2k.spec.facts import Kind, Op

SAME = frozenset(
    {"view", "reshape", "contiguous", "to", "float", "double", "squeeze", "unsqueeze", "flatten", "data_ptr"}
)
SUMS = frozenset({"sum", "sum_out", "nansum", "einsum", "cumsum"})


def summed_later(kernel: KernelView, name: str) -> bool | None:
    """Whether the array behind parameter `name` is added up after the launch; None if no launch is in sight."""
    passed = tuple(arguments(kernel, name))
    if not passed:
        return None
    for (host, buffer), (_, launch) in zip(passed, launches(kernel), strict=False):
        for user in host.flows_to(_origin(host, buffer), _is_same):
            op = host.op(user)
            if user > launch and op.kind in (Kind.HOST_CALL, Kind.CALL) and short(op.name) in SUMS:
                return True
            other = user > launch and op.kind is Kind.LAUNCH and short(op.name) != kernel.kernel.name
            if other and _adds_up(kernel, host, user, buffer):
                return True
    return False


def _origin(host: BodyView, value: int) -> int:
    """The allocation behind a pointer or view of it."""
    while host.op(value).args and _is_same(host.op(value)):
        value = host.op(value).args[0]
    return value


def _is_same(op: Op) -> bool:
    if op.kind in (Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.CAST):
        return True
    return op.kind in (Kind.ATTRIBUTE, Kind.HOST_CALL) and short(op.name) in SAME


def _adds_up(kernel: KernelView, host: BodyView, launch: int, buffer: int) -> bool:
    """The launched kernel sums what it reads from the array."""
    op = host.op(launch)
    names = op.attrs.get("params")
    first = op.attrs.get("grid", 0)
    if not isinstance(names, tuple) or not isinstance(first, int):
        return False
    origin = _origin(host, buffer)
    handed = {
        name
        for at, name in enumerate(names)
        if first + at < len(op.args) and op.args[first + at] >= 0 and _origin(host, op.args[first + at]) == origin
    }
    return any(
        other.kernel.name == short(op.name) and any(_sums(other, str(name)) for name in handed)
        for other in kernel.program.kernels
    )


def _sums(kernel: KernelView, name: str) -> bool:
    data = flow(kernel)
    fetched = {
        value
        for value in kernel.values(Kind.LOAD, Kind.COPY)
        if data.is_fetch(value) and kernel.pointer(data.source_address(value)) == name
    }
    reduced = [value for value in kernel.values(Kind.REDUCE, Kind.REDUX) if kernel.op(value).name == "sum"]
    carried = [new for loop in range(len(kernel.body.loops)) for cell in cells(kernel, loop) for new in cell.news]
    added = [value for value in (*reduced, *carried) if value >= 0]
    return bool(fetched & set(data.back(added)))
