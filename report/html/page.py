"""One self-contained page: score, guidance graph, items, and the source with the evidence marked."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources import files

from d2k.report.graph_svg import svg
from d2k.report.html.items import item
from d2k.report.html.markup import Markup, element, join, prose, resource, template, text
from d2k.report.html.source import MOST_LINES, Mark, line_id, source
from d2k.report.layout import count, link_to, number, place, points, short_paths
from d2k.report.paint import MARKS
from d2k.report.terminal.audit import evidence_of
from d2k.spec.audit import Audit, ItemAudit, Score, Verdict
from d2k.spec.finding import Evidence
from d2k.spec.task import Task
from d2k.spec.vocabulary import Level

_MOST_STEPS = 5


def render(audit: Audit, task: Task, sources: Mapping[str, str]) -> str:
    """The page. `sources` maps paths to texts; a path without a text gets no source and no links."""
    script = resource("page.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    style = files("d2k.report").joinpath("graph.css").read_text("utf-8") + resource("page.css")
    return template(
        "page.html",
        title=text(f"{audit.task}: {', '.join(short_paths(audit.files).values())}"),
        policy=text(f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"),
        style=Markup(style),
        script=Markup(script),
        task=text(audit.task),
        heading=text(task.title or audit.task),
        facts=_facts(audit),
        score=_score(audit.score),
        notices=join(*_notices(audit)),
        graph=Markup(svg(audit.items, {one.id: one.verdict for one in audit.items}, standalone=False)),
        legend=join(*_legend(audit)),
        plan=join(*_plan(audit)),
        filters=join(*_filters(audit)),
        items=join(*_items(audit, task, sources)),
        sources=join(*_sources(audit, sources)),
        footer=text(f"{audit.tool or 'd2kc'} · {audit.schema} · task {audit.task_hash[:12]}"),
    )


def _facts(audit: Audit) -> Markup:
    launched = [kernel for kernel in audit.kernels if kernel.launched]
    parts = [
        ", ".join(short_paths(audit.files).values()),
        audit.target,
        f"evidence: {', '.join(audit.tiers)}",
        f"{count(len(audit.kernels), 'kernel')}, {len(launched)} launched",
    ]
    return join(*(element("span", part) for part in parts))


def _score(score: Score) -> Markup:
    if score.combined is None or score.low is None or score.high is None:
        return element("div", element("p", "No item of the guidance applies here: no score."), class_="score")
    interval = f"{points(score.low)} to {points(score.high)}"
    open_end = score.high > score.low
    said = f"Implementation score {points(score.combined)} of 100" + (
        f", {interval} by what is unknown" if open_end else ""
    )
    head = element(
        "p",
        element("span", points(score.combined), class_="big"),
        element("span", f"of 100{f', {interval}' if open_end else ''}", class_="quiet"),
        aria_label=said,
    )
    levels = [
        element(
            "div",
            element("span", level, class_="level"),
            _bar(value, value),
            element("span", points(value)),
            class_="row",
        )
        for level, value in zip(Level, (score.L1, score.L2, score.L3), strict=True)
        if value is not None
    ]
    extras = []
    if score.gated is not None:
        extras.append(
            element(
                "span", f"gated {points(score.gated)}", title="each item counts as far as what it requires is there"
            )
        )
    if score.free:
        extras.append(
            element("span", f"free {points(score.free)}", title="earned by items that the naive kernel earns too")
        )
    if score.dropped_levels:
        extras.append(element("span", f"{' and '.join(score.dropped_levels)} left out: no item applies"))
    return element(
        "div", head, _bar(score.low, score.high), *levels, element("p", *extras, class_="extras"), class_="score"
    )


def _bar(low: float, high: float) -> Markup:
    """A bar of 100 with a solid and an open part; an SVG, so that no style attribute is needed."""
    return Markup(
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="6"/>'
        f'<rect class="open" width="{high:.2f}" height="6"/><rect class="solid" width="{low:.2f}" height="6"/></svg>'
    )


def _notices(audit: Audit) -> Iterator[Markup]:
    names = short_paths(audit.files)
    for problem in audit.problems:
        where = f" ({place(problem.evidence[0], names)})" if problem.evidence else ""
        yield element("p", element("b", "Problem. "), prose(problem.detail + where), class_="notice")
    for guard in audit.guards:
        if guard.status == "suspected":
            where = f" ({place(guard.evidence[0], names)})" if guard.evidence else ""
            words = f"{guard.id.replace('_', ' ')} suspected: {guard.detail}{where}"
            yield element("p", element("b", "Guard. "), prose(words), class_="notice")


def _legend(audit: Audit) -> Iterator[Markup]:
    used = {one.verdict for one in audit.items}
    for verdict in Verdict:
        if verdict in used:
            yield element("span", f"{MARKS[verdict]} {verdict.replace('_', ' ')}", class_=f"key {verdict}")


def _plan(audit: Audit) -> Iterator[Markup]:
    if audit.root_causes:
        rows = [
            element(
                "li",
                _item_link(cause.id),
                " unlocks ",
                *_separated([_item_link(one) for one in cause.unlocks]),
                element("span", f"+{number(cause.points)}", class_="points"),
            )
            for cause in audit.root_causes[:_MOST_STEPS]
        ]
        yield element("section", element("h2", "Root causes"), element("ul", *rows))
    if audit.next_steps:
        steps = [
            element(
                "li",
                _item_link(step.id),
                prose(f": {step.advice}"),
                element("span", f"+{number(step.points)}", class_="points"),
            )
            for step in audit.next_steps[:_MOST_STEPS]
        ]
        yield element("section", element("h2", "What to implement next"), element("ol", *steps))


def _item_link(identifier: str) -> Markup:
    return element("a", identifier, href=link_to(identifier), class_="ref")


def _separated(parts: list[Markup]) -> Iterator[Markup]:
    for index, part in enumerate(parts):
        yield join(", ", part) if index else part


def _filters(audit: Audit) -> Iterator[Markup]:
    tally = Counter(one.verdict for one in audit.items)
    for verdict in Verdict:
        if tally[verdict]:
            words = f"{MARKS[verdict]} {tally[verdict]} {verdict.replace('_', ' ')}"
            yield element(
                "button", words, type="button", class_=f"key {verdict}", aria_pressed="true", data_verdict=verdict.value
            )


def _items(audit: Audit, task: Task, sources: Mapping[str, str]) -> Iterator[Markup]:
    guidance = {one.id: one for one in task.guidance}
    names = short_paths(audit.files)
    numbers = _file_numbers(audit, sources)

    def link(one: Evidence) -> Markup:
        where = place(one, names)
        if one.path not in numbers:
            return element("span", where)
        return element("a", where, href=f"#{line_id(numbers[one.path], one.line)}")

    for level in Level:
        members = [(index, one) for index, one in enumerate(audit.items) if one.level is level]
        for index, one in members:
            lines = " ".join(
                dict.fromkeys(
                    line_id(numbers[piece.path], piece.line) for piece in _marking(one) if piece.path in numbers
                )
            )
            yield item(index, one, guidance.get(one.id), link, lines)


def _sources(audit: Audit, sources: Mapping[str, str]) -> Iterator[Markup]:
    for path, file in _file_numbers(audit, sources).items():
        marks = [
            Mark(piece.line, min(piece.end_line, piece.line + MOST_LINES), index, one)
            for index, one in enumerate(audit.items)
            for piece in _marking(one)
            if piece.path == path
        ]
        yield source(file, path, sources[path], marks)


def _marking(one: ItemAudit) -> tuple[Evidence, ...]:
    """Evidence whose lines are marked for an item: what shows it, and the nearest misses."""
    return tuple(dict.fromkeys((*evidence_of(one), *one.evidence)))


def _file_numbers(audit: Audit, sources: Mapping[str, str]) -> dict[str, int]:
    """Files whose source is shown, those of the audit first."""
    paths = dict.fromkeys((*audit.files, *(piece.path for one in audit.items for piece in _marking(one))))
    return {path: index for index, path in enumerate(path for path in paths if path in sources)}
