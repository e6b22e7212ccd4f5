"""Loops whose loads a compiler is asked to pipeline: `num_stages` of a launch or of the loop itself."""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.loops import trip_count, walked
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.memo import memo

DEFAULT_STAGES = 3
"""What Triton takes for `num_stages` on NVIDIA hardware where nobody says."""


@dataclass(frozen=True, slots=True)
class Pipelined:
    """A loop that the compiler may pipeline. `stages` is None where the source does not say.

    `loads` are the reads that can run ahead; `products` says that they feed a matrix product; `trips` may be None.
    """

    loop: int
    stages: int | None
    loads: tuple[int, ...]
    products: bool
    trips: int | None


@memo
def pipelined(kernel: KernelView) -> tuple[Pipelined, ...]:
    """Loops with loads that move with them, of kernels whose language leaves pipelining to the compiler.

    `num_stages` of the launch counts for loops with a matrix product only: Triton pipelines no others unless the loop
    itself asks for it (`tl.range(…, num_stages=…)`).
    """
    if kernel.kernel.language != "triton":
        return ()
    found = [_loop(kernel, loop) for loop in range(len(kernel.body.loops)) if kernel.loop(loop).form == "for"]
    return tuple(one for one in found if one is not None)


def _loop(kernel: KernelView, loop: int) -> Pipelined | None:
    loads = tuple(value for value in walked(kernel, loop) if kernel.op(value).loop == loop)
    if not loads:
        return None
    operands = {fetch for one in products(kernel) for fetch in (*one.a_fetches, *one.b_fetches)}
    feeding = bool(operands & set(loads))
    own = kernel.loop(loop).attrs.get("num_stages")
    if isinstance(own, int) and not isinstance(own, bool):
        return Pipelined(loop, own, loads, feeding, trip_count(kernel, loop))
    if not feeding:
        return None
    return Pipelined(loop, kernel.launch.num_stages, loads, feeding, trip_count(kernel, loop))
