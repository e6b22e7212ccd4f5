"""Matrix instruction of a block pair: two blocks of a cluster execute one instruction over their combined tile, each
holding half of the operands. `tl.dot` under `num_ctas=2` may become one; a cluster whose blocks multiply each for
itself is none.
"""

from __future__ import annotations

from math import prod

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.languages import works_on_tiles
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status
from d2k.spec.hardware import has_features, normalise_architecture

NAMES = ("cta_group::2", "two_ctas", "SM100_MMA_F16BF16_2x1SM_SS")
PAIR = 2


def detect(kernel: KernelView) -> Detection:
    paired = tuple(one for one in products(kernel) if kernel.op(one.value).attrs.get("cta_group") == PAIR)
    blocks = _cluster(kernel)
    if paired:
        evidence = tuple(Evidence(kernel.place(one.value), "an instruction of two blocks") for one in paired[:4])
        if blocks == 1:
            return Miss(Reason.WRONG_PARAMETER, "the kernel is launched without clusters", evidence)
        rows = {_combined_rows(kernel, one.value, one.m) for one in paired}
        known = {one for one in rows if one is not None}
        if len(known) == 1 and len(rows) == 1:
            return (Match(evidence, {"tile_m": known.pop()}),)
        return (Match(evidence, {}, {"tile_m": "the rows of the combined tile are not known here"}),)
    every = kernel.values(Kind.MMA)
    if every and (blocks or 1) >= PAIR:
        place = (Evidence(kernel.place(every[0]), f"a product in a cluster of {blocks}"),)
        if works_on_tiles(kernel) and _has_pairs(kernel) and kernel.op(every[0]).attrs.get("instr") == "any":
            return Undecided(f"{NEEDS_COMPILED}: whether the dot becomes an instruction of two blocks", place)
        return Miss(Reason.PREREQUISITE_MISSING, "the blocks of the cluster multiply each for itself", place)
    return mentioned(kernel, NAMES) or Miss(detail="no matrix instruction spans two blocks")


def _cluster(kernel: KernelView) -> int | None:
    """Blocks of a cluster, None if the source does not say."""
    launch = kernel.launch
    declared = kernel.kernel.attrs.get("cluster_dims")
    if launch.num_ctas is not None:
        return launch.num_ctas
    if launch.cluster is not None:
        return prod(launch.cluster)
    if isinstance(declared, tuple):
        return prod(one for one in declared if isinstance(one, int))
    return None


def _combined_rows(kernel: KernelView, value: int, rows: int | None) -> int | None:
    """Rows of the pair's tile: in TLX each block names its own half, elsewhere the instruction names both."""
    return PAIR * rows if rows is not None and "tlx" in kernel.program.program.languages else rows


def _has_pairs(kernel: KernelView) -> bool:
    architecture = normalise_architecture(kernel.program.target)
    return architecture is None or has_features(architecture, frozenset({"two_cta"}))


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout, allocate_tensor_memory, mbarrier, tcgen05_mma, tma,
)

@gluon.jit
def product(a, b, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    sa = gl.allocate_shared_memory(a.dtype, [BM, BK], a.layout)
    sb = gl.allocate_shared_memory(b.dtype, [BK, BN], b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    memory = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout((128, BN), col_stride=1, two_ctas=PAIR))
    for k in range(0, K, BK):
        tma.async_copy_global_to_shared(a, [gl.program_id(0) * BM, k], ready, sa)
        tma.async_copy_global_to_shared(b, [k, 0], ready, sb)
        mbarrier.wait(ready, 0)
        tcgen05_mma(sa, sb, memory, use_acc=k > 0)

def run(a, b, K):
    product[(148,)](a, b, K, BM=256, BN=128, BK=64, num_ctas=CTAS)
"""
DOT = """
@triton.jit
def product(A, B, C, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + k[None, :])
        b = tl.load(B + columns[None, :] * K + k[:, None])
        total = tl.dot(a, b, total)
    tl.store(C + rows[:, None] * 4096 + columns[None, :], total)

def run(A, B, C):
    product[(A.shape[0] // 256, B.shape[0] // 128)](A, B, C, A.shape[1], BM=256, BN=128, BK=64, num_ctas=CTAS)
"""
CUDA = r"""
__global__ void __cluster_dims__(CLUSTER, 1, 1) product(uint64_t a, uint64_t b, uint32_t memory) {
  const uint32_t idesc = (1u << 4) | (1u << 7) | (1u << 10) | (32u << 17) | (16u << 24);
  if (threadIdx.x == 0) {
    PRODUCT
  }
}
void run(uint64_t a, uint64_t b, uint32_t memory) { product<<<4, 128>>>(a, b, memory); }
"""
PAIRED = (
    'asm volatile("tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, 1;" ::"r"(memory), "l"(a), "l"(b), "r"(idesc));'
)
SINGLE = PAIRED.replace("cta_group::2", "cta_group::1")


def _cuda(product: str, cluster: int = 2) -> str:
    return CUDA.replace("CLUSTER", str(cluster)).replace("PRODUCT", product)


EXAMPLES = (
    Example(
        "pair in Gluon",
        "triton",
        "import triton\n" + GLUON.replace("PAIR", "True").replace("CTAS", "2"),
        Status.PRESENT,
        {"tile_m": 256},
    ),
    Example(
        "cluster without pairs",
        "triton",
        "import triton\n" + GLUON.replace("PAIR", "False").replace("CTAS", "2"),
        Status.ABSENT,
        trap="look-alike: a cluster whose blocks multiply each for itself",
    ),
    Example(
        "dot in a cluster",
        "triton",
        DOT.replace("CTAS", "2"),
        Status.UNKNOWN,
        trap="only the compiled code can tell",
    ),
    Example("one block", "triton", DOT.replace("CTAS", "1"), Status.ABSENT, trap="parameter of size one"),
    Example("pair in PTX", "cuda", _cuda(PAIRED), Status.PRESENT, {"tile_m": 256}),
    Example("single blocks in PTX", "cuda", _cuda(SINGLE), Status.ABSENT, trap="look-alike: cta_group::1 in a cluster"),
    Example("cluster of one", "cuda", _cuda(PAIRED, 1), Status.ABSENT, trap="cluster {1,1,1}"),
    Example("pair in a comment", "cuda", _cuda(SINGLE + " // cta_group::2"), Status.ABSENT, trap="comment"),
)
