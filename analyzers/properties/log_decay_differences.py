"""Decays from differences of log sums: the decay between two positions is exp(c_i - c_j), where c is a running sum of
log decays (or an array of such sums), so that no product of many factors under- or overflows.

A softmax also subtracts inside an exponential, but a maximum or a log-sum-exp, not the same sum at another position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.addresses import memory_of
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import difference, exponentials
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import FoundValue, Status

WORDS = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}


@dataclass(frozen=True, slots=True)
class _Decay:
    exponential: int
    plus: int
    minus: int
    sums: tuple[int, ...]
    """The scans that both terms come from; () if the sums are read from memory."""


def detect(kernel: KernelView) -> Detection:
    found = tuple(_decays(kernel))
    if found:
        return (_match(kernel, found),)
    exps = exponentials(kernel)
    if not exps:
        return Miss(detail="no exponential is taken")
    return Miss(
        detail="no exponential of a difference of one running sum at two positions",
        evidence=(Evidence(kernel.place(exps[0]), "exponential"),),
    )


def _decays(kernel: KernelView) -> Iterator[_Decay]:
    data = flow(kernel)
    for value in exponentials(kernel):
        terms = difference(kernel, kernel.op(value).args[0])
        for plus in terms.plus:
            for minus in terms.minus:
                a = frozenset(data.back((plus,), _is_sum))
                b = frozenset(data.back((minus,), _is_sum))
                scans = tuple(at for at in sorted(a & b) if kernel.op(at).kind is Kind.SCAN)
                if (scans or _one_array(kernel, a, b)) and plus != minus:
                    yield _Decay(value, plus, minus, scans)


def _is_sum(op: Op) -> bool:
    """From a term to the running sum: conversions, choices of an element, sums of parts; no maximum."""
    return (
        op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.LOAD)
        or (op.kind is Kind.ELEMENTWISE and op.name in ("where", "mul", "add"))
        or (op.kind is Kind.REDUCE and op.name == "sum")
    )


def _one_array(kernel: KernelView, left: frozenset[int], right: frozenset[int]) -> bool:
    """Both terms are elements of the same array in memory."""
    data = flow(kernel)
    arrays = [{memory_of(kernel, at) for at in side if data.is_fetch(at)} for side in (left, right)]
    return bool(arrays[0] & arrays[1] - {()})


def _match(kernel: KernelView, found: tuple[_Decay, ...]) -> Match:
    first = found[0]
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    dtype = _dtype(kernel, first)
    if dtype is None:
        undecided["dtype"] = "the element type of the running sum is not known here"
    else:
        attributes["dtype"] = dtype
    evidence = [Evidence(kernel.place(first.exponential), "exp(c_i - c_j)")]
    evidence += [Evidence(kernel.place(scan), "running sum c") for scan in first.sums[:1]]
    return Match(tuple(evidence), attributes, undecided)


def _dtype(kernel: KernelView, one: _Decay) -> str | None:
    """The type that the difference is taken in."""
    for value in (*one.sums, one.plus, kernel.op(one.exponential).args[0]):
        word = WORDS.get(kernel.op(value).dtype or "")
        if word is not None:
            return word
    return None


EXAMPLES: tuple[Example, ...] = ()
_ = Status
