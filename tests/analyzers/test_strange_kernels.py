"""Kernels that nobody would write are analysed by every detector without an error in one."""

from __future__ import annotations

import pytest

from d2k.analyzers import engine
from d2k.analyzers.analyze import Options, read, report
from d2k.spec.finding import Status

TRITON = """
import triton
import triton.language as tl

@triton.jit
def k(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(X + i, mask=i < n)
BODY
    tl.store(Y + i, x, mask=i < n)

def run(X, Y):
    k[(X.numel(),)](X, Y, X.numel(), B=SIZE)
"""

CUDA = "struct T; __device__ const float* find(T*, int);\n__global__ void k(T* t, float* y, int n) {\nBODY\n}\n"


def triton(body: str, size: str = "64") -> str:
    return TRITON.replace("BODY", "".join(f"    {line}\n" for line in body.splitlines())).replace("SIZE", size)


STRANGE = {
    "empty tile.py": triton("x = x * 2", size="0"),
    "negative tile.py": triton("x = x * 2", size="-16"),
    "immense tile.py": triton("x = x * 2", size="10**30"),
    "tile that is no number.py": triton("x = x * 2", size="float('nan')"),
    "long chain of loads.py": triton("\n".join(f"x += tl.load(X + i + {at}, mask=i < n)" for at in range(400))),
    "long chain in a loop.py": triton(
        "for j in range(n):\n" + "\n".join(f"    x = x * {at} + tl.load(X + i + j)" for at in range(200))
    ),
    "surrogates.py": triton("x = tl.load(X + i, cache_modifier='\\udfff')", size="'\\ud800'"),
    "arrays that are not known.cu": CUDA.replace(
        "BODY",
        "float s = 0.f;\nfor (int i = threadIdx.x; i < n; i += 32) s += find(t, 0)[i];\n"
        "for (int j = 0; j < n / 32; ++j) s += find(t, 1)[j * 32 + threadIdx.x];\ny[threadIdx.x] = s;",
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine.STRICT, "1")
    program = read(name, STRANGE[name], Options())
    found = report(program, STRANGE[name], Options())
    assert [one.name for one in found.kernels] == ["k"]


def test_parts_that_read_what_is_not_known_are_not_called_the_same_work() -> None:
    name = "arrays that are not known.cu"
    found = report(read(name, STRANGE[name], Options()), STRANGE[name], Options())
    peeling = next(one for one in found.properties if one.id == "mask_peeling")
    assert peeling.status is not Status.PRESENT
