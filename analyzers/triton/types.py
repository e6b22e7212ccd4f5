"""Element types and tile shapes of operations."""

from __future__ import annotations

from collections.abc import Mapping


def words(text: str) -> frozenset[str]:
    """The words of a text: a set of names that reads well."""
    return frozenset(text.split())


BITS: Mapping[str, int] = {
    "bool": 1,
    "i8": 8,
    "u8": 8,
    "i16": 16,
    "u16": 16,
    "i32": 32,
    "u32": 32,
    "i64": 64,
    "u64": 64,
    "f8e4m3": 8,
    "f8e5m2": 8,
    "f8e8m0": 8,
    "f4e2m1": 4,
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
}

NAMES: Mapping[str, str] = {
    "int1": "bool",
    "bool": "bool",
    "bool_": "bool",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "int": "i32",
    "uint32": "u32",
    "int64": "i64",
    "long": "i64",
    "uint64": "u64",
    "float8e4nv": "f8e4m3",
    "float8e4b8": "f8e4m3",
    "float8e4b15": "f8e4m3",
    "float8_e4m3fn": "f8e4m3",
    "float8_e4m3fnuz": "f8e4m3",
    "float8e5": "f8e5m2",
    "float8e5b16": "f8e5m2",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2",
    "float8_e8m0fnu": "f8e8m0",
    "float4_e2m1fn_x2": "f4e2m1",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float": "f32",
    "float64": "f64",
    "double": "f64",
    # names of other kernel languages
    "Float32": "f32",
    "Float16": "f16",
    "BFloat16": "bf16",
    "TFloat32": "tf32",
    "Float8E4M3FN": "f8e4m3",
    "Float8E5M2": "f8e5m2",
    "Float4E2M1FN": "f4e2m1",
    "Int32": "i32",
    "Int64": "i64",
    "Uint8": "u8",
    "Int8": "i8",
}

MODULES = ("triton.language.", "triton.experimental.gluon.language.", "torch.", "cutlass.", "cuda.tile.", "numpy.")


def named_dtype(dotted: str) -> str | None:
    """The element type that a dotted name stands for: `triton.language.float32`, `torch.bfloat16`."""
    head, _, last = dotted.rpartition(".")
    return NAMES.get(last) if f"{head}." in MODULES or head == "tilelang.language" else None


SCALE_FORMATS: Mapping[str, str] = {
    "e4m3": "f8e4m3",
    "e5m2": "f8e5m2",
    "e2m1": "f4e2m1",
    "bf16": "bf16",
    "fp16": "f16",
}
"""Operand formats of `tl.dot_scaled` by the words it takes."""


def is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf", "tf"))


def promote(left: str | None, right: str | None) -> str | None:
    """The type of an arithmetic result; None if one of the operands' types is not known."""
    if left is None or right is None:
        return None
    if left == right:
        return left
    if is_float(left) != is_float(right):
        return left if is_float(left) else right
    if is_float(left):
        if {left, right} == {"f16", "bf16"}:
            return "f32"
        return left if BITS[left] >= BITS[right] else right
    if BITS[left] != BITS[right]:
        return left if BITS[left] > BITS[right] else right
    return left if left.startswith("u") else right
