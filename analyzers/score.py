"""From the credits of items to scores between 0 and 100."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from math import fsum

from d2k.spec.audit import Score
from d2k.spec.vocabulary import Level


@dataclass(frozen=True, slots=True)
class Credit:
    """What one item earned, 0 to 1, and what it may earn at most; meaningless where it is not `applicable`."""

    id: str
    level: Level
    weight: float
    low: float
    high: float
    requires: tuple[str, ...] = ()
    free: bool = False
    applicable: bool = True


def score(credits: Sequence[Credit]) -> Score:
    """All scores of a task. A level without an applicable item is dropped and named; None if there is no such item."""
    gated = gated_credits(credits)
    levels = level_scores(credits, lambda one: one.low)
    low = _mean(levels)
    return Score(
        combined=low,
        low=low,
        high=combined(credits, lambda one: one.high),
        L1=levels.get(Level.L1),
        L2=levels.get(Level.L2),
        L3=levels.get(Level.L3),
        gated=combined(credits, lambda one: gated[one.id]),
        free=combined(credits, lambda one: one.low if one.free else 0.0),
        dropped_levels=tuple(
            level for level in Level if level not in levels and any(one.level is level for one in credits)
        ),
    )


def combined(credits: Sequence[Credit], value: Callable[[Credit], float]) -> float | None:
    """The mean over the levels present; None if no item is applicable."""
    return _mean(level_scores(credits, value))


def level_scores(credits: Sequence[Credit], value: Callable[[Credit], float]) -> dict[Level, float]:
    """The weighted mean of `value` for each level that has an applicable item, times 100."""
    found: dict[Level, float] = {}
    for level in Level:
        members = [one for one in credits if one.level is level and one.applicable]
        if members:
            # fsum rounds once, so that neither the order of items nor a little more credit can lower a score
            earned = fsum(one.weight * value(one) for one in members)
            found[level] = 100 * (earned / fsum(one.weight for one in members))
    return found


def gated_credits(credits: Sequence[Credit]) -> dict[str, float]:
    """Each credit times the least gated credit among its prerequisites."""
    needed = prerequisites(credits)
    by_id = {one.id: one for one in credits}
    gated: dict[str, float] = {}
    for identifier in in_order(credits):
        gate = min((gated[other] for other in needed[identifier]), default=1.0)
        gated[identifier] = by_id[identifier].low * gate
    return gated


def prerequisites(credits: Sequence[Credit]) -> dict[str, tuple[str, ...]]:
    """What each item requires; one that is not applicable is replaced by what it requires itself."""
    by_id = {one.id: one for one in credits}
    found: dict[str, tuple[str, ...]] = {}
    for identifier in in_order(credits):
        direct: dict[str, None] = {}
        for other in by_id[identifier].requires:
            direct.update(dict.fromkeys((other,) if by_id[other].applicable else found[other]))
        found[identifier] = tuple(direct)
    return found


def in_order(credits: Sequence[Credit]) -> tuple[str, ...]:
    """Items, each after all that it requires. Raises `graphlib.CycleError` on a cycle, which no checked task has."""
    graph: Mapping[str, tuple[str, ...]] = {one.id: one.requires for one in credits}
    return tuple(TopologicalSorter(graph).static_order())


def _mean(levels: Mapping[Level, float]) -> float | None:
    return fsum(levels.values()) / len(levels) if levels else None
