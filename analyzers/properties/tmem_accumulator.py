"""Accumulators in tensor memory: the matrix instruction adds up in tensor memory, in as many regions as are in use at
once, so that one tile can be drained while the next is multiplied. Tensor memory that holds scales or nothing is not
it; whether `tl.dot` accumulates there is the compiler's choice.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.languages import works_on_tiles
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Reason, Status
from d2k.spec.hardware import has_features, normalise_architecture

NAMES = ("tcgen05.alloc", "tcgen05.mma", "allocate_tensor_memory", "TMEM")


def detect(kernel: KernelView) -> Detection:
    products = tuple(value for value in kernel.values(Kind.MMA) if kernel.op(value).attrs.get("instr") == "tcgen05")
    if products:
        evidence = tuple(Evidence(kernel.place(value), "accumulates in tensor memory") for value in products[:4])
        buffers = _buffers(kernel, products)
        if buffers is None:
            return (Match(evidence, {}, {"buffers": "which region an instruction writes is not known here"}),)
        return (Match(evidence, {"buffers": buffers}),)
    memory = tuple(value for value in kernel.values(Kind.ALLOC) if kernel.op(value).attrs.get("space") == "tmem")
    if memory:
        place = (Evidence(kernel.place(memory[0]), "tensor memory"),)
        return Miss(Reason.NOT_LOAD_BEARING, "tensor memory is allocated, but no product accumulates there", place)
    every = kernel.values(Kind.MMA)
    if every and works_on_tiles(kernel) and _has_tensor_memory(kernel):
        place = (Evidence(kernel.place(every[0]), "a product"),)
        return Undecided(f"{NEEDS_COMPILED}: where the compiler keeps the accumulator of tl.dot", place)
    return mentioned(kernel, NAMES) or Miss(detail="no product accumulates in tensor memory")


def _has_tensor_memory(kernel: KernelView) -> bool:
    architecture = normalise_architecture(kernel.program.target)
    return architecture is None or has_features(architecture, frozenset({"tmem"}))


def _buffers(kernel: KernelView, products: tuple[int, ...]) -> int | None:
    """Regions of tensor memory that the products add up in; None if some address is not known."""
    numbers = numbering(kernel)
    regions: dict[object, int] = {}
    for value in products:
        args = kernel.op(value).args
        target = args[2] if len(args) > 2 else NONE
        if target == NONE:
            return None
        slots = _slots(kernel, target)
        if slots is None:
            return None
        place = frozenset(numbers.index(target).items())
        regions[place if slots == 1 else ("ring", *flow(kernel).arrays(target))] = slots
    return sum(regions.values())


def _slots(kernel: KernelView, target: int) -> int | None:
    """Regions that one accumulator operand goes through: 1 where it stands still."""
    for at in kernel.walk(target, lambda op: op.kind in (Kind.SHAPE, Kind.ELEMENTWISE, Kind.CAST, Kind.PHI)):
        op = kernel.op(at)
        if op.kind is Kind.SHAPE and op.name == "index" and len(op.args) > 1 and kernel.fold(op.args[1]) is None:
            dims = kernel.dims(op.args[0])
            return dims[0] if dims else None
        if op.kind is Kind.ELEMENTWISE and op.name == "mod":
            return kernel.fold_int(op.args[1])
        if op.kind is Kind.ELEMENTWISE and op.name in ("and", "xor"):
            mask = next((known for arg in op.args if (known := kernel.fold_int(arg)) is not None), None)
            if mask is not None and _is_counter(kernel, op.args):
                return mask + 1
        if (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if"):
            return _wrap(kernel, op.args[0])
    return 1


def _wrap(kernel: KernelView, condition: int) -> int | None:
    """The number at which a counter starts again from zero."""
    op = kernel.op(condition)
    if op.kind is Kind.ELEMENTWISE and op.name in ("eq", "ge", "ne", "lt") and len(op.args) == 2:
        return kernel.fold_int(op.args[1])
    return None


def _is_counter(kernel: KernelView, args: tuple[int, ...]) -> bool:
    """Counts iterations or tiles rather than picking bits of an address."""
    return any(
        kernel.op(at).kind is Kind.PHI and kernel.op(at).name == "loop" for arg in args for at in kernel.slice(arg)
    )


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout, allocate_tensor_memory, mbarrier, tcgen05_mma, tma,
)

@gluon.jit
def product(a, b, c, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BUFFERS: gl.constexpr):
    sa = gl.allocate_shared_memory(a.dtype, [BM, BK], a.layout)
    sb = gl.allocate_shared_memory(b.dtype, [BK, BN], b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    memory = allocate_tensor_memory(gl.float32, [BUFFERS, BM, BN], TensorMemoryLayout((BM, BN), col_stride=1))
    for tile in range(gl.program_id(0), 64, gl.num_programs(0)):
        for k in range(0, K, BK):
            tma.async_copy_global_to_shared(a, [tile * BM, k], ready, sa)
            tma.async_copy_global_to_shared(b, [k, 0], ready, sb)
            mbarrier.wait(ready, 0)
            PRODUCT
        tma.async_copy_shared_to_global(c, [tile * BM, 0], sa)

def run(a, b, c, K):
    product[(148,)](a, b, c, K, BM=128, BN=128, BK=64, BUFFERS=2)
"""
CUDA = r"""
__global__ void product(uint64_t a, uint64_t b, uint32_t idesc, float* out, int tiles) {
  __shared__ uint32_t base;
  uint32_t slot = static_cast<uint32_t>(__cvta_generic_to_shared(&base));
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(slot));
  __syncthreads();
  uint32_t memory = base;
  for (int tile = 0; tile < tiles; ++tile) {
    PRODUCT
    float v;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=f"(v) : "r"(memory));
    out[tile * 128 + threadIdx.x] = v;
  }
}
void run(uint64_t a, uint64_t b, uint32_t idesc, float* out, int tiles) {
  product<<<1, 128>>>(a, b, idesc, out, tiles);
}
"""
MMA = (
    'asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, 1;"'
    ' ::"r"(ADDRESS), "l"(a), "l"(b), "r"(idesc));'
)
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
        total = PRODUCT
    tl.store(C + rows[:, None] * 4096 + columns[None, :], total)

def run(A, B, C):
    product[(A.shape[0] // 128, B.shape[0] // 128)](A, B, C, A.shape[1], BM=128, BN=128, BK=64)
"""

EXAMPLES = (
    Example(
        "ring of two in Gluon",
        "triton",
        "import triton\n"
        + GLUON.replace("PRODUCT", "tcgen05_mma(sa, sb, memory.index(tile % BUFFERS), use_acc=k > 0)"),
        Status.PRESENT,
        {"buffers": 2},
    ),
    Example(
        "one region in Gluon",
        "triton",
        "import triton\n" + GLUON.replace("PRODUCT", "tcgen05_mma(sa, sb, memory.index(0), use_acc=k > 0)"),
        Status.PRESENT,
        {"buffers": 1},
    ),
    Example(
        "tensor memory without a product",
        "triton",
        "import triton\n" + GLUON.replace("PRODUCT", "pass"),
        Status.ABSENT,
        trap="declared but unused: nothing accumulates in the memory",
    ),
    Example(
        "left to the compiler",
        "triton",
        DOT.replace("PRODUCT", "tl.dot(a, b, total)"),
        Status.UNKNOWN,
        trap="nothing is asked for: only the compiled code can tell",
    ),
    Example(
        "sums on ordinary units",
        "triton",
        DOT.replace("PRODUCT", "total + tl.sum(a[:, :, None] * b[None, :, :], 1)"),
        Status.ABSENT,
        trap="look-alike: a product written as a sum uses registers",
    ),
    Example(
        "two regions in turn",
        "cuda",
        CUDA.replace("PRODUCT", MMA.replace("ADDRESS", "memory + (tile % 2) * 256")),
        Status.PRESENT,
        {"buffers": 2},
    ),
    Example(
        "one region", "cuda", CUDA.replace("PRODUCT", MMA.replace("ADDRESS", "memory")), Status.PRESENT, {"buffers": 1}
    ),
    Example(
        "allocation alone",
        "cuda",
        CUDA.replace("PRODUCT", "// " + MMA),
        Status.ABSENT,
        trap="declared but unused; the product stands in a comment",
    ),
)
