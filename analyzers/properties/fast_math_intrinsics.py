"""Hardware approximations: exponentials, logarithms, square roots, tanh, sigmoids and reciprocals are evaluated by the
special-function unit at its own accuracy. Triton's own exp, exp2, rsqrt and sigmoid are such approximations; its log,
tanh and erf are library code, and so are CUDA's expf, logf and tanhf unless asked for by another name.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.activation import sigmoids
from d2k.analyzers.patterns.build_options import build_option
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

FUNCTIONS = {
    "exp": "exp",
    "exp2": "exp",
    "log": "log",
    "log2": "log",
    "rsqrt": "rsqrt",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "rcp": "rcp",
    "div": "rcp",
}
OF_TRITON = frozenset({"exp", "exp2", "rsqrt", "sigmoid"})
"""Functions that Triton evaluates by the hardware's approximation; CUDA does only where it is asked to."""

FLAG = "use_fast_math"
NAMES = ("__expf", "__logf", "__fdividef", "tanh.approx", "ex2.approx", "rcp.approx", "fast_expf", "fast_dividef")


def detect(kernel: KernelView) -> Detection:
    relaxed = kernel.kernel.language == "cuda" and build_option(kernel.program, FLAG) is not None
    found = {value: word for value in kernel.values(Kind.ELEMENTWISE) if (word := _word(kernel, value, relaxed))}
    if all(_is_plain_quotient(kernel, value) for value in found):
        return _miss(kernel)
    words = set(found.values())
    if any(_exponential_behind(kernel, value, found) for value in sigmoids(kernel)):
        words.add("sigmoid")
    evidence = tuple(Evidence(kernel.place(value), text) for value, text in _first_of_each(kernel, found))
    return (Match(evidence, {"fn": tuple(sorted(words))}),)


def _word(kernel: KernelView, value: int, relaxed: bool) -> str:
    """The function that `value` evaluates by approximation, "" if it does not."""
    op = kernel.op(value)
    word = FUNCTIONS.get(op.name, "")
    if not word or op.dtype == "f64" or not kernel.users(value):
        return ""
    own = is_triton(kernel) and op.name in OF_TRITON
    if op.attrs.get("fast") or own or relaxed or _is_plain_quotient(kernel, value):
        return word
    return ""


def _is_plain_quotient(kernel: KernelView, value: int) -> bool:
    """A division that Triton evaluates by an approximate reciprocal without being asked to: no design by itself."""
    op = kernel.op(value)
    return (
        op.name == "div"
        and not op.attrs.get("fast")
        and is_triton(kernel)
        and len(op.args) == 2
        and kernel.fold(op.args[1]) is None
    )


def _exponential_behind(kernel: KernelView, sigmoid: int, found: dict[int, str]) -> bool:
    arithmetic = kernel.walk(sigmoid, lambda op: op.kind in (Kind.ELEMENTWISE, Kind.CAST) and op.name != "exp")
    return any(found.get(at) == "exp" for at in arithmetic)


def _first_of_each(kernel: KernelView, found: dict[int, str]) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for value in sorted(found):
        if found[value] not in seen and not _is_plain_quotient(kernel, value):
            seen.add(found[value])
            yield value, f"{found[value]} by {kernel.op(value).name}, approximate"


def _miss(kernel: KernelView) -> Miss:
    accurate = [v for v in kernel.values(Kind.ELEMENTWISE) if kernel.op(v).name in FUNCTIONS and kernel.users(v)]
    accurate = [value for value in accurate if kernel.op(value).name != "div"]
    found = mentioned(kernel, NAMES)
    if found is not None:
        return found
    if accurate:
        op = kernel.op(accurate[0])
        return Miss(
            Reason.WRONG_PARAMETER,
            f"{op.name} is evaluated by accurate library code",
            (Evidence(op.place, op.name),),
        )
    return Miss(detail="no transcendental function is evaluated")


TRITON = """
@triton.jit
def gate(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Y + i, FUNCTION, mask=i < n)

def run(X, Y):
    n = X.numel()
    gate[(triton.cdiv(n, 1024),)](X, Y, n, BLOCK=1024)
"""
LIBDEVICE = "import torch\nimport triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n"
TANH = 'tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)'
CUDA = r"""
__global__ void gate(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    y[i] = FUNCTION;
  }
}
void run(const float* x, float* y, int n) { gate<<<(n + 255) / 256, 256>>>(x, y, n); }
"""


EXTENSION = """
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
KERNEL
void launch(torch::Tensor x, torch::Tensor y) { run(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); }
'''
module = load_inline("gate", "void launch(torch::Tensor x, torch::Tensor y);", SOURCE, functions=["launch"], FLAGS)

def run(x, y):
    module.launch(x, y)
"""


def _triton(function: str) -> str:
    return TRITON.replace("FUNCTION", function)


def _cuda(function: str) -> str:
    return CUDA.replace("FUNCTION", function)


def _extension(flags: str) -> str:
    return EXTENSION.replace("KERNEL", _cuda("v / (1.f + expf(-v))")).replace("FLAGS", flags)


EXAMPLES = (
    Example("sigmoid", "triton", _triton("x * tl.sigmoid(x)"), Status.PRESENT, {"fn": ("sigmoid",)}),
    Example(
        "sigmoid written out",
        "triton",
        _triton("x / (1.0 + tl.exp(-x))"),
        Status.PRESENT,
        {"fn": ("exp", "rcp", "sigmoid")},
    ),
    Example("tanh in inline PTX", "triton", _triton(TANH), Status.PRESENT, {"fn": ("tanh",)}),
    Example(
        "tanh of the library",
        "triton",
        LIBDEVICE + _triton("libdevice.tanh(x)"),
        Status.ABSENT,
        trap="look-alike: libdevice's tanh is accurate library code",
    ),
    Example(
        "fast division of the library",
        "triton",
        LIBDEVICE + _triton("libdevice.fast_dividef(1.0, x)"),
        Status.PRESENT,
        {"fn": ("rcp",)},
    ),
    Example(
        "a quotient",
        "triton",
        _triton("x / (x + 2.0)"),
        Status.ABSENT,
        trap="a plain division is left to the compiler",
    ),
    Example(
        "tanh in a comment",
        "triton",
        _triton("x * 0.5").replace("mask=i < n)\n\n", "mask=i < n)  # tanh.approx.f32\n\n"),
        Status.ABSENT,
        trap="comment",
    ),
    Example(
        "compiled with relaxed functions",
        "triton",
        _extension('extra_cuda_cflags=["--use_fast_math"]'),
        Status.PRESENT,
        {"fn": ("exp", "rcp", "sigmoid")},
    ),
    Example(
        "compiled with accurate functions",
        "triton",
        _extension('extra_cuda_cflags=["-O3"]'),
        Status.ABSENT,
        trap="look-alike: expf without a compiler flag is accurate library code",
    ),
    Example(
        "fast exponential and reciprocal",
        "cuda",
        _cuda("__fdividef(v, 1.f + __expf(-v))"),
        Status.PRESENT,
        {"fn": ("exp", "rcp", "sigmoid")},
    ),
    Example("reciprocal square root", "cuda", _cuda("rsqrtf(v * v + 1.f)"), Status.PRESENT, {"fn": ("rsqrt",)}),
    Example(
        "accurate exponential",
        "cuda",
        _cuda("v / (1.f + expf(-v))"),
        Status.ABSENT,
        trap="look-alike: expf without a compiler flag is accurate library code",
    ),
    Example(
        "fast exponential switched off",
        "cuda",
        _cuda("\n#if 0\n __expf(v)\n#else\n expf(v)\n#endif\n"),
        Status.ABSENT,
        trap="#if 0",
    ),
)
