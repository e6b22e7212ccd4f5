"""Runs every guard on a program.

A guard is one module of this package, named by the guard's id, which defines

    DEFINITION: str                                       # one sentence
    EXAMPLES: tuple[Example, ...]                         # as for detectors; `present` means suspected
    def suspect(program: ProgramView) -> Suspicion | None
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import cast

from d2k.analyzers import guards as package
from d2k.analyzers.core.detector import Evidence
from d2k.analyzers.core.view import ProgramView
from d2k.spec import finding
from d2k.spec.vocabulary import Tier

GUARDS = tuple(sorted(module.name for module in iter_modules(package.__path__) if module.name != "run"))


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What was seen, in one sentence with its numbers, and where."""

    detail: str
    evidence: tuple[Evidence, ...]


def guards(view: ProgramView) -> tuple[finding.GuardFinding, ...]:
    """One answer for every guard, by id: `suspected` or `absent`."""
    return tuple(_finding(name, _suspect(name)(view)) for name in GUARDS)


def _suspect(name: str) -> Callable[[ProgramView], Suspicion | None]:
    return cast(Callable[[ProgramView], Suspicion | None], import_module(f"d2k.analyzers.guards.{name}").suspect)


def _finding(name: str, suspicion: Suspicion | None) -> finding.GuardFinding:
    if suspicion is None:
        return finding.GuardFinding(name, "absent")
    evidence = tuple(
        finding.Evidence(one.place.path, one.place.line, one.place.end_line, Tier.SOURCE, one.text)
        for one in suspicion.evidence
    )
    return finding.GuardFinding(name, "suspected", suspicion.detail, evidence)
