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

COLLECTIVE_MMA = "d2k_collective_mma"
VOID = Val(NONE, CType(name="void"))

_FUNCTORS = {
    "plus": "sum",
    "sum": "sum",
    "add": "sum",
    "greater": "max",
    "max": "max",
    "maximum": "max",
    "less": "min",
    "min": "min",
    "minimum": "min",
    "bit_and": "and",
    "bit_or": "or",
    "bit_xor": "xor",
    "argmax": "argmax",
    "argmin": "argmin",
}
_TILE_TYPES = {
    "_bf": "bf16",
    "_hf": "f16",
    "_fl": "f32",
    "_fp8e4m3": "f8e4m3",
    "_fp8e5m2": "f8e5m2",
    "_fp4_2": "f4e2m1",
}
_ATOM_TYPES = {
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "tf32": "tf32",
    "e4m3": "f8e4m3",
    "e5m2": "f8e5m2",
    "e2m1": "f4e2m1",
    "s32": "i32",
    "s8": "i8",
    "u8": "u8",
    "f64": "f64",
    "f16bf16": None,
}
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
    current_call: Call
    collective_attrs: Mapping[str, AttrValue] | None = None
    """In the kernel of a CUTLASS collective: attributes of its matrix instruction."""

    def library_constant(self, name: str) -> int | None:
        return self.library.constants.get(name)

    def known_library(self, name: str) -> bool:
        return False

    def library_call(self, name: str, targs: tuple[Thing, ...], args: list[Thing], node: Call) -> Thing:
        last = name.rsplit("::", 1)[-1]
        if last == COLLECTIVE_MMA and self.collective_attrs is not None and len(args) == 3:
            return self._collective_mma(self.collective_attrs, args)
        if last in self.index.classes and not targs:
            deduced = self.deduced_object(name, args)
            if deduced is not None:
                return deduced
        if not self.host and last.isupper() and "ASSERT" in last:
            return VOID
        if last.startswith("make_"):
            made = self._make(last, args)
            if made is not None:
                return made
        if "numeric_limits" in name:
            return self._limit(last, targs)
        static = self._atom_member(name, args)
        if static is not None:
            return static
        entry = self.library.function(name)
        self.current_call = node
        if entry is not None:
            return self.apply(entry, args, targs, name)
        if last in ("get",) and targs and args and isinstance(targs[0], Val):
            number = self.known_int(targs[0].id)
            held = self.read(args[0])
            if isinstance(held, Tuple) and number is not None and 0 <= number < len(held.items):
                return held.items[number]
        if last in ("make_tuple", "tie", "make_pair", "forward_as_tuple"):
            return Tuple(tuple(arg if last == "tie" else self.read(arg) for arg in args))
        if not args and (targs or last[:1].isupper()):
            # `plus<float>()`: an object of a class that was not given
            return self.external_object(CType(name=name, args=targs), args)
        return self.opaque_call(name, args, node)

    def _collective_mma(self, attrs: Mapping[str, AttrValue], args: list[Thing]) -> Thing:
        """The matrix instruction of a CUTLASS collective on one stage's tiles."""
        target, a, b = args
        acc = self.val(target)
        dtype = str(attrs.get("acc_dtype", "f32"))
        index = self.emit(Kind.MMA, "mma", (self.val(a).id, self.val(b).id, acc.id), attrs, dtype, None)
        if attrs.get("instr") != "tcgen05":
            self.write(target, Val(index, acc.type))
        return VOID

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
        self.current_call = node
        if entry is not None:
            return self.apply(entry, [base, *args], method.targs, f"{type_.name}::{method.name}")
        if method.name in ("data", "begin", "get", "data_ptr") and not args:
            held = self.read(base) if isinstance(base, SlotRef) and not base.type.dims else base
            if isinstance(held, (Pointer, LocalPointer)):
                return held
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
        if not type_.name and isinstance(base, External):
            return self.opaque_call(f"{base.name}.{method.name}", args, node)
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
            return self._access(entry, args, targs)
        if entry.atoms_of:
            return self._by_atom(entry, args, targs, name)
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
                named = args[position]
                if known is None and isinstance(named, External):
                    known = named.name.rsplit("::", 1)[-1].removeprefix("memory_order_")
                if known is not None:
                    attrs[key] = known
        for key, position in entry.attr_targs.items():
            if position < len(targs):
                attrs[key] = self._template_attr(targs[position])
        for key, (position, inner) in entry.attr_types.items():
            if position < len(args):
                parts = self.static_type(args[position]).args
                if inner < len(parts) and (found := self._template_attr(parts[inner])) is not None:
                    attrs[key] = found
        type_ = self._result(entry, values, targs)
        kind = Kind(entry.kind)
        if kind is Kind.MMA:
            for key, at in zip(("a_dtype", "b_dtype"), positions, strict=False):
                if key not in attrs and isinstance(at, int) and 0 <= at < len(args):
                    dtype = self._tile_dtype(args[at])
                    if dtype is not None:
                        attrs[key] = dtype
        op = self._operation(entry, args, targs)
        if kind is Kind.SHUFFLE:
            uniform = self._uniform(op, operands)
            if uniform is not None:
                return uniform
        if type_.lanes > 1 and kind is Kind.ELEMENTWISE and "packed" not in attrs:
            attrs["packed"] = type_.lanes
        if kind is Kind.FENCE and not op:
            op = "fence"
        void = not entry.dtype and not entry.returns
        index = self.emit(kind, op, operands, attrs, None if void else type_.dtype, None if void else ())
        if entry.returns:
            type_ = CType(type_.dtype, name=entry.returns, args=targs)
        result_value = Val(index, type_)
        if entry.out >= 0 and entry.out < len(args):
            self.write(self._target(args[entry.out]), result_value)
        return VOID if void and kind not in (Kind.CALL, Kind.HOST_CALL) else result_value

    def _operation(self, entry: Entry, args: list[Thing], targs: tuple[Thing, ...]) -> str:
        """The operation's name, where a functor says it."""
        functor: Thing | None = None
        if 0 <= entry.op_arg < len(args):
            functor = args[entry.op_arg]
        elif 0 <= entry.op_targ < len(targs):
            functor = targs[entry.op_targ]
        if functor is None:
            return entry.op
        if isinstance(functor, Closure):
            return "custom"
        name = self.static_type(functor).name or getattr(functor, "name", "")
        return _FUNCTORS.get(name.rsplit("::", 1)[-1].lower(), "custom")

    def _target(self, thing: Thing) -> Thing:
        return self.deref(thing) if isinstance(thing, (Pointer, LocalPointer)) else thing

    def operand(self, thing: Thing) -> Val:
        """An argument as an operand: addresses for arrays and objects in memory, values for the rest."""
        if isinstance(thing, ArrayRef) and (thing.type.dims or self._is_object(thing.type)):
            pointer = self.decay(thing)
            return Val(pointer.id, pointer.elem.pointer_to())
        if isinstance(thing, MemRef) and (thing.type.dims or self._is_object(thing.type)):
            return Val(thing.address, thing.type.pointer_to())
        if isinstance(thing, (Closure, Functions, External, CType, Method)) and not (
            isinstance(thing, CType) and thing.integral is not None
        ):
            return Val(NONE)
        if isinstance(thing, Obj) and not thing.fields:
            return Val(NONE)
        return self.val(thing)

    @staticmethod
    def _is_object(type_: CType) -> bool:
        """Whether a type is a class: what stands in memory is passed by its address."""
        return type_.instance is not None or (type_.dtype is None and not type_.pointer and bool(type_.name))

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

    def _access(self, entry: Entry, args: list[Thing], targs: tuple[Thing, ...]) -> Thing:
        access = entry.access
        if access == "thread":
            return self._thread(entry)
        if access == "constant":
            return self._constant_of(entry, targs)
        if access == "local":
            return self._local(args, targs)
        if not args:
            return VOID
        if access == "view":
            start = entry.args[0] if entry.args and isinstance(entry.args[0], int) else 0
            return self._view_of(args[start:] or args)
        if access == "same":
            if entry.returns:
                value = self.val(args[0])
                return Val(value.id, CType(value.type.dtype, name=entry.returns))
            return args[0]
        if access == "bit_cast":
            type_ = targs[0] if targs and isinstance(targs[0], CType) else UNKNOWN_TYPE
            return self.cast(args[0], type_, "reinterpret")
        if access == "memcpy_async":
            return self._memcpy_async(args)
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
        if access == "memset":
            return self._fill(args[:2])
        if access == "memcpy":
            return self._memcpy(args)
        if access == "passive":
            return self._passive(args)
        if access == "shared_alloc":
            return self._shared_tiles(args, targs)
        if access == "tensor_alloc":
            index = self.emit(Kind.ALLOC, "tmem", (), {"space": "tmem"}, None, None)
            self.tmem_allocations.append(index)
            return Val(index, targs[0] if targs and isinstance(targs[0], CType) else UNKNOWN_TYPE)
        if access == "fill":
            return self._fill(args)
        if access == "cluster_pointer":
            return self._cluster_pointer(entry, args)
        if access == "tmem_alloc":
            return self._tmem_alloc(entry, args)
        if access == "ring":
            return self._ring(entry, args)
        if access == "axpby" and len(args) > 3:
            scaled = self.elementwise("mul", (self.val(args[0]).id, self.val(args[1]).id), self.static_type(args[1]))
            return self._plain_copy(Entry(args=(0, 1)), [scaled, args[3]])
        if access == "tma_partition" and len(args) > 4:
            return Tuple((self._view_of(args[4:5]), self._view_of(args[3:4])))
        if access == "ptx_bulk":
            return self._ptx_bulk(entry, args)
        if access in ("matrix_load", "matrix_store") and len(args) > 1:
            return self._matrix_access(access, args)
        attrs: dict[str, AttrValue] = dict(entry.attrs)
        for key, position in entry.attr_args.items():
            if position < len(args) and isinstance(named := args[position], External):
                attrs[key] = named.name.rsplit("::", 1)[-1].removeprefix("memory_order_")
        positions = [p for p in entry.args if isinstance(p, int) and p < len(args)]
        args = [args[p] for p in positions]
        if not args:
            return VOID
        args[0] = self._atomic_target(args[0])
        place = self._place_behind(args[0])
        if access == "load_to" and len(args) > 1:
            if isinstance(place, MemRef):
                self.write(self._target(args[1]), self._load(place, attrs))
            return VOID
        if access == "load":
            if isinstance(place, MemRef):
                return self._load(place, attrs)
            if isinstance(place, ArrayRef):
                pointer = self.decay(place)
                return self._load(MemRef(pointer.id, pointer.elem, pointer.space), attrs)
            return self.read(place)
        if access == "store" and len(args) > 1:
            self.write(place, self.read(args[1]), attrs)
            return VOID
        return self.atomic(entry.op, args[0], args[1:], attrs)

    def _atomic_target(self, thing: Thing) -> Thing:
        """The address behind a `cuda::atomic_ref` or a `cuda::atomic` in memory."""
        type_ = self.static_type(thing)
        if not type_.name.endswith(("atomic_ref", "atomic")):
            return thing
        inner = type_.args[0] if type_.args and isinstance(type_.args[0], CType) else CType(type_.dtype)
        if isinstance(thing, MemRef):
            return Pointer(thing.address, inner, thing.space)
        if isinstance(thing, ArrayRef):
            return replace(self.decay(thing), elem=inner)
        value = self.val(thing)
        return Pointer(value.id, inner, self.spaces.get(value.id, "global"))

    def _memcpy_async(self, args: list[Thing]) -> Thing:
        """`cuda::memcpy_async([group,] destination, source, size, barrier or pipeline)`."""
        names = [self.static_type(arg).name.rsplit("::", 1)[-1] for arg in args]
        start = 1 if len(args) > 4 else 0
        operands = [self.operand(arg).id for arg in args[start:]]
        if len(operands) < 3:
            return VOID
        attrs: dict[str, AttrValue] = {"direction": "load"}
        size = self.known(operands[2])
        if size is not None:
            attrs["bytes"] = size
        bulk = "aligned_size_t" in names and "pipeline" not in names[-1]
        rest = operands[3:] if bulk else []
        self.emit(Kind.COPY, "bulk" if bulk else "cp_async", (*operands[:2], *rest), attrs, None, None)
        return VOID

    def _passive(self, args: list[Thing]) -> Thing:
        """Arithmetic on shapes and layouts, of which only the atoms in the types and the values are kept."""
        atoms: list[str] = []
        values: list[int] = []
        for arg in args:
            atoms.extend(self._labels(arg))
            if isinstance(arg, (Closure, Functions, External, Method, CType)):
                continue
            value = self.operand(arg)
            if value.id >= 0:
                values.append(value.id)
        index = self.emit(Kind.SHAPE, "layout", values, {}, None, None)
        return Val(index, CType(name="layout", atoms=tuple(dict.fromkeys(atoms))[:16]))

    def _tile_dtype(self, thing: Thing) -> str | None:
        """The element type of a register or shared tile, which its class names."""
        type_ = self.static_type(thing)
        return type_.dtype or next((one for key, one in _TILE_TYPES.items() if type_.name.endswith(key)), None)

    def _shared_tiles(self, args: list[Thing], targs: tuple[Thing, ...]) -> Thing:
        """`allocator.allocate<tile, n>()`: an array of n swizzled tiles in shared memory."""
        tile = targs[0] if targs and isinstance(targs[0], CType) else UNKNOWN_TYPE
        counts = tuple(one.id for one in targs[1:] if isinstance(one, Val))
        inner = tuple(one.id for one in tile.args if isinstance(one, Val))
        dtype = next((one for key, one in _TILE_TYPES.items() if tile.name.endswith(key)), None)
        attrs: dict[str, AttrValue] = {"space": "shared", "layout": "swizzle", "member": True}
        within = self.val(args[0]).id
        index = self.emit(Kind.ALLOC, tile.name or "tile", (within,), attrs, dtype, (*counts, *inner))
        self.spaces[index] = "shared"
        known = tuple(self.known_int(one) for one in counts)
        return ArrayRef(index, (), replace(tile, dims=known, dim_values=counts), "shared", counts)

    def _ring(self, entry: Entry, args: list[Thing]) -> Thing:
        """A pipeline state's stage and phase: its count modulo the number of stages, and how often it went around."""
        type_ = self.static_type(args[0])
        stages = type_.args[0] if type_.args and isinstance(type_.args[0], Val) else None
        count = self.val(args[0])
        if stages is None:
            return Val(self.emit(Kind.CALL, entry.op, (count.id,), {"value": True}, "u32"), INT)
        if entry.op == "index":
            return self.elementwise("mod", (count.id, stages.id), INT)
        around = self.elementwise("floordiv", (count.id, stages.id), INT)
        return self.elementwise("and", (around.id, self.const(1)), INT)

    def _fill(self, args: list[Thing]) -> Thing:
        target = self._target(args[0])
        type_ = self.static_type(target)
        value = self.val(args[1]).id if len(args) > 1 else self.const(0.0, type_.dtype or "f32")
        if isinstance(target, SlotRef) and not target.path:
            index = self.emit(
                Kind.FULL, "", (value,), {"space": "local"}, type_.dtype, type_.dim_values if type_.dims else None
            )
            held = self.slots.get(target.slot)
            kept = held.type if isinstance(held, Val) else type_
            self.set_slot(target.slot, Val(index, kept))
        return VOID

    def _cluster_pointer(self, entry: Entry, args: list[Thing]) -> Thing:
        """The address of a shared variable in another block of the cluster."""
        positions = [p for p in entry.args if isinstance(p, int) and p < len(args)]
        values = [self.operand(args[p]).id for p in positions]
        index = self.emit(Kind.ASM, "mapa", values, {"space": "shared", "cluster": True}, None, None)
        source = self.read(args[positions[0]]) if positions else VOID
        if isinstance(source, ArrayRef):
            source = self.decay(source)
        elem = source.elem if isinstance(source, Pointer) else UNKNOWN_TYPE
        return Pointer(index, elem, "shared")

    def _tmem_alloc(self, entry: Entry, args: list[Thing]) -> Thing:
        positions = [p for p in entry.args if isinstance(p, int) and p < len(args)]
        target = self.operand(args[positions[0]]).id if positions else NONE
        attrs: dict[str, AttrValue] = {"space": "tmem", **entry.attrs}
        if len(positions) > 1 and (columns := self.known_int(self.val(args[positions[1]]).id)) is not None:
            attrs["columns"] = columns
        index = self.emit(Kind.ALLOC, "tmem", (target,), attrs, None, None)
        self.tmem_allocations.append(index)
        if target >= 0:
            self.written_addresses[target] = index
        return VOID

    def _ptx_bulk(self, entry: Entry, args: list[Thing]) -> Thing:
        """`cuda::ptx::cp_async_bulk*`: the first arguments name the spaces, destination and source follow."""
        names = [arg.name.rsplit("::", 1)[-1] for arg in args if isinstance(arg, External)]
        rest = [self.operand(arg).id for arg in args if not isinstance(arg, External)]
        to_shared = bool(names) and "shared" in names[0]
        attrs: dict[str, AttrValue] = {"direction": "load" if to_shared else "store"}
        if entry.op == "tma":
            attrs["tensor"] = True
        elif len(rest) > 2 and (size := self.known(rest[2])) is not None:
            attrs["bytes"] = size
        self.emit(Kind.COPY, entry.op, rest, attrs, None, None)
        return VOID

    def _matrix_access(self, access: str, args: list[Thing]) -> Thing:
        """Loads and stores of nvcuda::wmma fragments."""
        fragment, memory = (args[0], args[1]) if access == "matrix_load" else (args[1], args[0])
        pointer = self.read(memory) if not isinstance(memory, ArrayRef) else self.decay(memory)
        address = self.val(pointer)
        attrs: dict[str, AttrValue] = {
            "via": "matrix",
            "space": pointer.space if isinstance(pointer, Pointer) else "unknown",
        }
        if access == "matrix_load":
            index = self.emit(Kind.LOAD, "load", (address.id, NONE), attrs, address.type.dtype, None)
            self.write(self._target(fragment), Val(index, self.static_type(fragment)))
        else:
            value = self.val(fragment)
            self.emit(Kind.STORE, "store", (address.id, value.id, NONE), attrs, address.type.dtype, None)
        return VOID

    def _thread(self, entry: Entry) -> Thing:
        """The thread's number in its block, its lane or its warp."""
        thread = self.thread_builtin("threadIdx", "x")
        if entry.op == "thread":
            return thread
        if entry.op == "thread3":
            axes = [self.thread_builtin("threadIdx", axis) for axis in "xyz"]
            return self.dim3(list(axes))
        if entry.op == "block3":
            axes = [self.thread_builtin("blockIdx", axis) for axis in "xyz"]
            return self.dim3(list(axes))
        if entry.op == "blockdim3":
            axes = [self.thread_builtin("blockDim", axis) for axis in "xyz"]
            return self.dim3(list(axes))
        kind = {"lane": Kind.LANE, "warp": Kind.WARP, "group": Kind.WARP}[entry.op]
        attrs: dict[str, AttrValue] = dict(entry.attrs)
        if entry.op == "group":
            attrs.update({"group": True, "warps": 4})
        return Val(self.emit(kind, "", (thread.id,), attrs, "i32"), INT)

    def _constant_of(self, entry: Entry, targs: tuple[Thing, ...]) -> Thing:
        """A constant, or the constant that a template argument is."""
        if "value" in entry.attrs:
            return Val(self.const(entry.attrs["value"]), CType(entry.dtype or "i32"))
        position = entry.attr_targs.get("value", 0)
        if position < len(targs):
            thing = targs[position]
            if isinstance(thing, Val):
                return thing
            if isinstance(thing, CType) and thing.integral is not None:
                return self.int_val(thing.integral)
        return Val(self.emit(Kind.CALL, "constant", (), {"value": True}, "i32"), INT)

    def _local(self, args: list[Thing], targs: tuple[Thing, ...]) -> Thing:
        """A register array of a library's own kind: its extents stand in types that are not taken apart."""
        elem = targs[0] if targs and isinstance(targs[0], CType) else UNKNOWN_TYPE
        if elem.dtype is None and args:
            elem = CType(self.static_type(args[-1]).dtype)
        index = self.emit(Kind.ALLOC, "", (), {"space": "local"}, elem.dtype, None)
        return Val(index, CType(elem.dtype, name="Tensor"))

    def _view_of(self, args: list[Thing]) -> Thing:
        """A part of a tensor, or a tensor around a pointer: what it points to stays known."""
        base = self.read(args[0])
        if isinstance(base, ArrayRef):
            base = self.decay(base)
        coordinates: list[int] = []
        atoms: tuple[str, ...] = ()
        for arg in args[1:]:
            type_ = self.static_type(arg)
            atoms = (*atoms, *type_.atoms)
            if isinstance(arg, (Closure, Functions, External, Method, CType)):
                continue
            value = self.val(arg)
            if value.id >= 0 and (type_.dtype or "f")[0] in "iu":
                coordinates.append(value.id)
        value = self.val(base)
        swizzle = self._swizzle(atoms)
        if swizzle is not None:
            self._mark_swizzled(value.id, swizzle)
        if not coordinates:
            return base
        index = self.emit(Kind.SHAPE, "slice", (value.id, *coordinates), {}, value.type.dtype, None)
        if isinstance(base, Pointer):
            return replace(base, id=index)
        return Val(index, value.type)

    def _swizzle(self, atoms: tuple[str, ...]) -> str | None:
        """The swizzle that a shared-memory layout names."""
        for name in atoms:
            found = self.library.atom(name)
            if found is not None and found[0].role == "swizzle":
                return str(found[0].attrs.get("swizzle", "")) or found[1].group()
        return None

    def _mark_swizzled(self, value: int, swizzle: str) -> None:
        """Notes on a shared allocation that it is laid out with a swizzle."""
        steps = 0
        while value >= 0 and steps < 32:
            steps += 1
            draft = self.b.ops[value]
            if draft.kind is Kind.ALLOC:
                draft.attrs = {**draft.attrs, "layout": "swizzle", "swizzle": swizzle}
                return
            if draft.kind not in (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI) or not draft.args:
                return
            value = draft.args[0]

    def _by_atom(self, entry: Entry, args: list[Thing], targs: tuple[Thing, ...], name: str) -> Thing:
        """A call whose meaning is that of the copy or matrix atom in an argument's type."""
        if entry.op == "mma" and len(args) == 5:
            # gemm(mma, D, A, B, C): what it writes comes first
            args = [args[0], args[2], args[3], args[1]]
        needed = max((p for p in entry.args if isinstance(p, int)), default=0)
        if len(args) == needed:
            # the form without an atom: what it works on follows from the tensors
            args = [External("auto"), *args]
        if len(args) <= needed:
            return self.opaque_call(name, args, self.current_call)
        for position in entry.atoms_of:
            if position >= len(args):
                continue
            for label in self._labels(args[position]):
                found = self.library.atom(label)
                if found is None or found[0].role not in ("copy", "mma") or found[0].role != entry.op:
                    continue
                atom, match = found
                attrs = {**atom.attrs, **atom_attributes(match.groupdict()), "atom": label}
                return self._atom_call(atom.kind, atom.op, attrs, entry, args)
        if entry.op == "mma":
            return self._atom_call("mma", "mma", {}, entry, args)
        return self._plain_copy(entry, args)

    def _atom_member(self, name: str, args: list[Thing]) -> Thing | None:
        """`SM90_TMA_LOAD_2D::copy(map, barrier, hint, destination, coordinates…)` and `SM90_64x…::fma(…)`."""
        scope, _, last = name.rpartition("::")
        if last not in ("copy", "fma") or not scope or not args:
            return None
        prefetch = scope.endswith("::PREFETCH")
        found = self.library.atom(scope.removesuffix("::PREFETCH"))
        if found is None or found[0].role != ("copy" if last == "copy" else "mma"):
            return None
        atom, match = found
        attrs: dict[str, AttrValue] = {**atom.attrs, **atom_attributes(match.groupdict()), "atom": match.group()}
        values = [self.operand(arg).id for arg in args]
        if atom.kind == "mma":
            index = self.emit(Kind.MMA, "mma", values[:3], attrs, None, None)
            for arg in args:
                if isinstance(arg, SlotRef) and attrs.get("instr") != "tcgen05":
                    self.write(arg, Val(self.emit(Kind.ITEM, "", (index,), {"index": 0}, arg.type.dtype), arg.type))
            return VOID
        if atom.op != "tma":
            operands = values[:2] if atom.kind != "copy" else [values[1] if len(values) > 1 else NONE, values[0]]
            self.emit(Kind(atom.kind), atom.op, operands, attrs, None, None)
            return VOID
        if prefetch:
            attrs["direction"] = "prefetch"
            self.emit(Kind.COPY, "tma", values, attrs, None, None)
        elif attrs.get("direction") == "load":
            place = 4 if attrs.get("multicast") else 3
            target = values[place] if len(values) > place else NONE
            self.emit(Kind.COPY, "tma", (target, values[0], *values[place + 1 :], *values[1:2]), attrs, None, None)
        else:
            self.emit(Kind.COPY, "tma", values, attrs, None, None)
        return VOID

    def _labels(self, thing: Thing) -> tuple[str, ...]:
        type_ = self.static_type(thing)
        return (*type_.atoms, type_.name) if type_.name else type_.atoms

    def _atom_call(self, kind: str, op: str, attrs: Mapping[str, AttrValue], entry: Entry, args: list[Thing]) -> Thing:
        operands = [self.operand(args[p]).id if 0 <= p < len(args) else NONE for p in entry.args if isinstance(p, int)]
        if kind == "copy":
            # (atom, source, destination) in the library, (destination, source) in the facts
            operands = [operands[1], operands[0], *operands[2:]] if len(operands) > 1 else operands
            self.emit(Kind.COPY, op, operands, attrs, None, None)
            return VOID
        if kind == "load":
            return self._tile_load(attrs, args, operands, entry)
        if kind == "store":
            source, target = (*operands, NONE, NONE)[:2]
            self.emit(Kind.STORE, "store", (target, source, NONE), attrs, None, None)
            return VOID
        acc = attrs.get("acc_dtype")
        type_ = CType(acc if isinstance(acc, str) else None)
        index = self.emit(Kind.MMA, op, operands, attrs, type_.dtype, None)
        target_place = args[entry.out] if 0 <= entry.out < len(args) else None
        if target_place is not None:
            held = self.static_type(target_place)
            self.write(self._target(target_place), Val(index, replace(held, reference=False) if held.name else type_))
        return VOID

    def _tile_load(self, attrs: Mapping[str, AttrValue], args: list[Thing], operands: list[int], entry: Entry) -> Thing:
        source = operands[0] if operands else NONE
        dtype = self.b.ops[source].dtype if source >= 0 else None
        index = self.emit(Kind.LOAD, "load", (source, NONE), attrs, dtype, None)
        position = entry.args[1] if isinstance(entry.args, tuple) and len(entry.args) > 1 else len(args)
        target = args[position] if position < len(args) else None
        if target is not None:
            self.write(self._target(target), Val(index, self.static_type(target)))
        return VOID

    def _plain_copy(self, entry: Entry, args: list[Thing]) -> Thing:
        """A copy between tensors without an atom: a load or a store, by where the tensors lie."""
        places = [args[p] for p in entry.args if isinstance(p, int) and p < len(args)]
        if len(places) < 2:
            return VOID
        source, target = self.read(places[0]), self.read(places[1])
        if isinstance(source, ArrayRef):
            source = self.decay(source)
        if isinstance(target, ArrayRef):
            target = self.decay(target)
        value = self.val(source)
        attrs: dict[str, AttrValue] = {"via": "tensor"}
        if isinstance(source, Pointer):
            loaded = self.emit(
                Kind.LOAD, "load", (value.id, NONE), {**attrs, "space": source.space}, value.type.dtype, None
            )
            value = Val(loaded, CType(source.elem.dtype, name="Tensor"))
        if isinstance(target, Pointer):
            address = self.val(target).id
            self.emit(
                Kind.STORE,
                "store",
                (address, value.id, NONE),
                {**attrs, "space": target.space},
                target.elem.dtype,
                None,
            )
        else:
            self.write(self._target(places[1]), value)
        return VOID

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


def atom_attributes(groups: Mapping[str, str | None]) -> dict[str, AttrValue]:
    """Attributes that the named groups of an atom's pattern give: shape and element types."""
    found: dict[str, AttrValue] = {}
    for key, text in groups.items():
        if text is None:
            continue
        if key in ("m", "n", "k", "rank"):
            found[key] = int(text)
        elif key in ("acc", "a", "b"):
            dtype = _ATOM_TYPES.get(text.lower())
            if dtype is not None:
                found[f"{key}_dtype"] = dtype
        elif key == "bits":
            found["bits"] = int(text)
    return found
