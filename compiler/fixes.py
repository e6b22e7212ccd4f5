"""Apply the machine-applicable fixes of diagnostics to a text."""

from __future__ import annotations

from collections.abc import Sequence

from d2k.compiler.diagnostics import Diagnostic


def apply(text: str, diagnostics: Sequence[Diagnostic]) -> tuple[str, int]:
    """The text with the fixes of its diagnostics applied, and how many were.

    Fixes of other files, such as modules in use, are left out. A fix is applied whole or not at all; one that overlaps
    an earlier one waits for the next run.
    """
    taken: list[tuple[int, int, str]] = []
    applied = 0
    for one in diagnostics:
        if one.fix is None or any(edit.span.source.text != text for edit in one.fix.edits):
            continue
        edits = [(edit.span.start, edit.span.end, edit.replacement) for edit in one.fix.edits]
        if any(_overlap(edit, other) for edit in edits for other in taken):
            continue
        taken.extend(edits)
        applied += 1
    pieces = []
    position = 0
    for start, end, replacement in sorted(taken):
        pieces += [text[position:start], replacement]
        position = end
    return "".join([*pieces, text[position:]]), applied


def _overlap(one: tuple[int, int, str], other: tuple[int, int, str]) -> bool:
    """Two insertions at the same place count as an overlap: their order would be a guess."""
    return one[:2] == other[:2] or (one[0] < other[1] and other[0] < one[1])
