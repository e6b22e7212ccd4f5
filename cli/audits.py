"""Auditing the submission named on a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from d2k import __version__
from d2k.analyzers.analyze import Options
from d2k.analyzers.audit import audit
from d2k.cli import analysis
from d2k.cli.failure import InputError
from d2k.cli.tasks import load
from d2k.spec.audit import Audit
from d2k.spec.hardware import normalise_architecture
from d2k.spec.task import Task


@dataclass(frozen=True, slots=True)
class Judged:
    """An audit with what it was made from; `sources` maps each file's path to its text."""

    task: Task
    audit: Audit
    sources: Mapping[str, str]

    def check_item(self, identifier: str | None) -> None:
        """Raises InputError if the task has no guidance item of that name."""
        _known("guidance item", identifier, [one.id for one in self.task.guidance], self.task.id)


def judge(
    files: Sequence[str],
    task_name: str,
    target: str | None,
    workload: str | None,
    entry: str | None,
    include: tuple[str, ...],
) -> Judged:
    """Audit `files` as one submission. Raises InputError."""
    task = load(task_name)
    _known("workload", workload, [one.name for one in task.workloads], task.id)
    architecture = analysis.target(target if target is not None else task.target[0])
    _known("target", normalise_architecture(architecture), task.target, task.id)
    analysed = analysis.files(files, Options(architecture, entry or "", include), task.entry if entry is None else "")
    judged = audit(
        task,
        tuple(one.report for one in analysed),
        tuple(one.program for one in analysed),
        architecture,
        workload,
        tool=f"d2kc {__version__}",
    )
    return Judged(task, judged, {one.text.path: one.text.text for one in analysed})


def page(judged: Judged) -> str:
    """The audit as one self-contained HTML page."""
    from d2k.report.html.page import render

    return render(judged.audit, judged.task, judged.sources)


def _known(kind: str, name: str | None, known: Sequence[str], task: str) -> None:
    if name is None or name in known:
        return
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"Known: {', '.join(known)}."
    raise InputError(f"task {task} has no {kind} `{name}`. {hint}")
