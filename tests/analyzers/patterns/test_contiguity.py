"""Where neighbouring elements of a tile lie in memory, and how wide an access of a thread can be."""

from __future__ import annotations

import pytest

from d2k.analyzers.analyze import Options, read
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.contiguity import access_steps
from d2k.analyzers.patterns.widths import width
from d2k.spec.facts import Kind

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def k(X, Y, N, sm, sn, ROW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    x = tl.load(ADDRESS)
    tl.store(Y + m[:, None] * BN + n[None, :], x)

def run(x, y, s):
    x = PREPARE
    k[(4,)](x, y, x.shape[1], x.stride(0), x.stride(1), ROW=96, BM=16, BN=64, num_warps=4)
"""


def kernel(address: str, prepare: str = "x") -> KernelView:
    code = KERNEL.replace("ADDRESS", address).replace("PREPARE", prepare)
    program = read("k.py", code, Options())
    assert not program.problems
    return ProgramView(program, "sm_90a").kernels[0]


def steps(address: str, prepare: str = "x") -> tuple[str | None, ...]:
    view = kernel(address, prepare)
    found = access_steps(view, view.values(Kind.LOAD)[-1])
    assert found is not None
    return tuple(None if step is None else step.how for step in found)


ROWS = "X + m[:, None] * ROW + "


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (ROWS + "n[None, :]", ("strided", "unit")),
        (ROWS + "(n * 2)[None, :]", ("strided", "strided")),
        ("X + m[:, None] + n[None, :] * ROW", ("unit", "strided")),
        ("X + m[:, None] * N + n[None, :]", ("strided", "unit")),  # N is an extent: rows are further apart than 1
        (ROWS + "(n % N)[None, :]", ("strided", "unit")),  # whole runs of a remainder lie together
        (ROWS + "(n % 4)[None, :]", ("strided", "irregular")),
        (ROWS + "tl.load(Y + n)[None, :]", ("strided", "irregular")),
        (ROWS + "(N - n)[None, :]", ("strided", "strided")),  # downwards: no wide access takes them
        ("tl.trans(X + n[:, None] + m[None, :] * ROW)", ("strided", "unit")),
        ("X + m[:, None] * ROW + tl.zeros((1, BN), tl.int32)", ("strided", None)),
    ],
)
def test_steps(address: str, expected: tuple[str | None, ...]) -> None:
    assert steps(address) == expected


def test_stride_of_a_dense_tensor_is_one() -> None:
    address = "X + m[:, None] * sm + n[None, :] * sn"
    assert steps(address, "torch.empty((64, 64), dtype=torch.float16)")[1] == "unit"
    assert steps(address)[1] == "runtime"


def test_block_pointers_say_their_strides() -> None:
    assert steps("tl.make_block_ptr(X, (N, 64), (64, 1), (0, 0), (BM, BN), (1, 0))") == ("strided", "unit")


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float16", 128), ("float32", 128), ("float8_e4m3fn", 64)],  # 16 * 64 elements over 128 threads: 8 each
)
def test_width_follows_the_element_type(dtype: str, bits: int) -> None:
    view = kernel(ROWS + "n[None, :]", f"torch.empty((64, 64), dtype=torch.{dtype})")
    found = width(view, view.values(Kind.LOAD)[0])
    assert (found.run, found.bits) == (8, bits)


def test_width_without_an_element_type_is_bounded() -> None:
    view = kernel(ROWS + "n[None, :]")
    found = width(view, view.values(Kind.LOAD)[0])
    assert (found.bits, found.least) == (None, 64)  # 8 elements of at least 8 bits
