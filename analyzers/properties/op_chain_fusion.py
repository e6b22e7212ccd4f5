"""Operator chain fusion: several memory-bound operators (add, normalise, activate, quantise, rotate, select,
…) share a launch,
so that what passes between them never reaches global memory. `launches` counts what one call puts on the device.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.hosts import device_work, launchers
from d2k.analyzers.patterns.operators import operators
from d2k.spec.finding import FoundValue, Status
from d2k.spec.vocabulary import vocabulary

Found = dict[str, tuple[KernelView, dict[str, int]]]


def detect_program(program: ProgramView) -> Detection:
    found: Found = {}
    for kernel in program.kernels:
        ops = operators(kernel)
        if kernel.kernel.name not in found or len(ops) > len(found[kernel.kernel.name][1]):
            found[kernel.kernel.name] = (kernel, ops)
    fused = {name for name, (_, ops) in found.items() if len(ops) >= 2}
    if not fused:
        return _miss(found)
    hosts = tuple(launchers(program, lambda name: name in fused))
    if not hosts:
        return tuple(_match(found, (name,), None, "no host code launches the kernel") for name in sorted(fused))
    return tuple(_call(program, found, host) for host in hosts)


def _call(program: ProgramView, found: Found, host: str) -> Match:
    names = tuple(name for name in found if host in set(launchers(program, name.__eq__)))
    launches = device_work(program, host)
    return _match(found, names, launches, "the number of launches depends on a loop")


def _match(found: Found, names: tuple[str, ...], launches: int | None, why: str) -> Match:
    known = _vocabulary()
    words = tuple(sorted({word for name in names for word in found[name][1]} & known))
    attributes: dict[str, FoundValue] = {"ops": words}
    undecided: dict[str, str] = {}
    if launches is None:
        undecided["launches"] = why
    else:
        attributes["launches"] = launches
    kernel, ops = max((found[name] for name in names), key=lambda one: len(one[1]))
    evidence = tuple(Evidence(kernel.place(value), word) for word, value in sorted(ops.items()))[:4]
    return Match(evidence, attributes, undecided)


def _vocabulary() -> frozenset[str]:
    prop = vocabulary().get("op_chain_fusion")
    attribute = prop.attribute("ops") if prop else None
    return frozenset(attribute.members) if attribute else frozenset()


def _miss(found: Found) -> Miss:
    single = [(kernel, ops) for kernel, ops in found.values() if ops]
    if not single:
        return Miss(detail="no chain of memory-bound operators")
    evidence = tuple(Evidence(kernel.place(value), word) for kernel, ops in single for word, value in ops.items())[:4]
    return Miss(detail="each kernel does one operator", evidence=evidence)


EXAMPLES: tuple[Example, ...] = ()
_ = Status
