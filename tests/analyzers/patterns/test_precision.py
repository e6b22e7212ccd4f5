"""Element types through arithmetic, host code and memory."""

from __future__ import annotations

import pytest

from d2k.analyzers.analyze import Options, read
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.precision import precision
from d2k.spec.facts import Kind

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def k(X, Y, Z, s, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(Z + i, VALUE)

def run(x, z):
    y = torch.empty_like(x, dtype=torch.bfloat16)
    k[(1,)](x, y.view(-1), z, 2.0, BLOCK=128)
"""


def stored(value: str) -> str | None:
    program = read("k.py", KERNEL.replace("VALUE", value), Options())
    assert not program.problems
    view: KernelView = ProgramView(program, "sm_90a").kernels[0]
    return precision(view, view.op(view.values(Kind.STORE)[0]).args[1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", None),  # the caller's tensor
        ("y", "bf16"),  # allocated here, seen through a view
        ("y * 2.0", "bf16"),  # literals take the other operand's type
        ("x.to(tl.float32) + y", "f32"),  # one wide operand makes the result wide
        ("x * y", None),
        ("tl.sum(y)", "bf16"),
        ("tl.where(i > 3, y, 0.0)", "bf16"),
        ("x.to(Y.dtype.element_ty)", "bf16"),
        ("tl.exp(x.to(tl.float32))[:, None]", "f32"),
    ],
)
def test_stored_type(value: str, expected: str | None) -> None:
    assert stored(value) == expected
