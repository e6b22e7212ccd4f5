"""Values that a launch can give a constant: one for each way in which the host conditions behind it fall."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from d2k.analyzers.core.fold import apply
from d2k.analyzers.triton.builder import Builder
from d2k.analyzers.triton.values import UNKNOWN, Known, Value
from d2k.spec.facts import NONE, Kind

MAX_CONDITIONS = 3
MAX_VISITS = 2_000

Choices = Mapping[int, bool]
"""Host conditions, by their operation, and how they fall."""

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "not", "and", "or"})


def assignments(builder: Builder, values: Iterable[Value], launch: int) -> Sequence[Choices]:
    """How the conditions behind `values` can fall at a launch; conditions that guard the launch hold there.

    A value that is no constant in some case counts as unknown in all: of `1 if n < 2 else power(n)` the 1 says nothing.
    """
    fixed = {guard.value: guard.expected for guard in builder.ops[launch].guards}
    conditions: dict[int, None] = {}
    for value in values:
        if isinstance(value, int) and builder.known[value] is UNKNOWN:
            own = [one for one in _conditions(builder, value) if one not in fixed]
            if len(own) <= MAX_CONDITIONS and all(
                evaluate(builder, value, choice) is not UNKNOWN for choice in _outcomes(own, fixed)
            ):
                conditions.update(dict.fromkeys(own))
    free = list(conditions)
    return (fixed,) if len(free) > MAX_CONDITIONS else _outcomes(free, fixed)


def _outcomes(conditions: Sequence[int], fixed: Choices) -> list[Choices]:
    results = product((True, False), repeat=len(conditions))
    return [{**fixed, **dict(zip(conditions, result, strict=True))} for result in results]


def _conditions(builder: Builder, value: int) -> list[int]:
    """Conditions that decide what a value is: those of its phis, and what is itself true or false."""
    found: list[int] = []
    seen: set[int] = set()
    stack = [value]
    while stack and len(seen) < MAX_VISITS:
        at = stack.pop()
        if at == NONE or at in seen or builder.known[at] is not UNKNOWN:
            continue
        seen.add(at)
        draft = builder.ops[at]
        if draft.kind is Kind.PHI and draft.name == "if":
            found.append(draft.args[0])
            stack.extend(draft.args[1:])
        elif (draft.kind is Kind.ELEMENTWISE and draft.name in COMPARISONS) or (
            draft.kind is Kind.PARAM and draft.attrs.get("bool")
        ):
            found.append(at)
        elif draft.kind in (Kind.ELEMENTWISE, Kind.CAST):
            stack.extend(draft.args)
    return found


def evaluate(builder: Builder, value: int, choices: Choices) -> Known:
    """The constant that a host value is if its conditions fall as `choices` says; a default counts as given."""
    memo: dict[int, Known] = {}
    stack = [value]
    visits = 0
    while stack:
        visits += 1
        if visits > MAX_VISITS:
            return UNKNOWN
        at = stack[-1]
        if at in memo:
            stack.pop()
            continue
        known = builder.known[at] if at != NONE else UNKNOWN
        if at == NONE or known is not UNKNOWN:
            memo[at] = known
            continue
        if at in choices:
            memo[at] = choices[at]
            continue
        draft = builder.ops[at]
        if draft.kind is Kind.PARAM:
            default = draft.attrs.get("default", UNKNOWN)
            memo[at] = UNKNOWN if isinstance(default, tuple) else default
            continue
        needed: tuple[int, ...] = ()
        if draft.kind is Kind.PHI and draft.name == "if":
            chosen = choices.get(draft.args[0])
            needed = () if chosen is None else (draft.args[1] if chosen else draft.args[2],)
        elif draft.kind is Kind.ELEMENTWISE or (draft.kind is Kind.CAST and draft.args):
            needed = draft.args
        missing = [one for one in needed if one not in memo]
        if missing:
            stack.extend(missing)
            continue
        memo[at] = _combined(draft.kind, draft.name, [memo[one] for one in needed])
    return memo[value]


def _combined(kind: Kind, name: str, values: Sequence[Known]) -> Known:
    plain = [one for one in values if one is not UNKNOWN]
    if not values or len(plain) != len(values):
        return UNKNOWN
    if kind is not Kind.ELEMENTWISE:
        return plain[0]
    result = apply(name, tuple(plain))
    return UNKNOWN if result is None else result
