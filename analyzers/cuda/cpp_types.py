"""C++ types as far as facts need them: element type, lanes, pointers, arrays and classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from d2k.analyzers.cuda.scope import ClassInstance
    from d2k.analyzers.cuda.values import Thing

BITS: Mapping[str, int] = {
    "f64": 64,
    "f32": 32,
    "tf32": 32,
    "f16": 16,
    "bf16": 16,
    "f8e4m3": 8,
    "f8e5m2": 8,
    "f8e8m0": 8,
    "f6e2m3": 6,
    "f6e3m2": 6,
    "f4e2m1": 4,
    "i64": 64,
    "u64": 64,
    "i32": 32,
    "u32": 32,
    "i16": 16,
    "u16": 16,
    "i8": 8,
    "u8": 8,
    "i4": 4,
    "u4": 4,
    "bool": 8,
}

SCALARS: Mapping[str, str] = {
    "float": "f32",
    "double": "f64",
    "long double": "f64",
    "half": "f16",
    "__half": "f16",
    "half_t": "f16",
    "_Float16": "f16",
    "__fp16": "f16",
    "Half": "f16",
    "nv_half": "f16",
    "bfloat16": "bf16",
    "bfloat16_t": "bf16",
    "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16",
    "__bfloat16": "bf16",
    "BFloat16": "bf16",
    "bf16": "bf16",
    "tfloat32_t": "tf32",
    "__nv_fp8_e4m3": "f8e4m3",
    "nv_fp8_e4m3": "f8e4m3",
    "float_e4m3_t": "f8e4m3",
    "Float8_e4m3fn": "f8e4m3",
    "__nv_fp8_e5m2": "f8e5m2",
    "nv_fp8_e5m2": "f8e5m2",
    "float_e5m2_t": "f8e5m2",
    "Float8_e5m2": "f8e5m2",
    "__nv_fp8_e8m0": "f8e8m0",
    "float_ue8m0_t": "f8e8m0",
    "float_ue4m3_t": "f8e4m3",
    "__nv_fp4_e2m1": "f4e2m1",
    "float_e2m1_t": "f4e2m1",
    "float_e2m1_unpacksmem_t": "f4e2m1",
    "__nv_fp8_storage_t": "u8",
    "__nv_fp8x2_storage_t": "u16",
    "__nv_fp8x4_storage_t": "u32",
    "__nv_fp4x2_storage_t": "u8",
    "bool": "bool",
    "char": "i8",
    "signed char": "i8",
    "unsigned char": "u8",
    "int8_t": "i8",
    "uint8_t": "u8",
    "byte": "u8",
    "char8_t": "u8",
    "short": "i16",
    "short int": "i16",
    "unsigned short": "u16",
    "unsigned short int": "u16",
    "int16_t": "i16",
    "uint16_t": "u16",
    "int": "i32",
    "signed": "i32",
    "signed int": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "uint": "u32",
    "int32_t": "i32",
    "uint32_t": "u32",
    "long": "i64",
    "long int": "i64",
    "unsigned long": "u64",
    "unsigned long int": "u64",
    "long unsigned int": "u64",
    "long long": "i64",
    "long long int": "i64",
    "unsigned long long": "u64",
    "unsigned long long int": "u64",
    "long long unsigned int": "u64",
    "int64_t": "i64",
    "uint64_t": "u64",
    "int_fast32_t": "i32",
    "size_t": "u64",
    "ssize_t": "i64",
    "ptrdiff_t": "i64",
    "uintptr_t": "u64",
    "intptr_t": "i64",
    "int4b_t": "i4",
    "uint4b_t": "u4",
    "index_t": "i64",
}

_VECTOR_BASES = {
    "char": "i8",
    "uchar": "u8",
    "short": "i16",
    "ushort": "u16",
    "int": "i32",
    "uint": "u32",
    "long": "i64",
    "ulong": "u64",
    "longlong": "i64",
    "ulonglong": "u64",
    "float": "f32",
    "double": "f64",
}
VECTORS: dict[str, tuple[str, int]] = {
    f"{name}{lanes}": (dtype, lanes) for name, dtype in _VECTOR_BASES.items() for lanes in (1, 2, 3, 4)
}
VECTORS |= {
    "half2": ("f16", 2),
    "__half2": ("f16", 2),
    "nv_half2": ("f16", 2),
    "__nv_bfloat162": ("bf16", 2),
    "nv_bfloat162": ("bf16", 2),
    "bf16_2": ("bf16", 2),
    "__nv_fp8x2_e4m3": ("f8e4m3", 2),
    "__nv_fp8x4_e4m3": ("f8e4m3", 4),
    "__nv_fp8x2_e5m2": ("f8e5m2", 2),
    "__nv_fp8x4_e5m2": ("f8e5m2", 4),
    "__nv_fp8x2_e8m0": ("f8e8m0", 2),
    "__nv_fp4x2_e2m1": ("f4e2m1", 2),
    "__nv_fp4x4_e2m1": ("f4e2m1", 4),
    "uint128_t": ("u32", 4),
    "__uint128_t": ("u32", 4),
    "__int128": ("u32", 4),
    "dim3": ("u32", 3),
}
ARRAYS = frozenset(
    {"array", "Array", "AlignedArray", "array_aligned", "array_subbyte", "aligned_array", "fragment_array"}
)
"""Class templates `X<T, N>` that are arrays of N elements."""

_MEMBERS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1}


class CType(msgspec.Struct, frozen=True):
    """`dtype` is the element type, None where it is not known. `lanes` > 1: a vector type. `dims` are folded extents of
    an array, None where one is not known. `name` is what the source says. `integral` is the value that a type such as
    `Int<4>` stands for. `atoms` are library names that occur in the type and in what it was made from.
    """

    dtype: str | None = None
    lanes: int = 1
    pointer: int = 0
    name: str = ""
    instance: ClassInstance | None = None
    dims: tuple[int | None, ...] = ()
    dim_values: tuple[int, ...] = ()
    const: bool = False
    reference: bool = False
    volatile: bool = False
    restrict: bool = False
    integral: int | None = None
    target: CType | None = None
    """What a pointer to an array points to: `dims` of the pointer's own type would be an array of pointers."""
    args: tuple[Thing, ...] = ()
    atoms: tuple[str, ...] = ()

    def pointee(self) -> CType:
        if self.target is not None and self.pointer == 1:
            return self.target
        return replace(self, pointer=self.pointer - 1, reference=False) if self.pointer else self

    def pointer_to(self) -> CType:
        return replace(self, pointer=self.pointer + 1, reference=False)

    def element(self) -> CType:
        """The type of an array's element, one dimension down."""
        return replace(self, dims=self.dims[1:], dim_values=self.dim_values[1:], reference=False)

    @property
    def scalar(self) -> bool:
        return not self.pointer and not self.dims and self.lanes == 1

    def bits(self) -> int | None:
        """Width of one value of this type; None if it is not known."""
        if self.pointer:
            return 64
        total: int | None
        if self.instance is not None:
            total = self.instance.bits()
        elif self.dtype is None:
            return None
        else:
            total = BITS[self.dtype] * self.lanes if self.dtype in BITS else None
        for extent in self.dims:
            total = None if total is None or extent is None else total * extent
        return total

    @property
    def is_float(self) -> bool:
        return (self.dtype is not None and self.dtype[0] in "ft") or self.dtype == "bf16"


UNKNOWN_TYPE = CType()
INT = CType("i32", name="int")
BOOL = CType("bool", name="bool")
FLOAT = CType("f32", name="float")
U32 = CType("u32", name="uint32_t")
U64 = CType("u64", name="uint64_t")
DIM3 = CType("u32", 3, name="dim3")


def builtin(name: str) -> CType | None:
    """The type of a scalar or vector name without scopes."""
    dtype = SCALARS.get(name)
    if dtype is not None:
        return CType(dtype, name=name)
    vector = VECTORS.get(name)
    if vector is not None:
        return CType(vector[0], vector[1], name=name)
    if name[:1] == "_" and name[1:].isdigit():
        return CType(name=name, integral=int(name[1:]))
    if "unsigned" in name or "long" in name or "short" in name or "int" in name.split():
        words = re.sub(r"\b(?:const|volatile|int|signed|register)\b", " ", name).split()
        plain = " ".join(sorted(words, key=lambda w: w != "unsigned")) or "int"
        dtype = SCALARS.get(plain)
        if dtype is not None:
            return CType(dtype, name=name)
    return None


def lane_of(member: str) -> int | None:
    """The lane that a member of a vector type names."""
    return _MEMBERS.get(member)


_RANK = {"bool": 0, "i8": 1, "u8": 1, "i16": 1, "u16": 1, "i32": 2, "u32": 3, "i64": 4, "u64": 5}


def common(left: CType, right: CType) -> CType:
    """The type of arithmetic on two operands."""
    a, b = left.dtype, right.dtype
    if a is None or b is None or a == b:
        chosen = left if a is not None else right
        if left.lanes > 1 or right.lanes > 1:
            return left if left.lanes >= right.lanes else right
        if a == b and a in ("i8", "u8", "i16", "u16", "bool"):
            return INT
        return chosen if chosen.scalar and not chosen.name else CType(chosen.dtype, chosen.lanes)
    if left.lanes != right.lanes:
        return left if left.lanes > right.lanes else right
    if a in _RANK and b in _RANK:
        top = max(_RANK[a], _RANK[b], 2)
        return CType(next(name for name, rank in _RANK.items() if rank == top))
    if a in _RANK:
        return CType(b, right.lanes)
    if b in _RANK:
        return CType(a, left.lanes)
    return CType(a if BITS.get(a, 0) >= BITS.get(b, 0) else b)
