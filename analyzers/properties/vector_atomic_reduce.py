"""Vector reductions to global memory: one operation adds several elements, by vector or packed atomics or by bulk
reductions. One atomic for each element is the opposite; counters and flags are no reductions. What `tl.atomic_add` on
a contiguous tile becomes is the compiler's doing.
"""

from __future__ import annotations

from math import prod

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accesses import HALF, Access, accesses, by_tensor, share
from d2k.analyzers.patterns.contiguity import access_steps
from d2k.analyzers.patterns.languages import is_triton
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import Kind
from d2k.spec.finding import FoundValue, Reason, Status

REDUCTIONS = ("add", "max", "min")
BULK = frozenset({"descriptor", "tma", "bulk"})
NAMES = ("cp.reduce.async.bulk", "red.global.add.v4", "red.global.add.v2", "atomic_add")


def detect(kernel: KernelView) -> Detection:
    every = tuple(one for one in accesses(kernel) if _is_reduction(kernel, one))
    vectors = tuple(one for one in every if _width(kernel, one) != 1)
    matches = []
    for tensor, group in by_tensor(vectors).items():
        if share(group, by_tensor(every)[tensor]) >= HALF:
            matches.append(_match(kernel, group))
    unnamed = tuple(one for one in vectors if one.tensor is None)
    if unnamed:
        matches.append(_match(kernel, unnamed))
    if matches:
        return tuple(matches)
    if not every:
        return mentioned(kernel, NAMES) or Miss(detail="nothing is reduced into global memory by atomics")
    one = every[0]
    place = (Evidence(kernel.place(one.value), f"atomic {kernel.op(one.value).name} to {one.tensor}"),)
    if is_triton(kernel) and _is_contiguous(kernel, one):
        return Undecided(f"{NEEDS_COMPILED}: the compiler may join atomics on neighbouring elements", place)
    return Miss(Reason.WRONG_PARAMETER, "one atomic for each element", place)


def _is_reduction(kernel: KernelView, one: Access) -> bool:
    """Adds up results; a counter whose old value is used, or that counts by a constant, does not."""
    if one.direction != "reduce":
        return False
    op = kernel.op(one.value)
    if op.kind is Kind.COPY:
        return True
    value = op.args[1] if len(op.args) > 1 else -1
    counts = value < 0 or isinstance(kernel.fold(value), (int, float))
    return op.name in REDUCTIONS and not counts and not kernel.users(one.value)


def _width(kernel: KernelView, one: Access) -> int | None:
    """Elements of one reduction operation; None if it is a bulk of unknown size."""
    op = kernel.op(one.value)
    if op.kind is Kind.COPY or one.how in BULK:
        tile = kernel.dims(op.args[1]) if len(op.args) > 1 else None
        known = [extent for extent in tile or () if extent is not None]
        return prod(known) if tile and len(known) == len(tile) else None
    stated = op.attrs.get("width") or op.attrs.get("packed")
    return stated if isinstance(stated, int) and not isinstance(stated, bool) else 1


def _is_contiguous(kernel: KernelView, one: Access) -> bool:
    found = access_steps(kernel, one.value)
    return found is None or any(step is not None and step.how in ("unit", "runtime") for step in found)


def _match(kernel: KernelView, group: tuple[Access, ...]) -> Match:
    evidence = tuple(
        Evidence(kernel.place(one.value), f"reduction of several elements into {one.tensor or 'a tensor'}")
        for one in group[:4]
    )
    widths = {_width(kernel, one) for one in group}
    known = [one for one in widths if one is not None]
    if len(known) == len(widths):
        attributes: dict[str, FoundValue] = {"width": min(known)}
        return Match(evidence, attributes)
    return Match(evidence, {}, {"width": "the size of a bulk reduction is not known here"})


TRITON = """
@triton.jit
def accumulate(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n).to(tl.float32)
    REDUCE

def run(X, Y):
    accumulate[(X.numel() // 1024,)](X, Y, X.numel(), BLOCK=1024)
"""
BULK_SUM = """
@triton.jit
def accumulate(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    target = tl.make_tensor_descriptor(Y, [M, N], [N, 1], [BM, BN])
    row = tl.program_id(0) * BM
    rows = row + tl.arange(0, BM)
    x = tl.load(X + rows[:, None] * N + tl.arange(0, BN)[None, :])
    target.atomic_add([0, 0], x)

def run(X, Y):
    accumulate[(X.shape[0] // 64,)](X, Y, 64, 64, BM=64, BN=64)
"""
CUDA = r"""
__global__ void accumulate(const float4* x, float* y, __nv_bfloat162* z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 v = x[i];
  REDUCE
}
void run(const float4* x, float* y, __nv_bfloat162* z) { accumulate<<<64, 256>>>(x, y, z); }
"""
VECTOR = (
    'asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"'
    ' ::"l"(y + 4 * i), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");'
)
SCALARS = "atomicAdd(y + 4 * i, v.x); atomicAdd(y + 4 * i + 1, v.y);"

EXAMPLES = (
    Example("reduction through a descriptor", "triton", BULK_SUM, Status.PRESENT, {"width": 4096}),
    Example(
        "atomics on a tile",
        "triton",
        TRITON.replace("REDUCE", "tl.atomic_add(Y + i, x)"),
        Status.UNKNOWN,
        trap="done by the compiler, if at all",
    ),
    Example(
        "atomics far apart",
        "triton",
        TRITON.replace("REDUCE", "tl.atomic_add(Y + i * 64, x)"),
        Status.ABSENT,
        trap="elements that do not lie next to each other",
    ),
    Example(
        "one sum for a block",
        "triton",
        TRITON.replace("REDUCE", "tl.atomic_add(Y, tl.sum(x))"),
        Status.ABSENT,
        trap="parameter of size one: a scalar",
    ),
    Example("vector reduction in PTX", "cuda", CUDA.replace("REDUCE", VECTOR), Status.PRESENT, {"width": 4}),
    Example(
        "packed pairs",
        "cuda",
        CUDA.replace("REDUCE", "atomicAdd(z + i, __floats2bfloat162_rn(v.x, v.y));"),
        Status.PRESENT,
        {"width": 2},
    ),
    Example("one by one", "cuda", CUDA.replace("REDUCE", SCALARS), Status.ABSENT, trap="scalar atomics"),
    Example(
        "counter",
        "cuda",
        CUDA.replace("REDUCE", "y[atomicAdd(reinterpret_cast<int*>(y), 1)] = v.x;"),
        Status.ABSENT,
        trap="look-alike: a counter is no reduction",
    ),
    Example(
        "vector reduction in a comment",
        "cuda",
        CUDA.replace("REDUCE", "// " + VECTOR + "\n  " + SCALARS),
        Status.ABSENT,
        trap="comment",
    ),
)
