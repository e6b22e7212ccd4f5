"""CUDA C++ to facts: `read` gives a file's kernels, launches and host functions as a `Program`."""

from __future__ import annotations

from d2k.analyzers.cuda.program import read

__all__ = ["read"]
