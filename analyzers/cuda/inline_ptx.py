"""Inline PTX: operands bound to C++ expressions and registers, each instruction an operation."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from msgspec.structs import replace

from d2k.analyzers.core.ptx_text import Instruction, instructions
from d2k.analyzers.cuda.cpp_types import BITS, BOOL, UNKNOWN_TYPE, CType
from d2k.analyzers.cuda.expressions import Expressions
from d2k.analyzers.cuda.ptx_meaning import CACHE_HINTS, IGNORED, SPECIAL, Meaning, instruction_descriptor, meaning
from d2k.analyzers.cuda.syntax import Asm
from d2k.analyzers.cuda.values import ArrayRef, LaneRef, Pointer, SlotRef, Thing, Val
from d2k.spec.facts import NONE, AttrValue, Guard, Kind

_OPERAND = re.compile(r"%(\d+)\Z")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+U?|\d+U?)\Z")
_FLOAT = re.compile(r"0[fFdD][0-9a-fA-F]+\Z|[+-]?\d+\.\d*")


@dataclass(slots=True)
class _Block:
    """One asm statement: its operands, and the registers that it declares."""

    outputs: list[Thing]
    inputs: list[Thing]
    registers: dict[str, Thing] = field(default_factory=dict)
    results: dict[int, Thing] = field(default_factory=dict)

    def operand(self, number: int) -> Thing | None:
        if number in self.results:
            return self.results[number]
        if number < len(self.outputs):
            return self.outputs[number]
        number -= len(self.outputs)
        return self.inputs[number] if number < len(self.inputs) else None


class InlinePtx(Expressions):
    def _asm(self, node: Asm) -> Thing:
        outputs = [self.expression(operand) for _, operand in node.outputs]
        inputs = [self._input(self.expression(operand)) for _, operand in node.inputs]
        self.at = node.at
        block = _Block(outputs, inputs)
        found = instructions(node.text)
        before = self.b.guards
        for one in found:
            if one.mnemonic in IGNORED:
                continue
            self.b.guards = before
            if one.predicate is not None:
                guard = self._predicate(block, one.predicate)
                if guard is not None:
                    self.b.guards = (*before, guard)
            self._instruction(block, one)
        self.b.guards = before
        if not found and outputs:
            # an empty statement that keeps the compiler from moving or merging values changes none
            return Val(NONE, CType(name="void"))
        self._write_back(block)
        return Val(NONE, CType(name="void"))

    def _input(self, thing: Thing) -> Thing:
        return thing if isinstance(thing, (SlotRef, LaneRef, ArrayRef)) else self.read(thing)

    def _predicate(self, block: _Block, text: str) -> Guard | None:
        held = self._value(block, text.lstrip("!"))
        if held is None:
            return None
        return Guard(self.val(held).id, not text.startswith("!"))

    # operands

    def _value(self, block: _Block, text: str) -> Thing | None:
        """What an operand stands for; None for a register that nothing has set."""
        text = text.strip()
        if match := _OPERAND.match(text):
            held = block.operand(int(match.group(1)))
            return self.read(held) if held is not None else None
        if text in block.registers:
            return block.registers[text]
        if text.startswith("!"):
            return self._value(block, text[1:])
        if _NUMBER.match(text):
            digits = text.rstrip("U")
            try:
                return Val(self.const(int(digits, 0)), CType("i64" if len(digits) > 10 else "i32"))
            except ValueError:
                return Val(self.const(int(digits)), CType("i32"))
        if text in SPECIAL:
            kind, attrs = SPECIAL[text]
            if kind is Kind.THREAD_INDEX:
                return self.thread_builtin("threadIdx", "xyz"[int(str(attrs["axis"]))])
            return Val(self.emit(kind, "", (), attrs, "u32"), CType("u32"))
        if text.startswith("{"):
            return self._gather(block, _members(text))
        return None

    def _address(self, block: _Block, text: str) -> tuple[Thing | None, list[Thing]]:
        """What a bracketed operand points to, and the coordinates behind it: `[map, {x, y}]`, `[base + 16]`."""
        inner = text.strip()
        if inner.startswith("["):
            inner = inner[1:].rsplit("]", 1)[0]
        base, *rest = _split(inner)
        coordinates: list[Thing] = []
        for one in rest:
            names = _members(one) if one.strip().startswith("{") else [one]
            coordinates.extend(value for name in names if (value := self._value(block, name)) is not None)
        parts = re.split(r"\s*\+\s*", base.strip(), maxsplit=1)
        held = self._value(block, parts[0])
        if held is not None and len(parts) > 1:
            offset = self._value(block, parts[1])
            if offset is not None and self.known(self.val(offset).id) != 0:
                held = self.binary("+", self._bytes(held), offset)
        return held, coordinates

    def _bytes(self, thing: Thing) -> Thing:
        """A pointer whose offsets count in bytes."""
        thing = self.read(thing)
        if isinstance(thing, Pointer) and thing.elem.dtype not in ("u8", "i8"):
            return self.cast(thing, CType("u8").pointer_to(), "reinterpret")
        return thing

    def _gather(self, block: _Block, names: list[str]) -> Thing:
        """Several registers as one value: the array or vector that they are parts of, else their join."""
        things = [self._place(block, name) for name in names]
        whole = self._whole([thing for thing in things if thing is not None]) if None not in things else None
        if whole is not None:
            return self.read(whole)
        values: list[int] = []
        type_ = UNKNOWN_TYPE
        for name in names:
            value = self._value(block, name)
            if value is not None:
                one = self.val(value)
                values.append(one.id)
                type_ = one.type
        if len(values) == 1:
            return Val(values[0], type_)
        return Val(
            self.emit(Kind.SHAPE, "join", values, {}, type_.dtype, None), replace(type_, lanes=max(1, len(values)))
        )

    def _place(self, block: _Block, name: str) -> Thing | None:
        if match := _OPERAND.match(name.strip()):
            return block.operand(int(match.group(1)))
        return block.registers.get(name.strip())

    def _whole(self, things: list[Thing]) -> Thing | None:
        """The array, row or vector that consecutive places make up; None if they do not."""
        first = things[0] if things else None
        if isinstance(first, SlotRef) and first.path:
            prefix = first.path[:-1]
            for thing in things:
                if not isinstance(thing, SlotRef) or thing.slot != first.slot or thing.path[:-1] != prefix:
                    return None
            held = self.slots.get(first.slot)
            if not isinstance(held, Val) or not held.type.dims or len(held.type.dims) != len(first.path):
                return None
            numbers = [self._offset_of(thing) for thing in things]
            if None in numbers or numbers != sorted(set(numbers), key=lambda n: n or 0):
                return None
            extent = held.type.dims[-1]
            if extent is not None and len(things) == extent:
                rest = held.type
                for _ in prefix:
                    rest = rest.element()
                return SlotRef(first.slot, rest, prefix)
            return None
        if isinstance(first, LaneRef):
            same = all(isinstance(t, LaneRef) and t.base == first.base and t.index == i for i, t in enumerate(things))
            if same and len(things) == self.static_type(first.base).lanes:
                return first.base
        return None

    def _offset_of(self, thing: Thing) -> int | None:
        return self.known_int(thing.path[-1]) if isinstance(thing, SlotRef) and thing.path else None

    # results

    def _set_registers(self, block: _Block, text: str, value: Val, meant: Meaning) -> None:
        """Gives an instruction's result to the register or registers that an operand names."""
        text = text.strip()
        if text.startswith("{"):
            names = _members(text)
            places = [self._place(block, name) for name in names]
            whole = self._whole([p for p in places if p is not None]) if None not in places else None
            if whole is not None and all(_OPERAND.match(name.strip()) for name in names):
                self.write(whole, Val(value.id, self.static_type(whole)))
                for name in names:
                    match = _OPERAND.match(name.strip())
                    if match:
                        block.results.pop(int(match.group(1)), None)
                return
            for position, name in enumerate(names):
                element = CType(meant.dtype)
                part = Val(self.emit(Kind.ITEM, "", (value.id,), {"index": position}, meant.dtype), element)
                self._set_register(block, name, part)
            return
        if "|" in text:
            parts = text.split("|")
            for name in parts:
                self._set_register(block, name, value)
            return
        self._set_register(block, text, value)

    def _set_register(self, block: _Block, name: str, value: Thing) -> None:
        name = name.strip()
        if match := _OPERAND.match(name):
            block.results[int(match.group(1))] = value
        elif name and name != "_":
            block.registers[name] = value

    def _write_back(self, block: _Block) -> None:
        for number, value in block.results.items():
            if number >= len(block.outputs):
                continue
            target = block.outputs[number]
            type_ = self.static_type(target)
            held = self.read(value)
            if isinstance(held, Val) and type_.dtype is not None:
                held = self._as_register(held, type_)
            self.write(target, held)

    def _as_register(self, value: Val, type_: CType) -> Val:
        """A result in a register of another type: the same bits."""
        old = value.type
        if old.dtype == type_.dtype and old.lanes == type_.lanes:
            return value
        if old.dtype is None or old.pointer:
            return Val(value.id, replace(type_, reference=False, const=False))
        if old.dtype == "bool":
            return Val(value.id, BOOL)
        both_integers = old.dtype[0] in "iu" and (type_.dtype or "f")[0] in "iu"
        if both_integers and old.lanes == type_.lanes:
            return Val(value.id, replace(type_, reference=False, const=False))
        if old.lanes > 1 or BITS.get(old.dtype) != BITS.get(type_.dtype or ""):
            # packed values keep their own type: two halves in an unsigned register
            return Val(value.id, replace(old, name=type_.name))
        return Val(
            self.emit(Kind.CAST, "bitcast", (value.id,), {}, type_.dtype), replace(type_, reference=False, const=False)
        )

    # instructions

    def _instruction(self, block: _Block, one: Instruction) -> None:
        meant = meaning(one)
        if meant is None:
            self._unknown_instruction(block, one)
            return
        if meant.kind is Kind.SHAPE and meant.name == "mov":
            self._move(block, one, meant)
            return
        attrs: dict[str, AttrValue] = dict(meant.attrs)
        results: list[str] = []
        args: list[int] = []
        immediates = list(meant.immediates)
        operands = list(one.operands)
        address: Thing | None = None
        for letter, text in _assigned_letters(meant.form, operands):
            if letter in "dg":
                results.append(text)
                if letter == "g":
                    args.append(self._operand_id(block, text))
            elif letter == "t":
                held, _ = self._address(block, text)
                args.append(self.val(held).id if held is not None else NONE)
            elif letter == "m":
                held, coordinates = self._address(block, text)
                if address is None:
                    address = held
                args.append(self._address_id(held))
                args.extend(self.val(item).id for item in coordinates)
            elif letter == "a":
                args.append(self._operand_id(block, text))
            elif letter == "i":
                value = self._value(block, text)
                label = immediates.pop(0) if immediates else ""
                if value is not None:
                    number = self.val(value).id
                    known = self.known(number)
                    if known is not None and label:
                        attrs[label] = known
                    else:
                        args.append(number)
        self._finish(block, one, meant, attrs, args, results, address)

    def _operand_id(self, block: _Block, text: str) -> int:
        value = self._value(block, text)
        if value is None:
            return NONE
        return self.val(value).id

    def _address_id(self, held: Thing | None) -> int:
        if held is None:
            return NONE
        if isinstance(held, ArrayRef):
            return self.decay(held).id
        return self.val(held).id

    def _finish(
        self,
        block: _Block,
        one: Instruction,
        meant: Meaning,
        attrs: dict[str, AttrValue],
        args: list[int],
        results: list[str],
        address: Thing | None,
    ) -> None:
        kind = meant.kind
        if kind in (Kind.LOAD, Kind.STORE, Kind.ATOMIC):
            self._memory(block, one, kind, attrs, args, address)
        elif kind is Kind.MMA:
            args = self._matrix(block, one, meant, attrs, args)
        elif kind is Kind.COPY:
            self._hint(block, one, attrs)
            args = self._copy(meant, attrs, args)
        elif kind is Kind.BARRIER and meant.name == "named" and len(args) == 1 and self.known(args[0]) == 0:
            meant = replace(meant, name="syncthreads")
        elif kind is Kind.ELEMENTWISE and meant.name == "select" and len(args) == 3:
            meant = replace(meant, name="where")
            args = [args[2], args[0], args[1]]
        elif kind is Kind.CAST:
            args = [arg for arg in args if arg >= 0]
            source = self._pointer_operand(block, one)
            if source is not None and results:
                self._set_registers(block, results[0], self._keep_pointer(source), meant)
                return
            if len(args) > 1:
                args = [self.emit(Kind.SHAPE, "join", args, {}, None, None)]
        elif kind is Kind.ELEMENTWISE and self._pointer_sum(block, one, meant, results):
            return
        if kind is Kind.VOTE and meant.name == "elect" and results:
            value = Val(self.emit(kind, "elect", (), attrs, "bool"), BOOL)
            self._set_register(block, results[0].split("|")[-1], value)
            return
        type_ = CType(meant.dtype, meant.lanes) if meant.dtype is not None else UNKNOWN_TYPE
        if kind is Kind.ALLOC:
            index = self.emit(kind, meant.name, args, attrs, None, None)
            self.tmem_allocations.append(index)
            if args and args[0] >= 0:
                self.written_addresses[args[0]] = index
            return
        if kind is Kind.SHUFFLE and results and meant.name == "idx" and args and self._is_shared_by_warp(args[0]):
            # a broadcast of what all lanes have: the value itself, known to the compiler to be the same in all lanes
            warp = self.b.ops[args[0]].kind is Kind.WARP
            kept = self.emit(
                Kind.WARP if warp else Kind.CAST, "" if warp else "cast", args[:1], {"uniform": True}, "i32"
            )
            self._set_registers(block, results[0], Val(kept, type_), meant)
            return
        dtype = meant.dtype if results else None
        if kind is Kind.MMA and isinstance(accumulates := attrs.get("acc_dtype"), str):
            dtype = accumulates
        index = self.emit(kind, meant.name, args, attrs, dtype, () if results else None)
        for text in results[:1]:
            self._set_registers(block, text, Val(index, type_), meant)

    def _is_shared_by_warp(self, value: int) -> bool:
        """The warp's own number, or an address in shared memory that is made of constants."""
        if value < 0:
            return False
        op = self.b.ops[value]
        if op.kind is Kind.CAST and op.args:
            return self._is_shared_by_warp(op.args[0])
        return op.kind in (Kind.WARP, Kind.ALLOC)

    def _keep_pointer(self, source: Thing) -> Val:
        value = self.val(source)
        if isinstance(source, Pointer):
            self.spaces[value.id] = source.space
        return value

    def _pointer_operand(self, block: _Block, one: Instruction) -> Thing | None:
        """The address that a conversion between address widths takes, None for other conversions."""
        if len(one.operands) < 2:
            return None
        held = self._value(block, one.operands[1])
        if isinstance(held, Pointer) or (isinstance(held, Val) and held.type.pointer):
            return held
        return None

    def _pointer_sum(self, block: _Block, one: Instruction, meant: Meaning, results: list[str]) -> bool:
        """`add.u32 addr, base, 16`: an address stays one."""
        if meant.name not in ("add", "sub") or len(one.operands) < 3 or not results:
            return False
        left = self._value(block, one.operands[1])
        right = self._value(block, one.operands[2])
        if not isinstance(left, Pointer) or right is None:
            return False
        moved = self.binary("+" if meant.name == "add" else "-", self._bytes(left), right)
        self._set_register(block, results[0], moved)
        return True

    def _memory(
        self,
        block: _Block,
        one: Instruction,
        kind: Kind,
        attrs: dict[str, AttrValue],
        args: list[int],
        address: Thing | None,
    ) -> None:
        """Puts operands in the order of the facts: (address, mask) or (address, value, mask)."""
        if attrs.get("space") == "unknown" and isinstance(address, Pointer):
            attrs["space"] = address.space
        self._hint(block, one, attrs)
        if kind is Kind.LOAD:
            del args[1:]
            args.append(NONE)
        else:
            value = args[1] if len(args) > 1 else NONE
            rest = args[2:]
            if kind is Kind.ATOMIC and one.mnemonic == "atom" and "cas" in one.modifiers and rest:
                value, rest = rest[0], [value]
            del args[1:]
            args.extend((value, NONE, *rest))

    def _hint(self, block: _Block, one: Instruction, attrs: dict[str, AttrValue]) -> None:
        """The policy that a cache hint operand carries."""
        if not attrs.pop("hinted", False) or not one.operands:
            return
        held = self._value(block, one.operands[-1])
        if held is None:
            return
        index = self.val(held).id
        known = self.known_int(index)
        draft = self.b.ops[index]
        if known is not None:
            policy = CACHE_HINTS.get(known & ((1 << 64) - 1))
        else:
            policy = str(draft.attrs.get("policy")) if draft.name == "createpolicy" else "hint"
        if policy is not None:
            attrs["eviction"] = policy

    def _matrix(
        self, block: _Block, one: Instruction, meant: Meaning, attrs: dict[str, AttrValue], args: list[int]
    ) -> list[int]:
        """Operands in the order (a, b, accumulator, scales…)."""
        if meant.attrs.get("instr") == "wgmma":
            accumulator, a, b, *_ = (*args, NONE, NONE, NONE)
            scale = self._value(block, one.operands[3]) if len(one.operands) > 3 else None
            if scale is not None and self.known(self.val(scale).id) == 0:
                accumulator = NONE
            return [a, b, accumulator]
        if meant.attrs.get("instr") == "tcgen05":
            target, a, b, *rest = (*args, NONE, NONE, NONE)
            encoded = self.known_int(rest[0]) if rest and rest[0] >= 0 else None
            if encoded is not None:
                attrs.update(instruction_descriptor(str(attrs.get("kind", "")), encoded))
            return [a, b, target, *(arg for arg in rest if arg >= 0)]
        return args

    def _copy(self, meant: Meaning, attrs: dict[str, AttrValue], args: list[int]) -> list[int]:
        """Operands in the order (destination, source, …)."""
        if meant.name == "tma" and attrs.get("direction") in ("store", "scatter", "reduce") and len(args) > 2:
            # [map, coordinates], [source]: the source comes last
            return [args[0], args[-1], *args[1:-1]]
        return args

    def _move(self, block: _Block, one: Instruction, meant: Meaning) -> None:
        if len(one.operands) < 2:
            return
        target, source = one.operands[0], one.operands[1]
        if one.mnemonic == "cvta" and isinstance(held := self._value(block, source), Pointer):
            space = next((word for word in one.modifiers if word in ("shared", "global", "local")), held.space)
            self._set_register(block, target, replace(held, space=space))
            return
        value = self._value(block, source)
        if value is None:
            if _FLOAT.match(source):
                value = Val(self.const(None, "f32"), CType("f32"))
            else:
                return
        if target.strip().startswith("{"):
            whole = self.val(value)
            names = _members(target)
            draft = self.b.ops[whole.id]
            for position, name in enumerate(names):
                if draft.kind is Kind.SHAPE and draft.name == "join" and len(draft.args) == len(names):
                    self._set_register(
                        block, name, Val(draft.args[position], CType(self.b.ops[draft.args[position]].dtype))
                    )
                    continue
                part = self.emit(Kind.SHAPE, "index", (whole.id, self.const(position)), {}, whole.type.dtype)
                self._set_register(block, name, Val(part, replace(whole.type, lanes=1)))
            return
        self._set_register(block, target, value)

    def _unknown_instruction(self, block: _Block, one: Instruction) -> None:
        """An instruction that the table does not know: its first operand is taken for its result."""
        args = [
            self._address_id(held) if text.startswith("[") else self.val(held).id
            for text in one.operands[1:]
            if (held := self._address(block, text)[0] if text.startswith("[") else self._value(block, text)) is not None
        ]
        attrs: dict[str, AttrValue] = {"modifiers": one.modifiers, "text": one.opcode}
        index = self.emit(Kind.ASM, one.mnemonic, args, attrs, None, None)
        if one.operands and not one.operands[0].startswith("["):
            dtype = None
            self._set_registers(block, one.operands[0], Val(index, CType(dtype)), Meaning(Kind.ASM, one.mnemonic, ""))


def _assigned_letters(form: str, operands: list[str]) -> list[tuple[str, str]]:
    """Each operand with the letter of the form that it falls under."""
    letters: list[str] = []
    repeat = ""
    for char in form:
        if char == "*":
            repeat = letters[-1]
        else:
            letters.append(char)
    if letters[:1] == ["?"]:
        # an optional result: there is one if the first operand is not the address
        letters = letters[1:]
        if operands and not operands[0].startswith("["):
            letters = ["d", *letters]
    found: list[tuple[str, str]] = []
    for position, text in enumerate(operands):
        letter = letters[position] if position < len(letters) else repeat
        if letter:
            found.append((letter, text))
    return found


def _members(text: str) -> list[str]:
    return [one for one in _split(text.strip().strip("{}")) if one.strip()]


def _split(text: str) -> list[str]:
    parts: list[str] = []
    depth = start = 0
    for at, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return parts
