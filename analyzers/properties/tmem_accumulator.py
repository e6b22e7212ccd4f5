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
from d2k.spec.facts import NONE, Kind, Op
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
    regions: dict[object, int] = {}
    for value in products:
        args = kernel.op(value).args
        target = args[2] if len(args) > 2 else NONE
        slots = _slots(kernel, target) if target != NONE else None
        if slots is None:
            return None
        regions[(_allocation(kernel, target), _offset(kernel, target) if slots == 1 else None)] = slots
    return sum(regions.values())


def _allocation(kernel: KernelView, target: int) -> tuple[int, ...]:
    """Which of several allocations an address lies in."""
    every = [value for value in kernel.values(Kind.ALLOC) if kernel.op(value).attrs.get("space") == "tmem"]
    return flow(kernel).arrays(target) if len(every) > 1 else ()


def _offset(kernel: KernelView, target: int) -> frozenset[tuple[object, int]]:
    """Where in its allocation an address that stands still lies."""
    numbers = numbering(kernel)
    return frozenset(
        (monomial, times)
        for monomial, times in numbers.index(target).items()
        if not (len(monomial) == 1 and _is_base(kernel, numbers.example(monomial[0])))
    )


def _is_base(kernel: KernelView, value: int) -> bool:
    """The address that an allocation returned, perhaps read back from shared memory."""
    roots = _versions(kernel, value)
    return bool(roots) and all(kernel.op(root).kind in (Kind.ALLOC, Kind.LOAD, Kind.PARAM) for root in roots)


def _versions(kernel: KernelView, value: int) -> frozenset[int]:
    """What is chosen from by branches and handed on by loops, constants aside."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [value]
    while stack:
        at = stack.pop()
        if at in seen or at == NONE:
            continue
        seen.add(at)
        op = kernel.op(at)
        if _chooses(op):
            stack.extend(op.args[1:])
        elif op.kind in (Kind.PHI, Kind.CAST):
            stack.extend(op.args)
        elif op.kind is not Kind.CONST:
            found.add(at)
    return frozenset(found)


def _slots(kernel: KernelView, target: int) -> int | None:
    """Regions that one accumulator operand goes through: 1 where it stands still, None if that is not known."""
    for at in kernel.walk(target, lambda op: op.kind is Kind.SHAPE):
        op = kernel.op(at)
        if op.kind is Kind.SHAPE and op.name == "index" and len(op.args) > 1 and kernel.fold(op.args[1]) is None:
            dims = kernel.dims(op.args[0])
            return dims[0] if dims else None
    numbers = numbering(kernel)
    slots = 1
    for monomial in numbers.index(target):
        for factor in monomial:
            value = numbers.example(factor)
            period = _period(kernel, value) if kernel.fold(value) is None else 1
            if period is None:
                return None
            slots *= period
    return slots


def _period(kernel: KernelView, value: int) -> int | None:
    """How many different values a part of an address takes: a counter's period, 1 for what stands still."""
    op = kernel.op(value)
    if op.kind is Kind.ELEMENTWISE and op.name in ("mod", "and", "xor"):
        return _wraps(kernel, value)
    if _is_base(kernel, value):
        return 1
    if _chooses(op):
        # something for some warps, nothing for the others
        sides = [arg for arg in op.args[1:] if kernel.fold(arg) is None]
        return _period(kernel, sides[0]) if len(sides) == 1 else None
    if op.kind is not Kind.PHI:
        return 1
    nexts = tuple(kernel.walk(op.args[1], lambda one: one.kind in (Kind.ELEMENTWISE, Kind.PHI, Kind.CAST)))
    if not any(kernel.op(at).kind is Kind.ELEMENTWISE and value in kernel.op(at).args for at in nexts):
        return 1
    periods = (_wraps(kernel, at) for at in nexts)
    return next((period for period in periods if period is not None), None)


def _wraps(kernel: KernelView, value: int) -> int | None:
    """n in `i % n`, `i & (n - 1)`, `i ^ 1`, and in a choice that starts again from zero at n."""
    op = kernel.op(value)
    if _chooses(op):
        condition = kernel.op(op.args[0])
        restarts = any(kernel.fold(arg) == 0 and kernel.fold(arg) is not None for arg in op.args[1:])
        compares = condition.kind is Kind.ELEMENTWISE and condition.name in ("eq", "ge", "ne", "lt")
        return kernel.fold_int(condition.args[1]) if restarts and compares and len(condition.args) == 2 else None
    if op.kind is not Kind.ELEMENTWISE or len(op.args) != 2:
        return None
    known = next((one for arg in op.args if (one := kernel.fold_int(arg)) is not None), None)
    if known is None:
        return None
    return {"mod": known, "and": known + 1, "xor": 2}.get(op.name)


def _chooses(op: Op) -> bool:
    return (op.kind is Kind.ELEMENTWISE and op.name == "where") or (op.kind is Kind.PHI and op.name == "if")


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
        "three regions by a counter that starts again",
        "cuda",
        CUDA.replace(
            "PRODUCT", MMA.replace("ADDRESS", "memory + stage * 128") + "\n    if (++stage == 3) stage = 0;"
        ).replace("uint32_t memory = base;", "uint32_t memory = base;\n  int stage = 0;"),
        Status.PRESENT,
        {"buffers": 3},
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
