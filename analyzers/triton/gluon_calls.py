"""Gluon: shared and tensor memory, asynchronous copies, barriers, tensor-core instructions and warp partitions.

What a call names is what the kernel does, instruction by instruction: nothing here is left to the compiler's choice.
"""

from __future__ import annotations

from collections.abc import Mapping

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.triton.device import Args, Device, Handler
from d2k.analyzers.triton.lowering import Call
from d2k.analyzers.triton.types import SCALE_FORMATS
from d2k.analyzers.triton.values import UNKNOWN, Func, KernelDef, Layout, Literal, Opaque, Tup, Value
from d2k.spec.facts import NONE, AttrValue, Kind

Attrs = dict[str, AttrValue]

LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "NVMMASharedLayout": ("swizzle_byte_width", "element_bitwidth", "rank", "transposed", "fp4_padded", "cga_layout"),
    "SwizzledSharedLayout": ("vec", "per_phase", "max_phase", "order", "cga_layout"),
    "PaddedSharedLayout": ("interval_padding_pairs", "offset_bases", "cga_layout", "shape"),
    "SharedLinearLayout": ("offset_bases", "block_bases", "alignment"),
    "MBarrierLayout": ("cga_layout",),
    "TensorMemoryLayout": ("block", "col_stride", "cga_layout", "two_ctas", "fp4_padded"),
    "TensorMemoryScalesLayout": ("cga_layout",),
    "BlockedLayout": ("size_per_thread", "threads_per_warp", "warps_per_cta", "order", "cga_layout"),
    "SliceLayout": ("dim", "parent"),
    "DotOperandLayout": ("operand_index", "parent", "k_width"),
    "NVMMADistributedLayout": ("version", "warps_per_cta", "cga_layout", "instr_shape"),
    "DistributedLinearLayout": ("reg_bases", "lane_bases", "warp_bases", "block_bases", "shape"),
    "AutoLayout": (),
    "CoalescedLayout": (),
}
MEMORY = frozenset({"shared", "tmem", "local"})


def layout(dotted: str, args: tuple[Value, ...], keywords: Mapping[str, Value]) -> Layout | None:
    """The layout that a constructor call makes, None if `dotted` is no layout."""
    parts = dotted.split(".")
    if parts[-1] in LAYOUTS:
        return Layout(parts[-1], {**dict(zip(LAYOUTS[parts[-1]], args, strict=False)), **keywords})
    if (
        len(parts) > 1 and parts[-2] in LAYOUTS
    ):  # NVMMASharedLayout.get_default_for, PaddedSharedLayout.with_identity_for
        return Layout(parts[-2], {"default": Literal(True)})
    return None


def layout_attrs(device: Device, value: Value | None) -> Attrs:
    """What a shared-memory layout says of bank conflicts."""
    if not isinstance(value, Layout):
        return {}
    match value.name:
        case "NVMMASharedLayout":
            width = device.constant(value.fields.get("swizzle_byte_width", Opaque("")))
            if isinstance(width, int):
                return {"layout": "swizzle", "swizzle": width} if width else {"layout": "none"}
            return {"layout": "swizzle"}
        case "SwizzledSharedLayout":
            phases = device.constant(value.fields.get("max_phase", Opaque("")))
            return {"layout": "none" if phases == 1 else "xor"}
        case "PaddedSharedLayout":
            return {"layout": "padding"}
        case "MBarrierLayout":
            return {"barrier": True}
        case "TensorMemoryLayout":
            two = device.constant(value.fields.get("two_ctas", Literal(False)))
            return {"cta_group": 2} if two is True else {}
        case name:
            return {"layout": name}


def space(device: Device, value: int) -> str:
    """The memory that a value names: `shared`, `tmem` or `local`, "" for anything else."""
    for _ in range(64):
        draft = device.b.ops[value]
        if draft.kind is Kind.ALLOC:
            return str(draft.attrs.get("space", ""))
        follow = draft.kind is Kind.PHI or draft.kind in (Kind.SHAPE, Kind.ITEM)
        if not follow or not draft.args:
            return ""
        value = draft.args[1] if draft.kind is Kind.PHI and draft.name == "if" else draft.args[0]
        if value < 0:
            return ""
    return ""


def allocation(device: Device, value: int) -> int:
    """The ALLOC behind a view of memory, NONE if there is none."""
    for _ in range(64):
        draft = device.b.ops[value]
        if draft.kind is Kind.ALLOC:
            return value
        if draft.kind not in (Kind.PHI, Kind.SHAPE, Kind.ITEM) or not draft.args:
            return NONE
        value = draft.args[1] if draft.kind is Kind.PHI and draft.name == "if" else draft.args[0]
        if value < 0:
            return NONE
    return NONE


# memory


def _allocate(where: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        shape = device.shape_of(a.items("shape"), a.node)
        dtype = device.dtype(a.get("element_ty")).name
        attrs: Attrs = {"space": where, **layout_attrs(device, a.get("layout"))}
        value = device.b.emit(Kind.ALLOC, where, (), device.place(a.node), attrs, dtype, shape)
        if a.has("value"):
            initial = (value, a.op("value"), NONE)
            device.b.emit(Kind.STORE, "store", initial, device.place(a.node), {"space": where, "via": "array"}, dtype)
        return value

    return lower


def _allocate_barrier(device: Device, a: Args) -> Value:
    shape = (a.op("batch"),) if a.has("batch") else ()
    attrs: Attrs = {"space": "shared", "barrier": True}
    return device.b.emit(Kind.ALLOC, "shared", (), device.place(a.node), attrs, "i64", shape)


def memory_method(device: Device, owner: int, name: str, call: Call) -> Value | None:
    """A method of a view of shared or tensor memory; None if it has no such method."""
    where = space(device, owner)
    if where not in MEMORY:
        return None
    node, place = call.node, device.place(call.node)
    draft = device.b.ops[owner]
    given = (*call.args, *call.keywords.values())
    match name:
        case "load" | "load_min" | "load_max":
            attrs: Attrs = {"space": where, "via": "array"}
            loaded = device.b.emit(Kind.LOAD, "load", (owner, NONE), place, attrs, draft.dtype, draft.shape)
            if name == "load":
                return loaded
            reduced = device.b.emit(Kind.REDUCE, name[5:], (loaded,), place, {"axis": 1}, draft.dtype, None)
            return Tup((loaded, reduced))
        case "store" if given:
            attrs = {"space": where, "via": "array"}
            device.b.emit(Kind.STORE, "store", (owner, device.ref(given[0], node), NONE), place, attrs, draft.dtype)
            return Literal(None)
        case "index" if given:
            inner = draft.shape[1:] if draft.shape else None
            args = (owner, device.ref(given[0], node))
            return device.b.emit(Kind.SHAPE, "index", args, place, NO_ATTRS, draft.dtype, inner)
        case "slice" if len(given) >= 2:
            return _sliced(device, owner, call)
        case "permute":
            return device.reshaped("permute", owner, None, node)
        case "reshape" | "reinterpret" | "_reinterpret":
            positional = call.args[-2] if len(call.args) >= 2 else (call.args or (None,))[0]
            shape = call.keywords.get("shape", positional)
            new = device.shape_of(shape.items, node) if isinstance(shape, Tup) else None
            value = device.reshaped("reshape", owner, new, node)
            wanted = call.keywords.get("dtype", call.args[0] if len(call.args) >= 2 else None)
            if wanted is not None:
                device.b.ops[value].dtype = device.dtype(wanted).name
            return value
        case "gather" if given:
            attrs = {"space": where, "via": "array"}
            indexed = (owner, NONE, device.ref(given[0], node))
            return device.b.emit(Kind.LOAD, "gather", indexed, place, attrs, draft.dtype, None)
        case "scatter" if len(given) >= 2:
            attrs = {"space": where, "via": "array"}
            values = (owner, device.ref(given[0], node), NONE, device.ref(given[1], node))
            device.b.emit(Kind.STORE, "scatter", values, place, attrs, draft.dtype)
            return Literal(None)
        case "get_reg_layout" | "_keep_alive":
            return Opaque("layout")
        case _ if name.startswith("atomic_scatter_") and len(given) >= 2:
            attrs = {"space": where}
            values = (owner, device.ref(given[0], node), NONE, device.ref(given[1], node))
            return device.b.emit(Kind.ATOMIC, name[15:], values, place, attrs, draft.dtype)
        case _:
            return None


def _sliced(device: Device, owner: int, call: Call) -> int:
    node = call.node
    start, length = device.ref(call.args[0], node), device.ref(call.args[1], node)
    where = space(device, owner)
    axis = call.keywords.get("dim", call.args[2] if len(call.args) > 2 else Literal(1 if where == "tmem" else 0))
    at = device.constant(axis)
    draft = device.b.ops[owner]
    shape = None
    if draft.shape and isinstance(at, int) and at < len(draft.shape):
        shape = (*draft.shape[:at], length, *draft.shape[at + 1 :])
    attrs: Attrs = {"axis": at if isinstance(at, int) else None}
    return device.b.emit(Kind.SHAPE, "slice", (owner, start, length), device.place(node), attrs, draft.dtype, shape)


def _convert_layout(device: Device, a: Args) -> Value:
    value = a.op("value")
    return device.reshaped("convert_layout", value, device.b.ops[value].shape, a.node)


# asynchronous copies


def _cp_async(device: Device, a: Args) -> Value:
    args = (a.op("smem"), a.op("pointer"), a.op("mask"))
    attrs: Attrs = {"direction": "load"}
    for key, name in (("cache_modifier", "cache"), ("eviction_policy", "eviction")):
        if a.text(key):
            attrs[name] = a.text(key)
    device.b.emit(Kind.COPY, "cp_async", args, device.place(a.node), attrs)
    return Literal(None)


def _commit(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = (a.op("barrier"),) if a.has("barrier") else ()
        device.b.emit(Kind.COMMIT, name, args, device.place(a.node))
        return Literal(None)

    return lower


def _wait(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        outstanding = a.integer("num_outstanding") if a.has("num_outstanding") else 0
        attrs: Attrs = {} if outstanding is None else {"outstanding": outstanding}
        device.b.emit(Kind.WAIT, name, (), device.place(a.node), attrs)
        deps = a.get("deps")
        if isinstance(deps, Tup):
            return deps if len(deps.items) != 1 else deps.items[0]
        return deps if deps is not None else Literal(None)

    return lower


def _tma(direction: str) -> Handler:
    """Loads have (destination, descriptor, barrier, coordinates…), stores (descriptor, source, NONE, coordinates…)."""

    def lower(device: Device, a: Args) -> Value:
        descriptor = a.op("tensor_desc")
        coordinates = (
            (a.op("x_offsets"), a.op("y_offset"))
            if direction in ("gather", "scatter")
            else tuple(device.ref(one, a.node) for one in a.items("coord"))
        )
        attrs: Attrs = {"direction": direction, "tensor": True}
        if a.has("multicast"):
            multicast = a.const("multicast")
            attrs["multicast"] = multicast if isinstance(multicast, bool) else "unknown"
        if direction in ("load", "gather"):
            args = (a.op("result"), descriptor, a.op("barrier"), *coordinates)
        else:
            args = (descriptor, a.op("src"), NONE, *coordinates)
        device.b.emit(Kind.COPY, "tma", args, device.place(a.node), attrs)
        return Literal(None)

    return lower


def _tma_reduce(operation: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        coordinates = tuple(device.ref(one, a.node) for one in a.items("coord"))
        args = (a.op("tensor_desc"), a.op("src"), NONE, *coordinates)
        attrs: Attrs = {"direction": "reduce", "tensor": True, "op": operation}
        device.b.emit(Kind.COPY, "tma", args, device.place(a.node), attrs)
        return Literal(None)

    return lower


def _remote_store(device: Device, a: Args) -> Value:
    args = (a.op("dst"), a.op("value"), a.op("mbarrier"))
    device.b.emit(Kind.COPY, "bulk", args, device.place(a.node), {"direction": "store", "tensor": False})
    return Literal(None)


# barriers


def _barrier(name: str, *operands: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = tuple(a.op(one) for one in operands)
        attrs: Attrs = {}
        for key in ("count", "bytes_per_cta"):
            known = a.literal(key)
            if isinstance(known, int):
                attrs["count" if key == "count" else "bytes"] = known
        device.b.emit(Kind.BARRIER, name, args, device.place(a.node), attrs)
        return Literal(None)

    return lower


def _block_barrier(device: Device, a: Args) -> Value:
    device.b.emit(Kind.BARRIER, "cluster" if a.flag("cluster") else "syncthreads", (), device.place(a.node))
    return Literal(None)


def _fence(device: Device, a: Args) -> Value:
    device.b.emit(Kind.FENCE, "", (), device.place(a.node), {"proxy": "async", "scope": "cta"})
    return Literal(None)


def _control(name: str, *operands: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = tuple(a.op(one) for one in operands)
        return device.b.emit(Kind.CONTROL, name, args, device.place(a.node))

    return lower


# tensor cores


def _mma(instruction: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        left, right, accumulator = a.op("a"), a.op("b"), a.op("acc")
        x, y, z = (device.b.ops[one] for one in (left, right, accumulator))
        attrs: Attrs = {"instr": instruction}
        for key, dtype in (("a_dtype", x.dtype), ("b_dtype", y.dtype), ("acc_dtype", z.dtype)):
            if dtype is not None:
                attrs[key] = dtype
        if a.text("input_precision") or a.text("precision"):
            attrs["input_precision"] = a.text("input_precision") or a.text("precision")
        if a.has("use_acc"):
            use = a.const("use_acc")
            attrs["use_acc"] = use if isinstance(use, bool) else "unknown"
        if a.flag("is_async") or instruction == "tcgen05":
            attrs["async"] = True
        if instruction == "tcgen05":
            memory = allocation(device, accumulator)
            pair = memory != NONE and device.b.ops[memory].attrs.get("cta_group") == 2
            if pair or a.flag("two_ctas"):
                attrs["cta_group"] = 2
            if a.flag("multicast"):
                attrs["multicast"] = True
        value = device.b.emit(
            Kind.MMA, instruction, (left, right, accumulator), device.place(a.node), attrs, z.dtype, z.shape
        )
        _committed(device, a)
        return Literal(None) if instruction == "tcgen05" else value

    return lower


def _committed(device: Device, a: Args) -> None:
    """Barriers that an MMA signals when it is done: an implied commit."""
    for one in a.items("mbarriers"):
        device.b.emit(Kind.COMMIT, "tcgen05", (device.ref(one, a.node),), device.place(a.node))


def _mma_scaled(device: Device, a: Args) -> Value:
    args = (a.op("a"), a.op("b"), a.op("acc"), a.op("a_scale"), a.op("b_scale"))
    formats = (a.text("a_type"), a.text("b_type"))
    attrs: Attrs = {"instr": "tcgen05", "async": True, "acc_dtype": device.b.ops[args[2]].dtype or "f32"}
    for key, word in zip(("a_dtype", "b_dtype"), formats, strict=True):
        if word in SCALE_FORMATS:
            attrs[key] = SCALE_FORMATS[word]
    scale = device.b.ops[args[3]].dtype if args[3] != NONE else None
    attrs["scaled"] = True
    if all(one in ("e4m3", "e5m2") for one in formats):
        attrs["scaled"] = "mxfp8"
    elif formats == ("e2m1", "e2m1") and scale is not None:
        attrs["scaled"] = "nvfp4" if scale == "f8e4m3" else "mxfp4"
    memory = allocation(device, args[2])
    if memory != NONE and device.b.ops[memory].attrs.get("cta_group") == 2:
        attrs["cta_group"] = 2
    draft = device.b.ops[args[2]]
    device.b.emit(Kind.MMA, "tcgen05", args, device.place(a.node), attrs, draft.dtype, draft.shape)
    _committed(device, a)
    return Literal(None)


def _accumulator(device: Device, a: Args) -> Value:
    return a.value("value")


def _layout_of(device: Device, a: Args) -> Value:
    return Opaque("layout")


def _packed(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        operands = [one for one in ("lhs", "rhs", "acc") if a.has(one)]
        return device.elementwise(name, tuple(a.op(one) for one in operands), a.node, {"packed": 2})

    return lower


# warp specialization


def _warp_specialize(device: Device, a: Args) -> Value:
    """Each partition's function is lowered in place; its operations carry its name."""
    pairs = _pairs(device, a)
    warps, registers = a.items("worker_num_warps"), a.items("worker_num_regs")
    taken: dict[str, int] = {}
    result: Value = Literal(None)
    outer = device.b.partition
    for position, (function, arguments) in enumerate(pairs):
        name = _partition_name(function, position, taken)
        attrs: Attrs = {"default": position == 0}
        if position:
            for key, values in (("warps", warps), ("registers", registers)):
                if position <= len(values):
                    known = device.constant(values[position - 1])
                    attrs[key] = None if known is UNKNOWN else known
        device.b.partition = name
        device.b.emit(Kind.CONTROL, "partition", (), device.place(a.node), attrs)
        value = device.call(function, Call(a.node, arguments, {}))
        result = value if position == 0 else result
        device.b.partition = outer
    return result


def _pairs(device: Device, a: Args) -> list[tuple[Value, tuple[Value, ...]]]:
    """Functions with their arguments, the default partition first, in both forms of the call."""
    found: list[tuple[Value, tuple[Value, ...]]] = []
    listed = a.get("functions_and_args")
    if isinstance(listed, Tup) and listed.items and isinstance(listed.items[0], Tup):
        for pair in listed.items:
            if isinstance(pair, Tup) and len(pair.items) == 2:
                arguments = pair.items[1]
                found.append((pair.items[0], arguments.items if isinstance(arguments, Tup) else (arguments,)))
        return found
    device.unknown("warp_specialize", a.node)
    return found


def _partition_name(function: Value, position: int, taken: dict[str, int]) -> str:
    name = function.qualname if isinstance(function, Func) else ""
    if isinstance(function, KernelDef):
        name = function.name
    name = name or ("default" if position == 0 else f"worker{position}")
    taken[name] = taken.get(name, 0) + 1
    return name if taken[name] == 1 else f"{name}#{taken[name]}"


_TMA = ("tensor_desc", "coord", "barrier", "result", "pred", "multicast", "cache_policy")
_TMA_STORE = ("tensor_desc", "coord", "src", "cache_policy")
_TMA_GATHER = ("tensor_desc", "x_offsets", "y_offset", "barrier", "result", "pred", "multicast")
_CP_ASYNC = ("smem", "pointer", "mask", "cache_modifier", "eviction_policy", "volatile")
_MMA = ("a", "b", "acc")

HANDLERS: Mapping[str, tuple[tuple[str, ...], Handler]] = {
    "allocate_shared_memory": (("element_ty", "shape", "layout", "value"), _allocate("shared")),
    "allocate_tensor_memory": (("element_ty", "shape", "layout", "value"), _allocate("tmem")),
    "mbarrier.allocate_mbarrier": (("batch", "two_ctas"), _allocate_barrier),
    "convert_layout": (("value", "layout", "assert_trivial"), _convert_layout),
    "set_auto_layout": (("value", "layout"), _convert_layout),
    "async_copy.async_load": (_CP_ASYNC, _cp_async),
    "async_copy.async_copy_global_to_shared": (_CP_ASYNC, _cp_async),
    "async_copy.commit_group": ((), _commit("cp_async")),
    "async_copy.wait_group": (("num_outstanding",), _wait("cp_async")),
    "async_copy.mbarrier_arrive": (("mbarrier",), _barrier("mbarrier_arrive", "mbarrier")),
    "tma.async_load": (_TMA, _tma("load")),
    "tma.async_copy_global_to_shared": (_TMA, _tma("load")),
    "tma.async_store": (_TMA_STORE, _tma("store")),
    "tma.async_copy_shared_to_global": (_TMA_STORE, _tma("store")),
    "tma.async_gather": (_TMA_GATHER, _tma("gather")),
    "tma.async_scatter": (("tensor_desc", "x_offsets", "y_offset", "src"), _tma("scatter")),
    **{f"tma.async_atomic_{op}": (_TMA_STORE, _tma_reduce(op)) for op in ("add", "min", "max", "and", "or", "xor")},
    "tma.store_wait": (("num_outstanding", "read_only"), _wait("bulk")),
    "async_store": (("dst", "value", "mbarrier"), _remote_store),
    "mbarrier.init": (("mbarrier", "count"), _barrier("mbarrier_init", "mbarrier", "count")),
    "mbarrier.invalidate": (("mbarrier",), _barrier("mbarrier_inval", "mbarrier")),
    "mbarrier.expect": (
        ("mbarrier", "bytes_per_cta", "pred"),
        _barrier("mbarrier_expect", "mbarrier", "bytes_per_cta"),
    ),
    "mbarrier.wait": (("mbarrier", "phase", "pred", "deps"), _barrier("mbarrier_wait", "mbarrier", "phase")),
    "mbarrier.arrive": (("mbarrier", "count", "pred"), _barrier("mbarrier_arrive", "mbarrier")),
    "barrier": (("cluster",), _block_barrier),
    "thread_barrier": (("cluster",), _block_barrier),
    "cluster.barrier": (("relaxed",), _barrier("cluster")),
    "cluster.arrive": (("relaxed",), _barrier("cluster")),
    "cluster.wait": ((), _barrier("cluster")),
    "fence_async_shared": (("cluster",), _fence),
    "mma_v2": ((*_MMA, "input_precision"), _mma("mma_sync")),
    "dot_fma": (_MMA, _mma("fma")),
    "warpgroup_mma": (_MMA, _mma("wgmma")),
    "warpgroup_mma_init": (("value",), _accumulator),
    "warpgroup_mma_wait": (("num_outstanding", "deps"), _wait("wgmma")),
    "tcgen05_mma": (_MMA, _mma("tcgen05")),
    "tcgen05_mma_scaled": ((*_MMA, "a_scale", "b_scale", "a_type", "b_type"), _mma_scaled),
    "tcgen05_commit": (("barrier", "pred", "descs"), _commit("tcgen05")),
    "clc.try_cancel": (("result", "barrier"), _control("clc_try_cancel", "result", "barrier")),
    "clc.load_result": (("src",), _control("clc_load_result", "src")),
    "add2": (("lhs", "rhs"), _packed("add")),
    "sub2": (("lhs", "rhs"), _packed("sub")),
    "mul2": (("lhs", "rhs"), _packed("mul")),
    "fma2": (("lhs", "rhs", "acc"), _packed("fma")),
    "min2": (("lhs", "rhs"), _packed("min")),
    "max2": (("lhs", "rhs"), _packed("max")),
    "get_tmem_reg_layout": ((), _layout_of),
    "get_tmem_32x32b_reg_layout": ((), _layout_of),
    "to_linear_layout": ((), _layout_of),
    "warp_specialize": (("functions_and_args", "worker_num_warps", "worker_num_regs"), _warp_specialize),
}
