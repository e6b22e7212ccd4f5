"""Block-scaled matrix instruction: the hardware applies block scales inside the product. Scales multiplied in before or
after an ordinary product are not; nor is a scaled product with an operand that has no narrow format, which is expanded.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status
from d2k.spec.hardware import has_features, normalise_architecture

FORMATS = ("mxfp8", "mxfp4", "nvfp4")


def detect(kernel: KernelView) -> Detection:
    scaled = tuple(value for value in kernel.values(Kind.MMA) if kernel.op(value).attrs.get("scaled"))
    if not scaled:
        return Miss(detail="no matrix instruction takes scales")
    evidence = tuple(Evidence(kernel.place(value), "a product that takes block scales") for value in scaled[:4])
    architecture = normalise_architecture(kernel.program.target)
    if architecture is not None and not has_features(architecture, frozenset({"block_scale"})):
        detail = f"{kernel.program.target} has no block-scaled instruction: the operands are expanded"
        return Miss(Reason.HARDWARE_UNSUPPORTED, detail, evidence)
    formats = dict.fromkeys(kernel.op(value).attrs["scaled"] for value in scaled)
    known = tuple(one for one in formats if one in FORMATS)
    if known:
        return tuple(Match(evidence, {"format": str(one)}) for one in known)
    return Miss(Reason.WRONG_PARAMETER, "an operand without block scales is expanded before the product", evidence)


TRITON = """
@triton.jit
def matmul(A, SA, B, SB, C, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        groups = start // 32 + tl.arange(0, BK // 32)
        a = tl.load(A + rows[:, None] * K + k[None, :])
        b = tl.load(B + columns[None, :] * K + k[:, None])
        sa = tl.load(SA + rows[:, None] * (K // 32) + groups[None, :])
        sb = tl.load(SB + columns[:, None] * (K // 32) + groups[None, :])
        PRODUCT
    tl.store(C + rows[:, None] * 4096 + columns[None, :], total)

def run(A, SA, B, SB, C):
    matmul[(A.shape[0] // 128, B.shape[0] // 128)](A, SA, B, SB, C, A.shape[1], BM=128, BN=128, BK=128)
"""
SCALED = 'total = tl.dot_scaled(a, sa, "e4m3", b, sb, "e4m3", total)'

CUDA = r"""
__global__ void product(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, uint32_t sa, uint32_t sb) {
  if (threadIdx.x == 0) {
    PRODUCT
  }
}
void run(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, uint32_t sa, uint32_t sb) {
  product<<<1, 128>>>(d, a, b, idesc, sa, sb);
}
"""
SCALED_PTX = (
    'asm volatile("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], 1;"'
    ' ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(sa), "r"(sb));'
)
PLAIN_PTX = (
    'asm volatile("tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, 1;" ::"r"(d), "l"(a), "l"(b), "r"(idesc));'
)

EXAMPLES = (
    Example("scaled product of fp8", "triton", TRITON.replace("PRODUCT", SCALED), Status.PRESENT, {"format": "mxfp8"}),
    Example(
        "scales multiplied afterwards",
        "triton",
        TRITON.replace("PRODUCT", "total += tl.dot(a, b) * tl.max(sa, 1)[:, None] * tl.max(sb, 1)[None, :]"),
        Status.ABSENT,
        trap="look-alike: scaling around an ordinary product",
    ),
    Example(
        "bf16 operand",
        "triton",
        TRITON.replace("PRODUCT", 'total = tl.dot_scaled(a, None, "bf16", b, sb, "e4m3", total)'),
        Status.ABSENT,
        trap="an operand without scales is expanded",
    ),
    Example(
        "block-scaled kind in PTX", "cuda", CUDA.replace("PRODUCT", SCALED_PTX), Status.PRESENT, {"format": "nvfp4"}
    ),
    Example(
        "unscaled kind in PTX",
        "cuda",
        CUDA.replace("PRODUCT", PLAIN_PTX),
        Status.ABSENT,
        trap="look-alike: fp8 product without scales",
    ),
)
