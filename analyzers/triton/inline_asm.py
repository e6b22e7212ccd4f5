"""`inline_asm_elementwise`: each PTX instruction becomes an operation, registers are followed from one to the next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from d2k.analyzers.core.ptx_text import Instruction, instructions
from d2k.analyzers.triton.values import Tup, Value
from d2k.spec.facts import NONE, AttrValue, Kind, Place

if TYPE_CHECKING:
    from d2k.analyzers.triton.device import Args, Device

_REGISTER = re.compile(r"\$\d+|%?[A-Za-z_][\w$%]*")

ELEMENTWISE: Mapping[str, str] = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "div",
    "neg": "neg",
    "abs": "abs",
    "fma": "fma",
    "mad": "fma",
    "min": "min",
    "max": "max",
    "ex2": "exp2",
    "lg2": "log2",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "rcp": "rcp",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "shl": "shl",
    "shr": "shr",
    "popc": "popc",
    "selp": "where",
}
DTYPES: Mapping[str, str] = {
    "e4m3x2": "f8e4m3",
    "e5m2x2": "f8e5m2",
    "e2m1x2": "f4e2m1",
    "ue8m0x2": "f8e8m0",
    "bf16x2": "bf16",
    "f16x2": "f16",
    "f32x2": "f32",
    "bf16": "bf16",
    "f16": "f16",
    "f32": "f32",
    "f64": "f64",
    "s32": "i32",
    "u32": "u32",
    "s64": "i64",
    "u64": "u64",
    "s16": "i16",
    "u16": "u16",
    "s8": "i8",
    "u8": "u8",
    "b32": "u32",
    "b16": "u16",
    "b64": "u64",
    "pred": "bool",
}


def lower(device: Device, a: Args) -> Value:
    """The operations of an asm string; `$0…` are its results, the numbers after them its arguments."""
    text, place = a.text("asm"), device.place(a.node)
    inputs = tuple(device.ref(one, a.node) for one in a.items("args"))
    shape = device.broadcast(inputs)
    result_types = tuple(device.dtype(one).name for one in a.items("dtype"))
    if not text:
        device.unknown("inline_asm_elementwise", a.node)
    outputs = sum(1 for one in a.text("constraints").split(",") if one.strip().startswith("="))
    pack = a.integer("pack") or 1
    registers: dict[str, int] = {}
    words = max(1, outputs)
    for at in range(len(a.text("constraints").split(",")) - words if a.text("constraints") else len(inputs)):
        # a packed argument may take several registers; they all hold parts of the same value
        index = at if len(inputs) == 0 else min(at * len(inputs) // max(1, _inputs(a, words)), len(inputs) - 1)
        if inputs:
            registers[f"${words + at}"] = inputs[index]
    last = NONE
    for one in instructions(text):
        last = _instruction(device, one, registers, inputs, place, shape)
    results = []
    for at, dtype in enumerate(result_types or (None,)):
        source = registers.get(f"${min(at, words - 1)}", last)
        attrs: dict[str, AttrValue] = {"result": at}
        if pack > 1:
            attrs["pack"] = pack
        args = (source,) if source != NONE else inputs
        results.append(device.b.emit(Kind.ASM, "asm", args, place, attrs, dtype, shape))
    return results[0] if len(results) == 1 else Tup(tuple(results))


def _inputs(a: Args, outputs: int) -> int:
    return len(a.text("constraints").split(",")) - outputs


def _instruction(
    device: Device,
    one: Instruction,
    registers: dict[str, int],
    inputs: tuple[int, ...],
    place: Place,
    shape: tuple[int, ...] | None,
) -> int:
    destination, *sources = one.operands or ("",)
    args = tuple(registers[name] for operand in sources for name in _REGISTER.findall(operand) if name in registers)
    kind, name, attrs, dtype = meaning(one)
    value = device.b.emit(kind, name, args, place, attrs, dtype, shape)
    for register in _REGISTER.findall(destination):
        registers[register] = value
    return value


def meaning(one: Instruction) -> tuple[Kind, str, Mapping[str, AttrValue], str | None]:
    """Kind, name, attributes and element type of an instruction that has no memory operand of its own."""
    modifiers = one.modifiers
    attrs: dict[str, AttrValue] = {}
    last = modifiers[-1] if modifiers else ""
    packed = last.endswith("x2") or (one.mnemonic == "cvt" and len(modifiers) >= 2 and modifiers[-2].endswith("x2"))
    if packed:
        attrs["packed"] = 2
    if "approx" in modifiers:
        attrs["fast"] = True
    if one.mnemonic == "cvt":
        types = [word for word in modifiers if word in DTYPES]
        if "satfinite" in modifiers or "sat" in modifiers:
            attrs["saturate"] = True
        return Kind.CAST, "cast", attrs, DTYPES[types[0]] if types else None
    if one.mnemonic in ("tanh", "ex2"):
        attrs["fast"] = True
    if one.mnemonic in ELEMENTWISE:
        return Kind.ELEMENTWISE, ELEMENTWISE[one.mnemonic], attrs, DTYPES.get(last)
    special = _special(one)
    if special is not None:
        return special
    return Kind.ASM, one.mnemonic, {"modifiers": modifiers, **attrs}, DTYPES.get(last)


def _special(one: Instruction) -> tuple[Kind, str, Mapping[str, AttrValue], str | None] | None:
    words = one.modifiers
    match one.mnemonic:
        case "griddepcontrol" if words:
            return Kind.CONTROL, "pdl_wait" if words[0] == "wait" else "pdl_launch", {}, None
        case "setmaxnreg" if words:
            return Kind.CONTROL, f"setmaxnreg_{words[0]}", {}, None
        case "shfl":
            mode = next((word for word in words if word in ("bfly", "up", "down", "idx")), "idx")
            return Kind.SHUFFLE, "xor" if mode == "bfly" else mode, {}, "u32"
        case "vote" | "match":
            mode = (
                "match" if one.mnemonic == "match" else next((w for w in words if w in ("ballot", "any", "all")), "all")
            )
            return Kind.VOTE, mode, {}, "u32"
        case "redux":
            op = next((word for word in words if word in ("add", "min", "max", "and", "or", "xor")), "add")
            return Kind.REDUX, "sum" if op == "add" else op, {}, None
        case "bar" | "barrier":
            return Kind.BARRIER, "syncthreads", {}, None
        case "fence" | "membar":
            return Kind.FENCE, "", {}, None
        case "nanosleep":
            return Kind.CONTROL, "nanosleep", {}, None
        case "prefetch":
            return Kind.CONTROL, "prefetch", {}, None
        case "ld" | "ldu":
            return Kind.LOAD, "asm", {"space": "global" if "global" in words else "unknown", "via": "pointer"}, None
        case "st":
            return Kind.STORE, "asm", {"space": "global" if "global" in words else "unknown", "via": "pointer"}, None
        case "red" | "atom":
            op = next(
                (word for word in words if word in ("add", "min", "max", "cas", "exch", "and", "or", "xor")), "add"
            )
            return Kind.ATOMIC, op, {"space": "global" if "global" in words else "unknown"}, None
        case "cp" if words[:1] == ("async",):
            return Kind.COPY, "tma" if "tensor" in words else ("bulk" if "bulk" in words else "cp_async"), {}, None
        case _:
            return None
