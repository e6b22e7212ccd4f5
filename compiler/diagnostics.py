"""Every message of the compiler: one table of codes, the record of one message, and help for suggestions.

Ranges: 01 text and lexis, 02 syntax, 03 names, 04 guidance, 05 types and units, 06 values and workloads, 07 vocabulary,
08 lints, 09 files. A code never changes its meaning. Long forms with examples are `explanations/<code>.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from d2k.compiler.source import Span


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


class Code(msgspec.Struct, frozen=True):
    """One kind of message. `message` and `label` (the words under the caret) are `str.format` templates."""

    id: str
    severity: Severity
    message: str
    label: str = ""
    help: str = ""


def _table(codes: Iterable[Code]) -> dict[str, Code]:
    table: dict[str, Code] = {}
    for code in codes:
        assert code.id not in table, f"{code.id} is defined twice"
        table[code.id] = code
    return table


_E, _W, _H = Severity.ERROR, Severity.WARNING, Severity.HINT

CODES: dict[str, Code] = _table(
    (
        # ---- 01 text and lexis
        Code("D2K0105", _E, "`{escape}` is no escape", "unknown escape", 'known are \\n \\t \\" \\\\ and \\u{{1F600}}'),
        Code("D2K0108", _E, "this integer does not fit into 64 bits", "larger than 9223372036854775807"),
        Code("D2K0109", _E, "this number is too large", "larger than the largest 64-bit float"),
        # ---- 02 syntax
        Code("D2K0201", _E, "unexpected {found}", "expected {expected}"),
        Code("D2K0215", _E, "`{tensor}` has a second `{clause}`", "second `{clause}`"),
    )
)


class Note(msgspec.Struct, frozen=True):
    text: str
    span: Span | None = None


class Edit(msgspec.Struct, frozen=True):
    """Replace the text of a span; an empty span inserts."""

    span: Span
    replacement: str


class Fix(msgspec.Struct, frozen=True):
    """A change that a program may apply without asking; `title` says what it does."""

    title: str
    edits: tuple[Edit, ...]


class Diagnostic(msgspec.Struct, frozen=True):
    code: str
    severity: Severity
    message: str
    span: Span
    label: str = ""
    help: str = ""
    notes: tuple[Note, ...] = ()
    fix: Fix | None = None

    def with_note(self, text: str, span: Span | None = None) -> Diagnostic:
        return msgspec.structs.replace(self, notes=(*self.notes, Note(text, span)))

    def with_help(self, text: str) -> Diagnostic:
        return msgspec.structs.replace(self, help=text)

    def with_fix(self, title: str, *edits: Edit) -> Diagnostic:
        return msgspec.structs.replace(self, fix=Fix(title, edits))


def diagnostic(code: str, span: Span, **details: object) -> Diagnostic:
    """A message of the table with its templates filled in; long details are cut."""
    entry = CODES[code]
    words = {name: _short(str(value)) for name, value in details.items()}
    return Diagnostic(
        entry.id,
        entry.severity,
        entry.message.format(**words),
        span,
        entry.label.format(**words),
        entry.help.format(**words),
    )


def _short(text: str, limit: int = 80) -> str:
    text = text.replace("\n", "\\n").replace("\t", "\\t")
    return text if len(text) <= limit else text[: limit - 1] + "…"
