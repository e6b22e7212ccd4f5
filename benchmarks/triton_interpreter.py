"""Make Triton's interpreter round as a GPU does.

Seen in Triton 3.6 and 3.9: casts to bf16 truncate, casts to e4m3 drop the carry out of the mantissa (1.96 becomes 1.0)
and truncate subnormal codes, and `tl.dot` multiplies the bit patterns of bf16 operands. Element-wise arithmetic on
bf16 stays wrong: kernels convert to fp32 first, as they should.
"""

from __future__ import annotations

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

TORCH = {
    tl.float32: torch.float32,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
BITS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}


def convert(data: np.ndarray, source: tl.dtype, target: tl.dtype, rounding_mode: object) -> np.ndarray:
    """`data` holds `source` values as bits or floats; returns the bits of `target`, rounded to nearest even.

    8-bit targets saturate, as the hardware conversions that Triton emits do.
    """
    values = torch.from_numpy(np.ascontiguousarray(data)).view(TORCH[source])
    if target.primitive_bitwidth == 8:
        limit = torch.finfo(TORCH[target]).max
        values = values.float().clamp(-limit, limit)
    result = values.to(TORCH[target])
    return result.view(BITS[result.element_size()]).numpy()


def install() -> None:
    """Replace the interpreter's casts and bf16 dot in this process."""
    builder = interpreter.InterpreterBuilder
    original_dot = builder.create_dot

    def dot(self: object, a: object, b: object, d: object, *options: object) -> object:
        def widen(handle: object) -> object:
            if handle.dtype.scalar != tl.bfloat16:
                return handle
            wide = convert(handle.data, tl.bfloat16, tl.float32, None).view(np.float32)
            return interpreter.TensorHandle(wide, tl.float32)

        return original_dot(self, widen(a), widen(b), d, *options)

    interpreter._convert_float = convert
    builder.create_dot = dot
