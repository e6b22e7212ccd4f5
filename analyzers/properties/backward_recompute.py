"""Recomputation in the backward pass: a kernel that makes gradients builds what the forward pass had
(probabilities from
scores and a saved log-sum-exp, normalised rows from a saved mean and deviation) again instead of reading it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.addresses import indices, memory_of
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.gradients import is_saved, jacobians, less_onehot, probabilities
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.statistics import Statistic, statistics
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import Status


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    word: str
    stat: str
    value: int
    text: str


def detect(kernel: KernelView) -> Detection:
    found = (*_probabilities(kernel), *_rows(kernel))
    if not found:
        return Miss(detail="no gradient is made from forward values that are built again")
    stat = next((one.stat for one in found if one.stat != "none"), "none")
    words = tuple(sorted({one.word for one in found}))
    evidence = tuple(Evidence(kernel.place(one.value), one.text) for one in found)[:4]
    return (Match(evidence, {"rebuilt": words, "saved_stat": stat}),)


def _probabilities(kernel: KernelView) -> Iterator[_Rebuilt]:
    for one in probabilities(kernel):
        if not one.scores or not is_saved(kernel, one.offset):
            continue
        gradient = next(iter(jacobians(kernel, one)), None)
        if gradient is not None:
            yield _Rebuilt("probs", "lse", one.value, "exp(product - saved log-sum-exp)")
            yield _Rebuilt("probs", "lse", gradient, "p * (dp - delta)")
            return
        label = next(iter(less_onehot(kernel, one)), None)
        if label is not None:
            yield _Rebuilt("logits", "lse", one.scores[0], "logits multiplied again")
            yield _Rebuilt("probs", "lse", one.value, "exp(logit - saved log-sum-exp)")
            return


def _rows(kernel: KernelView) -> Iterator[_Rebuilt]:
    """Gradients of a normalisation: of its input, from a dot product with the row; of its weight, summed over rows."""
    for one in statistics(kernel):
        if "dot" not in one.kinds:
            continue
        for value in _input_gradients(kernel, one):
            saved = any(_is_row_scalar(kernel, at) for at in _factors(kernel, value))
            if saved or _has_deviation(kernel, value):
                yield _Rebuilt("xhat", "mean_rstd" if saved else "none", one.value, "row times the output's gradient")
                yield _Rebuilt("xhat", "mean_rstd" if saved else "none", value, "gradient made of the normalised row")
                return
        if _is_weight_gradient(kernel, one):
            yield _Rebuilt("xhat", "mean_rstd", one.value, "normalised row times the output's gradient, over rows")
            return


def _input_gradients(kernel: KernelView, dot: Statistic) -> Iterator[int]:
    """m - (dot * x …): a sum of a term without the dot product and one with it, times the row itself."""
    data = flow(kernel)
    stored = frozenset(data.back(data.outputs()))
    with_dot = frozenset(data.forward((dot.value,), _pointwise))
    arrays = {memory_of(kernel, fetch) for fetch in dot.fetches}
    for value in kernel.values(Kind.ELEMENTWISE, name=("add", "sub", "fma")):
        op = kernel.op(value)
        sides = [arg for arg in op.args if arg in with_dot]
        others = [arg for arg in op.args if arg not in with_dot]
        if value not in stored or not sides or not others:
            continue
        row = {memory_of(kernel, at) for side in sides for at in _raw(kernel, side)} & arrays
        rest = {memory_of(kernel, at) for other in others for at in _raw(kernel, other)} & arrays
        if row and rest - row and _deviations(kernel, sides) > _deviations(kernel, others):
            yield value


def _deviations(kernel: KernelView, values: list[int]) -> int:
    """How often a row's own number is multiplied in: once more for a row that is normalised here, not read so."""
    data = flow(kernel)
    behind = data.back(values, lambda op: _pointwise(op) or (op.kind is Kind.REDUCE and op.name == "sum"))
    return sum(
        _is_row_scalar(kernel, arg) or kernel.op(kernel.strip(arg)).name in ("rsqrt", "rcp", "div")
        for at in behind
        if kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("mul", "fma")
        for arg in kernel.op(at).args[:2]
    )


def _raw(kernel: KernelView, value: int) -> tuple[int, ...]:
    return flow(kernel).fetches(value, _pointwise)


def _factors(kernel: KernelView, value: int) -> Iterator[int]:
    """Everything that the terms behind a value, or what is made of it, are multiplied by."""
    data = flow(kernel)
    for at in (*data.back((value,), _pointwise), *data.forward((value,), _pointwise)):
        op = kernel.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma", "div"):
            yield from op.args


def _has_deviation(kernel: KernelView, value: int) -> bool:
    """A reciprocal deviation is computed here and is part of the gradient."""
    behind = flow(kernel).back((value,), lambda op: op.kind is not Kind.MMA)
    return any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("rsqrt", "sqrt") for at in behind)


def _is_weight_gradient(kernel: KernelView, dot: Statistic) -> bool:
    """Two arrays of one extent are multiplied with a number for each row, and summed over the rows."""
    data = flow(kernel)
    streams = [fetch for fetch in dot.fetches if not _is_row_scalar(kernel, fetch)]
    if (
        len({memory_of(kernel, fetch) for fetch in streams}) < 2
        or len({indices(kernel, fetch) for fetch in streams}) != 1
    ):
        return False
    made = set(data.forward((dot.value,)))
    kept = {at for store in data.outputs() if store in made for at in indices(kernel, store)}
    scaled = {kernel.strip(at) for term in dot.terms for at in _factors(kernel, term) if _is_row_scalar(kernel, at)}
    rows = [_within(kernel, indices(kernel, at)) for at in scaled]
    return any(row and not row & kept for row in rows)


def _within(kernel: KernelView, numbers: frozenset[int]) -> frozenset[int]:
    """The indices that one block goes through: ranges and loop variables."""
    example = numbering(kernel).example
    return frozenset(one for one in numbers if kernel.op(example(one)).kind in (Kind.ARANGE, Kind.PHI))


def _pointwise(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ELEMENTWISE)


def _is_row_scalar(kernel: KernelView, value: int) -> bool:
    """Read from memory, one number for a whole row."""
    inner = kernel.strip(value)
    if not flow(kernel).is_fetch(inner):
        return False
    dims = kernel.dims(value)
    return dims is not None and sum(dim != 1 for dim in dims) <= (0 if len(dims) <= 1 else 1)


EXAMPLES: tuple[Example, ...] = ()
_ = Status
