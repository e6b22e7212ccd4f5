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
    """Keep the result for each view. `view.reads` is the same as if the function had run again.

    Variants of a kernel share a body; those that agree on every constant that was read share the result.
    """
    known: WeakKeyDictionary[View, tuple[Found, frozenset[str]]] = WeakKeyDictionary()
    shared: WeakKeyDictionary[BodyGraph, list[tuple[Found, dict[str, object]]]] = WeakKeyDictionary()

    def found(view: View) -> tuple[Found, frozenset[str]]:
        others = shared.setdefault(view.graph, [])
        for result, constants in others:
            if all(view.reading(name) == value for name, value in constants.items()):
                return result, frozenset(constants)
        before = set(view.reads)
        view.reads.clear()
        result = function(view)
        reads = frozenset(view.reads)
        view.reads.update(before)
        others.append((result, {name: view.reading(name) for name in reads}))
        return result, reads

    @wraps(function)
    def remembered(view: View) -> Found:
        if view not in known:
            known[view] = found(view)
        result, reads = known[view]
        view.reads |= reads
        return result

    return remembered


def memo_loop(function: Callable[[BodyView, int], Found]) -> Callable[[BodyView, int], Found]:
    """Keep the result for each loop, or value, of a body. The function may look at no constants: all variants
    share it."""
    known: WeakKeyDictionary[BodyGraph, dict[int, Found]] = WeakKeyDictionary()

    @wraps(function)
    def remembered(view: BodyView, loop: int) -> Found:
        loops = known.setdefault(view.graph, {})
        if loop not in loops:
            loops[loop] = function(view, loop)
        return loops[loop]

    return remembered
