"""Packed arithmetic: one instruction adds, multiplies or compares two values. In CUDA, packed intrinsics or packed PTX;
in Triton, packed PTX or arithmetic on tiles that stay bf16 or fp16, which becomes packed instructions. Vector types
whose elements are computed one by one, packed loads and packed conversions are no packed arithmetic.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.precision import HALF, precision
from d2k.spec.facts import Kind
from d2k.spec.finding import FoundValue, Reason, Status

ARITHMETIC = ("add", "sub", "mul", "fma", "min", "max")
TYPES = {"bf16": "bf16x2", "f16": "half2", "f32": "f32x2"}
NAMES = ("__hfma2", "__hadd2", "__hmul2", "__hmax2", "fma.rn.f32x2", "fma.rn.bf16x2", "add.bf16x2")


def detect(kernel: KernelView) -> Detection:
    groups: dict[str | None, list[int]] = {}
    for value in kernel.values(Kind.ELEMENTWISE, name=ARITHMETIC):
        if kernel.op(value).attrs.get("packed") == 2 and kernel.users(value):
            groups.setdefault(_packed_type(kernel, value), []).append(value)
    if not groups and is_triton(kernel):
        halves, untyped = _unpromoted(kernel)
        for value in halves:
            groups.setdefault(TYPES[precision(kernel, value) or ""], []).append(value)
        if not groups and untyped:
            name = kernel.op(untyped[0]).name
            detail = "tiles of an element type that is not known here are combined as they were loaded"
            return Undecided(detail, (Evidence(kernel.place(untyped[0]), f"{name} of loaded tiles"),))
    if groups:
        return tuple(_match(kernel, word, values) for word, values in groups.items())
    return mentioned(kernel, NAMES) or _miss(kernel)


def _packed_type(kernel: KernelView, value: int) -> str | None:
    op = kernel.op(value)
    found = (op.dtype, *(precision(kernel, arg) for arg in op.args))
    return next((TYPES[one] for one in found if one in TYPES), None)


def _unpromoted(kernel: KernelView) -> tuple[list[int], list[int]]:
    """Arithmetic on tiles of half precision, and on tiles as they were loaded of a type that nobody says."""
    halves: list[int] = []
    untyped: list[int] = []
    data = flow(kernel)
    written = frozenset(data.back(data.outputs()))
    for value in kernel.values(Kind.ELEMENTWISE, name=ARITHMETIC):
        op = kernel.op(value)
        if value not in written or op.shape == () or _is_pointer(kernel, value):
            continue
        found = precision(kernel, value)
        if found in HALF:
            halves.append(value)
        elif found is None and all(_is_loaded(kernel, arg) for arg in op.args) and _is_result(kernel, value):
            untyped.append(value)
    return halves, untyped


def _is_pointer(kernel: KernelView, value: int) -> bool:
    """Index arithmetic: what it yields is an address."""
    return any(
        kernel.op(user).kind in (Kind.LOAD, Kind.STORE, Kind.ATOMIC) and kernel.op(user).args[0] == value
        for user in kernel.users(value)
    )


def _is_loaded(kernel: KernelView, value: int) -> bool:
    op = kernel.op(kernel.strip(value))
    return op.kind is Kind.LOAD and op.shape != ()


def _is_result(kernel: KernelView, value: int) -> bool:
    """Stored as it is: the only rounding is that of the arithmetic itself."""
    made = flow(kernel).forward((value,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.STORE))
    return any(kernel.op(at).kind is Kind.STORE for at in made)


def _match(kernel: KernelView, word: str | None, values: list[int]) -> Match:
    evidence = tuple(Evidence(kernel.place(value), f"{kernel.op(value).name} of two values") for value in values[:4])
    attributes: dict[str, FoundValue] = {} if word is None else {"type": word}
    return Match(evidence, attributes, {} if word else {"type": "the operands are known as plain words only"})


def _miss(kernel: KernelView) -> Miss:
    data = flow(kernel)
    vectors = [value for value in kernel.values(Kind.LOAD) if kernel.op(value).attrs.get("via") == "vector"]
    if vectors and any(data.is_fetch(value) for value in vectors):
        evidence = (Evidence(kernel.place(vectors[0]), "a vector"),)
        return Miss(Reason.PREREQUISITE_MISSING, "vectors are loaded, but their elements are computed apart", evidence)
    return Miss(detail="no arithmetic on packed pairs")


TRITON = """
@triton.jit
def residual(X, R, H, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i)
    r = tl.load(R + i)
    CODE
    tl.store(H + i, h)

def run(X, R, H):
    residual[(X.numel() // 1024,)](X, R, H, BLOCK=1024)
"""
PTX = (
    'h = tl.inline_asm_elementwise("add.rn.bf16x2 $0, $1, $2;", "=r,r,r", [x, r],'
    " dtype=tl.bfloat16, is_pure=True, pack=2)"
)
CUDA = r"""
__global__ void residual(const __nv_bfloat162* x, const __nv_bfloat162* r, __nv_bfloat162* h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    CODE
  }
}
void run(const __nv_bfloat162* x, const __nv_bfloat162* r, __nv_bfloat162* h, int n) {
  residual<<<n / 256, 256>>>(x, r, h, n);
}
"""
APART = """float2 a = __bfloat1622float2(x[i]), b = __bfloat1622float2(r[i]);
    h[i] = __floats2bfloat162_rn(a.x + b.x, a.y + b.y);"""

EXAMPLES = (
    Example("packed PTX", "triton", TRITON.replace("CODE", PTX), Status.PRESENT, {"type": "bf16x2"}),
    Example(
        "tiles that stay bf16",
        "triton",
        TRITON.replace("CODE", "h = x.to(tl.bfloat16) + r.to(tl.bfloat16)"),
        Status.PRESENT,
        {"type": "bf16x2"},
    ),
    Example(
        "promoted to fp32",
        "triton",
        TRITON.replace("CODE", "h = x.to(tl.float32) + r.to(tl.float32)"),
        Status.ABSENT,
        trap="look-alike: fp32 arithmetic on bf16 data",
    ),
    Example(
        "type not known",
        "triton",
        TRITON.replace("CODE", "h = x + r"),
        Status.UNKNOWN,
        trap="the element type belongs to a tensor that the caller makes",
    ),
    Example(
        "packed addition",
        "cuda",
        CUDA.replace("CODE", "h[i] = __hadd2(x[i], r[i]);"),
        Status.PRESENT,
        {"type": "bf16x2"},
    ),
    Example(
        "packed multiply-add of two floats",
        "cuda",
        r"""
__global__ void axpy(const float2* x, float2* y, float2 a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = __ffma2_rn(a, x[i], y[i]);
}
void run(const float2* x, float2* y, float2 a) { axpy<<<64, 256>>>(x, y, a); }
""",
        Status.PRESENT,
        {"type": "f32x2"},
    ),
    Example(
        "vector read by element",
        "cuda",
        CUDA.replace("CODE", APART),
        Status.ABSENT,
        trap="declared but unused: a vector type whose elements are computed one by one",
    ),
    Example(
        "packed addition in a comment",
        "cuda",
        CUDA.replace("CODE", "// h[i] = __hadd2(x[i], r[i]);\n    " + APART),
        Status.ABSENT,
        trap="comment",
    ),
)
