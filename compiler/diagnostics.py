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
        # ---- 03 names
        Code("D2K0301", _E, "`{name}` is declared twice", "second declaration"),
        Code("D2K0302", _E, "`{name}` cannot be declared: {reason}", "reserved name", "choose another name"),
        Code("D2K0303", _E, "`{name}` is not defined here", "unknown name"),
        Code("D2K0304", _E, "there is no function `{name}`", "unknown function"),
        Code("D2K0305", _E, "the task has no {kind} `{name}`", "unknown {kind}"),
        Code("D2K0306", _E, "`{name}` is no known architecture", "unknown architecture", "known are {known}"),
        Code("D2K0307", _E, "there is no hardware feature `{name}`", "unknown feature", "known are {known}"),
        Code("D2K0308", _E, "there is no module `{name}`", "not found", "looked for {tried}"),
        Code("D2K0309", _E, "modules use each other in a circle: {path}", "closes the circle"),
        Code("D2K0310", _E, "there is no pattern `{name}`", "unknown pattern"),
        Code("D2K0311", _E, "the task gives no tensor or axis the role `{role}`", "role without a bearer"),
        Code("D2K0312", _E, "property `{name}` does not exist", "unknown property"),
        Code(
            "D2K0313", _E, "`{name}` is a property of level {level}, the item is {wanted}", "property of another level"
        ),
        Code("D2K0314", _E, "property `{property}` has no attribute `{name}`", "unknown attribute"),
        Code("D2K0315", _E, "`{value}` is no value of `{attribute}`, which is {type}", "value outside its type"),
        Code(
            "D2K0316", _E, "`{operator}` does not fit `{attribute}`, which is {type}", "wrong operator", "use {fitting}"
        ),
        Code("D2K0317", _E, "there is no quantifier `{name}`", "unknown quantifier", "the only one is `all_kernels`"),
        Code(
            "D2K0318",
            _E,
            "`not` may stand only beside something that must be present, at the top of a check",
            "guard without a positive part",
            "a check of guards only would reward an empty kernel; write `wanted and not unwanted`",
        ),
        Code("D2K0319", _E, "{problem}", "in this include"),
        Code("D2K0320", _E, "patterns include each other in a circle: {path}", "closes the circle"),
        Code("D2K0321", _E, "no kernel can satisfy the filters of `{attribute}`", "contradictory filters"),
        Code("D2K0322", _E, "`{first}` excludes `{second}`", "never present together"),
        Code("D2K0323", _E, "there is no tag `{name}`", "unknown tag", "known are edge, latency, held_out"),
        Code("D2K0324", _E, "there is no engine `{name}`", "unknown engine", "known are {known}"),
        Code("D2K0325", _E, "a tolerance has no setting `{name}`", "unknown setting", "known are {known}"),
        Code("D2K0326", _E, "{owner} `{name}` has no `{statement}`", "`{statement}` is missing"),
        Code("D2K0327", _E, "nothing says when output `{name}` is right", "no tolerance and no compare"),
        Code("D2K0328", _E, "output `{name}` is judged twice", "second judgement"),
        # ---- 04 guidance
        Code("D2K0401", _E, "there is no item `{name}` to require", "unknown item"),
        Code("D2K0402", _E, "`{item}` requires `{name}` {how}", "requirement without meaning"),
        Code(
            "D2K0403",
            _E,
            "`{item}` ({level}) rests on no L1 item",
            "no insight behind it",
            "require an item that leads to L1",
        ),
        Code("D2K0404", _E, "the weight of an item must be a positive number", "not positive"),
        Code(
            "D2K0406",
            _E,
            "`{item}` ({level}) requires `{name}` ({lower}): requirements never point down",
            "points down",
        ),
        Code("D2K0407", _E, "requirements form a cycle: {path}", "{path}"),
        Code("D2K0408", _H, "`{name}` is required through `{through}` already", "redundant", "leave it out"),
        Code("D2K0409", _W, "no item builds on the insight `{item}`", "L1 item that nothing requires"),
        Code("D2K0410", _W, "`{item}` applies to no workload on any target", "never applies"),
        Code("D2K0411", _W, "{share} of the weight of {level} is `free`, at most 30% may be", "free items: {items}"),
        # ---- 05 types and units
        Code("D2K0501", _E, "{problem}", "wrong type"),
        Code("D2K0502", _E, "{problem}", "wrong arguments"),
        Code("D2K0503", _E, "{problem}", "not possible here"),
        Code("D2K0504", _E, "functions call each other in a circle: {path}", "closes the circle"),
        Code("D2K0505", _E, "there is no element type `{name}`", "unknown type", "known are {known}"),
        Code(
            "D2K0506", _E, "elements of `{name}` have no address of their own", "needs a container", "write `packed u8`"
        ),
        Code("D2K0507", _E, "`{container}` cannot hold packed `{name}`", "unsuitable container", "known are {known}"),
        Code("D2K0508", _E, "there is no axis type `{name}`", "unknown type", "known are {known}"),
        Code("D2K0509", _E, "an {direction} has no {clause}", "does not belong here", "{reason}"),
        Code("D2K0510", _E, "nothing says what `{name}` contains", "no distribution and no draw", "write `~ normal()`"),
        Code("D2K0511", _E, "the contents of `{name}` are given twice", "second source"),
        Code("D2K0512", _E, "{problem}", "no distribution", "families are {known}"),
        Code("D2K0513", _E, "{problem}", "out of range"),
        # ---- 06 values and workloads
        Code("D2K0601", _E, "workload `{workload}`: {problem}", "divides by zero"),
        Code("D2K0602", _E, "workload `{workload}`: {problem}", "too large"),
        Code("D2K0603", _E, "workload `{workload}`: {problem}", "not defined"),
        Code("D2K0604", _E, "workload `{workload}`: {problem}", "too long"),
        Code("D2K0605", _E, "workload `{workload}`: {problem}", "too much work"),
        Code("D2K0606", _E, "workload `{workload}`: `{tensor}` would have extent {extent}", "not positive"),
        Code("D2K0607", _E, "workload `{workload}` breaks a condition of the task: {condition}", "false for {values}"),
        Code("D2K0608", _E, "workload `{workload}`: `bytes` is {written}, the tensors move {moved}", "does not agree"),
        Code("D2K0609", _E, "workload `{workload}`: {what} is {value}", "must be {wanted}"),
        Code("D2K0610", _E, "workload `{workload}` gives no value for {axes}", "incomplete"),
        Code("D2K0611", _E, "workload `{workload}`: {problem}", "cannot be drawn"),
        Code(
            "D2K0612",
            _E,
            "workload `{workload}`: last extent {extent} of `{tensor}` does not fill {container}",
            "not whole",
        ),
        Code("D2K0614", _W, "every workload is held out", "an agent would see none"),
        Code("D2K0615", _W, "workload `{workload}` has the axes of `{other}`", "measures the same"),
        # ---- 07 vocabulary
        Code("D2K0701", _E, "there is no {kind} `{name}`", "unknown {kind}", "known are {known}"),
        Code("D2K0702", _E, "an attribute of type `{kind}` {problem}", "in this type"),
        Code("D2K0703", _E, "property `{name}` {how} itself", "without meaning"),
        # ---- 08 lints
        Code("D2K0801", _W, "{kind} `{name}` is never used", "unused"),
        Code("D2K0802", _W, "this filter of `{attribute}` is always true", "filters nothing", "{help}"),
        Code("D2K0803", _H, "`{implied}` follows from `{property}`", "always true here", "leave it out"),
        Code("D2K0804", _W, "task `{name}` has no baseline `eager`", "nothing to compare with"),
        # ---- 09 files
        Code("D2K0911", _E, "there is no file `{path}` beside the task", "missing file"),
        Code("D2K0912", _E, "`{path}` is no Python file beside the task", "not allowed", "name it as `reference.py`"),
        Code("D2K0913", _E, "`{path}` defines no `{name}`", "not found"),
        Code("D2K0914", _E, "{problem}", "expected one task"),
        Code("D2K0915", _E, "this is version {version} of the language; known is {known}", "unknown version"),
        Code("D2K0917", _E, "modules nest deeper than {limit} levels", "one too many"),
        Code("D2K0918", _E, "module `{path}` cannot be read: {problem}", "unreadable"),
        Code(
            "D2K0916",
            _W,
            "the file does not say which version of the language it is written in",
            "",
            "begin with `d2k 1`",
        ),
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
