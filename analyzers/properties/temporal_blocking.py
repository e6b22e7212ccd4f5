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
            behind = frozenset(data.back(cell.news, lambda op: op.kind is not Kind.MMA))
            places = _shifted(kernel, cell, behind)
            fetched = any(data.fetches(old) for old in cell.olds)
            stored = frozenset(data.forward(cell.olds)) & frozenset(data.outputs())
            if places >= 2 and fetched and stored:
                yield _Steps(loop, cell, places)
                break


def _shifted(kernel: KernelView, cell: Cell, behind: frozenset[int]) -> int:
    """How many different places, a constant distance apart, the new value takes of the old tile."""
    data = flow(kernel)
    places: dict[frozenset[object], set[tuple[int, ...]]] = {}
    array_reads = {load for old in cell.olds for load in data.loads.get(old, ())}
    for at in (cell.olds | array_reads) & behind:
        if kernel.op(at).kind is not Kind.LOAD:
            continue
        polynomials = place_polynomials(kernel, at)
        moving = frozenset((index, m, c) for index, one in enumerate(polynomials) for m, c in one.items() if m)
        places.setdefault(moving, set()).add(tuple(one.get((), 0) for one in polynomials))
    shuffles = [at for at in behind if _is_shift(kernel.op(at)) and cell.olds & set(data.back((at,)))]
    return max([len(found) for found in places.values()] + [len(shuffles)], default=0)


def _is_shift(op: Op) -> bool:
    """A neighbour's value: a gather or a roll of a tile, a shuffle between lanes."""
    return (op.kind is Kind.SHAPE and op.name in ("gather", "cat")) or (
        op.kind is Kind.SHUFFLE and op.name in ("up", "down")
    )


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
    Example("four steps in shared memory", "cuda", _CUDA, Status.PRESENT, {"steps": 4}),
    Example("steps across lanes", "cuda", _CUDA_LANES, Status.PRESENT),
    Example("one step", "cuda", _CUDA.replace("diffuse<4>", "diffuse<1>"), Status.ABSENT, trap="parameter of size one"),
    Example("loop over steps on the host", "cuda", _CUDA_HOST_LOOP, Status.ABSENT, trap="one step for each launch"),
)
