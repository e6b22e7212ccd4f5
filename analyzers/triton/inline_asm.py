"""`inline_asm_elementwise`: each PTX instruction becomes an operation, registers are followed from one to the next."""

from __future__ import annotations

import re
from struct import unpack
from typing import TYPE_CHECKING

from d2k.analyzers.core.ptx_text import Instruction, instructions
from d2k.analyzers.cuda.ptx_meaning import IGNORED, SPECIAL, meaning
from d2k.analyzers.triton.values import Tup, Value
from d2k.spec.facts import NONE, AttrValue, Guard, Kind, Place

if TYPE_CHECKING:
    from d2k.analyzers.triton.device import Args, Device

_REGISTER = re.compile(r"\$\d+|%?[A-Za-z_][\w$%.]*")
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?\Z")
_FLOAT_BITS = re.compile(r"0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})\Z")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")


def lower(device: Device, a: Args) -> Value:
    """The operations of an asm string; `$0…` are its results, the numbers after them its arguments."""
    place = device.place(a.node)
    text = a.text("asm")
    inputs = tuple(device.ref(one, a.node) for one in a.items("args"))
    if not text:
        return device.unknown("inline_asm_elementwise", a.node, inputs)
    constraints = [one.strip() for one in a.text("constraints").split(",") if one.strip()]
    outputs = sum(1 for one in constraints if one.startswith("="))
    block = _Block(device, place, device.broadcast(inputs))
    taken = max(0, len(constraints) - outputs)
    for at in range(taken):
        # an argument that is packed takes several registers, which all hold parts of the same value
        if inputs:
            block.registers[f"${outputs + at}"] = inputs[at * len(inputs) // taken]
    guards = device.b.guards
    for one in instructions(text):
        if one.mnemonic not in IGNORED:
            device.b.guards = guards + block.guard(one)
            block.instruction(one)
    device.b.guards = guards
    return _results(device, a, block, outputs, inputs)


def _results(device: Device, a: Args, block: _Block, outputs: int, inputs: tuple[int, ...]) -> Value:
    """One value for each element type that the call names."""
    types = tuple(device.dtype(one).name for one in a.items("dtype")) or (None,)
    pack = a.integer("pack") or 1
    results: list[int] = []
    for at, dtype in enumerate(types):
        register = at * max(outputs, 1) // len(types)
        source = block.registers.get(f"${register}", block.last)
        attrs: dict[str, AttrValue] = {"result": at}
        if pack > 1:
            attrs["pack"] = pack
        args = inputs if source == NONE else (source,)
        results.append(device.b.emit(Kind.ASM, "asm", args, block.place, attrs, dtype, block.shape))
    return results[0] if len(results) == 1 else Tup(tuple(results))


class _Block:
    """The registers of one asm string and what they hold."""

    def __init__(self, device: Device, place: Place, shape: tuple[int, ...] | None) -> None:
        self.device = device
        self.place = place
        self.shape = shape
        self.registers: dict[str, int] = {}
        self.last = NONE

    def guard(self, one: Instruction) -> tuple[Guard, ...]:
        if one.predicate is None:
            return ()
        value = self.registers.get(one.predicate.lstrip("!"))
        return () if value is None else (Guard(value, not one.predicate.startswith("!")),)

    def instruction(self, one: Instruction) -> None:
        meant = meaning(one)
        attrs: dict[str, AttrValue] = {}
        immediates: tuple[str, ...] = ()
        if one.mnemonic == "mov" and len(one.operands) == 2:
            source = self.read(one.operands[1])
            if len(source) == 1:
                self.write(one.operands[0], source[0])
                return
        if meant is None:
            form, kind, name, dtype = "da*", Kind.ASM, one.mnemonic, None
            attrs["modifiers"] = one.modifiers
        else:
            form, kind, name, dtype = meant.form, meant.kind, meant.name, meant.dtype
            attrs.update(meant.attrs)
            immediates = meant.immediates
        args: list[int] = []
        written: list[str] = []
        names = iter(immediates)
        for letter, operand in zip(_letters(form, len(one.operands)), one.operands, strict=False):
            if letter in "dg?":
                written.append(operand)
            if letter in "amgt":
                args.extend(self.read(operand))
            if letter == "i" and (known := _NUMBER.match(operand)):
                attrs[next(names, "immediate")] = int(known.group().rstrip("U"), 0)
        self.last = self.device.b.emit(kind, name, tuple(args), self.place, attrs, dtype, self.shape)
        for operand in written:
            self.write(operand, self.last)

    def read(self, operand: str) -> list[int]:
        """The values that an operand names, its constants included."""
        text = operand.strip()
        number = _constant(text)
        if number is not None:
            return [self.device.b.const(number, self.place)]
        if text in SPECIAL:
            kind, attrs = SPECIAL[text]
            return [self.device.b.emit(kind, "", (), self.place, attrs, "u32", ())]
        # a register that nothing wrote keeps its place, so that the operands behind it keep theirs
        return [self.registers.get(name, NONE) for name in _REGISTER.findall(text)]

    def write(self, operand: str, value: int) -> None:
        for name in _REGISTER.findall(operand):
            if name != "_":
                self.registers[name] = value


def _constant(text: str) -> int | float | None:
    """The immediate that an operand is: `16`, `0x10`, `-1.5`, `0f3F800000` (the bits of a float), or None."""
    if _NUMBER.match(text):
        return int(text.rstrip("U"), 0)
    bits = _FLOAT_BITS.match(text)
    if bits:
        digits = bits.group(2)
        return float(unpack(">f" if len(digits) == 8 else ">d", bytes.fromhex(digits))[0])
    return float(text) if _DECIMAL.match(text) else None


def _letters(form: str, count: int) -> str:
    """What each of `count` operands is; a starred letter stands for all that remain."""
    if form.endswith("*"):
        return form[:-2] + form[-2] * max(0, count - len(form) + 2)
    return form
