"""Whether calls into code that was not given can have hidden what a detector looks for."""

from __future__ import annotations

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import NONE, Kind


@memo
def moves_all_memory(kernel: KernelView) -> bool:
    """All loops over memory are in sight: something is stored, and unknown calls get numbers, no memory.

    What such calls compute from the numbers stays unknown.
    """
    data = flow(kernel)
    calls = (kernel.op(value) for value in kernel.values(Kind.CALL))
    return bool(data.outputs()) and not any(data.memory(arg) for call in calls for arg in call.args if arg != NONE)


@memo
def computes_all_results(kernel: KernelView) -> bool:
    """Besides, no unknown call takes part in what the kernel stores."""
    data = flow(kernel)
    made = data.back(data.outputs())
    return moves_all_memory(kernel) and not any(kernel.op(value).kind is Kind.CALL for value in made)
