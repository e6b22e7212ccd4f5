"""Root causes on the guidance graph, and what to implement next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from d2k.analyzers.score import Credit, combined, prerequisites
from d2k.spec.audit import NextStep, RootCause


def missing_prerequisites(credits: Sequence[Credit], missing: Collection[str]) -> dict[str, tuple[str, ...]]:
    """For each item the missing ones among what it requires; one that is not applicable stands for what it requires."""
    return {
        identifier: tuple(other for other in needed if other in missing)
        for identifier, needed in prerequisites(credits).items()
    }


def root_causes(credits: Sequence[Credit], missing: Collection[str]) -> tuple[RootCause, ...]:
    """Missing items that require nothing missing and under which others are missing, the most points first."""
    blocked_by = missing_prerequisites(credits, missing)
    causes = []
    for one in credits:
        if one.id in missing and not blocked_by[one.id]:
            unlocks = _below(one.id, credits, missing, blocked_by)
            if unlocks:
                causes.append(RootCause(one.id, unlocks, gain(credits, {one.id, *unlocks})))
    return tuple(sorted(causes, key=lambda cause: -cause.points))


def next_steps(
    credits: Sequence[Credit], missing: Collection[str], partial: Collection[str], advice: Mapping[str, str]
) -> tuple[NextStep, ...]:
    """Items that can be implemented now, most points first; at equal points the one that unlocks more."""
    blocked_by = missing_prerequisites(credits, missing)
    unlocked = {cause.id: cause.points for cause in root_causes(credits, missing)}
    ready = [one for one in credits if (one.id in missing or one.id in partial) and not blocked_by[one.id]]
    steps = [NextStep(one.id, gain(credits, {one.id}), advice[one.id]) for one in ready]
    return tuple(sorted(steps, key=lambda step: (-step.points, -unlocked.get(step.id, 0.0))))


def gain(credits: Sequence[Credit], implemented: Collection[str]) -> float:
    """Points of the combined score if these items had full credit too."""
    now = combined(credits, lambda one: one.low)
    then = combined(credits, lambda one: 1.0 if one.id in implemented else one.low)
    # rounded so that equal gains compare equal whatever the order of summation
    return round(then - now, 6) if now is not None and then is not None else 0.0


def _below(
    root: str, credits: Sequence[Credit], missing: Collection[str], blocked_by: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Missing items that wait for `root`, directly or through other missing ones, in the order of the task."""
    found = {root}
    grew = True
    while grew:
        waiting = {one.id for one in credits if one.id in missing and found.intersection(blocked_by[one.id])}
        grew = not waiting <= found
        found |= waiting
    return tuple(one.id for one in credits if one.id in found and one.id != root)
