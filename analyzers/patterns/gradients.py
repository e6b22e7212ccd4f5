"""Gradients of softmax and of normalisation: what tells a backward kernel from a forward one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import SITES, BodyView, KernelView, ProgramView
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import difference, exponentials
from d2k.analyzers.patterns.loops import index_cone
from d2k.analyzers.patterns.tiles import WITHIN
from d2k.spec.facts import Kind, Op

BACKWARD = ".backward"
"""The method of a differentiable function that the framework calls for gradients."""


def runs_backward(kernel: KernelView) -> bool:
    """Every launch stands in the `backward` method of a class, or in a function that only such methods call."""
    hosts = {host for host, _ in kernel.variant.sites}
    kernel.reads.add(SITES)
    return bool(hosts) and all(_is_backward(kernel.program, host) for host in hosts)


def _is_backward(program: ProgramView, host: str) -> bool:
    if host.endswith(BACKWARD):
        return True
    callers = {
        name
        for name, view in program.hosts.items()
        if name != host and any(view.op(at).name == host for at in view.values(Kind.HOST_CALL))
    }
    return bool(callers) and all(name.endswith(BACKWARD) for name in callers)


@dataclass(frozen=True, slots=True)
class Probabilities:
    """`value` is exp(score - offset). `scores` are the products that the score is made of, () if it is fetched."""

    value: int
    offset: int
    scores: tuple[int, ...]


def probabilities(view: BodyView) -> Iterator[Probabilities]:
    """Exponentials of scores less a log-sum-exp or a maximum, in program order."""
    data = flow(view)
    made = {one.value for one in contractions(view)}
    for value in exponentials(view):
        terms = difference(view, view.op(value).args[0])
        for minus in terms.minus:
            scores = tuple(at for at in data.back(terms.plus, _shifts) if at in made or view.op(at).kind is Kind.MMA)
            yield Probabilities(value, minus, scores)


def _shifts(op: Op) -> bool:
    """From a score to its product: scales, masks, biases."""
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.REDUCE) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("mul", "add", "sub", "where", "fma", "div", "tanh")
    )


def is_saved(view: BodyView, value: int) -> bool:
    """`value` is read from memory, not computed here from other data."""
    data = flow(view)
    behind = tuple(data.back((value,), _converts))
    return any(data.is_fetch(at) for at in behind) and all(_is_known(view, at) for at in behind)


def _converts(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("mul", "where", "add", "sub", "log", "log2", "fma")
    )


def _is_known(view: BodyView, value: int) -> bool:
    op = view.op(value)
    return _converts(op) or op.kind in (Kind.CONST, Kind.PARAM, Kind.FULL, Kind.COPY, Kind.ALLOC)


def jacobians(view: BodyView, one: Probabilities) -> Iterator[int]:
    """p * (dp - delta): the gradient of a softmax, where dp is another product."""
    data = flow(view)
    made = frozenset(at for each in contractions(view) for at in (each.value, *each.sums))
    values = frozenset(data.forward((one.value,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD)))
    for value in sorted(data.forward(values, _scaled)):
        op = view.op(value)
        if op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma") or len(op.args) < 2:
            continue
        for factor in op.args[:2]:
            inner = view.op(view.strip(factor))
            is_difference = factor not in values and inner.kind is Kind.ELEMENTWISE and inner.name == "sub"
            if is_difference and any(at in made for at in data.back(inner.args[:1], _shifts)):
                yield value


def _scaled(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("mul", "where")
    )


def less_onehot(view: BodyView, one: Probabilities) -> Iterator[int]:
    """p - 1 at the place of the label: the gradient of a cross entropy with respect to its logits."""
    data = flow(view)
    values = frozenset(data.forward((one.value,), _normalised))
    for value in sorted(values):
        for user in view.users(value):
            op = view.op(user)
            if op.kind is not Kind.ELEMENTWISE or op.name not in ("sub", "add", "where"):
                continue
            if op.name == "where":
                if any(_is_decrement(view, arg, values) for arg in op.args[1:]) and _tests_label(view, op.args[0]):
                    yield user
            elif any(_is_label_mask(view, arg) for arg in op.args if arg != value):
                yield user


def _normalised(op: Op) -> bool:
    return _scaled(op) or (op.kind is Kind.ELEMENTWISE and op.name in ("div", "sub", "add", "fma"))


def _is_decrement(view: BodyView, value: int, values: frozenset[int]) -> bool:
    op = view.op(view.strip(value))
    return op.kind is Kind.ELEMENTWISE and op.name in ("sub", "add") and any(arg in values for arg in op.args)


def _is_label_mask(view: BodyView, value: int) -> bool:
    """(column == label), as a number."""
    data = flow(view)
    for at in data.back((value,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE) or op.name in ("where", "mul")):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name == "where" and _tests_label(view, op.args[0]):
            return True
        if _tests_label(view, at):
            return True
    return False


def _tests_label(view: BodyView, condition: int) -> bool:
    op = view.op(view.strip(condition))
    if op.kind is not Kind.ELEMENTWISE or op.name != "eq":
        return False
    sides = [index_cone(view, arg) for arg in op.args]
    ranged = any(view.op(at).kind in WITHIN or view.op(at).kind is Kind.PHI for side in sides for at in side)
    return ranged and any(view.op(at).kind is Kind.LOAD for side in sides for at in side)
