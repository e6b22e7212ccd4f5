"""Element types of values, followed through arithmetic where the front end does not say them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from d2k.analyzers.core.view import SITES, KernelView
from d2k.analyzers.patterns.arguments import element_type
from d2k.analyzers.patterns.dataflow import flow
from d2k.spec.facts import NONE, Kind, Op

WIDE = frozenset({"f32", "f64"})
HALF = frozenset({"f16", "bf16"})
FP8 = frozenset({"f8e4m3", "f8e5m2"})
MAX_DEPTH = 200

_TYPES: WeakKeyDictionary[KernelView, dict[int, str | None]] = WeakKeyDictionary()


def precision(kernel: KernelView, value: int) -> str | None:
    """The element type of `value`, None if the source does not say it."""
    if value == NONE:
        return None
    kernel.reads.add(SITES)
    return _type(kernel, _TYPES.setdefault(kernel, {}), value, 0)


def _type(kernel: KernelView, known: dict[int, str | None], value: int, depth: int) -> str | None:
    if value in known:
        return known[value]
    op = kernel.op(value)
    if op.dtype is not None:
        known[value] = op.dtype
    elif depth < MAX_DEPTH:
        # a value that depends on itself through a loop adds nothing to what else it depends on
        known[value] = None
        known[value] = _inferred(kernel, known, op, depth + 1)
    return known.get(value)


def _inferred(kernel: KernelView, known: dict[int, str | None], op: Op, depth: int) -> str | None:
    match op.kind:
        case Kind.CAST:
            name = op.attrs.get("dtype_of")
            return element_type(kernel, name) if isinstance(name, str) else None
        case Kind.LOAD if op.args:
            array = next(iter(flow(kernel).arrays(op.args[0])), None)
            if array is not None:
                return kernel.op(array).dtype
            name = kernel.pointer(op.args[0])
            return element_type(kernel, name) if name is not None else None
        case Kind.MMA:
            dtype = op.attrs.get("acc_dtype")
            return dtype if isinstance(dtype, str) else None
        case Kind.ELEMENTWISE:
            return _promoted(kernel, known, op.args[1:] if op.name == "where" else op.args, depth)
        case Kind.SHAPE | Kind.REDUCE | Kind.SCAN | Kind.ITEM | Kind.FULL | Kind.SHUFFLE | Kind.CONTROL:
            return _type(kernel, known, op.args[0], depth) if op.args and op.args[0] != NONE else None
        case Kind.PHI:
            versions = (arg for arg in (op.args[1:] if op.name == "if" else op.args) if arg != NONE)
            types = (_type(kernel, known, arg, depth) for arg in versions)
            return next((one for one in types if one is not None), None)
        case _:
            return None


def _promoted(kernel: KernelView, known: dict[int, str | None], args: tuple[int, ...], depth: int) -> str | None:
    """One wide operand makes the result wide; literals take the other operand's type."""
    typed = [arg for arg in args if arg != NONE and kernel.op(arg).kind is not Kind.CONST]
    found = [_type(kernel, known, arg, depth) for arg in typed]
    for wide in ("f64", "f32"):
        if wide in found:
            return wide
    return found[0] if found and len(set(found)) == 1 else None
