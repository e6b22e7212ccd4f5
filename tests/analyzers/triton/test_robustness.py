"""Any text is read: without a crash, in bounded time, and with a problem where something was not understood."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triton_facts import HEADER

from d2k.analyzers.triton.embedded import read_sources
from d2k.analyzers.triton.frontend import read
from d2k.spec.facts import NONE, Body, Program

KERNELS = (
    HEADER
    + '''
from torch.utils.cpp_extension import load_inline
SRC = f"""
__global__ void k() {{}}
"""
load_inline("m", "", SRC)

CONFIGS = [triton.Config({"BM": m, "BN": 64}, num_warps=w) for m in (32, 64) for w in (4, 8)]

@triton.jit
def helper(x, y, FLAG: tl.constexpr):
    if FLAG:
        return x + y
    return tl.where(x > 0, x, y)

@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 16 == 0})
@triton.jit
def k(a, b, n, BM: tl.constexpr, BN: tl.constexpr, EVEN: tl.constexpr, FLAG: tl.constexpr = True):
    pid = tl.program_id(0)
    acc = tl.zeros((BM, BN), tl.float32)
    for i in tl.range(0, n, BN, num_stages=3):
        x = tl.load(a + pid * BM + tl.arange(0, BM)[:, None] + i + tl.arange(0, BN)[None, :])
        acc += helper(x, acc, FLAG)
        if i > 4:
            acc, x = acc * 2, acc
    m, s = tl.max(acc, 1), tl.sum(acc, axis=1)
    while s.to(tl.int32) > 3:
        s = s - 1
    tl.store(b + pid * BM + tl.arange(0, BM), (m + s).to(b.dtype.element_ty), mask=n > 1)

class Op(torch.nn.Module):
    def __init__(self, width=4):
        self.width = width

    def forward(self, x, out=None):
        out = torch.empty_like(x) if out is None else out
        grid = lambda meta: (triton.cdiv(x.shape[0], meta["BM"]), 1)
        try:
            k[grid](x, out, x.shape[0], **{"FLAG": self.width > 3})
        except RuntimeError as error:
            raise ValueError from error
        return out
'''
)


def check(program: Program) -> None:
    """Every reference inside the facts leads somewhere."""
    for kernel in program.kernels:
        assert kernel.variants, kernel.name
        for variant in kernel.variants:
            check_body(variant.body)
    for function in program.functions:
        check_body(function.body)
    check_body(program.module)


def check_body(body: Body) -> None:
    count, loops = len(body.ops), len(body.loops)
    for at, op in enumerate(body.ops):
        assert all(NONE <= arg < count for arg in op.args)
        assert all(0 <= dim < count for dim in op.shape or ())
        assert NONE <= op.loop < loops
        assert all(0 <= guard.value < count for guard in op.guards)
        assert op.place.line >= 1
        if op.kind != "phi":
            assert all(arg < at for arg in op.args), op  # operands come before their user
    for loop in body.loops:
        assert NONE <= loop.parent < loops
        for carried in loop.carried:
            assert body.ops[carried.phi].args == (carried.before, carried.next)
            assert carried.next != carried.phi


def test_the_sample_is_sound() -> None:
    program = read("k.py", KERNELS)
    assert program.problems == ()
    assert [kernel.name for kernel in program.kernels] == ["k"]
    assert len(program.kernels[0].variants) == 8
    check(program)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import triton\n\x00",
        "import triton\ndef f(:\n",
        "import triton\n" + "(" * 5000 + ")" * 5000,
        "import triton\nx = " + "-" * 100_000 + "1",
        "import triton\nx = " + "+".join(["1"] * 20_000),
        "import triton\n@triton.jit\ndef k(p):\n    x = p" + "".join(f"\n    x = x + {i}" for i in range(40_000)),
        "import triton\n" + "".join(f"{'    ' * i}if x:\n" for i in range(90)) + "    " * 90 + "pass",
        "import triton\n@triton.jit\ndef k(p):\n    k(p)\n    k(p)\n    k(p)\n",
        "import triton\n@triton.jit\ndef a(p):\n    b(p); b(p)\n@triton.jit\ndef b(p):\n    a(p); a(p)\n"
        "def f(x):\n    a[(1,)](x)",
        "import torch\ndef a(x):\n    b(x); b(x); c(x)\ndef b(x):\n    c(x); a(x)\ndef c(x):\n    a(x); b(x)",
        "import torch\nx = x\ny = [y for y in y]\nclass A(A): a = A.a\n",
        "import triton\nf = triton.jit(f)\n@f\n@triton.jit\ndef k(p): pass\n",
        "from . import *\nfrom .... import x as triton\nimport triton as triton\n@triton.jit\ndef k(): pass\n",
        "import triton\nmatch x:\n    case {'a': [1, *b], **c} if b: pass\n    case A(x=1) | B(): pass\n",
        "import triton\nasync def f():\n    async with a as b:\n        async for c in b:\n            await c\n"
        "    return [d async for d in e]\n",
        "import torch\nx: int = (y := 5)\ndel x\nlambda *a, **k: (yield)\nglobal z\nprint(*[1], **{'a': 2}, sep='')\n",
    ],
)
def test_odd_files(text: str) -> None:
    start = time.process_time()
    program = read("k.py", text)
    check(program)
    assert read_sources("k.py", text) == ()
    assert time.process_time() - start < 8


def test_syntax_errors_have_a_place() -> None:
    (problem,) = read("k.py", "import triton\n\ndef f(:\n    pass\n").problems
    assert problem.place.line == 3
    assert problem.text.startswith("syntax error")


def test_a_body_that_is_too_large_is_a_problem() -> None:
    code = HEADER + "@triton.jit\ndef k(p):\n    x = p" + "".join("\n    x = x + 1" for _ in range(16_000))
    program = read("k.py", code)
    (problem,) = program.problems
    assert problem.kernels == ("k",)
    assert program.kernels[0].variants[0].body.unresolved


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_damaged_files(seed: int) -> None:
    """Lines dropped, doubled and swapped, words exchanged: whatever still parses is lowered soundly."""
    dice = random.Random(seed)
    lines = KERNELS.split("\n")
    for _ in range(dice.randint(1, 6)):
        at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
        match dice.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                words = sorted(
                    {word for word in KERNELS.replace("(", " ").replace(")", " ").split() if word.isidentifier()}
                )
                lines[at] = lines[at].replace(dice.choice(words), dice.choice(words))
    text = "\n".join(lines)
    check(read("k.py", text))
    read_sources("k.py", text)


def test_cost_is_linear() -> None:
    def seconds(copies: int) -> float:
        part = KERNELS.split("@triton.jit\ndef helper", 1)
        code = part[0] + "".join(
            ("@triton.jit\ndef helper" + part[1])
            .replace("def k(", f"def k{i}(")
            .replace("k[grid]", f"k{i}[grid]")
            .replace("class Op", f"class Op{i}")
            .replace("helper(", f"helper{i}(")
            for i in range(copies)
        )
        best = 1e9
        for _ in range(2):
            start = time.process_time()
            program = read("k.py", code)
            best = min(best, time.process_time() - start)
            assert len(program.kernels) == copies
        return best

    seconds(1)
    # quadratic growth would be 64 times; the margin is for a busy machine
    assert seconds(32) < 24 * seconds(4)
