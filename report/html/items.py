"""The guidance items of an audit, one block each that unfolds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from d2k.report.html.markup import Markup, element, join, prose
from d2k.report.layout import anchor, link_to, number
from d2k.report.paint import MARKS
from d2k.report.terminal.audit import evidence_of
from d2k.spec.audit import Interval, ItemAudit, TermAudit
from d2k.spec.finding import Evidence
from d2k.spec.guidance import Item

Link = Callable[[Evidence], Markup]
"""A piece of evidence as a link to its line."""


def item(index: int, audited: ItemAudit, guidance: Item | None, link: Link, lines: str) -> Markup:
    """One item; `lines` are the ids of the lines that are marked for it."""
    head = element(
        "summary",
        element("span", audited.level, class_="level"),
        element("span", MARKS[audited.verdict], class_="mark", aria_hidden="true"),
        element("span", audited.id, class_="name"),
        element("span", audited.verdict.replace("_", " "), class_="verdict"),
        element("span", prose(audited.fact), class_="fact"),
        element("span", *(link(one) for one in evidence_of(audited)[:1]), class_="place"),
    )
    body = element("div", *_body(audited, guidance, link), class_="body")
    return element(
        "details",
        head,
        body,
        class_=f"item {audited.verdict}",
        id=anchor(audited.id),
        data_index=str(index),
        data_verdict=audited.verdict.value,
        data_lines=lines,
    )


def _body(audited: ItemAudit, guidance: Item | None, link: Link) -> Iterator[Markup]:
    yield element("p", prose(audited.title), class_="title")
    if guidance is not None and guidance.why:
        yield element("p", prose(guidance.why))
    if guidance is not None and guidance.hint:
        yield element("p", element("b", "Hint. "), prose(guidance.hint))
    rows = [
        ("credit", join(credit(audited.interval), f", weight {audited.weight:g}", ", free" if audited.free else "")),
        ("check", element("code", audited.check)),
    ]
    if guidance is not None and guidance.when:
        rows.append(("when", element("code", guidance.when)))
    if audited.requires:
        linked = [element("a", one, href=link_to(one)) for one in audited.requires]
        rows.append(("requires", join(*_separated(linked))))
    yield element("dl", *(join(element("dt", name), element("dd", value)) for name, value in rows))
    if audited.terms:
        yield _terms(audited.terms)
    for why in audited.reasons:
        places = [element("li", link(one), " ", prose(one.text)) for one in why.evidence]
        said = element("p", element("b", why.reason.replace("_", " ")), prose(f": {why.detail}" if why.detail else ""))
        yield element("div", said, element("ul", *places) if places else "", class_="reason")
    if audited.evidence:
        yield element("p", element("b", "Evidence"), class_="heading")
        tiered = [
            element("li", link(one), " ", prose(one.text), " ", element("span", one.tier, class_="tier"))
            for one in audited.evidence
        ]
        yield element("ul", *tiered)


def _terms(terms: tuple[TermAudit, ...]) -> Markup:
    head = element("tr", *(element("th", word, scope="col") for word in ("term", "status", "credit", "found")))
    rows = [
        element(
            "tr",
            element("td", element("code", term.text)),
            element("td", term.status, class_=f"status {term.status}"),
            element("td", credit(term.credit)),
            element("td", prose(term.found)),
        )
        for term in terms
    ]
    return element("div", element("table", element("thead", head), element("tbody", *rows)), class_="wide")


def credit(interval: Interval) -> str:
    low, high = number(100 * interval.low), number(100 * interval.high)
    return f"{low} %" if low == high else f"{low} to {high} %"


def _separated(parts: list[Markup]) -> Iterator[Markup]:
    for index, part in enumerate(parts):
        if index:
            yield Markup(", ")
        yield part
