"""What kind of language a kernel is written in."""

from __future__ import annotations

from d2k.analyzers.core.view import KernelView

COMPILED_BY_TRITON = frozenset({"triton", "gluon"})
"""Languages whose functions, such as exp and division, are what Triton makes of them."""


def works_on_tiles(kernel: KernelView) -> bool:
    """The compiler decides which thread holds which element of a tile."""
    return kernel.kernel.language == "triton"


def is_triton(kernel: KernelView) -> bool:
    return kernel.kernel.language in COMPILED_BY_TRITON
