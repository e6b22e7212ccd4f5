"""What an audit judges: the variants that a submission launches, and what was found for each property in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from d2k.spec.facts import Kind, Program
from d2k.spec.finding import FileReport, Finding, Instance, KernelSummary, Lack, Reason, Status, Why
from d2k.spec.vocabulary import Property, vocabulary


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel in one configuration; `config` is "" where it has only one."""

    path: str
    kernel: str
    config: str


@dataclass(frozen=True, slots=True)
class Launched:
    """One launched kernel (or one instantiation of it); the tuner picks one of its `configs`."""

    configs: tuple[Variant, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """A property in one variant. `instances` are there if it is present, `why` if it is not."""

    status: Status
    instances: tuple[Instance, ...] = ()
    why: Why | None = None


NOTHING = Variant("", "", "")
"""Stands for the variant of a submission that launches none."""


class Submission:
    """The files of one submission. `launched` is empty where nothing is launched, or nothing could be read."""

    def __init__(self, reports: tuple[FileReport, ...], programs: tuple[Program, ...]) -> None:
        self.reports = reports
        self._findings = {(report.path, one.id): one for report in reports for one in report.properties}
        self._by_variant: dict[tuple[str, str], _Indexed] = {}
        elsewhere = _names_launched(programs)
        self.kernels = tuple(
            (report.path, kernel)
            for report in reports
            for kernel in report.kernels
            if kernel.launched or (kernel.reachable and kernel.name in elsewhere)
        )
        tuned = _instantiations(programs)
        self.launched = tuple(one for path, kernel in self.kernels for one in _launched(path, kernel, tuned))
        self.unreadable = not self.launched and any(report.problems for report in reports)

    @property
    def idle(self) -> tuple[tuple[str, KernelSummary], ...]:
        """Kernels that are not launched, with their files."""
        launched = set(self.kernels)
        pairs = ((report.path, kernel) for report in self.reports for kernel in report.kernels)
        return tuple(pair for pair in pairs if pair not in launched)

    def observe(self, identifier: str, variant: Variant) -> Observed:
        """What is known of a property in a variant; where that is nothing, what a present property implies counts."""
        observed = self._observe(identifier, variant)
        if observed.status is Status.UNKNOWN and variant is not NOTHING:
            implied = tuple(self._implied(identifier, variant))
            if implied:
                return Observed(Status.PRESENT, implied)
        return observed

    def _observe(self, identifier: str, variant: Variant) -> Observed:
        if variant is NOTHING:
            return self._without_launch(identifier)
        declared = vocabulary().get(identifier)
        if declared is not None and declared.scope == "program":
            return self._in_program(identifier)
        key = (variant.path, identifier)
        if key not in self._findings:
            return _unseen(identifier)
        if key not in self._by_variant:
            self._by_variant[key] = _indexed(self._findings[key])
        return self._by_variant[key].observe(variant)

    def _in_program(self, identifier: str) -> Observed:
        """A property of host code and kernels together: present if any file with a launched kernel has it."""
        paths = dict.fromkeys(path for path, _ in self.kernels)
        found = [self._findings[path, identifier] for path in paths if (path, identifier) in self._findings]
        if not found:
            return _unseen(identifier)
        order = (Status.PRESENT, Status.UNKNOWN, Status.ABSENT)
        best = min(found, key=lambda one: order.index(one.status))
        instances = tuple(
            instance for one in found if one.status is Status.PRESENT for instance in one.instances or (_bare(),)
        )
        return Observed(best.status, instances, best.why)

    def _without_launch(self, identifier: str) -> Observed:
        if self.unreadable:
            problem = next(one for report in self.reports for one in report.problems)
            return Observed(Status.UNKNOWN, why=problem)
        for path, kernel in self.idle:
            finding = self._findings.get((path, identifier))
            found = [one for one in finding.instances if one.kernel == kernel.name] if finding is not None else []
            if found:
                detail = f"`{kernel.name}` has it, but nothing launches `{kernel.name}`"
                return Observed(Status.ABSENT, why=Why(Reason.DEAD_CODE, detail, found[0].evidence))
        for report in self.reports:
            for guard in report.guards:
                if guard.id == "library_delegation" and guard.status == "suspected":
                    return Observed(Status.ABSENT, why=Why(Reason.DELEGATED_TO_LIBRARY, guard.detail, guard.evidence))
        return Observed(Status.ABSENT, why=Why(Reason.NO_TRACE, "no kernel is launched"))

    def _implied(self, identifier: str, variant: Variant) -> Iterator[Instance]:
        """Instances that present properties imply, with the attributes that the implication fixes."""
        for other, attributes in _implied_by().get(identifier, ()):
            for instance in self._observe(other.id, variant).instances:
                yield Instance(instance.kernel, instance.config, dict(attributes), {}, instance.evidence)


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A finding by (kernel, configuration); a lack that names no configuration stands for all of its kernel."""

    finding: Finding
    instances: Mapping[tuple[str, str], tuple[Instance, ...]]
    lacks: Mapping[tuple[str, str], Lack]

    def observe(self, variant: Variant) -> Observed:
        key = (variant.kernel, variant.config)
        own = self.instances.get(key)
        if own is not None:
            return Observed(Status.PRESENT, own)
        lack = self.lacks.get(key) or self.lacks.get((variant.kernel, ""))
        if lack is not None:
            return Observed(lack.status, why=lack.why)
        status = Status.UNKNOWN if self.finding.status is Status.UNKNOWN else Status.ABSENT
        return Observed(status, why=self.finding.why or Why(Reason.NO_TRACE))


def _indexed(finding: Finding) -> _Indexed:
    instances: dict[tuple[str, str], list[Instance]] = {}
    for one in finding.instances:
        instances.setdefault((one.kernel, one.config), []).append(one)
    lacks = {(lack.kernel, config): lack for lack in finding.lacks for config in lack.configs or ("",)}
    return _Indexed(finding, {key: tuple(found) for key, found in instances.items()}, lacks)


def _unseen(identifier: str) -> Observed:
    return Observed(Status.UNKNOWN, why=Why(Reason.NOT_ANALYZABLE, f"nothing is known about `{identifier}`"))


def _bare() -> Instance:
    return Instance("", "")


def _names_launched(programs: Iterable[Program]) -> frozenset[str]:
    """Kernels that reachable host code of any file launches, by their undotted names."""
    return frozenset(
        op.name.rsplit(".", 1)[-1]
        for program in programs
        for function in program.functions
        if function.reachable
        for op in function.body.ops
        if op.kind is Kind.LAUNCH
    )


_Sites = tuple[tuple[str, int], ...]


def _instantiations(programs: Iterable[Program]) -> dict[tuple[str, str, str], _Sites | str]:
    """For each (path, kernel, label) what tells its instantiation: a tuner chooses between equal ones at run time."""
    return {
        (program.path, kernel.name, variant.label): (
            variant.sites if variant.chosen_by in ("autotune", "heuristic", "unknown") else variant.label
        )
        for program in programs
        for kernel in program.kernels
        for variant in kernel.variants
    }


def _launched(path: str, kernel: KernelSummary, tuned: dict[tuple[str, str, str], _Sites | str]) -> Iterator[Launched]:
    groups: dict[_Sites | str, list[Variant]] = {}
    for config in kernel.configs or ("",):
        groups.setdefault(tuned.get((path, kernel.name, config), ()), []).append(Variant(path, kernel.name, config))
    for configs in groups.values():
        yield Launched(tuple(configs))


@cache
def _implied_by() -> dict[str, tuple[tuple[Property, dict[str, bool | int | str]], ...]]:
    found: dict[str, list[tuple[Property, dict[str, bool | int | str]]]] = {}
    for prop in vocabulary().properties:
        for term in prop.implies:
            fixed = {one.attribute: one.values[0] for one in term.filters if one.op == "="}
            found.setdefault(term.property, []).append((prop, fixed))
    return {identifier: tuple(pairs) for identifier, pairs in found.items()}
