"""cuTile, TileLang and the CuTe DSL: kernels, launches, and the calls whose meaning is plain from their names.

What the compilers of these languages make of a copy, a loop or a layout the source does not say; each body therefore
lists its language among what is unresolved, so that nothing is called absent that such a compiler may well produce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.triton.device import Args, Device, Handler
from d2k.analyzers.triton.lowering import Call
from d2k.analyzers.triton.types import words
from d2k.analyzers.triton.values import DType, Element, Literal, Opaque, Region, Tiles, Tup, Value
from d2k.spec.facts import NONE, AttrValue, Kind

Attrs = dict[str, AttrValue]

PREFIXES: Mapping[str, str] = {"cuda.tile.": "ct.", "tilelang.language.": "T.", "tilelang.": "T.", "cutlass.": "cute."}


def handler(dotted: str) -> tuple[tuple[str, ...], Handler] | None:
    for prefix, short in PREFIXES.items():
        if dotted.startswith(prefix):
            name = dotted[len(prefix) :]
            for inner in ("cute.arch.", "cute.math.", "cute.nvgpu.tcgen05.", "cute.nvgpu.cpasync.", "cute."):
                if short == "cute." and name.startswith(inner):
                    name = name[len(inner) :]
                    break
            return HANDLERS.get(short + name)
    return None


def known_language(dotted: str) -> bool:
    """Whether a callee belongs to one of these languages: then the body's own note covers it."""
    return dotted.startswith(tuple(PREFIXES))


# memory that is named by arrays and indices


def load(device: Device, source: Value, node: Args, shape: tuple[int, ...] | None = None) -> int:
    """The tile that a region or a whole buffer holds."""
    owner, indices = _region(device, source, node)
    draft = device.b.ops[owner]
    whole = draft.shape if not indices else shape
    attrs: Attrs = {"space": device.space(owner), "via": "array"}
    return device.b.emit(
        Kind.LOAD, "load", (owner, NONE, *indices), device.place(node.node), attrs, draft.dtype, whole or shape
    )


def store(device: Device, target: Value, value: int, node: Args, name: str = "store") -> None:
    owner, indices = _region(device, target, node)
    attrs: Attrs = {"space": device.space(owner), "via": "array"}
    args = (owner, value, NONE, *indices)
    device.b.emit(Kind.STORE, name, args, device.place(node.node), attrs, device.b.ops[value].dtype)


def _region(device: Device, value: Value, a: Args) -> tuple[int, tuple[int, ...]]:
    if isinstance(value, Element):
        return value.owner, value.indices
    return device.ref(value, a.node), ()


# cuTile


def _ct_load(device: Device, a: Args) -> Value:
    array = a.op("array")
    indices = tuple(device.ref(one, a.node) for one in a.items("index"))
    shape = device.shape_of(a.items("shape"), a.node)
    attrs: Attrs = {"space": "global", "via": "array"}
    return device.b.emit(Kind.LOAD, "load", (array, NONE, *indices), device.place(a.node), attrs, None, shape)


def _ct_store(device: Device, a: Args) -> Value:
    indices = tuple(device.ref(one, a.node) for one in a.items("index"))
    attrs: Attrs = {"space": "global", "via": "array"}
    args = (a.op("array"), a.op("tile"), NONE, *indices)
    device.b.emit(Kind.STORE, "store", args, device.place(a.node), attrs)
    return Literal(None)


def _ct_gather(device: Device, a: Args) -> Value:
    indices = tuple(device.ref(one, a.node) for one in a.items("index"))
    attrs: Attrs = {"space": "global", "via": "array"}
    args = (a.op("array"), a.op("mask"), *indices)
    shape = device.broadcast(indices)
    return device.b.emit(Kind.LOAD, "gather", args, device.place(a.node), attrs, None, shape)


def _ct_scatter(device: Device, a: Args) -> Value:
    indices = tuple(device.ref(one, a.node) for one in a.items("index"))
    attrs: Attrs = {"space": "global", "via": "array"}
    args = (a.op("array"), a.op("tile"), a.op("mask"), *indices)
    device.b.emit(Kind.STORE, "scatter", args, device.place(a.node), attrs)
    return Literal(None)


def _ct_atomic(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        indices = tuple(device.ref(one, a.node) for one in a.items("index"))
        args = (a.op("array"), a.op("update"), NONE, *indices)
        attrs: Attrs = {"space": "global", "via": "array"}
        if a.text("memory_order"):
            attrs["sem"] = a.text("memory_order")
        return device.b.emit(Kind.ATOMIC, name, args, device.place(a.node), attrs)

    return lower


def _ct_arange(device: Device, a: Args) -> Value:
    stop = a.op("size")
    start = device.b.const(0, device.place(a.node))
    dtype = device.dtype(a.get("dtype")).name or "i32"
    return device.b.emit(Kind.ARANGE, "", (start, stop), device.place(a.node), NO_ATTRS, dtype, (stop,))


def _ct_mma(device: Device, a: Args) -> Value:
    args = (a.op("x"), a.op("y"), a.op("acc"))
    x, y = device.b.ops[args[0]], device.b.ops[args[1]]
    accumulator = device.b.ops[args[2]] if args[2] != NONE else None
    attrs: Attrs = {"instr": "any", "acc_dtype": (accumulator.dtype if accumulator else None) or "f32"}
    for key, dtype in (("a_dtype", x.dtype), ("b_dtype", y.dtype)):
        if dtype is not None:
            attrs[key] = dtype
    shape = accumulator.shape if accumulator else None
    return device.b.emit(Kind.MMA, "mma", args, device.place(a.node), attrs, str(attrs["acc_dtype"]), shape)


def _ct_mma_scaled(device: Device, a: Args) -> Value:
    args = (a.op("x"), a.op("y"), a.op("acc"), a.op("x_scale"), a.op("y_scale"))
    attrs: Attrs = {"instr": "any", "scaled": True, "acc_dtype": "f32"}
    shape = device.b.ops[args[2]].shape if args[2] != NONE else None
    return device.b.emit(Kind.MMA, "mma_scaled", args, device.place(a.node), attrs, "f32", shape)


def _ct_transpose(device: Device, a: Args) -> Value:
    value = a.op("x")
    return device.transposed(value, a.node)


def _ct_extract(device: Device, a: Args) -> Value:
    value = a.op("x")
    return device.reshaped("slice", value, device.shape_of(a.items("shape"), a.node), a.node)


def _elementwise(name: str, **attrs: AttrValue) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        operands = tuple(device.ref(one, a.node) for one in (*a.rest, *a.values.values()))
        return device.elementwise(name, operands, a.node, dict(attrs))

    return lower


def _index(kind: Kind) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        axis = a.integer("axis") or 0
        return device.b.emit(kind, "", (), device.place(a.node), {"axis": axis}, "i32", ())

    return lower


# TileLang


def _kernel(device: Device, a: Args) -> Value:
    """`with T.Kernel(gx, gy, threads=…) as (bx, by)`: the names are the block's indices."""
    sizes = tuple(device.ref(one, a.node) for one in a.rest)
    attrs: Attrs = {}
    threads = a.integer("threads")
    if threads is not None:
        attrs["threads"] = threads
    place = device.place(a.node)
    device.b.emit(Kind.CONTROL, "tile_grid", sizes, place, attrs)
    axes = tuple(device.b.emit(Kind.BLOCK_INDEX, "", (), place, {"axis": at}, "i32", ()) for at in range(len(sizes)))
    return axes[0] if len(axes) == 1 else Tup(axes)


def _alloc(space: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        shape = device.shape_of(a.items("shape"), a.node)
        dtype = device.dtype(a.get("dtype")).name
        return device.b.emit(Kind.ALLOC, space, (), device.place(a.node), {"space": space}, dtype, shape)

    return lower


def _alloc_var(device: Device, a: Args) -> Value:
    dtype = device.dtype(a.get("dtype")).name
    return device.b.emit(Kind.ALLOC, "local", (), device.place(a.node), {"space": "local"}, dtype, ())


def _copy(device: Device, a: Args) -> Value:
    source, target = a.get("src"), a.get("dst")
    if source is None or target is None:
        return device.unknown("copy", a.node)
    other = device.b.ops[_region(device, target, a)[0]].shape if not isinstance(target, Element) else None
    store(device, target, load(device, source, a, other), a)
    return Literal(None)


def _async_copy(device: Device, a: Args) -> Value:
    source, target = a.get("src"), a.get("dst")
    if source is None or target is None:
        return device.unknown("async_copy", a.node)
    to, _ = _region(device, target, a)
    owner, indices = _region(device, source, a)
    device.b.emit(Kind.COPY, "cp_async", (to, owner, *indices), device.place(a.node), {"direction": "load"})
    return Literal(None)


def _gemm(device: Device, a: Args) -> Value:
    args = tuple(_region(device, a.value(name, Opaque(name)), a)[0] for name in ("A", "B", "C"))
    x, y, z = (device.b.ops[one] for one in args)
    attrs: Attrs = {"instr": "any"}
    for key, dtype in (("a_dtype", x.dtype), ("b_dtype", y.dtype), ("acc_dtype", z.dtype)):
        if dtype is not None:
            attrs[key] = dtype
    device.b.emit(Kind.MMA, "gemm", args, device.place(a.node), attrs, z.dtype, z.shape)
    return Literal(None)


def _fill(device: Device, a: Args) -> Value:
    target = a.get("buffer")
    if target is None:
        return device.unknown("fill", a.node)
    draft = device.b.ops[_region(device, target, a)[0]]
    filled = device.ref(a.value("value", Literal(0)), a.node)
    value = device.b.emit(Kind.FULL, "", (filled,), device.place(a.node), NO_ATTRS, draft.dtype, draft.shape)
    store(device, target, value, a)
    return Literal(None)


def _reduce(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        source, target = a.get("buffer"), a.get("out")
        if source is None or target is None:
            return device.unknown(f"reduce_{name}", a.node)
        loaded = load(device, source, a)
        draft = device.b.ops[loaded]
        axis = a.integer("dim")
        shape = draft.shape
        if shape and axis is not None and -len(shape) <= axis < len(shape):
            shape = (*shape[: axis % len(shape)], *shape[axis % len(shape) + 1 :])
        value = device.b.emit(Kind.REDUCE, name, (loaded,), device.place(a.node), {"axis": axis}, draft.dtype, shape)
        store(device, target, value, a)
        return Literal(None)

    return lower


def _parallel(device: Device, a: Args) -> Value:
    """Indices of all elements of a tile: one ARANGE an axis, shaped so that they broadcast."""
    extents = tuple(device.ref(one, a.node) for one in a.rest)
    place = device.place(a.node)
    found: list[int] = []
    for at, extent in enumerate(extents):
        start = device.b.const(0, place)
        shape = tuple(extent if other == at else device.one(a.node) for other in range(len(extents)))
        found.append(device.b.emit(Kind.ARANGE, "", (start, extent), place, NO_ATTRS, "i32", shape))
    return Tiles(tuple(found))


def _serial(form: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        attrs: Attrs = {}
        for key, name in (
            ("num_stages", "num_stages"),
            ("unroll", "unroll"),
            ("unroll_full", "unroll"),
            ("prefetch_stages", "num_stages"),
            ("pipelining", "num_stages"),
        ):
            if a.has(key):
                known = a.const(key)
                attrs[name] = known if isinstance(known, (bool, int)) else "unknown"
        if form == "static":
            attrs["unroll"] = True
        return device.range_value(form, a, attrs)

    return lower


def _tl_cast(device: Device, a: Args) -> Value:
    first, second = a.get("first"), a.get("second")
    if isinstance(first, (DType, Literal)) and not isinstance(second, (DType, type(None))):
        text = first.value if isinstance(first, Literal) else ""
        if isinstance(first, DType) or isinstance(text, str):
            first, second = second, first
    value = device.ref(first if first is not None else Literal(None), a.node)
    return device.cast(value, device.dtype(second), a.node)


def _infinity(device: Device, a: Args) -> Value:
    return Literal(float("inf"))


def _tl_atomic(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        owner, indices = _region(device, a.value("dst", Opaque("dst")), a)
        args = (owner, a.op("value"), NONE, *indices)
        attrs: Attrs = {"space": device.space(owner), "via": "array"}
        return device.b.emit(Kind.ATOMIC, name, args, device.place(a.node), attrs)

    return lower


def _view(device: Device, a: Args) -> Value:
    return device.reshaped("reshape", a.op("buffer"), device.shape_of(a.items("shape"), a.node), a.node)


def _wait(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        outstanding = a.integer("count") if a.has("count") else 0
        attrs: Attrs = {} if outstanding is None else {"outstanding": outstanding}
        device.b.emit(Kind.WAIT, name, (), device.place(a.node), attrs)
        return Literal(None)

    return lower


def _commit(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        device.b.emit(Kind.COMMIT, name, (), device.place(a.node))
        return Literal(None)

    return lower


def _barrier(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = tuple(device.ref(one, a.node) for one in (*a.rest, *a.values.values()))
        device.b.emit(Kind.BARRIER, name, args, device.place(a.node))
        return Literal(None)

    return lower


def _control(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        attrs: Attrs = {}
        known = a.integer("value")
        if known is not None:
            attrs["registers" if name.startswith("setmaxnreg") else "value"] = known
        device.b.emit(Kind.CONTROL, name, (), device.place(a.node), attrs)
        return Literal(None)

    return lower


def _fence(device: Device, a: Args) -> Value:
    device.b.emit(Kind.FENCE, "", (), device.place(a.node), {"proxy": "async"})
    return Literal(None)


def _silent(device: Device, a: Args) -> Value:
    return Literal(None)


def _same(device: Device, a: Args) -> Value:
    return a.value("value")


# the CuTe DSL


def _three(kind: Kind) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        place = device.place(a.node)
        return Tup(tuple(device.b.emit(kind, "", (), place, {"axis": at}, "i32", ()) for at in range(3)))

    return lower


def _lane(kind: Kind) -> Handler:
    return lambda device, a: device.b.emit(kind, "", (), device.place(a.node), NO_ATTRS, "i32", ())


def _shuffle(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = tuple(device.ref(one, a.node) for one in (*a.rest, *a.values.values()))
        return device.b.emit(Kind.SHUFFLE, name, args, device.place(a.node), NO_ATTRS, None, ())

    return lower


def _instruction(kind: Kind, name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = tuple(device.ref(one, a.node) for one in (*a.rest, *a.values.values()))
        return device.b.emit(kind, name, args, device.place(a.node))

    return lower


def _cute_alloc(space: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        attrs: Attrs = {"space": space}
        return device.b.emit(Kind.ALLOC, space, (), device.place(a.node), attrs)

    return lower


def _cute_gemm(device: Device, a: Args) -> Value:
    args = (a.op("a"), a.op("b"), a.op("c"))
    device.b.emit(Kind.MMA, "gemm", args, device.place(a.node), {"instr": "any"})
    return Literal(None)


def _elect(device: Device, a: Args) -> Value:
    device.b.emit(Kind.VOTE, "elect", (), device.place(a.node))
    return Region("", {})


def memory_method(device: Device, owner: int, name: str, call: Call) -> Value | None:
    """Methods of tensors and allocators that mean the same in every one of these languages; None for others."""
    args = Args(device, call.node, (), call)
    match name:
        case "load" if not call.args:
            return load(device, owner, args)
        case "store" if len(call.args) == 1:
            store(device, owner, device.ref(call.args[0], call.node), args)
            return Literal(None)
        case "fill" if len(call.args) == 1:
            store(device, owner, device.ref(call.args[0], call.node), args)
            return Literal(None)
        case "allocate_tensor" | "allocate" | "allocate_array":
            return device.b.emit(Kind.ALLOC, "shared", (), device.place(call.node), {"space": "shared"})
        case _:
            return None


def _table(names: Sequence[str], params: tuple[str, ...], make: Handler) -> dict[str, tuple[tuple[str, ...], Handler]]:
    return dict.fromkeys(names, (params, make))


_REDUCED = ("max", "min", "sum")
_MATH = sorted(words("exp exp2 log log2 sqrt rsqrt sin cos tanh sigmoid erf floor ceil abs rcp pow"))
_CT_BINARY: Mapping[str, str] = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floordiv",
    "mod": "mod",
    "maximum": "max",
    "minimum": "min",
    "where": "where",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
    "negative": "neg",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_lshift": "shl",
    "bitwise_rshift": "shr",
}
_PACKED: Mapping[str, str] = {
    "mul_packed_f32x2": "mul",
    "add_packed_f32x2": "add",
    "sub_packed_f32x2": "sub",
    "fma_packed_f32x2": "fma",
}
_LOOP = ("arg1", "arg2", "step", "num_stages")
_ARRAY = ("array", "index")

HANDLERS: Mapping[str, tuple[tuple[str, ...], Handler]] = {
    # cuTile
    "ct.bid": (("axis",), _index(Kind.BLOCK_INDEX)),
    "ct.num_blocks": (("axis",), _index(Kind.GRID_SIZE)),
    "ct.load": ((*_ARRAY, "shape"), _ct_load),
    "ct.store": ((*_ARRAY, "tile"), _ct_store),
    "ct.gather": ((*_ARRAY, "mask"), _ct_gather),
    "ct.scatter": ((*_ARRAY, "tile", "mask"), _ct_scatter),
    **{f"ct.atomic_{op}": ((*_ARRAY, "update"), _ct_atomic(op)) for op in ("add", "max", "min", "and", "or", "xor")},
    "ct.atomic_xchg": ((*_ARRAY, "update"), _ct_atomic("exch")),
    "ct.atomic_cas": ((*_ARRAY, "expected", "update"), _ct_atomic("cas")),
    "ct.arange": (("size", "dtype"), _ct_arange),
    "ct.mma": (("x", "y", "acc"), _ct_mma),
    "ct.matmul": (("x", "y"), _ct_mma),
    "ct.mma_scaled": (("x", "x_scale", "y", "y_scale", "acc"), _ct_mma_scaled),
    "ct.transpose": (("x",), _ct_transpose),
    "ct.extract": (("x", "index", "shape"), _ct_extract),
    **{f"ct.{name}": ((), _elementwise(op)) for name, op in _CT_BINARY.items()},
    **{f"ct.{name}": ((), _elementwise(name)) for name in _MATH},
    "ct.static_assert": ((), _silent),
    "ct.assert_": ((), _silent),
    "ct.printf": ((), _silent),
    # TileLang
    "T.Kernel": ((), _kernel),
    "T.alloc_shared": (("shape", "dtype"), _alloc("shared")),
    "T.alloc_fragment": (("shape", "dtype"), _alloc("local")),
    "T.alloc_local": (("shape", "dtype"), _alloc("local")),
    "T.alloc_tmem": (("shape", "dtype"), _alloc("tmem")),
    "T.alloc_var": (("dtype", "init"), _alloc_var),
    "T.copy": (("src", "dst"), _copy),
    "T.async_copy": (("src", "dst"), _async_copy),
    "T.gemm": (("A", "B", "C"), _gemm),
    "T.clear": (("buffer",), _fill),
    "T.fill": (("buffer", "value"), _fill),
    **{f"T.reduce_{op}": (("buffer", "out", "dim"), _reduce(op)) for op in _REDUCED},
    "T.Parallel": ((), _parallel),
    "T.serial": (_LOOP, _serial("for")),
    "T.Serial": (_LOOP, _serial("for")),
    "T.unroll": (_LOOP, _serial("static")),
    "T.Pipelined": (_LOOP, _serial("for")),
    "T.if_then_else": ((), _elementwise("where")),
    "T.Select": ((), _elementwise("where")),
    "T.max": ((), _elementwise("max")),
    "T.min": ((), _elementwise("min")),
    **{f"T.{name}": ((), _elementwise(name)) for name in _MATH},
    "T.ieee_add": ((), _elementwise("add")),
    "T.ieee_mul": ((), _elementwise("mul")),
    "T.cast": (("first", "second"), _tl_cast),
    "T.Cast": (("first", "second"), _tl_cast),
    "T.infinity": (("dtype",), _infinity),
    "T.atomic_add": (("dst", "value"), _tl_atomic("add")),
    "T.atomic_max": (("dst", "value"), _tl_atomic("max")),
    "T.view": (("buffer", "shape", "dtype"), _view),
    "T.reshape": (("buffer", "shape"), _view),
    "T.sync_threads": ((), _barrier("syncthreads")),
    "T.ptx_wait_group": (("count",), _wait("cp_async")),
    "T.use_swizzle": (("value",), _control("raster_swizzle")),
    **_table(("T.annotate_layout", "T.no_set_max_nreg", "T.device_assert", "T.print"), (), _silent),
    # the CuTe DSL
    "cute.const_expr": (("value",), _same),
    "cute.make_warp_uniform": (("value",), _same),
    "cute.range": (_LOOP, _serial("for")),
    "cute.range_dynamic": (_LOOP, _serial("for")),
    "cute.range_constexpr": (_LOOP, _serial("static")),
    "cute.thread_idx": ((), _three(Kind.THREAD_INDEX)),
    "cute.block_idx": ((), _three(Kind.BLOCK_INDEX)),
    "cute.block_dim": ((), _three(Kind.BLOCK_SIZE)),
    "cute.grid_dim": ((), _three(Kind.GRID_SIZE)),
    "cute.lane_idx": ((), _lane(Kind.LANE)),
    "cute.warp_idx": ((), _lane(Kind.WARP)),
    "cute.block_idx_in_cluster": ((), _lane(Kind.CLUSTER_RANK)),
    "cute.sync_threads": ((), _barrier("syncthreads")),
    "cute.barrier": ((), _barrier("syncthreads")),
    "cute.sync_warp": ((), _barrier("syncwarp")),
    **_table(("cute.cluster_arrive", "cute.cluster_wait", "cute.cluster_arrive_relaxed"), (), _barrier("cluster")),
    "cute.mbarrier_init": ((), _barrier("mbarrier_init")),
    "cute.mbarrier_arrive": ((), _barrier("mbarrier_arrive")),
    "cute.mbarrier_expect_tx": ((), _barrier("mbarrier_expect")),
    "cute.mbarrier_arrive_and_expect_tx": ((), _barrier("mbarrier_expect")),
    "cute.mbarrier_wait": ((), _barrier("mbarrier_wait")),
    "cute.mbarrier_try_wait": ((), _barrier("mbarrier_wait")),
    "cute.cp_async_commit_group": ((), _commit("cp_async")),
    "cute.cp_async_wait_group": (("count",), _wait("cp_async")),
    "cute.cp_async_bulk_commit_group": ((), _commit("bulk")),
    "cute.cp_async_bulk_wait_group": (("count",), _wait("bulk")),
    "cute.commit": ((), _commit("tcgen05")),
    **_table(
        ("cute.fence_proxy", "cute.fence_view_async_shared", "cute.mbarrier_init_fence", "cute.fence_acq_rel_cta"),
        (),
        _fence,
    ),
    "cute.setmaxregister_increase": (("value",), _control("setmaxnreg_inc")),
    "cute.setmaxregister_decrease": (("value",), _control("setmaxnreg_dec")),
    "cute.warpgroup_reg_alloc": (("value",), _control("setmaxnreg_inc")),
    "cute.warpgroup_reg_dealloc": (("value",), _control("setmaxnreg_dec")),
    "cute.griddepcontrol_wait": ((), _control("pdl_wait")),
    "cute.griddepcontrol_launch_dependents": ((), _control("pdl_launch")),
    "cute.prefetch_descriptor": ((), _control("prefetch")),
    "cute.shuffle_sync": ((), _shuffle("idx")),
    "cute.shuffle_sync_bfly": ((), _shuffle("xor")),
    "cute.shuffle_sync_up": ((), _shuffle("up")),
    "cute.shuffle_sync_down": ((), _shuffle("down")),
    **_table(("cute.warp_reduction", "cute.warp_reduction_sum", "cute.warp_reduction_max"), (), _shuffle("xor")),
    "cute.warp_redux_sync": ((), _instruction(Kind.REDUX, "sum")),
    "cute.vote_ballot_sync": ((), _instruction(Kind.VOTE, "ballot")),
    "cute.vote_any_sync": ((), _instruction(Kind.VOTE, "any")),
    "cute.vote_all_sync": ((), _instruction(Kind.VOTE, "all")),
    "cute.elect_one": ((), _elect),
    "cute.fmax": ((), _elementwise("max")),
    "cute.fmin": ((), _elementwise("min")),
    "cute.max": ((), _elementwise("max")),
    "cute.min": ((), _elementwise("min")),
    "cute.rcp_approx": ((), _elementwise("rcp", fast=True)),
    "cute.popc": ((), _elementwise("popc")),
    "cute.select_": ((), _elementwise("where")),
    "cute.where": ((), _elementwise("where")),
    **{f"cute.{name}": ((), _elementwise(op, packed=2)) for name, op in _PACKED.items()},
    **{f"cute.{name}": ((), _elementwise(name)) for name in _MATH},
    "cute.atomic_add": ((), _instruction(Kind.ATOMIC, "add")),
    "cute.gemm": (("mma", "d", "a", "b", "c"), _cute_gemm),
    **_table(
        ("cute.make_rmem_tensor", "cute.make_rmem_tensor_like", "cute.make_fragment", "cute.make_fragment_like"),
        (),
        _cute_alloc("local"),
    ),
    **_table(("cute.alloc_smem", "cute.get_dyn_smem"), (), _cute_alloc("shared")),
    "cute.alloc_tmem": ((), _cute_alloc("tmem")),
    "cute.printf": ((), _silent),
    "cute.assume": (("value",), _same),
}
