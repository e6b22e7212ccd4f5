"""Selection of the greatest entries of a row: threshold searches by counts or masses, digits, rounds of
maxima, sorts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.carried import Cell, cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import LESS
from d2k.spec.facts import Kind, Op


@dataclass(frozen=True, slots=True)
class Selection:
    """`method` is radix, pivot, histogram or partial_topk; `value` is the step that narrows the choice."""

    method: str
    value: int
    text: str


def selections(kernel: KernelView) -> Iterator[Selection]:
    for loop in range(len(kernel.body.loops)):
        carried = tuple(cells(kernel, loop))
        yield from _thresholds(kernel, carried)
        yield from _rounds(kernel, loop, carried)
    yield from _digits(kernel)


def _thresholds(kernel: KernelView, carried: tuple[Cell, ...]) -> Iterator[Selection]:
    """A bound that a loop moves according to how many elements, or how much mass, lie beyond it."""
    data = flow(kernel)
    for cell in carried:
        for value in sorted(data.back(cell.news, _chooses)):
            op = kernel.op(value)
            if not _is_choice(op) or len(op.args) != 3:
                continue
            if not any(arg in cell.olds or kernel.strip(arg) in cell.olds for arg in op.args[1:]):
                continue
            counted = _counted(kernel, op.args[0])
            if counted is None:
                continue
            # what is counted is compared with the moving bound, or with a value made of it
            bounds = frozenset(at for one in carried for at in data.forward(one.olds, _arithmetic))
            compared = kernel.op(counted).args[:2]
            moved = [arg for arg in compared if arg in bounds or kernel.strip(arg) in bounds]
            if moved and any(data.fetches(arg) for arg in compared if arg not in moved):
                yield Selection("pivot", value, "threshold moved by what lies beyond it")
                return


def _chooses(op: Op) -> bool:
    return _is_choice(op) or op.kind in (Kind.CAST, Kind.SHAPE)


def _is_choice(op: Op) -> bool:
    return (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if")


def _arithmetic(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "div", "shr", "shl", "or", "floordiv", "and")
    )


def _counted(kernel: KernelView, condition: int) -> int | None:
    """The comparison of elements behind a condition on their number or mass: count(x > t) >= k."""
    data = flow(kernel)
    for at in kernel.walk(condition, lambda op: op.kind is Kind.ELEMENTWISE):
        op = kernel.op(at)
        reduces = op.kind in (Kind.REDUCE, Kind.REDUX) and op.name in ("sum", "add")
        kept = op.kind is Kind.LOAD and bool(data.operands(at))
        if not reduces and not kept and op.kind not in (Kind.SHUFFLE, Kind.VOTE, Kind.PHI):
            continue
        for inner in data.back((at,)):
            found = kernel.op(inner)
            if found.kind is Kind.ELEMENTWISE and found.name == "where":
                test = kernel.strip(found.args[0])
                if kernel.op(test).name in LESS:
                    return test
            if found.kind is Kind.ELEMENTWISE and found.name in LESS:
                return inner
            if (
                found.kind is Kind.ELEMENTWISE
                and found.name == "add"
                and any(kernel.fold(arg) == 1 for arg in found.args)
            ):
                for guard in found.guards:
                    if kernel.op(guard.value).name in LESS:
                        return guard.value
    return None


def _rounds(kernel: KernelView, loop: int, carried: tuple[Cell, ...]) -> Iterator[Selection]:
    """Each iteration takes the greatest entry and strikes it out."""
    data = flow(kernel)
    for cell in carried:
        behind = frozenset(data.back(cell.news, _chooses))
        if not cell.olds & behind:
            continue
        for value in sorted(behind):
            op = kernel.op(value)
            if not _is_choice(op):
                continue
            condition = frozenset(
                kernel.walk(op.args[0], lambda inner: inner.kind in (Kind.ELEMENTWISE, Kind.SHAPE, Kind.CAST))
            )
            picked = [at for at in condition if _is_greatest(kernel.op(at)) and cell.olds & set(data.back((at,)))]
            struck = any(_is_lowest(kernel, arg) for arg in op.args[1:])
            if picked and struck and loop in kernel.loops_of(value):
                yield Selection("partial_topk", value, "takes the greatest entry in each round and strikes it out")
                return


def _is_greatest(op: Op) -> bool:
    return op.kind in (Kind.REDUCE, Kind.REDUX, Kind.SHUFFLE) and op.name in (
        "argmax",
        "max",
        "argmin",
        "min",
        "xor",
        "down",
        "idx",
    )


def _is_lowest(kernel: KernelView, value: int) -> bool:
    constant = kernel.fold(kernel.strip(value))
    return isinstance(constant, (int, float)) and not isinstance(constant, bool) and constant < 0


def _digits(kernel: KernelView) -> Iterator[Selection]:
    """Counts of the digits of the elements' bit patterns."""
    counted = [(value, kernel.op(value).args[0]) for value in kernel.values(Kind.HISTOGRAM)]
    counted += [(value, kernel.op(value).args[0]) for value in kernel.values(Kind.ATOMIC, name=("add", "inc"))]
    for value, place in counted:
        slice_ = [kernel.op(at) for at in kernel.walk(place, lambda op: op.kind is not Kind.LOAD)]
        cut = any(op.kind is Kind.ELEMENTWISE and op.name == "and" for op in slice_)
        shifted = any(op.kind is Kind.ELEMENTWISE and op.name == "shr" for op in slice_)
        bits = any(op.kind is Kind.CAST and op.name == "bitcast" for op in slice_)
        if (cut or shifted) and bits:
            method = "radix" if kernel.op(value).loop != -1 and shifted else "histogram"
            yield Selection(method, value, "counts the digits of bit patterns")
            return
