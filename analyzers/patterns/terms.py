"""The place of an access as a sum of indices times strides: which index moves it, how far, in which direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.numbering import Monomial, Polynomial, numbering
from d2k.analyzers.patterns.tiles import WITHIN, differs_within
from d2k.spec.facts import NONE, Kind

MOVING = WITHIN | {Kind.BLOCK_INDEX, Kind.CLUSTER_RANK, Kind.LOAD, Kind.ATOMIC, Kind.SHUFFLE}
"""Kinds that make a factor an index rather than a stride; loop variables do so too."""

MAX_OPENED = 64


@dataclass(frozen=True, slots=True)
class Term:
    """`scale * index * stride`. `index` is a value that differs within a block, between blocks or along a loop;
    `stride` are the numbers of run-time factors, () where there is none. `coordinate` counts the operands of the access
    that say where: an address has one, a tensor copy one for each axis.
    """

    index: int
    stride: Monomial
    scale: int
    coordinate: int


def terms(view: BodyView, access: int) -> tuple[Term, ...]:
    """What an access of memory moves with, constants of the variant filled in."""
    found: list[Term] = []
    for coordinate, value in enumerate(where(view, access)):
        if value != NONE:
            found.extend(value_terms(view, value, coordinate))
    return tuple(found)


def value_terms(view: BodyView, value: int, coordinate: int = 0) -> Iterator[Term]:
    """The same for one address or index."""
    for monomial, times in _opened(view, numbering(view).index(value)).items():
        term = _term(view, monomial, times, coordinate)
        if term is not None:
            yield term


def _term(view: BodyView, monomial: Monomial, times: int, coordinate: int) -> Term | None:
    numbers = numbering(view)
    index: int | None = None
    stride: list[int] = []
    for factor in monomial:
        example = numbers.example(factor)
        constant = view.fold_int(example)
        if constant is not None:
            times *= constant
        elif index is None and is_index(view, example):
            index = example
        else:
            stride.append(factor)
    return None if index is None or not times else Term(index, tuple(stride), times, coordinate)


def is_index(view: BodyView, value: int) -> bool:
    """`value` differs within a block, from block to block or along a loop; an argument of the kernel does not."""
    for at in index_cone(view, value):
        op = view.op(at)
        if op.kind in MOVING or (op.kind is Kind.PHI and op.name == "loop"):
            return True
    return False


def _opened(view: BodyView, polynomial: Polynomial) -> Polynomial:
    """Without the wrappers that keep an index in range: `(row + i) % M`, `min(row + i, M - 1)`, `where(ok, i, 0)`."""
    numbers = numbering(view)
    found: dict[Monomial, int] = {}
    stack = [(monomial, times) for monomial, times in polynomial.items()]
    steps = 0
    while stack:
        monomial, times = stack.pop()
        steps += 1
        for position, factor in enumerate(monomial):
            inner = _inside(view, numbers.example(factor)) if steps < MAX_OPENED else None
            if inner is not None:
                rest = monomial[:position] + monomial[position + 1 :]
                for one, count in numbers.index(inner).items():
                    stack.append((tuple(sorted((*rest, *one))), times * count))
                break
        else:
            found[monomial] = found.get(monomial, 0) + times
    return found


def _inside(view: BodyView, value: int) -> int | None:
    """The index that a wrapper keeps in range, None if `value` is no wrapper."""
    op = view.op(value)
    if op.kind is not Kind.ELEMENTWISE:
        return None
    candidates: tuple[int, ...] = ()
    if op.name == "mod" and view.fold_int(op.args[1]) is None:
        candidates = op.args[:1]
    elif op.name in ("min", "max"):
        candidates = op.args
    elif op.name == "where":
        candidates = op.args[1:]
    # a tile number that is wrapped is decoded, an element that is wrapped is kept inside the array
    inner = [arg for arg in candidates if differs_within(view, arg)]
    return inner[0] if len(inner) == 1 else None
