"""Calls of library functions, lowered by the tables of `library`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from d2k.analyzers.cuda.calls import Calls
from d2k.analyzers.cuda.cpp_types import INT, UNKNOWN_TYPE, CType, common
from d2k.analyzers.cuda.library import Entry, Library
from d2k.analyzers.cuda.syntax import Call
from d2k.analyzers.cuda.values import (
    ArrayRef,
    Closure,
    External,
    Functions,
    LocalPointer,
    MemRef,
    Method,
    Obj,
    Pointer,
    SlotRef,
    Thing,
    Tuple,
    Val,
)
from d2k.spec.facts import NONE, AttrValue, Kind

VOID = Val(NONE, CType(name="void"))

_LIMITS = {
    ("max", "f32"): 3.4028234663852886e38,
    ("lowest", "f32"): -3.4028234663852886e38,
    ("min", "f32"): 1.1754943508222875e-38,
    ("epsilon", "f32"): 1.1920928955078125e-07,
    ("max", "i32"): 2147483647,
    ("min", "i32"): -2147483648,
    ("lowest", "i32"): -2147483648,
    ("max", "u32"): 4294967295,
    ("max", "i64"): 2**63 - 1,
}


class LibraryCalls(Calls):
    library: Library

    def known_library(self, name: str) -> bool:
        return False

    def library_call(self, name: str, targs: tuple[Thing, ...], args: list[Thing], node: Call) -> Thing:
        last = name.rsplit("::", 1)[-1]
        if last.startswith("make_"):
            made = self._make(last, args)
            if made is not None:
                return made
        if "numeric_limits" in name:
            return self._limit(last, targs)
        entry = self.library.function(name)
        if entry is not None:
            return self.apply(entry, args, targs, name)
        if last in ("get",) and targs and args and isinstance(targs[0], Val):
            number = self.known_int(targs[0].id)
            held = self.read(args[0])
            if isinstance(held, Tuple) and number is not None and 0 <= number < len(held.items):
                return held.items[number]
        if last in ("make_tuple", "tie", "make_pair", "forward_as_tuple"):
            return Tuple(tuple(arg if last == "tie" else self.read(arg) for arg in args))
        return self.opaque_call(name, args, node)

    def _make(self, name: str, args: list[Thing]) -> Thing | None:
        """`make_float4(…)` and the like."""
        from d2k.analyzers.cuda.cpp_types import builtin

        type_ = builtin(name[5:])
        if type_ is None or type_.lanes < 2:
            return None
        if len(args) == type_.lanes:
            return self.vector(type_, args)
        if len(args) == 1:
            value = self.val(args[0])
            return Val(value.id, type_) if value.type.lanes == type_.lanes else self.vector(type_, args * type_.lanes)
        return None

    def _limit(self, last: str, targs: tuple[Thing, ...]) -> Thing:
        type_ = targs[0] if targs and isinstance(targs[0], CType) else UNKNOWN_TYPE
        dtype = type_.dtype or ""
        if last == "infinity":
            return Val(self.const(float("inf"), type_.dtype), type_)
        if last == "quiet_NaN":
            return Val(self.const(float("nan"), type_.dtype), type_)
        value = _LIMITS.get((last, dtype))
        if value is None:
            return Val(self.emit(Kind.CALL, f"numeric_limits.{last}", (), {"value": True}, type_.dtype), type_)
        return Val(self.const(value, dtype), type_)

    def method_call(self, method: Method, args: list[Thing], node: Call) -> Thing:
        base = method.base
        type_ = self.static_type(base)
        entry = self.library.method(type_.name, method.name)
        if entry is not None:
            return self.apply(entry, [base, *args], method.targs, f"{type_.name}::{method.name}")
        if method.name in ("data", "begin", "get", "data_ptr") and not args:
            if isinstance(base, ArrayRef):
                return self.decay(base)
            if isinstance(base, SlotRef) and base.type.dims:
                return LocalPointer(
                    SlotRef(base.slot, base.type.element(), (*base.path, self.const(0))), base.type.element()
                )
        if method.name in ("size", "length") and not args and type_.dims and type_.dims[0] is not None:
            return self.int_val(type_.dims[0])
        if method.name in ("fill", "clear") and isinstance(base, SlotRef) and base.type.dims:
            value = self.val(args[0]).id if args else self.const(0, base.type.dtype)
            self.write(
                base,
                Val(
                    self.emit(Kind.FULL, "", (value,), {"space": "local"}, base.type.dtype, base.type.dim_values),
                    base.type,
                ),
            )
            return VOID
        receiver = [] if isinstance(base, (Functions, External, Closure)) else [base]
        return self.opaque_call(f"{type_.name or 'object'}.{method.name}", [*receiver, *args], node)

    # entries

    def apply(self, entry: Entry, args: list[Thing], targs: tuple[Thing, ...], name: str) -> Thing:
        """The operation that a call of a known function is."""
        if entry.ops:
            result: Thing = VOID
            for one in entry.ops:
                result = self.apply(one, args, targs, name)
            return result
        if entry.kind == "none":
            return VOID
        if entry.access:
            return self._access(entry, args)
        positions = range(len(args)) if entry.args == "all" else entry.args
        operands: list[int] = []
        values: list[Val] = []
        for position in positions:
            if not isinstance(position, int) or position < 0 or position >= len(args):
                operands.append(NONE)
                continue
            value = self.operand(args[position])
            values.append(value)
            operands.append(value.id)
        attrs: dict[str, AttrValue] = dict(entry.attrs)
        for key, position in entry.attr_args.items():
            if position < len(args):
                known = self.known(self.operand(args[position]).id)
                if known is not None:
                    attrs[key] = known
        for key, position in entry.attr_targs.items():
            if position < len(targs):
                attrs[key] = self._template_attr(targs[position])
        type_ = self._result(entry, values, targs)
        kind = Kind(entry.kind)
        if kind is Kind.SHUFFLE:
            uniform = self._uniform(entry.op, operands)
            if uniform is not None:
                return uniform
        if type_.lanes > 1 and kind is Kind.ELEMENTWISE and "packed" not in attrs:
            attrs["packed"] = type_.lanes
        void = not entry.dtype
        index = self.emit(kind, entry.op, operands, attrs, None if void else type_.dtype, None if void else ())
        result_value = Val(index, type_)
        if entry.out >= 0 and entry.out < len(args):
            self.write(self._target(args[entry.out]), result_value)
        return VOID if void and kind not in (Kind.CALL, Kind.HOST_CALL) else result_value

    def _target(self, thing: Thing) -> Thing:
        return self.deref(thing) if isinstance(thing, (Pointer, LocalPointer)) else thing

    def operand(self, thing: Thing) -> Val:
        """An argument as an operand: addresses for arrays and objects in memory, values for the rest."""
        if isinstance(thing, ArrayRef) and thing.type.dims:
            pointer = self.decay(thing)
            return Val(pointer.id, pointer.elem.pointer_to())
        if isinstance(thing, MemRef) and (thing.type.instance is not None or thing.type.dims):
            return Val(thing.address, thing.type.pointer_to())
        if isinstance(thing, (Closure, Functions, External, CType, Method)) and not (
            isinstance(thing, CType) and thing.integral is not None
        ):
            return Val(NONE)
        if isinstance(thing, Obj) and not thing.fields:
            return Val(NONE)
        return self.val(thing)

    def _template_attr(self, thing: Thing) -> AttrValue:
        if isinstance(thing, Val):
            return self.known(thing.id)
        if isinstance(thing, CType):
            return thing.integral if thing.integral is not None else (thing.dtype or thing.name)
        return getattr(thing, "name", None)

    def _result(self, entry: Entry, values: list[Val], targs: tuple[Thing, ...]) -> CType:
        first = values[0].type if values else UNKNOWN_TYPE
        if entry.dtype == "same":
            return replace(first, reference=False, const=False)
        if entry.dtype == "common":
            result = first
            for value in values[1:]:
                result = common(result, value.type)
            return replace(result, reference=False, const=False)
        if entry.dtype == "float":
            return replace(first, const=False) if first.is_float else CType("f32")
        if entry.dtype == "targ":
            return targs[0] if targs and isinstance(targs[0], CType) else UNKNOWN_TYPE
        if not entry.dtype:
            return UNKNOWN_TYPE
        return CType(entry.dtype, entry.lanes)

    def _uniform(self, op: str, operands: list[int]) -> Val | None:
        """A broadcast of the warp's own number is the warp's number."""
        if op != "idx" or not operands or operands[0] < 0:
            return None
        value = operands[0]
        while self.b.ops[value].kind is Kind.CAST:
            value = self.b.ops[value].args[0]
        if self.b.ops[value].kind is Kind.WARP:
            attrs: Mapping[str, AttrValue] = {**self.b.ops[value].attrs, "uniform": True}
            return Val(self.emit(Kind.WARP, "", (value,), attrs, "i32"), INT)
        return None

    def _access(self, entry: Entry, args: list[Thing]) -> Thing:
        if not args:
            return VOID
        access = entry.access
        if access == "same":
            return args[0]
        if access == "same_pointer":
            thing = args[0]
            if isinstance(thing, ArrayRef):
                return self.decay(thing)
            return self.read(thing) if not isinstance(thing, (MemRef, Obj)) else self.address_of(thing)
        if access == "swap" and len(args) == 2:
            first, second = self.read(args[0]), self.read(args[1])
            self.write(args[0], second)
            self.write(args[1], first)
            return VOID
        if access == "memcpy":
            return self._memcpy(args)
        place = self._place_behind(args[0])
        if access == "load":
            if isinstance(place, MemRef):
                return self._load(place, entry.attrs)
            if isinstance(place, ArrayRef):
                pointer = self.decay(place)
                return self._load(MemRef(pointer.id, pointer.elem, pointer.space), entry.attrs)
            return self.read(place)
        if access == "store" and len(args) > 1:
            self.write(place, self.read(args[1]), entry.attrs)
            return VOID
        return self.atomic(entry.op, args[0], args[1:], dict(entry.attrs))

    def _place_behind(self, thing: Thing) -> Thing:
        if isinstance(thing, (ArrayRef, Pointer, LocalPointer, SlotRef)):
            return self.deref(thing)
        return self.deref(self.val(thing))

    def atomic(self, op: str, address: Thing, values: list[Thing], attrs: dict[str, AttrValue]) -> Thing:
        """A read-modify-write of memory; `values` are its operands, for cas the expected and the new one."""
        pointer = self.read(address) if not isinstance(address, ArrayRef) else self.decay(address)
        if isinstance(pointer, Val):
            elem = pointer.type.pointee() if pointer.type.pointer else UNKNOWN_TYPE
            pointer = Pointer(pointer.id, elem, self.spaces.get(pointer.id, "unknown"))
        operands = [self.val(value) for value in values]
        if isinstance(pointer, LocalPointer):
            return self.read(pointer.target)
        if not isinstance(pointer, Pointer):
            return self.unknown("atomic", [value.id for value in operands])
        attrs["space"] = pointer.space
        elem = replace(pointer.elem, const=False, volatile=False)
        if elem.lanes > 1:
            attrs["width"] = elem.lanes
        ids = [value.id for value in operands]
        if op == "cas":
            ids.reverse()
        index = self.emit(Kind.ATOMIC, op, (pointer.id, ids[0] if ids else NONE, NONE, *ids[1:]), attrs, elem.dtype)
        return Val(index, elem)

    def _memcpy(self, args: list[Thing]) -> Thing:
        """A copy of a few bytes between places: a load and a store of that width."""
        if len(args) < 3:
            return VOID
        size = self.known_int(self.val(args[2]).id)
        target, source = self._place_behind(args[0]), self._place_behind(args[1])
        lanes = max(1, (size or 4) // 4)
        if size is not None and isinstance(source, MemRef):
            source = replace(source, type=CType("u32", lanes))
        if size is not None and isinstance(target, MemRef):
            target = replace(target, type=CType("u32", lanes))
        self.write(target, self.read(source))
        return VOID
