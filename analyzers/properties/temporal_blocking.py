"""Temporal blocking: a tile is read once, several time steps are computed on it on chip from its own
neighbours, and it is
written once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.addresses import place_polynomials
from d2k.analyzers.patterns.carried import Cell, cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import movers, trip_count, walked
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status


@dataclass(frozen=True, slots=True)
class _Steps:
    loop: int
    cell: Cell
    neighbours: int


def detect(kernel: KernelView) -> Detection:
    found = tuple(_steps(kernel))
    several = [one for one in found if trip_count(kernel, one.loop) not in (0, 1)]
    if several:
        return (_match(kernel, several[0]),)
    if found:
        place = kernel.loop(found[0].loop).place
        return Miss(Reason.WRONG_PARAMETER, "one step for each trip", (Evidence(place, "steps = 1"),), certain=True)
    return Miss(detail="no loop advances a tile on chip from its own neighbours")


def _steps(kernel: KernelView) -> Iterator[_Steps]:
    """Loops that update a tile from several shifted reads of itself and fetch nothing new of it."""
    data = flow(kernel)
    for loop in range(len(kernel.body.loops)):
        if walked(kernel, loop):
            continue
        moving = movers(kernel, loop)
        for cell in cells(kernel, loop):
            if cell.olds & moving:
                continue
            behind = frozenset(data.back(cell.news, _combines))
            places = max(_shifted(kernel, cell, behind), _lanes(kernel, cell, behind))
            fetched = any(data.fetches(old) for old in cell.olds)
            stored = frozenset(data.forward(cell.olds)) & frozenset(data.outputs())
            if places >= 2 and fetched and stored:
                yield _Steps(loop, cell, places)
                break


def _combines(op: Op) -> bool:
    """What a stencil is made of: weighted sums of neighbours, and choices at the boundary."""
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.ALLOC, Kind.SHUFFLE) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "fma", "where", "min", "max")
    )


def _shifted(kernel: KernelView, cell: Cell, behind: frozenset[int]) -> int:
    """How many places, a constant distance apart, the new value of an element takes of the old tile."""
    data = flow(kernel)
    reads = (cell.olds | {load for old in cell.olds for load in data.loads.get(old, ())}) & behind
    written = {_moving(kernel, store) for old in cell.olds for store in data.stores.get(old, ())}
    places: dict[frozenset[object], set[tuple[int, ...]]] = {}
    for at in reads:
        if kernel.op(at).kind is Kind.LOAD and any(
            differs_within(kernel, arg) for arg in kernel.op(at).args if arg >= 0
        ):
            constant = tuple(one.get((), 0) for one in place_polynomials(kernel, at))
            places.setdefault(_element(_moving(kernel, at)), set()).add(constant)
    own = {_element(one) for one in written}
    return max((len(found) for place, found in places.items() if place in own), default=0)


Moving = frozenset[tuple[int, tuple[int, ...], int]]


def _moving(kernel: KernelView, access: int) -> Moving:
    """The terms of an access's indices that are no constants: (operand, factors, times)."""
    return frozenset(
        (index, monomial, times)
        for index, one in enumerate(place_polynomials(kernel, access))
        for monomial, times in one.items()
        if monomial
    )


def _element(moving: Moving) -> frozenset[object]:
    """Which element is meant, whichever of two buffers it is in: the last index alone."""
    last = max((index for index, _, _ in moving), default=0)
    return frozenset(term for term in moving if term[0] == last)


def _lanes(kernel: KernelView, cell: Cell, behind: frozenset[int]) -> int:
    """Neighbours on both sides, from other lanes or by shifting the tile."""
    data = flow(kernel)
    found = [
        kernel.op(at).name
        for at in behind
        if kernel.op(at).kind is Kind.SHUFFLE and cell.olds & set(data.back((at,), _combines))
    ]
    gathered = {
        numbering(kernel).number(kernel.op(at).args[1])
        for at in behind
        if kernel.op(at).kind is Kind.SHAPE and kernel.op(at).name == "gather" and len(kernel.op(at).args) > 1
    }
    return max(2 if {"up", "down"} <= set(found) else 0, len(gathered))


def _match(kernel: KernelView, one: _Steps) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    steps = trip_count(kernel, one.loop)
    if steps is None:
        undecided["steps"] = "the number of steps is given at run time"
    else:
        attributes["steps"] = steps
    evidence = (
        Evidence(kernel.loop(one.loop).place, f"loop over steps, {steps or 'several'} of them"),
        Evidence(kernel.place(one.cell.news[0]), f"new tile from {one.neighbours} places of the old one"),
    )
    return Match(evidence, attributes, undecided)


_TRITON = """
@triton.jit
def diffuse(X, Y, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    i = tl.program_id(0) * (BLOCK - 2 * STEPS) + place - STEPS
    tile = tl.load(X + i, mask=(i >= 0) & (i < n), other=0.0)
    left = tl.maximum(place - 1, 0)
    right = tl.minimum(place + 1, BLOCK - 1)
    for _ in range(STEPS):
        tile = 0.25 * tl.gather(tile, left, 0) + 0.5 * tile + 0.25 * tl.gather(tile, right, 0)
    tl.store(Y + i, tile, mask=(place >= STEPS) & (place < BLOCK - STEPS) & (i < n))


def run(x, y):
    diffuse[(triton.cdiv(x.numel(), 248),)](x, y, x.numel(), STEPS=4, BLOCK=256)
"""

_CUDA = """
template <int STEPS>
__global__ void diffuse(const float* x, float* y, int n) {
    __shared__ float tile[2][256];
    int i = blockIdx.x * (256 - 2 * STEPS) + threadIdx.x - STEPS;
    tile[0][threadIdx.x] = i >= 0 && i < n ? x[i] : 0.f;
    __syncthreads();
    for (int step = 0; step < STEPS; ++step) {
        int now = step % 2;
        if (threadIdx.x > step && threadIdx.x < 255 - step)
            tile[1 - now][threadIdx.x] = 0.25f * tile[now][threadIdx.x - 1] + 0.5f * tile[now][threadIdx.x] +
                                         0.25f * tile[now][threadIdx.x + 1];
        __syncthreads();
    }
    if (threadIdx.x >= STEPS && threadIdx.x < 256 - STEPS && i < n) y[i] = tile[STEPS % 2][threadIdx.x];
}

void run(const float* x, float* y, int n) { diffuse<4><<<(n + 247) / 248, 256>>>(x, y, n); }
"""

_CUDA_LANES = """
__global__ void diffuse(const float* x, float* y, int n, int steps) {
    int i = blockIdx.x * 16 + threadIdx.x - 8;
    float v = i >= 0 && i < n ? x[i] : 0.f;
    for (int step = 0; step < steps; ++step) {
        float left = __shfl_up_sync(0xffffffff, v, 1), right = __shfl_down_sync(0xffffffff, v, 1);
        v = 0.25f * left + 0.5f * v + 0.25f * right;
    }
    if (threadIdx.x >= 8 && threadIdx.x < 24 && i < n) y[i] = v;
}

void run(const float* x, float* y, int n) { diffuse<<<n / 16, 32>>>(x, y, n, 8); }
"""

_CUDA_HOST_LOOP = """
__global__ void diffuse(const float* x, float* y, int n) {
    __shared__ float tile[258];
    int i = blockIdx.x * 256 + threadIdx.x;
    tile[threadIdx.x + 1] = x[i];
    if (threadIdx.x == 0) tile[0] = i > 0 ? x[i - 1] : 0.f;
    if (threadIdx.x == 255) tile[257] = i + 1 < n ? x[i + 1] : 0.f;
    __syncthreads();
    y[i] = 0.25f * tile[threadIdx.x] + 0.5f * tile[threadIdx.x + 1] + 0.25f * tile[threadIdx.x + 2];
}

void run(float* x, float* y, int n, int steps) {
    for (int step = 0; step < steps; ++step) {
        diffuse<<<n / 256, 256>>>(x, y, n);
        float* t = x; x = y; y = t;
    }
}
"""

EXAMPLES = (
    Example("four steps of a tile", "triton", _TRITON, Status.PRESENT, {"steps": 4}),
    Example("one step", "triton", _TRITON.replace("STEPS=4", "STEPS=1"), Status.ABSENT, trap="parameter of size one"),
    Example("four steps in shared memory", "cuda", _CUDA, Status.PRESENT, {"steps": 4}),
    Example("steps across lanes", "cuda", _CUDA_LANES, Status.PRESENT),
    Example("one step", "cuda", _CUDA.replace("diffuse<4>", "diffuse<1>"), Status.ABSENT, trap="parameter of size one"),
    Example("loop over steps on the host", "cuda", _CUDA_HOST_LOOP, Status.ABSENT, trap="one step for each launch"),
)
