"""Statistics: sums, maxima and dot products over many elements, and what they are taken of."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.addresses import indices, memory_of
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import NONE, Kind, Op

SUMS = frozenset({"sum", "add"})
EXTREMES = frozenset({"max", "min"})


@dataclass(frozen=True, slots=True)
class Statistic:
    """One reduction over elements. `kinds` are words such as sum, sumsq, max, amax, dot, expsum.

    `value` is the reduced value, `terms` what is summed or compared, `fetches` the reads of memory that the
    terms are made of.
    """

    kinds: frozenset[str]
    value: int
    terms: tuple[int, ...]
    fetches: frozenset[int]


@memo
def statistics(view: BodyView) -> tuple[Statistic, ...]:
    """Every reduction of fetched data: of a tile, of a warp's lanes, or along a loop; in program order."""
    found: dict[int, Statistic] = {}
    for value in _reductions(view):
        one = _statistic(view, value)
        if one.fetches:
            found[value] = one
    return tuple(found[value] for value in sorted(found))


def _reductions(view: BodyView) -> tuple[int, ...]:
    """Values that stand for a reduction: of tiles, across lanes, or carried by a loop that walks memory."""
    found = list(view.values(Kind.REDUCE, Kind.REDUX, Kind.SCAN))
    data = flow(view)
    for value in view.values(Kind.SHUFFLE):
        # a butterfly: the value of another lane is added to one's own
        own = view.op(value).args[0]
        found.extend(user for user in view.users(value) if _combines(view.op(user)) and own in view.op(user).args)
    for loop in range(len(view.body.loops)):
        for cell in cells(view, loop):
            for value in data.back(cell.news, lambda op: op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE)):
                op = view.op(value)
                if _combines(op) and any(arg in cell.olds or view.strip(arg) in cell.olds for arg in op.args):
                    found.append(value)
    return tuple(dict.fromkeys(found))


def _combines(op: Op) -> bool:
    return op.kind is Kind.ELEMENTWISE and op.name in ("add", "fma", "max", "min")


def _family(op: Op) -> str:
    """sum or max, whatever the reduction is made of; "" for others."""
    if op.name in ("sum", "add", "fma"):
        return "sum"
    return "max" if op.name in ("max", "min", "argmax") else ""


def _statistic(view: BodyView, value: int) -> Statistic:
    data = flow(view)
    family = _family(view.op(value))
    terms = _terms(view, value, family)
    fetches = frozenset(
        fetch for term in terms for fetch in data.fetches(term, lambda op: op.kind not in (Kind.MMA, Kind.SCAN))
    )
    kinds = frozenset(word for term in terms if (word := _kind(view, term, family)))
    return Statistic(kinds, value, terms, fetches)


def _terms(view: BodyView, value: int, family: str) -> tuple[int, ...]:
    """What is added up or compared, behind partial results and other stages of the same reduction."""
    data = flow(view)
    found: list[int] = []
    seen: set[int] = set()
    stack = [value]
    while stack:
        at = stack.pop()
        if at in seen or at == NONE:
            continue
        seen.add(at)
        op = view.op(at)
        if op.kind in (Kind.REDUCE, Kind.REDUX, Kind.SCAN):
            if _family(op) == family:
                stack.extend(op.args[:1])
            else:
                found.append(at)
        elif op.kind is Kind.ELEMENTWISE and op.name == "fma" and family == "sum":
            stack.append(op.args[2])
            found.append(at)
        elif (
            op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.SHUFFLE)
            or (op.kind is Kind.ELEMENTWISE and (_family(op) == family or op.name == "where"))
            or (op.kind is Kind.LOAD and data.operands(at))
        ):
            stack.extend(reversed(data.operands(at)))
        elif op.kind not in (Kind.CONST, Kind.FULL, Kind.PARAM):
            found.append(at)
    return tuple(sorted(found))


def _kind(view: BodyView, term: int, family: str) -> str:
    op = view.op(term)
    if family == "max":
        return "amax" if op.kind is Kind.ELEMENTWISE and op.name == "abs" else "max"
    if family != "sum":
        return ""
    if op.kind is Kind.ELEMENTWISE and op.name in ("exp", "exp2"):
        return "expsum"
    streams = _streams(view, _factors(view, term))
    if len(set(streams)) >= 2:
        return "dot"
    return "sumsq" if len(streams) >= 2 else "sum"


def _factors(view: BodyView, term: int) -> tuple[int, ...]:
    """What a term is a product of; an fma counts for its product."""
    found: list[int] = []
    stack = [term]
    while stack:
        at = view.strip(stack.pop())
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and (op.name == "mul" or (op.name == "fma" and at == view.strip(term))):
            stack.extend(op.args[:2])
        else:
            found.append(at)
    return tuple(found)


def _streams(view: BodyView, factors: tuple[int, ...]) -> list[frozenset[int]]:
    """For each factor that goes on along all indices the arrays that it reads; weights and row numbers are left out."""
    data = flow(view)
    fetched = [data.fetches(factor, _no_reduction) for factor in factors]
    extents = {fetch: indices(view, fetch) for fetches in fetched for fetch in fetches}
    widest = max((len(extent) for extent in extents.values()), default=0)
    found: list[frozenset[int]] = []
    for fetches in fetched:
        wide = [fetch for fetch in fetches if len(extents[fetch]) == widest]
        if wide:
            found.append(frozenset(root for fetch in wide for root in memory_of(view, fetch)))
    return found


def _no_reduction(op: Op) -> bool:
    if op.kind is Kind.PHI:
        return op.name == "if"
    return op.kind not in (Kind.REDUCE, Kind.SCAN, Kind.MMA, Kind.REDUX)
