"""What `d2kc fmt` would change in each file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from d2k.cli.inputs import expand, read_bytes
from d2k.cli.specs import SUFFIXES, read
from d2k.compiler.diagnostics import Severity
from d2k.compiler.format import format_text
from d2k.report.diagnostics import render


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after; `problem` says why it cannot be formatted, "" if it can."""

    path: str
    before: str
    after: str
    problem: str = ""

    def diff(self) -> str:
        from difflib import unified_diff

        lines = (self.before.splitlines(keepends=True), self.after.splitlines(keepends=True))
        return "".join(unified_diff(*lines, self.path, f"{self.path} (formatted)"))


def changes(names: Sequence[str]) -> Iterator[Change]:
    """One change for each file; a file with syntax errors is left alone."""
    for path in expand(names, SUFFIXES):
        parsed = read(path)
        errors = tuple(one for one in parsed.diagnostics if one.severity is Severity.ERROR)
        if errors:
            yield Change(path, "", "", render(errors, "human", False, files=1))
        else:
            yield Change(path, parsed.source.text if path == "-" else _raw(path), format_text(parsed.source.text))


def _raw(path: str) -> str:
    """The file as it is, so that a changed line end or byte-order mark counts as a change."""
    return read_bytes(path).decode("utf-8")
