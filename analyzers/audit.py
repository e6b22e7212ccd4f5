"""Judges a submission by a task's guidance: verdicts, why not, root causes, scores and what to implement next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from d2k.analyzers import root_causes, score, words
from d2k.analyzers.checks import Evaluator, ItemValue
from d2k.analyzers.roles import Roles
from d2k.analyzers.score import Credit
from d2k.analyzers.submission import Submission
from d2k.spec.audit import Audit, Interval, ItemAudit, Verdict
from d2k.spec.check import Check, Or, terms
from d2k.spec.check_text import render, render_filter
from d2k.spec.facts import Program
from d2k.spec.finding import Evidence, FileReport, GuardFinding, Reason, Why
from d2k.spec.guidance import Item
from d2k.spec.hardware import ARCHITECTURES, normalise_architecture
from d2k.spec.task import Task
from d2k.spec.vocabulary import Tier, vocabulary

AUDIT_SCHEMA = "d2k.audit/1"


def audit(
    task: Task,
    reports: tuple[FileReport, ...],
    programs: tuple[Program, ...],
    target: str,
    workload: str | None = None,
    *,
    tool: str = "",
    tiers: tuple[Tier, ...] = (Tier.SOURCE,),
) -> Audit:
    """The audit of the files of one submission for a target such as `sm_100a`.

    `workload` names the one workload that counts, None means all. Findings do not depend on the workload, so that the
    mean over the workloads of an item is its credit on any of them.
    """
    submission = Submission(reports, programs)
    evaluator = Evaluator(submission, Roles(task, programs))
    judged = tuple(_judge(item, task, evaluator, submission, target, workload) for item in task.guidance)
    credits = tuple(one.credit for one in judged)
    gated = score.gated_credits(credits)
    missing = {one.item.id for one in judged if one.verdict in (Verdict.MISSING, Verdict.CONTRADICTED)}
    partial = {one.item.id for one in judged if one.verdict is Verdict.PARTIAL}
    blocked_by = root_causes.missing_prerequisites(credits, missing)
    advice = {one.item.id: _advice(one, len(reports)) for one in judged}
    return Audit(
        schema=AUDIT_SCHEMA,
        task=task.id,
        task_hash=task.content_hash,
        files=tuple(report.path for report in reports),
        target=target,
        tool=tool,
        tiers=tiers,
        kernels=tuple(kernel for report in reports for kernel in report.kernels),
        items=tuple(_item_audit(one, gated[one.item.id], blocked_by[one.item.id]) for one in judged),
        score=score.score(credits),
        root_causes=root_causes.root_causes(credits, missing),
        next_steps=root_causes.next_steps(credits, missing, partial, advice),
        guards=_guards(reports),
        problems=_problems(submission),
    )


@dataclass(frozen=True, slots=True)
class _Judged:
    """An item with its verdict; `value` is None where it is not applicable."""

    item: Item
    verdict: Verdict
    value: ItemValue | None
    fact: str
    reasons: tuple[Why, ...] = ()

    @property
    def interval(self) -> Interval:
        if self.value is None or self.verdict is Verdict.CONTRADICTED:
            return Interval(0.0, 0.0)
        return self.value.interval

    @property
    def credit(self) -> Credit:
        item = self.item
        applicable = self.verdict is not Verdict.NOT_APPLICABLE
        low, high = self.interval.low, self.interval.high
        return Credit(item.id, item.level, item.weight, low, high, item.requires, item.free, applicable)


def _judge(
    item: Item, task: Task, evaluator: Evaluator, submission: Submission, target: str, workload: str | None
) -> _Judged:
    if not _workloads(item, task, target, workload):
        return _not_applicable(item, target)
    # without a launch there is no design on which a condition could rest, and no item to be spared
    if item.given is not None and submission.launched and evaluator.holds(item.given) is False:
        return _Judged(item, Verdict.NOT_APPLICABLE, None, f"only given {render(item.given)}")
    value = evaluator.item(_whole_check(item))
    verdict = _verdict(value)
    if verdict is Verdict.IMPLEMENTED:
        return _Judged(item, verdict, value, words.achieved(value) + _accepted(item, value))
    return _Judged(item, verdict, value, words.lacking(value), words.shortfalls(value))


def _verdict(value: ItemValue) -> Verdict:
    if value.contradicted:
        return Verdict.CONTRADICTED
    low, high = value.interval.low, value.interval.high
    if low == 1:
        return Verdict.IMPLEMENTED
    if high == 0:
        return Verdict.MISSING
    return Verdict.PARTIAL if low > 0 and high < 1 else Verdict.UNKNOWN


def _whole_check(item: Item) -> Check:
    """The check or any design that is accepted in its place."""
    return Or((item.check, *(one.check for one in item.accept))) if item.accept else item.check


def _workloads(item: Item, task: Task, target: str, workload: str | None) -> tuple[str, ...]:
    """Those of the chosen workloads on which the item applies; an item without `applies` applies to all."""
    chosen = [one.name for one in task.workloads if workload in (None, one.name)]
    if not item.applies:
        return tuple(chosen)
    where = item.applies.get(normalise_architecture(target) or target, ())
    return tuple(name for name in chosen if name in where)


def _not_applicable(item: Item, target: str) -> _Judged:
    lacked = _features_lacked(item.check, target)
    if lacked:
        detail = f"{target} has no {' and no '.join(lacked)}"
        return _Judged(item, Verdict.NOT_APPLICABLE, None, detail, (Why(Reason.HARDWARE_UNSUPPORTED, detail),))
    return _Judged(item, Verdict.NOT_APPLICABLE, None, f"only when {item.when}" if item.when else "on no workload")


def _features_lacked(check: Check, target: str) -> tuple[str, ...]:
    architecture = ARCHITECTURES.get(normalise_architecture(target) or "")
    declared = (vocabulary().get(term.property) for term in terms(check))
    needs = dict.fromkeys(feature for one in declared if one is not None for feature in one.needs)
    return tuple(one for one in needs if architecture is not None and one not in architecture.features)


def _accepted(item: Item, value: ItemValue) -> str:
    """Why a design other than the item's own check earned the credit."""
    decisive = {one.term for one in value.worst.decisive}
    if decisive <= set(terms(item.check)):
        return ""
    accepted = next((one for one in item.accept if decisive <= set(terms(one.check))), None)
    return f" (accepted: {accepted.because})" if accepted is not None else ""


def _item_audit(judged: _Judged, gated: float, blocked_by: tuple[str, ...]) -> ItemAudit:
    item = judged.item
    reasons, fact = judged.reasons, judged.fact
    if judged.verdict is Verdict.MISSING and blocked_by:
        reasons = (*reasons, Why(Reason.PREREQUISITE_MISSING, ", ".join(blocked_by)))
        fact = f"{fact}; requires {', '.join(blocked_by)} (missing)"
    return ItemAudit(
        id=item.id,
        level=item.level,
        title=item.title,
        check=render(_whole_check(item)),
        requires=item.requires,
        weight=item.weight,
        verdict=judged.verdict,
        credit=judged.interval.low,
        interval=judged.interval,
        gated_credit=gated,
        fact=fact,
        free=item.free,
        reasons=reasons,
        evidence=_evidence(judged),
        terms=words.audited_terms(judged.value.worst) if judged.value is not None else (),
    )


def _evidence(judged: _Judged) -> tuple[Evidence, ...]:
    """Where the item is implemented, or as far as it is: of every configuration of the deciding kernel."""
    if judged.value is None:
        return ()
    found = [
        term.instance.evidence
        for config in judged.value.configs
        for term in config.decisive
        if term.instance is not None
    ]
    return words.merged(found)


def _advice(judged: _Judged, files: int) -> str:
    """What to do, and where the nearest miss stands; the file's folder is left out where there is one file only."""
    wanted = _wanted(judged)
    place = next((one for why in judged.reasons for one in why.evidence), None)
    if place is None:
        return wanted
    return f"{wanted} at {PurePath(place.path).name if files == 1 else place.path}:{place.line}"


def _wanted(judged: _Judged) -> str:
    """The failed filter where the property is there with a wrong parameter; else the item's own sentence."""
    if judged.value is not None and judged.verdict is Verdict.PARTIAL:
        failed = [
            f"{term.term.property} with {render_filter(one.filter)}"
            for term in judged.value.worst.decisive
            for one in term.filters
            if one.holds is False
        ]
        if failed:
            return ", ".join(failed)
    return judged.item.title


def _guards(reports: Iterable[FileReport]) -> tuple[GuardFinding, ...]:
    """One answer for each guard over all files: suspected if any file is."""
    found: dict[str, GuardFinding] = {}
    for report in reports:
        for guard in report.guards:
            before = found.get(guard.id)
            if before is None or (before.status != "suspected" and guard.status == "suspected"):
                found[guard.id] = guard
            elif guard.status == "suspected":
                detail = "; ".join(dict.fromkeys((before.detail, guard.detail)))
                found[guard.id] = GuardFinding(guard.id, "suspected", detail, before.evidence + guard.evidence)
    return tuple(found.values())


def _problems(submission: Submission) -> tuple[Why, ...]:
    problems = [problem for report in submission.reports for problem in report.problems]
    if not submission.launched and not submission.unreadable:
        problems.append(_nothing_launched(submission))
    return tuple(problems)


def _nothing_launched(submission: Submission) -> Why:
    idle: Sequence[str] = [f"`{kernel.name}`" for _, kernel in submission.idle]
    if not idle:
        return Why(Reason.NO_TRACE, "the submission has no kernel")
    detail = f"nothing launches {', '.join(idle)}: every item is missing; give the file whose host code launches it too"
    place = [
        Evidence(path, kernel.line, kernel.end_line, Tier.SOURCE, f"`{kernel.name}` is never launched")
        for path, kernel in submission.idle
    ]
    return Why(Reason.DEAD_CODE, detail, tuple(place))
