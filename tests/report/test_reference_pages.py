"""The committed pages are what their sources make."""

from __future__ import annotations

from pathlib import Path

import pytest

from d2k.report.reference_pages import catalogue, pages
from d2k.spec.vocabulary import vocabulary

DOCS = Path(__file__).parents[2] / "docs"
MADE = pages(vocabulary(), catalogue())


@pytest.mark.parametrize("name", MADE)
def test_the_committed_page_is_current(name: str) -> None:
    remedy = "run `python -m d2k.report.reference_pages docs`"
    assert (DOCS / name).read_text(encoding="utf-8") == MADE[name], remedy


def test_every_property_has_a_section_that_its_table_links_to() -> None:
    page = MADE["vocabulary.md"]
    for one in vocabulary().properties:
        assert f"\n### {one.id}\n" in page and f"(#{one.id})" in page


def test_no_page_shows_a_hidden_workload() -> None:
    hidden = [one.name for task in catalogue() for one in task.workloads if one.held_out]
    assert hidden and not any(f"| {name} |" in MADE["workloads.md"] for name in hidden)
