"""Operands that are fetched one or more iterations ahead and carried to their use in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import fetch_moves
from d2k.spec.facts import NONE, Carried, Kind, Op


@dataclass(frozen=True, slots=True)
class Prefetch:
    """`fetch` is carried by `loop` through the variables `phis` and used `len(phis)` iterations later."""

    fetch: int
    loop: int
    phis: tuple[int, ...]


def prefetches(view: BodyView) -> Iterator[Prefetch]:
    """Fetches that only a later iteration uses. What this iteration uses too is a window, not a prefetch."""
    data = flow(view)
    for loop, one in enumerate(view.body.loops):
        for carried in one.carried:
            fetch = _fetched(view, loop, carried)
            if fetch == NONE or _used_now(view, fetch, carried.phi):
                continue
            phis = tuple(_chain(one.carried, carried.phi))
            if any(data.is_output(at) for at in data.forward((phis[-1],))):
                yield Prefetch(fetch, loop, phis)


def _fetched(view: BodyView, loop: int, carried: Carried) -> int:
    """The fetch whose data becomes the variable's next value, NONE if anything else is mixed in."""
    if carried.next in (NONE, carried.phi):
        return NONE
    data = flow(view)
    found = NONE
    for at in data.back((carried.next,), _carries):
        op = view.op(at)
        if at == carried.phi or op.kind in (Kind.CONST, Kind.FULL) or (_carries(op) and at != carried.phi):
            if op.kind is Kind.PHI and op.name == "loop" and at != carried.phi and op.loop == loop:
                return NONE
            continue
        if not data.is_fetch(at) or loop not in view.loops_of(at) or not fetch_moves(view, at, loop):
            return NONE
        found = at
    return found


def _carries(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM) or (
        op.kind is Kind.ELEMENTWISE and op.name == "where"
    )


def _used_now(view: BodyView, fetch: int, phi: int) -> bool:
    """Something other than the variable uses the fetched data before the next iteration."""
    data = flow(view)
    stack = [fetch]
    seen = {fetch, phi}
    while stack:
        at = stack.pop()
        for user in data.consumers(at):
            if user in seen:
                continue
            seen.add(user)
            if not _carries(view.op(user)):
                return True
            stack.append(user)
    return False


def _chain(carried: tuple[Carried, ...], phi: int) -> Iterator[int]:
    """The variable, and those that take over its value in later iterations."""
    seen: set[int] = set()
    while phi not in seen:
        seen.add(phi)
        yield phi
        phi = next((one.phi for one in carried if one.next == phi and one.phi != phi), phi)
