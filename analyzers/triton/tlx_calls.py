"""TLX, the low-level extensions of `triton.language.extra.tlx`: buffers, barriers, asynchronous work and tasks."""

from __future__ import annotations

from collections.abc import Mapping

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.triton.device import Args, Device, Handler
from d2k.analyzers.triton.gluon_calls import space
from d2k.analyzers.triton.values import UNKNOWN, DType, Literal, Named, Region, Value
from d2k.spec.facts import NONE, AttrValue, Kind

Attrs = dict[str, AttrValue]


def _local_alloc(device: Device, a: Args) -> Value:
    """A ring of `num` buffers: the first axis of the shape counts them."""
    storage = a.get("storage")
    where = "tmem" if isinstance(storage, Named) and storage.dotted.endswith("tmem") else "shared"
    count = a.op("num")
    shape = (*(() if count == NONE else (count,)), *device.shape_of(a.items("shape"), a.node))
    dtype = device.dtype(a.get("dtype")).name
    return device.b.emit(Kind.ALLOC, where, (), device.place(a.node), {"space": where}, dtype, shape)


def _alloc_barriers(device: Device, a: Args) -> Value:
    attrs: Attrs = {"space": "shared", "barrier": True}
    return device.b.emit(Kind.ALLOC, "shared", (), device.place(a.node), attrs, "i64", (a.op("num_barriers"),))


def _view(device: Device, a: Args) -> Value:
    buffer = a.op("buffer")
    draft = device.b.ops[buffer]
    args = (buffer, a.op("index"))
    shape = draft.shape[1:] if draft.shape else None
    return device.b.emit(Kind.SHAPE, "index", args, device.place(a.node), NO_ATTRS, draft.dtype, shape)


def _reshaped(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        buffer = a.op("buffer")
        shape = device.b.ops[buffer].shape if name == "reinterpret" else None
        if name == "trans":
            return device.transposed(buffer, a.node)
        value = device.reshaped("reshape" if name == "reinterpret" else name, buffer, shape, a.node)
        if a.has("dtype"):
            device.b.ops[value].dtype = device.dtype(a.get("dtype")).name
        return value

    return lower


def _local_load(device: Device, a: Args) -> Value:
    buffer = a.op("buffer")
    draft = device.b.ops[buffer]
    attrs: Attrs = {"space": space(device, buffer) or "shared", "via": "array"}
    return device.b.emit(Kind.LOAD, "load", (buffer, NONE), device.place(a.node), attrs, draft.dtype, draft.shape)


def _local_store(device: Device, a: Args) -> Value:
    buffer = a.op("buffer")
    attrs: Attrs = {"space": space(device, buffer) or "shared", "via": "array"}
    device.b.emit(Kind.STORE, "store", (buffer, a.op("value"), NONE), device.place(a.node), attrs)
    return Literal(None)


def _async_load(device: Device, a: Args) -> Value:
    args = (a.op("buffer"), a.op("source"), a.op("mask"))
    attrs: Attrs = {"direction": "load"}
    for key, name in (("cache_modifier", "cache"), ("eviction_policy", "eviction")):
        if a.text(key):
            attrs[name] = a.text(key)
    return device.b.emit(Kind.COPY, "cp_async", args, device.place(a.node), attrs)


def _descriptor_load(device: Device, a: Args) -> Value:
    coordinates = tuple(device.ref(one, a.node) for one in a.items("offsets"))
    attrs: Attrs = {"direction": "load", "tensor": True}
    if a.has("multicast_targets"):
        attrs["multicast"] = True
    args = (a.op("buffer"), a.op("desc"), a.op("barrier"), *coordinates)
    device.b.emit(Kind.COPY, "tma", args, device.place(a.node), attrs)
    return Literal(None)


def _descriptor_store(device: Device, a: Args) -> Value:
    coordinates = tuple(device.ref(one, a.node) for one in a.items("offsets"))
    attrs: Attrs = {"direction": "reduce" if a.text("store_reduce") else "store", "tensor": True}
    args = (a.op("desc"), a.op("buffer"), NONE, *coordinates)
    device.b.emit(Kind.COPY, "tma", args, device.place(a.node), attrs)
    return Literal(None)


def _commit(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = (a.op("barrier"),) if a.has("barrier") else ()
        return device.b.emit(Kind.COMMIT, name, args, device.place(a.node))

    return lower


def _wait(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        outstanding = a.integer("pendings") if a.has("pendings") else 0
        attrs: Attrs = {} if outstanding is None else {"outstanding": outstanding}
        device.b.emit(Kind.WAIT, name, (), device.place(a.node), attrs)
        return a.value("value")

    return lower


def _async_dot(device: Device, a: Args) -> Value:
    """`tcgen05` where the accumulator lives in tensor memory, `wgmma` where it is a register tile."""
    left, right, accumulator = a.op("a"), a.op("b"), a.op("acc")
    x, y = device.b.ops[left], device.b.ops[right]
    in_tmem = accumulator != NONE and space(device, accumulator) == "tmem"
    attrs: Attrs = {"instr": "tcgen05" if in_tmem else "wgmma", "async": True}
    for key, dtype in (("a_dtype", x.dtype), ("b_dtype", y.dtype)):
        if dtype is not None:
            attrs[key] = dtype
    result = device.b.ops[accumulator] if accumulator != NONE else None
    out = device.dtype(a.get("out_dtype")).name if a.has("out_dtype") else (result.dtype if result else "f32")
    attrs["acc_dtype"] = out or "f32"
    if a.flag("two_ctas"):
        attrs["cta_group"] = 2
    if a.has("a_scale"):
        attrs["scaled"] = True
    shape = result.shape if result is not None else None
    scales = (a.op("a_scale"), a.op("b_scale")) if a.has("a_scale") else ()
    args = (left, right, accumulator, *scales)
    return device.b.emit(Kind.MMA, str(attrs["instr"]), args, device.place(a.node), attrs, out, shape)


def _barrier(name: str, *operands: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = tuple(a.op(one) for one in operands)
        attrs: Attrs = {}
        known = a.literal("size")
        if isinstance(known, int):
            attrs["bytes"] = known
        device.b.emit(Kind.BARRIER, name, args, device.place(a.node), attrs)
        return Literal(None)

    return lower


def _fence(device: Device, a: Args) -> Value:
    device.b.emit(Kind.FENCE, "", (), device.place(a.node), {"proxy": "async", "scope": "cta"})
    return Literal(None)


def _async_tasks(device: Device, a: Args) -> Value:
    return Region("", {})


def _async_task(device: Device, a: Args) -> Value:
    """One role: its operations carry a name that tells it from the others of the kernel."""
    role = a.text("role")
    taken = {draft.partition for draft in device.b.ops if draft.partition}
    name = role or f"task{len(taken)}"
    attrs: Attrs = {"default": role == "default"}
    for key, what in (
        ("num_warps", "warps"),
        ("num_regs", "registers"),
        ("registers", "registers"),
        ("replicate", "replicas"),
    ):
        if a.has(key):
            known = a.const(key)
            attrs[what] = None if known is UNKNOWN else known
    return Region(name, attrs)


def _value(kind: Kind, name: str = "", **attrs: AttrValue) -> Handler:
    return lambda device, a: device.b.emit(kind, name, (), device.place(a.node), dict(attrs), "i32", ())


def _dtype_of(device: Device, a: Args) -> Value:
    source = a.get("value")
    return DType(device.b.ops[source].dtype, source) if isinstance(source, int) else DType(None)


HANDLERS: Mapping[str, tuple[tuple[str, ...], Handler]] = {
    "local_alloc": (("shape", "dtype", "num", "storage"), _local_alloc),
    "alloc_barriers": (("num_barriers", "arrive_count"), _alloc_barriers),
    "local_view": (("buffer", "index"), _view),
    "subslice": (("buffer", "offset", "size"), _reshaped("slice")),
    "local_slice": (("buffer", "offset", "shape"), _reshaped("slice")),
    "local_trans": (("buffer", "dims"), _reshaped("trans")),
    "local_reinterpret": (("buffer", "dtype", "shape"), _reshaped("reinterpret")),
    "local_load": (("buffer", "token"), _local_load),
    "local_store": (("buffer", "value"), _local_store),
    "async_load": (("source", "buffer", "mask", "other", "cache_modifier", "eviction_policy"), _async_load),
    "async_load_commit_group": (("tokens",), _commit("cp_async")),
    "async_load_wait_group": (("pendings", "tokens"), _wait("cp_async")),
    "async_descriptor_load": (
        ("desc", "buffer", "offsets", "barrier", "pred", "cache_modifier", "eviction_policy", "multicast_targets"),
        _descriptor_load,
    ),
    "async_descriptor_store": (("desc", "buffer", "offsets", "eviction_policy", "store_reduce"), _descriptor_store),
    "async_descriptor_store_wait": (("pendings",), _wait("bulk")),
    "async_dot": (("a", "b", "acc", "use_acc", "pred", "mBarriers", "two_ctas", "force_async"), _async_dot),
    "async_dot_scaled": (
        ("a", "b", "acc", "a_scale", "a_format", "b_scale", "b_format", "use_acc", "pred", "mBarriers", "two_ctas"),
        _async_dot,
    ),
    "async_dot_wait": (("pendings", "value"), _wait("wgmma")),
    "tcgen05_commit": (("barrier",), _commit("tcgen05")),
    "barrier_expect_bytes": (("barrier", "size", "pred"), _barrier("mbarrier_expect", "barrier", "size")),
    "barrier_wait": (("barrier", "phase", "pred"), _barrier("mbarrier_wait", "barrier", "phase")),
    "barrier_arrive": (("barrier", "count"), _barrier("mbarrier_arrive", "barrier")),
    "named_barrier_wait": (("id", "threads"), _barrier("named", "id", "threads")),
    "named_barrier_arrive": (("id", "threads"), _barrier("named", "id", "threads")),
    "cluster_barrier": ((), _barrier("cluster")),
    "fence_async_shared": ((), _fence),
    "async_tasks": ((), _async_tasks),
    "async_task": (("role", "num_warps", "num_regs", "replicate"), _async_task),
    "async_task_replica_id": ((), _value(Kind.WARP, "replica", group=True)),
    "thread_id": (("axis",), _value(Kind.THREAD_INDEX, axis=0)),
    "cluster_cta_rank": ((), _value(Kind.CLUSTER_RANK)),
    "cluster_cta_id": ((), _value(Kind.CLUSTER_RANK)),
    "dtype_of": (("value",), _dtype_of),
    "require_layout": (("value",), lambda device, a: a.value("value")),
}
