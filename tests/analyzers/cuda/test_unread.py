"""A kernel that could not be read is told; what only looks like one is not."""

from __future__ import annotations

import pytest

from d2k.analyzers.cuda.frontend import read
from d2k.analyzers.cuda.unread import unread_kernel


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("__global__ void k(", 1),
        ("int a;\n__global__ void k(int* x) { x[0] = ", 2),
        ("__global__ void k(int* x);", None),
        ("// __global__ void k() {\n", None),
        ('const char* s = "__global__ void k() {";', None),
        ("#define K __global__ void k() {\nint a;", None),
        ("/* __global__ void k(", None),
    ],
)
def test_definitions_without_a_kernel(text: str, line: int | None) -> None:
    assert unread_kernel(text) == line


def test_a_truncated_kernel_is_a_problem() -> None:
    program = read("kernel.cu", "\n__global__ void k(")
    assert [one.place.line for one in program.problems] == [2]


def test_a_declaration_is_none() -> None:
    assert not read("kernel.cuh", "__global__ void k(int* x);\n").problems
