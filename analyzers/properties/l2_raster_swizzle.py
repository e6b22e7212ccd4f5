"""Tile order for reuse in the L2: block or tile numbers are regrouped so that blocks which run together work on few
rows and few columns of tiles and share their operands. Row-major order, and groups of one tile, share nothing more.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.analyzers.patterns.rasters import Raster, rasters
from d2k.spec.finding import FoundValue, Reason, Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(rasters(kernel))
    wide = [one for one in found if one.group != 1]
    if wide:
        groups = {one.group: one for one in reversed(wide)}
        return tuple(_match(kernel, one) for one in reversed(groups.values()))
    if found:
        place = Evidence(kernel.place(found[0].value), "groups of 1")
        return Miss(Reason.WRONG_PARAMETER, "groups of one tile leave the order as it was", (place,), certain=True)
    return Miss(detail="tiles are visited in the order of block numbers", certain=moves_all_memory(kernel))


def _match(kernel: KernelView, one: Raster) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if one.group is not None:
        attributes["group"] = one.group
    else:
        undecided["group"] = "the size of a group is no constant here"
    text = one.how if one.group is None else f"{one.how}, {one.group} in a group"
    return Match((Evidence(kernel.place(one.value), text),), attributes, undecided)


TRITON = """
@triton.jit
def tile_of(number, tiles_m, tiles_n, GROUP: tl.constexpr):
    per_group = GROUP * tiles_n
    first = number // per_group * GROUP
    height = min(tiles_m - first, GROUP)
    return first + number % per_group % height, number % per_group // height

@triton.jit
def matmul(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    number = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    TILE
    rows = m * BM + tl.arange(0, BM)
    columns = n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + k[None, :])
        b = tl.load(B + k[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(C + rows[:, None] * N + columns[None, :], total)

def run(A, B, C):
    M, K = A.shape
    N = B.shape[1]
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    matmul[(tiles,)](A, B, C, M, N, K, BM=64, BN=64, BK=32, GROUP=8)
"""
GROUPED = "m, n = tile_of(number, tiles_m, tiles_n, GROUP)"
BUILT_IN = "m, n = tl.swizzle2d(number // tiles_n, number % tiles_n, tiles_m, tiles_n, GROUP)"
ROW_MAJOR = "m, n = number // tiles_n, number % tiles_n"

CUDA = r"""
constexpr int LOG = 3;
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  const int m = ROW_TILE, n = COLUMN_TILE;
  const int row = m * 16 + threadIdx.y, column = n * 16 + threadIdx.x;
  float sum = 0.f;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + column];
  C[row * N + column] = sum;
}
void run(const float* A, const float* B, float* C, int M, int N, int K) {
  matmul<<<GRID, dim3(16, 16)>>>(A, B, C, M, N, K);
}
"""


def _cuda(row: str, column: str, grid: str = "dim3(M / 16, N / 16)") -> str:
    return CUDA.replace("ROW_TILE", row).replace("COLUMN_TILE", column).replace("GRID", grid)


BY_SHIFTS = _cuda("blockIdx.x >> LOG", "(blockIdx.y << LOG) + (blockIdx.x & ((1 << LOG) - 1))")
LINEAR = "M / 16 * (N / 16)"
IN_GROUPS = "blockIdx.x / (8 * (N / 16)) * 8 + blockIdx.x % (8 * (N / 16)) % 8"

EXAMPLES = (
    Example("groups of row tiles", "triton", TRITON.replace("TILE", GROUPED), Status.PRESENT, {"group": 8}),
    Example("built-in function", "triton", TRITON.replace("TILE", BUILT_IN), Status.PRESENT, {"group": 8}),
    Example(
        "groups of one",
        "triton",
        TRITON.replace("TILE", GROUPED).replace("GROUP=8", "GROUP=1"),
        Status.ABSENT,
        trap="parameter of size one: GROUP = 1",
    ),
    Example(
        "row-major order",
        "triton",
        TRITON.replace("TILE", ROW_MAJOR),
        Status.ABSENT,
        trap="look-alike: quotient and remainder alone are no groups",
    ),
    Example(
        "helper that nothing calls",
        "triton",
        TRITON.replace("TILE", f"{ROW_MAJOR}  # {GROUPED}"),
        Status.ABSENT,
        trap="helper that nothing calls, named in a comment",
    ),
    Example(
        "groups by shifts",
        "cuda",
        BY_SHIFTS,
        Status.PRESENT,
        {"group": 8},
    ),
    Example(
        "groups by division",
        "cuda",
        _cuda(IN_GROUPS, "blockIdx.x % (8 * (N / 16)) / 8", LINEAR),
        Status.PRESENT,
        {"group": 8},
    ),
    Example(
        "groups of one by shifts",
        "cuda",
        _cuda("blockIdx.x >> LOG", "(blockIdx.y << LOG) + (blockIdx.x & ((1 << LOG) - 1))").replace(
            "LOG = 3", "LOG = 0"
        ),
        Status.ABSENT,
        trap="parameter of size one",
    ),
    Example(
        "linear number split into row and column",
        "cuda",
        _cuda("blockIdx.x / (N / 16)", "blockIdx.x % (N / 16)", LINEAR),
        Status.ABSENT,
        trap="look-alike: quotient and remainder alone are no groups",
    ),
)
