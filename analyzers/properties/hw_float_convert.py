"""Hardware float conversion: values become narrow floats by the hardware's packed, saturating converts, which in Triton
every conversion to such a type is. Bit arithmetic, table lookup and conversions from integers are not; nor is the usual
rounding of results to bf16, unless the packed instruction is written out.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.precision import precision
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

FORMATS = {"f8e4m3": "e4m3x2", "f4e2m1": "e2m1x2", "f8e8m0": "e8m0x2", "bf16": "bf16x2", "f8e5m2": ""}
ALWAYS_PACKED = frozenset({"f8e4m3", "f8e5m2", "f4e2m1", "f8e8m0"})
INTEGERS = frozenset({"bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"})
LIMITS = (448.0, 57344.0)
"""The largest finite e4m3 and e5m2: who clamps or scales to one of them is about to convert."""

NAMES = ("cvt.rn.satfinite", "__nv_cvt_float2_to_fp8x2", "__nv_fp8x2_e4m3", "__nv_cvt_float_to_fp8")


def detect(kernel: KernelView) -> Detection:
    converts: dict[str, list[int]] = {}
    unnamed: list[int] = []
    for value in kernel.values(Kind.CAST, name="cast"):
        op = kernel.op(value)
        if not op.args or not kernel.users(value):
            continue
        target = precision(kernel, value)
        if target is None:
            unnamed.append(value)
        elif target in FORMATS and _is_hardware(kernel, value, target):
            converts.setdefault(target, []).append(value)
    if converts:
        return tuple(_match(kernel, target, values) for target, values in converts.items())
    for value in unnamed:
        limit = _limit(kernel, value)
        if limit:
            name = kernel.op(value).attrs.get("dtype_of")
            detail = f"converts to the element type of {name}, which is not known here; values are kept below {limit}"
            return Undecided(detail, (Evidence(kernel.place(value), "a conversion"),))
    for value in unnamed:
        if _is_clamped(kernel, value):
            detail = "values are kept between two bounds and converted to a type that is not known here"
            return Undecided(detail, (Evidence(kernel.place(value), "a conversion"),))
    return _miss(kernel)


def _is_clamped(kernel: KernelView, value: int) -> bool:
    """Right in front of the conversion stands a clamp, or a minimum of a maximum."""
    op = kernel.op(kernel.strip(kernel.op(value).args[0]))
    if op.kind is not Kind.ELEMENTWISE:
        return False
    if op.name == "clamp":
        return True
    inner = [kernel.op(kernel.strip(arg)) for arg in op.args]
    return op.name in ("min", "max") and any(
        one.kind is Kind.ELEMENTWISE and {one.name, op.name} == {"min", "max"} for one in inner
    )


def _is_hardware(kernel: KernelView, value: int, target: str) -> bool:
    source = precision(kernel, kernel.op(value).args[0])
    if source in INTEGERS or source == target:
        return False
    op = kernel.op(value)
    return target in ALWAYS_PACKED or (op.attrs.get("packed") == 2 and "instruction" in op.attrs)


def _limit(kernel: KernelView, value: int) -> float | None:
    """A bound of fp8 that the arithmetic in front of a conversion uses."""
    arithmetic = (Kind.ELEMENTWISE, Kind.SHAPE, Kind.CAST)
    for at in kernel.walk(value, lambda op: op.kind in arithmetic):
        constant = kernel.fold(at)
        if constant in LIMITS:
            return float(constant) if isinstance(constant, (int, float)) else None
    return None


def _match(kernel: KernelView, target: str, values: list[int]) -> Match:
    evidence = tuple(Evidence(kernel.place(value), f"conversion to {target}") for value in values[:4])
    if FORMATS[target]:
        return Match(evidence, {"format": FORMATS[target]})
    return Match(evidence, {}, {"format": f"{target} has no word in the vocabulary"})


def _miss(kernel: KernelView) -> Miss:
    found = mentioned(kernel, NAMES)
    if found is not None:
        return found
    for value in kernel.values(Kind.CAST, name="bitcast"):
        op = kernel.op(value)
        if op.dtype in ALWAYS_PACKED and precision(kernel, op.args[0]) in INTEGERS:
            detail = f"{op.dtype} is put together from bits"
            return Miss(Reason.WRONG_PARAMETER, detail, (Evidence(op.place, "a bit cast"),))
    return Miss(detail="nothing is converted to a narrow float")


TRITON = """
@triton.jit
def quantise(X, S, Q, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = row * N + tl.arange(0, BLOCK)
    x = tl.load(X + i).to(tl.float32)
    scale = tl.max(tl.abs(x)) / 448.0
    tl.store(S + row, scale)
    y = x / scale
    CODE
    tl.store(Q + i, q)

def run(X, S, Q):
    quantise[(X.shape[0],)](X, S, Q, X.shape[1], BLOCK=1024)
"""
PAIR = (
    "q = tl.inline_asm_elementwise('{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $1, $2; mov.b32 $0, {t, t}; }',"
    " '=r,f,f', [y, y], dtype=tl.int32, is_pure=True, pack=1)"
)
BY_NAME = """
@triton.jit
def quantise(X, Q, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(X + i).to(tl.float32) * scale
    tl.store(Q + i, y.to(Q.dtype.element_ty))

def run(X, scale):
    Q = torch.empty_like(X, dtype=DTYPE)
    quantise[(X.numel() // 1024,)](X, Q, scale, BLOCK=1024)
    return Q
"""
CUDA = r"""
#include <cuda_fp8.h>
__global__ void quantise(const float2* x, uint16_t* q, float scale, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float2 v = x[i];
    v.x *= scale;
    v.y *= scale;
    CODE
  }
}
void run(const float2* x, uint16_t* q, float scale, int n) { quantise<<<n / 256, 256>>>(x, q, scale, n); }
"""
FP8X2 = "q[i] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3);"
BITS = """uint32_t a = __float_as_uint(v.x), b = __float_as_uint(v.y);
    q[i] = ((a >> 20) & 0x7f) | (((b >> 20) & 0x7f) << 8);"""

CLAMPED = """
@triton.jit
def quantise(X, Q, scale, low, high, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.clamp(tl.load(X + i).to(tl.float32) * scale, low, high)
    tl.store(Q + i, y.to(Q.dtype.element_ty))

def run(X, Q, scale, low, high):
    quantise[(X.numel() // 1024,)](X, Q, scale, low, high, BLOCK=1024)
"""

EXAMPLES = (
    Example(
        "clamped to a type that a caller chooses",
        "triton",
        CLAMPED,
        Status.UNKNOWN,
        trap="the element type is up to the caller",
    ),
    Example(
        "conversion by type",
        "triton",
        TRITON.replace("CODE", "q = y.to(tl.float8e4nv)"),
        Status.PRESENT,
        {"format": "e4m3x2"},
    ),
    Example("convert in inline PTX", "triton", TRITON.replace("CODE", PAIR), Status.PRESENT, {"format": "e4m3x2"}),
    Example(
        "type of the output tensor",
        "triton",
        BY_NAME.replace("DTYPE", "torch.float8_e4m3fn"),
        Status.PRESENT,
        {"format": "e4m3x2"},
    ),
    Example(
        "type of a bf16 output",
        "triton",
        BY_NAME.replace("DTYPE", "torch.bfloat16"),
        Status.ABSENT,
        trap="look-alike: the usual rounding of results is no narrow conversion",
    ),
    Example(
        "type not known",
        "triton",
        TRITON.replace("CODE", "q = y.to(Q.dtype.element_ty)"),
        Status.UNKNOWN,
        trap="the element type belongs to a tensor that the caller makes",
    ),
    Example(
        "to integers",
        "triton",
        TRITON.replace("CODE", "q = y.to(tl.int8)"),
        Status.ABSENT,
        trap="look-alike: integer codes are no floats",
    ),
    Example("pair convert", "cuda", CUDA.replace("CODE", FP8X2), Status.PRESENT, {"format": "e4m3x2"}),
    Example(
        "packed bf16 in inline PTX",
        "cuda",
        CUDA.replace(
            "CODE",
            'uint32_t both;\n    asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(v.y), "f"(v.x));\n'
            "    q[i] = both;",
        ),
        Status.PRESENT,
        {"format": "bf16x2"},
    ),
    Example(
        "results rounded to bf16",
        "cuda",
        CUDA.replace("CODE", "reinterpret_cast<__nv_bfloat162*>(q)[i] = __floats2bfloat162_rn(v.x, v.y);"),
        Status.ABSENT,
        trap="look-alike: the usual rounding of results",
    ),
    Example(
        "bit arithmetic",
        "cuda",
        CUDA.replace("CODE", BITS),
        Status.ABSENT,
        trap="bit arithmetic is no hardware convert",
    ),
    Example(
        "pair convert in a comment",
        "cuda",
        CUDA.replace("CODE", f"// {FP8X2}\n    {BITS}"),
        Status.ABSENT,
        trap="comment",
    ),
)
