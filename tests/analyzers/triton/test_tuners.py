"""Configurations reach a kernel through tuners of the program's own and through functions that select among them."""

from __future__ import annotations

import pytest

from d2k.analyzers.triton.frontend import read

SOURCE = """
import triton
import triton.language as tl
from elsewhere import cached_autotune, choose

CONFIGS = [triton.Config({{"BLOCK": block}}, num_warps=warps) for block in (512, 1024) for warps in (2, 8)]


@{tuner}
@triton.jit
def copy(X, Y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i))


def run(X, Y):
    copy[lambda META: (X.numel() // META["BLOCK"],)](X, Y)
"""


@pytest.mark.parametrize(
    "tuner",
    [
        'triton.autotune(configs=CONFIGS, key=["n"])',
        'cached_autotune(configs=CONFIGS, key=["n"])',
        'triton.autotune(configs=choose(CONFIGS), key=["n"])',
        'triton.autotune(choose(CONFIGS), key=["n"])',
    ],
)
def test_every_configuration_is_a_variant(tuner: str) -> None:
    (kernel,) = read("kernel.py", SOURCE.format(tuner=tuner)).kernels
    found = {(one.constants["BLOCK"], one.launch.num_warps) for one in kernel.variants}
    assert found == {(512, 2), (512, 8), (1024, 2), (1024, 8)}
    assert bool(kernel.attrs.get("configs_pruned")) is ("choose" in tuner or "cached" in tuner)


def test_a_decorator_that_takes_no_configurations_is_no_tuner() -> None:
    (kernel,) = read("kernel.py", SOURCE.format(tuner='cached_autotune(key=["n"])')).kernels
    assert "autotuned" not in kernel.attrs
