"""What one call of a host function puts on the device: launches, memsets and copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from d2k.analyzers.core.view import BodyView, KernelView, ProgramView
from d2k.spec.facts import NONE, Kind, Op

FILLED = frozenset(
    {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
)
COPIES = frozenset(
    {
        "zero_",
        "fill_",
        "copy_",
        "clone",
        "contiguous",
        "cudaMemsetAsync",
        "cudaMemset",
        "cudaMemcpyAsync",
        "cudaMemcpy",
    }
)
MAX_DEPTH = 8


def short(name: str) -> str:
    """`torch.zeros` and `at::zeros` as `zeros`."""
    return name.replace("::", ".").rsplit(".", 1)[-1]


def device_work(program: ProgramView, function: str) -> int | None:
    """Kernels, memsets and copies of one call of a host function, helpers included; None if a loop's length decides."""
    return _work(program, function, ())


def _work(program: ProgramView, function: str, callers: tuple[str, ...]) -> int | None:
    view = program.hosts.get(function)
    if view is None or function in callers or len(callers) > MAX_DEPTH:
        return 0
    units: list[tuple[int, int]] = []
    for value, op in enumerate(view.body.ops):
        count = _count(program, op, (*callers, function))
        if count is None:
            return None
        if count:
            if op.loop != NONE:
                return None
            units.append((value, count))
    return _longest(view, units, 0)


def _count(program: ProgramView, op: Op, callers: tuple[str, ...]) -> int | None:
    if op.kind is Kind.LAUNCH:
        return 1
    if op.kind is Kind.HOST_ALLOC:
        return int(short(str(op.attrs.get("callee", op.name))) in FILLED)
    if op.kind is Kind.HOST_CALL:
        callee = short(op.name)
        if callee in COPIES and callee != "contiguous":
            return 1
        name = next((name for name in (op.name, callee) if name in program.hosts and name), None)
        return _work(program, name, callers) if name is not None else 0
    return 0


def _longest(view: BodyView, units: list[tuple[int, int]], depth: int) -> int:
    """The most that one path through the branches runs."""
    total = 0
    branches: dict[int, dict[bool, list[tuple[int, int]]]] = {}
    for value, count in units:
        guards = view.op(value).guards
        if len(guards) <= depth:
            total += count
        else:
            guard = guards[depth]
            branches.setdefault(guard.value, {}).setdefault(guard.expected, []).append((value, count))
    for sides in branches.values():
        total += max(_longest(view, side, depth + 1) for side in sides.values())
    return total


def launches(kernel: KernelView) -> Iterator[tuple[BodyView, int]]:
    """The launches of a kernel variant with their host bodies; of host functions that share a name only the
    last is known."""
    for host, value in kernel.launch_sites():
        if value < len(host.body.ops) and host.op(value).kind is Kind.LAUNCH:
            yield host, value


def launchers(program: ProgramView, wanted: Callable[[str], bool]) -> Iterator[str]:
    """Live host functions that launch a kernel whose name is wanted, in source order."""
    for name, view in program.live_hosts.items():
        if any(wanted(short(view.op(value).name)) for value in view.values(Kind.LAUNCH)):
            yield name
