"""Layout and pictures of the guidance graph."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise

import pytest
from audit_example import GUIDANCE
from hypothesis import given, settings
from hypothesis import strategies as st

from d2k.report.graph import render
from d2k.report.graph_layout import GAP_X, NODE_HEIGHT, NODE_WIDTH, Layout, layout
from d2k.report.graph_svg import svg
from d2k.spec.audit import Verdict
from d2k.spec.check import Term
from d2k.spec.guidance import Item
from d2k.spec.vocabulary import Level

NAMESPACE = "{http://www.w3.org/2000/svg}"


def item(identifier: str, *requires: str, title: str = "A title") -> Item:
    """An item whose level stands in the first letter of its id: `a…` L1, `b…` L2, `c…` L3."""
    level = {"a": Level.L1, "b": Level.L2, "c": Level.L3}[identifier[0]]
    return Item(identifier, level, title, Term("online_softmax"), requires)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Item, ...]:
    found: list[Item] = []
    for index in range(draw(st.integers(0, 14))):
        level = draw(st.sampled_from("abc"))
        earlier = [one.id for one in found if one.id[0] <= level]
        requires = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=4)) if earlier else []
        found.append(item(f"{level}{index}", *requires))
    return tuple(draw(st.permutations(found)))


def check_geometry(nodes: tuple[Item, ...], drawn: Layout) -> None:
    assert set(drawn.boxes) == {one.id for one in nodes}
    for box in drawn.boxes.values():
        assert box.x >= 0 and box.x + NODE_WIDTH <= drawn.width
        assert box.y >= 0 and box.y + NODE_HEIGHT <= drawn.height
    for (_, one), (_, other) in combinations(drawn.boxes.items(), 2):
        if one.y == other.y:
            assert abs(one.x - other.x) >= NODE_WIDTH + GAP_X - 1e-6
        else:
            assert abs(one.y - other.y) > NODE_HEIGHT


@settings(deadline=None)
@given(graphs())
def test_boxes_are_apart_and_below_what_they_require(nodes: tuple[Item, ...]) -> None:
    drawn = layout(nodes)
    check_geometry(nodes, drawn)
    for one in nodes:
        for other in one.requires:
            assert drawn.boxes[other].y + NODE_HEIGHT < drawn.boxes[one.id].y


@settings(deadline=None)
@given(graphs())
def test_levels_are_bands_one_below_the_other(nodes: tuple[Item, ...]) -> None:
    drawn = layout(nodes)
    assert [level for level, _, _ in drawn.bands] == [
        level for level in Level if any(one.level is level for one in nodes)
    ]
    for (_, _, bottom), (_, top, _) in pairwise(drawn.bands):
        assert bottom < top
    for one in nodes:
        ((top, bottom),) = [(top, bottom) for level, top, bottom in drawn.bands if level is one.level]
        assert top <= drawn.boxes[one.id].y and drawn.boxes[one.id].y + NODE_HEIGHT <= bottom


@settings(deadline=None)
@given(graphs())
def test_edges_run_from_box_to_box_and_through_none(nodes: tuple[Item, ...]) -> None:
    drawn = layout(nodes)
    assert {(edge.lower, edge.upper) for edge in drawn.edges} == {
        (one.id, other) for one in nodes for other in one.requires
    }
    for edge in drawn.edges:
        upper, lower = drawn.boxes[edge.upper], drawn.boxes[edge.lower]
        assert edge.points[0] == pytest.approx((upper.x + NODE_WIDTH / 2, upper.y + NODE_HEIGHT))
        assert edge.points[-1] == pytest.approx((lower.x + NODE_WIDTH / 2, lower.y))
        for x, y in edge.points[1:-1]:
            for name, box in drawn.boxes.items():
                inside = box.x < x < box.x + NODE_WIDTH and box.y <= y <= box.y + NODE_HEIGHT
                assert not inside, (edge, name)


def test_crossings_are_avoided() -> None:
    # b1 belongs under a2 and b2 under a1: the order of one row must change
    drawn = layout((item("a1"), item("a2"), item("b1", "a2"), item("b2", "a1")))
    assert (drawn.boxes["a1"].x < drawn.boxes["a2"].x) == (drawn.boxes["b2"].x < drawn.boxes["b1"].x)


def test_a_chain_is_straight() -> None:
    drawn = layout((item("a1"), item("b1", "a1"), item("c1", "b1")))
    assert len({box.x for box in drawn.boxes.values()}) == 1


def test_nothing_to_draw() -> None:
    assert layout(()).boxes == {}
    ElementTree.fromstring(svg(()))


def test_a_cycle_ends() -> None:
    check_geometry((item("b1", "b2"), item("b2", "b1")), layout((item("b1", "b2"), item("b2", "b1"))))


def test_a_long_chain_is_drawn_in_time() -> None:
    chain = tuple(item(f"b{index}", *([f"b{index - 1}"] if index else [])) for index in range(1200))
    assert len(layout(chain).bands) == 1


def test_svg_has_every_node_with_its_verdict() -> None:
    verdicts = {one.id: Verdict.MISSING if one.id == "pipeline" else Verdict.IMPLEMENTED for one in GUIDANCE}
    root = ElementTree.fromstring(svg(GUIDANCE, verdicts))
    classes = {one.get("data-item"): one.get("class") for one in root.iter(f"{NAMESPACE}g") if one.get("data-item")}
    assert set(classes) == {one.id for one in GUIDANCE}
    assert classes["pipeline"] == "node missing"
    assert classes["online"] == "node implemented"
    edges = {
        (one.get("data-from"), one.get("data-to")) for one in root.iter(f"{NAMESPACE}path") if one.get("data-from")
    }
    assert edges == {(one.id, other) for one in GUIDANCE for other in one.requires}


def test_svg_is_text_of_strangers_too() -> None:
    attack = "</style><script>\x00\u202e\"'&"
    root = ElementTree.fromstring(svg((item("a1", title=attack),)))
    assert [one for one in root.iter() if one.tag.endswith("script")] == []
    assert "".join(next(root.iter(f"{NAMESPACE}title")).itertext()).endswith("</style><script>��\"'&")


def test_pictures_do_not_change_from_run_to_run() -> None:
    for form in ("svg", "dot", "mermaid"):
        assert render(GUIDANCE, form) == render(GUIDANCE, form)


SMALL = (item("a1", title='Say "128" rows'), item("b1", "a1"), item("c1", "a1", "b1"))


def test_dot() -> None:
    assert (
        render(SMALL, "dot")
        == """\
digraph guidance {
  rankdir = BT;
  node [shape = box, style = rounded, fontname = "sans-serif"];
  subgraph cluster_L1 {
    label = "L1";
    "a1" [label = "a1", tooltip = "Say \\"128\\" rows"];
  }
  subgraph cluster_L2 {
    label = "L2";
    "b1" [label = "b1", tooltip = "A title"];
  }
  subgraph cluster_L3 {
    label = "L3";
    "c1" [label = "c1", tooltip = "A title"];
  }
  "b1" -> "a1";
  "c1" -> "a1";
  "c1" -> "b1";
}
"""
    )


def test_mermaid() -> None:
    assert (
        render(SMALL, "mermaid")
        == """\
flowchart BT
  subgraph L1
    n0["a1<br/>Say #quot;128#quot; rows"]
  end
  subgraph L2
    n1["b1<br/>A title"]
  end
  subgraph L3
    n2["c1<br/>A title"]
  end
  n1 --> n0
  n2 --> n0
  n2 --> n1
"""
    )
