"""Builders of findings, reports and tasks for tests of the audit and of what shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d2k.spec.facts import Body, Function, Kernel, Kind, Launch, Op, Param, Place, Program, Reach, Variant
from d2k.spec.finding import (
    Evidence,
    FileReport,
    Finding,
    FoundValue,
    GuardFinding,
    Instance,
    KernelSummary,
    Lack,
    Reason,
    Status,
    Why,
)
from d2k.spec.guidance import Item
from d2k.spec.task import Axis, Cost, Direction, PythonFunction, Task, Tensor, Workload
from d2k.spec.vocabulary import Tier, vocabulary

PATH = "kernel.py"


def evidence(line: int, text: str, path: str = PATH) -> Evidence:
    return Evidence(path, line, line, Tier.SOURCE, text)


def present(
    identifier: str,
    attributes: Mapping[str, FoundValue] | None = None,
    *,
    kernel: str = "k",
    config: str = "",
    undecided: Mapping[str, str] | None = None,
    line: int = 10,
    text: str = "",
) -> Finding:
    """A property found in one variant."""
    instance = Instance(
        kernel, config, dict(attributes or {}), dict(undecided or {}), (evidence(line, text or identifier),)
    )
    return Finding(identifier, Status.PRESENT, Tier.SOURCE, (instance,))


def joined(*findings: Finding) -> Finding:
    """One finding with the instances of several."""
    instances = tuple(instance for one in findings for instance in one.instances)
    return Finding(findings[0].id, Status.PRESENT, Tier.SOURCE, instances)


def absent(identifier: str, reason: Reason = Reason.NO_TRACE, detail: str = "", line: int | None = None) -> Finding:
    places = (evidence(line, detail),) if line is not None else ()
    return Finding(identifier, Status.ABSENT, Tier.SOURCE, why=Why(reason, detail, places))


def unknown(identifier: str, detail: str = "needs compiled evidence") -> Finding:
    return Finding(identifier, Status.UNKNOWN, Tier.SOURCE, why=Why(Reason.NOT_ANALYZABLE, detail))


def lack(kernel: str, *configs: str, status: Status = Status.ABSENT, detail: str = "") -> Lack:
    return Lack(kernel, configs, status, Why(Reason.NO_TRACE, detail))


def kernel(name: str = "k", configs: tuple[str, ...] = (), *, launched: bool = True, line: int = 1) -> KernelSummary:
    return KernelSummary(name, line, line + 20, "triton", reachable=launched, launched=launched, configs=configs)


def report(
    *findings: Finding,
    kernels: Sequence[KernelSummary] | None = None,
    path: str = PATH,
    guards: tuple[GuardFinding, ...] = (),
    problems: tuple[Why, ...] = (),
) -> FileReport:
    """A report on a file with one launched kernel `k`; every property that is not given is absent."""
    given = {one.id: one for one in findings}
    everything = tuple(given.get(one.id, absent(one.id)) for one in vocabulary().properties)
    kernels = (kernel(),) if kernels is None else tuple(kernels)
    return FileReport(path, "triton", "0" * 64, kernels, everything, guards, problems)


def tensor(
    name: str, role: str = "", direction: Direction = Direction.INPUT, shape: tuple[str, ...] = ("M", "K")
) -> Tensor:
    return Tensor(name, direction, "bf16", shape, role)


def workload(name: str) -> Workload:
    return Workload(
        name,
        tags=(),
        origin="",
        axes={},
        lets={},
        tensors=(),
        flops={},
        bytes=0,
        bytes_read=0,
        bytes_written=0,
        flops_min=0,
        bytes_min=0,
    )


def task(
    *items: Item,
    tensors: tuple[Tensor, ...] = (),
    workloads: tuple[str, ...] = ("small", "large"),
    axes: tuple[Axis, ...] = (),
) -> Task:
    function = PythonFunction("reference.py", "run")
    return Task(
        schema="",
        language_version=1,
        content_hash="0" * 64,
        id="example",
        title="An example",
        summary="",
        target=("sm100", "sm90"),
        axes=axes,
        lets=(),
        where=(),
        tensors=tensors,
        draws=(),
        entry="run",
        prepare="",
        reference=function,
        baselines=(),
        tolerances=(),
        compares=(),
        cost=Cost(()),
        forbid=(),
        workloads=tuple(workload(name) for name in workloads),
        guidance=items,
        sources={},
    )


def place(line: int = 1) -> Place:
    return Place(PATH, line, line)


def op(kind: Kind, name: str = "", *args: int, **attrs: object) -> Op:
    return Op(kind, name, args, place(), attrs)  # type: ignore[arg-type]  # tests pass plain values


def host(name: str, params: Sequence[str], *ops: Op, reachable: bool = True) -> Function:
    """A host function; its first operations are its parameters, in order."""
    heads = tuple(op(Kind.PARAM, param) for param in params)
    return Function(name, place(), tuple(Param(param) for param in params), reachable, Body(heads + ops, ()))


def program(
    *functions: Function,
    params: Sequence[str] = (),
    variants: Sequence[Variant] | None = None,
    name: str = "k",
    path: str = PATH,
) -> Program:
    """A program with one launched kernel."""
    body = Body((), ())
    only = (Variant("", {}, Launch(), body),)
    one = Kernel(
        name,
        place(),
        "triton",
        tuple(Param(param) for param in params),
        Reach.LAUNCHED,
        tuple(variants) if variants is not None else only,
    )
    return Program(path, ("triton",), (one,) if params or variants else (), functions, body, entry="run")
