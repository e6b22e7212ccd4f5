"""UT transform: the chain of rank-one updates inside a chunk is collapsed by inverting the unit lower-triangular matrix
I + strictly_lower(diag(beta) K K^T), by row substitution, by blocks, or by a product of powers, so that all
corrections become
matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.carried import Cell, cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.triangles import triangles
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import FoundValue, Status


@dataclass(frozen=True, slots=True)
class _Substitution:
    """A loop that replaces one row of a square tile at a time by its products with the rows before."""

    loop: int
    cell: Cell
    row: int
    size: int | None


def detect_program(program: ProgramView) -> Detection:
    for kernel in program.kernels:
        solved = (*_substitutions(kernel), *_in_memory(kernel))
        if solved:
            return (_match(kernel, solved),)
    for kernel in program.kernels:
        strict = [one for one in triangles(kernel) if one.strict]
        if strict:
            evidence = (Evidence(kernel.place(strict[0].value), "strictly triangular mask"),)
            return Miss(detail="a strictly triangular matrix is made, but no inverse of it", evidence=evidence)
    return Miss(detail="no triangular matrix is inverted")


def _substitutions(kernel: KernelView) -> Iterator[_Substitution]:
    data = flow(kernel)
    for index, loop in enumerate(kernel.body.loops):
        if loop.variable == NONE:
            continue
        for cell in cells(kernel, index):
            behind = frozenset(data.back(cell.news, lambda op: op.kind is not Kind.MMA))
            if not cell.olds & behind:
                continue
            row = next((at for at in sorted(behind) if _replaces_row(kernel, at, loop.variable)), None)
            reduced = [at for at in behind if kernel.op(at).kind is Kind.REDUCE and kernel.op(at).name == "sum"]
            if row is not None and any(cell.olds & set(data.back((at,))) for at in reduced):
                dims = kernel.dims(row)
                yield _Substitution(index, cell, row, dims[-1] if dims else None)


def _in_memory(kernel: KernelView) -> Iterator[_Substitution]:
    """As a tile, in an array: a[i][j] gets the sum of a[i][k] * a[k][j] over the rows before i."""
    data = flow(kernel)
    for index, loop in enumerate(kernel.body.loops):
        for cell in cells(kernel, index) if loop.variable != NONE else ():
            arrays = [old for old in cell.olds if kernel.op(old).kind is Kind.ALLOC]
            stores = [at for array in arrays for at in data.stores.get(array, ()) if index in kernel.loops_of(at)]
            rows = [at for at in stores if any(loop.variable in index_cone(kernel, arg) for arg in where(kernel, at))]
            for store in rows:
                for value in data.back((kernel.op(store).args[1],), _sums):
                    op = kernel.op(value)
                    multiplies = op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma")
                    if multiplies and all(_is_read_of(kernel, arg, arrays) for arg in op.args[:2]):
                        dims = kernel.dims(arrays[0])
                        yield _Substitution(index, cell, store, dims[0] if dims and len(dims) >= 2 else None)
                        return


def _sums(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "neg", "where", "fma")
    )


def _is_read_of(kernel: KernelView, value: int, arrays: list[int]) -> bool:
    op = kernel.op(kernel.strip(value))
    return op.kind is Kind.LOAD and any(array in arrays for array in flow(kernel).arrays(op.args[0]))


def _replaces_row(kernel: KernelView, value: int, variable: int) -> bool:
    """`where(rows == i, new, tile)`, with the loop's own i."""
    op = kernel.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name != "where" or len(kernel.dims(value) or ()) < 2:
        return False
    condition = kernel.op(kernel.strip(op.args[0]))
    if condition.kind is not Kind.ELEMENTWISE or condition.name != "eq":
        return False
    return any(variable in index_cone(kernel, arg) for arg in condition.args)


def _match(kernel: KernelView, solved: tuple[_Substitution, ...]) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    merged = _merged(kernel, solved)
    attributes["inverse"] = "block_recursive" if merged is not None else "substitution"
    chunk = None if merged is not None else solved[0].size
    if chunk is None:
        undecided["chunk"] = "the size of the whole matrix is not known here"
    else:
        attributes["chunk"] = chunk
    evidence = [Evidence(kernel.place(solved[0].row), "replaces one row of the inverse at a time")]
    if merged is not None:
        evidence.append(Evidence(kernel.place(merged), "inverse of an off-diagonal block by two products"))
    return Match(tuple(evidence), attributes, undecided)


def _merged(kernel: KernelView, solved: tuple[_Substitution, ...]) -> int | None:
    """A product of an inverted block with a product of another one."""
    data = flow(kernel)
    inverted = frozenset(
        data.forward(
            [old for one in solved for old in one.cell.olds],
            lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.ELEMENTWISE),
        )
    )
    made = {one.value for one in products(kernel)}
    for one in products(kernel):
        sides = (one.a, one.b)
        for left, right in (sides, sides[::-1]):
            inner = set(data.back((right,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.ELEMENTWISE))) & made
            if left in inverted and inner:
                return one.value
    return None


_ROWS = """
@triton.jit
def invert(K, Beta, Out, C: tl.constexpr, D: tl.constexpr):
    at = tl.arange(0, C)
    first = tl.program_id(0) * C
    k = tl.load(K + (first + at)[:, None] * D + tl.arange(0, D)[None, :])
    a = tl.dot(k, tl.trans(k)) * tl.load(Beta + first + at)[:, None]
    a = -tl.where(at[:, None] > at[None, :], a, 0.0)
    for i in range(1, C):
        row = tl.sum(tl.where((at == i)[:, None], a, 0.0), 0)
        row += tl.sum(row[:, None] * a, 0) * (at < i)
        a = tl.where((at == i)[:, None], row[None, :], a)
    a += at[:, None] == at[None, :]
    tl.store(Out + (first + at)[:, None] * C + at[None, :], a)


def run(k, beta, out):
    invert[(k.shape[0] // 32,)](k, beta, out, C=32, D=k.shape[1])
"""

_BLOCKS = """
@triton.jit
def solve(a, at, C: tl.constexpr):
    a = -tl.where(at[:, None] > at[None, :], a, 0.0)
    for i in range(1, C):
        row = tl.sum(tl.where((at == i)[:, None], a, 0.0), 0)
        row += tl.sum(row[:, None] * a, 0)
        a = tl.where((at == i)[:, None], row[None, :], a)
    return a + (at[:, None] == at[None, :])


@triton.jit
def invert(A, Out, C: tl.constexpr):
    at = tl.arange(0, C)
    base = tl.program_id(0) * 4 * C * C
    place = at[:, None] * 2 * C + at[None, :]
    left = solve(tl.load(A + base + place), at, C)
    right = solve(tl.load(A + base + place + 2 * C * C + C), at, C)
    below = -tl.dot(tl.dot(right, tl.load(A + base + place + 2 * C * C)), left)
    tl.store(Out + base + place, left)
    tl.store(Out + base + place + 2 * C * C + C, right)
    tl.store(Out + base + place + 2 * C * C, below)


def run(a, out):
    invert[(a.shape[0],)](a, out, C=16)
"""

_NOT_INVERTED = """
@triton.jit
def products(K, Beta, Out, C: tl.constexpr, D: tl.constexpr):
    at = tl.arange(0, C)
    first = tl.program_id(0) * C
    k = tl.load(K + (first + at)[:, None] * D + tl.arange(0, D)[None, :])
    a = tl.dot(k, tl.trans(k)) * tl.load(Beta + first + at)[:, None]
    tl.store(Out + (first + at)[:, None] * C + at[None, :], tl.where(at[:, None] > at[None, :], a, 0.0))


def run(k, beta, out):
    products[(k.shape[0] // 32,)](k, beta, out, C=32, D=k.shape[1])
"""

_NOT_CALLED = _BLOCKS.replace("solve(tl.load(A + base + place), at, C)", "tl.load(A + base + place)").replace(
    "solve(tl.load(A + base + place + 2 * C * C + C), at, C)", "tl.load(A + base + place + 2 * C * C + C)"
)

_CUDA = """
__global__ void invert(const float* k, const float* beta, float* out, int D) {
    __shared__ float a[32][32];
    int col = threadIdx.x, first = blockIdx.x * 32;
    for (int row = 0; row < 32; ++row) {
        float dot = 0.f;
        for (int d = 0; d < D; ++d) dot += k[(first + row) * D + d] * k[(first + col) * D + d];
        a[row][col] = row > col ? -beta[first + row] * dot : 0.f;
    }
    __syncthreads();
    for (int i = 1; i < 32; ++i) {
        float sum = a[i][col];
        for (int j = 0; j < i; ++j) sum += a[i][j] * a[j][col];
        __syncthreads();
        a[i][col] = sum;
        __syncthreads();
    }
    for (int row = 0; row < 32; ++row) out[(first + row) * 32 + col] = a[row][col] + (row == col ? 1.f : 0.f);
}

void run(const float* k, const float* beta, float* out, int chunks, int D) { invert<<<chunks, 32>>>(k, beta, out, D); }
"""

EXAMPLES = (
    Example("row by row", "triton", _ROWS, Status.PRESENT, {"inverse": "substitution", "chunk": 32}),
    Example("by blocks", "triton", _BLOCKS, Status.PRESENT, {"inverse": "block_recursive"}),
    Example("matrix that nothing inverts", "triton", _NOT_INVERTED, Status.ABSENT, trap="a triangular mask alone"),
    Example("row by row in shared memory", "cuda", _CUDA, Status.PRESENT, {"inverse": "substitution", "chunk": 32}),
    Example(
        "matrix that nothing inverts",
        "cuda",
        _CUDA.replace("sum += a[i][j] * a[j][col]", "sum += a[i][j]"),
        Status.ABSENT,
        trap="a triangular mask alone",
    ),
    Example("solver that nothing calls", "triton", _NOT_CALLED, Status.ABSENT, trap="helper that nothing calls"),
)
