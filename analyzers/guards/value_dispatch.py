"""Paths that are chosen by what the inputs hold rather than by their shapes and types."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Evidence, Example
from d2k.analyzers.core.view import BodyView, ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.host_calls import dotted, steered_by
from d2k.analyzers.patterns.hosts import short
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Status

DEFINITION = (
    "A branch of host code depends on the values of a tensor: an element, a sum, a largest magnitude, an equality. "
    "Shapes, types, devices and a check that only refuses bad input do not count."
)

CONTENTS = frozenset(
    {
        *("item", "tolist", "numpy", "any", "all", "max", "min", "amax", "amin", "aminmax", "sum", "mean", "norm"),
        *("std", "var", "median", "prod", "count_nonzero", "nonzero", "equal", "allclose", "isclose", "isnan", "isinf"),
        *("isfinite", "is_nonzero", "argmax", "argmin", "unique", "vector_norm", "array_equal", "quantile", "dist"),
    }
)
"""Functions and methods whose result depends on what a tensor holds."""

WORK = (Kind.LAUNCH, Kind.HOST_ALLOC)
CHECKS = frozenset({"format", "str", "repr", "print", "ValueError", "RuntimeError", "AssertionError", "TypeError"})
METADATA = (
    "shape",
    "size",
    "stride",
    "dtype",
    "device",
    "numel",
    "dim",
    "ndim",
    "is_contiguous",
    "data_ptr",
    "element_size",
)


def suspect(program: ProgramView) -> Suspicion | None:
    found = list(_dispatches(program))
    if not found:
        return None
    names = ", ".join(dict.fromkeys(text for text, _ in found))
    return Suspicion(f"a branch depends on the values of a tensor ({names})", tuple(one for _, one in found)[:4])


def _dispatches(program: ProgramView) -> Iterator[tuple[str, Evidence]]:
    for _, view, condition in steered_by(program):
        source = next((at for at in sorted(view.slice(condition)) if _reads_contents(view, at)), NONE)
        if source != NONE and _chooses(view, condition):
            name = short(dotted(view.op(source)))
            yield name, Evidence(view.op(source).place, f"branch on {name}")


def _reads_contents(view: BodyView, value: int) -> bool:
    op = view.op(value)
    if op.kind is not Kind.HOST_CALL or not op.args or short(dotted(op)) not in CONTENTS:
        return False
    name = dotted(op)
    if not name.startswith((".", "torch.", "at.", "numpy.", "np.", "self.")):
        return False
    return any(_is_data(view, arg) for arg in op.args if arg != NONE)


def _is_data(view: BodyView, value: int) -> bool:
    """Made of a tensor that the function was given, not of its shape or address."""
    stack = [value]
    seen: set[int] = set()
    while stack:
        at = stack.pop()
        if at in seen or at == NONE:
            continue
        seen.add(at)
        op = view.op(at)
        if op.kind is Kind.PARAM:
            return True
        if op.kind is Kind.ATTRIBUTE and op.name in METADATA:
            continue
        if op.kind is not Kind.CONST:
            stack.extend(op.args)
    return False


def _chooses(view: BodyView, condition: int) -> bool:
    """Work stands behind both outcomes, or behind the one where the condition holds; a refusal has none."""
    for op in view.body.ops:
        if any(guard.value == condition and guard.expected for guard in op.guards):
            if op.kind in WORK:
                return True
            if op.kind is Kind.HOST_CALL and short(dotted(op)) not in CHECKS:
                return True
    return any(loop.condition == condition for loop in view.body.loops)


TRITON = """
import sys
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, Y):
    if CONDITION:
        BODY
    else:
        scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
    return Y
"""
CUDA = """
#include <torch/extension.h>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(torch::Tensor x) {
  if (CONDITION) {
    x.zero_();
    return;
  }
  scale<<<4, 256>>>(x.data_ptr<float>(), x.numel());
}
"""

EXAMPLES = (
    Example(
        "largest magnitude",
        "triton",
        TRITON.replace("CONDITION", "X.abs().max().item() < 1e-6").replace("BODY", "Y.zero_()"),
        Status.PRESENT,
    ),
    Example(
        "equality",
        "triton",
        TRITON.replace("CONDITION", "torch.equal(X, Y)").replace("BODY", "Y.copy_(X)"),
        Status.PRESENT,
    ),
    Example(
        "shape",
        "triton",
        TRITON.replace("CONDITION", "max(X.shape) > 4096 and X.dtype == torch.float16").replace(
            "BODY", "scale[(triton.cdiv(Y.numel(), 4096),)](X, Y, Y.numel(), B=4096)"
        ),
        Status.ABSENT,
        trap="dispatch on shape and type",
    ),
    Example(
        "refusal of bad input",
        "triton",
        TRITON.replace("CONDITION", "torch.isnan(X).any()").replace("BODY", 'raise ValueError("not a number")'),
        Status.ABSENT,
        trap="a check that only refuses",
    ),
    Example(
        "device",
        "triton",
        TRITON.replace("CONDITION", "torch.cuda.get_device_capability(X.device)[0] >= 10").replace(
            "BODY", "scale[(triton.cdiv(Y.numel(), 4096),)](X, Y, Y.numel(), B=4096)"
        ),
        Status.ABSENT,
        trap="dispatch on the device",
    ),
    Example("an element", "cuda", CUDA.replace("CONDITION", "x.max().item<float>() == 0.f"), Status.PRESENT),
    Example("size", "cuda", CUDA.replace("CONDITION", "x.numel() == 0"), Status.ABSENT, trap="dispatch on shape"),
)
