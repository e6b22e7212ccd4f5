"""Analyses and audits for other programs: SARIF 2.1.0 and GitHub annotations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from d2k.report import sarif
from d2k.report.github import annotation
from d2k.report.terminal.audit import evidence_of
from d2k.spec.audit import Audit, ItemAudit, Verdict
from d2k.spec.finding import Evidence, FileReport, GuardFinding, Report, Status, Why
from d2k.spec.vocabulary import Tier, vocabulary


@dataclass(frozen=True, slots=True)
class Note:
    """One message. `kind` and `level` are SARIF's; it allows a level other than `none` only to the kind `fail`.

    `command` is GitHub's: error, warning or notice, "" for what is no annotation. There is at least one place.
    """

    rule: str
    description: str
    kind: str
    level: str
    command: str
    message: str
    places: tuple[Evidence, ...]


def render(report: Report, form: str) -> str:
    """An analysis as `sarif` or `github`."""
    notes = [note for file in report.files for note in _of_file(file)]
    return _render(notes, form, {"target": report.target})


def render_audit_findings(audit: Audit, form: str) -> str:
    """An audit as `sarif` or `github`: every item is a rule, its verdict a result."""
    default = _default_place(audit)
    notes = [_of_item(one, default) for one in audit.items]
    notes += [_of_guard(one, default) for one in audit.guards if one.status == "suspected"]
    notes += [_of_problem(one, default) for one in audit.problems]
    properties: sarif.Json = {"task": audit.task, "target": audit.target, "score": audit.score}
    return _render(notes, form, properties)


def _render(notes: Sequence[Note], form: str, properties: sarif.Json) -> str:
    if form == "github":
        return "\n".join(_github(one) for one in notes if one.command)
    rules: dict[str, sarif.Json] = {
        one.rule: {"id": one.rule, "shortDescription": {"text": one.description}} for one in notes
    }
    return sarif.log(list(rules.values()), [_result(one) for one in notes], properties)


def _result(note: Note) -> sarif.Json:
    first, *others = note.places
    found: sarif.Json = {
        "ruleId": note.rule,
        "kind": note.kind,
        "level": note.level,
        "message": {"text": note.message},
        "locations": [sarif.location(first.path, first.line, first.end_line)],
    }
    if others:
        found["relatedLocations"] = [
            {"id": index, **sarif.location(one.path, one.line, one.end_line, one.text)}
            for index, one in enumerate(others, 1)
        ]
    return found


def _github(note: Note) -> str:
    place = note.places[0]
    return annotation(note.command, place.path, place.line, place.end_line, note.rule, note.message)


_OF_VERDICT = {
    Verdict.IMPLEMENTED: ("pass", "none", ""),
    Verdict.MISSING: ("fail", "warning", "warning"),
    Verdict.CONTRADICTED: ("fail", "warning", "warning"),
    Verdict.PARTIAL: ("fail", "note", "notice"),
    Verdict.UNKNOWN: ("open", "none", "notice"),
    Verdict.NOT_APPLICABLE: ("notApplicable", "none", ""),
}


def _of_item(item: ItemAudit, default: Evidence) -> Note:
    kind, level, command = _OF_VERDICT[item.verdict]
    message = f"{item.level} {item.id} {item.verdict.replace('_', ' ')}: {item.title}. {item.fact}"
    return Note(f"guidance/{item.id}", item.title, kind, level, command, message, evidence_of(item) or (default,))


def _of_file(file: FileReport) -> Iterator[Note]:
    default = Evidence(file.path, 1, 1, Tier.SOURCE, "")
    for finding in file.properties:
        declared = vocabulary().get(finding.id)
        title = declared.title if declared is not None else finding.id
        places = tuple(dict.fromkeys(one for instance in finding.instances for one in instance.evidence))
        if finding.status is Status.PRESENT:
            message = f"{title}: present" + (f", {places[0].text}" if places and places[0].text else "")
            rule = f"property/{finding.id}"
            yield Note(rule, title, "informational", "none", "notice", message, places or (default,))
        elif finding.status is Status.UNKNOWN and finding.why is not None:
            message = f"{title}: unknown, {finding.why.detail}"
            places = finding.why.evidence or (default,)
            yield Note(f"property/{finding.id}", title, "open", "none", "", message, places)
    for guard in file.guards:
        if guard.status == "suspected":
            yield _of_guard(guard, default)
    for problem in file.problems:
        yield _of_problem(problem, default)


def _of_guard(guard: GuardFinding, default: Evidence) -> Note:
    message = f"{guard.id.replace('_', ' ')} suspected: {guard.detail}"
    places = guard.evidence or (default,)
    return Note(f"guard/{guard.id}", guard.id.replace("_", " "), "review", "none", "warning", message, places)


def _of_problem(problem: Why, default: Evidence) -> Note:
    places = problem.evidence or (default,)
    return Note("problem", "what could not be analysed", "fail", "error", "error", problem.detail, places)


def _default_place(audit: Audit) -> Evidence:
    """Where a message without a place of its own stands: the first launched kernel, else the head of the first file."""
    path = audit.files[0] if audit.files else ""
    kernel = next((one for one in audit.kernels if one.launched), None)
    line = kernel.line if kernel is not None and len(audit.files) == 1 else 1
    return Evidence(path, line, line, Tier.SOURCE, "")
