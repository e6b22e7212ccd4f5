"""Remembers what was found in a kernel variant, together with the constants that the finding rests on."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from d2k.analyzers.core.view import BodyGraph, BodyView

View = TypeVar("View", bound=BodyView)
Found = TypeVar("Found")


def memo(function: Callable[[View], Found]) -> Callable[[View], Found]:
    """Keep the result for each view. `view.reads` is the same as if the function had run again."""
    known: WeakKeyDictionary[View, tuple[Found, frozenset[str]]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(view: View) -> Found:
        if view not in known:
            before = set(view.reads)
            view.reads.clear()
            found = function(view)
            known[view] = (found, frozenset(view.reads))
            view.reads.update(before)
        found, reads = known[view]
        view.reads |= reads
        return found

    return remembered


def memo_loop(function: Callable[[BodyView, int], Found]) -> Callable[[BodyView, int], Found]:
    """Keep the result for each loop of a body. The function may look at no constants: all variants share it."""
    known: WeakKeyDictionary[BodyGraph, dict[int, Found]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(view: BodyView, loop: int) -> Found:
        loops = known.setdefault(view.graph, {})
        if loop not in loops:
            loops[loop] = function(view, loop)
        return loops[loop]

    return remembered
