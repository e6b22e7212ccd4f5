"""Deliberate occupancy: registers and resident blocks are set on purpose, by launch bounds, by warp counts that follow
the shape or the configuration, by a register limit, or by moving registers between roles. Every launch has some warp
count: one fixed number says nothing.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.build_options import build_option
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

REGISTER_LIMIT = "maxrregcount"


def detect(kernel: KernelView) -> Detection:
    found = (*_moved_registers(kernel), *_launch_bounds(kernel), *_launch_options(kernel), *_build_options(kernel))
    if found:
        return found
    count = kernel.launch.num_warps
    if count is None:
        return Miss(detail="neither launch bounds nor warp counts nor register limits are set", certain=True)
    detail = f"num_warps={count} whatever the shape"
    return Miss(Reason.WRONG_PARAMETER, detail, (Evidence(kernel.launch_place(), detail),), certain=True)


def _moved_registers(kernel: KernelView) -> tuple[Match, ...]:
    moved = kernel.values(Kind.CONTROL, name=("setmaxnreg_inc", "setmaxnreg_dec"))
    evidence = tuple(Evidence(kernel.place(value), kernel.op(value).name.replace("_", ".")) for value in moved[:4])
    return (Match(evidence, {"mechanism": "setmaxnreg"}),) if moved else ()


def _launch_bounds(kernel: KernelView) -> tuple[Match, ...]:
    threads, blocks = (kernel.kernel.attrs.get(f"launch_bounds_{one}") for one in ("threads", "blocks"))
    if threads is None:
        return ()
    text = f"__launch_bounds__({threads}{f', {blocks}' if blocks is not None else ''})"
    return (Match((Evidence(kernel.kernel.place, text),), {"mechanism": "launch_bounds"}),)


def _launch_options(kernel: KernelView) -> tuple[Match, ...]:
    place = kernel.launch_place()
    found: list[Match] = []
    if kernel.launch.maxnreg is not None:
        text = f"at most {kernel.launch.maxnreg} registers a thread"
        found.append(Match((Evidence(place, text),), {"mechanism": "maxnreg"}))
    counts = {one.launch.num_warps for one in kernel.kernel.variants} - {None}
    if any(one.launch.options.get("num_warps") is not None for one in kernel.kernel.variants):
        found.append(Match((Evidence(place, "num_warps is computed for the shape"),), {"mechanism": "num_warps"}))
    elif len(counts) > 1:
        numbers = ", ".join(str(one) for one in sorted(one for one in counts if one is not None))
        text = f"num_warps is one of {numbers} by configuration"
        found.append(Match((Evidence(place, text),), {"mechanism": "num_warps"}))
    return tuple(found)


def _build_options(kernel: KernelView) -> tuple[Match, ...]:
    place = build_option(kernel.program, REGISTER_LIMIT) if kernel.kernel.language == "cuda" else None
    return () if place is None else (Match((Evidence(place, REGISTER_LIMIT),), {"mechanism": "maxnreg"}),)


TRITON = """
DECORATOR
@triton.jit
def scale(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, Y):
    n = X.numel()
    scale[(triton.cdiv(n, 1024),)](X, Y, nARGUMENTS)
"""
CONFIGS = """@triton.autotune(
    configs=[triton.Config({"BLOCK": 1024}, num_warps=2), triton.Config({"BLOCK": 4096}, num_warps=8)],
    key=["n"],
)"""
CUDA = r"""
__global__ void BOUNDS scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.f * x[i];
}
void run(const float* x, float* y, int n) { scale<<<n / 256, 256>>>(x, y, n); }
"""

EXTENSION = f"""
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
{CUDA.replace("BOUNDS", "")}
void launch(torch::Tensor x, torch::Tensor y) {{ run(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); }}
'''
module = load_inline("scale", "void launch(torch::Tensor x, torch::Tensor y);", SOURCE, functions=["launch"], FLAGS)

def run(x, y):
    module.launch(x, y)
"""

EXAMPLES = (
    Example(
        "warp count by configuration",
        "triton",
        TRITON.replace("DECORATOR", CONFIGS).replace("ARGUMENTS", ""),
        Status.PRESENT,
        {"mechanism": "num_warps"},
    ),
    Example(
        "warp count computed for the shape",
        "triton",
        TRITON.replace("DECORATOR", "").replace("ARGUMENTS", ", BLOCK=1024, num_warps=min(max(n // 256, 1), 8)"),
        Status.PRESENT,
        {"mechanism": "num_warps"},
    ),
    Example(
        "register limit",
        "triton",
        TRITON.replace("DECORATOR", "").replace("ARGUMENTS", ", BLOCK=1024, maxnreg=64"),
        Status.PRESENT,
        {"mechanism": "maxnreg"},
    ),
    Example(
        "one warp count whatever the shape",
        "triton",
        TRITON.replace("DECORATOR", "").replace("ARGUMENTS", ", BLOCK=1024, num_warps=8"),
        Status.ABSENT,
        trap="a parameter that never varies",
    ),
    Example(
        "nothing set",
        "triton",
        TRITON.replace("DECORATOR", "").replace("ARGUMENTS", ", BLOCK=1024"),
        Status.ABSENT,
        trap="defaults are nobody's decision",
    ),
    Example(
        "launch bounds",
        "cuda",
        CUDA.replace("BOUNDS", "__launch_bounds__(256, 4)"),
        Status.PRESENT,
        {"mechanism": "launch_bounds"},
    ),
    Example(
        "register limit of the build",
        "triton",
        EXTENSION.replace("FLAGS", 'extra_cuda_cflags=["-maxrregcount=64"]'),
        Status.PRESENT,
        {"mechanism": "maxnreg"},
    ),
    Example(
        "build without a register limit",
        "triton",
        EXTENSION.replace("FLAGS", 'extra_cuda_cflags=["-O3"]'),
        Status.ABSENT,
        trap="a flag of another kind",
    ),
    Example("no launch bounds", "cuda", CUDA.replace("BOUNDS", ""), Status.ABSENT, trap="a launch has some block size"),
    Example(
        "launch bounds in a comment",
        "cuda",
        CUDA.replace("BOUNDS", "/* __launch_bounds__(256, 4) */"),
        Status.ABSENT,
        trap="comment",
    ),
)
