"""Runs `d2kc` in the process of the tests; one test alone starts the real command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from d2k.cli.main import run

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, eviction_policy="evict_first")
    tl.store(Y + i, x * 2, mask=i < n)


def run(X, Y):
    n = X.numel()
    scale[(triton.cdiv(n, 1024),)](X, Y, n, BLOCK=1024)
"""


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def d2kc(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """`d2kc("check", path)` with its exit code and what it printed."""

    def command(*arguments: str | Path) -> Done:
        code = run([str(one) for one in arguments])
        captured = capfdbinary.readouterr()
        done = Done(code, captured.out.decode(), captured.err.decode())
        assert "Traceback" not in done.out + done.err
        return done

    return command


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    return path
