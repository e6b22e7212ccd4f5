"""Accesses of memory at places that are looked up: which index is read, and what the access reads or writes there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import arithmetic, index_cone, where
from d2k.analyzers.patterns.numbering import difference, numbering
from d2k.analyzers.patterns.skipping import touching_tiles
from d2k.analyzers.patterns.terms import Term, value_terms
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile
from d2k.spec.facts import NONE, Kind, Op


@dataclass(frozen=True, slots=True)
class Indirect:
    """`access` goes to a place that `index`, a read of memory outside the block, chooses.

    `term` is the part of the place that rests on it, `inner` are the other parts that run over the elements found
    there.
    """

    access: int
    index: int
    term: Term
    inner: tuple[Term, ...]


def indirect_accesses(view: BodyView) -> Iterator[Indirect]:
    """Accesses of whole tiles or rows that an index chooses; single elements and starts of sequences do not count."""
    data = flow(view)
    accesses = [value for value in view.values(Kind.LOAD, Kind.COPY) if data.is_fetch(value)]
    found: list[Indirect] = []
    origins = segment_arrays(view)
    for access in sorted({*accesses, *data.outputs()}):
        for coordinate, place in enumerate(where(view, access)):
            if place == NONE or not any(_may_look_up(view.op(at)) for at in index_cone(view, place)):
                continue
            terms = tuple(value_terms(view, place, coordinate))
            for term in terms:
                for index in looked_up(view, term.index):
                    if _is_origin(view, terms, term, index):
                        origins |= {_array(view, index)}
                    elif index != access:
                        found.extend(_chosen(view, access, terms, term, index))
    yield from (one for one in found if _array(view, one.index) not in origins)


def _array(view: BodyView, fetch: int) -> tuple[int, ...]:
    data = flow(view)
    return data.memory(data.source_address(fetch))


def segment_arrays(view: BodyView) -> set[tuple[int, ...]]:
    """Arrays of which two entries are subtracted: ends of segments, whose difference is a length."""
    found: set[tuple[int, ...]] = set()
    for value in view.values(Kind.ELEMENTWISE, name="sub"):
        left, right = ({_array(view, end) for end in _reads(view, arg)} for arg in view.op(value).args)
        found |= left & right
    return found


def _reads(view: BodyView, value: int) -> tuple[int, ...]:
    """Reads of memory that a value may be."""
    data = flow(view)
    through = (Kind.CAST, Kind.SHAPE, Kind.PHI)
    return tuple(at for at in data.back((value,), lambda op: op.kind in through) if data.is_fetch(at))


def _chosen(view: BodyView, access: int, terms: tuple[Term, ...], term: Term, index: int) -> Iterator[Indirect]:
    op = view.op(access)
    mapped = op.attrs.get("via") == "descriptor" or bool(op.attrs.get("tensor"))
    inner = tuple(other for other in terms if other is not term and _is_inside(view, other, term, index))
    if inner or mapped:
        yield Indirect(access, index, term, inner)


def looked_up(view: BodyView, value: int) -> tuple[int, ...]:
    """Reads of memory outside the block that an index is computed from, also through shared memory or another lane.

    What a loop counts or adds up is not looked up: sizes that are summed are where something starts.
    """
    found: list[int] = []
    seen: set[int] = set()
    stack = [value]
    while stack:
        at = stack.pop()
        if at in seen or at == NONE:
            continue
        seen.add(at)
        op = view.op(at)
        if _may_look_up(op):
            found.extend(flow(view).fetches(at, _handed_over))
        elif op.kind is Kind.PHI and op.name == "loop":
            stack.extend(one for one in _handed_on(view, at) if _may_look_up(view.op(one)))
        elif arithmetic(op):
            stack.extend(_indices(view, op))
    return tuple(sorted(dict.fromkeys(found)))


def _indices(view: BodyView, op: Op) -> tuple[int, ...]:
    """The operands that a result is an index through: no conditions, divisors or bounds that a position is held to."""
    args = op.args
    if (op.kind is Kind.PHI and op.name == "if") or op.name == "where":
        args = op.args[1:]
    elif op.kind is Kind.ELEMENTWISE and op.name in ("mod", "floordiv", "div", "shr", "and"):
        return op.args[:1]
    elif op.name not in ("min", "max"):
        return args
    positions = tuple(
        arg for arg in args if not _loads(view, arg) and (differs_within(view, arg) or rests_on_tile(view, arg))
    )
    return positions or args


def _loads(view: BodyView, value: int) -> bool:
    return any(view.op(at).kind is Kind.LOAD for at in index_cone(view, value))


def _handed_on(view: BodyView, phi: int) -> tuple[int, ...]:
    """What a carried variable is at the loop's entry and what it becomes, if that is read anew; () for counters."""
    carried = [one for one in view.loop(view.op(phi).loop).carried if one.phi == phi]
    return tuple(view.strip(value) for one in carried for value in (one.before, one.next) if value != NONE)


def _may_look_up(op: Op) -> bool:
    return op.kind in (Kind.LOAD, Kind.SHUFFLE)


def _handed_over(op: Op) -> bool:
    kinds = (Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.PHI, Kind.SHUFFLE, Kind.LOAD, Kind.ALLOC)
    return op.kind in kinds or (op.kind is Kind.ELEMENTWISE and op.name == "where")


def _is_origin(view: BodyView, terms: tuple[Term, ...], term: Term, index: int) -> bool:
    """The index counts the same things as a range or loop beside it: the first row of a sequence."""
    if differs_within(view, index):
        return False
    numbers = numbering(view)
    if not differs_within(view, term.index) and any(
        other is not term
        and (other.stride, other.scale, other.coordinate) == (term.stride, term.scale, term.coordinate)
        for other in terms
    ):
        return True
    own = (numbers.number(index),)
    for at in index_cone(view, term.index):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub"):
            place = numbers.index(at)
            beside = {abs(n) for m, n in place.items() if m not in ((), own) and _counts(view, m)}
            if abs(place.get(own, 0)) in beside:
                return True
    return False


def _counts(view: BodyView, monomial: tuple[int, ...]) -> bool:
    """A bare range or loop counter."""
    return len(monomial) == 1 and (
        differs_within(view, numbering(view).example(monomial[0]))
        or view.op(view.strip(numbering(view).example(monomial[0]))).kind is Kind.PHI
    )


def _is_inside(view: BodyView, other: Term, term: Term, index: int) -> bool:
    """`other` runs over elements inside what the index finds: along smaller steps, with an index of its own."""
    if not (differs_within(view, other.index) or view.op(view.strip(other.index)).kind is Kind.PHI):
        return False
    rest = list(term.stride)
    for factor in other.stride:
        if factor in rest:
            rest.remove(factor)
        elif not term.stride or not differs_within(view, other.index):
            return False  # of two run-time strides, a range inside the tile is taken for the inner one
    if not rest and abs(other.scale) >= abs(term.scale):
        return False
    numbers = numbering(view)
    own = {numbers.number(at) for place in where(view, index) if place != NONE for at in index_cone(view, place)}
    return numbers.number(other.index) not in own


def is_segment(view: BodyView, one: Indirect, others: tuple[Indirect, ...]) -> bool:
    """The index and its neighbour in memory are read together for different ends: the two ends of a segment, or a group
    and a tile in it. Neighbours that choose places in the same way are indices read two at a time."""
    numbers = numbering(view)
    data = flow(view)
    places = [at for at in where(view, one.index) if at != NONE]
    for other in view.values(Kind.LOAD):
        theirs = [at for at in where(view, other) if at != NONE]
        if other == one.index or len(theirs) != len(places) or not data.is_fetch(other):
            continue
        apart = [difference(numbers.index(a), numbers.index(b)) for a, b in zip(theirs, places, strict=True)]
        if [a for a in apart if a] not in ([{(): 1}], [{(): -1}]):
            continue
        if not any(second.index == other and _alike(view, one, second) for second in others):
            return True
    return False


def _alike(view: BodyView, one: Indirect, other: Indirect) -> bool:
    places = [where(view, access)[:1] for access in (one.access, other.access)]
    roots = [flow(view).memory(place[0]) if place else () for place in places]
    return roots[0] == roots[1] and (one.term.stride, one.term.scale) == (other.term.stride, other.term.scale)


def is_work_item(view: BodyView, one: Indirect) -> bool:
    """The index numbers the tile that the block works on: read once, times a tile's extent, and the results move
    with it."""
    if view.op(one.index).loop != NONE or differs_within(view, one.term.index):
        return False
    numbers = numbering(view)
    wanted = numbers.number(one.index)
    for output in flow(view).outputs():
        for place in where(view, output):
            for edge in touching_tiles(view, place) if place != NONE else ():
                factors = (factor for monomial in edge for factor in monomial)
                if any(wanted in (numbers.number(at) for at in index_cone(view, numbers.example(f))) for f in factors):
                    return True
    return False
