"""What a kernel adds up, in which element type, and what the sum is: a dot product, moments, a state and so on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.carried import Cell, cells, members
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import EXPONENTIALS
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.loops import arithmetic, fetch_moves, index_cone, movers, trip_count, where
from d2k.analyzers.patterns.precision import precision
from d2k.analyzers.patterns.softmax import running_softmaxes
from d2k.spec.facts import NONE, Kind, Op

INTEGERS = frozenset({"bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"})
TAPS = 8
"""A loop of at most so many products is a filter."""

NARROW = frozenset({"f16", "bf16", "f8e4m3", "f8e5m2"})


@dataclass(frozen=True, slots=True)
class Accumulation:
    """`value` is added up; `role` is dot, moments, state, softmax, column, pool or "" where it is none of these.

    `dtype` is the element type of the sum, None if the source does not say it; `rounded` is a conversion to a narrower
    type on the way from one addition to the next, NONE if there is none.
    """

    value: int
    role: str
    dtype: str | None
    rounded: int = NONE


@dataclass(frozen=True, slots=True)
class _Sum:
    """A cell of `loop` with the values on the way from its old value to its new one; `terms` are added there."""

    loop: int
    cell: Cell
    cycle: frozenset[int]
    terms: tuple[int, ...]
    state: bool


def accumulations(kernel: KernelView) -> tuple[Accumulation, ...]:
    """Every sum of floating-point data: matrix products, reductions of tiles, and what loops add up."""
    sums = tuple(_sums(kernel))
    found = (*_products(kernel, sums), *_reductions(kernel), *_carried(kernel, sums))
    return tuple(
        one
        for one in found
        if one.dtype not in INTEGERS and (one.dtype is not None or not _is_index(kernel, one.value))
    )


def _sums(kernel: KernelView) -> Iterator[_Sum]:
    """What loops add up, steps of indices aside."""
    inside = members(kernel)
    fetched = _fetched(kernel)
    for loop in range(len(kernel.body.loops)):
        here = frozenset(inside[loop])
        moving = movers(kernel, loop)
        for cell in cells(kernel, loop):
            if cell.olds & moving:
                continue
            cycle = _cycle(kernel, cell, here)
            terms = tuple(_added(kernel, cycle, fetched)) if cycle else ()
            if terms:
                yield _Sum(loop, cell, cycle, terms, _is_state(kernel, cell, cycle, fetched))


def _fetched(kernel: KernelView) -> frozenset[int]:
    """Values that hold data from memory or products, rather than indices alone."""
    data = flow(kernel)
    sources = [value for value in kernel.values(Kind.LOAD, Kind.COPY) if data.is_fetch(value)]
    return frozenset(data.forward((*sources, *kernel.values(Kind.MMA))))


def _products(kernel: KernelView, sums: tuple[_Sum, ...]) -> Iterator[Accumulation]:
    states = frozenset(at for one in sums if one.state for at in one.cycle)
    for value in kernel.values(Kind.MMA):
        dtype = kernel.op(value).attrs.get("acc_dtype")
        role = "state" if value in states or _joins(kernel, value, states) else "dot"
        known = dtype if isinstance(dtype, str) else precision(kernel, value)
        yield Accumulation(value, role, _integer(kernel, value) or known)


def _integer(kernel: KernelView, value: int) -> str | None:
    """The integer type of what a product is added to: its operands are integers then, whatever the loads say."""
    for at in flow(kernel).forward((value,), lambda op: op.kind is Kind.SHAPE):
        for user in kernel.users(at):
            op = kernel.op(user)
            if op.kind is Kind.ELEMENTWISE and op.name == "add":
                types = {precision(kernel, arg) for arg in op.args if arg != at}
                if types and types <= INTEGERS:
                    return next(iter(types))
    return None


def _joins(kernel: KernelView, value: int, states: frozenset[int]) -> bool:
    """The product is added to a state."""
    made = flow(kernel).forward((value,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM) or op.name == "mul")
    return any(user in states for at in made for user in kernel.users(at))


def _reductions(kernel: KernelView) -> Iterator[Accumulation]:
    dots = _dots(kernel)
    for value in kernel.values(Kind.REDUCE, Kind.REDUX, Kind.SCAN, name="sum"):
        source = kernel.op(value).args[0]
        scanned = kernel.op(value).kind is Kind.SCAN
        role = "" if scanned else "dot" if value in dots else _role(kernel, value, (source,))
        yield Accumulation(value, role, precision(kernel, value) or precision(kernel, source))


def _carried(kernel: KernelView, sums: tuple[_Sum, ...]) -> Iterator[Accumulation]:
    dots = _dots(kernel)
    softmaxes = tuple(running_softmaxes(kernel)) if sums else ()
    in_softmax = frozenset(new for one in softmaxes for part in one.sums for new in part.cell.news)
    for one in sums:
        dtype = precision(kernel, min(one.cell.olds)) or precision(kernel, one.cell.news[0])
        if dtype in INTEGERS:
            continue
        if in_softmax & set(one.cell.news):
            role = "softmax"
        elif one.state:
            role = "state"
        elif dots & set(one.cell.news) or any(kernel.op(at).kind is Kind.MMA for at in one.terms):
            role = "dot"
        else:
            role = _role(kernel, one.cell.news[0], one.terms, one.loop)
        rounded = next((at for at in sorted(one.cycle) if _narrows(kernel, at)), NONE)
        yield Accumulation(min(one.terms), role, dtype, rounded)


def _dots(kernel: KernelView) -> frozenset[int]:
    return frozenset(at for one in contractions(kernel) if not one.matrix for at in one.sums)


def _is_index(kernel: KernelView, value: int) -> bool:
    """A count: it becomes part of an address."""
    made = frozenset(kernel.flows_to(value, arithmetic))
    return any(
        kernel.op(at).kind in (Kind.LOAD, Kind.STORE, Kind.ATOMIC)
        and any(arg in made for arg in where(kernel, at) if arg != NONE)
        for at in made
    )


def _adds(kernel: KernelView, value: int, user: int) -> bool:
    """`user` adds `value` up or hands it on; a matrix product only if `value` is its accumulator."""
    op = kernel.op(user)
    if op.kind is Kind.MMA:
        return value in op.args[2:3]
    return _is_sum(op)


def _is_sum(op: Op) -> bool:
    return op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "fma", "mul", "where")
    )


def _cycle(kernel: KernelView, cell: Cell, here: frozenset[int]) -> frozenset[int]:
    """Values of the loop on the way from a cell's old value to its new one."""
    data = flow(kernel)
    ahead = frozenset(data.spread(cell.olds, lambda at, user: user in here and _adds(kernel, at, user)))
    found: set[int] = set()
    stack = [value for value in cell.news if value in ahead]
    while stack:
        at = stack.pop()
        if at not in found:
            found.add(at)
            stack.extend(one for one in data.operands(at) if one in ahead)
    return frozenset(found)


def _added(kernel: KernelView, cycle: frozenset[int], fetched: frozenset[int]) -> Iterator[int]:
    """What a cell's old value is added to: data, not steps of an index."""
    for at in cycle:
        op = kernel.op(at)
        if op.kind is Kind.MMA and op.args[2:3] and op.args[2] in cycle:
            yield at
        elif op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "fma"):
            others = [arg for arg in op.args if arg not in cycle and arg in fetched]
            yield from others[-1:]


def _is_state(kernel: KernelView, cell: Cell, cycle: frozenset[int], fetched: frozenset[int]) -> bool:
    """The cell decays, or serves as an operand while it is carried.

    A softmax's rescaling is no decay: what is gathered there is read once, at the end.
    """
    if not any(kernel.op(at).shape for at in cell.olds) and is_triton(kernel):
        return False
    data = flow(kernel)
    for at in data.forward(cell.olds, lambda op: op.kind in (Kind.CAST, Kind.SHAPE)):
        for user in kernel.users(at):
            op = kernel.op(user)
            if op.kind is Kind.MMA and at in op.args[:2] and op.loop != NONE:
                return True
    for at in cycle:
        op = kernel.op(at)
        scaled = op.kind is Kind.ELEMENTWISE and op.name == "mul"
        by_data = scaled and any(arg in fetched for arg in op.args if arg not in cycle)
        if by_data and not _is_rescaling(kernel, op, cycle):
            return True
    return False


def _is_rescaling(kernel: KernelView, op: Op, cycle: frozenset[int]) -> bool:
    """Multiplied by exp(old maximum - new maximum)."""
    data = flow(kernel)
    for factor in (arg for arg in op.args if arg not in cycle):
        behind = tuple(data.back((factor,), lambda one: one.kind is not Kind.MMA))
        exps = any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in EXPONENTIALS for at in behind)
        if exps and any(kernel.op(at).name == "max" and len(kernel.op(at).args) == 2 for at in behind):
            return True
    return False


def _role(kernel: KernelView, value: int, terms: tuple[int, ...], loop: int = NONE) -> str:
    data = flow(kernel)
    near = set(data.back(terms, lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.REDUCE) or op.name == "where"))
    if any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in EXPONENTIALS for at in near):
        return "softmax"
    if _is_weighted(kernel, terms):
        return "dot"
    if _is_gathered(kernel, terms, loop):
        return "pool"
    if _normalises(kernel, value):
        return "moments"
    if loop != NONE and _is_short(kernel, loop) and _multiplies(kernel, terms):
        return "dot"
    if _is_column(kernel, value, loop):
        return "column"
    return ""


def _is_weighted(kernel: KernelView, terms: tuple[int, ...]) -> bool:
    """Exponentials times data: the second product of attention, written as a sum."""
    for at in flow(kernel).back(terms, lambda op: op.kind in (Kind.CAST, Kind.SHAPE) or op.name in ("mul", "where")):
        op = kernel.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in EXPONENTIALS:
            return True
    return False


def _is_short(kernel: KernelView, loop: int) -> bool:
    """The taps of a filter rather than the rows of a matrix."""
    trips = trip_count(kernel, loop)
    return kernel.loop(loop).form == "static" or (trips is not None and trips <= TAPS)


def _multiplies(kernel: KernelView, terms: tuple[int, ...]) -> bool:
    return any(kernel.op(kernel.strip(at)).name in ("mul", "fma") for at in terms)


def _normalises(kernel: KernelView, value: int) -> bool:
    """Becomes a mean or a norm: divided by a count, or under a root."""
    reached = flow(kernel).forward((value,), _towards_norm)
    for at in reached:
        for user in kernel.users(at):
            op = kernel.op(user)
            if op.kind is not Kind.ELEMENTWISE:
                continue
            if op.name in ("rsqrt", "sqrt"):
                return True
            if op.name in ("div", "mul") and at == op.args[0] and _is_count(kernel, op.args[1]):
                return True
    return False


def _towards_norm(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.REDUCE, Kind.SHUFFLE, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "div", "mul", "max")
    )


def _is_count(kernel: KernelView, value: int) -> bool:
    """A size: made of parameters and constants only."""
    kinds = (Kind.ELEMENTWISE, Kind.CAST, Kind.PARAM, Kind.CONST)
    return all(kernel.op(at).kind in kinds for at in kernel.walk(value, lambda op: op.kind in kinds))


def _is_gathered(kernel: KernelView, terms: tuple[int, ...], loop: int) -> bool:
    """Rows at places that are read from memory: another place for each row."""
    data = flow(kernel)
    for fetch in data.back(terms, lambda op: op.kind is not Kind.MMA):
        if not data.is_fetch(fetch) or kernel.op(fetch).kind is not Kind.LOAD:
            continue
        for arg in where(kernel, fetch):
            for at in index_cone(kernel, arg) if arg != NONE else ():
                if at == fetch or not data.is_fetch(at):
                    continue
                if loop != NONE and fetch_moves(kernel, at, loop):
                    return True
                if loop == NONE and kernel.op(at).shape:
                    return True
    return False


def _is_column(kernel: KernelView, value: int, loop: int) -> bool:
    """A vector that gathers rows and leaves the block as a vector."""
    if loop == NONE:
        op = kernel.op(value)
        dims = op.shape
        return op.attrs.get("axis") == 0 and dims is not None and len(dims) >= 1
    data = flow(kernel)
    made = set(data.forward((value,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.STORE, Kind.ATOMIC)))
    stored = any(kernel.op(at).kind in (Kind.STORE, Kind.ATOMIC) for at in made)
    return stored and (bool(kernel.op(value).shape) or not is_triton(kernel))


def _narrows(kernel: KernelView, value: int) -> bool:
    op = kernel.op(value)
    return op.kind is Kind.CAST and op.name == "cast" and precision(kernel, value) in NARROW
