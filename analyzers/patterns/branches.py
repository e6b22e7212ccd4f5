"""Which operations can run together: conditions that hold for one and fail for the other exclude each other."""

from __future__ import annotations

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import Kind

Literal = tuple[int, bool]
"""The number of a condition and whether it holds."""


def conditions(view: BodyView, value: int) -> frozenset[Literal]:
    """Everything that must hold, or fail, for an operation to run; `a and b` counts as both."""
    found: set[Literal] = set()
    stack = [(guard.value, guard.expected) for guard in view.op(value).guards]
    while stack:
        condition, holds = stack.pop()
        op = view.op(condition)
        found.add((numbering(view).number(condition), holds))
        if op.kind is Kind.ELEMENTWISE and op.name == "not":
            stack.append((op.args[0], not holds))
        elif op.kind is Kind.ELEMENTWISE and op.name == ("and" if holds else "or"):
            stack.extend((arg, holds) for arg in op.args)
    return frozenset(found)


def exclude(view: BodyView, left: int, right: int) -> bool:
    """The two operations never both run in one call."""
    others = conditions(view, right)
    return any((number, not holds) in others for number, holds in conditions(view, left))
