"""The audit of a kernel against a task's guidance. `Audit` is what `d2kc audit --json` prints."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from d2k.spec.finding import Evidence, GuardFinding, KernelSummary, Why
from d2k.spec.vocabulary import Level, Tier


class Verdict(StrEnum):
    NOT_APPLICABLE = "not_applicable"
    CONTRADICTED = "contradicted"
    IMPLEMENTED = "implemented"
    MISSING = "missing"
    PARTIAL = "partial"
    UNKNOWN = "unknown"


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credit between 0 and 1: `low` if all that is unknown is absent, `high` if it is present."""

    low: float
    high: float


class TermAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One term of an item's check: its text, its status and what was found beside what was wanted."""

    text: str
    status: str
    credit: Interval
    found: str = ""


class ItemAudit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One guidance item. `credit` equals `interval.low`; `fact` says in a few words what was found."""

    id: str
    level: Level
    title: str
    check: str
    requires: tuple[str, ...]
    weight: float
    verdict: Verdict
    credit: float
    interval: Interval
    gated_credit: float
    fact: str
    free: bool = False
    reasons: tuple[Why, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    terms: tuple[TermAudit, ...] = ()


class RootCause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A missing item under which others are missing, and what the combined score would gain with all of them."""

    id: str
    unlocks: tuple[str, ...]
    points: float


class NextStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to implement next, best first: points of the combined score, and a sentence with a place where known."""

    id: str
    points: float
    advice: str


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """0 to 100; None where a level, or the whole task, has no applicable item. Keys of `levels`: L1, L2, L3."""

    combined: float | None
    low: float | None
    high: float | None
    L1: float | None
    L2: float | None
    L3: float | None
    gated: float | None
    free: float | None
    dropped_levels: tuple[Level, ...] = ()


class Audit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    task: str
    task_hash: str
    files: tuple[str, ...]
    target: str
    tool: str
    tiers: tuple[Tier, ...]
    kernels: tuple[KernelSummary, ...]
    items: tuple[ItemAudit, ...]
    score: Score
    root_causes: tuple[RootCause, ...]
    next_steps: tuple[NextStep, ...]
    guards: tuple[GuardFinding, ...]
    problems: tuple[Why, ...] = ()
