"""Rules that the requirements of all items must keep together, and the share of items that come for free."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import msgspec

from d2k.compiler.diagnostics import Note, diagnostic
from d2k.compiler.guidance_graph import (
    GuidanceGraph,
    cycle,
    downward_edges,
    redundant_edges,
    without_insight,
    without_realisation,
)
from d2k.compiler.problems import Problems
from d2k.compiler.source import Span
from d2k.spec.guidance import Item
from d2k.spec.vocabulary import Level

FREE_SHARE = 0.30
"""The part of a level's weight that items may have which a naive kernel earns."""


class Outline(msgspec.Struct, frozen=True):
    """An item as the graph sees it, wrong in itself or not. `known` says that all that it requires exists."""

    id: str
    level: Level
    span: Span
    required: Mapping[str, Span]
    known: bool


def without_inner(one: Outline, outlines: Mapping[str, Outline]) -> Outline:
    """Requiring an include by its name requires those of its items on which no other of its items builds."""
    kept: dict[str, Span] = {}
    for name, span in one.required.items():
        together = [other for other, place in one.required.items() if place == span and other != name]
        if not any(_requires(other, name, outlines) for other in together):
            kept[name] = span
    return msgspec.structs.replace(one, required=kept)


def _requires(name: str, wanted: str, outlines: Mapping[str, Outline]) -> bool:
    """Whether an item requires another one, directly or not."""
    seen: set[str] = set()
    pending = [name]
    while pending:
        current = outlines.get(pending.pop())
        for required in current.required if current else ():
            if required == wanted:
                return True
            if required not in seen:
                seen.add(required)
                pending.append(required)
    return False


def check_graph(outlines: tuple[Outline, ...], problems: Problems) -> None:
    """Report what is wrong with the requirements as a whole."""
    by_id = {one.id: one for one in outlines}
    requires = {one.id: tuple(other for other in one.required if other in by_id) for one in outlines}
    graph = GuidanceGraph({one.id: one.level for one in outlines}, requires)
    circle = cycle(graph)
    if circle is not None:
        notes = [Note(f"`{one}` requires `{other}`", by_id[one].required[other]) for one, other in pairwise(circle)]
        told = diagnostic("D2K0407", by_id[circle[0]].span, path=" -> ".join(circle))
        problems.add(msgspec.structs.replace(told, notes=tuple(notes)))
        return
    for name, other in downward_edges(graph):
        one, lower = by_id[name], by_id[other].level
        problems.report("D2K0406", one.required[other], item=name, level=one.level, name=other, lower=lower)
    unsure = frozenset(one.id for one in outlines if not one.known)
    for name in without_insight(graph, unsure):
        one = by_id[name]
        problems.report("D2K0403", one.span, absent=("requires", "include"), item=name, level=one.level)
    for name in () if unsure else without_realisation(graph):
        problems.report("D2K0409", by_id[name].span, absent=("requires", "include"), item=name)
    for edge in redundant_edges(graph):
        span = by_id[edge.item].required[edge.required]
        problems.report("D2K0408", span, name=edge.required, through=edge.through)


def check_free(items: tuple[tuple[Item, Span], ...], problems: Problems) -> None:
    """Report a level of which too much is `free`; the spans are those of the items' names."""
    for level in Level:
        own = [(item, span) for item, span in items if item.level is level]
        free = [(item, span) for item, span in own if item.free]
        share = sum(item.weight for item, _ in free) / sum(item.weight for item, _ in own) if free else 0.0
        if share > FREE_SHARE + 1e-9:
            names = ", ".join(item.id for item, _ in free)
            problems.report("D2K0411", free[0][1], share=f"{share:.0%}", level=level, items=names)
