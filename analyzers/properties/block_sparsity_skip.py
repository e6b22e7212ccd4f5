"""Block sparsity skip: blocks that a mask, a window or a list rules out are not visited: the bounds of the
loop over them, a
branch around their loads, or a list of blocks leaves them out. Masking the elements of every block is not skipping.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.skipping import Skip, masks_triangle, skips
from d2k.spec.finding import Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(skips(kernel))
    if found:
        return (_match(kernel, found),)
    masked = masks_triangle(kernel)
    if masked is not None:
        evidence = (Evidence(kernel.place(masked), "compares row and column"),)
        return Miss(detail="elements are masked, but every block is visited", evidence=evidence)
    return Miss(detail="every block is visited")


def _match(kernel: KernelView, found: tuple[Skip, ...]) -> Match:
    return Match(tuple(_evidence(found)), {"pattern": tuple(sorted({one.pattern for one in found}))})


def _evidence(found: tuple[Skip, ...]) -> Iterator[Evidence]:
    for pattern in sorted({one.pattern for one in found}):
        first = next(one for one in found if one.pattern == pattern)
        yield Evidence(first.place, first.text)


EXAMPLES: tuple[Example, ...] = ()
_ = Status
