"""Persistent schedule: about one resident block for each SM takes work item after work item, where a plain grid has a
block for each item. The grid is made from the number of SMs, or the blocks take items from a counter.

A grid-stride loop under a grid that grows with the work has nothing to stride over.
"""

from __future__ import annotations

from dataclasses import replace

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.grids import Grid, grids
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.analyzers.patterns.loops import index_cone
from d2k.analyzers.patterns.worklists import WorkLoop, work_loops
from d2k.spec.facts import NONE
from d2k.spec.finding import FoundValue, Reason, Status

FEWEST, MOST = 64, 2048
"""A constant grid is about one block for each SM of some device between these."""

WORDS = {
    "stride": "item numbers grow by the number of blocks",
    "counter": "items are taken from a counter",
    "range": "each block has a range of items",
}


def detect(kernel: KernelView) -> Detection:
    loops = tuple(work_loops(kernel))
    for one in loops:
        if one.how == "counter":
            return (_match(kernel, one, None),)
    doubtful: WorkLoop | None = None
    growing: tuple[WorkLoop, Grid] | None = None
    for one in loops:
        launched = tuple(_settled(kernel, one, grid) for grid in grids(kernel, one.axis or 0))
        for grid in launched:
            if grid.kind == "sms" or (one.how == "stride" and _is_device_sized(grid)):
                return (_match(kernel, one, grid),)
            if grid.kind in ("work", "constant") and one.how == "stride":
                growing = growing or (one, grid)
        if one.how == "stride" and not any(grid.kind in ("work", "constant") for grid in launched):
            if not one.threads:
                return (_match(kernel, one, None),)
            doubtful = doubtful or one
    if growing is not None:
        return _plain(kernel, *growing)
    if doubtful is not None:
        return Undecided("how many blocks are launched is not known here", (_place(kernel, doubtful),))
    return Miss(detail="each block has one work item", certain=moves_all_memory(kernel))


def _settled(kernel: KernelView, one: WorkLoop, grid: Grid) -> Grid:
    """A grid that the caller chooses grows with the work if the loop ends at the same number."""
    op = grid.host.op(grid.launch)
    params, first = op.attrs.get("params"), op.attrs.get("grid")
    if grid.kind != "unknown" or not isinstance(params, tuple) or not isinstance(first, int):
        return grid
    loop = kernel.loop(one.loop)
    bounds = [bound for bound in (loop.stop, loop.condition) if bound != NONE]
    names = {kernel.op(at).name for bound in bounds for at in index_cone(kernel, bound)}
    ends = {op.args[first + position] for position, name in enumerate(params) if name in names}
    return replace(grid, kind="work") if grid.value in ends else grid


def _is_device_sized(grid: Grid) -> bool:
    return grid.blocks is not None and FEWEST <= grid.blocks <= MOST


def _match(kernel: KernelView, one: WorkLoop, grid: Grid | None) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if grid is not None and grid.kind == "sms" and grid.per_sm is not None:
        attributes["ctas_per_sm"] = grid.per_sm
    elif grid is not None and grid.kind == "constant":
        undecided["ctas_per_sm"] = f"a grid of {grid.blocks} blocks on whatever device"
    else:
        undecided["ctas_per_sm"] = "the number of blocks is computed at run time"
    return Match((_place(kernel, one), *_launch(grid)), attributes, undecided)


def _place(kernel: KernelView, one: WorkLoop) -> Evidence:
    return Evidence(kernel.loop(one.loop).place, WORDS[one.how])


def _launch(grid: Grid | None) -> tuple[Evidence, ...]:
    if grid is None:
        return ()
    text = f"a grid of {grid.blocks} blocks"
    if grid.kind == "sms":
        text = "a grid made from the number of SMs"
        text = f"{grid.per_sm} blocks for each SM" if grid.per_sm is not None and grid.per_sm > 1 else text
    return (Evidence(grid.host.op(grid.launch).place, text),)


def _plain(kernel: KernelView, one: WorkLoop, grid: Grid) -> Miss:
    place = grid.host.op(grid.launch).place
    if grid.kind == "constant":
        text = f"the grid is limited to {grid.blocks} blocks, which is no number of SMs"
        return Miss(Reason.WRONG_PARAMETER, text, (_place(kernel, one), Evidence(place, f"{grid.blocks} blocks")))
    text = "the grid grows with the work: each block finds one item"
    return Miss(Reason.WRONG_PARAMETER, text, (_place(kernel, one), Evidence(place, "a block for each item")))


TRITON = """
@triton.jit
def scale(X, Y, M, N, tiles, BLOCK: tl.constexpr):
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile * 16 + tl.arange(0, 16)
        for start in range(0, N, BLOCK):
            place = rows[:, None] * N + start + tl.arange(0, BLOCK)[None, :]
            tl.store(Y + place, 2 * tl.load(X + place))

def run(X, Y):
    M, N = X.shape
    tiles = triton.cdiv(M, 16)
    sms = torch.cuda.get_device_properties(X.device).multi_processor_count
    scale[GRID](X, Y, M, N, tiles, BLOCK=128)
"""

ARGUMENT = """
@triton.jit
def matmul(A, B, C, M, N, K, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns_of_tiles = tl.cdiv(N, BN)
    tile = tl.program_id(0)
    while tile < tl.cdiv(M, BM) * columns_of_tiles:
        rows = tile // columns_of_tiles * BM + tl.arange(0, BM)
        columns = tile % columns_of_tiles * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(A + rows[:, None] * K + k[None, :])
            b = tl.load(B + k[:, None] * N + columns[None, :])
            total = tl.dot(a, b, total)
        tl.store(C + rows[:, None] * N + columns[None, :], total)
        STEP

def run(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    sms = torch.cuda.get_device_properties("cuda").multi_processor_count
    matmul[(2 * sms,)](A, B, C, M, N, K, SMS=2 * sms, BM=64, BN=64, BK=32)
"""

RANGES = """
@triton.jit
def column_sums(X, Y, rows, N, rows_each, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    first = tl.program_id(0) * rows_each
    for row in range(first, min(first + rows_each, rows)):
        total += tl.load(X + row * N + columns, mask=columns < N, other=0.0)
    tl.store(Y + tl.program_id(0) * N + columns, total, mask=columns < N)

def run(X, Y):
    rows, N = X.shape
    blocks = BLOCKS
    column_sums[(blocks,)](X, Y, rows, N, triton.cdiv(rows, blocks), BLOCK=triton.next_power_of_2(N))
"""

CUDA = r"""
__global__ void scale(const float* x, float* y, int rows, int n) {
  for (int row = blockIdx.x; row < rows; row += STEP)
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[row * n + i] = 2.f * x[row * n + i];
}
void run(const float* x, float* y, int rows, int n) {
  int device = 0, sms = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  scale<<<GRID, 256>>>(x, y, rows, n);
}
"""

COUNTER = r"""
__global__ void scale(const float* x, float* y, int rows, int n, int* counter) {
  __shared__ int next;
  while (true) {
    if (threadIdx.x == 0) next = TAKEN;
    __syncthreads();
    const int row = next;
    __syncthreads();
    if (row >= rows) break;
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[row * n + i] = 2.f * x[row * n + i];
    if (ONCE) break;
  }
}
void run(const float* x, float* y, int rows, int n, int* counter) { scale<<<rows, 256>>>(x, y, rows, n, counter); }
"""

EXAMPLES = (
    Example(
        "stride of the grid",
        "triton",
        TRITON.replace("GRID", "(min(tiles, sms),)"),
        Status.PRESENT,
        {"ctas_per_sm": 1},
    ),
    Example(
        "stride by an argument",
        "triton",
        ARGUMENT.replace("STEP", "tile += SMS"),
        Status.PRESENT,
        {"ctas_per_sm": 2},
    ),
    Example(
        "a range of rows for each block",
        "triton",
        RANGES.replace("BLOCKS", 'torch.cuda.get_device_properties("cuda").multi_processor_count'),
        Status.PRESENT,
        {"ctas_per_sm": 1},
    ),
    Example(
        "a block for each item",
        "triton",
        TRITON.replace("GRID", "(tiles,)"),
        Status.ABSENT,
        trap="a grid that grows with the work leaves nothing to stride over",
    ),
    Example(
        "the number of SMs in a comment",
        "triton",
        TRITON.replace("GRID", "(tiles,)").replace("    sms =", "    # sms ="),
        Status.ABSENT,
        trap="comment",
    ),
    Example(
        "ranges under a grid of the work",
        "triton",
        RANGES.replace("BLOCKS", "triton.cdiv(rows, 64)"),
        Status.ABSENT,
        trap="look-alike: several items for each block are no persistent blocks",
    ),
    Example(
        "stride of the grid",
        "cuda",
        CUDA.replace("STEP", "gridDim.x").replace("GRID", "min(rows, 2 * sms)"),
        Status.PRESENT,
        {"ctas_per_sm": 2},
    ),
    Example(
        "rows from a counter",
        "cuda",
        COUNTER.replace("TAKEN", "atomicAdd(counter, 1)").replace("if (ONCE) break;", ""),
        Status.PRESENT,
    ),
    Example(
        "a block for each row",
        "cuda",
        CUDA.replace("STEP", "gridDim.x").replace("GRID", "rows"),
        Status.ABSENT,
        trap="a grid that grows with the work leaves nothing to stride over",
    ),
    Example(
        "the count of SMs is asked for, but not used",
        "cuda",
        CUDA.replace("STEP", "65536").replace("GRID", "min(rows, 65535)"),
        Status.ABSENT,
        trap="declared but unused",
    ),
)
