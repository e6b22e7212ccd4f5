"""Two accumulators on one activation tile: a loop over the contracted axis multiplies each tile that it loads once with
tiles of two or more other matrices, such as gate and up weights, and sums the products apart; or one wide accumulator
holds both halves, which are multiplied element by element after the loop.

Accumulators that are neighbouring parts of one output tile are a larger tile and nothing else; a tile that is loaded
again for the second accumulator is not shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.activation import sigmoids
from d2k.analyzers.patterns.addresses import memory_of, place_polynomials
from d2k.analyzers.patterns.contraction import Contraction, contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import walked
from d2k.analyzers.patterns.numbering import difference, numbering
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import Reason, Status


@dataclass(frozen=True, slots=True)
class _Use:
    """A contraction that a loop sums up, with one of its operands and the tiles (`own`) that this operand is."""

    sum: Contraction
    loop: int
    own: frozenset[int]
    other: int


def detect(kernel: KernelView) -> Detection:
    groups = tuple(_groups(kernel))
    dual = [group for group in groups if len(group) >= 2]
    if dual:
        return (_match(kernel, max(dual, key=len)),)
    halves = _halves(kernel)
    if halves is not None:
        return (halves,)
    return _miss(kernel)


def _match(kernel: KernelView, group: tuple[_Use, ...]) -> Match:
    fetch = min(group[0].own)
    evidence = (
        Evidence(kernel.place(fetch), "one tile for all accumulators"),
        *(Evidence(kernel.place(use.sum.value), f"accumulator {n + 1}") for n, use in enumerate(group[:3])),
    )
    return Match(evidence, {"accumulators": len(group)})


def _groups(kernel: KernelView) -> Iterator[tuple[_Use, ...]]:
    """For each tile that a loop loads the contractions that it feeds, one for each accumulator."""
    uses = tuple(_uses(kernel))
    for tile in dict.fromkeys(fetch for use in uses for fetch in sorted(use.own)):
        chosen: list[_Use] = []
        for use in uses:
            if tile in use.own and all(_apart(kernel, use, other) for other in chosen):
                chosen.append(use)
        yield tuple(chosen)


def _uses(kernel: KernelView) -> Iterator[_Use]:
    for one in contractions(kernel):
        a, b = kernel.op(one.value).args[:2]
        for mine, other in ((a, b), (b, a)):
            fetched = frozenset(flow(kernel).fetches(mine, _whole))
            for loop in kernel.loops_of(one.value):
                own = fetched & frozenset(walked(kernel, loop))
                if own and _sums_in(kernel, one, loop):
                    yield _Use(one, loop, own, other)
                    break


def _sums_in(kernel: KernelView, one: Contraction, loop: int) -> bool:
    """The loop carries the accumulator."""
    carried = {value for cell in kernel.loop(loop).carried for value in (cell.phi, cell.next)}
    return bool(one.sums & carried) or _in_array(kernel, one, loop)


def _in_array(kernel: KernelView, one: Contraction, loop: int) -> bool:
    """The accumulator is an array of tensor memory that a product of the loop adds to."""
    arrays = flow(kernel).accumulator_arrays(one.value) if one.matrix else ()
    return bool(arrays) and loop in kernel.loops_of(one.value)


def _whole(op: Op) -> bool:
    """The operand is the fetched tile itself, converted, laid out anew or scaled; not the result of other sums."""
    return op.kind in (
        Kind.CAST,
        Kind.SHAPE,
        Kind.ITEM,
        Kind.PHI,
        Kind.LOAD,
        Kind.ALLOC,
        Kind.CONTROL,
        Kind.ASM,
    ) or (op.kind is Kind.ELEMENTWISE and op.name in ("where", "mul", "fma", "sub"))


def _apart(kernel: KernelView, one: _Use, other: _Use) -> bool:
    """Two accumulators of their own that the same loop fills from different matrices."""
    if one.loop != other.loop or one.sum.sums & other.sum.sums:
        return False
    if one.sum.matrix and other.sum.matrix:
        arrays = flow(kernel).accumulator_arrays
        if set(arrays(one.sum.value)) & set(arrays(other.sum.value)):
            return False
    return _other_matrix(kernel, one, other) or (one.other != other.other and _meet(kernel, one, other))


def _other_matrix(kernel: KernelView, one: _Use, other: _Use) -> bool:
    """The other operands come from different tensors, or from one at places that a run-time extent sets apart."""
    left, right = (flow(kernel).fetches(use.other, _whole) for use in (one, other))
    a, b = ({root for fetch in side for root in memory_of(kernel, fetch)} for side in (left, right))
    if not a or not b or a.isdisjoint(b):
        return bool(a and b)
    return any(_runtime_distance(kernel, x, y) for x in left for y in right)


def _runtime_distance(kernel: KernelView, left: int, right: int) -> bool:
    numbers = numbering(kernel)
    a, b = place_polynomials(kernel, left), place_polynomials(kernel, right)
    if len(a) != len(b):
        return False
    apart = [monomial for x, y in zip(a, b, strict=True) for monomial in difference(x, y)]
    ops = [kernel.op(numbers.example(factor)) for monomial in apart for factor in monomial]
    return bool(ops) and all(op.kind is Kind.PARAM for op in ops) and not all(op.attrs.get("constexpr") for op in ops)


def _meet(kernel: KernelView, one: _Use, other: _Use) -> bool:
    """Elements of both accumulators are multiplied with each other after the loop."""
    data = flow(kernel)
    reach = [
        {at for at in data.forward(use.sum.sums, _elementwise) if one.loop not in kernel.loops_of(at)}
        for use in (one, other)
    ]
    return any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name == "mul" for at in reach[0] & reach[1])


def _elementwise(op: Op) -> bool:
    return op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.PHI, Kind.SHAPE, Kind.ITEM, Kind.LOAD)


def _halves(kernel: KernelView) -> Match | None:
    """One accumulator that is taken apart in two halves, one of which gates the other."""
    data = flow(kernel)
    gates = frozenset(data.forward(sigmoids(kernel), _elementwise))
    gated = tuple(value for value in kernel.values(Kind.ELEMENTWISE, name="mul") if value in gates)
    for one in contractions(kernel) if gated else ():
        if not any(_sums_in(kernel, one, loop) for loop in kernel.loops_of(one.value)):
            continue
        made = frozenset(data.forward(one.sums, _elementwise))
        for value in gated:
            if value not in made or kernel.op(value).loop == kernel.op(one.value).loop:
                continue
            a, b = (_picks(kernel, arg, made) for arg in kernel.op(value).args[:2])
            if len(a) == 1 and len(b) == 1 and a != b:
                evidence = (
                    Evidence(kernel.place(one.value), "one accumulator for both halves"),
                    Evidence(kernel.place(value), "one half gates the other"),
                )
                return Match(evidence, {"accumulators": 2})
    return None


def _picks(kernel: KernelView, value: int, made: frozenset[int]) -> frozenset[tuple[int, object]]:
    """The parts of an accumulator that a value is made of: (array, which element or half)."""
    found: set[tuple[int, object]] = set()
    for at in flow(kernel).back((value,), lambda op: not _is_pick(op) and _elementwise(op)):
        op = kernel.op(at)
        if at in made and _is_pick(op):
            which: object = op.attrs.get("index") if op.kind is Kind.ITEM else _index_numbers(kernel, op)
            found.add((op.args[0], which))
    return frozenset(found)


def _is_pick(op: Op) -> bool:
    return op.kind is Kind.ITEM or (op.kind is Kind.SHAPE and op.name == "index")


def _index_numbers(kernel: KernelView, op: Op) -> object:
    return tuple(numbering(kernel).number(arg) for arg in op.args[1:])


def _miss(kernel: KernelView) -> Miss:
    uses = tuple(_uses(kernel))
    numbers = numbering(kernel)
    tiles = [frozenset(numbers.number(fetch) for fetch in use.own) for use in uses]
    for one, tile in zip(uses, tiles, strict=True):
        for other, its in zip(uses, tiles, strict=True):
            if one.sum.value < other.sum.value and not tile.isdisjoint(its) and _apart(kernel, one, other):
                evidence = tuple(Evidence(kernel.place(min(use.own)), "loads the tile") for use in (one, other))
                return Miss(
                    Reason.NOT_LOAD_BEARING, "the tile is loaded once for each accumulator", evidence, certain=True
                )
    sums = {use.sum.value for use in uses}
    if len(sums) >= 2:
        evidence = tuple(Evidence(kernel.place(value), "sums products") for value in sorted(sums)[:3])
        return Miss(detail="no two accumulators are fed by one tile of a loop", evidence=evidence)
    return Miss(detail="no loop feeds two accumulators")


TRITON = """
@triton.jit
def gated(X, G, U, Y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
BODY
    tl.store(Y + rows[:, None] * N + cols[None, :], (gate * tl.sigmoid(gate) * up).to(tl.bfloat16))

def run(X, G, U, Y):
    M, K = X.shape
    N = G.shape[1]
    gated[(triton.cdiv(M, 128), triton.cdiv(N, 64))](X, G, U, Y, M, N, K, BM=128, BN=64, BK=64)
"""
TWO = """
    for k in range(0, K, BK):
        x = tl.load(X + rows[:, None] * K + (k + ks)[None, :])
        gate = tl.dot(x, tl.load(G + (k + ks)[:, None] * N + cols[None, :]), gate)
        up += tl.dot(x, tl.load(U + (k + ks)[:, None] * N + cols[None, :]))
"""
AGAIN = TWO.replace("up += tl.dot(x,", "up += tl.dot(tl.load(X + rows[:, None] * K + (k + ks)[None, :]),")
ONE_MATRIX = TWO.replace("tl.load(U + (k + ks)[:, None] * N", "tl.load(G + (k + ks)[:, None] * (2 * N) + N")
APART = """
    for k in range(0, K, BK):
        x = tl.load(X + rows[:, None] * K + (k + ks)[None, :])
        gate = tl.dot(x, tl.load(G + (k + ks)[:, None] * N + cols[None, :]), gate)
    for k in range(0, K, BK):
        x = tl.load(X + rows[:, None] * K + (k + ks)[None, :])
        up += tl.dot(x, tl.load(U + (k + ks)[:, None] * N + cols[None, :]))
"""
WIDE = """
@triton.jit
def gated(X, W, Y, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    wide = tl.program_id(1) * 2 * BN + tl.arange(0, 2 * BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, 2 * BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(X + rows[:, None] * K + (k + ks)[None, :])
        total = tl.dot(x, tl.load(W + (k + ks)[:, None] * (2 * N) + wide[None, :]), total)
    gate, up = tl.split(tl.reshape(total, (BM, BN, 2)))
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(Y + rows[:, None] * N + cols[None, :], (gate * tl.sigmoid(gate) * up).to(tl.bfloat16))

def run(X, W, Y):
    gated[(8, 8)](X, W, Y, Y.shape[1], X.shape[1], BM=128, BN=64, BK=64)
"""
NEIGHBOURS = """
@triton.jit
def matmul(X, W, Y, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * 2 * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    left = tl.zeros((BM, BN), tl.float32)
    right = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(X + rows[:, None] * K + (k + ks)[None, :])
        left += tl.dot(x, tl.load(W + (k + ks)[:, None] * N + cols[None, :]))
        right += tl.dot(x, tl.load(W + (k + ks)[:, None] * N + (cols + BN)[None, :]))
    tl.store(Y + rows[:, None] * N + cols[None, :], left)
    tl.store(Y + rows[:, None] * N + (cols + BN)[None, :], right)

def run(X, W, Y):
    matmul[(8, 8)](X, W, Y, Y.shape[1], X.shape[1], BM=128, BN=64, BK=64)
"""
CUDA = """
__global__ void gated(const float* x, const float* g, const float* u, float* y, int n, int k) {
  int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float gate = 0.f, up = 0.f;
  for (int i = lane; i < k; i += 32) {
BODY
  }
  for (int o = 16; o > 0; o >>= 1) {
    gate += __shfl_xor_sync(0xffffffffu, gate, o);
    up += __shfl_xor_sync(0xffffffffu, up, o);
  }
  if (lane == 0) y[row] = gate / (1.f + __expf(-gate)) * up;
}
void run(const float* x, const float* g, const float* u, float* y, int n, int k) {
  gated<<<n / 8, 256>>>(x, g, u, y, n, k);
}
"""
BOTH = """
    float v = x[i];
    gate += g[(size_t)row * k + i] * v;
    up += u[(size_t)row * k + i] * v;
"""
TILED = """
__global__ void gated(const half* x, const half* g, const half* u, half* y, int n, int k) {
  __shared__ half xs[64][32], gs[64][32], us[64][32];
  float gate[8] = {0.f}, up[8] = {0.f};
  int col = threadIdx.x % 64, row = threadIdx.x / 64 * 8;
  for (int k0 = 0; k0 < k; k0 += 32) {
    for (int i = threadIdx.x; i < 64 * 32; i += blockDim.x) {
      xs[i / 32][i % 32] = x[(blockIdx.x * 64 + i / 32) * k + k0 + i % 32];
      gs[i / 32][i % 32] = g[(blockIdx.y * 64 + i / 32) * k + k0 + i % 32];
      us[i / 32][i % 32] = u[(blockIdx.y * 64 + i / 32) * k + k0 + i % 32];
    }
    __syncthreads();
    for (int kk = 0; kk < 32; ++kk) {
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        float v = __half2float(xs[row + r][kk]);
        gate[r] += v * __half2float(gs[col][kk]);
        up[r] += v * __half2float(us[col][kk]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 8; ++r)
    y[(blockIdx.x * 64 + row + r) * n + blockIdx.y * 64 + col] =
        __float2half(gate[r] / (1.f + __expf(-gate[r])) * up[r]);
}
void run(const half* x, const half* g, const half* u, half* y, int m, int n, int k) {
  gated<<<dim3(m / 64, n / 64), 512>>>(x, g, u, y, n, k);
}
"""

EXAMPLES = (
    Example("gate and up", "triton", TRITON.replace("BODY", TWO), Status.PRESENT, {"accumulators": 2}),
    Example("halves of one matrix", "triton", TRITON.replace("BODY", ONE_MATRIX), Status.PRESENT, {"accumulators": 2}),
    Example("interleaved columns", "triton", WIDE, Status.PRESENT, {"accumulators": 2}),
    Example(
        "tile loaded again",
        "triton",
        TRITON.replace("BODY", AGAIN),
        Status.ABSENT,
        trap="the activation tile is loaded for each accumulator",
    ),
    Example(
        "two passes",
        "triton",
        TRITON.replace("BODY", APART),
        Status.ABSENT,
        trap="each accumulator has a loop of its own",
    ),
    Example(
        "neighbouring columns",
        "triton",
        NEIGHBOURS,
        Status.ABSENT,
        trap="look-alike: two halves of one output tile are a larger tile",
    ),
    Example("row of two matrices", "cuda", CUDA.replace("BODY", BOTH), Status.PRESENT, {"accumulators": 2}),
    Example("shared tile", "cuda", TILED, Status.PRESENT, {"accumulators": 2}),
    Example(
        "second matrix in a comment",
        "cuda",
        CUDA.replace("BODY", BOTH.replace("up +=", "// up +=")),
        Status.ABSENT,
        trap="comment",
    ),
    Example(
        "second matrix under #if 0",
        "cuda",
        CUDA.replace("BODY", BOTH.replace("    up +=", "#if 0\n    up +=") + "#endif\n"),
        Status.ABSENT,
        trap="code of another build",
    ),
)
