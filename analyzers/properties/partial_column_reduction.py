"""Private column sums: each block adds up the columns of many rows for itself and writes one partial row, which a short
second stage adds to those of the other blocks: atomically, by the block that comes last, in a kernel of its own or in
host code that sums the partial rows.

An addition to global memory for every row is no private sum, and neither is a contraction or a weighted average whose
sum is rescaled on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.addresses import index_atoms
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.grids import grids
from d2k.analyzers.patterns.loops import index_cone, movers, trip_count, walked, where
from d2k.analyzers.patterns.merging import summed_later
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.origins import Move, moves
from d2k.analyzers.patterns.spans import span
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Carried, Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status


@dataclass(frozen=True, slots=True)
class _Sum:
    """`value` is the finished private sum of a block, `store` writes it; `stage2` says who merges (None: not known)."""

    value: int
    store: int
    stage2: str | None


def detect_program(program: ProgramView) -> Detection:
    found: list[tuple[KernelView, _Sum]] = []
    lone: list[tuple[KernelView, _Sum]] = []
    for kernel in program.kernels:
        if any(kernel.kernel.name == other.kernel.name for other, _ in found):
            continue
        for one in (*_looped(kernel), *_tiled(kernel)):
            (found if one.stage2 else lone).append((kernel, one))
            break
    if found:
        return tuple(_match(kernel, one) for kernel, one in found)
    return _miss(program, lone)


def _match(kernel: KernelView, one: _Sum) -> Match:
    attributes: dict[str, FoundValue] = {"stage2": one.stage2 or ""}
    undecided: dict[str, str] = {}
    blocks = _blocks(kernel, one.store)
    if isinstance(blocks, int):
        attributes["blocks"] = blocks
    else:
        undecided["blocks"] = blocks
    evidence = (
        Evidence(kernel.place(one.value), f"{kernel.kernel.name}: adds up columns over rows"),
        Evidence(kernel.place(one.store), "writes the block's partial row"),
    )
    return Match(evidence, attributes, undecided)


def _blocks(kernel: KernelView, store: int) -> int | str:
    """The number of blocks along the axes of the grid that cut the rows; in words if no constant says it."""
    axes = {kernel.op(at).attrs.get("axis") for at in kernel.values(Kind.BLOCK_INDEX)}
    columns = {
        kernel.op(at).attrs.get("axis")
        for place in where(kernel, store)
        if place != NONE and kernel.op(store).kind is Kind.ATOMIC
        for at in kernel.slice(place)
        if kernel.op(at).kind is Kind.BLOCK_INDEX
    }
    total = 1
    for axis in sorted(axis for axis in axes - columns if isinstance(axis, int)):
        extents = {(grid.kind, grid.blocks) for grid in grids(kernel, axis)}
        if len(extents) != 1:
            return "the number of blocks is chosen at launch"
        kind, blocks = extents.pop()
        if kind == "sms":
            return "the number of blocks follows the device's number of SMs"
        if blocks is None:
            return "the number of blocks is computed at launch"
        total *= blocks
    return total


# sums that a loop carries


def _looped(kernel: KernelView) -> Iterator[_Sum]:
    contracted = frozenset(at for one in contractions(kernel) for at in one.sums)
    data = flow(kernel)
    for loop in range(len(kernel.body.loops)):
        fetched = frozenset(walked(kernel, loop))
        if not fetched or trip_count(kernel, loop) in (0, 1):
            continue
        moving = movers(kernel, loop)
        for held in kernel.loop(loop).carried:
            if held.phi in moving or held.next in (held.phi, NONE) or held.phi in contracted:
                continue
            rows = _added_rows(kernel, held, fetched)
            if not rows:
                continue
            for store in data.outputs():
                if loop in kernel.loops_of(store) or len(kernel.op(store).args) < 2:
                    continue
                if held.phi in data.back((kernel.op(store).args[1],), _finishes) and _by_columns(kernel, store, rows):
                    yield _Sum(held.next, store, _stage2(kernel, store, rows))


def _added_rows(kernel: KernelView, held: Carried, fetched: frozenset[int]) -> tuple[int, ...]:
    """Walked reads whose elements are added, column by column, to what the loop carries; () if it is no such sum."""
    data = flow(kernel)
    old = frozenset(data.forward((held.phi,), _same))
    found: list[int] = []
    added = False
    stack = [held.next]
    seen: set[int] = set()
    while stack:
        at = stack.pop()
        if at in seen or at == NONE or at in old:
            continue
        seen.add(at)
        op = kernel.op(at)
        if op.kind is Kind.MMA or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "max") and set(op.args) & old):
            return ()
        if op.kind is Kind.ELEMENTWISE and op.name == "fma" and set(op.args[:2]) & old:
            return ()
        adds = op.kind is Kind.ELEMENTWISE and op.name in ("add", "fma") and bool(set(op.args) & old)
        added = added or adds
        if at in fetched:
            found.append(at)
        elif op.kind is not Kind.LOAD or data.arrays(op.args[0]):
            stack.extend(data.operands(at))
    return tuple(found) if added else ()


def _same(op: Op) -> bool:
    kinds = (Kind.CAST, Kind.SHAPE, Kind.PHI)
    return op.kind in kinds or (op.kind is Kind.ELEMENTWISE and op.name == "where")


def _finishes(op: Op) -> bool:
    """What a finished sum goes through on its way out: the last rows of a tile added up, lanes or warps merged."""
    kinds = (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.ALLOC, Kind.SHUFFLE, Kind.ITEM)
    if op.kind is Kind.REDUCE:
        return op.attrs.get("axis") in (0, None)
    return op.kind in kinds or (op.kind is Kind.ELEMENTWISE and op.name in ("add", "where", "mul"))


def _by_columns(kernel: KernelView, store: int, rows: tuple[int, ...]) -> bool:
    """The result is indexed by what runs over the columns of whole rows; operands that have only some of these indices
    would make it a contraction."""
    columns = _within(kernel, store)
    shared = [columns & _within(kernel, fetch) for fetch in rows]
    if not columns or columns not in shared or any(one and one != columns for one in shared):
        return False
    return not any(_is_summed_along(kernel, fetch, columns) for fetch in rows)


def _is_summed_along(kernel: KernelView, fetch: int, columns: frozenset[int]) -> bool:
    """What is added up lies side by side in memory: sums of rows."""
    numbers = numbering(kernel)
    return any(
        one.within
        and one.index != NONE
        and one.scale == 1
        and not one.stride
        and not columns & {numbers.number(at) for at in index_cone(kernel, one.index)}
        for one in moves(kernel, fetch)
    )


def _within(kernel: KernelView, access: int) -> frozenset[int]:
    """Numbers of the indices that differ within the block's tile."""
    numbers = numbering(kernel)
    return frozenset(
        at
        for place in where(kernel, access)
        if place != NONE
        for at in index_atoms(kernel, place)
        if differs_within(kernel, numbers.example(at)) or _is_slot(kernel, numbers.example(at))
    )


def _is_slot(kernel: KernelView, value: int) -> bool:
    """The counter of an unrolled loop over the elements that a thread holds."""
    op = kernel.op(value)
    return op.kind is Kind.PHI and op.loop != NONE and kernel.loop(op.loop).form == "static"


# sums of the rows of one tile


def _tiled(kernel: KernelView) -> Iterator[_Sum]:
    data = flow(kernel)
    for value in kernel.values(Kind.REDUCE, name="sum"):
        op = kernel.op(value)
        dims = kernel.dims(op.args[0]) or ()
        if op.attrs.get("axis") != 0 or len(dims) != 2 or dims[0] == 1 or op.loop != NONE:
            continue
        rows = data.fetches(op.args[0], lambda inner: inner.kind is not Kind.MMA)
        for store in data.outputs():
            written = kernel.op(store).args[1:2]
            if rows and value in data.back(written, _same) and _by_columns(kernel, store, rows):
                yield _Sum(value, store, _stage2(kernel, store, rows))


# who merges


def _stage2(kernel: KernelView, store: int, rows: tuple[int, ...]) -> str | None:
    op = kernel.op(store)
    cuts = {block for fetch in rows for block in _blocks_across(kernel, fetch)}
    if op.kind is Kind.ATOMIC or (op.kind is Kind.COPY and op.attrs.get("direction") == "reduce"):
        own = {at for place in where(kernel, store) if place != NONE for at in kernel.slice(place)}
        adds = op.kind is Kind.COPY or op.name == "add"
        return "atomic" if adds and cuts - own else None
    if not cuts & _blocks_across(kernel, store):
        return None
    if _reads_back(kernel, store):
        return "last_block"
    name = kernel.pointer(op.args[0])
    return "second_kernel" if name is not None and summed_later(kernel, name) else None


def _blocks_across(kernel: KernelView, access: int) -> frozenset[int]:
    """Block indices that move an access along other axes than that of its columns."""
    own = moves(kernel, access)
    columns = [one for one in own if one.within]
    return frozenset(
        at
        for one in own
        if not one.within and one.index != NONE and not any(_touches(kernel, column, one) for column in columns)
        for at in kernel.slice(one.index)
        if kernel.op(at).kind is Kind.BLOCK_INDEX
    )


def _touches(kernel: KernelView, column: Move, tile: Move) -> bool:
    """`tile` steps by just the extent of the columns: it numbers tiles side by side."""
    if column.index == NONE or column.stride != tile.stride or column.coordinate != tile.coordinate:
        return False
    extent = next((dim for dim in kernel.dims(kernel.strip(column.index)) or () if dim != 1), None)
    if extent is None:
        extent = span(kernel, column.index)
    return extent is not None and tile.scale == extent * column.scale


def _reads_back(kernel: KernelView, store: int) -> bool:
    """The kernel reads the partial rows again, on a path that an atomic counter decides."""
    data = flow(kernel)
    roots = data.memory(kernel.op(store).args[0])
    for value in kernel.values(Kind.LOAD):
        if data.memory(kernel.op(value).args[0]) != roots or value < store:
            continue
        for guard in kernel.op(value).guards:
            if any(kernel.op(at).kind is Kind.ATOMIC for at in data.back((guard.value,))):
                return True
    return False


def _miss(program: ProgramView, lone: list[tuple[KernelView, _Sum]]) -> Miss:
    if lone:
        kernel, one = lone[0]
        evidence = (Evidence(kernel.place(one.store), f"{kernel.kernel.name}: stored"),)
        return Miss(Reason.PREREQUISITE_MISSING, "columns are added up, but nothing merges partial sums", evidence)
    for kernel in program.kernels:
        for value in kernel.values(Kind.ATOMIC, name="add"):
            op = kernel.op(value)
            if op.loop != NONE and flow(kernel).is_output(value) and kernel.dims(op.args[1]):
                evidence = (Evidence(kernel.place(value), "atomic addition"),)
                return Miss(Reason.NOT_LOAD_BEARING, "every row is added to global memory", evidence)
    return Miss(detail="no block adds up columns over rows")


TRITON = """
@triton.jit
def backward(DY, XHAT, DW, M, N: tl.constexpr, ROWS: tl.constexpr):
    block = tl.program_id(0)
    cols = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for row in range(block * ROWS, block * ROWS + COUNT):
        dy = tl.load(DY + row * N + cols)
        xhat = tl.load(XHAT + row * N + cols)
        EACH
    LAST

def run(DY, XHAT):
    M, N = DY.shape
    DW = torch.zeros(ROWS_OUT, N, dtype=torch.float32, device=DY.device)
    backward[(128,)](DY, XHAT, DW, M, N=N, ROWS=64)
    RETURN
"""
PRIVATE = TRITON.replace("EACH", "total += dy * xhat")
PARTIAL = PRIVATE.replace("LAST", "tl.store(DW + block * N + cols, total)").replace("ROWS_OUT", "128")
ATOMIC = PRIVATE.replace("LAST", "tl.atomic_add(DW + cols, total)").replace("ROWS_OUT", "1")
EVERY_ROW = (
    TRITON.replace("EACH", "tl.atomic_add(DW + cols, dy * xhat)").replace("LAST", "pass").replace("ROWS_OUT", "1")
)
STAGE2 = """
@triton.jit
def merge(DW, OUT, N: tl.constexpr, BLOCKS: tl.constexpr):
    cols = tl.program_id(0) * 64 + tl.arange(0, 64)
    rows = tl.arange(0, BLOCKS)
    tl.store(OUT + cols, tl.sum(tl.load(DW + rows[:, None] * N + cols[None, :]), 0))
"""
CUDA = """
__global__ void backward(const float* dy, const float* xhat, float* part, float* dw, unsigned* done, int m, int n) {
  int col = threadIdx.x;
  float sum = 0.f;
  for (int row = blockIdx.x; row < m; row += gridDim.x) {
    EACH
  }
  LAST
}
STAGE2
void run(const float* dy, const float* xhat, float* part, float* dw, unsigned* done, int m, int n) {
  backward<<<132, 256>>>(dy, xhat, part, dw, done, m, n);
  THEN
}
"""
OWN = CUDA.replace("EACH", "sum += dy[row * n + col] * xhat[row * n + col];")
MERGE = """
__global__ void merge(const float* part, float* dw, int n) {
  float sum = 0.f;
  for (int b = 0; b < 132; ++b) sum += part[b * n + threadIdx.x];
  dw[threadIdx.x] = sum;
}
"""
LAST_BLOCK = """
  part[blockIdx.x * n + col] = sum;
  __threadfence();
  __shared__ bool last;
  if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    float total = 0.f;
    for (int b = 0; b < gridDim.x; ++b) total += part[b * n + col];
    dw[col] = total;
  }
"""

EXAMPLES = (
    Example(
        "partial rows summed by host code",
        "triton",
        PARTIAL.replace("COUNT", "ROWS").replace("RETURN", "return DW.sum(0)"),
        Status.PRESENT,
        {"stage2": "second_kernel", "blocks": 128},
    ),
    Example(
        "partial rows merged by a kernel",
        "triton",
        STAGE2
        + PARTIAL.replace("COUNT", "ROWS").replace(
            "RETURN",
            "OUT = torch.empty(N, device=DY.device)\n    merge[(N // 64,)](DW, OUT, N=N, BLOCKS=128)\n    return OUT",
        ),
        Status.PRESENT,
        {"stage2": "second_kernel"},
    ),
    Example(
        "added atomically",
        "triton",
        ATOMIC.replace("COUNT", "ROWS").replace("RETURN", "return DW"),
        Status.PRESENT,
        {"stage2": "atomic", "blocks": 128},
    ),
    Example(
        "every row added",
        "triton",
        EVERY_ROW.replace("COUNT", "ROWS").replace("RETURN", "return DW"),
        Status.ABSENT,
        trap="look-alike: an atomic addition for every row is no private sum",
    ),
    Example(
        "sums that nothing merges",
        "triton",
        PARTIAL.replace("COUNT", "ROWS").replace("RETURN", "return DW"),
        Status.ABSENT,
        trap="look-alike: the sum of each group of rows is a result of its own",
    ),
    Example(
        "one row for each block",
        "triton",
        PARTIAL.replace("COUNT", "1").replace("RETURN", "return DW.sum(0)"),
        Status.ABSENT,
        trap="parameter of size one",
    ),
    Example(
        "second kernel",
        "cuda",
        OWN.replace("LAST", "part[blockIdx.x * n + col] = sum;")
        .replace("STAGE2", MERGE)
        .replace("THEN", "merge<<<1, 256>>>(part, dw, n);"),
        Status.PRESENT,
        {"stage2": "second_kernel", "blocks": 132},
    ),
    Example(
        "last block",
        "cuda",
        OWN.replace("LAST", LAST_BLOCK).replace("STAGE2", "").replace("THEN", ""),
        Status.PRESENT,
        {"stage2": "last_block"},
    ),
    Example(
        "every row added",
        "cuda",
        CUDA.replace("EACH", "atomicAdd(&dw[col], dy[row * n + col] * xhat[row * n + col]);")
        .replace("LAST", "part[blockIdx.x * n + col] = sum;")
        .replace("STAGE2", "")
        .replace("THEN", ""),
        Status.ABSENT,
        trap="declared but unused: the private sum stays zero",
    ),
)
