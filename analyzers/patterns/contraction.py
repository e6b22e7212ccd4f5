"""Contractions, by matrix instructions or by sums of products, with their finished results and what is done
with those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.addresses import indices, memory_of
from d2k.analyzers.patterns.carried import Cell, cells, gatherings
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import difference
from d2k.analyzers.patterns.matmul import operand_path, products
from d2k.analyzers.patterns.memo import memo, memo_loop
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import Kind, Op


@dataclass(frozen=True, slots=True)
class Contraction:
    """`value` is the matrix instruction, or the multiplication whose products are summed.

    `sums` are the values of its accumulator while it grows; `fetches` the reads of memory behind its operands.
    """

    value: int
    sums: frozenset[int]
    fetches: tuple[int, ...]
    matrix: bool
    score: bool = False
    """A sum of products without a matrix instruction that an exponential is taken of."""


@memo
def contractions(view: BodyView) -> tuple[Contraction, ...]:
    """All contractions in program order; sums of products that normalise their own operand do not count."""
    return (*_matrix_products(view), *_dot_products(view))


def _matrix_products(view: BodyView) -> Iterator[Contraction]:
    for one in products(view):
        yield Contraction(one.value, accumulation(view, one.value), (*one.a_fetches, *one.b_fetches), matrix=True)


def accumulation(view: BodyView, value: int) -> frozenset[int]:
    """`value` and the sums on the cycle that it is added to: the life of an accumulator inside its loops."""
    data = flow(view)
    found = {value}
    lives = [one for loop in view.loops_of(value) for one in _lives(view, loop) if value in one.behind]
    if not lives:
        return frozenset(found)
    ahead = set(data.spread((value,), lambda at, user: not _is_operand(view, at, user)))
    added = set(data.forward((value,), _sums))
    for one in lives:
        if one.cell.olds & ahead and any(new in ahead for new in one.cell.news):
            found |= one.grown | (added & one.behind)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Life:
    """What a cell's new value is a sum of (`behind`), and those of them that its old value goes into (`grown`)."""

    cell: Cell
    behind: frozenset[int]
    grown: frozenset[int]


@memo_loop
def _lives(view: BodyView, loop: int) -> tuple[_Life, ...]:
    data = flow(view)
    found: list[_Life] = []
    for cell in cells(view, loop):
        behind = frozenset(data.back(cell.news, _sums))
        found.append(_Life(cell, behind, behind & frozenset(data.forward(cell.olds, _sums))))
    return tuple(found)


def _sums(op: Op) -> bool:
    return op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.LOAD, Kind.MMA, Kind.ALLOC) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "fma", "where")
    )


def _is_operand(view: BodyView, value: int, user: int) -> bool:
    """`user` is a matrix instruction that multiplies `value`."""
    op = view.op(user)
    return op.kind is Kind.MMA and value in op.args[:2] and value not in op.args[2:3]


def _dot_products(view: BodyView) -> Iterator[Contraction]:
    """Multiplications of a matrix with a vector whose products are summed along an axis that the result has lost."""
    data = flow(view)
    for value in view.values(Kind.ELEMENTWISE, name=("mul", "fma")):
        if len(view.op(value).args) < 2:
            continue
        left, right = view.op(value).args[:2]
        a, b = data.fetches(left, _linear), data.fetches(right, _linear)
        if not a or not b or _memories(view, a) & _memories(view, b):
            continue
        rows, columns = _moving(view, a), _moving(view, b)
        shared = frozenset(at for at in rows & columns if _is_reducible(view, at))
        # two arrays of one extent are normalised or weighted, not multiplied as matrices
        if not shared or rows == columns:
            continue
        sums = accumulation(view, value) | frozenset(
            at for at in data.forward((value,), _added) if view.op(at).kind is Kind.REDUCE
        )
        if len(sums) == 1 and view.op(value).name != "fma":
            continue
        score = any(_is_exponential(view.op(at)) for at in data.forward(sums))
        results = frozenset(data.spread(sums, lambda at, user: view.op(user).kind is not Kind.REDUCE))
        stored = [store for store in data.outputs() if store in results]
        if stored and not any(_moving(view, (store,)) & shared for store in stored):
            yield Contraction(value, sums, (*a, *b), matrix=False, score=score)


def _is_exponential(op: Op) -> bool:
    return op.kind is Kind.ELEMENTWISE and op.name in ("exp", "exp2")


def _linear(op: Op) -> bool:
    return operand_path(op) and not (op.kind is Kind.ELEMENTWISE and op.name in ("exp", "exp2", "rsqrt", "rcp"))


def _added(op: Op) -> bool:
    return _sums(op) or op.kind in (Kind.REDUCE, Kind.SHUFFLE)


def _memories(view: BodyView, accesses: tuple[int, ...]) -> frozenset[int]:
    return frozenset(root for access in accesses for root in memory_of(view, access))


def _moving(view: BodyView, accesses: tuple[int, ...]) -> frozenset[int]:
    """Numbers of the indices that move the place of some access."""
    return frozenset(at for access in accesses for at in indices(view, access))


def _is_reducible(view: BodyView, number: int) -> bool:
    """A range or a loop variable: what one block can sum over."""
    return view.op(numbering(view).example(number)).kind in (Kind.ARANGE, Kind.PHI)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """`live` are values that hold the accumulator or what was made of it; `work` those of them after its
    growth ended."""

    live: frozenset[int]
    work: frozenset[int]


NOTHING = Epilogue(frozenset(), frozenset())


def _is_probability(view: BodyView, value: int) -> bool:
    """exp(score - maximum): a softmax begins, an epilogue ends."""
    op = view.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name not in ("exp", "exp2"):
        return False
    terms = difference(view, op.args[0])
    return bool(terms.plus) and bool(terms.minus)


@memo
def _growing(view: BodyView) -> frozenset[int]:
    """The values of every accumulator of a matrix instruction while it grows."""
    return frozenset(at for one in contractions(view) if one.matrix for at in one.sums)


def epilogue(view: BodyView, one: Contraction) -> Epilogue:
    """What is made of a finished result up to its stores; other products and reductions are left out."""
    data = flow(view)
    growing = _growing(view)
    gathered = gatherings(view)

    def accepts(value: int, user: int) -> bool:
        op = view.op(user)
        if op.kind in (Kind.REDUCE, Kind.SHUFFLE) or (user in gathered and user not in growing):
            return False
        return not _is_operand(view, value, user) and not _is_probability(view, user)

    made = set(data.spread(one.sums, accepts))
    stores = [store for store in data.outputs() if store in made]
    if not stores:
        return NOTHING
    live = frozenset(made & set(data.back(stores))) | one.sums
    return Epilogue(live, live - growing - one.sums)
