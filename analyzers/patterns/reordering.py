"""Host code that stores a tensor in another order of its elements, and what becomes of the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView, ProgramView
from d2k.analyzers.patterns.hosts import short
from d2k.spec.facts import NONE, Kind, Op

BLOCKED_AXES = 4
"""A matrix cut into tiles has at least so many axes."""

HOOK = "prepare"
"""The function by which a submission makes its state from constants, once and outside the timed calls."""

VIEWS = frozenset({"view", "reshape", "unflatten"})
SHUFFLES = frozenset({"permute", "transpose", "movedim", "swapaxes"})
MOVES = frozenset({"contiguous", "reshape", "clone", "flatten", "to"})
JOINS = frozenset({"stack"})


@dataclass(frozen=True, slots=True)
class Reordered:
    """`value` of host function `function` holds a tensor's elements in tiles or interleaved.

    `parameter` is the (kernel, parameter) that it is launched for, None if that is not in sight. `once` says that it
    is made outside the launching calls, or only where no earlier call made it.
    """

    function: str
    host: BodyView
    value: int
    parameter: tuple[str, str] | None
    once: bool


def reordered(program: ProgramView) -> Iterator[Reordered]:
    """Every tensor that host code stores in another order and that reaches a kernel, or a state made for one."""
    for function, host in program.live_hosts.items():
        for value in host.values(Kind.HOST_CALL):
            if _is_reordering(host, value):
                yield from _uses(program, function, host, value)


def _is_reordering(host: BodyView, value: int) -> bool:
    """A copy in which axes of tiles have changed places, or rows of several matrices alternate."""
    op = host.op(value)
    if short(op.name) not in MOVES or not op.args:
        return False
    source = host.op(op.args[0])
    if source.kind is not Kind.HOST_CALL:
        return False
    if short(source.name) in JOINS:
        return short(op.name) in ("reshape", "flatten")
    if short(source.name) not in SHUFFLES or not source.args:
        return False
    tiles = host.op(source.args[0])
    return tiles.kind is Kind.HOST_CALL and short(tiles.name) in VIEWS and len(tiles.args) > BLOCKED_AXES


def _uses(program: ProgramView, function: str, host: BodyView, value: int) -> Iterator[Reordered]:
    reached = frozenset(host.flows_to(value, _keeps))
    launches = [at for at in reached if host.op(at).kind is Kind.LAUNCH]
    for at in launches:
        name = next((one for one in _parameters(host.op(at)) if one[1] in reached), None)
        # made only under a condition that the launch does not need: a cached result
        once = any(guard not in host.op(at).guards for guard in host.op(value).guards)
        yield Reordered(function, host, value, (short(host.op(at).name), name[0]) if name else None, once)
    if launches:
        return
    kept = [str(host.op(at).attrs.get("target", "")) for at in reached if host.op(at).name == "setattr"]
    for target in kept:
        yield from _kept(program, function, host, value, target.rpartition(".")[2])
    if not kept and function == HOOK:
        yield Reordered(function, host, value, None, True)


def _kept(program: ProgramView, function: str, host: BodyView, value: int, attribute: str) -> Iterator[Reordered]:
    """Launches of the same class that are given the attribute."""
    owner = function.rpartition(".")[0]
    for name, other in program.live_hosts.items():
        if name == function or name.rpartition(".")[0] != owner:
            continue
        for at in other.values(Kind.LAUNCH):
            for parameter, argument in _parameters(other.op(at)):
                reads = other.walk(argument, _keeps)
                if any(other.op(one).kind is Kind.ATTRIBUTE and other.op(one).name == attribute for one in reads):
                    yield Reordered(function, host, value, (short(other.op(at).name), parameter), True)


def _keeps(op: Op) -> bool:
    return op.kind in (Kind.HOST_CALL, Kind.PHI, Kind.ITEM, Kind.DESCRIPTOR, Kind.CALL) and op.name != "setattr"


def _parameters(op: Op) -> Iterator[tuple[str, int]]:
    """The parameters of a launch with their arguments."""
    names, first = op.attrs.get("params"), op.attrs.get("grid", 0)
    if isinstance(names, tuple) and isinstance(first, int):
        for name, argument in zip(names, op.args[first:], strict=False):
            if argument != NONE:
                yield str(name), argument
