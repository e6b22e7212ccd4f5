"""A kernel's source: highlighted, with the lines marked on which verdicts rest."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from d2k.report.html.markup import Markup, element, join, text
from d2k.report.layout import link_to, source_lines
from d2k.spec.audit import ItemAudit, Verdict

LONGEST_LINE = 2000
"""Characters of a line that are shown."""
MOST_LINES = 6000
"""Longer files are shown around the marked lines only."""
CONTEXT = 15
HIGHLIGHTED = 400_000
"""Characters up to which a file is highlighted."""

WORST_FIRST = (
    Verdict.CONTRADICTED,
    Verdict.MISSING,
    Verdict.PARTIAL,
    Verdict.UNKNOWN,
    Verdict.IMPLEMENTED,
    Verdict.NOT_APPLICABLE,
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A piece of evidence in one file: lines `first` to `last`, for the item at `index` of the audit."""

    first: int
    last: int
    index: int
    item: ItemAudit


def line_id(file: int, line: int) -> str:
    return f"L{file}-{line}"


def source(file: int, path: str, content: str, marks: Sequence[Mark]) -> Markup:
    """One file as a block that can be folded."""
    lines = source_lines(content)
    if lines and not lines[-1]:
        lines.pop()
    by_line = _by_line(marks, len(lines))
    shown = _shown(len(lines), by_line)
    coloured = _highlighted(path, content, len(lines)) if len(content) <= HIGHLIGHTED else None
    rows: list[Markup] = []
    previous = 0
    for number in shown:
        if number != previous + 1:
            rows.append(_gap(number - previous - 1))
        code = coloured[number - 1] if coloured is not None else _plain(lines[number - 1])
        rows.append(_row(file, number, code, by_line.get(number, [])))
        previous = number
    if previous < len(lines):
        rows.append(_gap(len(lines) - previous))
    count = len({mark.first for mark in marks})
    head = element(
        "summary",
        element("span", path, class_="path"),
        element("span", f"{len(lines)} lines, {count} marked", class_="quiet"),
    )
    code_block = element("div", *rows, class_="code", tabindex="0", role="region", aria_label=f"Source of {path}")
    return element("details", head, code_block, class_="file", open=True)


def _by_line(marks: Sequence[Mark], lines: int) -> dict[int, list[Mark]]:
    found: dict[int, list[Mark]] = {}
    for mark in marks:
        for number in range(max(mark.first, 1), min(mark.last, lines) + 1):
            found.setdefault(number, []).append(mark)
    return found


def _shown(lines: int, marked: Mapping[int, object]) -> Sequence[int]:
    if lines <= MOST_LINES:
        return range(1, lines + 1)
    near = {other for number in marked for other in range(number - CONTEXT, number + CONTEXT + 1)}
    return sorted(number for number in (near or range(1, CONTEXT)) if 1 <= number <= lines)[:MOST_LINES]


def _gap(lines: int) -> Markup:
    return element("div", f"{lines} lines not shown", class_="gap")


def _row(file: int, number: int, code: Markup, marks: Sequence[Mark]) -> Markup:
    cells = [element("span", str(number), class_="no"), element("code", code)]
    if not marks:
        return element("div", *cells, class_="line", id=line_id(file, number))
    worst = min((mark.item.verdict for mark in marks), key=WORST_FIRST.index)
    items = {mark.index: mark.item for mark in marks if mark.first == number}
    if items:
        cells.append(element("span", *(_chip(item) for item in items.values()), class_="chips"))
    indices = " ".join(str(index) for index in dict.fromkeys(mark.index for mark in marks))
    return element("div", *cells, class_=f"line marked {worst}", id=line_id(file, number), data_items=indices)


def _chip(item: ItemAudit) -> Markup:
    label = f"{item.id}, {item.verdict.replace('_', ' ')}"
    return element("a", item.id, class_=f"chip {item.verdict}", href=link_to(item.id), aria_label=label)


def _plain(line: str) -> Markup:
    return text(_cut(line))


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} … {len(line) - LONGEST_LINE} more characters"


def _highlighted(path: str, content: str, lines: int) -> list[Markup] | None:
    """The lines of a file with its words in classes; None where the highlighter counts lines otherwise."""
    from pygments.lexer import Lexer
    from pygments.lexers import get_lexer_by_name

    name = "python" if path.endswith((".py", ".pyi")) else "cuda"
    lexer: Lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
    rows: list[list[str]] = [[]]
    lengths = [0]
    for kind, value in lexer.get_tokens(content):
        style = _style(str(kind))
        pieces = value.split("\n")
        for index, piece in enumerate(pieces):
            if index:
                rows.append([])
                lengths.append(0)
            if piece:
                room = LONGEST_LINE - lengths[-1]
                lengths[-1] += len(piece)
                if room > 0:
                    rows[-1].append(element("span", piece[:room], class_=style) if style else text(piece[:room]))
    if len(rows) == lines + 1 and not rows[-1]:
        rows.pop()
        lengths.pop()
    if len(rows) != lines:
        return None
    return [join(*row, *_rest(length)) for row, length in zip(rows, lengths, strict=True)]


def _rest(length: int) -> Iterator[str]:
    if length > LONGEST_LINE:
        yield f" … {length - LONGEST_LINE} more characters"


_STYLES = (
    ("Token.Comment", "c"),
    ("Token.Keyword", "k"),
    ("Token.Literal.Number", "m"),
    ("Token.Literal.String", "s"),
    ("Token.Name.Builtin", "b"),
    ("Token.Name.Class", "f"),
    ("Token.Name.Decorator", "d"),
    ("Token.Name.Function", "f"),
    ("Token.Operator.Word", "k"),
)
_PREFIXES = tuple(prefix for prefix, _ in _STYLES)


def _style(kind: str) -> str:
    """The class of a token, by the last prefix that is not greater than its name."""
    at = bisect_right(_PREFIXES, kind) - 1
    return _STYLES[at][1] if at >= 0 and kind.startswith(_PREFIXES[at]) else ""
