"""Dequantisation by exponent bits: integer codes are or-ed into the mantissa of a float with a fixed exponent, whose
value is then subtracted, so that no integer-to-float conversion is needed. Masks and shifts followed by a conversion,
table lookups, and bits that are put together without a subtraction are not it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.precision import precision
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import Reason, Status

MERGES = ("or", "xor", "add", "lop3", "prmt")
FLOATS = frozenset({"f16", "bf16", "f32"})
NAMES = ("lop3", "lop3.b32", "__byte_perm")


@dataclass(frozen=True, slots=True)
class _Trick:
    merge: int
    subtraction: int
    codes: int


def detect(kernel: KernelView) -> Detection:
    found = tuple(_tricks(kernel))
    if found:
        one = max(found, key=lambda each: each.codes)
        evidence = (
            Evidence(kernel.place(one.merge), "codes merged into an exponent pattern"),
            Evidence(kernel.place(one.subtraction), "the pattern's value subtracted"),
        )
        return (Match(evidence, {"codes_per_op": one.codes}),)
    missing = mentioned(kernel, NAMES)
    if missing is not None:
        return missing
    converted = next(_converted(kernel), None)
    if converted is not None:
        place = (Evidence(kernel.place(converted), "a conversion"),)
        return Miss(Reason.WRONG_PARAMETER, "codes are converted from integers", place)
    return Miss(detail="no codes are merged into exponent bits")


def _tricks(kernel: KernelView) -> Iterator[_Trick]:
    data = flow(kernel)
    for value in kernel.values(Kind.ELEMENTWISE, Kind.ASM, name=MERGES):
        codes = _codes(kernel, value)
        if not codes or not data.fetches(value):
            continue
        for at in data.forward((value,), _reinterprets):
            for user in kernel.users(at):
                op = kernel.op(user)
                if op.kind is Kind.ELEMENTWISE and op.name in ("sub", "fma", "add") and _is_float(kernel, user):
                    yield _Trick(value, user, codes)
                    break


def _codes(kernel: KernelView, value: int) -> int:
    """How many codes one operation puts under an exponent; 0 if it does something else."""
    op = kernel.op(value)
    if op.kind is Kind.ASM:
        # the text of the instruction keeps its pattern to itself
        return 2 if op.name == "lop3" else 0
    for arg in op.args:
        known = kernel.fold_int(arg) if arg >= 0 else None
        if known is not None and known > 0:
            codes = _pattern(known, op.name)
            if codes:
                return codes
    return 0


def _pattern(bits: int, name: str) -> int:
    """Codes under a pattern: a power of two in one or two floats, or the bytes that `prmt` makes such floats of."""
    if name == "prmt":
        return 2 if bits in (0x64646464, 0x43434343, 0x4B4B4B4B) or _half(bits & 0xFFFF) else 0
    high, low = bits >> 16, bits & 0xFFFF
    if bits <= 0xFFFF:
        return int(_half(bits))
    if high == low:
        return 2 if _half(low) else 0
    return int(bits & 0x7FFFFF == 0 and 0x40 <= bits >> 24 < 0x80)


def _half(bits: int) -> bool:
    """A power of two, at least 64, as fp16 or bf16."""
    as_fp16 = bits & 0x3FF == 0 and 21 <= bits >> 10 < 31
    as_bf16 = bits & 0x7F == 0 and 133 <= bits >> 7 < 255
    return as_fp16 or as_bf16


def _reinterprets(op: Op) -> bool:
    return (
        (op.kind is Kind.CAST and op.name == "bitcast")
        or op.kind in (Kind.SHAPE, Kind.ITEM, Kind.PHI)
        or (op.kind is Kind.CAST and op.dtype not in FLOATS)
    )


def _is_float(kernel: KernelView, value: int) -> bool:
    op = kernel.op(value)
    return precision(kernel, value) in FLOATS or op.attrs.get("packed") == 2


def _converted(kernel: KernelView) -> Iterator[int]:
    """Conversions to floats of what was masked or shifted out of a word."""
    for value in kernel.values(Kind.CAST, name="cast"):
        op = kernel.op(value)
        if precision(kernel, value) in FLOATS and op.args:
            source = kernel.op(kernel.strip(op.args[0]))
            if source.kind is Kind.ELEMENTWISE and source.name in ("and", "shr", "sub", "or"):
                yield value


TRITON = """
@triton.jit
def dequant(Q, S, Y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(Q + i // 4).to(tl.int16)
    code = (word >> (i % 4 * 4).to(tl.int16)) & 0xF
    scale = tl.load(S + i // 128)
    CODE
    tl.store(Y + i, x * scale)

def run(Q, S, Y):
    dequant[(Y.numel() // 1024,)](Q, S, Y, BLOCK=1024)
"""
CUDA = r"""
__global__ void dequant(const uint32_t* q, __half2* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t word = q[i];
  CODE
}
void run(const uint32_t* q, __half2* y) { dequant<<<64, 256>>>(q, y); }
"""
LOP3 = """uint32_t bits;
  asm volatile("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(bits) : "r"(word), "n"(0x000f000f), "n"(0x64006400), "n"(0xea));
  const uint32_t magic = 0x64006400;
  y[i] = __hsub2(reinterpret_cast<const __half2&>(bits), reinterpret_cast<const __half2&>(magic));"""
CONVERT = "y[i] = __floats2half2_rn(static_cast<float>(word & 0xf), static_cast<float>((word >> 16) & 0xf));"

EXAMPLES = (
    Example(
        "code under an exponent",
        "triton",
        TRITON.replace("CODE", "x = (code | 0x6400).to(tl.int16).to(tl.float16, bitcast=True) - 1032.0"),
        Status.PRESENT,
        {"codes_per_op": 1},
    ),
    Example(
        "code under a bf16 exponent",
        "triton",
        TRITON.replace("CODE", "x = (code | 0x4300).to(tl.int16).to(tl.bfloat16, bitcast=True) - 136.0"),
        Status.PRESENT,
        {"codes_per_op": 1},
    ),
    Example(
        "converted",
        "triton",
        TRITON.replace("CODE", "x = code.to(tl.float16) - 8.0"),
        Status.ABSENT,
        trap="an integer-to-float conversion",
    ),
    Example(
        "merged without a pattern",
        "triton",
        TRITON.replace("CODE", "x = (code | 0x0010).to(tl.int16).to(tl.float16, bitcast=True) - 1032.0"),
        Status.ABSENT,
        trap="look-alike: an or that sets no exponent",
    ),
    Example("two codes by lop3", "cuda", CUDA.replace("CODE", LOP3), Status.PRESENT, {"codes_per_op": 2}),
    Example(
        "one code at a time",
        "cuda",
        CUDA.replace(
            "CODE",
            "float x = __uint_as_float((word & 0xf) | 0x4B000000u) - 8388616.f;\n  y[i] = __floats2half2_rn(x, x);",
        ),
        Status.PRESENT,
        {"codes_per_op": 1},
    ),
    Example("converted", "cuda", CUDA.replace("CODE", CONVERT), Status.ABSENT, trap="an integer-to-float conversion"),
    Example(
        "pattern in a comment",
        "cuda",
        CUDA.replace("CODE", "// lop3 0x64006400\n  " + CONVERT),
        Status.ABSENT,
        trap="comment",
    ),
)
