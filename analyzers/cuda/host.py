"""Host code: launches with their options, allocations, attributes of tensors, and calls of libraries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from d2k.analyzers.cuda.collectives import RUNS, Collective, collective, is_adapter
from d2k.analyzers.cuda.core import Context
from d2k.analyzers.cuda.cpp_types import CType
from d2k.analyzers.cuda.library import Library
from d2k.analyzers.cuda.library_calls import VOID
from d2k.analyzers.cuda.lowering import Lowerer, Portable
from d2k.analyzers.cuda.syntax import Call, Index, Literal, Member, Name, Node, Unary
from d2k.analyzers.cuda.values import (
    ArrayRef,
    Choice,
    Closure,
    External,
    Functions,
    LocalPointer,
    Method,
    SlotRef,
    Thing,
    Tuple,
    Val,
)
from d2k.spec.facts import NONE, AttrValue, Constant, Kind, Place
from d2k.spec.facts import Launch as LaunchOptions

_ATTRIBUTES = {
    "size": "shape",
    "sizes": "shape",
    "shape": "shape",
    "stride": "stride",
    "strides": "stride",
    "dim": "ndim",
    "numel": "numel",
    "scalar_type": "dtype",
    "dtype": "dtype",
    "device": "device",
    "data_ptr": "data_ptr",
    "mutable_data_ptr": "data_ptr",
    "const_data_ptr": "data_ptr",
    "data": "data_ptr",
    "is_cuda": "is_cuda",
    "is_contiguous": "is_contiguous",
    "options": "options",
}
_ALLOCATIONS = frozenset(
    {
        "empty",
        "zeros",
        "ones",
        "full",
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_strided",
        "rand",
        "randn",
    }
)
_MAP_TYPES = {
    "UINT8": "u8",
    "UINT16": "u16",
    "UINT32": "u32",
    "INT32": "i32",
    "FLOAT16": "f16",
    "FLOAT32": "f32",
    "FLOAT64": "f64",
    "BFLOAT16": "bf16",
    "TFLOAT32": "tf32",
    "16U4_ALIGN8B": "f4e2m1",
    "16U4_ALIGN16B": "f4e2m1",
}
_ALLOCATORS = frozenset({"cudaMalloc", "cudaMallocAsync", "cudaMallocManaged", "cuMemAlloc", "cudaMallocPitch"})
_LAUNCHERS = {
    "cudaLaunchKernelEx": "config",
    "cudaLaunchKernelExC": "config",
    "cudaLaunchKernel": "plain",
    "cudaLaunchCooperativeKernel": "cooperative",
    "cudaLaunchKernelHelper": "config",
}


@dataclass(slots=True)
class LaunchSite:
    """A launch in host code: the kernel with its template arguments, the LAUNCH operation, and the options."""

    kernel: Functions | None
    name: str
    value: int
    bound: dict[str, Portable]
    options: LaunchOptions


class HostLowerer(Lowerer):
    def __init__(self, context: Context, constants: Mapping[str, Constant], library: Library) -> None:
        super().__init__(context, constants, True, library)
        self.sites: list[LaunchSite] = []
        self.members: dict[str, Thing] = {}
        """Members that were set of objects of classes that were not given, by their text."""
        self.sources: dict[str, str] = {}
        """The variable that such a member was set to."""
        self.collectives: list[tuple[Collective, int, Place]] = []
        """GEMMs that CUTLASS adapters run, with the operation and the place that launches each."""

    # launches

    def launch_kernel(
        self, callee: Thing, config: list[Thing], args: list[Thing], options: dict[str, AttrValue]
    ) -> Thing:
        if isinstance(callee, SlotRef):
            callee = self.slots.get(callee.slot) or callee
        if isinstance(callee, Choice):
            for one in callee.items:
                self.launch_kernel(one, config, args, options)
            return VOID
        grid = self._dims(config[0]) if config else []
        block = self._dims(config[1]) if len(config) > 1 else []
        shared = self.val(config[2]).id if len(config) > 2 else NONE
        function = callee if isinstance(callee, Functions) else None
        name = callee.name if isinstance(callee, (Functions, External)) else "?"
        params = function.refs[0].function.params if function is not None and function.refs else ()
        values = [self._argument_value(arg) for arg in args]
        names = tuple(params[i].name if i < len(params) else f"arg{i}" for i in range(len(values)))
        attrs: dict[str, AttrValue] = {"grid": len(grid), "params": names}
        sizes = [self.known_int(one) for one in block]
        known = [size for size in sizes if size is not None]
        threads = prod(known) if known and len(known) == len(sizes) else None
        extra: dict[str, AttrValue] = {**options}
        if threads is not None:
            extra["block"] = tuple(known)
        if shared != NONE and (size := self.known_int(shared)) is not None:
            extra["shared_bytes"] = size
        index = self.emit(Kind.LAUNCH, name, [*grid, *values, *block], {**attrs, "block": len(block)}, None, None)
        cluster = extra.pop("cluster", None)
        self.sites.append(
            LaunchSite(
                function,
                name,
                index,
                self._bound(function, args),
                LaunchOptions(
                    threads=threads,
                    cluster=tuple(int(c) for c in cluster if isinstance(c, int))
                    if isinstance(cluster, tuple)
                    else None,
                    pdl=bool(extra.pop("pdl")) if "pdl" in extra else None,
                    cooperative=bool(extra.pop("cooperative")) if "cooperative" in extra else None,
                    options=extra,
                ),
            )
        )
        return Val(index)

    def _argument_value(self, arg: Thing) -> int:
        if isinstance(arg, (Functions, Choice, External, Closure, CType, Method)):
            return NONE
        if isinstance(arg, ArrayRef):
            return arg.base
        return self.val(arg).id

    def _dims(self, thing: Thing) -> list[int]:
        """Extents of a grid or block; trailing ones are left out."""
        thing = self.read(thing)
        if isinstance(thing, Tuple):
            found = [self.val(item).id for item in thing.items]
        else:
            value = self.val(thing)
            draft = self.b.ops[value.id]
            found = list(draft.args) if draft.kind is Kind.SHAPE and draft.name == "join" else [value.id]
        while len(found) > 1 and self.known(found[-1]) == 1:
            found.pop()
        return found

    def _bound(self, function: Functions | None, args: list[Thing]) -> dict[str, Portable]:
        """Template arguments of the kernel that is launched."""
        if function is None or not function.refs:
            return {}
        ref = self._overload(function, args) or function.refs[0]
        bound = self._bind_function(ref, args, function)
        return {name: self.export(thing) for name, thing in bound.items()}

    # CUTLASS device adapters

    def call(self, callee: Thing, args: list[Thing], node: Call) -> Thing:
        if isinstance(callee, (SlotRef, Val)):
            type_ = self.static_type(callee)
            if is_adapter(type_):
                return self._run_adapter(type_, [self.val(callee).id])
        return super().call(callee, args, node)

    def _run_adapter(self, type_: CType, values: list[int]) -> Thing:
        """A GEMM that a device adapter launches."""
        found = collective(type_, self.known)
        if found is None:
            name = type_.name.replace("::", ".")
            return Val(self.emit(Kind.HOST_CALL, f"{name}.run", values, {}, None, None))
        attrs: dict[str, AttrValue] = {"grid": 0, "params": ("arguments",), "library": "cutlass"}
        index = self.emit(Kind.LAUNCH, found.name, values, attrs, None, None)
        self.collectives.append((found, index, self.place()))
        return Val(self.const(0))

    # tensor maps

    def opaque_call(self, name: str, args: list[Thing], node: Call) -> Thing:
        if any(isinstance(arg, External) and "TENSOR_MAP_DATA_TYPE" in arg.name for arg in args):
            return self._tensor_map(args)
        return super().opaque_call(name, args, node)

    def _tensor_map(self, args: list[Thing]) -> Thing:
        """`cuTensorMapEncodeTiled(&map, type, rank, base, extents, strides, box, element strides, …, swizzle, …)`,
        also where it is called through a pointer that the driver gave."""
        attrs: dict[str, AttrValue] = {"host": True}
        for arg in args:
            if isinstance(arg, External):
                label = arg.name.rsplit("::", 1)[-1]
                if match := re.search(r"SWIZZLE_(?:(\d+)B|NONE)", label):
                    attrs["swizzle"] = int(match.group(1) or 0)
                elif match := re.search(r"DATA_TYPE_(\w+)", label):
                    attrs["dtype"] = _MAP_TYPES.get(match.group(1), match.group(1).lower())
                elif match := re.search(r"L2_PROMOTION_(?:L2_)?(\d+)B", label):
                    attrs["l2_promotion"] = int(match.group(1))
        values = args[3:7]
        base = self.val(values[0]).id if values else NONE
        extents, strides, box = ([*(self._array(value) for value in values[1:4]), [], [], []])[:3]
        sizes = [self.known_int(one) for one in box]
        if box and None not in sizes:
            attrs["block"] = tuple(sizes)
        index = self.emit(Kind.DESCRIPTOR, "tensor_map", [base, *extents, *strides], attrs, None, None)
        target = args[0]
        if isinstance(target, LocalPointer):
            self.write(target.target, Val(index, CType(name="CUtensorMap")))
        return Val(self.const(0))

    def _array(self, thing: Thing) -> list[int]:
        """The elements of a local array that a pointer leads to."""
        if isinstance(thing, LocalPointer):
            thing = SlotRef(thing.target.slot, thing.target.type)
        held = self.slots.get(thing.slot) if isinstance(thing, SlotRef) else self.read(thing)
        if isinstance(held, LocalPointer):
            return self._array(held)
        if isinstance(held, Tuple):
            return [self.val(item).id for item in held.items]
        if isinstance(held, Val):
            draft = self.b.ops[held.id]
            if draft.kind is Kind.SHAPE and draft.name == "join":
                return list(draft.args)
        return []

    # calls

    def library_call(self, name: str, targs: tuple[Thing, ...], args: list[Thing], node: Call) -> Thing:
        last = name.rsplit("::", 1)[-1]
        if last in _LAUNCHERS:
            return self._runtime_launch(_LAUNCHERS[last], args, node)
        if last in ("launch_kernel_on_cluster",) and len(args) > 1:
            return self._cluster_launch(args)
        if last in _ALLOCATORS and len(args) > 1:
            return self._allocate(name, args)
        if last in _ALLOCATIONS and "::" in name:
            values = self._sizes(args)
            return Val(
                self.emit(Kind.HOST_ALLOC, last, values, {"callee": name.replace("::", ".")}, None, None),
                CType(name="torch::Tensor"),
            )
        return super().library_call(name, targs, args, node)

    def _sizes(self, args: list[Thing]) -> list[int]:
        found: list[int] = []
        for arg in args:
            held = self.read(arg)
            if isinstance(held, Tuple):
                found.extend(self.val(item).id for item in held.items)
            elif not isinstance(held, (Functions, Choice, External, CType, Method, Closure)):
                found.append(self.val(held).id)
        return found

    def _allocate(self, name: str, args: list[Thing]) -> Thing:
        size = self.val(args[1]).id
        index = self.emit(Kind.HOST_ALLOC, "empty", (size,), {"callee": name, "bytes": True}, None, None)
        target = args[0]
        if isinstance(target, LocalPointer):
            self.write(target.target, Val(index, target.elem))
        return Val(self.const(0))

    def _runtime_launch(self, form: str, args: list[Thing], node: Call) -> Thing:
        held = [self.read(arg) if not isinstance(arg, (ArrayRef, LocalPointer)) else arg for arg in args]
        if form == "config":
            kernel = held[1] if len(held) > 1 else External("?")
            config, options = self._config(node)
            return self.launch_kernel(kernel, config, held[2:], options)
        options = {"cooperative": True} if form == "cooperative" else {}
        kernel = held[0] if held else External("?")
        config = [*held[1:3], *(held[4:5])]
        return self.launch_kernel(kernel, config, self._packed_arguments(held[3:4]), options)

    def _packed_arguments(self, held: list[Thing]) -> list[Thing]:
        """The arguments in `void* args[] = {&a, &b}`."""
        for thing in held:
            thing = self.read(thing)
            if isinstance(thing, LocalPointer):
                inner = self.slots.get(thing.target.slot)
                if isinstance(inner, Tuple):
                    return [self.read(item.target) if isinstance(item, LocalPointer) else item for item in inner.items]
            if isinstance(thing, Tuple):
                return [self.read(item.target) if isinstance(item, LocalPointer) else item for item in thing.items]
        return []

    def _cluster_launch(self, args: list[Thing]) -> Thing:
        """`launch_kernel_on_cluster({grid, block, cluster, shared bytes}, kernel, arguments…)` of CUTLASS."""
        params = self.read(args[0])
        items = params.items if isinstance(params, Tuple) else ()
        if isinstance(params, Val):
            items = tuple(Val(arg) for arg in self.b.ops[params.id].args)
        options: dict[str, AttrValue] = {}
        if len(items) > 2:
            sizes = [self.known_int(one) for one in self._dims(items[2])]
            if None not in sizes:
                options["cluster"] = tuple(sizes)
        return self.launch_kernel(self.read(args[1]), [*items[:2], *items[3:4]], args[2:], options)

    def _member(self, node: Member) -> Thing:
        known = self.members.get(self.member_text(node)) if self.members else None
        return known if known is not None else super()._member(node)

    def _config(self, node: Call) -> tuple[list[Thing], dict[str, AttrValue]]:
        """Grid, block, shared bytes and attributes of the `cudaLaunchConfig_t` that a launch names."""
        text = self.text_of(node.args[0]) if node.args else ""
        name = text.lstrip("&")
        first = node.args[0] if node.args else None
        if isinstance(first, Unary) and isinstance(first.operand, Name):
            name = first.operand.name
        elif isinstance(first, Name):
            name = first.name
        one = self.int_val(1)
        config = [
            self.members.get(f"{name}.gridDim", one),
            self.members.get(f"{name}.blockDim", one),
            self.members.get(f"{name}.dynamicSmemBytes", self.int_val(0)),
        ]
        positional = self.find(name)
        held = self.slots.get(positional.slot) if isinstance(positional, SlotRef) else None
        if isinstance(held, Tuple) and len(held.items) > 1 and f"{name}.gridDim" not in self.members:
            config = list(held.items[:3])
        count = self.members.get(f"{name}.numAttrs")
        if isinstance(held, Tuple) and len(held.items) > 5:
            count = held.items[5]
        options: dict[str, AttrValue] = {}
        limit = self.known_int(self.val(count).id) if count is not None else 0
        owner = self.sources.get(f"{name}.attrs", "")
        for key, value in self.members.items():
            if key.endswith(".id") and key.startswith(owner):
                number = re.search(r"\[(\d+)\]", key)
                if limit is None or number is None or int(number.group(1)) < limit:
                    self._launch_attribute(key[: -len(".id")], value, options)
        return config, options

    def _launch_attribute(self, owner: str, kind: Thing, options: dict[str, AttrValue]) -> None:
        label = kind.name if isinstance(kind, External) else str(self.known(self.val(kind).id))
        if "ClusterDimension" in label:
            sizes: list[int | None] = []
            whole = self.members.get(f"{owner}.val.clusterDim")
            if whole is not None:
                sizes = [self.known_int(one) for one in self._dims(whole)]
            else:
                for axis in "xyz":
                    value = self.members.get(f"{owner}.val.clusterDim.{axis}")
                    sizes.append(self.known_int(self.val(value).id) if value is not None else 1)
            options["cluster"] = tuple(size for size in sizes if size is not None)
        elif "ProgrammaticStreamSerialization" in label:
            value = self.members.get(f"{owner}.val.programmaticStreamSerializationAllowed")
            known = self.known(self.val(value).id) if value is not None else None
            options["pdl"] = bool(known) if known is not None else True
        elif "Cooperative" in label:
            options["cooperative"] = True

    def set_member(self, target: Node, value: Thing, source: Node) -> None:
        text = self.member_text(target)
        self.members[text] = value
        if isinstance(target, Index) and isinstance(target.base, Name) and self._find_local(target.base.name) is None:
            # an element of an object that outlives the call: it may be a cache
            stored = self.val(value).id if not isinstance(value, (Functions, Closure, External, CType)) else NONE
            keys = [self.value(arg).id for arg in target.args]
            self.emit(Kind.HOST_CALL, f"set {target.base.name}[]", [*keys, stored], {"assignment": True}, None, None)
        if isinstance(source, Unary):
            source = source.operand
        if isinstance(source, Index):
            source = source.base
        if isinstance(source, Name):
            self.sources[text] = source.name

    def member_text(self, node: Node) -> str:
        if isinstance(node, Member):
            return f"{self.member_text(node.base)}.{node.name}"
        if isinstance(node, Index):
            inner = node.args[0] if node.args else None
            label = str(inner.value) if isinstance(inner, Literal) else (inner.name if isinstance(inner, Name) else "?")
            return f"{self.member_text(node.base)}[{label}]"
        return node.name if isinstance(node, Name) else "?"

    def method_call(self, method: Method, args: list[Thing], node: Call) -> Thing:
        if method.name in RUNS:
            adapter = self.static_type(method.base)
            if is_adapter(adapter):
                return self._run_adapter(adapter, [self.val(method.base).id])
        attribute = _ATTRIBUTES.get(method.name)
        if attribute is not None and not isinstance(method.base, (Functions, External, Closure)):
            base = self.val(method.base)
            attrs: dict[str, AttrValue] = {}
            index = self.emit(Kind.ATTRIBUTE, attribute, (base.id,), attrs, None, None)
            if attribute in ("shape", "stride") and args:
                axis = self.known_int(self.val(args[0]).id)
                if axis is not None:
                    return Val(self.emit(Kind.ITEM, "", (index,), {"index": axis}, "i64"), CType("i64"))
            if attribute == "numel":
                return Val(index, CType("i64"))
            if attribute == "data_ptr":
                elem = method.targs[0] if method.targs and isinstance(method.targs[0], CType) else CType()
                return Val(index, elem.pointer_to())
            return Val(index)
        return super().method_call(method, args, node)
