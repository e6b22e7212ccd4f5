"""What the functions of `triton.language` and the methods of tiles are lowered to."""

from __future__ import annotations

from collections.abc import Mapping

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.triton import dsl_calls, gluon_calls, inline_asm, tlx_calls
from d2k.analyzers.triton.combine import combine_name
from d2k.analyzers.triton.device import LANGUAGES, UNSAID, Args, Device, Handler
from d2k.analyzers.triton.lowering import Call
from d2k.analyzers.triton.types import SCALE_FORMATS, is_float, words
from d2k.analyzers.triton.values import (
    UNKNOWN,
    Bound,
    Dict,
    DType,
    Element,
    Layout,
    Literal,
    Named,
    Opaque,
    Tup,
    Value,
)
from d2k.spec.facts import NONE, AttrValue, Kind

Attrs = dict[str, AttrValue]

UNARY: Mapping[str, str] = {
    name: name
    for name in [
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "abs",
        "floor",
        "ceil",
        "erf",
        "sigmoid",
        "tanh",
    ]
} | {"sqrt_rn": "sqrt", "rcp": "rcp"}
BINARY: Mapping[str, str] = {
    "maximum": "max",
    "minimum": "min",
    "fdiv": "div",
    "div_rn": "div",
    "umulhi": "mulhi",
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "pow": "pow",
}
LIBDEVICE: Mapping[str, tuple[str, bool]] = {
    "fast_expf": ("exp", True),
    "fast_exp2f": ("exp2", True),
    "fast_logf": ("log", True),
    "fast_log2f": ("log2", True),
    "fast_sinf": ("sin", True),
    "fast_cosf": ("cos", True),
    "fast_tanhf": ("tanh", True),
    "fast_dividef": ("div", True),
    "fast_powf": ("pow", True),
    "rcp_rn": ("rcp", False),
    "rcp_rz": ("rcp", False),
    "rsqrt_rn": ("rsqrt", False),
    "sqrt_rn": ("sqrt", False),
    "div_rn": ("div", False),
    "fma_rn": ("fma", False),
    "add_rn": ("add", False),
    "mul_rn": ("mul", False),
    "ffs": ("ffs", False),
}
"""Functions of libdevice that the vocabulary knows by another name, and whether they are fast approximations."""

SILENT = frozenset({"static_print", "static_assert", "device_print", "device_assert", "print"})
ATOMICS: Mapping[str, str] = {
    "atomic_add": "add",
    "atomic_max": "max",
    "atomic_min": "min",
    "atomic_xchg": "exch",
    "atomic_and": "and",
    "atomic_or": "or",
    "atomic_xor": "xor",
}
REDUCTIONS: Mapping[str, str] = {
    "sum": "sum",
    "max": "max",
    "min": "min",
    "argmax": "argmax",
    "argmin": "argmin",
    "xor_sum": "xor",
    "reduce_or": "or",
    "prod": "prod",
}
RANDOM = frozenset({"rand", "randn", "randint", "rand4x", "randn4x", "randint4x", "philox", "uint_to_uniform_float"})


# dispatch


def named_call(device: Device, dotted: str, call: Call) -> Value:
    """A call of a function by its dotted name."""
    if dotted.startswith("builtins."):
        return _builtin(device, dotted[9:], call)
    made = gluon_calls.layout(dotted, call.args, call.keywords)
    if made is not None:
        return made
    special = dsl_calls.handler(dotted)
    if special is not None:
        return special[1](device, Args(device, call.node, special[0], call))
    name = _language_name(dotted)
    if name is not None:
        handler = _handler(name)
        if handler is not None:
            names, lower = handler
            return lower(device, Args(device, call.node, names, call))
        if "libdevice." in dotted or ".math." in dotted:
            return _libdevice(device, dotted.rpartition(".")[2], call)
        if name in SILENT:
            return Literal(None)
    if dsl_calls.known_language(dotted):
        return device.known_call(dotted, call)
    constant = device.evaluated(dotted, call)
    return device.unresolved(dotted, call) if constant is None else constant


def _handler(name: str) -> tuple[tuple[str, ...], Handler] | None:
    if name.startswith("tlx."):
        return tlx_calls.HANDLERS.get(name[4:])
    return HANDLERS.get(name) or gluon_calls.HANDLERS.get(name)


_INNER = (
    "math.",
    "extra.libdevice.",
    "extra.cuda.libdevice.",
    "extra.cuda.",
    "extra.",
    "nvidia.ampere.",
    "nvidia.hopper.",
    "nvidia.blackwell.",
    "nvidia.rubin.",
)
"""Modules inside a kernel language whose functions go by their own names."""


def _language_name(dotted: str) -> str | None:
    """The function's name inside its kernel language, None for everything else."""
    for prefix in LANGUAGES:
        if dotted.startswith(prefix):
            rest = dotted[len(prefix) :]
            for inner in _INNER:
                if rest.startswith(inner):
                    return rest[len(inner) :]
            return rest
    for prefix in ("triton.", "cuda.tile.", "tilelang.language."):
        if dotted.startswith(prefix):
            name = dotted[len(prefix) :]
            return TILE_NAMES.get(name, name)
    return None


TILE_NAMES: Mapping[str, str] = {"astype": "cast", "bitcast": "cast", "ceildiv": "cdiv", "keepdims": "keep_dims"}
"""Functions of other tile languages that Triton has by another name."""


def method_call(device: Device, owner: Value, name: str, call: Call) -> Value:
    """A call of a method of a tile, a descriptor or a compile-time value."""
    node = call.node
    match owner:
        case int():
            view = gluon_calls.memory_method(device, owner, name, call)
            if view is None and device.language in UNSAID:
                view = dsl_calls.memory_method(device, owner, name, call)
            if view is not None:
                return view
            if name in DESCRIPTOR_METHODS and not (name.startswith("atomic_") and _is_tile(device, owner)):
                names, lower = DESCRIPTOR_METHODS[name]
                return lower(device, Args(device, node, names, Call(node, (owner, *call.args), call.keywords)))
            known = TILE_NAMES.get(name, name)
            if known in METHODS and known in HANDLERS:
                names, lower = HANDLERS[known]
                return lower(device, Args(device, node, names, Call(node, (owner, *call.args), call.keywords)))
        case DType(dtype):
            return _dtype_method(device, owner, dtype, name, call)
        case Layout():
            return Opaque("layout")
        case Dict(items):
            if name == "get" and call.args:
                key = device.constant(call.args[0])
                if key is not UNKNOWN:
                    return items.get(key, call.args[1] if len(call.args) > 1 else Literal(None))
        case Bound(_, attribute):
            # a name inside an object that cannot be followed
            return device.unresolved(f"{attribute}.{name}", call)
        case Named(dotted):
            return named_call(device, f"{dotted}.{name}", call)
        case Opaque(what) if device.language not in UNSAID:
            return device.unresolved(f"{what}.{name}", call)
        case Element() if name in ("load", "store"):
            return method_call(device, device.ref(owner, node), name, call)
        case _:
            pass
    if device.language in UNSAID:
        return device.known_call(f".{name}", call)
    return device.unresolved(f".{name}", call)


def _is_tile(device: Device, value: int) -> bool:
    return via(device, value) == "pointer" and bool(device.b.ops[value].shape)


def _dtype_method(device: Device, owner: DType, dtype: str | None, name: str, call: Call) -> Value:
    if dtype is not None:
        match name:
            case "is_floating":
                return Literal(is_float(dtype))
            case "is_fp8":
                return Literal(dtype.startswith("f8"))
            case "is_int":
                return Literal(not is_float(dtype))
            case "is_ptr":
                return Literal(False)
            case _:
                pass
    if owner.of != NONE:
        return device.b.emit(
            Kind.ATTRIBUTE, f"dtype.{name}", (owner.of,), device.place(call.node), NO_ATTRS, "bool", ()
        )
    return device.unresolved(f".{name}", call)


def _builtin(device: Device, name: str, call: Call) -> Value:
    node, args = call.node, call.args
    match name:
        case "range":
            return device.range_value("for", Args(device, node, ("arg1", "arg2", "step"), call), NO_ATTRS)
        case "min" | "max" if len(args) >= 2:
            result = args[0]
            for one in args[1:]:
                result = device.binary(name, result, one, node)
            return result
        case "min" | "max" | "abs" | "sum" if len(args) == 1 and not isinstance(args[0], Tup):
            return named_call(device, f"triton.language.{name}", call)
        case "len" if len(args) == 1:
            match args[0]:
                case Tup(items):
                    return Literal(len(items))
                case Dict(entries):
                    return Literal(len(entries))
                case Literal(str() as text):
                    return Literal(len(text))
                case int() as value if (shape := device.b.ops[value].shape) is not None:
                    return Literal(len(shape))
                case _:
                    pass
        case "float" | "int" | "bool" if len(args) == 1:
            if isinstance(args[0], Literal):
                try:
                    made = {"float": float, "int": int, "bool": bool}[name](args[0].value)
                    return Literal(made)
                except (TypeError, ValueError, OverflowError):
                    return device.unresolved(name, call)
            return device.cast(
                device.ref(args[0], node), DType({"float": "f32", "int": "i32", "bool": "bool"}[name]), node
            )
        case "print":
            return Literal(None)
        case "isinstance" if len(args) == 2 and _is_descriptor_check(device, args[0], args[1]):
            return Literal(True)
        case "isinstance" | "hasattr":
            return device.b.emit(Kind.CALL, name, (), device.place(node), NO_ATTRS, "bool", ())
        case "tuple" | "list" if len(args) == 1 and isinstance(args[0], Tup):
            return args[0]
        case "zip" if all(isinstance(one, Tup) for one in args):
            columns = [one.items for one in args if isinstance(one, Tup)]
            return Tup(tuple(Tup(row) for row in zip(*columns, strict=False)))
        case "enumerate" if len(args) == 1 and isinstance(args[0], Tup):
            return Tup(tuple(Tup((Literal(at), one)) for at, one in enumerate(args[0].items)))
        case _:
            pass
    return device.unresolved(name, call)


def _is_descriptor_check(device: Device, value: Value, kind: Value) -> bool:
    """Whether `isinstance` asks for a tensor descriptor of something that is known to be one."""
    asked = isinstance(kind, Named) and kind.dotted.endswith(("tensor_descriptor", "tensor_descriptor_base"))
    if not asked or not isinstance(value, int):
        return False
    draft = device.b.ops[value]
    return draft.kind is Kind.DESCRIPTOR or (draft.kind is Kind.PARAM and draft.name in device.blocks)


def _libdevice(device: Device, name: str, call: Call) -> Value:
    """Functions of libdevice are pure and elementwise."""
    known, fast = LIBDEVICE.get(name, (name, False))
    args = tuple(device.ref(one, call.node) for one in (*call.args, *call.keywords.values()))
    return device.elementwise(known, args, call.node, {"fast": True} if fast else NO_ATTRS)


# indices and tiles


def _program_id(device: Device, a: Args) -> Value:
    axis = a.integer("axis")
    return device.b.emit(Kind.BLOCK_INDEX, "", (), device.place(a.node), {"axis": axis or 0}, "i32", ())


def _num_programs(device: Device, a: Args) -> Value:
    axis = a.integer("axis")
    return device.b.emit(Kind.GRID_SIZE, "", (), device.place(a.node), {"axis": axis or 0}, "i32", ())


def _arange(device: Device, a: Args) -> Value:
    start, stop = a.value("start"), a.get("end")
    if stop is None:
        start, stop = Literal(0), start
    low, high = device.ref(start, a.node), device.ref(stop, a.node)
    extent = high if device.b.known[low] == 0 else device.operation("sub", (high, low), a.node)
    return device.b.emit(Kind.ARANGE, "", (low, high), device.place(a.node), NO_ATTRS, "i32", (extent,))


def _full(device: Device, a: Args) -> Value:
    shape = device.shape_of(a.items("shape"), a.node)
    value = a.get("value")
    filled = device.ref(Literal(0.0) if value is None else value, a.node)
    dtype = device.dtype(a.get("dtype"))
    return device.b.emit(Kind.FULL, "", (filled,), device.place(a.node), NO_ATTRS, dtype.name, shape)


def _full_like(device: Device, a: Args) -> Value:
    like = device.b.ops[a.op("input")] if a.has("input") else None
    filled = device.ref(a.value("value", Literal(0.0)), a.node)
    dtype = device.dtype(a.get("dtype")).name if a.has("dtype") else (like.dtype if like else None)
    return device.b.emit(Kind.FULL, "", (filled,), device.place(a.node), NO_ATTRS, dtype, like.shape if like else None)


def _cdiv(device: Device, a: Args) -> Value:
    x, y = a.value("x"), a.value("div")
    rounded = device.binary("sub", device.binary("add", x, y, a.node), Literal(1), a.node)
    result = device.binary("floordiv", rounded, y, a.node)
    if isinstance(result, int):
        device.b.ops[result].attrs = {"cdiv": True}
    return result


def _next_power_of_2(device: Device, a: Args) -> Value:
    known = a.const("n")
    if isinstance(known, int) and not isinstance(known, bool):
        return Literal(1 << max(0, known - 1).bit_length())
    return device.b.emit(Kind.CALL, "next_power_of_2", (a.op("n"),), device.place(a.node), NO_ATTRS, "i32", ())


def _pointer_type(device: Device, a: Args) -> Value:
    return DType(None)


def _log2(device: Device, a: Args) -> Value:
    known = a.const("i")
    if isinstance(known, int) and not isinstance(known, bool) and known > 0:
        return Literal(known.bit_length() - 1)
    return device.b.emit(Kind.CALL, "log2", (a.op("i"),), device.place(a.node), NO_ATTRS, "i32", ())


def _cast(device: Device, a: Args) -> Value:
    value = a.op("input")
    return device.cast(value, device.dtype(a.get("dtype")), a.node, a.flag("bitcast"))


def _to_tensor(device: Device, a: Args) -> Value:
    return a.op("input")


def _constexpr(device: Device, a: Args) -> Value:
    return a.value("input")


def _expand_dims(device: Device, a: Args) -> Value:
    value = a.op("input")
    shape = device.b.ops[value].shape
    axes = a.integers("axis")
    new = None
    if shape is not None and axes:
        rank = len(shape) + len(axes)
        places = {at % rank for at in axes}
        kept = iter(shape)
        new = tuple(device.one(a.node) if at in places else next(kept) for at in range(rank))
    return device.reshaped("expand_dims", value, new, a.node, {"axes": axes})


def _broadcast_to(device: Device, a: Args) -> Value:
    value = a.op("input")
    items = a.items("shape") + a.rest
    return device.reshaped("broadcast", value, device.shape_of(items, a.node), a.node)


def _broadcast(device: Device, a: Args) -> Value:
    left, right = a.op("input"), a.op("other")
    shape = device.broadcast((left, right))
    return Tup((device.reshaped("broadcast", left, shape, a.node), device.reshaped("broadcast", right, shape, a.node)))


def _reshape(device: Device, a: Args) -> Value:
    items = a.items("shape") + a.rest
    return device.reshaped("reshape", a.op("input"), device.shape_of(items, a.node), a.node)


def _ravel(device: Device, a: Args) -> Value:
    value = a.op("x")
    shape = device.b.ops[value].shape
    if not shape:
        return value
    total: Value = shape[0]
    for dim in shape[1:]:
        total = device.binary("mul", total, dim, a.node)
    return device.reshaped("reshape", value, (device.ref(total, a.node),), a.node)


def _trans(device: Device, a: Args) -> Value:
    value = a.op("input")
    items = a.items("dims") + a.rest
    if not items:
        return device.transposed(value, a.node)
    shape = device.b.ops[value].shape
    order = [device.constant(one) for one in items]
    new = None
    if shape is not None and len(order) == len(shape) and all(isinstance(one, int) for one in order):
        new = tuple(shape[int(one)] for one in order if isinstance(one, int) and -len(shape) <= one < len(shape))
        new = new if len(new) == len(shape) else None
    known = tuple(one for one in order if isinstance(one, int))
    return device.reshaped("permute", value, new, a.node, {"order": known})


def _join(device: Device, a: Args) -> Value:
    left, right = a.op("a"), a.op("b")
    shape = device.broadcast((left, right))
    new = None if shape is None else (*shape, device.b.const(2, device.place(a.node)))
    return device.b.emit(
        Kind.SHAPE, "join", (left, right), device.place(a.node), NO_ATTRS, device.b.ops[left].dtype, new
    )


def _interleave(device: Device, a: Args) -> Value:
    joined = _join(device, a)
    assert isinstance(joined, int)
    shape = device.b.ops[joined].shape
    new = None
    if shape is not None and len(shape) >= 2:
        new = (*shape[:-2], device.ref(device.binary("mul", shape[-2], shape[-1], a.node), a.node))
    return device.reshaped("reshape", joined, new, a.node)


def _split(device: Device, a: Args) -> Value:
    value = a.op("a")
    draft = device.b.ops[value]
    shape = draft.shape[:-1] if draft.shape else None
    whole = device.b.emit(Kind.SHAPE, "split", (value,), device.place(a.node), NO_ATTRS, draft.dtype, shape)
    return Tup(items(device, whole, 2, a.node), whole)


def items(device: Device, whole: int, count: int, node: object) -> tuple[int, ...]:
    """ITEM operations for the results of a multi-valued operation."""
    draft = device.b.ops[whole]
    return tuple(
        device.b.emit(Kind.ITEM, "", (whole,), draft.place, {"index": at}, draft.dtype, draft.shape)
        for at in range(count)
    )


def _cat(device: Device, a: Args) -> Value:
    left, right = a.op("input"), a.op("other")
    return device.b.emit(
        Kind.SHAPE, "cat", (left, right), device.place(a.node), NO_ATTRS, device.b.ops[left].dtype, None
    )


def _flip(device: Device, a: Args) -> Value:
    value = a.op("x")
    return device.reshaped("flip", value, device.b.ops[value].shape, a.node)


def _gather(device: Device, a: Args) -> Value:
    source, index = a.op("src"), a.op("index")
    draft = device.b.ops[source]
    attrs: Attrs = {"axis": a.integer("axis")}
    return device.b.emit(
        Kind.SHAPE,
        "gather",
        (source, index),
        device.place(a.node),
        attrs,
        draft.dtype,
        device.b.ops[index].shape if index != NONE else None,
    )


# memory


def via(device: Device, address: int) -> str:
    """How an address is formed: pointer, block_pointer or descriptor."""
    seen = 0
    while seen < 64:
        seen += 1
        draft = device.b.ops[address]
        if draft.kind is Kind.DESCRIPTOR:
            return "descriptor"
        if draft.kind is Kind.SHAPE and draft.name == "block_pointer":
            return "block_pointer"
        follow = draft.kind is Kind.PHI or (draft.kind is Kind.SHAPE and draft.name in ("advance", "index"))
        if not follow or not draft.args:
            return "pointer"
        address = draft.args[1] if draft.kind is Kind.PHI and draft.name == "if" else draft.args[0]
        if address < 0:
            return "pointer"
    return "pointer"


def _access(device: Device, a: Args, address: int) -> Attrs:
    attrs: Attrs = {"space": "global", "via": via(device, address)}
    for key, name in (("eviction_policy", "eviction"), ("cache_modifier", "cache")):
        text = a.text(key)
        if text:
            attrs[name] = text
        elif a.has(key) and a.const(key) is UNKNOWN:
            attrs[name] = "unknown"
    if a.flag("volatile"):
        attrs["volatile"] = True
    if a.has("boundary_check"):
        attrs["boundary_check"] = a.integers("boundary_check") or "unknown"
    return attrs


def _load(device: Device, a: Args) -> Value:
    address, mask = a.op("pointer"), a.op("mask")
    other = a.op("other")
    args = (address, mask) if other == NONE else (address, mask, other)
    shape = device.broadcast((address, mask))
    attrs = _access(device, a, address)
    if other != NONE:
        attrs["other"] = True
    dtype = device.element_type(address)
    return device.b.emit(Kind.LOAD, "load", args, device.place(a.node), attrs, dtype, shape)


def _store(device: Device, a: Args) -> Value:
    address, value = a.op("pointer"), a.op("value")
    args = (address, value, a.op("mask"))
    attrs = _access(device, a, address)
    device.b.emit(Kind.STORE, "store", args, device.place(a.node), attrs, device.b.ops[value].dtype, None)
    return Literal(None)


def _ordering(a: Args) -> Attrs:
    attrs: Attrs = {}
    for key in ("sem", "scope"):
        text = a.text(key)
        if text:
            attrs[key] = text
    return attrs


def _atomic(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        address, value, mask = a.op("pointer"), a.op("val"), a.op("mask")
        attrs: Attrs = {"space": "global", "via": "pointer", **_ordering(a)}
        shape = device.broadcast((address, value))
        return device.b.emit(
            Kind.ATOMIC, name, (address, value, mask), device.place(a.node), attrs, device.b.ops[value].dtype, shape
        )

    return lower


def _atomic_cas(device: Device, a: Args) -> Value:
    address, compare, value = a.op("pointer"), a.op("cmp"), a.op("val")
    attrs: Attrs = {"space": "global", "via": "pointer", **_ordering(a)}
    args = (address, value, NONE, compare)
    return device.b.emit(
        Kind.ATOMIC, "cas", args, device.place(a.node), attrs, device.b.ops[value].dtype, device.b.ops[address].shape
    )


def _atomic_load(device: Device, a: Args) -> Value:
    address, mask = a.op("pointer"), a.op("mask")
    attrs: Attrs = {"space": "global", "via": "pointer", "sem": "relaxed", **_ordering(a)}
    return device.b.emit(
        Kind.LOAD, "atomic_load", (address, mask), device.place(a.node), attrs, None, device.b.ops[address].shape
    )


def _atomic_store(device: Device, a: Args) -> Value:
    address, value, mask = a.op("pointer"), a.op("val"), a.op("mask")
    attrs: Attrs = {"space": "global", "via": "pointer", "sem": "relaxed", **_ordering(a)}
    device.b.emit(Kind.STORE, "atomic_store", (address, value, mask), device.place(a.node), attrs)
    return Literal(None)


def _atomic_poll(device: Device, a: Args) -> Value:
    """Waits until a word has a value: a loop around an ordered load, which stands for it here."""
    address = a.op("pointer")
    attrs: Attrs = {"space": "global", "via": "pointer", "sem": "acquire", "poll": True, **_ordering(a)}
    return device.b.emit(
        Kind.LOAD, "atomic_poll", (address, NONE, a.op("expected_value")), device.place(a.node), attrs, None, ()
    )


def _make_block_ptr(device: Device, a: Args) -> Value:
    groups = [a.items(name) for name in ("shape", "strides", "offsets")]
    args = (a.op("base"), *(device.ref(one, a.node) for group in groups for one in group))
    block = device.shape_of(a.items("block_shape"), a.node)
    attrs: Attrs = {"rank": len(block), "order": a.integers("order")}
    return device.b.emit(Kind.SHAPE, "block_pointer", args, device.place(a.node), attrs, None, block)


def _advance(device: Device, a: Args) -> Value:
    base = a.op("base")
    args = (base, *(device.ref(one, a.node) for one in a.items("offsets")))
    return device.b.emit(Kind.SHAPE, "advance", args, device.place(a.node), NO_ATTRS, None, device.b.ops[base].shape)


def _make_descriptor(device: Device, a: Args) -> Value:
    args = (
        a.op("base"),
        *(device.ref(one, a.node) for name in ("shape", "strides") for one in a.items(name)),
    )
    block = device.shape_of(a.items("block_shape"), a.node)
    attrs: Attrs = {"host": False, "rank": len(block)}
    sizes = tuple(device.b.known[one] for one in block)
    if all(device.b.ops[one].kind is Kind.CONST for one in block) and UNKNOWN not in sizes:
        attrs["block"] = tuple(one for one in sizes if one is not UNKNOWN)
    return device.b.emit(Kind.DESCRIPTOR, "", args, device.place(a.node), attrs, None, block)


def _descriptor_attrs(a: Args) -> Attrs:
    attrs: Attrs = {"space": "global", "via": "descriptor"}
    for key, name in (("eviction_policy", "eviction"), ("cache_modifier", "cache")):
        if a.text(key):
            attrs[name] = a.text(key)
    return attrs


def _descriptor_load(device: Device, a: Args) -> Value:
    descriptor = a.op("desc")
    indices = tuple(device.ref(one, a.node) for one in a.items("offsets"))
    return device.b.emit(
        Kind.LOAD,
        "load",
        (descriptor, NONE, *indices),
        device.place(a.node),
        _descriptor_attrs(a),
        device.element_type(descriptor),
        device.block_shape(descriptor, a.node),
    )


def _descriptor_store(device: Device, a: Args) -> Value:
    descriptor, value = a.op("desc"), a.op("value")
    indices = tuple(device.ref(one, a.node) for one in a.items("offsets"))
    attrs = _descriptor_attrs(a)
    device.b.emit(
        Kind.STORE, "store", (descriptor, value, NONE, *indices), device.place(a.node), attrs, device.b.ops[value].dtype
    )
    return Literal(None)


def _descriptor_gather(device: Device, a: Args) -> Value:
    rows, column = a.op("x_offsets"), a.op("y_offset")
    descriptor = a.op("desc")
    return device.b.emit(
        Kind.LOAD, "gather", (descriptor, NONE, rows, column), device.place(a.node), _descriptor_attrs(a), None, None
    )


def _descriptor_scatter(device: Device, a: Args) -> Value:
    args = (a.op("desc"), a.op("value"), NONE, a.op("x_offsets"), a.op("y_offset"))
    device.b.emit(Kind.STORE, "scatter", args, device.place(a.node), _descriptor_attrs(a))
    return Literal(None)


def _descriptor_atomic(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        indices = tuple(device.ref(one, a.node) for one in a.items("offsets"))
        args = (a.op("desc"), a.op("value"), NONE, *indices)
        value = device.b.ops[args[1]]
        device.b.emit(Kind.ATOMIC, name, args, device.place(a.node), _descriptor_attrs(a), value.dtype, value.shape)
        return Literal(None)

    return lower


# matrix products, reductions and scans


def _dot(device: Device, a: Args) -> Value:
    left, right, accumulator = a.op("input"), a.op("other"), a.op("acc")
    x, y = device.b.ops[left], device.b.ops[right]
    out = device.dtype(a.get("out_dtype")).name if a.has("out_dtype") else None
    if out is None and accumulator != NONE:
        out = device.b.ops[accumulator].dtype
    integers = x.dtype is not None and not is_float(x.dtype)
    out = out or ("i32" if integers else "f32")
    attrs: Attrs = {"instr": "any", "acc_dtype": out}
    for key, dtype in (("a_dtype", x.dtype), ("b_dtype", y.dtype)):
        if dtype is not None:
            attrs[key] = dtype
    if a.text("input_precision"):
        attrs["input_precision"] = a.text("input_precision")
    if a.has("allow_tf32"):
        attrs["input_precision"] = "tf32" if a.const("allow_tf32") is not False else "ieee"
    return device.b.emit(
        Kind.MMA,
        "dot",
        (left, right, accumulator),
        device.place(a.node),
        attrs,
        out,
        _product(device, x.shape, y.shape),
    )


def _product(device: Device, left: tuple[int, ...] | None, right: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if left is None or right is None or len(left) < 2 or len(right) < 2:
        return None
    return (*left[:-1], right[-1])


def _dot_scaled(device: Device, a: Args) -> Value:
    left, right, accumulator = a.op("lhs"), a.op("rhs"), a.op("acc")
    scales = (a.op("lhs_scale"), a.op("rhs_scale"))
    formats = (a.text("lhs_format"), a.text("rhs_format"))
    attrs: Attrs = {"instr": "any", "acc_dtype": "f32"}
    for key, word in zip(("a_dtype", "b_dtype"), formats, strict=True):
        if word in SCALE_FORMATS:
            attrs[key] = SCALE_FORMATS[word]
    attrs["scaled"] = _scaling(device, formats, scales)
    shape = _product(device, device.b.ops[left].shape, device.b.ops[right].shape)
    args = (left, right, accumulator, *scales)
    return device.b.emit(Kind.MMA, "dot_scaled", args, device.place(a.node), attrs, "f32", shape)


def _scaling(device: Device, formats: tuple[str, str], scales: tuple[int, int]) -> AttrValue:
    """The block-scaled format, true where the operands do not tell: FP4 comes with either scale type."""
    if all(one in ("e4m3", "e5m2") for one in formats):
        return "mxfp8"
    if all(one == "e2m1" for one in formats):
        types = {device.b.ops[one].dtype for one in scales if one != NONE}
        if types == {"f8e4m3"}:
            return "nvfp4"
        if types and types <= {"f8e8m0", "u8"}:
            return "mxfp4"
    return True


def _reduced(device: Device, value: int, axis: int | None, keep: bool, node: object) -> tuple[int, ...] | None:
    draft = device.b.ops[value]
    if draft.shape is None:
        return None
    if axis is None:
        return ()
    rank = len(draft.shape)
    if not -rank <= axis < rank:
        return None
    at = axis % rank
    middle = (device.b.const(1, draft.place),) if keep else ()
    return (*draft.shape[:at], *middle, *draft.shape[at + 1 :])


def _reduction(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        value = a.op("input")
        axis = a.integer("axis")
        keep = a.flag("keep_dims")
        attrs: Attrs = {} if a.has("axis") and axis is None else {"axis": axis}
        if keep:
            attrs["keep_dims"] = True
        shape = _reduced(device, value, axis, keep, a.node) if not a.has("axis") or axis is not None else None
        source = device.b.ops[value].dtype
        dtype = "i32" if name.startswith("arg") else source
        if name == "sum" and a.has("dtype"):
            dtype = device.dtype(a.get("dtype")).name
        place = device.place(a.node)
        result = device.b.emit(Kind.REDUCE, name, (value,), place, attrs, dtype, shape)
        if name in ("max", "min") and a.flag("return_indices"):
            which = device.b.emit(Kind.REDUCE, f"arg{name}", (value,), place, attrs, "i32", shape)
            return Tup((result, which))
        return result

    return lower


def _reduce(device: Device, a: Args) -> Value:
    return _combined(device, a, Kind.REDUCE)


def _associative_scan(device: Device, a: Args) -> Value:
    return _combined(device, a, Kind.SCAN)


def _combined(device: Device, a: Args, kind: Kind) -> Value:
    """A reduction or scan with a combine function; with several operands its results are items."""
    inputs = a.get("input")
    operands = tuple(device.ref(one, a.node) for one in a.items("input"))
    axis = a.integer("axis")
    word = combine_name(device, a.get("combine_fn"), len(operands), a.node)
    attrs: Attrs = {"axis": axis, "outputs": len(operands)}
    if a.flag("reverse"):
        attrs["reverse"] = True
    first = device.b.ops[operands[0]] if operands else None
    shape = first.shape if first is not None else None
    if kind is Kind.REDUCE:
        name = word if word in REDUCTIONS.values() else "custom"
        if operands:
            shape = _reduced(device, operands[0], axis, a.flag("keep_dims"), a.node)
    else:
        name = word if word in ("sum", "prod") and len(operands) == 1 else "associative"
    if word:
        attrs["combine"] = word
    dtype = first.dtype if first is not None else None
    whole = device.b.emit(kind, name, operands, device.place(a.node), attrs, dtype, shape)
    if not isinstance(inputs, Tup):
        return whole
    parts = items(device, whole, len(operands), a.node)
    for part, operand in zip(parts, operands, strict=True):
        device.b.ops[part].dtype = device.b.ops[operand].dtype
    return Tup(parts, whole)


def _cumulative(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        value = a.op("input")
        axis = a.integer("axis") if a.has("axis") else 0
        attrs: Attrs = {"axis": axis, "outputs": 1}
        if a.flag("reverse"):
            attrs["reverse"] = True
        draft = device.b.ops[value]
        dtype = device.dtype(a.get("dtype")).name if a.has("dtype") else draft.dtype
        return device.b.emit(Kind.SCAN, name, (value,), device.place(a.node), attrs, dtype, draft.shape)

    return lower


def _sort(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        value = a.op("x")
        draft = device.b.ops[value]
        args: tuple[int, ...] = (value,)
        shape = draft.shape
        if name == "topk":
            count = a.op("k")
            args = (value, count)
            shape = (*shape[:-1], count) if shape else None
        attrs: Attrs = {"axis": a.integer("dim"), "descending": a.const("descending") is True or name == "topk"}
        return device.b.emit(Kind.SORT, name, args, device.place(a.node), attrs, draft.dtype, shape)

    return lower


def _histogram(device: Device, a: Args) -> Value:
    bins = a.op("num_bins")
    attrs: Attrs = {}
    known = device.b.known[bins] if bins != NONE else UNKNOWN
    if isinstance(known, int) and device.b.ops[bins].kind is Kind.CONST:
        attrs["bins"] = known
    args = (a.op("input"), bins, a.op("mask"))
    return device.b.emit(Kind.HISTOGRAM, "", args, device.place(a.node), attrs, "i32", (bins,))


def _softmax(device: Device, a: Args) -> Value:
    """`tl.softmax` written out: it shifts by the maximum of its axis and normalises."""
    node, x = a.node, a.op("x")
    rank = len(device.b.ops[x].shape or (0,))
    axis = a.integer("dim")
    axis = 0 if axis is None else axis % max(rank, 1)
    place = device.place(node)

    def along(name: str, value: int) -> int:
        reduced = _reduced(device, value, axis, True, node)
        attrs: Attrs = {"axis": axis, "keep_dims": True}
        return device.b.emit(Kind.REDUCE, name, (value,), place, attrs, device.b.ops[value].dtype, reduced)

    shifted = device.operation("sub", (x, along("max", x)), node)
    powers = device.operation("exp", (shifted,), node)
    return device.operation("div", (powers, along("sum", powers)), node)


def _swizzle2d(device: Device, a: Args) -> Value:
    """`tl.swizzle2d` written out: tile (i, j) of a row-major grid renumbered column by column in groups of rows."""
    node = a.node
    i, j, rows, columns, group = (a.value(name) for name in ("i", "j", "size_i", "size_j", "size_g"))

    def op(name: str, x: Value, y: Value) -> Value:
        return device.binary(name, x, y, node)

    linear = op("add", op("mul", i, columns), j)
    per_group = op("mul", group, columns)
    first = op("mul", op("floordiv", linear, per_group), group)
    height = op("min", op("sub", rows, first), group)
    within = op("mod", linear, per_group)
    return Tup((op("add", first, op("mod", within, height)), op("floordiv", within, height)))


# elementwise


def _unary(name: str) -> Handler:
    return lambda device, a: device.operation(name, (a.op("x"),), a.node)


def _binary(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        attrs: Attrs = {"fast": True} if a.flag("approx") else {}
        return device.elementwise(name, (a.op("x"), a.op("y")), a.node, attrs)

    return lower


def _where(device: Device, a: Args) -> Value:
    return device.operation("where", (a.op("condition"), a.op("x"), a.op("y")), a.node)


def _ternary(name: str, names: tuple[str, str, str]) -> Handler:
    return lambda device, a: device.operation(name, tuple(a.op(one) for one in names), a.node)


def _logical(name: str) -> Handler:
    return lambda device, a: device.operation(name, (a.op("x"), a.op("y")), a.node)


def _inline_asm(device: Device, a: Args) -> Value:
    return inline_asm.lower(device, a)


def _map_elementwise(device: Device, a: Args) -> Value:
    function = a.get("scalar_fn")
    if function is None:
        return device.unknown("map_elementwise", a.node)
    call = Call(a.node, a.rest, {})
    return device.call(function, call)


# hints and control


def _hint(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        value = a.op("input")
        draft = device.b.ops[value]
        attrs: Attrs = {"fact": name}
        said = tuple(device.ref(one, a.node) for one in a.items("values"))
        numbers = tuple(device.b.known[one] for one in said if device.b.ops[one].kind is Kind.CONST)
        if len(numbers) == len(said):
            attrs["value"] = tuple(one for one in numbers if isinstance(one, int))
        return device.b.emit(
            Kind.CONTROL, "assume", (value, *said), device.place(a.node), attrs, draft.dtype, draft.shape
        )

    return lower


def _assume(device: Device, a: Args) -> Value:
    device.b.emit(Kind.CONTROL, "assume", (a.op("cond"),), device.place(a.node), {"fact": "condition"})
    return Literal(None)


def _control(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        device.b.emit(Kind.CONTROL, name, (), device.place(a.node))
        return Literal(None)

    return lower


def _debug_barrier(device: Device, a: Args) -> Value:
    device.b.emit(Kind.BARRIER, "syncthreads", (), device.place(a.node))
    return Literal(None)


def _known_value(name: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        args = tuple(device.ref(one, a.node) for one in (*a.values.values(), *a.rest))
        return device.b.emit(Kind.CALL, name, args, device.place(a.node), NO_ATTRS, None, device.broadcast(args))

    return lower


def _silent(device: Device, a: Args) -> Value:
    return Literal(None)


def _range(form: str) -> Handler:
    def lower(device: Device, a: Args) -> Value:
        attrs: Attrs = {}
        for key, name in (
            ("num_stages", "num_stages"),
            ("loop_unroll_factor", "unroll"),
            ("disallow_acc_multi_buffer", "disallow_acc_multi_buffer"),
            ("flatten", "flatten"),
            ("warp_specialize", "warp_specialize"),
            ("disable_licm", "disable_licm"),
        ):
            if a.has(key):
                known = a.const(key)
                attrs[name] = "unknown" if known is UNKNOWN else known
        if form == "static":
            attrs["unroll"] = True
        return device.range_value(form, a, attrs)

    return lower


def _condition(device: Device, a: Args) -> Value:
    return a.value("arg1")


_MEMORY = ("cache_modifier", "eviction_policy", "volatile")
_RANGE = (
    "arg1",
    "arg2",
    "step",
    "num_stages",
    "loop_unroll_factor",
    "disallow_acc_multi_buffer",
    "flatten",
    "warp_specialize",
    "disable_licm",
)
_SHAPE = ("input", "shape")

HANDLERS: Mapping[str, tuple[tuple[str, ...], Handler]] = {
    "program_id": (("axis",), _program_id),
    "num_programs": (("axis",), _num_programs),
    "arange": (("start", "end"), _arange),
    "full": (("shape", "value", "dtype"), _full),
    "zeros": (("shape", "dtype"), _full),
    "zeros_like": (("input",), _full_like),
    "full_like": (("input", "value", "dtype"), _full_like),
    "cdiv": (("x", "div"), _cdiv),
    "next_power_of_2": (("n",), _next_power_of_2),
    "pointer_type": (("element_ty",), _pointer_type),
    "_log2": (("i",), _log2),
    "cast": (("input", "dtype", "fp_downcast_rounding", "bitcast"), _cast),
    "to": (("input", "dtype", "fp_downcast_rounding", "bitcast"), _cast),
    "to_tensor": (("input",), _to_tensor),
    "constexpr": (("input",), _constexpr),
    "item": (("input",), _to_tensor),
    "expand_dims": (("input", "axis"), _expand_dims),
    "unsqueeze": (("input", "axis"), _expand_dims),
    "broadcast_to": (_SHAPE, _broadcast_to),
    "broadcast": (("input", "other"), _broadcast),
    "reshape": (_SHAPE, _reshape),
    "view": (_SHAPE, _reshape),
    "ravel": (("x", "can_reorder"), _ravel),
    "trans": (("input", "dims"), _trans),
    "permute": (("input", "dims"), _trans),
    "join": (("a", "b"), _join),
    "interleave": (("a", "b"), _interleave),
    "split": (("a",), _split),
    "cat": (("input", "other", "can_reorder", "dim"), _cat),
    "flip": (("x", "dim"), _flip),
    "gather": (("src", "index", "axis"), _gather),
    "load": (("pointer", "mask", "other", "boundary_check", "padding_option", *_MEMORY), _load),
    "store": (("pointer", "value", "mask", "boundary_check", *_MEMORY[:2]), _store),
    "make_block_ptr": (("base", "shape", "strides", "offsets", "block_shape", "order"), _make_block_ptr),
    "advance": (("base", "offsets"), _advance),
    "make_tensor_descriptor": (("base", "shape", "strides", "block_shape", "padding_option"), _make_descriptor),
    "_experimental_make_tensor_descriptor": (("base", "shape", "strides", "block_shape"), _make_descriptor),
    "load_tensor_descriptor": (("desc", "offsets"), _descriptor_load),
    "store_tensor_descriptor": (("desc", "offsets", "value"), _descriptor_store),
    "_experimental_descriptor_load": (("desc", "offsets", "shape", "dtype"), _descriptor_load),
    "_experimental_descriptor_store": (("desc", "value", "offsets"), _descriptor_store),
    **{name: (("pointer", "val", "mask", "sem", "scope"), _atomic(op)) for name, op in ATOMICS.items()},
    "atomic_cas": (("pointer", "cmp", "val", "sem", "scope"), _atomic_cas),
    "atomic_load": (("pointer", "mask", "sem", "scope"), _atomic_load),
    "atomic_store": (("pointer", "val", "mask", "sem", "scope"), _atomic_store),
    "atomic_poll": (("pointer", "expected_value", "sem", "scope", "timeout_ns"), _atomic_poll),
    "dot": (("input", "other", "acc", "input_precision", "allow_tf32", "max_num_imprecise_acc", "out_dtype"), _dot),
    "dot_scaled": (
        ("lhs", "lhs_scale", "lhs_format", "rhs", "rhs_scale", "rhs_format", "acc", "fast_math"),
        _dot_scaled,
    ),
    **{
        name: (("input", "axis", "keep_dims", "dtype"), _reduction(op))
        for name, op in REDUCTIONS.items()
        if name not in ("max", "min", "argmax", "argmin")
    },
    "max": (("input", "axis", "return_indices", "return_indices_tie_break_left", "keep_dims"), _reduction("max")),
    "min": (("input", "axis", "return_indices", "return_indices_tie_break_left", "keep_dims"), _reduction("min")),
    "argmax": (("input", "axis", "tie_break_left", "keep_dims"), _reduction("argmax")),
    "argmin": (("input", "axis", "tie_break_left", "keep_dims"), _reduction("argmin")),
    "reduce": (("input", "axis", "combine_fn", "keep_dims"), _reduce),
    "associative_scan": (("input", "axis", "combine_fn", "reverse"), _associative_scan),
    "cumsum": (("input", "axis", "reverse", "dtype"), _cumulative("sum")),
    "cumprod": (("input", "axis", "reverse", "dtype"), _cumulative("prod")),
    "sort": (("x", "dim", "descending"), _sort("sort")),
    "topk": (("x", "k", "dim", "descending"), _sort("topk")),
    "histogram": (("input", "num_bins", "mask"), _histogram),
    "softmax": (("x", "dim", "keep_dims", "ieee_rounding"), _softmax),
    "swizzle2d": (("i", "j", "size_i", "size_j", "size_g"), _swizzle2d),
    **{name: (("x",), _unary(op)) for name, op in UNARY.items()},
    **{name: (("x", "y", "ieee_rounding", "approx"), _binary(op)) for name, op in BINARY.items()},
    "where": (("condition", "x", "y"), _where),
    "clamp": (("x", "min", "max"), _ternary("clamp", ("x", "min", "max"))),
    "fma": (("x", "y", "z"), _ternary("fma", ("x", "y", "z"))),
    "logical_and": (("x", "y"), _logical("and")),
    "logical_or": (("x", "y"), _logical("or")),
    "expect_zero": (("input", "mask"), _to_tensor),
    "inline_asm_elementwise": (("asm", "constraints", "args", "dtype", "is_pure", "pack"), _inline_asm),
    "map_elementwise": (("scalar_fn",), _map_elementwise),
    "multiple_of": (("input", "values"), _hint("multiple_of")),
    "max_contiguous": (("input", "values"), _hint("max_contiguous")),
    "max_constancy": (("input", "values"), _hint("max_constancy")),
    "assume": (("cond",), _assume),
    "debug_barrier": ((), _debug_barrier),
    "gdc_wait": ((), _control("pdl_wait")),
    "gdc_launch_dependents": ((), _control("pdl_launch")),
    "globaltimer": ((), _known_value("globaltimer")),
    "smid": ((), _known_value("smid")),
    "num_threads": ((), _known_value("num_threads")),
    "num_warps": ((), _known_value("num_warps")),
    **{name: ((), _known_value(name)) for name in RANDOM},
    **dict.fromkeys(SILENT, ((), _silent)),
    "range": (_RANGE, _range("for")),
    "static_range": (("arg1", "arg2", "step"), _range("static")),
    "condition": (("arg1", "disable_licm"), _condition),
}

METHODS = words(
    "to cast sum max min argmax argmin xor_sum reduce associative_scan cumsum cumprod sort reshape view "
    "trans permute expand_dims broadcast_to split ravel flip gather histogram exp exp2 log log2 sqrt "
    "rsqrt abs floor ceil sin cos erf sigmoid store load atomic_add atomic_max atomic_min atomic_xchg "
    "atomic_cas atomic_and atomic_or atomic_xor logical_and logical_or advance softmax cdiv item"
)

DESCRIPTOR_METHODS: Mapping[str, tuple[tuple[str, ...], Handler]] = {
    "load": (("desc", "offsets", "cache_modifier", "eviction_policy"), _descriptor_load),
    "store": (("desc", "offsets", "value"), _descriptor_store),
    "gather": (("desc", "x_offsets", "y_offset"), _descriptor_gather),
    "scatter": (("desc", "value", "x_offsets", "y_offset"), _descriptor_scatter),
    **{name: (("desc", "offsets", "value"), _descriptor_atomic(op)) for name, op in ATOMICS.items() if op != "exch"},
}
