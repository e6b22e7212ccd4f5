"""Diagnostics as they are found, and the nearest known name to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from d2k.compiler.diagnostics import Diagnostic, Edit, Note, Severity, diagnostic, edit_distance
from d2k.compiler.source import Span

_SHOWN = 40
_SUGGESTIONS = 100
"""In a file with more errors than that, suggestions would cost more than they help."""


class Problems:
    """A list of diagnostics that grows. Within `context` each gets a note that says how one came to its place.

    `lost` are the words of statements that could not be parsed: what is missing may stand there, so that nothing is
    said about it.
    """

    def __init__(self, lost: frozenset[str] = frozenset()) -> None:
        self.found: list[Diagnostic] = []
        self.errors = 0
        self.lost = lost
        self._context: tuple[Note, ...] = ()

    def add(self, one: Diagnostic) -> None:
        self.errors += one.severity is Severity.ERROR
        self.found.append(msgspec.structs.replace(one, notes=one.notes + self._context))

    def report(
        self,
        code: str,
        span: Span,
        *,
        help: str = "",
        note: Note | None = None,
        absent: Iterable[str] = (),
        **details: object,
    ) -> None:
        """A message of the table, with a help or a note of its own where given.

        `absent` are words whose statement would have prevented it.
        """
        if not self.lost.isdisjoint(absent):
            return
        one = diagnostic(code, span, **details)
        if help:
            one = one.with_help(help)
        self.add(one.with_note(note.text, note.span) if note else one)

    def report_unknown(self, code: str, span: Span, name: str, known: Iterable[str], **details: object) -> None:
        """An unknown name, with the nearest known one as a fix."""
        if name in self.lost:
            return
        candidates = tuple(known)
        one = diagnostic(code, span, name=name, known=", ".join(candidates[:_SHOWN]), **details)
        near = nearest(name, candidates) if self.errors < _SUGGESTIONS else None
        if near:
            one = one.with_help(f"did you mean `{near}`?").with_fix(f"write `{near}`", Edit(span, near))
        self.add(one)

    @contextmanager
    def context(self, text: str, span: Span) -> Iterator[None]:
        before = self._context
        self._context = (Note(text, span), *before)
        try:
            yield
        finally:
            self._context = before


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a mistyped one probably meant."""
    from difflib import get_close_matches  # only a file with mistakes needs it

    lowered = {one.lower(): one for one in known if abs(len(one) - len(name)) <= max(3, len(name) // 2)}
    near = get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    return lowered[near[0]] if near and _meant(name.lower(), near[0]) else None


def _meant(name: str, near: str) -> bool:
    """Whether `near` is `name` misspelt, shortened or lengthened: `route` resembles `dropout`, but is another word.

    The suggestion is a fix too, which nobody may look at.
    """
    allowed = max(1, (len(name) + 1) // 3)
    return edit_distance(name, near, allowed) <= allowed or _within(near, name) or _within(name, near)


def _within(short: str, long: str) -> bool:
    """Whether the letters of one word stand in the other, in their order."""
    letters = iter(long)
    return all(letter in letters for letter in short)
