"""Where an access starts and how its tile extends from there: pointers that a loop advances are taken at the loop's
entry, block pointers and tensor maps are opened into base, offsets and strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.loops import where
from d2k.analyzers.patterns.numbering import Monomial, numbering
from d2k.analyzers.patterns.terms import is_index, value_terms
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op

MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Move:
    """`scale * index * stride` is part of the place of an access.

    `within` says that it differs among the elements of the tile; the range of a block pointer or tensor map has no
    value of its own: there `index` is NONE and `extent` the value of its length (NONE if not known). `stride` are the
    numbers of run-time factors. Moves of different `coordinate` belong to different operands.
    """

    index: int
    within: bool
    stride: Monomial
    scale: int
    coordinate: int
    extent: int = NONE


def moves(view: BodyView, access: int) -> tuple[Move, ...]:
    """What the first place of an access and its tile are made of."""
    found: list[Move] = []
    for coordinate, value in enumerate(where(view, access)):
        if value != NONE:
            found.extend(_moves(view, value, coordinate, (), 1, 0))
    op = view.op(access)
    if op.kind is Kind.COPY or op.attrs.get("via") == "descriptor":
        found.extend(_mapped(view, access, op))
    return tuple(found)


def _moves(view: BodyView, value: int, coordinate: int, stride: Monomial, scale: int, depth: int) -> Iterator[Move]:
    """Moves of one operand, each multiplied by `scale * stride`."""
    inner = view.strip(value)
    op = view.op(inner)
    if depth > MAX_DEPTH:
        return
    if op.kind is Kind.SHAPE and op.name in ("block_pointer", "advance"):
        yield from _block(view, op, coordinate, depth)
        return
    if op.kind is Kind.DESCRIPTOR:
        if op.args:
            yield from _moves(view, op.args[0], coordinate, stride, scale, depth + 1)
        return
    entry = _entry(view, inner)
    if entry != NONE:
        yield from _moves(view, entry, coordinate, stride, scale, depth + 1)
        return
    for term in value_terms(view, value, coordinate):
        entry = _entry(view, view.strip(term.index))
        times = scale * term.scale
        if entry != NONE:
            yield from _moves(view, entry, coordinate, (*stride, *term.stride), times, depth + 1)
        else:
            within = differs_within(view, term.index)
            yield Move(term.index, within, tuple(sorted((*stride, *term.stride))), times, coordinate)


def _entry(view: BodyView, value: int) -> int:
    """What a carried variable is before its loop; NONE for other values and for a loop's own counter."""
    op = view.op(value)
    if op.kind is not Kind.PHI or op.name != "loop" or op.loop == NONE or view.loop(op.loop).variable == value:
        return NONE
    return next((one.before for one in view.loop(op.loop).carried if one.phi == value), NONE)


def _block(view: BodyView, op: Op, coordinate: int, depth: int) -> Iterator[Move]:
    """The parts of a block pointer: its base, and along each axis (offset + range) * stride."""
    made = op
    shifts: list[tuple[int, ...]] = []
    while made.kind is Kind.SHAPE and made.name == "advance":
        shifts.append(made.args[1:])
        inner = view.strip(made.args[0])
        entry = _entry(view, inner)
        made = view.op(view.strip(entry) if entry != NONE else inner)
    rank = made.attrs.get("rank")
    if made.name != "block_pointer" or not isinstance(rank, int) or len(made.args) < 1 + 3 * rank:
        return
    yield from _moves(view, made.args[0], coordinate, (), 1, depth + 1)
    strides, offsets = made.args[1 + rank : 1 + 2 * rank], made.args[1 + 2 * rank : 1 + 3 * rank]
    for axis in range(rank):
        for stride, scale in _factors(view, strides[axis]):
            extent = made.shape[axis] if made.shape is not None and axis < len(made.shape) else NONE
            yield Move(NONE, True, stride, scale, coordinate, extent)
            for offset in (offsets[axis], *(shift[axis] for shift in shifts if axis < len(shift))):
                yield from _moves(view, offset, coordinate, stride, scale, depth + 1)


def _mapped(view: BodyView, access: int, op: Op) -> Iterator[Move]:
    """The ranges of a tensor map along the axes that its access indexes."""
    shape = op.shape or ()
    for axis in range(len(where(view, access)) - 1):
        yield Move(NONE, True, (), 1, axis + 1, shape[axis] if axis < len(shape) else NONE)


def _factors(view: BodyView, stride: int) -> Iterator[tuple[Monomial, int]]:
    """A stride as products of run-time factors, constants of the variant filled in."""
    numbers = numbering(view)
    for monomial, times in numbers.index(stride).items():
        left: list[int] = []
        for factor in monomial:
            constant = view.fold_int(numbers.example(factor))
            if constant is None:
                left.append(factor)
            else:
                times *= constant
        if times and not any(is_index(view, numbers.example(factor)) for factor in left):
            yield tuple(sorted(left)), times
