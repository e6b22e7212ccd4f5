"""Two kernels beside each other: what the second has that the first has not, and the other way round."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.report.layout import cells, clean, count, cut, pad, points, wrap
from d2k.report.paint import MARKS, Paint
from d2k.spec.audit import Audit, ItemAudit, Verdict
from d2k.spec.finding import FileReport, Finding, FoundValue, Report, Status
from d2k.spec.vocabulary import Level


def render_report_diff(report: Report, colour: bool, width: int) -> str:
    """The designs of the first two files of a report."""
    first, second = report.files[:2]
    paint = Paint(colour)
    width = max(width, 40)
    lines = [
        f"{paint.bold('-')} {cut(clean(first.path), width - 2)}",
        f"{paint.bold('+')} {cut(clean(second.path), width - 2)}",
        "",
    ]
    lines += [*_properties(first, second, paint, width)]
    return "\n".join(lines) + "\n"


def _properties(first: FileReport, second: FileReport, paint: Paint, width: int) -> Iterator[str]:
    others = {one.id: one for one in second.properties}
    same = 0
    for one in first.properties:
        other = others.get(one.id)
        if other is None:
            continue
        before, after = _words(one), _words(other)
        if before == after:
            same += one.status is Status.PRESENT
            continue
        yield from _change(one, other, before, after, paint, width)
    yield ""
    yield paint.dim(f"{count(same, 'property') if same == 1 else f'{same} properties'} present in both alike")


def _change(first: Finding, second: Finding, before: str, after: str, paint: Paint, width: int) -> Iterator[str]:
    if first.status is second.status:
        sign, text, status = "~", f"{first.id} {before} -> {after}", Status.UNKNOWN
    elif second.status is Status.PRESENT:
        sign, text, status = (
            "+",
            f"{first.id} {after}" + (" (unknown before)" if first.status is Status.UNKNOWN else ""),
            Status.PRESENT,
        )
    elif first.status is Status.PRESENT:
        sign, text, status = (
            "-",
            f"{first.id} {before}" + (" (unknown now)" if second.status is Status.UNKNOWN else ""),
            Status.ABSENT,
        )
    else:
        sign, text, status = "?", f"{first.id} {first.status} -> {second.status}", Status.UNKNOWN
    for index, line in enumerate(wrap(clean(text), width - 2)):
        yield paint.status(status, f"{sign if index == 0 else ' '} {line}")


def _words(finding: Finding) -> str:
    """Status and attribute values, the same for the same design whatever the kernels are called."""
    if finding.status is not Status.PRESENT:
        return finding.status.value
    values: dict[str, set[str]] = {}
    for one in finding.instances:
        for name, value in one.attributes.items():
            values.setdefault(name, set()).add(_value(value))
    return ", ".join(f"{name} {_any_of(found)}" for name, found in sorted(values.items()))


def _any_of(values: set[str]) -> str:
    ordered = sorted(values, key=_numeric)
    return ordered[0] if len(ordered) == 1 else "{" + ", ".join(ordered) + "}"


def _value(value: FoundValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "{" + ", ".join(sorted(value)) + "}" if isinstance(value, tuple) else str(value)


def _numeric(text: str) -> tuple[int, str]:
    return (int(text), "") if text.lstrip("-").isdecimal() else (0, text)


def render_audit_diff(first: Audit, second: Audit, colour: bool, width: int) -> str:
    """Two audits by the same task: scores, and every item whose verdict or credit differs."""
    paint = Paint(colour)
    width = max(width, 40)
    lines = [_line("-", first, width), _line("+", second, width), ""]
    befores = {one.id: one for one in first.items}
    pairs = [(befores[one.id], one) for one in second.items if one.id in befores]
    changed = [(old, new) for old, new in pairs if (old.verdict, old.interval) != (new.verdict, new.interval)]
    id_width = max((cells(clean(new.id)) for _, new in changed), default=0)
    for level in Level:
        for old, new in changed:
            if new.level is level:
                lines += [*_item(old, new, id_width, paint, width)]
    if changed:
        lines.append("")
    lines.append(paint.dim(f"{count(len(pairs) - len(changed), 'item')} alike"))
    return "\n".join(lines) + "\n"


def _line(sign: str, audit: Audit, width: int) -> str:
    score = "no score" if audit.score.combined is None else f"score {points(audit.score.combined)}"
    return cut(clean(f"{sign} {', '.join(audit.files)} · {audit.task} · {audit.target} · {score}"), width)


def _item(old: ItemAudit, new: ItemAudit, id_width: int, paint: Paint, width: int) -> Iterator[str]:
    marks = f"{paint.verdict(old.verdict, MARKS[old.verdict])} -> {paint.verdict(new.verdict, MARKS[new.verdict])}"
    fact = new.fact if new.verdict is not Verdict.MISSING or old.verdict is Verdict.MISSING else f"was: {old.fact}"
    indent = 2 + 2 + 1 + 6 + 2 + id_width + 2
    for index, line in enumerate(wrap(clean(fact), max(width - indent, 20), 3)):
        head = f"  {new.level} {marks}  {pad(clean(new.id), id_width)}  " if index == 0 else " " * indent
        yield head + line
