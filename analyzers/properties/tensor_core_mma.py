"""Tensor cores: the contraction runs on matrix units, with the named operand type and instruction family. Which
instruction `tl.dot` becomes is the compiler's choice; a dot that keeps full fp32 precision is no tensor-core product.
"""

from __future__ import annotations

from collections.abc import Iterable

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.matmul import Product, products
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.precision import precision
from d2k.spec.finding import FoundValue, Reason, Status

DTYPES = {
    "bf16": "bf16",
    "f16": "fp16",
    "f8e4m3": "fp8",
    "f8e5m2": "fp8",
    "f4e2m1": "fp4",
    "tf32": "tf32",
    "f32": "tf32",
}
FAMILIES = ("mma_sync", "wgmma", "tcgen05")
NAMES = ("dot", "dot_scaled", "mma.sync", "wgmma.mma_async", "tcgen05.mma", "mma_sync")
FULL_PRECISION = "ieee"


def detect(kernel: KernelView) -> Detection:
    every = products(kernel)
    if not every:
        return mentioned(kernel, NAMES) or Miss(detail="no matrix instruction")
    used = tuple(one for one in every if not _on_fma_units(kernel, one.value))
    if not used:
        return Miss(
            Reason.WRONG_PARAMETER,
            'input_precision="ieee" keeps fp32 operands off the tensor cores',
            _evidence(kernel, every),
        )
    groups: dict[tuple[str | None, str | None, str | None], list[Product]] = {}
    for one in used:
        key = (_dtype(kernel, one.value), _family(kernel, one.value), _rows(kernel, one))
        groups.setdefault(key, []).append(one)
    return tuple(_match(kernel, *key, found) for key, found in groups.items())


def _on_fma_units(kernel: KernelView, value: int) -> bool:
    op = kernel.op(value)
    if op.attrs.get("instr") == "fma":
        return True
    if op.attrs.get("input_precision") != FULL_PRECISION:
        return False
    # the precision is for fp32 operands alone; narrower ones go to the tensor cores all the same
    return _operand_types(kernel, value) <= {"f32"}


def _operand_types(kernel: KernelView, value: int) -> set[str]:
    """The operands' element types as far as they are known."""
    op = kernel.op(value)
    found = {str(op.attrs[key]) for key in ("a_dtype", "b_dtype") if op.attrs.get(key)}
    return found or {one for arg in op.args[:2] if (one := precision(kernel, arg)) is not None}


def _dtype(kernel: KernelView, value: int) -> str | None:
    """The operand type in the vocabulary's words, None if the source does not say or the operands differ.

    Both operands of a product have one type: that of one tells that of the other.
    """
    found = {DTYPES.get(one) for one in _operand_types(kernel, value)}
    return found.pop() if len(found) == 1 else None


def _rows(kernel: KernelView, one: Product) -> str | None:
    """The argument whose rows are the rows of the instruction, None if several or none are known."""
    names = {kernel.pointer(flow(kernel).source_address(fetch)) for fetch in one.a_fetches}
    return names.pop() if len(names) == 1 else None


def _family(kernel: KernelView, value: int) -> str | None:
    instruction = kernel.op(value).attrs.get("instr")
    family = "mma_sync" if instruction == "wmma" else instruction
    return family if isinstance(family, str) and family in FAMILIES else None


def _match(
    kernel: KernelView, dtype: str | None, family: str | None, rows: str | None, found: Iterable[Product]
) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if dtype is None:
        undecided["dtype"] = "the operands' element type is not known here"
    else:
        attributes["dtype"] = dtype
    if family is None:
        undecided["instr"] = f"{NEEDS_COMPILED}: the compiler chooses the matrix instruction"
    else:
        attributes["instr"] = family
    if rows is None:
        undecided["m_axis"] = "the rows of the instruction come from no single argument"
    else:
        attributes["m_axis"] = rows
    return Match(_evidence(kernel, found), attributes, undecided)


def _evidence(kernel: KernelView, found: Iterable[Product]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(kernel.place(one.value), f"matrix product ({kernel.op(one.value).name})") for one in tuple(found)[:4]
    )


TRITON = """
@triton.jit
def matmul(A, B, C, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + k[None, :]).to(TYPE)
        b = tl.load(B + columns[None, :] * K + k[:, None]).to(TYPE)
        total PRODUCT
    tl.store(C + rows[:, None] * K + columns[None, :], total)

def run(A, B, C):
    matmul[(A.shape[0] // 64, B.shape[0] // 64)](A, B, C, A.shape[1], BM=64, BN=64, BK=32)
"""
DOT = "+= tl.dot(a, b)"
CUDA = r"""
__global__ void product(const uint32_t* a, const uint32_t* b, float* c) {
  float d[4] = {0.f, 0.f, 0.f, 0.f};
  for (int k = 0; k < 16; ++k) {
    uint32_t a0 = a[k * 32 + threadIdx.x], a1 = a[k * 64 + threadIdx.x], b0 = b[k * 32 + threadIdx.x];
    PRODUCT
  }
  c[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
void run(const uint32_t* a, const uint32_t* b, float* c) { product<<<1, 32>>>(a, b, c); }
"""
MMA = (
    'asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"'
    ' : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b0));'
)

EXAMPLES = (
    Example(
        "dot of bf16 tiles",
        "triton",
        TRITON.replace("TYPE", "tl.bfloat16").replace("PRODUCT", DOT),
        Status.PRESENT,
        {"dtype": "bf16", "m_axis": "A"},
    ),
    Example(
        "dot of fp32 tiles in tf32",
        "triton",
        TRITON.replace("TYPE", "tl.float32").replace("PRODUCT", DOT),
        Status.PRESENT,
        {"dtype": "tf32"},
    ),
    Example(
        "full fp32 precision",
        "triton",
        TRITON.replace("TYPE", "tl.float32").replace("PRODUCT", '+= tl.dot(a, b, input_precision="ieee")'),
        Status.ABSENT,
        trap="the parameter takes fp32 operands off the tensor cores",
    ),
    Example(
        "sum of products",
        "triton",
        TRITON.replace("TYPE", "tl.bfloat16").replace("PRODUCT", "+= tl.sum(a[:, :, None] * b[None, :, :], 1)"),
        Status.ABSENT,
        trap="look-alike: a contraction written as a sum is no matrix instruction",
    ),
    Example(
        "mma.sync in inline PTX",
        "cuda",
        CUDA.replace("PRODUCT", MMA),
        Status.PRESENT,
        {"dtype": "bf16", "instr": "mma_sync"},
    ),
    Example(
        "multiply and add",
        "cuda",
        CUDA.replace("PRODUCT", "d[0] += __uint_as_float(a0) * __uint_as_float(b0) + __uint_as_float(a1);"),
        Status.ABSENT,
        trap="look-alike: FMA loops are no matrix instruction",
    ),
    Example(
        "mma.sync in a comment",
        "cuda",
        CUDA.replace("PRODUCT", f"// {MMA}\n    d[0] += __uint_as_float(a0 ^ a1 ^ b0);"),
        Status.ABSENT,
        trap="comment",
    ),
)
