"""What PTX instructions mean: from mnemonic and modifiers to kinds, names and attributes, without their operands.

`form` says which operands an instruction has, in their order:
    d result, a value that is read, m address in brackets, i immediate that becomes an attribute, x ignored,
    g result that is read too, t address in tensor memory, ? a result that may be left out
`*` behind a letter repeats it to the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from d2k.analyzers.core.ptx_text import Instruction
from d2k.spec.facts import AttrValue, Kind

DTYPES: Mapping[str, str] = {
    "f64": "f64",
    "f32": "f32",
    "tf32": "tf32",
    "f16": "f16",
    "bf16": "bf16",
    "e4m3": "f8e4m3",
    "e5m2": "f8e5m2",
    "ue8m0": "f8e8m0",
    "e3m2": "f6e3m2",
    "e2m3": "f6e2m3",
    "e2m1": "f4e2m1",
    "b64": "u64",
    "u64": "u64",
    "s64": "i64",
    "b32": "u32",
    "u32": "u32",
    "s32": "i32",
    "b16": "u16",
    "u16": "u16",
    "s16": "i16",
    "b8": "u8",
    "u8": "u8",
    "s8": "i8",
    "s4": "i4",
    "u4": "u4",
    "b1": "bool",
    "pred": "bool",
}
PACKED: Mapping[str, tuple[str, int]] = {
    "f16x2": ("f16", 2),
    "bf16x2": ("bf16", 2),
    "f32x2": ("f32", 2),
    "e4m3x2": ("f8e4m3", 2),
    "e5m2x2": ("f8e5m2", 2),
    "e2m1x2": ("f4e2m1", 2),
    "e2m3x2": ("f6e2m3", 2),
    "e3m2x2": ("f6e3m2", 2),
    "ue8m0x2": ("f8e8m0", 2),
    "e4m3x4": ("f8e4m3", 4),
    "e5m2x4": ("f8e5m2", 4),
    "e2m1x4": ("f4e2m1", 4),
    "u16x2": ("u16", 2),
    "s16x2": ("i16", 2),
}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")
_VECTOR = re.compile(r"v([248])\Z")
_SCOPES = {"cta": "cta", "cluster": "cluster", "gpu": "gpu", "sys": "sys", "gl": "gpu"}
_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel", "sc", "weak", "volatile")
_CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")
_EVICTIONS = {
    "L1::evict_first": "evict_first",
    "L1::evict_last": "evict_last",
    "L1::no_allocate": "no_allocate",
    "L1::evict_normal": "evict_normal",
    "L1::evict_unchanged": "evict_unchanged",
    "L2::evict_first": "evict_first",
    "L2::evict_last": "evict_last",
    "L2::evict_normal": "evict_normal",
}
_OPERATIONS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "mul24": "mul",
    "div": "div",
    "rem": "mod",
    "neg": "neg",
    "abs": "abs",
    "fma": "fma",
    "mad": "fma",
    "min": "min",
    "max": "max",
    "ex2": "exp2",
    "lg2": "log2",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "rcp": "rcp",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "not": "not",
    "cnot": "not",
    "shl": "shl",
    "shr": "shr",
    "popc": "popc",
    "lop3": "lop3",
    "prmt": "prmt",
    "bfe": "bfe",
    "bfi": "bfi",
    "shf": "shf",
    "bfind": "bfind",
    "clz": "clz",
    "brev": "brev",
    "sad": "sad",
    "dp4a": "dp4a",
    "dp2a": "dp4a",
    "copysign": "copysign",
    "selp": "select",
    "slct": "select",
    "addc": "add",
    "subc": "sub",
    "madc": "fma",
    "testp": "isnan",
}
_COMPARISONS = {
    **{word: word for word in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{word + "u": word for word in ("eq", "ne", "lt", "le", "gt", "ge")},
    "lo": "lt",
    "ls": "le",
    "hi": "gt",
    "hs": "ge",
}
_ATOMICS = {
    "add": "add",
    "min": "min",
    "max": "max",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "exch",
    "cas": "cas",
    "inc": "inc",
    "dec": "inc",
}
_SHUFFLES = {"bfly": "xor", "down": "down", "up": "up", "idx": "idx"}
IGNORED = frozenset({"trap", "exit", "ret", "bra", "brkpt", "call", "isspacep", "pmevent", "discard", "applypriority"})


class Meaning(msgspec.Struct, frozen=True):
    """`immediates` names the attributes that the `i` operands of `form` become."""

    kind: Kind
    name: str
    form: str
    attrs: Mapping[str, AttrValue] = {}
    dtype: str | None = None
    lanes: int = 1
    immediates: tuple[str, ...] = ()


def meaning(one: Instruction) -> Meaning | None:
    """What an instruction does; None if the table does not know it."""
    family = _FAMILIES.get(one.mnemonic)
    if family is not None:
        return family(one.modifiers)
    if one.mnemonic in _OPERATIONS:
        return _arithmetic(one.mnemonic, one.modifiers)
    return None


def element_type(modifiers: tuple[str, ...]) -> tuple[str | None, int]:
    """Element type and lanes that the last type among the modifiers names."""
    for word in reversed(modifiers):
        if word in PACKED:
            return PACKED[word]
        if word in DTYPES:
            return DTYPES[word], 1
    return None, 1


def _types(modifiers: tuple[str, ...]) -> list[str]:
    return [DTYPES[word] for word in modifiers if word in DTYPES]


def _arithmetic(mnemonic: str, modifiers: tuple[str, ...]) -> Meaning:
    dtype, lanes = element_type(modifiers)
    attrs: dict[str, AttrValue] = {}
    if lanes > 1:
        attrs["packed"] = lanes
    if "approx" in modifiers or mnemonic in ("ex2", "lg2", "tanh"):
        attrs["fast"] = True
    if "sat" in modifiers:
        attrs["saturate"] = True
    name = _OPERATIONS[mnemonic]
    if mnemonic == "div" and dtype is not None and dtype[0] in "iu":
        name = "floordiv"
    if mnemonic == "mul" and "wide" in modifiers and dtype in ("u32", "i32"):
        dtype = {"u32": "u64", "i32": "i64"}[dtype]
    return Meaning(Kind.ELEMENTWISE, name, "da*", attrs, dtype, lanes)


def _setp(modifiers: tuple[str, ...]) -> Meaning:
    name = next((_COMPARISONS[word] for word in modifiers if word in _COMPARISONS), "ne")
    return Meaning(Kind.ELEMENTWISE, name, "da*", {}, "bool")


def _cvt(modifiers: tuple[str, ...]) -> Meaning:
    named = [PACKED.get(word) or (DTYPES[word], 1) for word in modifiers if word in PACKED or word in DTYPES]
    dtype, lanes = named[0] if named else (None, 1)
    attrs: dict[str, AttrValue] = {}
    if "satfinite" in modifiers or "sat" in modifiers:
        attrs["saturate"] = True
    packed = max((one[1] for one in named), default=1)
    if packed > 1:
        attrs["packed"] = packed
    if len(named) > 1:
        attrs["from"] = named[-1][0]
    attrs["instruction"] = ".".join(("cvt", *modifiers))
    return Meaning(Kind.CAST, "cast", "da*", attrs, dtype, lanes)


def _access(modifiers: tuple[str, ...]) -> tuple[dict[str, AttrValue], str | None, int]:
    """Attributes of a load or store, its element type and its lanes."""
    dtype, lanes = element_type(modifiers)
    for word in modifiers:
        if match := _VECTOR.match(word):
            lanes *= int(match.group(1))
    attrs: dict[str, AttrValue] = {"via": "vector" if lanes > 1 else "pointer"}
    bits = next((int(word[1:]) for word in modifiers if re.fullmatch(r"[busf]\d+", word)), 0)
    if dtype is not None and (bits or "x2" in modifiers[-1]):
        attrs["bits"] = (bits or 32) * (lanes if bits else 1)
    space = "unknown"
    for word in modifiers:
        if word in ("global", "shared", "local", "const"):
            space = "global" if word == "const" else word
        elif word.startswith("shared::"):
            space = "shared"
            if word == "shared::cluster":
                attrs["cluster"] = True
        elif word == "nc":
            attrs["cache"] = "read_only"
        elif word in _CACHES and word not in ("cv",):
            attrs["cache"] = word
        elif word in _EVICTIONS:
            attrs["eviction"] = _EVICTIONS[word]
        elif word == "L2::cache_hint":
            attrs["hinted"] = True
        elif word.startswith("L2::") and word.endswith("B"):
            attrs["prefetch_bytes"] = int(word[4:-1]) if word[4:-1].isdigit() else 0
        elif word == "volatile":
            attrs["volatile"] = True
        elif word in _SEMANTICS and word != "weak":
            attrs["sem"] = word
        elif word in _SCOPES:
            attrs["scope"] = _SCOPES[word]
    attrs["space"] = space
    return attrs, dtype, lanes


def _ld(modifiers: tuple[str, ...]) -> Meaning:
    attrs, dtype, lanes = _access(modifiers)
    return Meaning(Kind.LOAD, "load", "dmx*", attrs, dtype, lanes)


def _st(modifiers: tuple[str, ...]) -> Meaning:
    attrs, dtype, lanes = _access(modifiers)
    if "async" in modifiers:
        attrs["async"] = True
    return Meaning(Kind.STORE, "store", "max*", attrs, dtype, lanes)


def _atomic(modifiers: tuple[str, ...], returns: bool) -> Meaning:
    attrs, dtype, lanes = _access(modifiers)
    del attrs["via"]
    attrs.pop("bits", None)
    op = next((_ATOMICS[word] for word in modifiers if word in _ATOMICS), "add")
    if lanes > 1:
        attrs["width"] = lanes
    attrs["returns"] = returns
    if "async" in modifiers:
        attrs["async"] = True
    return Meaning(Kind.ATOMIC, op, "dma*" if returns else "ma*", attrs, dtype, lanes)


def _multimem(modifiers: tuple[str, ...]) -> Meaning:
    attrs, dtype, lanes = _access(modifiers)
    attrs["multimem"] = True
    if "ld_reduce" in modifiers:
        attrs["reduce"] = next((_ATOMICS[word] for word in modifiers if word in _ATOMICS), "add")
        return Meaning(Kind.LOAD, "load", "dmx*", attrs, dtype, lanes)
    if "red" in modifiers:
        return Meaning(Kind.ATOMIC, "add", "ma*", attrs, dtype, lanes)
    return Meaning(Kind.STORE, "store", "max*", attrs, dtype, lanes)


def _cp(modifiers: tuple[str, ...]) -> Meaning | None:
    if "bulk" in modifiers:
        return _bulk(modifiers, "load")
    if modifiers[:1] != ("async",):
        return None
    if "commit_group" in modifiers:
        return Meaning(Kind.COMMIT, "cp_async", "")
    if "wait_group" in modifiers:
        return Meaning(Kind.WAIT, "cp_async", "i", immediates=("outstanding",))
    if "wait_all" in modifiers:
        return Meaning(Kind.WAIT, "cp_async", "", {"outstanding": 0})
    if "mbarrier" in modifiers:
        return Meaning(Kind.BARRIER, "mbarrier_arrive", "m", {"cp_async": True})
    attrs: dict[str, AttrValue] = {"direction": "load"}
    if cache := next((word for word in modifiers if word in ("ca", "cg")), None):
        attrs["cache"] = cache
    if "L2::cache_hint" in modifiers:
        attrs["hinted"] = True
    return Meaning(Kind.COPY, "cp_async", "mmix*", attrs, immediates=("bytes",))


def _bulk(modifiers: tuple[str, ...], direction: str) -> Meaning:
    if "commit_group" in modifiers:
        return Meaning(Kind.COMMIT, "bulk", "")
    if "wait_group" in modifiers:
        return Meaning(Kind.WAIT, "bulk", "i", {"read": "read" in modifiers}, immediates=("outstanding",))
    tensor = "tensor" in modifiers
    attrs: dict[str, AttrValue] = {}
    if tensor:
        attrs["tensor"] = True
        if dims := next((int(word[0]) for word in modifiers if re.fullmatch(r"[1-5]d", word)), 0):
            attrs["rank"] = dims
    if "multicast::cluster" in modifiers:
        attrs["multicast"] = True
    if "cta_group::2" in modifiers:
        attrs["cta_group"] = 2
    if "L2::cache_hint" in modifiers:
        attrs["hinted"] = True
    name = "tma" if tensor else "bulk"
    if "prefetch" in modifiers:
        attrs["direction"] = "prefetch"
        return Meaning(Kind.COPY, name, "mx*", attrs)
    spaces = [word for word in modifiers if word.split("::")[0] in ("shared", "global")]
    to_shared = bool(spaces) and spaces[0].startswith("shared")
    to_global = bool(spaces) and spaces[0] == "global"
    if direction == "reduce":
        attrs["direction"] = "reduce"
    elif to_shared and len(spaces) > 1 and spaces[1].startswith("shared"):
        attrs["direction"] = "load"
        attrs["cluster"] = True
    elif to_global:
        attrs["direction"] = "scatter" if any("scatter" in word for word in modifiers) else "store"
    else:
        attrs["direction"] = "gather" if any("gather" in word for word in modifiers) else "load"
    if not tensor:
        return Meaning(Kind.COPY, name, "mmim*" if to_shared else "mmix*", attrs, immediates=("bytes",))
    return Meaning(Kind.COPY, name, "mmm*", attrs)


def _mbarrier(modifiers: tuple[str, ...]) -> Meaning | None:
    first = modifiers[0] if modifiers else ""
    attrs: dict[str, AttrValue] = {}
    if any(word == "shared::cluster" for word in modifiers):
        attrs["cluster"] = True
    if first == "init":
        return Meaning(Kind.BARRIER, "mbarrier_init", "mi", attrs, immediates=("count",))
    if first == "inval":
        return Meaning(Kind.CONTROL, "mbarrier_inval", "m", attrs)
    if first == "expect_tx" or "expect_tx" in modifiers:
        form = "mi" if first == "expect_tx" else "?mi"
        return Meaning(Kind.BARRIER, "mbarrier_expect", form, attrs, "u64", immediates=("bytes",))
    if first in ("arrive", "arrive_drop", "complete_tx"):
        return Meaning(Kind.BARRIER, "mbarrier_arrive", "?mx*", attrs, "u64")
    if first in ("test_wait", "try_wait"):
        if "parity" in modifiers:
            attrs["parity"] = True
        return Meaning(Kind.BARRIER, "mbarrier_wait", "dmax*", attrs, "bool")
    return None


def _scaling(modifiers: tuple[str, ...]) -> str | None:
    """The format of block scales that a matrix instruction's kind names."""
    if "mxf4nvf4" in modifiers or "kind::mxf4nvf4" in modifiers:
        large_blocks = "scale_vec::2X" in modifiers or "block32" in modifiers
        return "mxfp4" if large_blocks else "nvfp4"
    if "kind::mxf4" in modifiers:
        return "mxfp4"
    if "kind::mxf8f6f4" in modifiers:
        return "mxfp8"
    return None


def _matrix(modifiers: tuple[str, ...], instr: str) -> dict[str, AttrValue]:
    """Attributes of mma.sync, wmma and wgmma: shape and types. D, A, B, C follow each other."""
    attrs: dict[str, AttrValue] = {"instr": instr}
    for word in modifiers:
        if match := _SHAPE.match(word):
            attrs["m"], attrs["n"], attrs["k"] = (int(one) for one in match.groups())
    types = _types(modifiers)
    if instr == "wgmma" and len(types) >= 3:
        attrs["acc_dtype"], attrs["a_dtype"], attrs["b_dtype"] = types[:3]
    elif len(types) >= 4:
        attrs["acc_dtype"], attrs["a_dtype"], attrs["b_dtype"] = types[0], types[1], types[2]
    elif len(types) == 2:  # wmma names only D and C for fp16 operands
        attrs["acc_dtype"], attrs["a_dtype"], attrs["b_dtype"] = types[0], "f16", "f16"
    scaled = _scaling(modifiers)
    if scaled is not None or "block_scale" in modifiers:
        attrs["scaled"] = scaled if scaled is not None else True
    if any(word.startswith("sp") for word in modifiers):
        attrs["sparse"] = True
    return attrs


def _mma(modifiers: tuple[str, ...]) -> Meaning:
    attrs = _matrix(modifiers, "mma_sync")
    acc = attrs.get("acc_dtype")
    return Meaning(Kind.MMA, "mma", "daaa*", attrs, acc if isinstance(acc, str) else "f32")


def _wmma(modifiers: tuple[str, ...]) -> Meaning:
    attrs = _matrix(modifiers, "wmma")
    if "load" in modifiers:
        return Meaning(Kind.LOAD, "load", "dma*", {"space": "unknown", "via": "matrix"}, element_type(modifiers)[0])
    if "store" in modifiers:
        return Meaning(Kind.STORE, "store", "maa*", {"space": "unknown", "via": "matrix"}, element_type(modifiers)[0])
    return Meaning(Kind.MMA, "mma", "daaa*", attrs, "f32")


def _wgmma(modifiers: tuple[str, ...]) -> Meaning | None:
    first = modifiers[0] if modifiers else ""
    if first == "fence":
        return Meaning(Kind.FENCE, "fence", "", {"proxy": "wgmma"})
    if first == "commit_group":
        return Meaning(Kind.COMMIT, "wgmma", "")
    if first == "wait_group":
        return Meaning(Kind.WAIT, "wgmma", "i", immediates=("outstanding",))
    if first == "mma_async":
        attrs = _matrix(modifiers, "wgmma")
        acc = attrs.get("acc_dtype")
        return Meaning(Kind.MMA, "mma", "gaax*", attrs, acc if isinstance(acc, str) else "f32")
    return None


_TCGEN_KINDS = {
    "kind::f16": "f16",
    "kind::tf32": "tf32",
    "kind::f8f6f4": "f8e4m3",
    "kind::i8": "i8",
    "kind::mxf8f6f4": "f8e4m3",
    "kind::mxf4": "f4e2m1",
    "kind::mxf4nvf4": "f4e2m1",
}


def _tcgen05(modifiers: tuple[str, ...]) -> Meaning | None:
    first = modifiers[0] if modifiers else ""
    group = 2 if "cta_group::2" in modifiers else 1
    if first == "alloc":
        attrs: dict[str, AttrValue] = {"space": "tmem", "cta_group": group}
        return Meaning(Kind.ALLOC, "tmem", "mi", attrs, immediates=("columns",))
    if first == "dealloc":
        return Meaning(Kind.CONTROL, "tmem_dealloc", "ai", immediates=("columns",))
    if first == "relinquish_alloc_permit":
        return Meaning(Kind.CONTROL, "tmem_relinquish", "")
    if first == "mma":
        return _tcgen05_mma(modifiers, group)
    if first in ("ld", "st"):
        repeat = next((int(word[1:]) for word in modifiers if re.fullmatch(r"x\d+", word)), 1)
        shape = next((word for word in modifiers if re.fullmatch(r"\d+x\d+b", word)), "32x32b")
        per = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}.get(shape, 1)
        access: dict[str, AttrValue] = {"space": "tmem", "via": "array", "bits": 32 * repeat * per}
        if first == "ld":
            return Meaning(Kind.LOAD, "load", "dmx*", access, "u32", repeat * per)
        return Meaning(Kind.STORE, "store", "ma*", access, "u32", repeat * per)
    if first == "wait::ld" or first == "wait::st":
        return Meaning(Kind.WAIT, "tcgen05", "", {"what": first[-2:]})
    if first == "wait":
        return Meaning(Kind.WAIT, "tcgen05", "")
    if first == "commit":
        return Meaning(
            Kind.COMMIT, "tcgen05", "ma*", {"cta_group": group, "multicast": "multicast::cluster" in modifiers}
        )
    if first.startswith("fence"):
        return Meaning(Kind.FENCE, "fence", "", {"proxy": "tcgen05"})
    if first == "cp":
        return Meaning(Kind.COPY, "tcgen05_cp", "ma*", {"direction": "load", "cta_group": group})
    return None


def _tcgen05_mma(modifiers: tuple[str, ...], group: int) -> Meaning:
    attrs: dict[str, AttrValue] = {"instr": "tcgen05", "cta_group": group}
    kind = next((word for word in modifiers if word.startswith("kind::")), "")
    if kind:
        attrs["kind"] = kind[6:]
    scaled = _scaling(modifiers)
    if scaled is not None:
        attrs["scaled"] = scaled
        attrs["acc_dtype"] = "f32"
    if kind in _TCGEN_KINDS and kind not in ("kind::f16", "kind::f8f6f4", "kind::mxf8f6f4"):
        # for the others the instruction descriptor says which of two types it is
        attrs["a_dtype"] = attrs["b_dtype"] = _TCGEN_KINDS[kind]
    elif kind in ("kind::f8f6f4", "kind::mxf8f6f4"):
        attrs["a_dtype"] = attrs["b_dtype"] = "f8e4m3"
    if any(word.startswith("sp") for word in modifiers):
        attrs["sparse"] = True
    if "ws" in modifiers:
        attrs["weight_stationary"] = True
    return Meaning(Kind.MMA, "mma", "taaaa*", attrs, "f32")


_FORMATS = {
    "f16": ("f16", "bf16"),
    "tf32": ("", "", "tf32"),
    "f8f6f4": ("f8e4m3", "f8e5m2", "", "f6e2m3", "f6e3m2", "f4e2m1"),
    "mxf8f6f4": ("f8e4m3", "f8e5m2", "", "f6e2m3", "f6e3m2", "f4e2m1"),
    "i8": ("u8", "i8"),
}
_DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "mxf8f6f4": 32, "i8": 32, "mxf4": 64, "mxf4nvf4": 64}


def instruction_descriptor(kind: str, bits: int) -> dict[str, AttrValue]:
    """Operand types and shape that the instruction descriptor of tcgen05.mma encodes."""
    found: dict[str, AttrValue] = {}
    formats = _FORMATS.get(kind, ())
    for key, shift in (("a_dtype", 7), ("b_dtype", 10)):
        code = bits >> shift & 7
        if code < len(formats) and formats[code]:
            found[key] = formats[code]
    if "mx" not in kind:
        found["acc_dtype"] = ("f16", "f32", "i32", "f32")[bits >> 4 & 3]
    n = (bits >> 17 & 63) * 8
    m = (bits >> 24 & 31) * 16
    if n and m and "mx" not in kind:
        found["n"], found["m"] = n, m
    if kind in _DEPTH:
        found["k"] = _DEPTH[kind]
    return found


def _ldmatrix(modifiers: tuple[str, ...]) -> Meaning:
    count = next((int(word[1:]) for word in modifiers if re.fullmatch(r"x[124]", word)), 1)
    attrs: dict[str, AttrValue] = {"space": "shared", "via": "matrix", "bits": 32 * count}
    if "trans" in modifiers:
        attrs["transposed"] = True
    return Meaning(Kind.LOAD, "load", "dm", attrs, "u32", count)


def _stmatrix(modifiers: tuple[str, ...]) -> Meaning:
    count = next((int(word[1:]) for word in modifiers if re.fullmatch(r"x[124]", word)), 1)
    return Meaning(Kind.STORE, "store", "ma", {"space": "shared", "via": "matrix", "bits": 32 * count}, "u32", count)


def _shfl(modifiers: tuple[str, ...]) -> Meaning:
    name = next((_SHUFFLES[word] for word in modifiers if word in _SHUFFLES), "idx")
    return Meaning(Kind.SHUFFLE, name, "daax*", {}, element_type(modifiers)[0])


def _vote(modifiers: tuple[str, ...]) -> Meaning:
    name = next((word for word in modifiers if word in ("ballot", "any", "all", "uni")), "ballot")
    return Meaning(Kind.VOTE, "all" if name == "uni" else name, "dax*", {}, "u32" if name == "ballot" else "bool")


def _redux(modifiers: tuple[str, ...]) -> Meaning:
    names = {"add": "sum", "min": "min", "max": "max", "and": "and", "or": "or", "xor": "xor"}
    name = next((names[word] for word in modifiers if word in names), "sum")
    return Meaning(Kind.REDUX, name, "dax*", {}, element_type(modifiers)[0])


def _setmaxnreg(modifiers: tuple[str, ...]) -> Meaning:
    name = "setmaxnreg_inc" if "inc" in modifiers else "setmaxnreg_dec"
    return Meaning(Kind.CONTROL, name, "i", immediates=("registers",))


def _griddepcontrol(modifiers: tuple[str, ...]) -> Meaning:
    return Meaning(Kind.CONTROL, "pdl_wait" if "wait" in modifiers else "pdl_launch", "")


def _fence(modifiers: tuple[str, ...]) -> Meaning:
    attrs: dict[str, AttrValue] = {}
    for word in modifiers:
        if word in _SCOPES:
            attrs["scope"] = _SCOPES[word]
        elif word in _SEMANTICS:
            attrs["sem"] = word
    if "proxy" in modifiers:
        attrs["proxy"] = next(
            (word for word in modifiers if word.split("::")[0] in ("async", "tensormap", "alias")), "async"
        )
    if "mbarrier_init" in modifiers:
        attrs["mbarrier_init"] = True
    return Meaning(Kind.FENCE, "fence", "", attrs)


def _membar(modifiers: tuple[str, ...]) -> Meaning:
    scope = next((_SCOPES[word] for word in modifiers if word in _SCOPES), "gpu")
    return Meaning(Kind.FENCE, "fence", "", {"scope": scope, "sem": "sc"})


def _bar(modifiers: tuple[str, ...]) -> Meaning:
    if "cluster" in modifiers:
        return Meaning(Kind.BARRIER, "cluster", "", {"wait": "wait" in modifiers})
    if "warp" in modifiers:
        return Meaning(Kind.BARRIER, "syncwarp", "x*")
    if "red" in modifiers:
        return Meaning(Kind.BARRIER, "named", "da*", {"reduces": True}, "u32")
    return Meaning(Kind.BARRIER, "named", "a*", {"arrive": True} if "arrive" in modifiers else {})


def _prefetch(modifiers: tuple[str, ...]) -> Meaning:
    attrs: dict[str, AttrValue] = {}
    if any(word in ("tensormap", "param") for word in modifiers):
        attrs["descriptor"] = True
    level = next((word for word in modifiers if word[:2] in ("L1", "L2")), "")
    if level:
        attrs["level"] = level
    return Meaning(Kind.CONTROL, "prefetch", "m", attrs)


def _mov(modifiers: tuple[str, ...]) -> Meaning:
    dtype, lanes = element_type(modifiers)
    return Meaning(Kind.SHAPE, "mov", "da", {}, dtype, lanes)


def _match(modifiers: tuple[str, ...]) -> Meaning:
    return Meaning(Kind.VOTE, "match", "dax*", {}, "u32")


def _createpolicy(modifiers: tuple[str, ...]) -> Meaning:
    policy = next((_EVICTIONS[word] for word in modifiers if word in _EVICTIONS), "evict_normal")
    return Meaning(Kind.ASM, "createpolicy", "dx*", {"policy": policy}, "u64")


_FAMILIES: dict[str, Callable[[tuple[str, ...]], Meaning | None]] = {
    "setp": _setp,
    "set": _setp,
    "cvt": _cvt,
    "ld": _ld,
    "ldu": _ld,
    "st": _st,
    "atom": lambda words: _atomic(words, True),
    "red": lambda words: _atomic(words, False),
    "multimem": _multimem,
    "cp": lambda words: _bulk(words, "reduce") if words[:1] == ("reduce",) else _cp(words),
    "mbarrier": _mbarrier,
    "mma": _mma,
    "wmma": _wmma,
    "wgmma": _wgmma,
    "tcgen05": _tcgen05,
    "ldmatrix": _ldmatrix,
    "stmatrix": _stmatrix,
    "shfl": _shfl,
    "vote": _vote,
    "match": _match,
    "activemask": lambda words: Meaning(Kind.VOTE, "activemask", "d", {}, "u32"),
    "elect": lambda words: Meaning(Kind.VOTE, "elect", "dx*", {}, "bool"),
    "redux": _redux,
    "setmaxnreg": _setmaxnreg,
    "griddepcontrol": _griddepcontrol,
    "fence": _fence,
    "membar": _membar,
    "bar": _bar,
    "barrier": _bar,
    "prefetch": _prefetch,
    "prefetchu": _prefetch,
    "mov": _mov,
    "cvta": _mov,
    "nanosleep": lambda words: Meaning(Kind.CONTROL, "nanosleep", "x*"),
    "createpolicy": _createpolicy,
    "mapa": lambda words: Meaning(Kind.ASM, "mapa", "daa", {"space": "shared", "cluster": True}, "u64"),
    "getctarank": lambda words: Meaning(Kind.CLUSTER_RANK, "", "dx*", {}, "u32"),
    "clusterlaunchcontrol": lambda words: Meaning(
        Kind.ASM, "clusterlaunchcontrol", "dx*" if "query_cancel" in words else "mm", {"modifiers": words}, "u32"
    ),
}

SPECIAL: Mapping[str, tuple[Kind, Mapping[str, AttrValue]]] = {
    "%laneid": (Kind.LANE, {}),
    "%warpid": (Kind.WARP, {}),
    "%tid.x": (Kind.THREAD_INDEX, {"axis": 0}),
    "%tid.y": (Kind.THREAD_INDEX, {"axis": 1}),
    "%tid.z": (Kind.THREAD_INDEX, {"axis": 2}),
    "%ntid.x": (Kind.BLOCK_SIZE, {"axis": 0}),
    "%ntid.y": (Kind.BLOCK_SIZE, {"axis": 1}),
    "%ntid.z": (Kind.BLOCK_SIZE, {"axis": 2}),
    "%ctaid.x": (Kind.BLOCK_INDEX, {"axis": 0}),
    "%ctaid.y": (Kind.BLOCK_INDEX, {"axis": 1}),
    "%ctaid.z": (Kind.BLOCK_INDEX, {"axis": 2}),
    "%nctaid.x": (Kind.GRID_SIZE, {"axis": 0}),
    "%nctaid.y": (Kind.GRID_SIZE, {"axis": 1}),
    "%nctaid.z": (Kind.GRID_SIZE, {"axis": 2}),
    "%cluster_ctarank": (Kind.CLUSTER_RANK, {}),
    "%cluster_ctaid.x": (Kind.CLUSTER_RANK, {"axis": 0}),
    "%cluster_ctaid.y": (Kind.CLUSTER_RANK, {"axis": 1}),
    "%cluster_ctaid.z": (Kind.CLUSTER_RANK, {"axis": 2}),
}
"""Special registers."""

CACHE_HINTS: Mapping[int, str] = {
    0x1000000000000000: "evict_normal",
    0x12F0000000000000: "evict_first",
    0x14F0000000000000: "evict_last",
}
"""Encoded L2 policies that code passes as constants."""
