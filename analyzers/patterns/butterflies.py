"""Reductions and scans across the lanes of a warp, as shuffles whose result meets the lane's own value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import NONE, Kind, Op

FAMILIES = {"add": "sum", "fma": "sum", "max": "max", "min": "max"}
COMPARISONS = ("gt", "ge", "lt", "le")


@dataclass(frozen=True, slots=True)
class Butterfly:
    """`shuffle` fetches another lane's value, `value` combines it with one's own; `op` is sum, max, scan, argmax, or
    "" for another combination."""

    shuffle: int
    value: int
    op: str


def butterflies(view: BodyView) -> Iterator[Butterfly]:
    """Every shuffle that reduces or scans; moving values between lanes and broadcasting one are neither."""
    for shuffle in view.values(Kind.SHUFFLE):
        if _may_reduce(view, shuffle):
            yield from _combined(view, shuffle)


def _may_reduce(view: BodyView, shuffle: int) -> bool:
    op = view.op(shuffle)
    if op.name in ("xor", "up", "down"):
        return True
    # the lane read from differs from lane to lane
    return (
        len(op.args) > 1 and op.args[1] != NONE and any(view.op(at).kind is Kind.LANE for at in view.slice(op.args[1]))
    )


def _combined(view: BodyView, shuffle: int) -> Iterator[Butterfly]:
    own = _same_as(view, view.op(shuffle).args[0])
    for moved in flow(view).forward((shuffle,), _moves):
        for user in view.users(moved):
            op = view.op(user)
            others = [arg for arg in _data(op) if arg != moved and arg != NONE]
            mixes = any(_number(view, arg) in own for arg in others)
            if op.kind is Kind.ELEMENTWISE and op.name in FAMILIES and mixes:
                word = FAMILIES[op.name]
                yield Butterfly(shuffle, user, "scan" if view.op(shuffle).name == "up" and word == "sum" else word)
                return
            if _selects(op) and mixes:
                yield Butterfly(shuffle, user, _selection(view, op, moved, others))
                return
    if _comes_round(view, shuffle):
        yield Butterfly(shuffle, shuffle, "")


def _moves(op: Op) -> bool:
    """A conversion, or a selection between the other lane's value and a neutral one."""
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM) and op.name != "insert"


def _data(op: Op) -> tuple[int, ...]:
    return op.args[1:] if _selects(op) else op.args


def _selects(op: Op) -> bool:
    return (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if")


def _selection(view: BodyView, op: Op, moved: int, others: list[int]) -> str:
    """Of "the other's if it is greater": max if the selected values are themselves compared, argmax if others are."""
    data = flow(view)
    for at in view.walk(op.args[0], lambda one: one.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.PHI)):
        compared = view.op(at)
        if compared.kind is Kind.ELEMENTWISE and compared.name in COMPARISONS:
            behind = set(data.back(compared.args, lambda one: _moves(one)))
            if moved in behind:
                return "max"
            if any(view.op(one).kind is Kind.SHUFFLE for one in behind):
                return "argmax"
    # added in some lanes only: a scan
    return "scan" if view.op(moved).name == "up" else ""


def _same_as(view: BodyView, value: int) -> frozenset[int]:
    """Numbers of a value behind conversions and reads of arrays."""
    found = {_number(view, value)}
    while view.op(value).kind in (Kind.CAST, Kind.SHAPE) and view.op(value).args and view.op(value).name != "join":
        value = view.op(value).args[0]
        found.add(_number(view, value))
    return frozenset(found)


def _number(view: BodyView, value: int) -> int:
    return numbering(view).number(value)


def _comes_round(view: BodyView, shuffle: int) -> bool:
    """What is made of the shuffled value is shuffled again: a combination of several numbers, such as mean and
    variance."""
    own = view.op(shuffle).args[0]
    if view.op(own).kind is not Kind.PHI or view.op(own).name != "loop":
        return False
    through = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.CALL)
    return own in set(flow(view).forward((shuffle,), lambda op: op.kind in through))
