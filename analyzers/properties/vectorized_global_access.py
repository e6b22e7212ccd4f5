"""Wide global accesses: on the streaming path a thread moves 64 bits or more of neighbouring elements at once, for at
least half of the bytes of the tensor. In Triton that takes a range along the axis whose stride is one, long enough for
every thread; in CUDA a vector type, a cast to one, or vector loads in PTX. A vector of which one element is read, and
words that are wide themselves, are no vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accesses import HALF, STREAMING, Access, accesses, by_tensor
from d2k.analyzers.patterns.arguments import element_type
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.loops import LESS, index_cone
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.widths import Width, element_bits, width
from d2k.spec.facts import Kind
from d2k.spec.finding import FoundValue, Reason, Status

SHORT = 64
"""Bits of the narrowest access that counts as wide."""

BULK = frozenset({"descriptor", "tma", "bulk"})


@dataclass(frozen=True, slots=True)
class _Wide:
    access: Access
    width: Width
    weight: int


def detect(kernel: KernelView) -> Detection:
    every = tuple(_measured(kernel, one) for one in accesses(kernel) if one.direction in ("load", "store", "gather"))
    total = sum(one.weight for one in every)
    known = {one.access.value: one for one in every}
    matches: list[Match] = []
    open_: list[_Wide] = []
    narrow: list[_Wide] = []
    for tensor, group in by_tensor(one.access for one in every).items():
        found = [known[one.value] for one in group]
        moved = sum(one.weight for one in found)
        if moved < STREAMING * total:
            continue
        wide = [one for one in found if _is_wide(kernel, one) is True]
        undecided = [one for one in found if _is_wide(kernel, one) is None]
        if sum(one.weight for one in wide) >= HALF * moved and wide:
            matches.append(_match(kernel, tensor, wide, len(wide) == len(found)))
        elif undecided:
            open_ += undecided
        else:
            narrow += [one for one in found if one.access.how not in BULK]
    if matches:
        return tuple(matches)
    if open_:
        one = open_[0]
        return Undecided(f"{NEEDS_COMPILED}: {one.width.why}", _evidence(kernel, [one]))
    return _miss(kernel, narrow)


def _measured(kernel: KernelView, access: Access) -> _Wide:
    if access.how in BULK:
        return _Wide(access, Width(None, contiguous=False, why="moved in bulk"), access.elements)
    found = width(kernel, access.value)
    # in CUDA one operation moves so many bits; in a tile language so many elements
    weight = access.elements * (found.bits or element_bits("f32") or 1) if _by_thread(kernel) else access.elements
    return _Wide(access, found, weight)


def _by_thread(kernel: KernelView) -> bool:
    return not is_triton(kernel)


def _is_wide(kernel: KernelView, one: _Wide) -> bool | None:
    found = one.width
    if _by_thread(kernel):
        if found.bits is None:
            return None if one.access.how not in BULK else False
        return found.bits >= SHORT and _is_vector(kernel, one.access, found.bits)
    if found.contiguous is not True:
        return found.contiguous
    if found.bits is not None:
        return found.bits >= SHORT
    if found.run is None:
        return None if _is_whole_feature(kernel, one.access.value) else True
    if found.least >= SHORT:
        return True
    return None if found.run > 1 else False


def _is_whole_feature(kernel: KernelView, access: int) -> bool:
    """One row of a tile whose extent is the feature's own, which is as often as not that of one head: no bound
    cuts it off, as one does with a block that is chosen to cover rows of many elements."""
    shape = [dim for dim in kernel.op(kernel.op(access).args[0]).shape or () if kernel.fold_int(dim) != 1]
    if len(shape) != 1 or kernel.op(kernel.strip(shape[0])).kind is not Kind.PARAM:
        return False
    numbers = numbering(kernel)
    extent = numbers.number(shape[0])
    ranges = {at for at in kernel.values(Kind.ARANGE) if numbers.number(kernel.op(at).args[1]) == extent}
    for value in kernel.values(Kind.ELEMENTWISE, name=LESS):
        for index, bound in (kernel.op(value).args[:2], kernel.op(value).args[1::-1]):
            if ranges & set(index_cone(kernel, index)) and numbers.number(bound) != extent:
                return False
    return True


def _is_vector(kernel: KernelView, access: Access, bits: int) -> bool:
    """More than one element: a vector type, or a word wider than the tensor's elements."""
    op = kernel.op(access.value)
    if bits >= 2 * SHORT or op.attrs.get("via") == "vector" or op.kind is Kind.COPY:
        return True
    own = element_bits(element_type(kernel, access.tensor)) if access.tensor is not None else None
    return own is not None and bits >= 2 * own


def _match(kernel: KernelView, tensor: str, wide: list[_Wide], whole: bool) -> Match:
    attributes: dict[str, FoundValue] = {"tensor": tensor}
    undecided: dict[str, str] = {}
    known = [one.width.bits for one in wide if one.width.bits is not None]
    if len(known) == len(wide):
        attributes["bits"] = min(known)
    else:
        undecided["bits"] = next(one.width.why for one in wide if one.width.bits is None)
    if whole:
        attributes["share_percent"] = 100
    return Match(_evidence(kernel, wide), attributes, undecided)


def _evidence(kernel: KernelView, found: list[_Wide]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(kernel.place(one.access.value), f"{one.access.direction} of {one.access.tensor}: {_bits(one.width)}")
        for one in found[:4]
    )


def _bits(found: Width) -> str:
    if found.bits is not None:
        return f"{found.bits} bits"
    return "neighbouring elements" if found.contiguous else found.why


def _miss(kernel: KernelView, narrow: list[_Wide]) -> Miss:
    if not narrow:
        return Miss(detail="no thread streams a tensor by accesses of its own")
    one = narrow[0]
    detail = one.width.why or f"{one.access.tensor} is moved by {one.width.bits} bits at a time"
    # helpers that are not given may move it in another way
    reason = Reason.NO_TRACE if kernel.body.unresolved and _by_thread(kernel) else Reason.WRONG_PARAMETER
    return Miss(reason, detail, _evidence(kernel, [one]))


TRITON = """
@triton.jit
def scale(X, Y, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(X + PLACE, mask=mask)
    tl.store(Y + PLACE, x * 2, mask=mask)

def run(X, Y, stride):
    n = X.numel()
    scale[(triton.cdiv(n, SIZE),)](X, Y, n, STRIDE, BLOCK=SIZE, num_warps=4)
"""
ROWS = """
@triton.jit
def copy(X, Y, row_stride, column_stride, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    at = rows[:, None] * row_stride + columns[None, :] * column_stride
    tl.store(Y + at, tl.load(X + at))

def run(x):
    PREPARE
    y = torch.empty_like(x)
    copy[(x.shape[0] // 64, x.shape[1] // 64)](x, y, x.stride(0), x.stride(-1), BM=64, BN=64, num_warps=4)
"""
CUDA = r"""
__global__ void scale(const float* __restrict__ x, float* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  CODE
}
void run(const float* x, float* y, int n) { scale<<<n / 1024, 256>>>(x, y, n); }
"""
VECTOR = """float4 v = reinterpret_cast<const float4*>(x)[i];
  v.x *= 2.f; v.y *= 2.f; v.z *= 2.f; v.w *= 2.f;
  reinterpret_cast<float4*>(y)[i] = v;"""
SCALAR = "y[i] = 2.f * x[i];"


def _triton(place: str, size: str, stride: str = "stride") -> str:
    return TRITON.replace("PLACE", place).replace("SIZE", size).replace("STRIDE", stride)


HEAD = """
@triton.jit
def scale(X, Y, D: tl.constexpr):
    i = tl.program_id(0) * D + tl.arange(0, D)
    tl.store(Y + i, tl.load(X + i) * 2)

def run(X, Y):
    scale[(X.shape[0],)](X, Y, D=X.shape[1])
"""

EXAMPLES = (
    Example("row of a feature's own extent", "triton", HEAD, Status.UNKNOWN, trap="it may be one head's elements"),
    Example(
        "neighbouring elements",
        "triton",
        _triton("i", "4096"),
        Status.PRESENT,
        {"tensor": "X", "bits": 128, "share_percent": 100},
    ),
    Example(
        "dense rows",
        "triton",
        ROWS.replace("PREPARE", "x = x.contiguous()"),
        Status.PRESENT,
        {"tensor": "X", "bits": 128},
    ),
    Example(
        "stride not known",
        "triton",
        ROWS.replace("PREPARE", "pass"),
        Status.UNKNOWN,
        trap="whether the last stride is one is up to the caller",
    ),
    Example(
        "every second element",
        "triton",
        _triton("2 * i", "4096"),
        Status.ABSENT,
        trap="look-alike: a long range that is not contiguous",
    ),
    Example(
        "one element a thread",
        "triton",
        _triton("i", "128"),
        Status.ABSENT,
        trap="parameter of size one: the tile has no more elements than threads",
    ),
    Example(
        "gathered elements",
        "triton",
        _triton("tl.load(Y + i)", "4096").replace("x * 2", "x"),
        Status.PRESENT,
        {"tensor": "Y"},
    ),
    Example(
        "cast to a vector type", "cuda", CUDA.replace("CODE", VECTOR), Status.PRESENT, {"tensor": "x", "bits": 128}
    ),
    Example(
        "vector load in inline PTX",
        "cuda",
        CUDA.replace(
            "CODE",
            'float a, b, c, d;\n  asm volatile("ld.global.nc.v4.f32 {%0,%1,%2,%3}, [%4];"'
            ' : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(x + 4 * i));\n  y[i] = a + b + c + d;',
        ),
        Status.PRESENT,
        {"tensor": "x", "bits": 128},
    ),
    Example(
        "element by element",
        "cuda",
        CUDA.replace("CODE", SCALAR),
        Status.ABSENT,
        trap="neighbouring threads, one element each",
    ),
    Example(
        "vector in a comment",
        "cuda",
        CUDA.replace("CODE", f"// {VECTOR.splitlines()[0]}\n  {SCALAR}"),
        Status.ABSENT,
        trap="comment",
    ),
    Example(
        "vector type in registers only",
        "cuda",
        CUDA.replace(
            "CODE",
            "float4 v = make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);\n"
            "  y[i] = v.x + v.y + v.z + v.w;",
        ),
        Status.ABSENT,
        trap="declared but unused: a vector put together from single loads",
    ),
)
