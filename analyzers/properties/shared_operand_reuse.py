"""Shared operand reuse: what is fetched once serves several results: the rows or columns of a matrix product, several
accumulators, the heads that a rotary row turns, the places that a row is copied to, the neighbours in a stencil.

A block of elements that are each used once, however large, is not reuse; neither is a vector that is broadcast
over the rows
that happen to share a block.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.reuse import Reuse, reuses
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    best: dict[str, Reuse] = {}
    for one in reuses(kernel):
        name = kernel.pointer(flow(kernel).source_address(one.fetch)) or ""
        if name not in best or (one.consumers or 0) > (best[name].consumers or 0):
            best[name] = one
    served = {name: one for name, one in best.items() if one.consumers is None or one.consumers >= 2}
    if served:
        return tuple(_match(kernel, name, one) for name, one in served.items())
    if best:
        one = next(iter(best.values()))
        return Miss(
            Reason.WRONG_PARAMETER,
            "each fetched element serves one result",
            (Evidence(kernel.place(one.use), f"serves {one.consumers}"),),
            certain=True,
        )
    return Miss(detail="no fetched element serves more than one result")


def _match(kernel: KernelView, name: str, one: Reuse) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if name:
        attributes["operand"] = name
    else:
        undecided["operand"] = "the address is derived from no single argument"
    if one.consumers is not None:
        attributes["consumers"] = one.consumers
    else:
        undecided["consumers"] = "the extent of the tile, or the number of uses, is not known here"
    evidence = (
        Evidence(kernel.place(one.fetch), f"fetch of {name}".rstrip()),
        Evidence(kernel.place(one.use), f"{one.how}, {one.consumers or 'several'} results an element"),
    )
    return Match(evidence, attributes, undecided)


EXAMPLES: tuple[Example, ...] = ()
_ = Status
