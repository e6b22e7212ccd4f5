"""The page, as text and in a browser."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import msgspec
import pytest
from audit_example import SOURCE, example_audit, example_task, hostile_audit
from hypothesis import given, settings
from hypothesis import strategies as st
from submissions import evidence

from d2k.report.html import source as source_view
from d2k.report.html.page import render

SOURCES = {"kernel.py": SOURCE}


class Reader(HTMLParser):
    """Collects elements with their attributes; void elements and SVG shapes have no end."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, name: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for tag, attributes in self.elements
            if tag == name
            and all(value in (attributes.get(key.rstrip("_")) or "").split() for key, value in wanted.items())
        ]


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


PAGE = render(example_audit(), example_task(), SOURCES)
READER = read(PAGE)


def test_nothing_comes_from_elsewhere() -> None:
    for tag, attributes in READER.elements:
        for key in ("src", "href", "action", "data", "xlink:href"):
            value = attributes.get(key)
            assert value is None or value.startswith("#"), (tag, value)
    assert "@import" not in PAGE
    assert re.findall(r"url\((?!#)", PAGE) == []
    assert [
        attributes
        for tag, attributes in READER.elements
        if "style" in attributes or any(k.startswith("on") for k in attributes)
    ] == []


def test_policy_allows_this_script_and_nothing_else() -> None:
    (policy,) = [one["content"] for one in READER.of("meta") if one.get("http-equiv")]
    assert policy is not None and policy.startswith(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
    )
    assert PAGE.count("<script>") == 1


def test_every_link_has_its_target() -> None:
    ids = [attributes["id"] for _, attributes in READER.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in READER.elements if tag == "a"]
    assert {link.removeprefix("#") for link in links if link} <= set(ids)


def test_every_item_is_in_graph_and_list_with_its_verdict() -> None:
    for one in example_audit().items:
        (node,) = [found for found in READER.of("a", class_="node") if found["data-item"] == one.id]
        assert one.verdict in (node["class"] or "")
        (item,) = [found for found in READER.of("details", class_="item") if found["id"] == f"item-{one.id}"]
        assert one.verdict in (item["class"] or "")


def test_evidence_and_lines_are_linked_both_ways() -> None:
    items = {one["id"]: one for one in READER.of("details", class_="item")}
    lines = {one["id"]: one for one in READER.of("div", class_="marked")}
    for identifier, item in items.items():
        for line in (item["data-lines"] or "").split():
            assert item["data-index"] in (lines[line]["data-items"] or "").split(), identifier
    # the pipeline's nearest miss stands on line 7, and line 7 leads back to it
    assert "L0-7" in (items["item-pipeline"]["data-lines"] or "")
    # lines 7 and 8 (configs), 16 (fp32), 17 (loop), 18 (loads), 20 (maximum), 21 (exp)
    assert set(lines) == {f"L0-{line}" for line in (7, 8, 16, 17, 18, 20, 21)}


def test_source_is_whole() -> None:
    rows = re.findall(r'id="L0-(\d+)".*?<code>(.*?)</code>', PAGE)
    shown = [html.unescape(re.sub(r"<[^>]+>", "", code)) for _, code in rows]
    assert shown == SOURCE.splitlines()
    assert '<span class="k">def</span>' in PAGE


def test_score_header() -> None:
    assert "Implementation score 54 of 100, 54 to 62 by what is unknown" in PAGE


def test_the_same_input_gives_the_same_page() -> None:
    assert render(example_audit(), example_task(), SOURCES) == PAGE


ATTACKS = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "</style><b>",
    "<!-- ",
    "]]>",
    "&lt;b&gt;",
    "\x00\x08\u202e\ud800",
    "$title ${script}",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_strangers_text_stays_text(attack: str) -> None:
    page = render(hostile_audit(attack), msgspec.structs.replace(example_task(), title=attack), {attack: attack})
    reader = read(page)
    assert [tag for tag, _ in reader.elements if tag in ("script", "img", "b", "iframe")].count("script") == 1
    assert not reader.of("img")
    assert not any(key.startswith("on") for _, attributes in reader.elements for key in attributes)
    assert not re.search(r"[\x00\x08\u202e\ud800]", page)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=300))
def test_any_source_keeps_its_lines(content: str) -> None:
    page = render(example_audit(), example_task(), {"kernel.py": content})
    wanted = len(re.split(r"\r\n|\r|\n", content))
    wanted -= not re.split(r"\r\n|\r|\n", content)[-1]
    assert len(re.findall(r'id="L0-\d+"', page)) == wanted
    page.encode("utf-8")


def test_long_lines_and_files_are_cut() -> None:
    long_line = "x = 1  # " + "y" * 1_000_000
    page = render(example_audit(), example_task(), {"kernel.py": SOURCE + long_line})
    assert len(page) < 200_000
    assert "more characters" in page
    many = SOURCE + "x = 1\n" * (source_view.MOST_LINES * 2)
    page = render(example_audit(), example_task(), {"kernel.py": many})
    # around the last marked line, 21, fifteen more are shown
    assert 'id="L0-36"' in page and 'id="L0-37"' not in page
    assert f"{2 * source_view.MOST_LINES + 27 - 36} lines not shown" in page


def test_evidence_beyond_the_file_is_left_out() -> None:
    audit = hostile_audit("kernel.py")
    far = tuple(
        msgspec.structs.replace(one, id=f"i{index}", evidence=(evidence(10**9, "far"),), reasons=())
        for index, one in enumerate(audit.items)
    )
    page = render(msgspec.structs.replace(audit, items=far), example_task(), SOURCES)
    assert 'class="line marked' not in page


def test_without_sources_there_are_no_links_to_lines() -> None:
    assert 'href="#L' not in render(example_audit(), example_task(), {})
