"""The page in a browser: what clicks, keys, addresses, phones and the dark do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_example import SOURCE, example_audit, example_task, hostile_audit
from browser import CHROMIUM, Page

from d2k.report.html.page import render

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]

PAGE = render(example_audit(), example_task(), {"kernel.py": SOURCE})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(PAGE, "utf-8")
    return path


@pytest.fixture(scope="module")
def page(saved: Path) -> Iterator[Page]:
    with Page(saved) as opened:
        yield opened
        assert opened.complaints == []


def active_lines(page: Page) -> list[str]:
    found: list[str] = page.value("[...document.querySelectorAll('.line.active')].map(e => e.id)")
    return found


class TestInBrowser:
    def test_item_marks_its_lines(self, page: Page) -> None:
        page.click("#item-pipeline summary .name")
        assert page.value("document.getElementById('item-pipeline').open") is True
        assert active_lines(page) == ["L0-7"]

    def test_line_opens_its_items(self, page: Page) -> None:
        page.click("#L0-17 .no")
        opened = page.value("[...document.querySelectorAll('.item.active')].map(e => e.id)")
        assert opened == ["item-stop_at_diagonal", "item-peel"]
        assert page.value("document.getElementById('item-peel').open") is True

    def test_chip_opens_its_item(self, page: Page) -> None:
        # not by the pointer: what it hovers over fades, and a slow browser may click into that
        page.value("document.querySelector('#L0-18 .chip').click()")
        assert page.value("location.hash") == "#item-bulk"
        assert page.value("document.getElementById('item-bulk').open") is True

    def test_node_lights_its_way_and_opens_its_item(self, page: Page) -> None:
        page.value("document.querySelector('.graph').scrollIntoView({block: 'center', behavior: 'instant'})")
        page.hover("[data-item=pipeline] rect")
        lit = page.value("[...document.querySelectorAll('.node.lit')].map(e => e.dataset.item).sort()")
        # what it requires, down to the insight, and what waits for it
        assert lit == ["bulk", "online", "pipeline", "query_tile"]
        assert page.value("document.getElementById('detail').textContent") == (
            "pipeline: missing. num_stages=1 in every config"
        )
        page.click("[data-item=lazy_rescale] rect")
        assert page.value("document.getElementById('item-lazy_rescale').open") is True

    def test_filters_hide_a_verdict(self, page: Page) -> None:
        button = ".filters [data-verdict=missing]"
        shown = "[...document.querySelectorAll('.item.missing')].filter(e => e.offsetHeight).length"
        assert page.value(shown) == 3
        page.click(button)
        assert page.value(shown) == 0
        assert page.value(f"document.querySelector('{button}').ariaPressed") == "false"
        page.click(button)
        assert page.value(shown) == 3

    def test_text_has_contrast(self, saved: Path) -> None:
        for dark in (False, True):
            with Page(saved, dark=dark) as shown:
                assert shown.value(CONTRAST) == []

    def test_phone(self, saved: Path) -> None:
        with Page(saved, width=390, height=800) as phone:
            assert phone.value("document.documentElement.scrollWidth") == 390
            boxes = phone.value(
                "[...document.querySelectorAll('.item, .card, h1, .notice')].map(e => e.getBoundingClientRect().right)"
            )
            assert max(boxes) <= 390

    def test_keyboard(self, saved: Path) -> None:
        with Page(saved) as keyed:
            seen = []
            for _ in range(40):
                keyed.press("Tab")
                seen.append(
                    keyed.value("(e => e.dataset.item || e.id || e.className || e.tagName)(document.activeElement)")
                )
                if seen[-1] == "pipeline":
                    break
            assert seen[0] == "skip"
            assert seen[-1] == "pipeline"
            keyed.press("Enter")
            assert keyed.value("document.getElementById('item-pipeline').open") is True

    def test_address_leads_to_an_item_and_to_a_line(self, saved: Path) -> None:
        with Page(saved, fragment="#item-fold_scale") as opened:
            assert opened.value("document.getElementById('item-fold_scale').open") is True
            assert active_lines(opened) == ["L0-16", "L0-21"]

    def test_hostile_page_runs_nothing(self, tmp_path: Path) -> None:
        attack = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'<!--\x00"
        path = tmp_path / "hostile.html"
        path.write_text(render(hostile_audit(attack), example_task(), {attack: attack}), "utf-8")
        with Page(path) as opened:
            assert opened.value("document.querySelectorAll('img, iframe, script').length") == 1
            assert opened.complaints == []


CONTRAST = """
(() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0.99) return c;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll('body *:not(svg *)')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.offsetHeight || ['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${e.className || e.tagName}: ${e.textContent.slice(0, 20)} ${ratio.toFixed(2)}`);
  }
  return [...new Set(bad)];
})()
"""
