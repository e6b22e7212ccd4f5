"""Parallelism along the reduction axis: several blocks share the sum (or scan, or softmax) that makes one
output, each walking a
part of the contracted axis; their partial results are added atomically or merged afterwards.

With one part, or where a block's bounds only follow a mask, nothing is shared.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import axis_name
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.splitting import Split, splits
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(splits(kernel))
    shared = [one for one in found if one.splits != 1]
    if shared:
        return (_match(kernel, shared[0]),)
    if found:
        one = found[0]
        place = kernel.place(numbering(kernel).example(one.tile))
        return Miss(
            Reason.WRONG_PARAMETER, "the axis is cut into one part", (Evidence(place, "splits = 1"),), certain=True
        )
    return Miss(detail="no reduction is shared by several blocks")


def _match(kernel: KernelView, one: Split) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    axis = _axis(kernel, one)
    if axis is None:
        undecided["axis"] = "the extent of the axis is no single argument of the kernel"
    else:
        attributes["axis"] = axis
    if one.splits is None:
        undecided["splits"] = "the number of parts is computed at run time"
    else:
        attributes["splits"] = one.splits
    tile = kernel.place(numbering(kernel).example(one.tile))
    evidence = (Evidence(tile, "chooses the part of the axis"), Evidence(kernel.place(one.value), one.how))
    return Match(evidence, attributes, undecided)


def _axis(kernel: KernelView, one: Split) -> str | None:
    if one.loop != NONE:
        return axis_name(kernel, one.loop)
    op = kernel.op(one.value)
    fetched = flow(kernel).fetches(op.args[1]) if op.kind in (Kind.STORE, Kind.ATOMIC) else ()
    names = [kernel.pointer(flow(kernel).source_address(fetch)) for fetch in fetched]
    return next((name for name in names if name is not None), None)


EXAMPLES: tuple[Example, ...] = ()
_ = Status
