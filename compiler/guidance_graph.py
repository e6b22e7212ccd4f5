"""The graph of a task's guidance: an edge from each item to each item that it requires.

The rules here need only sets and `graphlib`, so that checking a file starts fast; `as_networkx` hands the same graph to
whoever draws it or ranks its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import msgspec

from d2k.spec.guidance import Item
from d2k.spec.vocabulary import Level

if TYPE_CHECKING:
    import networkx as nx


class GuidanceGraph(msgspec.Struct, frozen=True):
    """Levels and requirements by item; every required id is itself an item."""

    levels: Mapping[str, Level]
    requires: Mapping[str, tuple[str, ...]]


class Redundant(msgspec.Struct, frozen=True):
    """`item` requires `required` directly although `through`, which it requires too, already does."""

    item: str
    required: str
    through: str


def cycle(graph: GuidanceGraph) -> tuple[str, ...] | None:
    """One cycle as a path whose last item is its first, starting where the file mentions it first; None if acyclic."""
    sorter = TopologicalSorter(graph.requires)
    try:
        sorter.prepare()
    except CycleError as error:
        # graphlib lists predecessors backwards: each item is required by the next one.
        path = list(reversed(error.args[1]))[:-1]
        start = min(range(len(path)), key=lambda place: list(graph.levels).index(path[place]))
        turned = path[start:] + path[:start]
        return (*turned, turned[0])
    return None


def downward_edges(graph: GuidanceGraph) -> tuple[tuple[str, str], ...]:
    """Edges (item, required) that point to a lower level: L1 may not rest on L2, nor L2 on L3."""
    return tuple(
        (item, required)
        for item, requirements in graph.requires.items()
        for required in requirements
        if graph.levels[required] > graph.levels[item]
    )


def without_insight(graph: GuidanceGraph, unsure: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """L2 and L3 items of an acyclic graph from which no path of requirements leads to an L1 item or an `unsure` one."""
    grounded = set(unsure)
    for item in prerequisites_first(graph):
        if graph.levels[item] is Level.L1 or any(required in grounded for required in graph.requires[item]):
            grounded.add(item)
    return tuple(item for item in graph.levels if item not in grounded)


def without_realisation(graph: GuidanceGraph) -> tuple[str, ...]:
    """L1 items that no item requires, where there are items of other levels: an insight that nothing realises."""
    required = {one for requirements in graph.requires.values() for one in requirements}
    if all(level is Level.L1 for level in graph.levels.values()):
        return ()
    return tuple(item for item, level in graph.levels.items() if level is Level.L1 and item not in required)


def redundant_edges(graph: GuidanceGraph) -> tuple[Redundant, ...]:
    """Edges of an acyclic graph that its transitive reduction leaves out."""
    above = reachable(graph)
    found = []
    for item, requirements in graph.requires.items():
        for required in requirements:
            through = next((other for other in requirements if other != required and required in above[other]), None)
            if through is not None:
                found.append(Redundant(item, required, through))
    return tuple(found)


def reachable(graph: GuidanceGraph) -> dict[str, frozenset[str]]:
    """For each item of an acyclic graph everything that it requires, directly or not."""
    above: dict[str, frozenset[str]] = {}
    for item in prerequisites_first(graph):
        direct = graph.requires[item]
        above[item] = frozenset(direct).union(*(above[required] for required in direct))
    return above


def prerequisites_first(graph: GuidanceGraph) -> tuple[str, ...]:
    """The items of an acyclic graph, each behind everything that it requires."""
    return tuple(TopologicalSorter(graph.requires).static_order())


def as_networkx(items: Iterable[Item]) -> nx.DiGraph[str]:
    """The graph with an edge item -> required; nodes carry their `level`, `title` and `weight`."""
    import networkx as nx

    graph: nx.DiGraph[str] = nx.DiGraph()
    kept = tuple(items)
    for item in kept:
        graph.add_node(item.id, level=item.level.value, title=item.title, weight=item.weight)
    graph.add_edges_from((item.id, required) for item in kept for required in item.requires)
    return graph
