"""Work for real rows only: loops and blocks follow the true extents of segments, which the kernel reads from
offsets, lengths
or a table of tiles. A loop to the longest extent whose elements are only masked is padded work.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.extents import Extent, extents
from d2k.spec.finding import Status


def detect_program(program: ProgramView) -> Detection:
    found: dict[str, tuple[KernelView, Extent]] = {}
    for kernel in program.kernels:
        for one in extents(kernel):
            found.setdefault(one.source, (kernel, one))
    if not found:
        return Miss(detail="no extent that is read from memory bounds a loop or ends a block")
    return tuple(_match(kernel, one) for kernel, one in found.values())


def _match(kernel: KernelView, one: Extent) -> Match:
    evidence = (
        Evidence(kernel.place(one.load), f"reads the true extent ({one.source})"),
        Evidence(kernel.place(one.use), f"it {one.how}"),
    )
    return Match(evidence, {"source": one.source})


EXAMPLES: tuple[Example, ...] = ()
_ = Status
