"""No shared-memory bank conflicts: rows of a shared array are padded, columns are permuted by exclusive or with the
row, or the hardware swizzles what tensor copies bring. A padded array that nothing uses, exclusive or with a constant
and the butterfly of a shuffle are not it. In Triton the compiler lays out what products and copies go through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.languages import works_on_tiles
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Reason, Status

PADS = (1, 2, 4, 8)
"""Elements by which rows are lengthened: a word, or the 16 bytes that keep vector accesses aligned."""

SHORTEST_ROW = 16
LAYOUTS = {"swizzle": "tma_swizzle", "xor": "xor", "padding": "padding"}
DIFFER = frozenset({Kind.THREAD_INDEX, Kind.LANE, Kind.WARP, Kind.PHI, Kind.ARANGE})
NAMES = ("Swizzle", "NVMMASharedLayout", "SwizzledSharedLayout", "CU_TENSOR_MAP_SWIZZLE_128B")


def detect(kernel: KernelView) -> Detection:
    found: dict[str, list[Evidence]] = {}
    for method, evidence in (*_layouts(kernel), *_padded(kernel), *_permuted(kernel)):
        found.setdefault(method, []).append(evidence)
    if found:
        return tuple(Match(tuple(evidence[:4]), {"method": method}) for method, evidence in found.items())
    if works_on_tiles(kernel) and kernel.values(Kind.MMA):
        place = (Evidence(kernel.place(kernel.values(Kind.MMA)[0]), "a product"),)
        return Undecided(f"{NEEDS_COMPILED}: the compiler chooses the layout of operands in shared memory", place)
    missing = mentioned(kernel, NAMES)
    if missing is not None:
        return missing
    arrays = [value for value in _arrays(kernel) if flow(kernel).loads.get(value)]
    if arrays:
        name = kernel.op(arrays[0]).variable or kernel.op(arrays[0]).name or "a shared array"
        place = (Evidence(kernel.place(arrays[0]), name),)
        return Miss(Reason.PREREQUISITE_MISSING, f"{name} is neither padded nor permuted", place)
    return Miss(detail="no shared array is laid out")


def _arrays(kernel: KernelView) -> tuple[int, ...]:
    return tuple(value for value in kernel.values(Kind.ALLOC) if kernel.op(value).attrs.get("space") == "shared")


def _layouts(kernel: KernelView) -> Iterator[tuple[str, Evidence]]:
    """Layouts that are named, of shared memory that something goes through and of tensor maps that are copied by."""
    data = flow(kernel)
    used = frozenset(array for table in (data.loads, data.stores) for array in table)
    operands = frozenset(at for value in kernel.values(Kind.MMA) for at in kernel.slice(value))
    for value in _arrays(kernel):
        op = kernel.op(value)
        method = LAYOUTS.get(str(op.attrs.get("layout", "")))
        if method is not None and (value in used or value in operands):
            yield method, Evidence(op.place, f"layout with {method.replace('_', ' ')}")
    if kernel.values(Kind.COPY, name="tma"):
        for view in (kernel, *(host for host, _ in kernel.launch_sites())):
            for value in view.values(Kind.DESCRIPTOR):
                swizzle = view.op(value).attrs.get("swizzle")
                if swizzle and swizzle not in ("none", "NONE"):
                    yield "tma_swizzle", Evidence(view.op(value).place, f"tensor map with swizzle {swizzle}")


def _padded(kernel: KernelView) -> Iterator[tuple[str, Evidence]]:
    """Shared arrays with lengthened rows, and accesses whose rows are so far apart."""
    data = flow(kernel)
    for value in _arrays(kernel):
        dims = kernel.dims(value)
        shape = kernel.op(value).shape
        if not dims or not shape or len(dims) < 2 or not data.loads.get(value) or not data.stores.get(value):
            continue
        if dims[-1] is not None and _is_padded(dims[-1]) and _walks_columns(kernel, value):
            yield "padding", Evidence(kernel.place(value), f"rows of {dims[-1]} elements")
    numbers = numbering(kernel)
    for access in kernel.values(Kind.LOAD, Kind.STORE):
        op = kernel.op(access)
        if op.attrs.get("space") != "shared" or op.attrs.get("via") not in ("pointer", "vector", "matrix"):
            continue
        for factors, distance in _distances(kernel, op.args[0]).items():
            differs = len(factors) == 1 and _differs(kernel, numbers.example(factors[0]))
            if differs and _is_padded(distance):
                yield "padding", Evidence(op.place, f"rows {distance} elements apart")
                return


def _distances(kernel: KernelView, address: int) -> dict[tuple[int, ...], int]:
    """How far apart the places are that differ by one in an index, with compile-time constants filled in."""
    numbers = numbering(kernel)
    found: Counter[tuple[int, ...]] = Counter()
    for monomial, times in numbers.index(address).items():
        open_factors: list[int] = []
        for factor in monomial:
            known = kernel.fold_int(numbers.example(factor))
            if known is None:
                open_factors.append(factor)
            else:
                times *= known
        found[tuple(open_factors)] += times
    return found


def _is_padded(row: int) -> bool:
    """A power of two and a little: 33, 72, 136."""
    for pad in PADS:
        whole = row - pad
        if whole >= max(SHORTEST_ROW, 4 * pad) and whole & (whole - 1) == 0:
            return True
    return False


def _walks_columns(kernel: KernelView, array: int) -> bool:
    """The row of an access differs from thread to thread: neighbours would meet in one bank."""
    data = flow(kernel)
    for access in (*data.loads.get(array, ()), *data.stores.get(array, ())):
        if kernel.op(access).kind is Kind.COPY:
            return True
        rows = where(kernel, access)[1:-1]
        if any(row != NONE and _differs(kernel, row) for row in rows) or not rows:
            return True
    return False


def _differs(kernel: KernelView, value: int) -> bool:
    return any(kernel.op(at).kind in DIFFER for at in index_cone(kernel, value))


def _permuted(kernel: KernelView) -> Iterator[tuple[str, Evidence]]:
    """Accesses of shared memory at places that are exclusive or of two indices."""
    for access in kernel.values(Kind.LOAD, Kind.STORE, Kind.COPY):
        op = kernel.op(access)
        if op.kind is not Kind.COPY and op.attrs.get("space") not in ("shared", "unknown"):
            continue
        places = op.args[:1] if op.kind is Kind.COPY else where(kernel, access)
        if not any(flow(kernel).arrays(place) for place in places if place != NONE):
            continue
        for place in places:
            if place == NONE:
                continue
            cone = index_cone(kernel, place)
            permuted = next((at for at in cone if _mixes(kernel, places, at)), None)
            if permuted is not None:
                yield "xor", Evidence(kernel.place(permuted), "column exclusive-or row")
                break


def _mixes(kernel: KernelView, places: tuple[int, ...], value: int) -> bool:
    """Exclusive or of two indices that both differ among threads, or of one that also picks the row.

    A partner at a distance, as in sorting networks, comes from a loop alone and picks nothing else.
    """
    op = kernel.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name != "xor" or len(op.args) != 2:
        return False
    if any(kernel.fold(arg) is not None or not _differs(kernel, arg) for arg in op.args):
        return False
    looped = [arg for arg in op.args if not _differs_among_threads(kernel, arg)]
    if not looped:
        return True
    rows = {at for place in places if place != NONE for at in kernel.walk(place, lambda one: one is not op)}
    phis = {at for arg in looped for at in index_cone(kernel, arg) if kernel.op(at).kind is Kind.PHI}
    return len(looped) == 1 and bool(phis & (rows - set(op.args)))


def _differs_among_threads(kernel: KernelView, value: int) -> bool:
    return any(kernel.op(at).kind in DIFFER - {Kind.PHI} for at in index_cone(kernel, value))


CUDA = r"""
__global__ void transpose(const float* x, float* y, int n) {
  __shared__ float tile[32][ROW];
  int row = threadIdx.y, column = threadIdx.x;
  tile[row]WRITE = x[(blockIdx.y * 32 + row) * n + blockIdx.x * 32 + column];
  __syncthreads();
  y[(blockIdx.x * 32 + row) * n + blockIdx.y * 32 + column] = READ;
}
void run(const float* x, float* y, int n) { transpose<<<dim3(n / 32, n / 32), dim3(32, 32)>>>(x, y, n); }
"""


def _cuda(row: str, write: str, read: str) -> str:
    return CUDA.replace("ROW", row).replace("WRITE", write).replace("READ", read)


GLUON = """
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

@gluon.jit
def copy(x, y, BM: gl.constexpr, BN: gl.constexpr):
    layout: gl.constexpr = LAYOUT
    tile = gl.allocate_shared_memory(gl.float16, [BM, BN], layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    tma.async_copy_global_to_shared(x, [gl.program_id(0) * BM, 0], ready, tile)
    mbarrier.wait(ready, 0)
    tma.async_copy_shared_to_global(y, [gl.program_id(0) * BM, 0], tile)

def run(x, y):
    copy[(64,)](x, y, BM=64, BN=64)
"""
DOT = """
@triton.jit
def product(A, B, C, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    a = tl.load(A + m[:, None] * BK + k[None, :])
    b = tl.load(B + k[:, None] * BN + n[None, :])
    tl.store(C + m[:, None] * BN + n[None, :], RESULT)

def run(A, B, C):
    product[(1,)](A, B, C, BM=64, BN=64, BK=64)
"""

EXAMPLES = (
    Example(
        "swizzled layout in Gluon",
        "triton",
        GLUON.replace("LAYOUT", "gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)"),
        Status.PRESENT,
        {"method": "tma_swizzle"},
    ),
    Example(
        "layout without swizzle in Gluon",
        "triton",
        GLUON.replace("LAYOUT", "gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=16, rank=2)"),
        Status.ABSENT,
        trap="parameter of size zero: the layout names no swizzle",
    ),
    Example(
        "operands of a product",
        "triton",
        DOT.replace("RESULT", "tl.dot(a, b)"),
        Status.UNKNOWN,
        trap="the compiler's choice",
    ),
    Example(
        "no shared operands",
        "triton",
        DOT.replace("RESULT", "a + b"),
        Status.ABSENT,
        trap="nothing goes through shared memory that the source lays out",
    ),
    Example("padded rows", "cuda", _cuda("33", "[column]", "tile[column][row]"), Status.PRESENT, {"method": "padding"}),
    Example(
        "columns permuted by the row",
        "cuda",
        _cuda("32", "[column ^ row]", "tile[column][row ^ column]"),
        Status.PRESENT,
        {"method": "xor"},
    ),
    Example(
        "plain rows", "cuda", _cuda("32", "[column]", "tile[column][row]"), Status.ABSENT, trap="rows of a power of two"
    ),
    Example(
        "exclusive or with a constant",
        "cuda",
        _cuda("32", "[column ^ 1]", "tile[column][row ^ 1]"),
        Status.ABSENT,
        trap="look-alike: a constant exchanges columns and spreads nothing",
    ),
    Example(
        "partner in a sorting network",
        "cuda",
        _cuda("32", "[column]", "tile[row][column]").replace(
            "  y[", "  for (int d = 16; d > 0; d /= 2) tile[row][column] += tile[row][column ^ d];\n  y["
        ),
        Status.ABSENT,
        trap="look-alike: the exclusive or finds a partner, not a bank",
    ),
    Example(
        "butterfly",
        "cuda",
        _cuda("32", "[column]", "__shfl_xor_sync(0xffffffffu, tile[column][row], 1)"),
        Status.ABSENT,
        trap="look-alike: the xor of a shuffle is no swizzle",
    ),
    Example(
        "padding in a comment",
        "cuda",
        _cuda("32 /* + 1 */", "[column]", "tile[column][row]"),
        Status.ABSENT,
        trap="comment",
    ),
)
