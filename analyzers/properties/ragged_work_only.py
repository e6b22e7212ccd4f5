"""Work for real rows only: loops and blocks follow the true extents of segments, which the kernel reads from
offsets, lengths
or a table of tiles. A loop to the longest extent whose elements are only masked is padded work.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.extents import Extent, extents
from d2k.spec.finding import Status


def detect_program(program: ProgramView) -> Detection:
    found: dict[str, tuple[KernelView, Extent]] = {}
    for kernel in program.kernels:
        for one in extents(kernel):
            found.setdefault(one.source, (kernel, one))
    if not found:
        return Miss(detail="no extent that is read from memory bounds a loop or ends a block")
    return tuple(_match(kernel, one) for kernel, one in found.values())


def _match(kernel: KernelView, one: Extent) -> Match:
    evidence = (
        Evidence(kernel.place(one.load), f"reads the true extent ({one.source})"),
        Evidence(kernel.place(one.use), f"it {one.how}"),
    )
    return Match(evidence, {"source": one.source})


_SEGMENTS = """
@triton.jit
def pool(X, offsets, Y, D, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    first = tl.load(offsets + bag)
    last = tl.load(offsets + bag + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, last):
        total += tl.load(X + row * D + cols, mask=cols < D, other=0.0)
    tl.store(Y + bag * D + cols, total, mask=cols < D)


def run(x, offsets, y):
    pool[(offsets.numel() - 1,)](x, offsets, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_EARLY = """
@triton.jit
def scale(X, lengths, Y, S, D: tl.constexpr, ROWS: tl.constexpr):
    sequence = tl.program_id(0)
    length = tl.load(lengths + sequence)
    if tl.program_id(1) * ROWS >= length:
        return
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    at = (sequence * S + rows[:, None]) * D + tl.arange(0, D)[None, :]
    x = tl.load(X + at, mask=rows[:, None] < length, other=0.0)
    tl.store(Y + at, 2.0 * x, mask=rows[:, None] < length)


def run(x, lengths, y):
    B, S, D = x.shape
    scale[(B, triton.cdiv(S, 64))](x, lengths, y, S, D=D, ROWS=64)
"""

_MASKED = _EARLY.replace("    if tl.program_id(1) * ROWS >= length:\n        return\n", "")

_PADDED = (
    _SEGMENTS.replace("range(first, last)", "range(0, LONGEST)")
    .replace("BLOCK: tl.constexpr", "LONGEST, BLOCK: tl.constexpr")
    .replace(
        "X + row * D + cols, mask=cols < D", "X + (first + row) * D + cols, mask=(cols < D) & (first + row < last)"
    )
    .replace("x.shape[1], BLOCK", "x.shape[1], 512, BLOCK")
)

_CUDA = """
__global__ void pool(const float* x, const int* offsets, float* y, int D) {
    float total = 0.f;
    int first = offsets[blockIdx.x], last = offsets[blockIdx.x + 1];
    for (int row = first; row < last; ++row) total += x[(size_t)row * D + threadIdx.x];
    y[(size_t)blockIdx.x * D + threadIdx.x] = total;
}

void run(const float* x, const int* offsets, float* y, int bags, int D) { pool<<<bags, D>>>(x, offsets, y, D); }
"""

_CUDA_EARLY = """
__global__ void scale(const float* x, const int* lengths, float* y, int S) {
    int length = lengths[blockIdx.y];
    if (blockIdx.x * 128 >= length) return;
    int row = blockIdx.x * 128 + threadIdx.x;
    if (row < length) y[blockIdx.y * S + row] = 2.f * x[blockIdx.y * S + row];
}

void run(const float* x, const int* lengths, float* y, int B, int S) {
    scale<<<dim3((S + 127) / 128, B), 128>>>(x, lengths, y, S);
}
"""

_CUDA_PADDED = _CUDA.replace(
    "int row = first; row < last; ++row) total +=",
    "int row = 0; row < 512; ++row)\n        if (first + row < last) total +=",
).replace("x[(size_t)row * D", "x[(size_t)(first + row) * D")

_COUNT = _EARLY.replace("lengths + sequence", "lengths").replace(
    "tl.program_id(1) * ROWS >= length", "tl.program_id(1) * ROWS >= tl.minimum(length, S)"
)

_TABLE = """
@triton.jit
def scale(X, tiles, Y, D: tl.constexpr, ROWS: tl.constexpr, PACKED: tl.constexpr):
    tile = tl.program_id(0)
    if PACKED:
        tile = tl.load(tiles + tile)
    rows = tile * ROWS + tl.arange(0, ROWS)
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(Y + at, 2.0 * tl.load(X + at))


def run(x, tiles, y, packed):
    scale[(tiles.numel(),)](x, tiles, y, D=x.shape[1], ROWS=64, PACKED=packed)
"""

EXAMPLES = (
    Example("blocks beyond one count end early", "triton", _COUNT, Status.PRESENT, {"source": "lengths"}),
    Example("tiles from a table, if packed", "triton", _TABLE, Status.PRESENT, {"source": "offsets"}),
    Example("loop over a segment", "triton", _SEGMENTS, Status.PRESENT, {"source": "offsets"}),
    Example("blocks beyond the length end early", "triton", _EARLY, Status.PRESENT, {"source": "lengths"}),
    Example("rows masked", "triton", _MASKED, Status.ABSENT, trap="masks alone: padded blocks do padded work"),
    Example("loop to the longest", "triton", _PADDED, Status.ABSENT, trap="padded to the longest"),
    Example("loop over a segment", "cuda", _CUDA, Status.PRESENT, {"source": "offsets"}),
    Example("blocks beyond the length end early", "cuda", _CUDA_EARLY, Status.PRESENT, {"source": "lengths"}),
    Example("loop to the longest", "cuda", _CUDA_PADDED, Status.ABSENT, trap="padded to the longest"),
)
