"""Two-level accumulation: the products of one scale block are summed unscaled in an accumulator of their own, and that
partial sum, times its scales, is added to the accumulator of the whole reduction.

Scaling once after the last block is an epilogue; scaling the operands before the product is dequantisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.contraction import Contraction, contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import fetch_moves, trip_count
from d2k.analyzers.patterns.matmul import products
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import FoundValue, Status


@dataclass(frozen=True, slots=True)
class _Folded:
    """`scaled` is the partial sum of `product` times its scales, added to what `loop` carries."""

    product: Contraction
    scaled: int
    loop: int


def detect(kernel: KernelView) -> Detection:
    for product in (one for one in contractions(kernel) if not one.score):
        for one in _folded(kernel, product):
            return (_match(kernel, one),)
    if not contractions(kernel):
        return Miss(detail="no matrix product")
    place = kernel.place(contractions(kernel)[0].value)
    return Miss(detail="no block's partial sum is scaled inside the reduction", evidence=(Evidence(place, "product"),))


def _folded(kernel: KernelView, product: Contraction) -> Iterator[_Folded]:
    data = flow(kernel)
    for loop in kernel.loops_of(product.value):
        partial = _partial(kernel, product.value, loop)
        if not product.matrix and not any(_gathers(kernel.op(at)) for at in partial):
            continue  # single products are scaled, no sum of them
        carried = tuple(cells(kernel, loop))
        for scaled in sorted(data.forward(partial, _multiplied)):
            op = kernel.op(scaled)
            if op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma") or op.loop != loop:
                continue
            factors = [arg for arg in op.args[:2] if arg not in partial]
            if len(factors) != 1 or not _is_scale(kernel, factors[0], loop):
                continue
            added = frozenset(data.forward((scaled,), _added))
            if any(
                new in added and cell.olds & set(data.back(cell.news, _added)) for cell in carried for new in cell.news
            ):
                yield _Folded(product, scaled, loop)
                return


def _partial(kernel: KernelView, product: int, loop: int) -> frozenset[int]:
    """The product's own partial sum inside one iteration of `loop`; not what other products make of it."""

    def accepts(value: int, user: int) -> bool:
        op = kernel.op(user)
        if op.kind is Kind.MMA:
            return value in op.args[2:3]
        if op.kind is Kind.REDUCE:
            return op.name == "sum"
        if op.kind is Kind.ELEMENTWISE and op.name in ("add", "fma"):
            return op.loop != loop and loop in kernel.loops_of(user)
        return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.PHI)

    return frozenset(flow(kernel).spread((product,), accepts))


def _gathers(op: Op) -> bool:
    return op.kind is Kind.REDUCE or (op.kind is Kind.ELEMENTWISE and op.name in ("add", "fma"))


def _multiplied(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM) or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma"))


def _added(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.PHI) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("mul", "add", "fma")
    )


def _is_scale(kernel: KernelView, value: int, loop: int) -> bool:
    """Read from memory, a new one for each block, and only converted: no decay, no probability."""
    data = flow(kernel)
    plain = frozenset(data.back((value,), _is_plain))
    if any(kernel.op(at).kind in (Kind.MMA, Kind.REDUCE) for at in plain):
        return False
    if any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("exp", "exp2", "sub") for at in plain):
        return False
    return any(data.is_fetch(at) and fetch_moves(kernel, at, loop) for at in plain)


def _is_plain(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.LOAD, Kind.PHI) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("mul", "where", "shl")
    )


def _match(kernel: KernelView, one: _Folded) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    depth = _depth(kernel, one)
    if depth is None:
        undecided["block_k"] = "the depth of a block is not known here"
    else:
        attributes["block_k"] = depth
    evidence = (
        Evidence(kernel.place(one.product.value), "product of one block"),
        Evidence(kernel.place(one.scaled), "its sum times the block's scales"),
    )
    return Match(evidence, attributes, undecided)


def _depth(kernel: KernelView, one: _Folded) -> int | None:
    """Depth of one instruction times the inner loops that sum to the partial result."""
    depth = next((each.k for each in products(kernel) if each.value == one.product.value), None)
    if not one.product.matrix:
        depth = 1
    for loop in kernel.loops_of(one.product.value):
        if loop == one.loop or depth is None:
            break
        trips = trip_count(kernel, loop)
        depth = None if trips is None else depth * trips
    return depth


_BLOCKS = """
@triton.jit
def gemm(A, B, SA, SB, Y, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K // BK):
        ks = k * BK + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + ks[None, :])
        b = tl.load(B + ks[:, None] * N + cols[None, :])
        sa = tl.load(SA + rows * (K // BK) + k)
        sb = tl.load(SB + k * (N // BN) + tl.program_id(1))
        acc += tl.dot(a, b) * (sa * sb)[:, None]
    tl.store(Y + rows[:, None] * N + cols[None, :], acc)


def run(a, b, sa, sb, y):
    (M, K), N = a.shape, b.shape[1]
    gemm[(M // 64, N // 128)](a, b, sa, sb, y, N, K, BM=64, BN=128, BK=128)
"""

_INNER = _BLOCKS.replace(
    "        acc += tl.dot(a, b) * (sa * sb)[:, None]\n",
    "        part = tl.zeros((BM, BN), tl.float32)\n"
    "        part = tl.dot(a, b, part)\n"
    "        acc += part * sa[:, None] * sb\n",
)

_EPILOGUE = _BLOCKS.replace("acc += tl.dot(a, b) * (sa * sb)[:, None]", "acc += tl.dot(a, b)").replace(
    "cols[None, :], acc)", "cols[None, :], acc * sa[:, None])"
)

_OPERAND = _BLOCKS.replace("acc += tl.dot(a, b) * (sa * sb)[:, None]", "acc += tl.dot(a, (b * sb).to(a.dtype))")

_CUDA = """
__global__ void gemm(const float* a, const float* b, const float* scale, float* y, int N, int K) {
    __shared__ float as[16][128], bs[128][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float acc = 0.f;
    for (int block = 0; block < K / 128; ++block) {
        for (int i = threadIdx.x; i < 128; i += 16) as[threadIdx.y][i] = a[row * K + block * 128 + i];
        for (int i = threadIdx.y; i < 128; i += 16) bs[i][threadIdx.x] = b[(block * 128 + i) * N + col];
        __syncthreads();
        float part = 0.f;
        for (int k = 0; k < 128; ++k) part += as[threadIdx.y][k] * bs[k][threadIdx.x];
        acc += part * scale[row * (K / 128) + block];
        __syncthreads();
    }
    y[row * N + col] = acc;
}

void run(const float* a, const float* b, const float* scale, float* y, int M, int N, int K) {
    gemm<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(a, b, scale, y, N, K);
}
"""

EXAMPLES = (
    Example("scales for each block", "triton", _BLOCKS, Status.PRESENT, {"block_k": 128}),
    Example("accumulator of its own", "triton", _INNER, Status.PRESENT, {"block_k": 128}),
    Example("scaled once at the end", "triton", _EPILOGUE, Status.ABSENT, trap="look-alike: an epilogue"),
    Example("operand scaled before", "triton", _OPERAND, Status.ABSENT, trap="look-alike: dequantisation"),
    Example("partial sum in a register", "cuda", _CUDA, Status.PRESENT, {"block_k": 128}),
    Example(
        "one level",
        "cuda",
        _CUDA.replace("acc += part * scale[row * (K / 128) + block];", "acc += part;"),
        Status.ABSENT,
        trap="declared but unused: a partial sum that nothing scales",
    ),
)
