"""Kernels that CUTLASS's device adapters build: from the types of a collective to the kernel that it lowers to.

A collective builder is authored design: its tile, cluster, stages and schedules are chosen by whoever wrote it. What it
lowers to is written down once for each family (`collectives/*.cu`) and lowered like any other kernel; every operation
stands at the line where the adapter is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from d2k.analyzers.cuda.cpp_types import CType
from d2k.analyzers.cuda.values import Thing, Val
from d2k.spec.facts import AttrValue

ADAPTERS_3 = frozenset({"GemmUniversalAdapter"})
ADAPTERS_2 = frozenset({"Gemm", "GemmBatched", "GemmSplitKParallel", "GemmUniversal", "GemmUniversalStreamk"})
RUNS = frozenset({"run", "launch", "operator()"})
_SCALED = {"nv_float4_t": "nvfp4", "mx_float8_t": "mxfp8", "mx_float6_t": "mxfp8", "mx_float4_t": "mxfp4"}
_WORDS = {
    "gelu": ("GELU", "gelu"),
    "silu": ("SiLu", "SILU"),
    "relu": ("ReLU", "relu"),
    "bias": ("Bias", "bias"),
    "scale": ("ScaleFactor", "Scale"),
}


@dataclass(frozen=True, slots=True)
class Collective:
    """A GEMM that an adapter runs. Extents are None where the types do not say them."""

    family: str
    name: str
    tile: tuple[int | None, ...]
    cluster: tuple[int | None, ...]
    stages: int | None
    schedule: str
    epilogue_schedule: str
    a: str | None
    b: str | None
    c: str | None
    d: str | None
    acc: str | None
    scaled: str | None
    fusions: tuple[str, ...]
    scheduler: str

    @property
    def two_ctas(self) -> bool:
        if "2Sm" in self.schedule:
            return True
        automatic = "1Sm" not in self.schedule
        return self.family == "sm100" and automatic and (self.tile[:1] == (256,)) and _even(self.cluster[:1])

    @property
    def pingpong(self) -> bool:
        return self.family == "sm90" and "Pingpong" in self.schedule

    @property
    def persistent(self) -> bool:
        return self.family == "sm100" or any(w in self.schedule for w in ("Pingpong", "Cooperative", "Auto"))

    def matrix_attrs(self) -> dict[str, AttrValue]:
        """Attributes of the matrix instruction."""
        instr = {"sm90": "wgmma", "sm100": "tcgen05", "sm80": "mma_sync"}[self.family]
        attrs: dict[str, AttrValue] = {"instr": instr, "collective": True}
        for key, value in (("a_dtype", self.a), ("b_dtype", self.b), ("acc_dtype", self.acc), ("scaled", self.scaled)):
            if value is not None:
                attrs[key] = value
        if self.family == "sm100":
            attrs["cta_group"] = 2 if self.two_ctas else 1
        return attrs


def _even(sizes: tuple[int | None, ...]) -> bool:
    return bool(sizes) and sizes[0] is not None and sizes[0] % 2 == 0


def last(name: str) -> str:
    return name.rsplit("::", 1)[-1]


def is_adapter(type_: CType) -> bool:
    word = last(type_.name)
    return word in ADAPTERS_3 or (word in ADAPTERS_2 and "cutlass" in type_.name and "device" in type_.name)


def collective(type_: CType, known: object) -> Collective | None:
    """The collective that an adapter's type names, None if its types do not say enough. `known` folds values."""
    if last(type_.name) in ADAPTERS_3:
        kernel = _argument(type_, 0)
        builders = [
            one for one in _types(kernel, 0) if last(one.name) == "CollectiveOp" or "CollectiveBuilder" in one.name
        ]
        mainloop = next((one for one in builders if "epilogue" not in one.name), None)
        epilogue = next((one for one in builders if "epilogue" in one.name), None)
        if mainloop is None:
            return None
        return _from_builders(mainloop, epilogue, kernel, known)
    return _from_device_gemm(type_, known)


def _argument(type_: CType | None, position: int) -> CType | None:
    if type_ is None or position >= len(type_.args):
        return None
    one = type_.args[position]
    return one if isinstance(one, CType) else None


def _types(type_: CType | None, depth: int) -> list[CType]:
    if type_ is None or depth > 4:
        return []
    found = [type_]
    for one in type_.args:
        if isinstance(one, CType):
            found.extend(_types(one, depth + 1))
    return found


def _extents(type_: CType | None, known: object) -> tuple[int | None, ...]:
    return tuple(_number(one, known) for one in type_.args) if type_ is not None else ()


def _number(thing: Thing, known: object) -> int | None:
    if isinstance(thing, CType):
        return thing.integral
    if isinstance(thing, Val) and callable(known):
        value = known(thing.id)
        return value if isinstance(value, int) else None
    return None


def _element(type_: CType | None) -> tuple[str | None, str | None]:
    """Element type and block-scale format of an operand."""
    if type_ is None:
        return None, None
    if type_.dtype is not None:
        return type_.dtype, None
    scaled = _SCALED.get(last(type_.name))
    inner = _argument(type_, 0)
    return (inner.dtype if inner is not None else None), scaled


def _from_builders(mainloop: CType, epilogue: CType | None, kernel: CType | None, known: object) -> Collective | None:
    arch = _argument(mainloop, 0)
    family = {"Sm90": "sm90", "Sm100": "sm100", "Sm80": "sm80"}.get(last(arch.name) if arch is not None else "")
    if family is None or family == "sm80":
        return None
    a, scaled = _element(_argument(mainloop, 2))
    b, _ = _element(_argument(mainloop, 5))
    acc, _ = _element(_argument(mainloop, 8))
    stage = _argument(mainloop, 11)
    counted = stage is not None and last(stage.name) == "StageCount" and stage.args
    schedule = _argument(mainloop, 12)
    if family == "sm90" and schedule is not None and not _is_specialised(last(schedule.name)):
        return None
    c, _ = _element(_argument(epilogue, 7))
    d, _ = _element(_argument(epilogue, 10))
    epilogue_schedule = _argument(epilogue, 13)
    names = " ".join(one.name for one in _types(_argument(epilogue, 14), 0))
    scheduler = kernel.args[3] if kernel is not None and len(kernel.args) > 3 else None
    return Collective(
        family,
        "GemmUniversalAdapter",
        _extents(_argument(mainloop, 9), known),
        _extents(_argument(mainloop, 10), known),
        _number(stage.args[0], known) if stage is not None and counted else None,
        last(schedule.name) if schedule is not None else "Auto",
        last(epilogue_schedule.name) if epilogue_schedule is not None else "Auto",
        a,
        b,
        c,
        d if d is not None else c,
        acc,
        scaled,
        tuple(key for key, words in _WORDS.items() if any(word in names for word in words)),
        last(scheduler.name) if isinstance(scheduler, CType) else "",
    )


def _is_specialised(schedule: str) -> bool:
    """Whether a schedule for sm_90 has producer and consumer warps that share TMA loads: what is written down."""
    return "TmaWarpSpecialized" in schedule or schedule.endswith("Auto")


def _from_device_gemm(type_: CType, known: object) -> Collective | None:
    """`device::Gemm<A, LayoutA, B, LayoutB, C, LayoutC, Acc, OpClass, Arch, Tile, Warp, …>` of CUTLASS 2."""
    if len(type_.args) < 10 or "TensorOp" not in (getattr(_argument(type_, 7), "name", "") or ""):
        return None
    stages = next(
        (n for one in type_.args[12:] if not isinstance(one, CType) and (n := _number(one, known)) is not None), None
    )
    names = " ".join(one.name for one in _types(_argument(type_, 12), 0))
    a, b, c, acc = (_element(_argument(type_, position))[0] for position in (0, 2, 4, 6))
    return Collective(
        "sm80",
        last(type_.name),
        _extents(_argument(type_, 9), known),
        (),
        stages,
        "",
        "",
        a,
        b,
        c,
        c,
        acc,
        None,
        tuple(key for key, words in _WORDS.items() if any(word in names for word in words)),
        "",
    )


@cache
def _template(name: str) -> Template:
    return Template((Path(__file__).parent / "collectives" / f"{name}.cu").read_text(encoding="utf-8"))


def source(one: Collective) -> str:
    """The kernel that a collective lowers to, as text."""
    bm, bn, bk = ((*one.tile, None, None, None))[:3]
    sizes = {
        "NAME": one.name,
        "BM": str(bm) if bm is not None else "TILE_M",
        "BN": str(bn) if bn is not None else "TILE_N",
        "BK": str(bk) if bk is not None else "TILE_K",
        "STAGES": str(one.stages or 3),
        "ACC": str(bm * bn // 256) if bm is not None and bn is not None else "64",
        "MULTICAST": ".multicast::cluster" if any(size is not None and size > 1 for size in one.cluster) else "",
        "CTAS": "2" if one.two_ctas else "1",
        "GROUP": ".cta_group::2" if one.two_ctas else "",
        "THREADS": "384",
        "CONSUMERS": "2",
        "TILE_STEP": "gridDim.x" if one.persistent else "tiles",
        "EPILOGUE": _epilogue(one),
        # only schedules with two consumer groups move registers to them
        "LESS_REGISTERS": 'asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");' if one.persistent else "",
        "MORE_REGISTERS": 'asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");' if one.persistent else "",
    }
    if one.family != "sm90":
        return _open(one) + _template(one.family).substitute(sizes)
    consumer = _template("sm90_consumer")
    if not one.pingpong:
        sizes |= {
            "CONSUMER": consumer.substitute(sizes, ORDER_IN="", ORDER_OUT=""),
            "CONSUMER_TEST": "",
            "SECOND_CONSUMER": "",
        }
        return _open(one) + _template("sm90").substitute(sizes)
    first = consumer.substitute(sizes, ORDER_IN=_order(1), ORDER_OUT=_order_done(2))
    second = consumer.substitute(sizes, ORDER_IN=_order(2), ORDER_OUT=_order_done(1))
    sizes |= {
        "CONSUMER": first,
        "CONSUMER_TEST": " if (group == 1)",
        "SECOND_CONSUMER": f" else {{\n{second}\n  }}",
    }
    return _open(one) + _template("sm90").substitute(sizes)


def _open(one: Collective) -> str:
    names = ("TILE_M", "TILE_N", "TILE_K")
    return "".join(
        f"extern const int {name};\n"
        for name, size in zip(names, (*one.tile, None, None, None), strict=False)
        if size is None
    )


def _order(barrier: int) -> str:
    return f'asm volatile("bar.sync {barrier}, 256;");'


def _order_done(barrier: int) -> str:
    return f'asm volatile("bar.arrive {barrier}, 256;");'


def _epilogue(one: Collective) -> str:
    """Scaling, the fused operators and the store of one tile."""
    lines = ["float v = alpha * acc[0];"]
    if one.c is not None:
        lines.append("v += beta * float(C[threadIdx.x]);")
    if "bias" in one.fusions:
        lines.append("v += float(C[blockIdx.y]);")
    if "gelu" in one.fusions:
        lines.append("v = 0.5f * v * (1.f + erff(v * 0.70710678f));")
    if "silu" in one.fusions:
        lines.append("v = v / (1.f + expf(-v));")
    if "relu" in one.fusions:
        lines.append("v = fmaxf(v, 0.f);")
    direct = one.family == "sm80" or "NoSmem" in one.epilogue_schedule
    if direct:
        lines.append("D_ptr[threadIdx.x] = TD(v);")
    else:
        lines += [
            "smem_d[0][threadIdx.x] = TD(v);",
            'asm volatile("fence.proxy.async.shared::cta;");',
            'asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"'
            ' ::"l"(&D), "r"(0), "r"(tile), "r"((uint32_t)__cvta_generic_to_shared(&smem_d[0][0])));',
            'asm volatile("cp.async.bulk.commit_group;");',
        ]
    return "\n      ".join(lines)
