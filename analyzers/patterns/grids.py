"""How many blocks a kernel is launched with: as many as there is work, a constant number, or so many for each SM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.fold import fold
from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.hosts import launches, short
from d2k.spec.facts import NONE, Kind, Op

COUNTS = re.compile(r"multi_?processor|(^|_)sms?_count|num_?sms?$|(^|_)sm_?num|compute_units", re.IGNORECASE)
"""Attributes and library functions that return how many SMs a device has."""

LIMITS = ("min", "max")
ROUNDED = ("ceil", "floor", "round", "int", "max", "min")


@dataclass(frozen=True, slots=True)
class Grid:
    """The number of blocks along one axis of a launch.

    `kind`: `sms` (so many for each SM: `per_sm`, None if that is computed), `constant` (`blocks`), `work` (computed
    from sizes), `unknown` (from code or arguments that are not known here). `value` is its place in `host`.
    """

    kind: str
    host: BodyView
    launch: int
    value: int
    per_sm: int | None = None
    blocks: int | None = None


def grids(kernel: KernelView, axis: int = 0) -> tuple[Grid, ...]:
    """The grids of all launches of a kernel along `axis`, in order."""
    found: list[Grid] = []
    for host, launch in launches(kernel):
        op = host.op(launch)
        count = op.attrs.get("grid")
        if isinstance(count, int) and 0 <= axis < count:
            kernel.reads.update(kernel.variant.constants)
            found.append(_grid(kernel, host, launch, op.args[axis]))
    return tuple(found)


def _grid(kernel: KernelView, host: BodyView, launch: int, value: int) -> Grid:
    for times in _per_sm(kernel, host, value):
        return Grid("sms", host, launch, value, per_sm=times)
    constant = fold(host.body, value, kernel.variant.constants)
    if isinstance(constant, int):
        return Grid("constant", host, launch, value, blocks=constant)
    for arg in _alternatives(host, value):
        limit = fold(host.body, arg, kernel.variant.constants)
        if isinstance(limit, int) and arg != value:
            return Grid("constant", host, launch, value, blocks=limit)
    return Grid("unknown" if _is_foreign(host, value) else "work", host, launch, value)


def _per_sm(kernel: KernelView, host: BodyView, value: int) -> Iterator[int | None]:
    """Blocks for each SM, if the number of SMs is a factor or a limit of `value`."""
    stack: list[tuple[int, int | None]] = [(value, 1)]
    seen: set[int] = set()
    while stack:
        at, times = stack.pop()
        if at in seen or at == NONE:
            continue
        seen.add(at)
        op = host.op(at)
        if counts_sms(host, at):
            yield times
        elif op.kind is Kind.ELEMENTWISE and op.name == "mul" and len(op.args) == 2:
            for factor, other in (op.args, op.args[::-1]):
                constant = fold(host.body, other, kernel.variant.constants)
                known = constant if isinstance(constant, int) and not isinstance(constant, bool) else None
                stack.append((factor, None if known is None or times is None else times * known))
        elif op.kind is Kind.ELEMENTWISE and op.name in (*LIMITS, "where"):
            stack.extend((arg, times) for arg in op.args)
        elif op.kind is Kind.PHI and op.name == "if":
            stack.extend((arg, times) for arg in op.args[1:])
        elif op.kind is Kind.ELEMENTWISE and op.name in ("floordiv", "div", "sub", "add", "ceil", "floor"):
            stack.append((op.args[0], None))
        elif op.kind in (Kind.CAST, Kind.PHI):
            stack.extend((arg, times) for arg in op.args)
        elif op.kind is Kind.HOST_CALL and short(op.name) in ROUNDED:
            stack.extend((arg, None) for arg in op.args)


def counts_sms(host: BodyView, value: int) -> bool:
    """`value` is the number of SMs of a device."""
    op = host.op(value)
    if op.kind in (Kind.ATTRIBUTE, Kind.HOST_CALL, Kind.CALL):
        return COUNTS.search(short(op.name)) is not None
    if op.kind is Kind.ITEM and op.args:
        asked = host.op(op.args[0]).attrs.get("asked")
        names = asked if isinstance(asked, tuple) else ()
        return any(COUNTS.search(str(name)) for name in names) or counts_sms(host, op.args[0])
    return False


def _alternatives(host: BodyView, value: int) -> Iterator[int]:
    """Operands of minima: a limit of the number of blocks."""
    stack = [value]
    seen: set[int] = set()
    while stack:
        at = stack.pop()
        if at in seen or at == NONE:
            continue
        seen.add(at)
        yield at
        op = host.op(at)
        if (op.kind is Kind.ELEMENTWISE and op.name == "min") or op.kind is Kind.CAST:
            stack.extend(op.args)


def _is_foreign(host: BodyView, value: int) -> bool:
    """The number rests on calls that are not known, or is the caller's choice."""
    op = host.op(value)
    if op.kind is Kind.PARAM:
        return True
    return any(_is_unknown_call(host.op(at)) for at in host.walk(value, _is_number))


def _is_unknown_call(op: Op) -> bool:
    return op.kind in (Kind.HOST_CALL, Kind.CALL) and op.name not in ("tuple", "len", "next_power_of_2", "cdiv")


def _is_number(op: Op) -> bool:
    return op.kind in (Kind.ELEMENTWISE, Kind.PHI, Kind.CAST, Kind.SHAPE)
