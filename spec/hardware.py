"""What each GPU architecture can do, and the spellings by which people name it.

A feature answers "can a kernel for this target use it at all", not "does a kernel use it".
"""

from __future__ import annotations

import re
from types import MappingProxyType

import msgspec


class Architecture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A target: `generation` orders architectures (90 for sm90), `sms` counts the multiprocessors of `device`."""

    name: str
    generation: int
    device: str
    sms: int
    features: frozenset[str]


FEATURES = MappingProxyType(
    {
        "mma_sync": "warp-wide tensor-core instructions (mma.sync)",
        "bf16": "tensor-core products of bfloat16",
        "tf32": "tensor-core products of TF32",
        "cp_async": "asynchronous copies from global to shared memory (cp.async)",
        "mbarrier": "transaction barriers in shared memory",
        "redux": "integer reductions over a warp in one instruction",
        "l2_persist": "a persisting window of the L2 cache",
        "fp8": "tensor-core products of 8-bit floats",
        "cvt_fp8x2": "conversion of two values to 8-bit floats in one instruction",
        "tma": "bulk tensor copies (cp.async.bulk.tensor)",
        "tma_multicast": "one bulk copy delivered to several blocks of a cluster",
        "cluster": "thread-block clusters and distributed shared memory",
        "pdl": "programmatic dependent launch",
        "setmaxnreg": "moving registers between warp groups (setmaxnreg)",
        "stmatrix": "matrix stores to shared memory (stmatrix)",
        "vector_reduce": "vectorised floating-point reductions to global memory (red.v4.f32)",
        "wgmma": "asynchronous warp-group MMA of Hopper (wgmma)",
        "tcgen05": "fifth-generation tensor core (tcgen05)",
        "tmem": "tensor memory for accumulators",
        "two_cta": "one MMA over a pair of blocks (cta_group::2)",
        "fp4": "tensor-core products of 4-bit floats",
        "block_scale": "scale factors applied inside the MMA instruction",
        "cvt_e2m1x2": "conversion of two values to e2m1 in one instruction",
        "f32x2": "packed pairs of fp32 operations",
        "cluster_launch_control": "work stealing between launched clusters (clusterlaunchcontrol)",
    }
)
"""Every hardware feature that a property's `needs` and an item's `when` may name, with its meaning."""

_AMPERE = frozenset({"mma_sync", "bf16", "tf32", "cp_async", "mbarrier", "redux", "l2_persist"})
_ADA = _AMPERE | {"fp8", "cvt_fp8x2"}
_HOPPER_COMMON = _ADA | {"tma", "cluster", "pdl", "setmaxnreg", "stmatrix", "vector_reduce"}
_HOPPER = _HOPPER_COMMON | {"tma_multicast", "wgmma"}
_BLACKWELL_COMMON = _HOPPER_COMMON | {"fp4", "block_scale", "cvt_e2m1x2", "f32x2", "cluster_launch_control"}
_BLACKWELL = _BLACKWELL_COMMON | {"tma_multicast", "tcgen05", "tmem", "two_cta"}

ARCHITECTURES = MappingProxyType(
    {
        one.name: one
        for one in (
            Architecture("sm80", 80, "A100", 108, _AMPERE),
            Architecture("sm86", 86, "RTX 3090", 82, _AMPERE),
            Architecture("sm89", 89, "RTX 4090", 128, _ADA),
            Architecture("sm90", 90, "H200", 132, _HOPPER),
            Architecture("sm100", 100, "B200", 148, _BLACKWELL),
            Architecture("sm103", 103, "B300", 148, _BLACKWELL),
            Architecture("sm120", 120, "RTX 5090", 170, _BLACKWELL_COMMON),
        )
    }
)
"""Known architectures, oldest first. sm120 has TMA and block scaling, but neither wgmma nor tcgen05."""

_SPELLING = re.compile(r"(?:sm|compute)?_?(\d{2,3})[af]?", re.IGNORECASE)


def normalise_architecture(spelling: str) -> str | None:
    """`sm_100a`, `sm100`, `compute_90`, `SM_90a` and `90` as `sm100` or `sm90`; None if there is no such target."""
    found = _SPELLING.fullmatch(spelling.strip())
    name = f"sm{found.group(1)}" if found else ""
    return name if name in ARCHITECTURES else None


def compile_target(architecture: str) -> str:
    """The name that compilers take for a known architecture with all its instructions: `sm_100a` for `sm100`."""
    known = ARCHITECTURES[architecture]
    return f"sm_{known.generation}{'a' if known.generation >= 90 else ''}"


def has_features(architecture: str, needs: frozenset[str]) -> bool:
    """Whether a known architecture has every feature of `needs`."""
    return needs <= ARCHITECTURES[architecture].features


ENGINES = MappingProxyType(
    {
        "tensor.f64": "FP64 tensor cores",
        "tensor.tf32": "TF32 tensor cores",
        "tensor.f16": "FP16 tensor cores",
        "tensor.bf16": "BF16 tensor cores",
        "tensor.f8": "FP8 tensor cores",
        "tensor.f4": "FP4 tensor cores",
        "tensor.i8": "INT8 tensor cores",
        "cuda.f64": "FP64 on CUDA cores",
        "cuda.f32": "FP32 on CUDA cores",
        "cuda.f16": "packed FP16 or BF16 on CUDA cores",
        "cuda.i32": "32-bit integers on CUDA cores",
        "sfu": "special functions such as exp2",
    }
)
"""Which peak rate a line of `cost` is held against."""
