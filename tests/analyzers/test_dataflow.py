"""The two ways in which `Flow.fetches` answers agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from d2k.analyzers.analyze import Options, read
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.patterns import dataflow
from d2k.analyzers.patterns.dataflow import Flow
from d2k.analyzers.patterns.matmul import operand_path
from d2k.spec.facts import Op

TASKS = Path(__file__).parents[2] / "tasks"


def anything(_: Op) -> bool:
    return True


@pytest.mark.parametrize("through", [anything, operand_path])
@pytest.mark.parametrize("path", ["attn_prefill_gqa/expert.py", "add_rmsnorm_fp8quant/expert.cu"])
def test_searches_and_sets_agree(path: str, through: dataflow.Through, monkeypatch: pytest.MonkeyPatch) -> None:
    program = read(path, (TASKS / path).read_text(), Options())
    for kernel in ProgramView(program, "sm_100a").kernels:
        monkeypatch.setattr(dataflow, "SEARCHES", 10**9)
        searched = [Flow(kernel.graph).fetches(value, through) for value in range(len(kernel.body.ops))]
        monkeypatch.setattr(dataflow, "SEARCHES", 0)
        sets = Flow(kernel.graph)
        assert [sets.fetches(value, through) for value in range(len(kernel.body.ops))] == searched
        assert any(searched)
