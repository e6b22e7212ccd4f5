"""Programmatic dependent launch: a kernel's prologue overlaps the tail of its predecessor. It takes the launch
attribute, a predecessor that lets its dependents start, and a dependent that waits: one side alone overlaps nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.spec.facts import Kind, Reach
from d2k.spec.finding import Reason, Status

SIDES = {"pdl_wait": "wait", "pdl_launch": "trigger"}


def detect_program(program: ProgramView) -> Detection:
    places = {side: tuple(_places(program, name)) for name, side in SIDES.items()}
    attributed = [kernel for kernel in program.kernels if kernel.launch.pdl]
    evidence = tuple(one for found in places.values() for one in found[:2])
    missing = [side for side, found in places.items() if not found]
    if len(missing) == len(SIDES):
        if attributed:
            return Miss(
                Reason.WRONG_PARAMETER, "launched as dependent, but no kernel waits or triggers", _launches(attributed)
            )
        return Miss(detail="no kernel waits for its predecessor or releases its dependents")
    if missing:
        other = next(iter(set(SIDES.values()) - set(missing)))
        return Miss(Reason.WRONG_PARAMETER, f"{other} without {missing[0]}: one side alone overlaps nothing", evidence)
    if attributed:
        return (Match(evidence + _launches(attributed)[:1], {"side": ("trigger", "wait")}),)
    if any(kernel.kernel.reach is Reach.EXPORTED for kernel in program.kernels):
        return Undecided("the kernels wait and trigger, but their launch is not in this file", evidence)
    return Miss(Reason.WRONG_PARAMETER, "the launch does not carry the attribute of dependent launches", evidence)


def _places(program: ProgramView, name: str) -> Iterator[Evidence]:
    seen = set()
    for kernel in program.kernels:
        for value in kernel.values(Kind.CONTROL, name=name):
            place = kernel.place(value)
            if place not in seen:
                seen.add(place)
                yield Evidence(place, f"{SIDES[name]} in {kernel.kernel.name}")


def _launches(kernels: list[KernelView]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(host.op(value).place, f"dependent launch of {kernel.kernel.name}")
        for kernel in kernels
        for host, value in kernel.launch_sites()
    )


TRITON = """
@triton.jit
def first(X, Y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i)
    TRIGGER
    tl.store(Y + i, x * 2)

@triton.jit
def second(Y, Z, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    WAIT
    tl.store(Z + i, tl.load(Y + i) + 1)

def run(X, Y, Z):
    grid = (X.numel() // 1024,)
    first[grid](X, Y, BLOCK=1024)
    second[grid](Y, Z, BLOCK=1024, launch_pdl=FLAG)
"""


def _triton(trigger: bool = True, wait: bool = True, flag: bool = True) -> str:
    text = TRITON.replace("TRIGGER", "tl.extra.cuda.gdc_launch_dependents()" if trigger else "pass")
    return text.replace("WAIT", "tl.extra.cuda.gdc_wait()" if wait else "pass").replace("FLAG", str(flag))


CUDA = r"""
__global__ void first(const float* x, float* y) {
  float v = x[blockIdx.x * 256 + threadIdx.x];
  asm volatile("griddepcontrol.launch_dependents;");
  y[blockIdx.x * 256 + threadIdx.x] = 2.f * v;
}
__global__ void second(const float* y, float* z) {
  WAIT
  z[blockIdx.x * 256 + threadIdx.x] = y[blockIdx.x * 256 + threadIdx.x] + 1.f;
}
void run(const float* x, float* y, float* z, cudaStream_t stream) {
  first<<<64, 256, 0, stream>>>(x, y);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = 64;
  config.blockDim = 256;
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, second, (const float*)y, z);
}
"""

EXAMPLES = (
    Example("both sides", "triton", _triton(), Status.PRESENT, {"side": ("trigger", "wait")}),
    Example("no trigger", "triton", _triton(trigger=False), Status.ABSENT, trap="PDL on one side only"),
    Example("no wait", "triton", _triton(wait=False), Status.ABSENT, trap="PDL on one side only"),
    Example("launch without the attribute", "triton", _triton(flag=False), Status.ABSENT, trap="switched off"),
    Example("attribute alone", "triton", _triton(trigger=False, wait=False), Status.ABSENT, trap="declared but unused"),
    Example(
        "both sides and the attribute",
        "cuda",
        CUDA.replace("WAIT", "cudaGridDependencySynchronize();"),
        Status.PRESENT,
        {"side": ("trigger", "wait")},
    ),
    Example(
        "nobody waits",
        "cuda",
        CUDA.replace("WAIT", "// cudaGridDependencySynchronize();"),
        Status.ABSENT,
        trap="PDL on one side only; the other stands in a comment",
    ),
)
