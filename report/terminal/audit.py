"""The audit of a kernel: score, one line for each item, root causes, next steps and guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from d2k.report.layout import cells, clean, count, cut, number, pad, places, points, short_paths, wrap
from d2k.report.paint import MARKS, Paint
from d2k.report.terminal.why import unfold
from d2k.spec.audit import Audit, ItemAudit, Score, Verdict
from d2k.spec.finding import Evidence, Why
from d2k.spec.task import Task
from d2k.spec.vocabulary import Level

_MOST_STEPS = 3
_MOST_FACT_LINES = 3
_NEEDS_COMPILED = "needs compiled evidence"


def render_audit(
    audit: Audit,
    sources: Mapping[str, str],
    colour: bool,
    width: int,
    why: str | None = None,
    task: Task | None = None,
) -> str:
    """The whole audit, or only the item `why`, unfolded with the task's words and lines of `sources` (path to text).

    Raises KeyError for an item that the audit does not have.
    """
    paint = Paint(colour)
    width = max(width, 40)
    lines = [*_header(audit, paint, width), ""]
    if why is not None:
        lines += [*unfold(audit, why, sources, task, paint, width)]
        return "\n".join(lines) + "\n"
    lines += [*_problems(audit, paint, width)]
    lines += [*_score(audit.score, paint, width), ""]
    lines += [*_items(audit, paint, width), ""]
    lines += [*_causes(audit, paint, width)]
    lines += [*_guards(audit, paint, width)]
    lines += [*_hints(audit, paint, width)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _header(audit: Audit, paint: Paint, width: int) -> Iterator[str]:
    files = list(short_paths(audit.files).values())
    shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    rest = [clean(shown), audit.target, "evidence: " + ", ".join(audit.tiers)]
    text = " · ".join([clean(audit.task), *rest])
    first, *others = wrap(text, width)
    task = clean(audit.task)
    yield paint.bold(task) + first.removeprefix(task) if first.startswith(task) else first
    yield from others


def _problems(audit: Audit, paint: Paint, width: int) -> Iterator[str]:
    names = short_paths(audit.files)
    for problem in audit.problems:
        where = places(problem.evidence, names)
        yield from _marked("problem", clean(problem.detail) + (f" ({clean(where)})" if where else ""), paint, width)
    if audit.problems:
        yield ""


def _score(score: Score, paint: Paint, width: int) -> Iterator[str]:
    if score.combined is None or score.low is None or score.high is None:
        yield from (f"  {line}" for line in wrap("no item of the guidance applies here: no score", width - 2))
        return
    interval = f" ({points(score.low)}..{points(score.high)})" if score.high > score.low else ""
    levels = " · ".join(
        f"{level} {points(value)}"
        for level, value in zip(Level, (score.L1, score.L2, score.L3), strict=True)
        if value is not None
    )
    head = f"implementation score {points(score.combined)}"
    extras = [f"gated {points(score.gated)}"] if score.gated is not None else []
    if score.free:
        extras.append(f"free {points(score.free)}")
    first, *others = _flow([head + interval, levels, *extras], width - 2)
    yield "  " + first.replace(head, paint.bold(head), 1)
    yield from (f"  {line}" for line in others)
    if score.dropped_levels:
        dropped = " and ".join(score.dropped_levels)
        yield "  " + paint.dim(cut(f"{dropped} left out: no item of it applies here", width - 2))


def _flow(parts: list[str], width: int) -> list[str]:
    """Parts side by side, three spaces apart, on as many lines as they need."""
    lines = [parts[0]]
    for part in parts[1:]:
        if cells(lines[-1]) + 3 + cells(part) <= width:
            lines[-1] += f"   {part}"
        else:
            lines.append(part)
    return lines


def _items(audit: Audit, paint: Paint, width: int) -> Iterator[str]:
    names = short_paths(audit.files)
    id_width = min(max((cells(clean(one.id)) for one in audit.items), default=0), 24, width // 3)
    for level in Level:
        for one in audit.items:
            if one.level is level:
                yield from _item(one, names, id_width, paint, width)


def _item(item: ItemAudit, names: dict[str, str], id_width: int, paint: Paint, width: int) -> Iterator[str]:
    """`L2 ✗ pipeline   num_stages=1 in every config   kernel.py:18`, the fact on as many lines as it needs."""
    where = clean(places(evidence_of(item), names))
    indent = 2 + 2 + 1 + 1 + 1 + id_width + 2
    room = width - indent
    beside = room - cells(where) - 2 if where else room
    if where and beside < 24:
        beside, where_below = room, True
    else:
        where_below = False
    facts = wrap(clean(item.fact + _share(item)), beside, _MOST_FACT_LINES)
    if where_below:
        facts.append(cut(where, room))
    name = pad(cut(clean(item.id), id_width), id_width)
    mark = paint.verdict(item.verdict, f"{MARKS[item.verdict]} {name}")
    dim = item.verdict is Verdict.NOT_APPLICABLE
    for index, fact in enumerate(facts):
        head = f"  {item.level} {mark}  " if index == 0 else " " * indent
        shown = paint.dim(fact) if dim or (where_below and index == len(facts) - 1) else fact
        gap = " " * (beside - cells(fact) + 2)
        tail = gap + paint.dim(where) if index == 0 and where and not where_below else ""
        yield (head + shown + tail).rstrip()


def _share(item: ItemAudit) -> str:
    low, high = round(100 * item.interval.low), round(100 * item.interval.high)
    if item.verdict is Verdict.PARTIAL and low == high:
        return f" ({low} %)"
    if item.verdict in (Verdict.PARTIAL, Verdict.UNKNOWN) and (low, high) != (0, 100):
        return f" ({low} to {high} %)"
    return ""


def evidence_of(item: ItemAudit) -> tuple[Evidence, ...]:
    """Where an item stands: what shows it, or the nearest miss."""
    if item.verdict is Verdict.IMPLEMENTED:
        return item.evidence
    nearest = tuple(one for why in item.reasons for one in why.evidence)
    return nearest or item.evidence


def _causes(audit: Audit, paint: Paint, width: int) -> Iterator[str]:
    rows: list[tuple[str, str]] = []
    for cause in audit.root_causes[:_MOST_STEPS]:
        unlocked = ", ".join(clean(one) for one in cause.unlocks)
        rows.append(("root causes", f"{clean(cause.id)} -> unlocks {unlocked} (+{number(cause.points)} points)"))
    for index, step in enumerate(audit.next_steps[:_MOST_STEPS], 1):
        rows.append(("next", f"{index}. {clean(step.advice)} (+{number(step.points)})"))
    before = ""
    for title, text in rows:
        head = pad(title if title != before else "", 13)
        for index, line in enumerate(wrap(text, width - 15)):
            yield f"  {paint.bold(head) if index == 0 else ' ' * 13}{line}"
        before = title
    if rows:
        yield ""


def _guards(audit: Audit, paint: Paint, width: int) -> Iterator[str]:
    names = short_paths(audit.files)
    suspected = [one for one in audit.guards if one.status == "suspected"]
    for guard in suspected:
        where = places(guard.evidence, names)
        detail = f"{clean(guard.id)} suspected: {clean(guard.detail)}" + (f" ({clean(where)})" if where else "")
        yield from _marked("guard", detail, paint, width)
    if suspected:
        yield ""


def _marked(title: str, text: str, paint: Paint, width: int) -> Iterator[str]:
    indent = len(title) + 6
    for index, line in enumerate(wrap(text, width - indent)):
        yield f"  {paint.warning(f'! {title}')}  {line}" if index == 0 else " " * indent + line


def _hints(audit: Audit, paint: Paint, width: int) -> Iterator[str]:
    """What would settle what is unknown, and how to read more."""
    unknown = [one for one in audit.items if one.verdict is Verdict.UNKNOWN]
    compiled = [one for one in unknown if any(_needs_compiled(why) for why in one.reasons)]
    if compiled:
        text = f"of {count(len(unknown), 'unknown item')} {len(compiled)} can be settled by compiled evidence only"
        yield from (f"  {paint.dim(line)}" for line in wrap(text, width - 2))
    worst = next((one for one in audit.items if one.verdict in (Verdict.MISSING, Verdict.PARTIAL)), None)
    if worst is not None:
        yield f"  {paint.dim(cut(f'--why {clean(worst.id)} unfolds an item', width - 2))}"


def _needs_compiled(why: Why) -> bool:
    return _NEEDS_COMPILED in why.detail
