"""How an address moves along the axes of a tile: by one element, by a stride, or to wherever an index says.

Only tiles of block-level languages have axes; in CUDA a thread's own access says how wide it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.arguments import arguments, is_last_stride
from d2k.spec.facts import NONE, Kind, Op

MAX_TERMS = 400
LONG_RUN = 16
"""Elements of 8 bits in the widest usual access."""

MINUS = NONE
"""Stands for the factor -1."""

Axes = tuple[int | None, ...]
"""For each axis of a value, the axis of the whole tile that it becomes; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Step:
    """How the address moves along one axis: `unit` one element at a time, `strided` by a known distance,
    `runtime` by a distance that the source does not say, `irregular` otherwise.

    `ranges` are the ranges behind it, `stride` the value that decides a run-time distance.
    """

    how: str
    ranges: tuple[int, ...] = ()
    stride: int = NONE


@dataclass(frozen=True, slots=True)
class _Term:
    """A part of the address that varies along `axis`; `factors` are what it is multiplied by."""

    value: int
    axis: int | None
    factors: tuple[int, ...]


def steps(kernel: KernelView, address: int) -> tuple[Step | None, ...] | None:
    """For each axis of the tile that `address` points to, how it moves there; None along axes that it does not
    move on. None if the tile's rank is not known."""
    shape = kernel.op(address).shape
    if shape is None:
        return None
    terms = _terms(kernel, address, tuple(range(len(shape))))
    if terms is None or any(term.axis is None for term in terms):
        return None
    return tuple(_step(kernel, [term for term in terms if term.axis == axis]) for axis in range(len(shape)))


def block_steps(kernel: KernelView, pointer: int) -> tuple[Step | None, ...] | None:
    """As `steps`, for a block pointer: its strides say it. None if where it was made is not in sight."""
    for at in kernel.walk(pointer, lambda op: op.kind is Kind.PHI or op.name == "advance"):
        op = kernel.op(at)
        rank = op.attrs.get("rank")
        if op.name == "block_pointer" and isinstance(rank, int) and len(op.args) >= 1 + 2 * rank:
            strides = op.args[1 + rank : 1 + 2 * rank]
            return tuple(_by_stride(kernel, stride) for stride in strides)
    return None


def access_steps(kernel: KernelView, access: int) -> tuple[Step | None, ...] | None:
    """How the elements of one LOAD, STORE or ATOMIC of a tile lie in memory, axis by axis."""
    op = kernel.op(access)
    match op.attrs.get("via", "pointer"):
        case "pointer":
            return steps(kernel, op.args[0])
        case "block_pointer":
            return block_steps(kernel, op.args[0])
        case _:
            return None


def _by_stride(kernel: KernelView, stride: int) -> Step:
    known = kernel.fold_int(stride)
    if known is None:
        return Step("unit") if _is_one(kernel, stride) else Step("runtime", (), stride)
    return Step("unit" if known == 1 else "strided")


def _step(kernel: KernelView, terms: list[_Term]) -> Step | None:
    if not terms:
        return None
    if len(terms) > 1 or kernel.op(terms[0].value).kind is not Kind.ARANGE:
        ranges = tuple(term.value for term in terms if kernel.op(term.value).kind is Kind.ARANGE)
        return Step("irregular", ranges)
    ranges = (terms[0].value,)
    distance = 1
    for factor in terms[0].factors:
        known = -1 if factor == MINUS else kernel.fold_int(factor)
        if known is None:
            if _is_one(kernel, factor):
                continue
            return Step("strided" if _is_size(kernel, factor) else "runtime", ranges, factor)
        distance *= known
    return Step("unit" if distance == 1 else "strided", ranges)


def _is_one(kernel: KernelView, factor: int) -> bool:
    """A stride that host code passes as that of a dense tensor's last axis."""
    op = kernel.op(kernel.strip(factor))
    if op.kind is not Kind.PARAM:
        return False
    passed = tuple(arguments(kernel, op.name))
    return bool(passed) and all(is_last_stride(host, value) is True for host, value in passed)


def _is_size(kernel: KernelView, factor: int) -> bool:
    """The extent of an axis, by which rows are apart: larger than one wherever it matters."""
    op = kernel.op(kernel.strip(factor))
    if op.kind is not Kind.PARAM:
        return False
    passed = tuple(arguments(kernel, op.name))
    return bool(passed) and all(
        host.op(value).kind is Kind.ITEM and host.op(host.op(value).args[0]).name == "shape" for host, value in passed
    )


def _terms(kernel: KernelView, address: int, axes: Axes) -> list[_Term] | None:
    """The parts of an address that differ within the tile; None if there are too many."""
    found: list[_Term] = []
    stack: list[tuple[int, Axes, tuple[int, ...]]] = [(address, axes, ())]
    seen: set[tuple[int, Axes, tuple[int, ...]]] = set()
    while stack:
        at = stack.pop()
        if at in seen or at[0] == NONE:
            continue
        seen.add(at)
        if len(seen) > MAX_TERMS:
            return None
        value, axes, factors = at
        op = kernel.op(value)
        if not _varies(kernel, value):
            continue
        inner = _inner(kernel, op, axes, factors)
        if inner is None:
            varying = [axis for axis, extent in zip(axes, op.shape or (), strict=False) if kernel.fold_int(extent) != 1]
            for axis in varying or [None]:
                found.append(_Term(value, axis, factors))
        else:
            stack.extend(inner)
    return found


def _varies(kernel: KernelView, value: int) -> bool:
    shape = kernel.op(value).shape
    return shape is None or any(kernel.fold_int(extent) != 1 for extent in shape)


def _inner(
    kernel: KernelView, op: Op, axes: Axes, factors: tuple[int, ...]
) -> list[tuple[int, Axes, tuple[int, ...]]] | None:
    """The summands of an index with their axes and factors; None if it is not made of others in that way."""
    if op.kind in (Kind.CAST, Kind.CONTROL) and op.args:
        return [(op.args[0], axes, factors)]
    if op.kind is Kind.FULL:
        return []
    if op.kind is Kind.SHAPE and op.args:
        return _reshaped(kernel, op, axes, factors)
    if op.kind is Kind.PHI:
        # a pointer that a loop advances moves by the same distance for all elements
        return [(op.args[0] if op.name == "loop" else op.args[1], axes, factors)]
    if op.kind is not Kind.ELEMENTWISE:
        return None
    match op.name, op.args:
        case "add", (a, b):
            return [(one, _aligned(kernel, one, axes), factors) for one in (a, b)]
        case "sub", (a, b):
            return [(a, _aligned(kernel, a, axes), factors), (b, _aligned(kernel, b, axes), (*factors, MINUS))]
        case "mul", (a, b):
            uniform = [one for one in (a, b) if not _varies(kernel, one)]
            if uniform:
                other = b if uniform[0] == a else a
                return [(other, _aligned(kernel, other, axes), (*factors, uniform[0]))]
        case "mod", (a, b) if _cuts_runs(kernel, b):
            return [(a, _aligned(kernel, a, axes), factors)]
        case "floordiv", (_, b) if _cuts_runs(kernel, b):
            return []
    return None


def _cuts_runs(kernel: KernelView, divisor: int) -> bool:
    """Between multiples of the divisor a quotient stays the same and a remainder counts on: runs long enough for
    a wide access. A divisor that only the launch knows is taken for long."""
    known = kernel.fold_int(divisor)
    return not _varies(kernel, divisor) and (known is None or known >= LONG_RUN)


def _aligned(kernel: KernelView, value: int, axes: Axes) -> Axes:
    """The axes of an operand of lower rank: the last ones."""
    rank = len(kernel.op(value).shape or ())
    return axes[len(axes) - rank :] if rank < len(axes) else axes


def _reshaped(
    kernel: KernelView, op: Op, axes: Axes, factors: tuple[int, ...]
) -> list[tuple[int, Axes, tuple[int, ...]]] | None:
    source = op.args[0]
    rank = len(kernel.op(source).shape or ())
    match op.name:
        case "expand_dims":
            added = op.attrs.get("axes")
            if not isinstance(added, tuple) or len(axes) != rank + len(added):
                return None
            return [(source, tuple(axis for at, axis in enumerate(axes) if at not in added), factors)]
        case "broadcast":
            return [(source, _aligned(kernel, source, axes), factors)]
        case "trans" if rank == 2:
            return [(source, axes[::-1], factors)]
        case "permute":
            order = op.attrs.get("order")
            if not isinstance(order, tuple) or len(order) != rank or len(axes) != rank:
                return None
            places = {one: at for at, one in enumerate(order)}
            return [(source, tuple(axes[places[at]] if at in places else None for at in range(rank)), factors)]
    return None
