"""Colours for a terminal, or none."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.spec.audit import Verdict
from d2k.spec.finding import Status

MARKS = {
    Verdict.IMPLEMENTED: "✓",
    Verdict.MISSING: "✗",
    Verdict.PARTIAL: "~",
    Verdict.UNKNOWN: "?",
    Verdict.CONTRADICTED: "!",
    Verdict.NOT_APPLICABLE: "–",
}
"""One sign for each verdict; nothing is said by colour alone."""

_VERDICT_STYLE = {
    Verdict.IMPLEMENTED: "32",
    Verdict.MISSING: "31",
    Verdict.PARTIAL: "33",
    Verdict.UNKNOWN: "35",
    Verdict.CONTRADICTED: "1;31",
    Verdict.NOT_APPLICABLE: "2",
}
_STATUS_STYLE = {Status.PRESENT: "32", Status.ABSENT: "2", Status.UNKNOWN: "35"}


@dataclass(frozen=True, slots=True)
class Paint:
    """Wraps text in ANSI sequences where `colour` is true; lay text out before painting it."""

    colour: bool

    def verdict(self, verdict: Verdict, text: str) -> str:
        return self._wrap(_VERDICT_STYLE[verdict], text)

    def status(self, status: Status, text: str) -> str:
        return self._wrap(_STATUS_STYLE[status], text)

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def warning(self, text: str) -> str:
        return self._wrap("1;33", text)

    def _wrap(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and text.strip() else text
