"""How the accesses of neighbouring lanes lie to each other in global memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.fold import fold
from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.accesses import Access, accesses
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.hosts import launches
from d2k.analyzers.patterns.loops import LESS, index_cone
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.terms import Term, terms
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op

BITS = {
    **dict.fromkeys(("f64", "i64", "u64"), 64),
    **dict.fromkeys(("f32", "tf32", "i32", "u32"), 32),
    **dict.fromkeys(("f16", "bf16", "i16", "u16"), 16),
    **dict.fromkeys(("f8e4m3", "f8e5m2", "f8e8m0", "i8", "u8", "bool"), 8),
}
FEW_LANES = 4
"""Runs of fewer lanes than this are not contiguous access."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """`how`: contiguous strided uniform unknown. `index` is what neighbouring lanes walk along, NONE if not known."""

    access: Access
    how: str
    index: int
    step: int | None


def lanes(kernel: KernelView) -> tuple[Lanes, ...]:
    """One for each access of global memory, in program order."""
    of = _of_thread if kernel.kernel.language == "cuda" else _of_tile
    return tuple(of(kernel, one) for one in accesses(kernel))


# CUDA: what one thread says


def _of_thread(kernel: KernelView, access: Access) -> Lanes:
    if access.how in ("tma", "bulk", "descriptor"):
        return Lanes(access, "contiguous", NONE, 1)
    op = kernel.op(access.value)
    address = flow(kernel).source_address(access.value)
    if access.direction in ("store", "scatter", "reduce"):
        address = op.args[0]
    unit = _unit(kernel, address)
    moved = _Steps(kernel).address(address)
    width = op.attrs.get("bits") or 8 * int(str(op.attrs.get("bytes") or 0))
    if moved == 0:
        return Lanes(access, "uniform", NONE, 0)
    if moved is None or not isinstance(width, int):
        return Lanes(access, "strided", NONE, None)
    width = width or unit
    index = _lane_index(kernel, address)
    return Lanes(access, "contiguous" if 0 < moved <= width else "strided", index, moved // max(1, unit))


def _unit(kernel: KernelView, address: int) -> int:
    """Bits of the elements that offsets of an address count."""
    op = kernel.op(address)
    while op.kind is not Kind.PARAM:
        width = op.attrs.get("to_bits") if op.name == "bitcast" else None
        if isinstance(width, int):
            return width
        if not op.args or op.kind not in (Kind.ELEMENTWISE, Kind.CAST, Kind.PHI, Kind.SHAPE):
            break
        op = kernel.op(op.args[1] if op.kind is Kind.PHI and op.name == "if" else op.args[0])
    return BITS.get(op.dtype or "", 32)


class _Steps:
    """By how much values change from one lane of a warp to the next; None if that is not regular."""

    def __init__(self, kernel: KernelView) -> None:
        self.kernel = kernel
        self.known: dict[int, int | None] = {}

    def address(self, address: int) -> int | None:
        """In bits."""
        op = self.kernel.op(address)
        match op.kind:
            case Kind.PARAM | Kind.ALLOC:
                return 0
            case Kind.ELEMENTWISE if op.name in ("add", "sub"):
                base = self.address(op.args[0])
                offset = self.of(op.args[1])
                return None if base is None or offset is None else base + offset * _unit(self.kernel, op.args[0])
            case Kind.CAST | Kind.SHAPE | Kind.CONTROL if op.args:
                return self.address(op.args[0])
            case Kind.PHI if op.name == "if":
                return self.address(op.args[1])
            case Kind.PHI:
                return self.address(op.args[0]) if op.args[0] < address else None
            case Kind.LOAD:
                return 0 if all(self.of(arg) == 0 for arg in op.args if arg != NONE) else None
        return None

    def of(self, value: int) -> int | None:
        if value == NONE or len(self.known) > 400:
            return 0 if value == NONE else None
        if value not in self.known:
            self.known[value] = None
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: int) -> int | None:
        op = self.kernel.op(value)
        match op.kind:
            case Kind.LANE:
                return 1
            case Kind.THREAD_INDEX:
                return 1 if op.attrs.get("axis") == 0 else 0
            case Kind.CAST | Kind.SHAPE | Kind.CONTROL | Kind.ITEM if op.args:
                return self.of(op.args[0])
            case Kind.PHI if op.name == "loop":
                return self.of(op.args[0]) if op.args[0] < value else None
            case Kind.PHI:
                return self._agreed(op.args[1:])
            case Kind.LOAD:
                return 0 if all(self.of(arg) == 0 for arg in op.args if arg != NONE) else None
            case Kind.ELEMENTWISE:
                return self._arithmetic(op)
            case Kind.SHUFFLE if op.name == "idx":
                return 0
            case Kind.CALL | Kind.ASM:
                # a function of what all lanes share is shared, a number of the thread's own has no operands
                known = bool(op.args) or bool(op.attrs.get("value"))
                return 0 if known and all(self.of(arg) == 0 for arg in op.args if arg != NONE) else None
            case Kind.ATOMIC:
                return None
        return 0

    def _agreed(self, values: tuple[int, ...]) -> int | None:
        steps = {self.of(one) for one in values}
        steps = steps - {0} or steps
        return steps.pop() if len(steps) == 1 else None

    def _arithmetic(self, op: Op) -> int | None:
        if len(op.args) != 2:
            return self._agreed(op.args[1:] if op.name == "where" else op.args)
        left, right = (self.of(one) for one in op.args)
        if left is None or right is None:
            return None
        if left == right == 0:
            return 0
        constant = self.kernel.fold_int(op.args[1])
        match op.name:
            case "add":
                return left + right
            case "sub":
                return left - right
            case "mul":
                factor = constant if left else self.kernel.fold_int(op.args[0])
                return None if factor is None or (left and right) else (left or right) * factor
            case "shl":
                return None if constant is None or right else left << min(constant, 40)
            case "mod" | "and":
                length = constant if op.name == "mod" or constant is None else constant + 1
                runs = length is None or length >= FEW_LANES * abs(left)
                return left if runs and not right else None
            case "floordiv" | "div" | "shr":
                divisor = constant if op.name != "shr" or constant is None else 1 << min(constant, 40)
                return 0 if divisor is None or divisor >= FEW_LANES * abs(left) else left // divisor
            case "min" | "max" | "xor" | "or":
                return left or right
        return None


def _lane_index(kernel: KernelView, address: int) -> int:
    """The index in an address that lanes are numbered by."""
    lanes_of = (Kind.THREAD_INDEX, Kind.LANE)
    for at in index_cone(kernel, address):
        op = kernel.op(at)
        if op.kind is Kind.PHI and op.name == "loop" and differs_within(kernel, at):
            return at
    return next((at for at in index_cone(kernel, address) if kernel.op(at).kind in lanes_of), NONE)


# tiles: the compiler lays lanes along the contiguous axis, if there is one


def _of_tile(kernel: KernelView, access: Access) -> Lanes:
    if access.how in ("descriptor", "tma", "bulk"):
        return Lanes(access, "contiguous", NONE, 1)
    if access.how == "block_pointer":
        return _of_block_pointer(kernel, access)
    within = [one for one in terms(kernel, access.value) if differs_within(kernel, one.index)]
    if not within:
        return Lanes(access, "uniform", NONE, 0)
    open_strides = False
    for one in within:
        if _is_unit(kernel, one):
            return Lanes(access, "contiguous", one.index, 1)
        open_strides = open_strides or _is_open(kernel, one)
    return Lanes(access, "unknown" if open_strides else "strided", NONE, None)


def _is_unit(kernel: KernelView, term: Term) -> bool:
    """Neighbouring elements along the index are neighbours in memory."""
    if abs(term.scale) != 1 or not _is_range(kernel, term.index):
        return False
    return not term.stride or all(_is_unit_stride(kernel, factor) for factor in term.stride)


def _is_range(kernel: KernelView, index: int) -> bool:
    return any(kernel.op(at).kind is Kind.ARANGE for at in index_cone(kernel, index))


def _is_open(kernel: KernelView, term: Term) -> bool:
    """The stride is an argument of which nothing is known: no launch passes it, and it is no extent."""
    for factor in term.stride:
        value = kernel.strip(numbering(kernel).example(factor))
        name = kernel.op(value).name
        if kernel.op(value).kind is Kind.PARAM and not any(True for _ in arguments(kernel, name)):
            return not _bounds(kernel, value)
    return False


def _bounds(kernel: KernelView, value: int) -> bool:
    """Positions are compared with it, or loops end at it: an extent."""
    compared = (kernel.op(user) for user in kernel.users(value))
    return any(op.kind is Kind.ELEMENTWISE and op.name in LESS for op in compared) or any(
        value == loop.stop for loop in kernel.body.loops
    )


def _is_unit_stride(kernel: KernelView, factor: int) -> bool:
    """The argument is the stride of a tensor's last axis at some launch."""
    op = kernel.op(kernel.strip(numbering(kernel).example(factor)))
    if op.kind is not Kind.PARAM:
        return False
    kernel.reads.add(op.name)
    if kernel.variant.constants.get(op.name) == 1:
        return True
    return any(_is_last_stride(host, argument) for host, argument in arguments(kernel, op.name))


def arguments(kernel: KernelView, name: str) -> Iterator[tuple[BodyView, int]]:
    """What launches pass as the argument `name`."""
    for host, launch in launches(kernel):
        op = host.op(launch)
        grid, params = op.attrs.get("grid"), op.attrs.get("params")
        if isinstance(grid, int) and isinstance(params, tuple) and name in params:
            yield host, op.args[grid + params.index(name)]


def _is_last_stride(host: BodyView, value: int) -> bool:
    """`x.stride(-1)`, or the highest axis of which x's stride is asked; tensors are contiguous along it as a rule."""
    if fold(host.body, value, {}) == 1:
        return True
    op = host.op(value)
    if op.kind is Kind.PHI and op.name == "if":
        return any(_is_last_stride(host, arg) for arg in op.args[1:])
    index = op.attrs.get("index")
    if op.kind is not Kind.ITEM or not isinstance(index, int) or not op.args:
        return False
    source = host.op(op.args[0])
    if source.kind is not Kind.ATTRIBUTE or source.name != "stride":
        return False
    return index == -1 or index == max(_asked_axes(host, source.args[0]), default=-1)


def _asked_axes(host: BodyView, tensor: int) -> Iterator[int]:
    for attribute in host.users(tensor):
        if host.op(attribute).kind is Kind.ATTRIBUTE and host.op(attribute).name in ("stride", "shape"):
            for item in host.users(attribute):
                index = host.op(item).attrs.get("index")
                if host.op(item).kind is Kind.ITEM and isinstance(index, int):
                    yield index


def _of_block_pointer(kernel: KernelView, access: Access) -> Lanes:
    """The stride of one, or else the order that the block pointer names first."""
    address = kernel.op(access.value).args[0]
    for at in index_cone(kernel, address):
        op = kernel.op(at)
        rank = op.attrs.get("rank")
        if op.kind is Kind.SHAPE and op.name == "block_pointer" and isinstance(rank, int):
            strides = op.args[1 + rank : 1 + 2 * rank]
            for stride in strides:
                if kernel.fold_int(stride) == 1 or _is_unit_stride(kernel, numbering(kernel).number(stride)):
                    return Lanes(access, "contiguous", NONE, 1)
            order = op.attrs.get("order")
            return Lanes(access, "contiguous" if isinstance(order, tuple) else "unknown", NONE, 1)
    return Lanes(access, "unknown", NONE, None)


# axes


def axis(kernel: KernelView, one: Lanes) -> str | None:
    """The argument that bounds what lanes walk along, or else the tensor that is accessed."""
    if one.index != NONE:
        extents = dict.fromkeys(_extents(kernel, one.index))
        if len(extents) == 1 and _is_size(kernel, next(iter(extents))):
            return next(iter(extents))
    return one.access.tensor


def _is_size(kernel: KernelView, name: str) -> bool:
    """Launches pass the extent of an axis itself, nothing that is computed from several."""
    for host, argument in arguments(kernel, name):
        op = host.op(argument)
        while op.kind is Kind.CAST:
            op = host.op(op.args[0])
        if op.kind not in (Kind.PARAM, Kind.ITEM, Kind.ATTRIBUTE, Kind.CONST):
            return False
    return True


def _extents(kernel: KernelView, index: int) -> Iterator[str]:
    """Arguments that positions made of the index are compared with."""
    atoms = {at for at in index_cone(kernel, index) if kernel.op(at).kind in (Kind.ARANGE, Kind.PHI)} or {index}
    for value in kernel.values(Kind.ELEMENTWISE, name=LESS):
        left, right = kernel.op(value).args[:2]
        for position, bound in ((left, right), (right, left)):
            limit = kernel.op(kernel.strip(bound))
            if limit.kind is Kind.PARAM and not atoms.isdisjoint(index_cone(kernel, position)):
                yield limit.name
