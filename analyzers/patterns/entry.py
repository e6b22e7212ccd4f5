"""Places as they are when a loop is entered: loop counters and bumped pointers are taken at their first value."""

from __future__ import annotations

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.numbering import Monomial, Polynomial, numbering
from d2k.spec.facts import NONE, Kind

MAX_DEPTH = 4


def entry_place(view: BodyView, value: int, depth: int = 0) -> Polynomial:
    """`value` as a sum of products, constants of the variant filled in and what loops change at their entry."""
    numbers = numbering(view)
    found: dict[Monomial, int] = {}
    for monomial, times in numbers.index(value).items():
        constants = [view.fold_int(numbers.example(factor)) for factor in monomial]
        starts = [before(view, numbers.example(factor)) for factor in monomial]
        at = next((n for n, start in enumerate(starts) if start != NONE), None)
        rest = tuple(factor for n, factor in enumerate(monomial) if n != at and constants[n] is None)
        for constant in constants:
            times *= 1 if constant is None else constant
        if at is None or depth >= MAX_DEPTH:
            found[rest] = found.get(rest, 0) + times
            continue
        for inner, count in entry_place(view, starts[at], depth + 1).items():
            key = tuple(sorted((*rest, *inner)))
            found[key] = found.get(key, 0) + times * count
    return {monomial: times for monomial, times in found.items() if times}


def before(view: BodyView, value: int) -> int:
    """What a loop's counter or a carried variable is on entry; NONE for any other value."""
    value = view.strip(value)
    op = view.op(value)
    if op.kind is not Kind.PHI or op.name != "loop" or op.loop == NONE:
        return NONE
    loop = view.loop(op.loop)
    if loop.variable == value:
        return loop.start
    return next((one.before for one in loop.carried if one.phi == value), NONE)
