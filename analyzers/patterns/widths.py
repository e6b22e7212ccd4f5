"""How wide one access of a thread is, as far as the source says."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.arguments import element_type
from d2k.analyzers.patterns.contiguity import Step, access_steps
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.precision import precision
from d2k.spec.dtypes import DTYPES
from d2k.spec.facts import Kind, Op

WIDEST = 128
"""Bits of the widest access of a thread that every target has."""

WARP = 32
DEFAULT_WARPS = 4
"""What Triton takes for `num_warps` where a launch does not say."""

NARROWEST = 8
"""Bits of the narrowest element that a tile can have."""

UNSIGNED = {"u16": 16, "u32": 32, "u64": 64}


@dataclass(frozen=True, slots=True)
class Width:
    """`bits` of one access of a thread if they are known, `least` bits at least; `run` neighbouring elements that
    a thread owns, None if the source does not say. `why` is the reason in words where `bits` is None.

    `contiguous` is None if it is not known whether neighbouring elements lie next to each other.
    """

    bits: int | None
    least: int = 0
    run: int | None = None
    contiguous: bool | None = True
    why: str = ""


def element_bits(dtype: str | None) -> int | None:
    if dtype is None:
        return None
    return DTYPES[dtype].bits if dtype in DTYPES else UNSIGNED.get(dtype)


def width(kernel: KernelView, access: int) -> Width:
    """Width of a LOAD, STORE or COPY of global memory."""
    op = kernel.op(access)
    stated = _stated_bits(op)
    if stated is not None:
        return Width(stated, stated)
    if not is_triton(kernel):
        return Width(None, why="the type of the access is not known here")
    return _tile_width(kernel, access)


def _stated_bits(op: Op) -> int | None:
    bits, size = op.attrs.get("bits"), op.attrs.get("bytes")
    if isinstance(bits, int) and not isinstance(bits, bool):
        return bits
    if op.kind is Kind.COPY and op.name == "cp_async" and isinstance(size, int):
        return 8 * size
    return None


def _tile_width(kernel: KernelView, access: int) -> Width:
    op = kernel.op(access)
    found = access_steps(kernel, access)
    if found is None:
        return Width(None, contiguous=None, why="how the address moves is not known here")
    if not any(found):
        return Width(None, contiguous=False, why="one element for the whole block")
    unit = [axis for axis, step in enumerate(found) if step is not None and step.how == "unit"]
    if not unit:
        return _without_unit(kernel, found)
    run = _run(kernel, access, unit[0])
    bits = element_bits(_dtype(kernel, access, op))
    if run is None:
        return Width(None, why="the number of elements of a thread is not known here")
    if bits is not None:
        exact = min(WIDEST, run * bits)
        return Width(exact, exact, run)
    least = min(WIDEST, run * NARROWEST)
    if least == WIDEST:
        return Width(WIDEST, WIDEST, run)
    return Width(None, least, run, why=f"the element type is not known here; a thread owns {run} neighbouring elements")


def _without_unit(kernel: KernelView, found: tuple[Step | None, ...]) -> Width:
    open_strides = [step.stride for step in found if step is not None and step.how == "runtime"]
    if not open_strides:
        return Width(None, contiguous=False, why="neighbouring elements of the tile do not lie next to each other")
    name = kernel.op(kernel.strip(open_strides[-1])).name or "a stride"
    return Width(None, contiguous=None, why=f"whether {name} is 1 is not known here")


def _dtype(kernel: KernelView, access: int, op: Op) -> str | None:
    if op.kind is Kind.STORE:
        name = kernel.pointer(op.args[0])
        stored = precision(kernel, op.args[1])
        return stored if name is None else element_type(kernel, name)
    return precision(kernel, access)


def threads(kernel: KernelView) -> int | None:
    """Threads of a block of a tile language; None if the source does not say."""
    warps = kernel.launch.num_warps
    if warps is not None:
        return WARP * warps
    computed = kernel.launch.options.get("num_warps") is not None
    return WARP * DEFAULT_WARPS if kernel.variant.sites and not computed else None


def tile_elements(kernel: KernelView, access: int) -> int | None:
    """Elements of the tile that an access moves."""
    op = kernel.op(access)
    dims = kernel.dims(op.args[0]) or kernel.dims(access)
    if dims is None or any(extent is None for extent in dims):
        return None
    return prod(extent for extent in dims if extent is not None)


def _run(kernel: KernelView, access: int, axis: int) -> int | None:
    """Neighbouring elements that each thread owns along an axis of the tile."""
    elements, count = tile_elements(kernel, access), threads(kernel)
    dims = kernel.dims(kernel.op(access).args[0]) or kernel.dims(access)
    extent = dims[axis] if dims is not None and axis < len(dims) else None
    if extent is not None and extent < WIDEST // NARROWEST and (elements is None or count is None):
        return None
    if elements is None or count is None or extent is None:
        return None
    return max(1, min(extent, elements // count))
