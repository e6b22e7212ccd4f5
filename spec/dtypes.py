"""Element types of the language: their widths, kinds and the containers that packed types live in."""

from __future__ import annotations

from types import MappingProxyType

import msgspec


class DType(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An element type: `bits` wide; `kind` is `float`, `int` (signed), `uint` or `bool`."""

    name: str
    bits: int
    kind: str


DTYPES = MappingProxyType(
    {
        one.name: one
        for one in (
            DType("f64", 64, "float"),
            DType("f32", 32, "float"),
            DType("tf32", 32, "float"),
            DType("f16", 16, "float"),
            DType("bf16", 16, "float"),
            DType("f8e4m3", 8, "float"),
            DType("f8e5m2", 8, "float"),
            DType("f8e8m0", 8, "float"),
            DType("f4e2m1", 4, "float"),
            DType("i64", 64, "int"),
            DType("i32", 32, "int"),
            DType("i16", 16, "int"),
            DType("i8", 8, "int"),
            DType("u8", 8, "uint"),
            DType("i4", 4, "int"),
            DType("u4", 4, "uint"),
            DType("bool", 8, "bool"),
        )
    }
)
"""Every type by name. `tf32` is stored as 32 bits of which the tensor core reads 19."""

CONTAINERS = ("u8", "i8", "i16", "i32", "i64")
"""Types that may hold packed elements: along the last axis, the first element in the lowest bits."""


def storage_bytes(dtype: str, elements: int) -> int:
    """Bytes that `elements` elements take when packed without gaps."""
    return -(-DTYPES[dtype].bits * elements // 8)


def per_container(dtype: str, container: str) -> int:
    """How many elements of `dtype` one element of `container` holds; 0 if they do not fit evenly."""
    wide, narrow = DTYPES[container].bits, DTYPES[dtype].bits
    return wide // narrow if wide % narrow == 0 else 0
