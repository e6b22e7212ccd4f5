"""Accumulation in FP32: sums, dot products, moments and states are kept in fp32 and rounded once, at the end. An
accumulator of half precision, and one that is rounded to it in every iteration, are not.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accumulations import Accumulation, accumulations
from d2k.analyzers.patterns.precision import WIDE
from d2k.spec.facts import NONE
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = accumulations(kernel)
    if not found:
        return Miss(detail="nothing is summed")
    wide = tuple(one for one in found if _is_wide(one))
    if not wide:
        return _miss(kernel, found)
    spoiled = {one.role for one in found if one.dtype is not None and not _is_wide(one)}
    words = tuple(sorted({one.role for one in wide if one.role} - spoiled))
    evidence = tuple(
        Evidence(kernel.place(one.value), f"{one.role or 'a sum'} in fp32")
        for one in {one.role: one for one in reversed(wide)}.values()
        if one.role not in spoiled
    )
    if not evidence:
        return _miss(kernel, found)
    attributes: dict[str, FoundValue] = {"scope": words} if words else {}
    return (Match(evidence[:4], attributes, {} if words else {"scope": "what is summed has no word here"}),)


def _is_wide(one: Accumulation) -> bool:
    return one.dtype in WIDE and one.rounded == NONE


def _miss(kernel: KernelView, found: tuple[Accumulation, ...]) -> Detection:
    for one in found:
        if one.rounded != NONE:
            detail = "the sum is rounded to a narrow type in every iteration"
            return Miss(Reason.WRONG_PARAMETER, detail, (Evidence(kernel.place(one.rounded), "a rounding"),))
    narrow = next((one for one in found if one.dtype is not None), None)
    if narrow is not None:
        place = (Evidence(kernel.place(narrow.value), f"{narrow.role or 'a sum'} in {narrow.dtype}"),)
        return Miss(Reason.WRONG_PARAMETER, f"sums are kept in {narrow.dtype}", place)
    place = (Evidence(kernel.place(found[0].value), "a sum"),)
    return Undecided("the element type of what is summed is not known here", place)


MATMUL = """
@triton.jit
def matmul(A, B, C, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), TYPE)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + k[None, :])
        b = tl.load(B + columns[None, :] * K + k[:, None])
        STEP
    tl.store(C + rows[:, None] * 4096 + columns[None, :], total.to(tl.bfloat16))

def run(A, B, C):
    matmul[(A.shape[0] // 64, B.shape[0] // 64)](A, B, C, A.shape[1], BM=64, BN=64, BK=32)
"""
NORM = """
@triton.jit
def rmsnorm(X, W, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=0.0)CAST
    w = tl.load(W + i, mask=i < N)
    scale = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(Y + row * N + i, x * scale * w, mask=i < N)

def run(X, W, Y):
    rmsnorm[(X.shape[0],)](X, W, Y, X.shape[1], BLOCK=4096)
"""
BAG = """
@triton.jit
def bag(T, I, Y, L, D: tl.constexpr):
    d = tl.arange(0, D)
    total = tl.zeros((D,), TYPE)
    for at in range(0, L):
        row = tl.load(I + tl.program_id(0) * L + at)
        total += tl.load(T + row * D + d).to(TYPE)
    tl.store(Y + tl.program_id(0) * D + d, total)

def run(T, I, Y):
    bag[(I.shape[0],)](T, I, Y, I.shape[1], D=128)
"""
CUDA = r"""
__global__ void dot(const __half* a, const __half* x, __half* y, int k) {
  TYPE total = ZERO;
  for (int i = threadIdx.x; i < k; i += 32) STEP
  y[blockIdx.x * 32 + threadIdx.x] = STORE;
}
void run(const __half* a, const __half* x, __half* y, int k) { dot<<<64, 32>>>(a, x, y, k); }
"""


def _cuda(type_: str, zero: str, step: str, store: str) -> str:
    return CUDA.replace("TYPE", type_).replace("ZERO", zero).replace("STEP", step).replace("STORE", store)


FLOAT = "total += __half2float(a[blockIdx.x * k + i]) * __half2float(x[i]);"

EXAMPLES = (
    Example(
        "accumulator of a product",
        "triton",
        MATMUL.replace("TYPE", "tl.float32").replace("STEP", "total += tl.dot(a, b)"),
        Status.PRESENT,
        {"scope": ("dot",)},
    ),
    Example(
        "integer accumulator of loaded operands",
        "triton",
        MATMUL.replace("TYPE", "tl.int32").replace("STEP", "total += tl.dot(a, b)"),
        Status.ABSENT,
        trap="look-alike: what is added to integers is an integer",
    ),
    Example(
        "accumulator of half precision",
        "triton",
        MATMUL.replace("TYPE", "tl.float16").replace("STEP", "total += tl.dot(a, b, out_dtype=tl.float16)"),
        Status.ABSENT,
        trap="the output type of the product is narrow",
    ),
    Example(
        "rounded in every step",
        "triton",
        MATMUL.replace("TYPE", "tl.float32").replace(
            "STEP", "total = (total + tl.sum(a[:, :, None] * b[None, :, :], 1)).to(tl.bfloat16).to(tl.float32)"
        ),
        Status.ABSENT,
        trap="an fp32 variable that is rounded to bf16 in every iteration",
    ),
    Example("moments", "triton", NORM.replace("CAST", ".to(tl.float32)"), Status.PRESENT, {"scope": ("moments",)}),
    Example(
        "moments in bf16",
        "triton",
        NORM.replace("CAST", ".to(tl.bfloat16)"),
        Status.ABSENT,
        trap="a reduction keeps the type of its tile",
    ),
    Example(
        "moments of an unknown type",
        "triton",
        NORM.replace("CAST", ""),
        Status.UNKNOWN,
        trap="the element type belongs to a tensor that the caller makes",
    ),
    Example("pooled rows", "triton", BAG.replace("TYPE", "tl.float32"), Status.PRESENT, {"scope": ("pool",)}),
    Example(
        "pooled rows in bf16",
        "triton",
        BAG.replace("TYPE", "tl.bfloat16"),
        Status.ABSENT,
        trap="a carried sum of low precision",
    ),
    Example("float accumulator", "cuda", _cuda("float", "0.f", FLOAT, "__float2half(total)"), Status.PRESENT),
    Example(
        "half accumulator",
        "cuda",
        _cuda("__half", "__float2half(0.f)", "total = __hfma(a[blockIdx.x * k + i], x[i], total);", "total"),
        Status.ABSENT,
        trap="a carried sum of low precision",
    ),
    Example(
        "float accumulator in a comment",
        "cuda",
        _cuda(
            "__half",
            "__float2half(0.f)",
            f"// {FLOAT}\n    total = __hfma(a[blockIdx.x * k + i], x[i], total);",
            "total",
        ),
        Status.ABSENT,
        trap="comment",
    ),
)
