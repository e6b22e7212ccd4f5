"""Diagnostics as text for people and programs: `human`, `json`, `sarif` and `github`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from d2k import __version__
from d2k.compiler.diagnostics import CODES, Diagnostic, Severity, title
from d2k.compiler.source import Span
from d2k.report.github import workflow_command
from d2k.report.sarif import uri

SCHEMA = "d2k/diagnostics/1"

_COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.HINT: "36"}
_MAX_LINE = 160
"""Longest piece of a source line that is shown."""


def render(diagnostics: Sequence[Diagnostic], form: str, colour: bool = False, files: int | None = None) -> str:
    """All messages in one text, without a final line end.

    `form` is human, json, sarif or github; `colour` and `files`, the number of files that were read, matter only to
    human.
    """
    if form == "human":
        return render_human(diagnostics, colour, files)
    forms: dict[str, Callable[[Sequence[Diagnostic]], str]] = {
        "json": render_json,
        "sarif": render_sarif,
        "github": render_github,
    }
    return forms[form](diagnostics)


# ---- human -----------------------------------------------------------------------------------------------------------


def render_human(diagnostics: Sequence[Diagnostic], colour: bool, files: int | None = None) -> str:
    """Messages with their source line and a caret, then a line that counts them; empty without messages."""
    if not diagnostics:
        return ""
    paint = _paint if colour else _plain
    blocks = ["\n".join(_message(one, paint)) for one in diagnostics]
    return "\n\n".join([*blocks, _summary(diagnostics, files)])


def _paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if text else text


def _plain(text: str, code: str) -> str:
    return text


def _message(one: Diagnostic, paint: Callable[[str, str], str]) -> Iterator[str]:
    shade = _COLOURS[one.severity]
    line, column = one.span.source.place(one.span.start)
    gutter = len(str(line))
    edge = " " * gutter + " " + paint("|", "34")
    yield paint(f"{one.severity}[{one.code}]", f"1;{shade}") + paint(f": {one.message}", "1")
    yield " " * gutter + paint("-->", "34") + f" {one.span.path}:{line}:{column}"
    if one.span.source.text:
        shown, before, width = _excerpt(one.span)
        yield edge
        yield paint(f"{line} |", "34") + (f" {shown}" if shown else "")
        caret = paint("^" * width + (f" {one.label}" if one.label else ""), f"1;{shade}")
        yield f"{edge} {' ' * before}{caret}"
    tails = [("note", _note(note.text, note.span)) for note in one.notes]
    helps = [one.help] if one.help else []
    if one.fix is not None:
        action = f"{one.help}  " if one.help else f"{one.fix.title}  "
        helps = [f"{action}(d2kc check --fix applies it)"]
    tails += [("help", text) for text in helps]
    if tails:
        yield edge
    for kind, text in tails:
        yield " " * gutter + " " + paint(f"= {kind}:", "1") + f" {text}"


def _note(text: str, span: Span | None) -> str:
    if span is None:
        return text
    line, column = span.source.place(span.start)
    return f"{text}: {span.path}:{line}:{column}"


def _excerpt(span: Span) -> tuple[str, int, int]:
    """The source line of a span's start, cut to a window, with columns before the caret and the caret's width.

    Tabs become a space and wide characters keep their own width, so that the caret stands under what it means.
    """
    number, column = span.source.place(span.start)
    text = span.source.line(number)
    begin = column - 1
    end = max(begin + 1, min(begin + max(span.end - span.start, 1), len(text)))
    left = max(0, begin - _MAX_LINE // 2) if len(text) > _MAX_LINE else 0
    right = left + _MAX_LINE
    shown = text[left:right]
    visible = "".join(character if character.isprintable() else " " for character in shown)
    prefix, suffix = ("…" if left else ""), ("…" if right < len(text) else "")
    before = len(prefix) + _columns(visible[: begin - left])
    width = max(1, _columns(visible[begin - left : end - left]))
    return f"{prefix}{visible}{suffix}".rstrip(), before, width


def _columns(text: str) -> int:
    """Columns on a terminal: two for wide characters, none for marks that combine."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _summary(diagnostics: Sequence[Diagnostic], files: int | None) -> str:
    counts = [
        _count(sum(one.severity is severity for one in diagnostics), severity)
        for severity in Severity
        if any(one.severity is severity for one in diagnostics)
    ]
    files = len({one.span.path for one in diagnostics}) if files is None else files
    worst = min(diagnostics, key=lambda one: list(Severity).index(one.severity))
    return f"{', '.join(counts)} in {_count(files, 'file')}. `d2kc explain {worst.code}` says more."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _json_range(span: Span) -> dict[str, object]:
    line, column = span.source.place(span.start)
    end_line, end_column = span.end_place
    return {
        "path": span.path,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
    }


def render_json(diagnostics: Sequence[Diagnostic]) -> str:
    """`{"schema", "diagnostics": […]}`; lines and columns count code points from 1, an end lies behind the last one."""
    return _encode({"schema": SCHEMA, "diagnostics": [_json_one(one) for one in diagnostics]})


def _json_one(one: Diagnostic) -> dict[str, object]:
    found: dict[str, object] = {
        "code": one.code,
        "severity": one.severity.value,
        "message": one.message,
        "label": one.label,
        "help": one.help,
        **_json_range(one.span),
        "notes": [{"text": note.text, "place": note.span and _json_range(note.span)} for note in one.notes],
        "fix": None,
    }
    if one.fix is not None:
        edits = [{**_json_range(edit.span), "replacement": edit.replacement} for edit in one.fix.edits]
        found["fix"] = {"title": one.fix.title, "edits": edits}
    return found


def _encode(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


# ---- SARIF 2.1.0 -----------------------------------------------------------------------------------------------------

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_SARIF_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.HINT: "note"}


def render_sarif(diagnostics: Sequence[Diagnostic]) -> str:
    """A SARIF log of one run; its rules are the codes that occur."""
    codes = sorted({one.code for one in diagnostics})
    driver = {
        "name": "d2kc",
        "version": __version__,
        "rules": [_sarif_rule(code) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(one, codes.index(one.code)) for one in diagnostics],
    }
    return _encode({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


def _sarif_rule(code: str) -> dict[str, object]:
    return {
        "id": code,
        "shortDescription": {"text": title(code)},
        "defaultConfiguration": {"level": _SARIF_LEVELS[CODES[code].severity]},
    }


def _sarif_result(one: Diagnostic, rule: int) -> dict[str, object]:
    text = one.message if not one.label else f"{one.message} ({one.label})"
    found: dict[str, object] = {
        "ruleId": one.code,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS[one.severity],
        "message": {"text": f"{text}. {one.help}" if one.help else text},
        "locations": [_sarif_location(one.span)],
    }
    related = [
        {**_sarif_location(note.span), "id": number, "message": {"text": note.text}}
        for number, note in enumerate(one.notes)
        if note.span is not None
    ]
    if related:
        found["relatedLocations"] = related
    if one.fix is not None:
        changes: dict[str, list[dict[str, object]]] = {}
        for edit in one.fix.edits:
            changes.setdefault(edit.span.path, []).append(
                {"deletedRegion": _sarif_region(edit.span), "insertedContent": {"text": edit.replacement}}
            )
        found["fixes"] = [
            {
                "description": {"text": one.fix.title},
                "artifactChanges": [
                    {"artifactLocation": {"uri": uri(path)}, "replacements": edits} for path, edits in changes.items()
                ],
            }
        ]
    return found


def _sarif_location(span: Span) -> dict[str, object]:
    return {"physicalLocation": {"artifactLocation": {"uri": uri(span.path)}, "region": _sarif_region(span)}}


def _sarif_region(span: Span) -> dict[str, object]:
    line, column = span.source.place(span.start)
    end_line, end_column = span.end_place
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


# ---- GitHub annotations ----------------------------------------------------------------------------------------------

_GITHUB_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.HINT: "notice"}


def render_github(diagnostics: Sequence[Diagnostic]) -> str:
    """One workflow command a message."""
    return "\n".join(_github_one(one) for one in diagnostics)


def _github_one(one: Diagnostic) -> str:
    line, column = one.span.source.place(one.span.start)
    end_line, end_column = one.span.end_place
    properties = {"file": one.span.path, "line": line, "endLine": end_line, "col": column, "endColumn": end_column}
    if end_line != line:
        del properties["col"], properties["endColumn"]  # columns are allowed only within one line
    properties["title"] = one.code
    text = f"{one.message}\n{one.help}" if one.help else one.message
    command = _GITHUB_COMMANDS[one.severity]
    return workflow_command(command, {name: str(value) for name, value in properties.items()}, text)
