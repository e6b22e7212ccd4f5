"""Calls that host code makes where it runs, and where the values that steer it come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Evidence
from d2k.analyzers.core.view import BodyView, ProgramView
from d2k.analyzers.patterns.hosts import short
from d2k.spec.facts import NONE, Constant, Kind, Op

MODULE = ""
"""The host body that stands for a module's own code, which runs on import."""

MAX_EVIDENCE = 4


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call or assignment of host code: `name` has dots, methods begin with one; `host` is the function."""

    host: str
    view: BodyView
    value: int
    name: str

    @property
    def op(self) -> Op:
        return self.view.op(self.value)

    def constants(self) -> tuple[Constant, ...]:
        """The arguments that are constants of the source, None for others."""
        return tuple(constant(self.view, arg) for arg in self.op.args)


def host_calls(program: ProgramView, module: bool = True) -> Iterator[HostCall]:
    """Every call of host functions that run, and, if wanted, of module-level code; each place once."""
    seen: set[tuple[object, str]] = set()
    bodies = dict(program.live_hosts)
    if module:
        bodies[MODULE] = program.hosts[MODULE]
    for host, view in bodies.items():
        for value in view.values(Kind.HOST_CALL, Kind.CALL):
            name = dotted(view.op(value))
            key = (view.op(value).place, name)
            if key not in seen:
                seen.add(key)
                yield HostCall(host, view, value, name)


def dotted(op: Op) -> str:
    """The callee with dots, namespaces of the C++ standard library left out."""
    return op.name.replace("::", ".").removeprefix("std.")


def constant(view: BodyView, value: int) -> Constant:
    if value == NONE:
        return None
    found = view.op(value).attrs.get("value")
    return None if isinstance(found, tuple) else found


def evidence(calls: Iterable[HostCall], text: str = "") -> tuple[Evidence, ...]:
    """The first few calls, each with its name or with `text`."""
    found = list(calls)[:MAX_EVIDENCE]
    return tuple(Evidence(one.op.place, text or one.name.removeprefix(".")) for one in found)


def steered_by(program: ProgramView, module: bool = False) -> Iterator[tuple[str, BodyView, int]]:
    """Conditions that choose between paths of host code: (function, body, value), each once."""
    bodies = dict(program.live_hosts)
    if module:
        bodies[MODULE] = program.hosts[MODULE]
    for host, view in bodies.items():
        conditions = [guard.value for op in view.body.ops for guard in op.guards]
        conditions += [loop.condition for loop in view.body.loops if loop.condition != NONE]
        for condition in dict.fromkeys(conditions):
            yield host, view, condition


def kernel_paths(program: ProgramView) -> frozenset[str]:
    """Host functions that run and launch a kernel, or call one that does; all of them where none launches."""
    live = program.live_hosts
    found = {name for name, view in live.items() if view.values(Kind.LAUNCH)}
    if not found:
        return frozenset(live)
    grown = True
    while grown:
        names = {short(name) for name in found}
        more = {
            name
            for name, view in live.items()
            if name not in found
            and any(short(dotted(view.op(value))) in names for value in view.values(Kind.HOST_CALL, Kind.CALL))
        }
        found |= more
        grown = bool(more)
    return frozenset(found)
