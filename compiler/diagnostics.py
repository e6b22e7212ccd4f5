"""Every message of the compiler: one table of codes, the record of one message, and help for suggestions.

Ranges: 01 text and lexis, 02 syntax, 03 names, 04 guidance, 05 types and units, 06 values and workloads, 07 vocabulary,
08 lints, 09 files. A code never changes its meaning. Long forms with examples are `explanations/<code>.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from importlib.resources import files

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
        Code("D2K0101", _E, "this file is not UTF-8 text: {problem}", "{label}", "save it as UTF-8"),
        Code("D2K0102", _E, "this file is larger than {limit} MiB", "", "a specification has some hundred lines"),
        Code("D2K0103", _E, "this is a binary file: it contains a null character", "U+0000"),
        Code(
            "D2K0104",
            _E,
            "this string does not end on its line",
            'no closing `"`',
            'close it; text over several lines stands in `"""`',
        ),
        Code("D2K0105", _E, "`{escape}` is no escape", "unknown escape", 'known are \\n \\t \\" \\\\ and \\u{{1F600}}'),
        Code("D2K0106", _E, "this block string is never closed", 'no closing `"""`'),
        Code(
            "D2K0107",
            _E,
            "`{number}` is no number",
            "malformed number",
            "write 4096, 1_000, 0.5, 1e-3, 99.9%, 64KiB or 5us",
        ),
        Code("D2K0108", _E, "this integer does not fit into 64 bits", "larger than 9223372036854775807"),
        Code("D2K0109", _E, "this number is too large", "larger than the largest 64-bit float"),
        Code("D2K0110", _E, "this file says nothing", "empty", "begin with `d2k 1`, then a task or a property"),
        Code("D2K0111", _E, "the character {character} has no meaning here", "unexpected character"),
        Code(
            "D2K0112",
            _E,
            "`{word}` is no name",
            "letters outside ASCII",
            "names consist of a-z, A-Z, 0-9 and _; other letters may stand in texts and comments",
        ),
        Code("D2K0113", _E, "texts stand in plain double quotes", "other quotes", 'write `"…"`'),
        Code("D2K0114", _E, "{character} looks like `{sign}` but is another character", "write `{sign}`"),
        # ---- 02 syntax
        Code("D2K0201", _E, "unexpected {found}", "{expected}"),
        Code("D2K0202", _E, "a value is missing{before}", "expected a value"),
        Code("D2K0203", _E, "`{sign}` is missing before {before}", "expected `{sign}`"),
        Code("D2K0204", _E, "this {block} is never closed", "no matching `}}`"),
        Code("D2K0205", _E, "this `{bracket}` closes nothing that is open", "one too many"),
        Code("D2K0206", _E, "`{word}` is no statement of {block}", "unknown statement"),
        Code("D2K0207", _E, "`{word}` belongs in {home}, not in {block}", "misplaced"),
        Code("D2K0208", _E, "`{word}` is no level", "unknown level", "levels are L1, L2 and L3"),
        Code("D2K0209", _E, "`=` does not compare values", "comparison is `==`"),
        Code("D2K0210", _E, "a filter compares with a single `=`", "write `=`"),
        Code("D2K0211", _E, "comparisons cannot be chained", "second comparison", "write `a < b and b < c`"),
        Code("D2K0212", _E, "a condition stands before its values", "Python's order", "write `if c then x else y`"),
        Code("D2K0213", _E, "`{operator}` is written `{word}` here", "write `{word}`"),
        Code("D2K0214", _E, "statements end without `;`", "remove it"),
        Code("D2K0215", _E, "`{tensor}` has a second `{clause}`", "second `{clause}`"),
        Code("D2K0216", _E, "a second `{statement}` in the same block", "may stand only once"),
        Code(
            "D2K0217", _E, "this is nested too deeply", "begins here", "name a part with `let`, or use `sum` of a list"
        ),
        Code("D2K0218", _E, "`{word}` is a reserved word", "cannot be a name"),
        Code("D2K0219", _E, "a text in quotes is missing{before}", 'expected `"…"`'),
        Code("D2K0220", _E, "a name is missing{before}", "expected a name"),
        Code("D2K0221", _E, "comments begin with `#`", "no comment here"),
        Code(
            "D2K0222",
            _E,
            "`{number}` is a percentage",
            "a number that touches `%`",
            "for the remainder put a space before `%`",
        ),
        Code(
            "D2K0223", _E, "a block stands in braces", "no `:` here", "write `{{` here and `}}` at the end of the block"
        ),
        Code("D2K0224", _E, "more than {count} syntax errors", "the rest was not read"),
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
        Code("D2K0508", _E, "there is no {kind} type `{name}`", "unknown type", "known are {known}"),
        Code("D2K0509", _E, "an {direction} has no {clause}", "does not belong here", "{reason}"),
        Code("D2K0510", _E, "nothing says what `{name}` contains", "no distribution and no draw", "write `~ normal()`"),
        Code("D2K0511", _E, "the contents of `{name}` are given twice", "second source"),
        Code("D2K0512", _E, "{problem}", "no distribution", "families are {known}"),
        Code("D2K0513", _E, "{problem}", "out of range"),
        Code("D2K0514", _E, "{problem}", "too deep"),
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
        Code("D2K0802", _W, "this filter of `{attribute}` is always true", "filters nothing"),
        Code("D2K0803", _H, "`{implied}` follows from `{property}`", "always true here", "leave it out"),
        Code("D2K0805", _W, "task `{name}` has no `reference`", "nothing can be judged yet"),
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


_LISTED = 400
"""What may be written is a list that somebody has to see whole."""


def diagnostic(code: str, span: Span, **details: object) -> Diagnostic:
    """A message of the table with its templates filled in; long details are cut."""
    entry = CODES[code]
    words = {name: _short(str(value), _LISTED if name in ("known", "type") else 80) for name, value in details.items()}
    return Diagnostic(
        entry.id,
        entry.severity,
        entry.message.format(**words),
        span,
        entry.label.format(**words),
        entry.help.format(**words),
    )


def explain(code: str) -> str | None:
    """The long form of a code as Markdown: what is wrong, why, and an example of each; None for an unknown code."""
    entry = CODES.get(code)
    if entry is None:
        return None
    text = files("d2k.compiler").joinpath("explanations", f"{code}.md").read_text(encoding="utf-8")
    return text.replace("# ", f"# {entry.severity}[{code}]: ", 1)


def title(code: str) -> str:
    """A code in a few words."""
    text = files("d2k.compiler").joinpath("explanations", f"{code}.md").read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is most likely a misspelling of; None if none is near.

    Edits are insertion, deletion, substitution and the swap of neighbours; one for every three letters is near.
    """
    allowed = max(1, (len(word) + 1) // 3)
    best: tuple[int, str] | None = None
    for candidate in known:
        if candidate == word or abs(len(candidate) - len(word)) > allowed:
            continue
        distance = edit_distance(word.lower(), candidate.lower(), allowed)
        if distance <= allowed and (best is None or (distance, candidate) < best):
            best = (distance, candidate)
    return best[1] if best else None


def edit_distance(left: str, right: str, limit: int) -> int:
    """Distance with swaps of neighbours (optimal string alignment); anything above `limit` may be given as `limit +
    1`.
    """
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    two_back: list[int] = []
    back = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        row = [i]
        for j, b in enumerate(right, 1):
            cost = min(back[j] + 1, row[j - 1] + 1, back[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, two_back[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        two_back, back = back, row
    return back[-1]


def _short(text: str, limit: int) -> str:
    if not text.isprintable():
        text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[:limit])
    return text if len(text) <= limit else text[: limit - 1] + "…"
