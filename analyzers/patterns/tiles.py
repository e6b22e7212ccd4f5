"""Which tile of the work a block does: the block indices, decoded tile numbers and outer loops that an index
rests on."""

from __future__ import annotations

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.loops import arithmetic, index_cone
from d2k.analyzers.patterns.memo import memo_loop
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import NONE, Kind, Op

WITHIN = frozenset({Kind.ARANGE, Kind.THREAD_INDEX, Kind.LANE, Kind.WARP})
"""Indices that differ among the elements of a tile."""


def tile_numbers(view: BodyView, value: int, loaded: bool = False) -> frozenset[int]:
    """Numbers of the tile indices behind `value`: block indices, quotients and remainders that decode them,
    loop variables.

    With `loaded`, numbers that are read from a table of tiles count too. `(pid // n) * BLOCK` rests on `pid //
    n`; rounding such as `pid * BLOCK // 64 * 64` rests on `pid`.
    """
    return (_tile_numbers_or_listed if loaded else _tile_numbers)(view, value)


@memo_loop
def _tile_numbers(view: BodyView, value: int) -> frozenset[int]:
    return _find_tile_numbers(view, value, False)


@memo_loop
def _tile_numbers_or_listed(view: BodyView, value: int) -> frozenset[int]:
    return _find_tile_numbers(view, value, True)


def _find_tile_numbers(view: BodyView, value: int, loaded: bool) -> frozenset[int]:
    numbers = numbering(view)
    found: set[int] = set()
    seen: set[int] = set()
    stack = [value]
    while stack:
        at = stack.pop()
        if at in seen or at == NONE:
            continue
        seen.add(at)
        op = view.op(at)
        if (
            op.kind is Kind.BLOCK_INDEX
            or _is_loop_variable(op)
            or _decodes(view, op)
            or (loaded and _is_listed(view, op))
        ):
            found.add(numbers.number(at))
        elif arithmetic(op):
            stack.extend(op.args)
    return frozenset(found)


def _is_listed(view: BodyView, op: Op) -> bool:
    """A scalar that is read at the number of the block."""
    return op.kind is Kind.LOAD and rests_on_tile(view, op.args[0]) and not differs_within(view, op.args[0])


def _is_loop_variable(op: Op) -> bool:
    return op.kind is Kind.PHI and op.name == "loop"


def _decodes(view: BodyView, op: Op) -> bool:
    """A quotient or remainder of a bare tile number, not of an offset in elements."""
    if op.kind is not Kind.ELEMENTWISE or op.name not in ("floordiv", "div", "mod") or len(op.args) != 2:
        return False
    numbers = numbering(view)
    tiled = False
    for monomial, times in numbers.index(op.args[0]).items():
        for factor in monomial:
            if rests_on_tile(view, numbers.example(factor)):
                if len(monomial) > 1 or abs(times) != 1:
                    return False
                tiled = True
    return tiled


@memo_loop
def rests_on_tile(view: BodyView, value: int) -> bool:
    """`value` differs from block to block, or from iteration to iteration of an outer loop."""
    return any(view.op(at).kind is Kind.BLOCK_INDEX or _is_loop_variable(view.op(at)) for at in index_cone(view, value))


@memo_loop
def differs_within(view: BodyView, value: int) -> bool:
    """`value` differs among the elements of a tile."""
    return any(view.op(at).kind in WITHIN for at in index_cone(view, value))
