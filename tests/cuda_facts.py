"""Reading of small CUDA sources in tests, and questions that tests ask of the facts."""

from __future__ import annotations

from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.cuda.frontend import read
from d2k.spec.facts import Body, Kernel, Kind, Op, Program


def program(source: str, entry: str = "", target: str = "sm_100a") -> Program:
    return read("example.cu", source, entry, target)


def kernel(source: str, name: str = "k") -> Kernel:
    return next(one for one in program(source).kernels if one.name == name)


def view(source: str, name: str = "k", variant: int = 0) -> KernelView:
    found = ProgramView(program(source), "sm_100a")
    return [one for one in found.kernels if one.kernel.name == name][variant]


def body_of(statements: str, params: str = "float* x, float* y, int n") -> KernelView:
    """A kernel `k` with these statements."""
    return view(f"__global__ void k({params}) {{\n{statements}\n}}")


def ops(body: Body | KernelView, *kinds: Kind, name: str | None = None) -> list[Op]:
    found = body.body.ops if isinstance(body, KernelView) else body.ops
    return [op for op in found if (not kinds or op.kind in kinds) and (name is None or op.name == name)]


def only(body: Body | KernelView, *kinds: Kind, name: str | None = None) -> Op:
    found = ops(body, *kinds, name=name)
    assert len(found) == 1, found
    return found[0]
