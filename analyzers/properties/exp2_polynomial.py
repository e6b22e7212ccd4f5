"""Exponentials on the FMA units: the exponent is split into a whole part and a fraction; a short polynomial raises two
to the fraction, and the whole part is added to the exponent bits. A polynomial alone, such as that of GELU, and a power
of two made of bits alone, such as a quantisation scale, are no exponentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.exponent import exponentials
from d2k.analyzers.patterns.horner import Polynomial, polynomial
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status

MANTISSA_BITS = 23
ONE_ABOVE_MANTISSA = 1 << MANTISSA_BITS
COMPARISONS = ("eq", "ne", "lt", "le", "ge", "gt")
SCALINGS = ("ldexp", "ldexpf", "scalbn", "scalbnf", "scalbln")


@dataclass(frozen=True, slots=True)
class _Emulated:
    value: int
    fraction: int
    polynomial: Polynomial


def detect(kernel: KernelView) -> Detection:
    found = tuple(_emulated(kernel))
    if not found:
        return _miss(kernel)
    one = max(found, key=lambda each: each.polynomial.degree)
    evidence = (
        Evidence(kernel.place(one.fraction), f"a polynomial of degree {one.polynomial.degree}"),
        Evidence(kernel.place(one.value), "the whole part goes to the exponent bits"),
    )
    attributes: dict[str, FoundValue] = {"degree": one.polynomial.degree}
    percent = _share(kernel, found)
    if percent is None:
        return (Match(evidence, attributes, {"share_percent": "which exponentials go this way is decided elsewhere"}),)
    return (Match(evidence, attributes | {"share_percent": percent}),)


def _emulated(kernel: KernelView) -> Iterator[_Emulated]:
    """Values whose exponent bits get a whole number added and whose mantissa is a polynomial."""
    for value in kernel.values(Kind.ELEMENTWISE, Kind.CALL):
        op = kernel.op(value)
        if op.name.rsplit(".", 1)[-1] in SCALINGS and op.args:
            yield from _with_polynomial(kernel, value, op.args[:1])
    for value in kernel.values(Kind.CAST, name="bitcast"):
        if kernel.op(value).dtype not in ("f32", None) or not kernel.op(value).args:
            continue
        inserted = kernel.strip(kernel.op(value).args[0])
        shifted = tuple(at for at in kernel.walk(inserted, _is_bits) if _shifts_to_exponent(kernel, kernel.op(at)))
        if not shifted:
            continue
        # the bits of the polynomial are added to, or the power of two is multiplied by it
        sums = tuple(kernel.walk(inserted, _is_bits))
        mantissas = [kernel.op(at).args[0] for at in sums if kernel.op(at).name == "bitcast" and at != value]
        yield from _with_polynomial(kernel, value, tuple(mantissas))
        for user in kernel.users(value):
            if kernel.op(user).kind is Kind.ELEMENTWISE and kernel.op(user).name == "mul":
                yield from _with_polynomial(kernel, user, tuple(arg for arg in kernel.op(user).args if arg != value))


def _with_polynomial(kernel: KernelView, value: int, mantissas: tuple[int, ...]) -> Iterator[_Emulated]:
    for mantissa in mantissas:
        found = polynomial(kernel, mantissa)
        if found is not None:
            yield _Emulated(value, mantissa, found)
            return


def _is_bits(op: Op) -> bool:
    return (op.kind is Kind.ELEMENTWISE and op.name in ("add", "or", "sub", "shl", "mul", "min", "max", "and")) or (
        op.kind in (Kind.CAST, Kind.SHAPE) and op.name != "bitcast"
    )


def _shifts_to_exponent(kernel: KernelView, op: Op) -> bool:
    if op.kind is not Kind.ELEMENTWISE or len(op.args) != 2:
        return False
    if op.name == "shl":
        return kernel.fold(op.args[1]) == MANTISSA_BITS
    return op.name == "mul" and any(kernel.fold(arg) == ONE_ABOVE_MANTISSA for arg in op.args)


def _share(kernel: KernelView, found: tuple[_Emulated, ...]) -> int | None:
    """Percent of the exponentials that are polynomials: all without another exponential, or one index in so many."""
    places = {one.value for one in found}
    if not any(value not in places and kernel.users(value) for value in exponentials(kernel)):
        return 100
    for guard in kernel.op(found[0].value).guards:
        op = kernel.op(guard.value)
        if op.kind is not Kind.ELEMENTWISE or len(op.args) != 2:
            continue
        period, bound = _period(kernel, op.args[0]), kernel.fold_int(op.args[1])
        if period is None or bound is None:
            continue
        chosen = {
            "eq": 1,
            "ne": period - 1,
            "lt": bound,
            "le": bound + 1,
            "ge": period - bound,
            "gt": period - bound - 1,
        }
        count = chosen.get(op.name)
        if count is not None:
            return round(100 * (count if guard.expected else period - count) / period)
    return None


def _period(kernel: KernelView, value: int) -> int | None:
    """n in `i % n` or `i & (n - 1)`."""
    op = kernel.op(value)
    if op.kind is not Kind.ELEMENTWISE or len(op.args) != 2:
        return None
    known = kernel.fold_int(op.args[1])
    if known is None or known <= 0:
        return None
    return known if op.name == "mod" else known + 1 if op.name == "and" else None


def _miss(kernel: KernelView) -> Miss:
    hardware = [value for value in exponentials(kernel) if kernel.users(value)]
    if hardware:
        place = (Evidence(kernel.place(hardware[0]), kernel.op(hardware[0]).name),)
        return Miss(Reason.NO_TRACE, "all exponentials go to the special-function unit", place)
    return Miss(detail="no exponential is taken")


TRITON = """
@triton.jit
def softmax(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    s = tl.load(X + row * N + i, mask=i < N, other=-1e4).to(tl.float32) * 1.44269504
    x = tl.maximum(s - tl.max(s), -126.0)
    CODE
    tl.store(Y + row * N + i, p / tl.sum(p), mask=i < N)

def run(X, Y):
    softmax[(X.shape[0],)](X, Y, X.shape[1], BLOCK=1024)
"""
POLYNOMIAL = """whole = tl.floor(x)
    r = x - whole
    f = ((0.0791 * r + 0.2244) * r + 0.6964) * r + 0.9999"""
INSERT = """
    p = (f.to(tl.int32, bitcast=True) + (whole.to(tl.int32) << 23)).to(tl.float32, bitcast=True)"""
CUDA = r"""
__device__ float poly_exp2(float x) {
  float whole = floorf(x);
  float r = x - whole;
  float f = fmaf(fmaf(fmaf(0.0791f, r, 0.2244f), r, 0.6964f), r, 0.9999f);
  return __int_as_float(__float_as_int(f) + (static_cast<int>(whole) << 23));
}
__global__ void powers(const float* x, float* y) {
  float v[16];
  for (int i = 0; i < 16; ++i) v[i] = x[threadIdx.x * 16 + i];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    CODE
  }
  for (int i = 0; i < 16; ++i) y[threadIdx.x * 16 + i] = v[i];
}
void run(const float* x, float* y) { powers<<<64, 128>>>(x, y); }
"""
GELU = "float z = v[i]; v[i] = z * fmaf(fmaf(fmaf(0.0791f, z, 0.2244f), z, 0.6964f), z, 0.9999f);"

EXAMPLES = (
    Example(
        "whole part in the exponent bits",
        "triton",
        TRITON.replace("CODE", POLYNOMIAL + INSERT),
        Status.PRESENT,
        {"degree": 3, "share_percent": 100},
    ),
    Example(
        "power of two times polynomial",
        "triton",
        TRITON.replace(
            "CODE", POLYNOMIAL + "\n    p = f * ((whole.to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)"
        ),
        Status.PRESENT,
        {"degree": 3},
    ),
    Example(
        "hardware exponential",
        "triton",
        TRITON.replace("CODE", "p = tl.exp2(x)"),
        Status.ABSENT,
        trap="the special-function unit",
    ),
    Example(
        "polynomial alone",
        "triton",
        TRITON.replace("CODE", POLYNOMIAL + "\n    p = f"),
        Status.ABSENT,
        trap="look-alike: a polynomial without exponent bits",
    ),
    Example(
        "exponent bits alone",
        "triton",
        TRITON.replace("CODE", "p = s * ((tl.floor(x).to(tl.int32) + 127) << 23).to(tl.float32, bitcast=True)"),
        Status.ABSENT,
        trap="look-alike: a power of two made of bits, such as a quantisation scale",
    ),
    Example(
        "every fourth",
        "cuda",
        CUDA.replace("CODE", "if (i % 4 == 0) v[i] = poly_exp2(v[i]); else v[i] = exp2f(v[i]);"),
        Status.PRESENT,
        {"degree": 3, "share_percent": 25},
    ),
    Example(
        "all of them", "cuda", CUDA.replace("CODE", "v[i] = poly_exp2(v[i]);"), Status.PRESENT, {"share_percent": 100}
    ),
    Example(
        "helper that nothing calls",
        "cuda",
        CUDA.replace("CODE", "v[i] = exp2f(v[i]);"),
        Status.ABSENT,
        trap="helper that nothing calls",
    ),
    Example(
        "polynomial of GELU", "cuda", CUDA.replace("CODE", GELU), Status.ABSENT, trap="look-alike: another polynomial"
    ),
)
