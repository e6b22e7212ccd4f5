"""Matrix products: the operands traced to the tiles that were fetched for them, and the loop that sums them up."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import movers
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import NONE, Kind, Op


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix instruction a[m, k] @ b[k, n]. `a_fetches` and `b_fetches` are the reads of global memory behind each
    operand; extents are None where they are not known."""

    value: int
    a: int
    b: int
    a_fetches: tuple[int, ...]
    b_fetches: tuple[int, ...]
    m: int | None
    n: int | None
    k: int | None
    reduction: int
    """The innermost loop that sums such products into one accumulator, NONE if there is none."""


@memo
def products(view: BodyView) -> tuple[Product, ...]:
    """Every matrix instruction, in program order."""
    return tuple(_product(view, value) for value in view.values(Kind.MMA))


def operand_path(op: Op) -> bool:
    """What may stand between a fetch and a matrix operand: conversions, layouts, scales, but no other contraction."""
    return op.kind not in (Kind.MMA, Kind.REDUCE, Kind.SCAN)


def _product(view: BodyView, value: int) -> Product:
    op = view.op(value)
    data = flow(view)
    a, b = (op.args[0], op.args[1]) if len(op.args) > 1 else (NONE, NONE)
    m, n, k = _extents(view, value, a, b)
    a_fetches = data.fetches(a, operand_path) if a != NONE else ()
    b_fetches = data.fetches(b, operand_path) if b != NONE else ()
    return Product(value, a, b, a_fetches, b_fetches, m, n, k, reduction_loop(view, value))


def _extents(view: BodyView, value: int, a: int, b: int) -> tuple[int | None, int | None, int | None]:
    """(m, n, k) of one instruction: from its attributes, else from the shapes of result and operands."""
    op = view.op(value)
    named = tuple(op.attrs.get(word) for word in ("m", "n", "k"))
    known = [one if isinstance(one, int) and not isinstance(one, bool) else None for one in named]
    accumulator = op.args[2] if len(op.args) > 2 else NONE
    result = view.dims(value) or (view.dims(accumulator) if accumulator != NONE else None)
    shapes = [result, *(view.dims(at) if at != NONE else None for at in (a, b))]
    guesses = (
        (_last(shapes[0], 2), _last(shapes[1], 2)),
        (_last(shapes[0], 1), _last(shapes[2], 1)),
        (_last(shapes[1], 1), _last(shapes[2], 2)),
    )
    for index, options in enumerate(guesses):
        for option in options:
            known[index] = option if known[index] is None else known[index]
    return known[0], known[1], known[2]


def _last(shape: tuple[int | None, ...] | None, back: int) -> int | None:
    return shape[-back] if shape is not None and len(shape) >= back else None


def reduction_loop(view: BodyView, value: int) -> int:
    """The innermost loop around a product that adds to what the product is added to."""
    for loop in view.loops_of(value):
        if any(one in reach for reach in (frozenset(sums_into(view, value)),) for one in _carried_nexts(view, loop)):
            return loop
    return NONE


def _carried_nexts(view: BodyView, loop: int) -> tuple[int, ...]:
    moving = movers(view, loop)
    return tuple(one.next for one in view.loop(loop).carried if one.phi not in moving and one.next != NONE)


def sums_into(view: BodyView, value: int) -> tuple[int, ...]:
    """The product and the sums that it is an addend of, without leaving by another product's operands."""
    data = flow(view)
    return tuple(data.forward((value,), is_sum))


def is_sum(op: Op) -> bool:
    return op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.LOAD, Kind.MMA) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "fma", "where")
    )
