"""A Python file whole: what the Python front end reads of it, and the CUDA that it holds in strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from d2k.analyzers.triton import frontend
from d2k.spec.facts import Program

if TYPE_CHECKING:
    from d2k.analyzers.analyze import Options


def read(path: str, text: str, options: Options) -> Program:
    """The facts of a `.py` file."""
    return frontend.read(path, text, options.entry, options.target)
