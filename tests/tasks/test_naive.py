"""Free items are what a naive kernel earns: no naive kernel may earn an item of its task that is not free."""

from __future__ import annotations

from pathlib import Path

import pytest

import d2k
from d2k.analyzers.analyze import Options
from d2k.analyzers.audit import audit
from d2k.cli import analysis
from d2k.compiler.compile import load_task
from d2k.spec.audit import Verdict

TASKS = Path(d2k.__file__).parent / "tasks"
NAIVE = sorted(TASKS.glob("*/naive.py"))


@pytest.mark.parametrize("kernel", NAIVE, ids=lambda one: one.parent.name)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_naive_kernel_earns_free_items_only(kernel: Path, target: str) -> None:
    task = load_task(kernel.parent / "task.d2k").task
    assert task is not None
    analysed = analysis.files([str(kernel)], Options(target), task.entry)
    judged = audit(task, tuple(one.report for one in analysed), tuple(one.program for one in analysed), target)
    earned = {one.id for one in judged.items if one.verdict is Verdict.IMPLEMENTED}
    assert earned <= {one.id for one in task.guidance if one.free}
