"""No full-size intermediate in global memory: scores, logits, their gradients or gathered rows exist only on
chip, a block at a
time. Without a task to name the intermediate, the kernels' own show: what one product makes and the next consumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.gradients import jacobians, probabilities
from d2k.analyzers.patterns.loops import moves, where
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Status


@dataclass(frozen=True, slots=True)
class _Kept:
    """`value`, the intermediate called `tensor`, is consumed by `use` on chip."""

    tensor: str
    value: int
    use: int
    stored: int | None


def detect_program(program: ProgramView) -> Detection:
    found: dict[str, tuple[KernelView, _Kept]] = {}
    written: list[tuple[KernelView, _Kept]] = []
    for kernel in program.kernels:
        for one in (*_scores(kernel), *_gathered(kernel)):
            if one.stored is None:
                found.setdefault(one.tensor, (kernel, one))
            else:
                written.append((kernel, one))
    if found:
        return tuple(_match(kernel, one) for kernel, one in found.values())
    if written:
        kernel, one = written[0]
        evidence = (
            Evidence(kernel.place(one.stored if one.stored is not None else one.value), f"stores {one.tensor}"),
        )
        return Miss(detail=f"{one.tensor} are written to global memory", evidence=evidence)
    return Miss(detail="no intermediate is made and consumed on chip by one kernel")


def _match(kernel: KernelView, one: _Kept) -> Match:
    evidence = (
        Evidence(kernel.place(one.value), f"makes {one.tensor} of one block"),
        Evidence(kernel.place(one.use), "consumes them on chip"),
    )
    return Match(evidence, {"tensor": one.tensor, "max_fraction": 0})


def _scores(kernel: KernelView) -> Iterator[_Kept]:
    """Products that become exponentials: scores if the exponentials are multiplied on, logits if they are summed."""
    data = flow(kernel)
    for one in probabilities(kernel):
        if not one.scores:
            continue
        value = one.scores[0]
        after = frozenset(data.forward((one.value,), _pointwise))
        multiplied = _operand_use(kernel, after)
        stored = _stored(kernel, value)
        yield _Kept("scores" if multiplied is not None else "logits", value, multiplied or one.value, stored)
        for gradient in jacobians(kernel, one):
            made = frozenset(data.forward((gradient,), _pointwise))
            use = _operand_use(kernel, made)
            if use is not None:
                yield _Kept("dS", gradient, use, _stored(kernel, gradient))


def _pointwise(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name not in ("exp", "exp2", "log", "log2")
    )


def _operand_use(kernel: KernelView, values: frozenset[int]) -> int | None:
    """A product that multiplies one of the values."""
    for product in contractions(kernel):
        if values & set(kernel.op(product.value).args[:2]) and not (product.value in values and product.matrix):
            return product.value
    for value in kernel.values(Kind.ELEMENTWISE, name=("mul", "fma")):
        operands = kernel.op(value).args[:2]
        others = [arg for arg in operands if arg not in values]
        if len(others) == 1 and flow(kernel).fetches(others[0], _pointwise) and value in values:
            return value
    return None


def _stored(kernel: KernelView, value: int) -> int | None:
    """A store of every element of the intermediate, or of what is made of it element by element."""
    data = flow(kernel)
    made = data.spread((value,), lambda at, user: kernel.op(user).kind not in (Kind.REDUCE, Kind.MMA, Kind.SCAN))
    dims = kernel.dims(value)
    for at in made:
        if data.is_output(at) and kernel.op(at).kind is Kind.STORE:
            stored = kernel.dims(kernel.op(at).args[1])
            if dims is not None and stored is not None and sorted(map(str, stored)) == sorted(map(str, dims)):
                return at
    return None


def _gathered(kernel: KernelView) -> Iterator[_Kept]:
    """Rows fetched by an index that is read from memory and summed up at once."""
    data = flow(kernel)
    for fetch in kernel.values(Kind.LOAD, Kind.COPY):
        loops = kernel.loops_of(fetch)
        if not data.is_fetch(fetch) or not loops or kernel.values(Kind.MMA):
            continue
        places = where(kernel, fetch)
        if not any(_is_read(kernel, place, loops[0]) and differs_within(kernel, place) for place in places):
            continue
        for carried in kernel.loop(loops[0]).carried:
            added = set(data.back((carried.next,), _is_added))
            if fetch in added and carried.phi in added:
                yield _Kept("gathered_rows", fetch, carried.next, None)
                return


def _is_added(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.REDUCE) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "mul", "fma", "where")
    )


def _is_read(kernel: KernelView, place: int, loop: int) -> bool:
    """A row number in the address comes from a list of row numbers that the loop goes through."""
    if place == NONE:
        return False
    kinds = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.CONTROL)
    return any(
        kernel.op(at).kind is Kind.LOAD and loop in kernel.loops_of(at) and moves(kernel, kernel.op(at).args[0], loop)
        for at in kernel.walk(place, lambda op: op.kind in kinds)
    )


EXAMPLES: tuple[Example, ...] = ()
_ = Status
