"""One item unfolded: its words, its check term by term, the evidence with lines of source, and its way in the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from d2k.report.layout import clean, cut, number, place, short_paths, source_lines, wrap
from d2k.report.paint import MARKS, Paint
from d2k.spec.audit import Audit, ItemAudit, TermAudit
from d2k.spec.finding import Evidence, Status
from d2k.spec.task import Task

_TITLE = 10
_MOST_LINES = 8
"""Lines of source shown of one piece of evidence."""
_MOST_EVIDENCE = 12


def unfold(
    audit: Audit, identifier: str, sources: Mapping[str, str], task: Task | None, paint: Paint, width: int
) -> Iterator[str]:
    """The lines for one item; raises KeyError if there is none of this name."""
    items = {one.id: one for one in audit.items}
    item = items[identifier]
    names = short_paths(audit.files)
    yield f"  {paint.verdict(item.verdict, cut(f'{MARKS[item.verdict]} {clean(item.id)}', width - 6))}  {item.level}"
    yield from (f"  {line}" for line in wrap(_standing(item), width - 2))
    yield from (f"  {paint.bold(line)}" for line in wrap(clean(item.title), width - 2))
    guidance = task.item(identifier) if task is not None else None
    for title, text in (
        ("why", guidance.why if guidance is not None else ""),
        ("hint", guidance.hint if guidance is not None else ""),
        ("when", guidance.when if guidance is not None else ""),
        ("check", item.check),
        ("found", item.fact),
    ):
        yield from _entry(title, text, paint, width)
    for index, term in enumerate(item.terms):
        yield from _term(term, index == 0, item.fact, paint, width)
    for why in item.reasons:
        known = not why.detail or why.detail in item.fact
        yield from _entry("reason", why.reason.replace("_", " ") + ("" if known else f": {why.detail}"), paint, width)
        yield from _evidence(why.evidence, sources, names, paint, width)
    if item.evidence:
        yield from _entry("evidence", "", paint, width)
        yield from _evidence(item.evidence, sources, names, paint, width)
    yield from _way(item, items, paint, width)


def _standing(item: ItemAudit) -> str:
    low, high = number(100 * item.interval.low), number(100 * item.interval.high)
    credit = f"{low} %" if low == high else f"{low} to {high} %"
    return f"{item.verdict.replace('_', ' ')}, credit {credit}, weight {item.weight:g}" + (
        ", free" if item.free else ""
    )


def _entry(title: str, text: str, paint: Paint, width: int) -> Iterator[str]:
    if not text and title not in ("evidence", "requires"):
        return
    for index, line in enumerate(wrap(clean(text), width - 2 - _TITLE)):
        head = " " * _TITLE if index else title.ljust(_TITLE) if line else title
        yield f"  {paint.dim(head)}{line}"


def _term(term: TermAudit, first: bool, fact: str, paint: Paint, width: int) -> Iterator[str]:
    low, high = number(100 * term.credit.low), number(100 * term.credit.high)
    credit = f"{low} %" if low == high else f"{low} to {high} %"
    head = f"{clean(term.text)}: {term.status}, {credit}"
    text = f"{head}; {clean(term.found)}" if term.found and term.found not in fact else head
    for index, line in enumerate(wrap(text, width - 2 - _TITLE)):
        title = "terms" if first and index == 0 else ""
        yield f"  {paint.dim(title.ljust(_TITLE))}{paint.status(Status(term.status), line)}"


def _evidence(
    evidence: Sequence[Evidence], sources: Mapping[str, str], names: dict[str, str], paint: Paint, width: int
) -> Iterator[str]:
    for one in evidence[:_MOST_EVIDENCE]:
        head = f"{one.tier}  {place(one, names)}  {one.text}"
        yield "    " + cut(clean(head), width - 4)
        yield from _source(one, sources.get(one.path, ""), paint, width)
    if len(evidence) > _MOST_EVIDENCE:
        yield f"    and {len(evidence) - _MOST_EVIDENCE} more"


def _source(one: Evidence, text: str, paint: Paint, width: int) -> Iterator[str]:
    lines = source_lines(text)
    last = min(one.end_line, one.line + _MOST_LINES - 1, len(lines))
    gutter = len(str(last))
    for line in range(max(one.line, 1), last + 1):
        source = cut(clean(lines[line - 1][: 4 * width]), width - 9 - gutter)
        yield f"      {paint.dim(f'{line:>{gutter}} |')} {source}".rstrip()
    if last < one.end_line and last == one.line + _MOST_LINES - 1:
        yield f"      {paint.dim(' ' * gutter + ' | …')}"


def _way(item: ItemAudit, items: Mapping[str, ItemAudit], paint: Paint, width: int) -> Iterator[str]:
    """What the item requires, as a tree; an item that was shown before is not unfolded again."""
    if not item.requires:
        return
    yield from _entry("requires", "", paint, width)
    seen: set[str] = set()
    open_: list[tuple[str, int]] = [(one, 0) for one in reversed(item.requires)]
    while open_:
        identifier, depth = open_.pop()
        one = items[identifier]
        indent = min(2 * depth, width // 2)
        text = cut(f"{one.level} {MARKS[one.verdict]} {clean(one.id)}  {clean(one.title)}", width - 4 - indent)
        yield f"    {' ' * indent}{paint.verdict(one.verdict, text)}"
        if identifier not in seen:
            seen.add(identifier)
            open_.extend((other, depth + 1) for other in reversed(one.requires))
