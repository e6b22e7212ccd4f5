"""The state of lowering one body, and reading and writing of variables and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.cuda.assigned import Assigned
from d2k.analyzers.cuda.builder import Builder
from d2k.analyzers.cuda.cpp_types import BITS, INT, UNKNOWN_TYPE, CType
from d2k.analyzers.cuda.frames import Frame
from d2k.analyzers.cuda.scope import ClassInstance, Index, Unit
from d2k.analyzers.cuda.syntax import Node
from d2k.analyzers.cuda.values import (
    ArrayRef,
    LaneRef,
    LocalPointer,
    MemRef,
    Obj,
    ParamRef,
    Pointer,
    SlotRef,
    Thing,
    Tuple,
    Val,
)
from d2k.spec.facts import NONE, AttrValue, Constant, Kind, Mention, Place


@dataclass(slots=True)
class Context:
    """What several bodies of one program share."""

    index: Index
    target: str
    assigned: dict[int, tuple[object, Assigned]] = field(default_factory=dict)
    """What pieces of code may assign, by the identity of their node, which is kept alive."""
    mentions: dict[int, tuple[object, tuple[Mention, ...]]] = field(default_factory=dict)
    """Library calls in branches that are off, likewise."""


class Core:
    """`host`: the body is host code, in which calls are HOST_CALL and memory is not modelled."""

    def __init__(self, context: Context, constants: Mapping[str, Constant], host: bool) -> None:
        self.context = context
        self.index = context.index
        self.b = Builder(constants)
        self.host = host
        self.slots: dict[int, Thing | None] = {}
        self.next_slot = 0
        self.journal: list[tuple[int, Thing | None]] = []
        """Every change of a variable with its old value, so that branches can be taken back."""
        self.frame: Frame
        self.unit: Unit
        self.depth = 0
        self.at = 0
        """Offset of the expression that is being lowered: where operations stand."""
        self.linear: set[int] = set()
        """Values that number the threads of a block."""
        self.spaces: dict[int, str] = {}
        self.params: dict[str, int] = {}
        self.globals: dict[tuple[str, int], Thing] = {}
        self.shared_members: dict[tuple[int, str], int] = {}
        self.active: dict[tuple[str, int], int] = {}
        """How often each function is being inlined right now."""
        self.rows_are_warps = False
        """Every launch has blocks of 32 threads in x, and one or more rows of them in y."""
        self.tmem_allocations: list[int] = []
        self.written_addresses: dict[int, int] = {}
        """Where the address of a tensor-memory allocation was written to."""

    # emission

    def place(self, at: int | None = None) -> Place:
        return self.unit.place(self.at if at is None else at)

    def emit(
        self,
        kind: Kind,
        name: str = "",
        args: Iterable[int] = (),
        attrs: Mapping[str, AttrValue] = NO_ATTRS,
        dtype: str | None = None,
        shape: tuple[int, ...] | None = (),
    ) -> int:
        return self.b.emit(kind, name, tuple(args), self.place(), attrs, dtype, shape)

    def const(self, value: Constant, dtype: str | None = None) -> int:
        return self.b.const(value, self.place(), dtype)

    def int_val(self, value: int) -> Val:
        return Val(self.const(value, "i32"), INT)

    def known(self, value: int) -> Constant:
        return self.b.known[value] if value >= 0 else None

    def known_int(self, value: int) -> int | None:
        known = self.known(value)
        return known if isinstance(known, int) and not isinstance(known, bool) else None

    def elementwise(
        self, name: str, args: Iterable[int], type_: CType, attrs: Mapping[str, AttrValue] = NO_ATTRS
    ) -> Val:
        if type_.lanes > 1 and "packed" not in attrs and type_.dtype in ("f16", "bf16", "f8e4m3", "f8e5m2"):
            attrs = {**attrs, "packed": type_.lanes}
        return Val(self.emit(Kind.ELEMENTWISE, name, args, attrs, type_.dtype), type_)

    def unknown(self, name: str, args: Iterable[int] = (), type_: CType = UNKNOWN_TYPE) -> Val:
        """A value that cannot be lowered."""
        self.b.unresolved.append(Mention(name, "not_analyzable", "", self.place()))
        return Val(self.emit(Kind.CALL, name, args, {}, type_.dtype, None), type_)

    # variables

    def new_slot(self, value: Thing | None) -> int:
        self.next_slot += 1
        self.slots[self.next_slot] = value
        return self.next_slot

    def set_slot(self, slot: int, value: Thing | None) -> None:
        self.journal.append((slot, self.slots.get(slot)))
        self.slots[slot] = value

    def take_back(self, mark: int) -> dict[int, Thing | None]:
        """Undoes all changes since `mark`; returns the values that the changed variables had."""
        journal = self.journal
        changed: dict[int, Thing | None] = {}
        for position in range(len(journal) - 1, mark - 1, -1):
            slot, old = journal[position]
            if slot not in changed:
                changed[slot] = self.slots.get(slot)
            self.slots[slot] = old
        del journal[mark:]
        return changed

    def bind(self, name: str, thing: Thing) -> None:
        self.frame.scopes[-1][name] = thing

    def named(self, value: int, name: str) -> None:
        """Gives an operation the name of the variable that it was first assigned to."""
        if value >= 0 and name:
            draft = self.b.ops[value]
            if not draft.variable and draft.kind not in (Kind.CONST, Kind.PARAM, Kind.PHI):
                draft.variable = name

    # reading

    def read(self, thing: Thing) -> Thing:
        """The value that a place holds; anything else is returned as it is."""
        if type(thing) is Val:
            return thing
        if isinstance(thing, SlotRef):
            return self._read_slot(thing)
        if isinstance(thing, MemRef):
            return self._load(thing)
        if isinstance(thing, ArrayRef):
            return self._read_array(thing)
        if isinstance(thing, LaneRef):
            base = self.val(thing.base)
            if base.id >= 0 and self.b.ops[base.id].kind is Kind.SHAPE and self.b.ops[base.id].name == "join":
                args = self.b.ops[base.id].args
                if thing.index < len(args):
                    return Val(args[thing.index], thing.type)
            return Val(
                self.emit(Kind.SHAPE, "index", (base.id, self.const(thing.index)), {}, thing.type.dtype), thing.type
            )
        if isinstance(thing, ParamRef):
            return self._read_param(thing)
        return thing

    def val(self, thing: Thing) -> Val:
        """The value of an expression as one operation."""
        if type(thing) is Val and thing.id >= 0:
            return thing
        result = self.read(thing)
        if isinstance(result, Val):
            # what returns nothing has no value; broken code may use it all the same
            return result if result.id >= 0 else Val(self.const(None), result.type)
        if isinstance(result, Pointer):
            return Val(result.id, result.elem.pointer_to())
        if isinstance(result, ArrayRef):
            pointer = self.decay(result)
            return Val(pointer.id, pointer.elem.pointer_to())
        if isinstance(result, LocalPointer):
            inner = self.read(result.target)
            return self.val(inner) if not isinstance(inner, LocalPointer) else self.unknown("pointer")
        if isinstance(result, CType) and result.integral is not None:
            return self.int_val(result.integral)
        if isinstance(result, Tuple):
            parts = [self.val(item).id for item in result.items]
            return Val(self.emit(Kind.SHAPE, "join", parts, {}, result.type.dtype, None), result.type)
        if isinstance(result, Obj):
            values = [self.val(one).id for one in list(result.fields.values())[:16]]
            return Val(
                self.emit(Kind.SHAPE, "join", values, {"object": result.instance.name}, None, None),
                CType(name=result.instance.full_name, instance=result.instance),
            )
        return Val(self.emit(Kind.CALL, describe(result), (), {"value": True}, None, None))

    def _read_slot(self, ref: SlotRef) -> Thing:
        value = self.slots.get(ref.slot)
        if value is None:
            dims = ref.type.dims
            if ref.path or dims:
                return Val(self.emit(Kind.CALL, "uninitialised", (), {"value": True}, ref.type.dtype, None), ref.type)
            value = Val(self.const(None, ref.type.dtype), ref.type)
            self.set_slot(ref.slot, value)
        if isinstance(value, Val) and self._whole_array(ref, value):
            return Val(value.id, ref.type)
        if not ref.path:
            return replace(value, type=ref.type) if isinstance(value, Val) and ref.type.dims else value
        if isinstance(value, Val):
            if ref.type.dims:
                return (
                    value
                    if not ref.path
                    else Val(self.emit(Kind.SHAPE, "index", (value.id, *ref.path), {}, ref.type.dtype, None), ref.type)
                )
            return Val(self.emit(Kind.SHAPE, "index", (value.id, *ref.path), {}, ref.type.dtype), ref.type)
        if isinstance(value, Tuple):
            index = self.known_int(ref.path[0])
            if index is not None and 0 <= index < len(value.items):
                return self.read(value.items[index])
        return Val(self.emit(Kind.CALL, "element", ref.path, {"value": True}, ref.type.dtype, None), ref.type)

    def _read_param(self, ref: ParamRef) -> Thing:
        index = self.param(ref.path, ref.type)
        if ref.type.pointer:
            return Pointer(index, ref.type.pointee(), "global")
        return Val(index, ref.type)

    def param(self, path: str, type_: CType, attrs: Mapping[str, AttrValue] = NO_ATTRS) -> int:
        """The PARAM operation of a parameter or of a member of one; each has one, outside all loops and guards."""
        index = self.params.get(path)
        if index is None:
            b = self.b
            saved = b.loop, b.guards, b.partition
            b.loop, b.guards, b.partition = NONE, (), ""
            index = self.emit(Kind.PARAM, path, (), attrs, type_.dtype, () if not type_.dims else None)
            b.loop, b.guards, b.partition = saved
            self.params[path] = index
        return index

    # addresses

    def offset(self, pointer: Pointer, index: Val, negative: bool = False) -> Pointer:
        """`pointer + index`, in elements of the scalar type that it points to."""
        lanes = pointer.elem.lanes
        for extent in pointer.elem.dims:
            lanes = lanes * extent if extent is not None else 0
        if self.known(index.id) == 0 and self.b.ops[index.id].kind is Kind.CONST:
            return pointer
        if lanes == 0:
            scaled = self.emit(Kind.ELEMENTWISE, "mul", (index.id, *pointer.elem.dim_values[:1]), {}, index.type.dtype)
        elif lanes > 1:
            scaled = self.emit(Kind.ELEMENTWISE, "mul", (index.id, self.const(lanes)), {}, index.type.dtype)
        else:
            scaled = index.id
        moved = self.emit(Kind.ELEMENTWISE, "sub" if negative else "add", (pointer.id, scaled), {}, None)
        return replace(pointer, id=moved)

    def address_of(self, thing: Thing) -> Thing:
        """`&thing`."""
        if isinstance(thing, SlotRef):
            held = self.slots.get(thing.slot)
            if isinstance(held, (Obj, Tuple)) and not thing.path:
                return held
            return LocalPointer(thing, thing.type)
        if isinstance(thing, MemRef):
            return Pointer(thing.address, thing.type, thing.space)
        if isinstance(thing, ArrayRef):
            return self.decay(thing)
        if isinstance(thing, LaneRef) and isinstance(thing.base, MemRef):
            at = Pointer(thing.base.address, thing.type, thing.base.space)
            return self.offset(at, self.int_val(thing.index))
        if isinstance(thing, LaneRef) and isinstance(thing.base, SlotRef):
            target = thing.base
            return LocalPointer(SlotRef(target.slot, thing.type, (*target.path, self.const(thing.index))), thing.type)
        return thing

    def decay(self, ref: ArrayRef) -> Pointer:
        """The address of an array's element, or of its first one where indices are missing."""
        address = Pointer(ref.base, replace(ref.type, dims=(), dim_values=()), ref.space)
        if not ref.indices:
            return replace(address, elem=ref.type.element()) if len(ref.type.dims) > 1 else address
        linear: int | None = None
        for position, index in enumerate(ref.indices):
            linear = index if linear is None else self.emit(Kind.ELEMENTWISE, "add", (linear, index), {}, "i32")
            if position + 1 < len(ref.dims):
                linear = self.emit(Kind.ELEMENTWISE, "mul", (linear, ref.dims[position + 1]), {}, "i32")
        for extent in ref.dims[len(ref.indices) + 1 :]:
            linear = self.emit(Kind.ELEMENTWISE, "mul", (linear if linear is not None else NONE, extent), {}, "i32")
        assert linear is not None
        return self.offset(address, Val(linear, INT))

    def deref(self, thing: Thing) -> Thing:
        """`*thing`."""
        thing = self.read(thing) if not isinstance(thing, ArrayRef) else thing
        if isinstance(thing, Pointer):
            if thing.elem.dims:
                return ArrayRef(thing.id, (), thing.elem, thing.space, thing.elem.dim_values)
            return MemRef(thing.id, thing.elem, thing.space)
        if isinstance(thing, LocalPointer):
            return replace(thing.target, type=thing.elem)
        if isinstance(thing, ArrayRef):
            return self.index_into(thing, (self.int_val(0),))
        if isinstance(thing, Val) and thing.type.dims:
            return Val(
                self.emit(Kind.SHAPE, "index", (thing.id, self.const(0)), {}, thing.type.dtype), thing.type.element()
            )
        if isinstance(thing, Val) and thing.type.pointer:
            return MemRef(thing.id, thing.type.pointee(), "unknown")
        return thing

    def index_into(self, base: Thing, indices: tuple[Val, ...]) -> Thing:
        """`base[i]`, for one index after the other."""
        for index in indices:
            base = self._index_one(base, index)
        return base

    def _index_one(self, base: Thing, index: Val) -> Thing:
        if isinstance(base, SlotRef):
            held = self.slots.get(base.slot)
            if base.type.dims:
                return SlotRef(base.slot, base.type.element(), (*base.path, index.id))
            if isinstance(held, (Pointer, LocalPointer, Tuple, ArrayRef)) and not base.path:
                return self._index_one(held, index)
            if base.type.lanes > 1:
                lane = self.known_int(index.id)
                element = replace(base.type, lanes=1)
                return LaneRef(base, lane, element) if lane is not None else self._element(base, index, element)
            base = self.read(base)
        if isinstance(base, ArrayRef):
            if base.type.dims:
                return replace(base, indices=(*base.indices, index.id), type=base.type.element())
            return self._index_one(self.read(base), index)
        if isinstance(base, Pointer):
            moved = self.offset(base, index)
            return self.deref(moved)
        if isinstance(base, LocalPointer):
            return self._local_offset(base, index)
        if isinstance(base, Tuple):
            number = self.known_int(index.id)
            if number is not None and 0 <= number < len(base.items):
                return base.items[number]
        if isinstance(base, MemRef) and base.type.dims:
            whole = ArrayRef(base.address, (), base.type, base.space, base.type.dim_values)
            return self._index_one(whole, index)
        if isinstance(base, (MemRef, LaneRef, ParamRef)):
            if isinstance(base, ParamRef) and base.type.dims:
                value = Val(self.param(base.path, base.type), base.type)
                return self._element(value, index, base.type.element())
            return self._index_one(self.read(base), index)
        value = self.val(base)
        if value.type.pointer:
            return self.deref(self.offset(Pointer(value.id, value.type.pointee(), "unknown"), index))
        element = value.type.element() if value.type.dims else replace(value.type, lanes=1)
        return self._element(value, index, element)

    def _element(self, base: Thing, index: Val, element: CType) -> Val:
        value = self.val(base)
        return Val(self.emit(Kind.SHAPE, "index", (value.id, index.id), {}, element.dtype), element)

    def _local_offset(self, base: LocalPointer, index: Val) -> SlotRef:
        """`p[i]` where `p` points into a local variable."""
        target = base.target
        if (target.type.bits() or 0) > (base.elem.bits() or 1 << 30) and not base.elem.dims and not target.type.dims:
            # a vector read part by part
            return SlotRef(target.slot, base.elem, (*target.path, index.id))
        if self.known(index.id) == 0:
            return replace(target, type=base.elem)
        wide, narrow = base.elem.bits(), target.type.bits()
        if wide is not None and narrow and wide > narrow and wide % narrow == 0:
            # a narrow array accessed in wide pieces: indices count its own elements
            scaled = self.emit(Kind.ELEMENTWISE, "mul", (index.id, self.const(wide // narrow)), {}, "i32")
            index = Val(scaled, INT)
        if target.path:
            last = self.emit(Kind.ELEMENTWISE, "add", (target.path[-1], index.id), {}, "i32")
            return SlotRef(target.slot, base.elem, (*target.path[:-1], last))
        return SlotRef(target.slot, base.elem, (index.id,))

    # memory

    def access_attrs(self, type_: CType, space: str, via: str) -> dict[str, AttrValue]:
        attrs: dict[str, AttrValue] = {"space": space, "via": via}
        bits = type_.bits()
        if bits is not None:
            attrs["bits"] = bits
        if type_.volatile:
            attrs["volatile"] = True
        return attrs

    def _load(self, ref: MemRef, extra: Mapping[str, AttrValue] = NO_ATTRS) -> Thing:
        type_ = ref.type
        if ref.address in self.written_addresses:
            return Val(self.written_addresses[ref.address], type_)
        attrs = self.access_attrs(type_, ref.space, "vector" if self.is_wide(type_) else "pointer")
        attrs.update(extra)
        dtype = type_.instance.element if type_.instance is not None else type_.dtype
        value = self.emit(Kind.LOAD, "load", (ref.address, NONE), attrs, dtype if not type_.pointer else None)
        if type_.pointer:
            return Pointer(value, type_.pointee(), "global")
        return Val(value, type_)

    def is_wide(self, type_: CType) -> bool:
        """Whether one access moves several elements."""
        if type_.pointer:
            return False
        if type_.lanes > 1 or type_.dims:
            return True
        bits = type_.bits()
        return type_.instance is not None and bits is not None and bits >= 32

    def _read_array(self, ref: ArrayRef) -> Thing:
        if ref.type.dims:
            return ref
        if ref.base in self.written_addresses and not any(self.known(index) for index in ref.indices):
            return Val(self.written_addresses[ref.base], ref.type)
        attrs = self.access_attrs(ref.type, ref.space, "vector" if self.is_wide(ref.type) else "array")
        value = self.emit(Kind.LOAD, "load", (ref.base, NONE, *ref.indices), attrs, ref.type.dtype)
        if ref.type.pointer:
            return Pointer(value, ref.type.pointee(), "unknown")
        return Val(value, ref.type)

    def write(self, place: Thing, value: Thing, extra: Mapping[str, AttrValue] = NO_ATTRS) -> None:
        """`place = value`."""
        if isinstance(place, SlotRef):
            self._write_slot(place, value)
        elif isinstance(place, MemRef):
            stored = self.val(value)
            attrs = self.access_attrs(place.type, place.space, "vector" if self.is_wide(place.type) else "pointer")
            attrs.update(extra)
            instance = place.type.instance
            dtype = instance.element if instance is not None else place.type.dtype
            self.emit(Kind.STORE, "store", (place.address, stored.id, NONE), attrs, dtype, None)
        elif isinstance(place, ArrayRef):
            stored = self.val(value)
            attrs = self.access_attrs(place.type, place.space, "vector" if self.is_wide(place.type) else "array")
            attrs.update(extra)
            self.emit(Kind.STORE, "store", (place.base, stored.id, NONE, *place.indices), attrs, place.type.dtype, None)
        elif isinstance(place, LaneRef):
            self._write_lane(place, value)
        elif isinstance(place, Obj):
            self.copy_object(place, value)
        elif isinstance(place, Tuple):
            other = self.read(value)
            if isinstance(other, Tuple):
                for target, item in zip(place.items, other.items, strict=False):
                    self.write(target, item)
        elif isinstance(place, ParamRef):
            # a kernel may overwrite its own copy of a parameter
            self.params[place.path] = self.val(value).id

    def _write_slot(self, place: SlotRef, value: Thing) -> None:
        if not place.path and not place.type.dims:
            self.set_slot(place.slot, self.simple(value, place.type))
            return
        held = self.slots.get(place.slot)
        stored = self.val(value)
        if isinstance(held, Tuple) and place.path:
            held = self.val(held)
        if isinstance(held, Val) and self._whole_array(place, held):
            self.set_slot(place.slot, Val(stored.id, held.type))
            self.named(stored.id, self.b.ops[held.id].variable)
            return
        if isinstance(held, Val) and place.path:
            array = self.emit(
                Kind.SHAPE,
                "insert",
                (held.id, stored.id, *place.path),
                {"lanes": place.type.lanes} if place.type.lanes > 1 else {},
                self.b.ops[held.id].dtype,
                self.b.ops[held.id].shape,
            )
            self.b.ops[array].variable = self.b.ops[held.id].variable
            self.set_slot(place.slot, Val(array, held.type))
        elif not place.path:
            self.set_slot(place.slot, Val(stored.id, place.type))

    def _whole_array(self, ref: SlotRef, held: Val) -> bool:
        """Whether a wide access at the start of a local array covers all of it."""
        if not ref.path or not held.type.dims or ref.type.dims:
            return False
        width = ref.type.bits()
        several = width is not None and width == held.type.bits() and held.type.dims != (1,)
        return several and all(self.known(index) == 0 for index in ref.path)

    def _write_lane(self, place: LaneRef, value: Thing) -> None:
        stored = self.val(value)
        if isinstance(place.base, (MemRef, ArrayRef)):
            address = self.address_of(place.base)
            if isinstance(address, Pointer):
                part = Pointer(address.id, place.type, address.space)
                self.write(self.deref(self.offset(part, self.int_val(place.index))), stored)
            return
        old = self.val(place.base)
        draft = self.b.ops[old.id]
        if draft.kind is Kind.SHAPE and draft.name == "join" and place.index < len(draft.args):
            parts = list(draft.args)
            parts[place.index] = stored.id
            new = self.emit(Kind.SHAPE, "join", parts, {}, old.type.dtype, None)
        elif draft.kind is Kind.CONST and old.type.lanes > 1:
            parts = [old.id] * old.type.lanes
            parts[min(place.index, len(parts) - 1)] = stored.id
            new = self.emit(Kind.SHAPE, "join", parts, {}, old.type.dtype, None)
        else:
            new = self.emit(
                Kind.SHAPE, "insert", (old.id, stored.id, self.const(place.index)), {}, old.type.dtype, None
            )
        self.write(place.base, Val(new, old.type))

    def copy_object(self, target: Obj, value: Thing) -> None:
        other = self.read(value)
        if isinstance(other, Obj):
            for name, place in target.fields.items():
                if name in other.fields:
                    self.write(place, self.read(other.fields[name]))
        elif isinstance(other, Tuple):
            for place, item in zip(target.fields.values(), other.items, strict=False):
                self.write(place, item)
        elif isinstance(other, Val):
            for name, place in target.fields.items():
                type_ = place.type if isinstance(place, SlotRef) else UNKNOWN_TYPE
                part = self.emit(Kind.SHAPE, "index", (other.id,), {"member": name}, type_.dtype)
                self.write(place, Val(part, type_))

    def simple(self, value: Thing, type_: CType) -> Thing:
        """`value` as a variable of type `type_` holds it."""
        result = self.read(value)
        if isinstance(result, ArrayRef):
            return self.decay(result) if type_.pointer or type_.name == "" else result
        if isinstance(result, Val) and type_.dtype is not None and type_.lanes == 1 and not type_.pointer:
            return self.convert(result, type_)
        if isinstance(result, Pointer) and type_.pointer and type_.pointee().name and self._retype(result, type_):
            return replace(result, elem=type_.pointee())
        if isinstance(result, Val) and type_.pointer and not result.type.dims:
            return Pointer(result.id, type_.pointee(), self.spaces.get(result.id, "unknown"))
        return result

    @staticmethod
    def _retype(pointer: Pointer, type_: CType) -> bool:
        return pointer.elem.dtype is None and pointer.elem.instance is None

    def convert(self, value: Val, type_: CType) -> Val:
        """`value` converted to a scalar type; nothing is emitted where the types agree."""
        old = value.type
        if old.dtype == type_.dtype or type_.dtype is None or old.pointer or old.dims:
            return value if old.dtype is not None or type_.dtype is None else Val(value.id, type_)
        if old.dtype is None and self.b.ops[value.id].kind is not Kind.CONST:
            return Val(value.id, replace(type_, reference=False, const=False))
        if old.dtype is not None and old.dtype[0] in "iub" and type_.dtype[0] in "iu" and old.dtype != "bf16":
            narrow = BITS.get(type_.dtype, 32) < BITS.get(old.dtype, 32) and BITS.get(type_.dtype, 32) < 32
            if not narrow:
                # widths of integers carry no design: indices stay readable without casts between them
                return Val(value.id, replace(type_, reference=False, const=False))
        return Val(self.emit(Kind.CAST, "cast", (value.id,), {}, type_.dtype), CType(type_.dtype, name=type_.name))

    def expression(self, node: Node) -> Thing:
        raise NotImplementedError

    def new_object(self, instance: ClassInstance) -> Obj:
        """An object with every field uninitialised."""
        fields: dict[str, Thing] = {}
        for base in instance.bases:
            fields.update(self.new_object(base).fields)
        if instance.ref.cls.union:
            return Obj(instance, {**fields, **self._one_place(instance)})
        for name, type_ in instance.field_types.items():
            fields[name] = place = self.new_variable(type_, name)
            if name.startswith("<") and isinstance(place, Obj):
                fields.update(place.fields)
        return Obj(instance, fields)

    def _one_place(self, instance: ClassInstance) -> dict[str, Thing]:
        """The members of a union: one variable under several types, its widest member's to begin with."""
        types = instance.field_types
        if any(type_.instance is not None for type_ in types.values()):
            return {name: self.new_variable(type_, name) for name, type_ in types.items()}
        slot = self.new_slot(None)
        arrays = [(name, type_) for name, type_ in types.items() if type_.dims]
        if arrays:
            name, widest = max(arrays, key=lambda one: one[1].bits() or 0)
            self.slots[slot] = Val(self.local_array(widest, name), widest)
        return {name: SlotRef(slot, type_) for name, type_ in types.items()}

    def new_variable(self, type_: CType, name: str = "") -> Thing:
        """A local variable of a type, uninitialised: an object, an array, or a slot."""
        if type_.instance is not None and not type_.pointer and not type_.dims and not type_.reference:
            return self.new_object(type_.instance)
        slot = self.new_slot(None)
        if type_.dims:
            self.set_slot(slot, Val(self.local_array(type_, name), type_))
        return SlotRef(slot, type_)

    def local_array(self, type_: CType, name: str) -> int:
        attrs: dict[str, AttrValue] = {"space": "local"}
        if type_.lanes > 1:
            attrs["lanes"] = type_.lanes
        index = self.emit(Kind.ALLOC, name, (), attrs, type_.dtype, type_.dim_values)
        self.b.ops[index].variable = name
        return index


def describe(thing: Thing) -> str:
    """A name for a thing that is no value: functions, types, closures."""
    name = getattr(thing, "name", None)
    return name if isinstance(name, str) and name else type(thing).__name__.lower()
