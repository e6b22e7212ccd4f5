"""Running softmax: a carried maximum and what is rescaled when it grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.carried import Cell, cells, members
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import Difference, difference, exponentials
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import NONE, Kind, Op


@dataclass(frozen=True, slots=True)
class RunningMax:
    """A maximum that a loop carries. `values` are everything that stands for it, old or new.

    If a branch assigns it, `candidate` is the new maximum where `branch` holds.
    """

    cell: Cell
    update: int
    values: frozenset[int]
    candidate: int = NONE
    branch: int = NONE


@dataclass(frozen=True, slots=True)
class Rescaled:
    """A carried value that the loop multiplies by exp(old maximum - new maximum)."""

    cell: Cell
    product: int


@dataclass(frozen=True, slots=True)
class RunningSoftmax:
    """A loop with a running maximum; `factors` are exp(old - new), `weights` exp(score - new)."""

    loop: int
    maximum: RunningMax
    factors: tuple[int, ...]
    weights: tuple[int, ...]
    sums: tuple[Rescaled, ...]
    accumulators: tuple[Rescaled, ...]


def same_value(op: Op) -> bool:
    """The result is the operand itself, in another type or shape, or one of several versions of it."""
    return op.kind in (
        Kind.CAST,
        Kind.SHAPE,
        Kind.PHI,
        Kind.ITEM,
        Kind.SHUFFLE,
        Kind.LOAD,
        Kind.ALLOC,
        Kind.CONTROL,
    ) or (op.kind is Kind.ELEMENTWISE and op.name == "where")


def is_maximum(op: Op) -> bool:
    return (
        (op.kind is Kind.ELEMENTWISE and op.name == "max")
        or (op.kind in (Kind.REDUCE, Kind.REDUX) and op.name == "max")
        or (op.kind is Kind.ATOMIC and op.name == "max")
    )


def scaled_value(op: Op) -> bool:
    """As `same_value`, or multiplied by something."""
    return same_value(op) or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma", "div"))


@memo
def running_softmaxes(view: BodyView) -> tuple[RunningSoftmax, ...]:
    """Loops in which a maximum is carried and something is multiplied by exp(old - new)."""
    return tuple(_running_softmaxes(view))


def _running_softmaxes(view: BodyView) -> Iterator[RunningSoftmax]:
    exps = exponentials(view)
    if not exps:
        return
    exponents = {value: difference(view, view.op(value).args[0]) for value in exps}
    inside = members(view)
    for loop in range(len(view.body.loops)):
        here = frozenset(inside[loop])
        if not any(value in here for value in exps):
            continue
        carried = tuple(cells(view, loop))
        for cell in carried:
            maximum = running_max(view, cell)
            if maximum is not None:
                yield _softmax(view, loop, maximum, carried, {v: e for v, e in exponents.items() if v in here})


def running_max(view: BodyView, cell: Cell) -> RunningMax | None:
    """The cell as a running maximum: its new value is max(its old value, something)."""
    data = flow(view)
    made_of = set(data.back(cell.news, lambda op: scaled_value(op) or is_maximum(op) or _shifts(op)))
    old = frozenset(data.forward(cell.olds, scaled_value))
    for value in sorted(made_of):
        op = view.op(value)
        if is_maximum(op) and len(op.args) > 1 and any(arg in old for arg in op.args[:2]):
            # a maximum with a constant only bounds the value
            others = [arg for arg in op.args[:2] if arg not in old]
            if others and all(isinstance(view.fold(arg), (int, float)) for arg in others):
                continue
            return RunningMax(cell, value, _versions(view, cell, value))
        if selects_greater(view, value, old):
            candidate = next(view.strip(arg) for arg in op.args[1:] if arg not in old)
            return RunningMax(cell, value, _versions(view, cell, value), candidate, op.args[0])
    return None


def _versions(view: BodyView, cell: Cell, update: int) -> frozenset[int]:
    return frozenset(flow(view).forward((*cell.olds, update), lambda op: scaled_value(op) or is_maximum(op)))


def _shifts(op: Op) -> bool:
    """`m + log(l)`: a maximum and a sum that are carried as one number."""
    return op.kind is Kind.ELEMENTWISE and op.name == "add"


def is_greater_of(view: BodyView, value: int) -> bool:
    """`a > b ? a : b`: a maximum (or minimum) written out."""
    op = view.op(value)
    selects = (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if")
    if not selects or len(op.args) != 3:
        return False
    condition = view.op(op.args[0])
    if condition.kind is not Kind.ELEMENTWISE or condition.name not in ("gt", "ge", "lt", "le"):
        return False
    return {view.strip(arg) for arg in op.args[1:]} == {view.strip(arg) for arg in condition.args}


def selects_greater(view: BodyView, value: int, old: frozenset[int]) -> bool:
    """`s > m ? s : m`, as a selection or as a branch that assigns, where one of the two is the old maximum."""
    return is_greater_of(view, value) and sum(arg in old for arg in view.op(value).args[1:]) == 1


def _softmax(
    view: BodyView, loop: int, maximum: RunningMax, carried: tuple[Cell, ...], exponents: dict[int, Difference]
) -> RunningSoftmax:
    data = flow(view)
    values = maximum.values
    factors = [
        v
        for v, e in exponents.items()
        if _touches(e.plus, values) and (_touches(e.minus, values) or _is_new(view, v, e, maximum))
    ]
    weights = [v for v, e in exponents.items() if _touches(e.minus, values) and not _touches(e.plus, values)]
    factor_values = frozenset(data.forward(factors, same_value))
    # 0 * x + factor is the factor
    factor_values |= frozenset(
        data.forward([one for at in factor_values for one in _plus_nothing(view, at)], same_value)
    )
    sums: list[Rescaled] = []
    accumulators: list[Rescaled] = []
    for cell in carried:
        product = _rescaling(view, cell, factor_values) if cell is not maximum.cell else None
        if product is None:
            continue
        is_accumulator = _weighs_data(view, cell, product, weights)
        (accumulators if is_accumulator else sums).append(Rescaled(cell, product))
    in_logs = _summed_in_logs(view, maximum.cell, factors)
    return RunningSoftmax(loop, maximum, tuple(factors), tuple(weights), (*sums, *in_logs), tuple(accumulators))


def _plus_nothing(view: BodyView, value: int) -> Iterator[int]:
    for user in view.users(value):
        op = view.op(user)
        if op.kind is Kind.ELEMENTWISE and op.name == "add":
            other = op.args[0] if op.args[1] == value else op.args[1]
            if view.op(other).name == "mul" and any(view.fold(arg) == 0 for arg in view.op(other).args):
                yield user


def _summed_in_logs(view: BodyView, cell: Cell, factors: list[int]) -> tuple[Rescaled, ...]:
    """The carried maximum holds log(sum) too: new = m + log(exp(old - m) + sum)."""
    data = flow(view)
    behind = set(data.back(cell.news, _accumulates))
    logs = [at for at in behind if view.op(at).kind is Kind.ELEMENTWISE and view.op(at).name in ("log", "log2")]
    reached = [at for at in factors if at in behind]
    return (Rescaled(cell, reached[0]),) if logs and reached else ()


def _is_new(view: BodyView, exponential: int, exponent: Difference, maximum: RunningMax) -> bool:
    """The exponential stands in the branch that takes a greater candidate, and subtracts it."""
    guarded = any(guard.value == maximum.branch and guard.expected for guard in view.op(exponential).guards)
    return guarded and any(view.strip(term) == maximum.candidate for term in exponent.minus)


def _touches(terms: tuple[int, ...], values: frozenset[int]) -> bool:
    return any(term in values for term in terms)


def _rescaling(view: BodyView, cell: Cell, factors: frozenset[int]) -> int | None:
    """The product of the cell's old value with a factor, if it ends up in the cell."""
    data = flow(view)
    old = frozenset(data.forward(cell.olds, same_value))
    updated = frozenset(data.back(cell.news, _accumulates))
    for value in sorted(updated):
        op = view.op(value)
        if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma") and len(op.args) >= 2:
            a, b = op.args[:2]
            if (a in old and b in factors) or (b in old and a in factors):
                return value
    return None


def _accumulates(op: Op) -> bool:
    return (
        same_value(op)
        or op.kind in (Kind.MMA, Kind.SHUFFLE, Kind.REDUCE)
        or (op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "fma", "log", "log2", "div"))
    )


def _weighs_data(view: BodyView, cell: Cell, product: int, weights: list[int]) -> bool:
    """The cell gathers weights times data, not the weights alone."""
    data = flow(view)
    old = frozenset(data.forward(cell.olds, same_value))
    weight_values = frozenset(data.forward(weights, lambda op: scaled_value(op)))
    for value in data.back(cell.news, _accumulates):
        op = view.op(value)
        if op.kind is Kind.MMA and any(arg in weight_values for arg in op.args[:2]):
            return True
        if value == product and op.name != "fma":
            continue
        if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma") and len(op.args) >= 2:
            a, b = op.args[:2]
            for weight, other in ((a, b), (b, a)):
                if weight in weight_values and other not in old and data.fetches(other, _no_exponential):
                    return True
    return False


def _no_exponential(op: Op) -> bool:
    return not (op.kind is Kind.ELEMENTWISE and op.name in ("exp", "exp2", "max"))
