"""The rules of the guidance graph, held against networkx on random graphs."""

from __future__ import annotations

import itertools

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from d2k.compiler.guidance_graph import (
    GuidanceGraph,
    Redundant,
    as_networkx,
    cycle,
    downward_edges,
    prerequisites_first,
    reachable,
    redundant_edges,
    without_insight,
    without_realisation,
)
from d2k.spec.check import Term
from d2k.spec.guidance import Item
from d2k.spec.vocabulary import Level


def graph(levels: str, **requires: str) -> GuidanceGraph:
    """`levels` such as "a1 b2"; requirements as `b="a"`."""
    known = {word[:-1]: Level(f"L{word[-1]}") for word in levels.split()}
    return GuidanceGraph(known, {name: tuple(requires.get(name, "").split()) for name in known})


def test_a_cycle_starts_at_the_item_that_comes_first_and_follows_requirements() -> None:
    assert cycle(graph("a1 b2 c2 d2", b="a d", c="b", d="c")) == ("b", "d", "c", "b")
    assert cycle(graph("a1 b2", b="a")) is None


def test_requirements_may_not_point_down() -> None:
    assert downward_edges(graph("a1 b2 c3 d3", a="b", b="c", c="d a", d="b")) == (("a", "b"), ("b", "c"))


def test_items_need_an_insight_behind_them_directly_or_not() -> None:
    found = graph("a1 b2 c3 d2 e3", b="a", c="b", e="d")
    assert without_insight(found) == ("d", "e")
    assert without_insight(found, frozenset({"d"})) == ()


def test_insights_need_something_that_realises_them() -> None:
    assert without_realisation(graph("a1 b1 c2", c="a")) == ("b",)
    assert without_realisation(graph("a1 b1")) == ()  # a task may have insights only


def test_a_redundant_edge_names_the_way_round() -> None:
    assert redundant_edges(graph("a1 b2 c3", b="a", c="a b")) == (Redundant("c", "a", "b"),)


def acyclic() -> st.SearchStrategy[GuidanceGraph]:
    def build(count: int, edges: set[tuple[int, int]]) -> GuidanceGraph:
        names = [f"n{place}" for place in range(count)]
        requires = {
            names[place]: tuple(names[other] for other in range(place) if (place, other) in edges)
            for place in range(count)
        }
        return GuidanceGraph(dict.fromkeys(names, Level.L2), requires)

    pairs = st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30)
    return st.builds(build, st.integers(1, 9), pairs)


def drawn(found: GuidanceGraph) -> nx.DiGraph[str]:
    return as_networkx(
        Item(name, level, "", Term("p"), requires=found.requires[name]) for name, level in found.levels.items()
    )


@given(acyclic())
def test_redundant_edges_are_those_that_the_transitive_reduction_leaves_out(found: GuidanceGraph) -> None:
    whole = drawn(found)
    reduced = nx.transitive_reduction(whole)
    assert {(one.item, one.required) for one in redundant_edges(found)} == set(whole.edges) - set(reduced.edges)


@given(acyclic())
def test_order_and_reachability_agree_with_networkx(found: GuidanceGraph) -> None:
    whole, order = drawn(found), prerequisites_first(found)
    assert all(order.index(required) < order.index(item) for item, required in whole.edges)
    assert {name: set(above) for name, above in reachable(found).items()} == {
        name: nx.descendants(whole, name) for name in whole
    }


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_a_cycle_is_found_exactly_where_there_is_one_and_is_one(edges: set[tuple[int, int]]) -> None:
    names = [f"n{place}" for place in range(7)]
    requires = {
        names[place]: tuple(names[other] for other in range(7) if (place, other) in edges) for place in range(7)
    }
    found = GuidanceGraph(dict.fromkeys(names, Level.L2), requires)
    path = cycle(found)
    assert (path is None) == nx.is_directed_acyclic_graph(drawn(found))
    if path is not None:
        assert path[0] == path[-1]
        assert all(other in requires[one] for one, other in itertools.pairwise(path))
