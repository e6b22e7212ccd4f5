"""Operand stored in consumption order: weights or scales are laid out once, before the timed calls, in the order in
which threads or instructions take them; or a kernel writes its scales into the tiled layout that the next instruction
wants. A permutation that every call repeats is not prepared, and a plain transposition is no such order.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.reordering import Reordered, reordered
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Reason, Status

SCALE_TILE = frozenset({4, 16, 32, 128})
"""Rows and columns of the tiles in which block-scaled instructions read scales: 128 by 4, as 32 by 4 by 4."""

SCALE_ARGUMENTS = 3
"""Operands of a scaled product from here on are scales."""


def detect_program(program: ProgramView) -> Detection:
    found = tuple(reordered(program))
    matches = [_match(program, one) for one in found if one.once]
    scales = next(_scale_stores(program), None)
    if scales is not None:
        kernel, value = scales
        evidence = (Evidence(kernel.place(value), f"{kernel.kernel.name} stores scales in tiles of 128 by 4"),)
        matches.append(Match(evidence, {"scope": "scale"}))
    if matches:
        return tuple({one.attributes["scope"]: one for one in reversed(matches)}.values())
    if found:
        one = found[0]
        place = (Evidence(one.host.op(one.value).place, "a permuted copy"),)
        return Miss(Reason.NOT_LOAD_BEARING, "the operand is put in order again in every call", place)
    return Miss(detail="no operand is stored in another order for the kernels")


def _match(program: ProgramView, one: Reordered) -> Match:
    evidence = (Evidence(one.host.op(one.value).place, f"put in order by {one.function}, once"),)
    return Match(evidence, {"scope": "scale" if _is_scale(program, one) else "weight"})


def _is_scale(program: ProgramView, one: Reordered) -> bool:
    """The parameter feeds scales of a scaled product."""
    if one.parameter is None:
        return False
    name, parameter = one.parameter
    for kernel in program.kernels:
        if kernel.kernel.name != name:
            continue
        for value in kernel.values(Kind.MMA):
            for scale in kernel.op(value).args[SCALE_ARGUMENTS:]:
                fetches = flow(kernel).fetches(scale) if scale != NONE else ()
                if any(kernel.pointer(flow(kernel).source_address(fetch)) == parameter for fetch in fetches):
                    return True
    return False


def _scale_stores(program: ProgramView) -> Iterator[tuple[KernelView, int]]:
    """Stores whose place is decoded by quotients and remainders of the tile of scales."""
    for kernel in program.kernels:
        for value in kernel.values(Kind.STORE):
            if not flow(kernel).is_output(value):
                continue
            parts: dict[str, set[int]] = {"floordiv": set(), "mod": set()}
            for arg in where(kernel, value):
                for at in index_cone(kernel, arg) if arg != NONE else ():
                    name, known = _decoding(kernel, at)
                    if name in parts and known in SCALE_TILE:
                        parts[name].add(known)
            if 32 in parts["mod"] and {32, 128} & parts["floordiv"] and 4 in parts["mod"] | parts["floordiv"]:
                yield kernel, value


def _decoding(kernel: KernelView, value: int) -> tuple[str, int]:
    """`i // n` or `i % n`, also written as a shift or a mask."""
    op = kernel.op(value)
    if op.kind is not Kind.ELEMENTWISE or len(op.args) != 2:
        return "", 0
    known = kernel.fold_int(op.args[1])
    if known is None or not 0 <= known < 1 << 16:
        return "", 0
    match op.name:
        case "floordiv" | "mod":
            return op.name, known
        case "shr" if known < 16:
            return "floordiv", 1 << known
        case "and" if known & (known + 1) == 0:
            return "mod", known + 1
    return "", 0


KERNEL = """
@triton.jit
def gemv(W, X, Y, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, K, BLOCK):
        total += tl.load(W + tl.program_id(0) * K + k + i).to(tl.float32) * tl.load(X + k + i)
    tl.store(Y + tl.program_id(0), tl.sum(total))
"""
TILES = "W.view(N // 16, 16, K // 16, 16).permute(0, 2, 1, 3).contiguous()"
PREPARE = (
    KERNEL
    + """
def prepare(constants):
    W = constants["W"]
    N, K = W.shape
    return RESULT

def run(x, state, y):
    gemv[(y.shape[0],)](state, x, y, x.shape[0], BLOCK=256)
"""
)
MODULE = (
    KERNEL
    + """
class Layer(torch.nn.Module):
    def __init__(self, W):
        super().__init__()
        N, K = W.shape
        self.packed = RESULT

    def forward(self, x):
        y = torch.empty((16,), dtype=torch.float32, device=x.device)
        gemv[(16,)](self.packed, x, y, x.shape[0], BLOCK=256)
        return y
"""
)
EACH_CALL = (
    KERNEL
    + """
def run(x, W, y):
    N, K = W.shape
    packed = RESULT
    gemv[(N,)](packed, x, y, K, BLOCK=256)
"""
)
CUDA = r"""
__global__ void quantise(const float* x, uint8_t* scales, int columns) {
  int row = blockIdx.x, column = threadIdx.x;
  float amax = fabsf(x[row * columns * 32 + column * 32]);
  for (int i = 1; i < 32; ++i) amax = fmaxf(amax, fabsf(x[row * columns * 32 + column * 32 + i]));
  int place = PLACE;
  scales[place] = static_cast<uint8_t>(__float_as_uint(amax) >> 23);
}
void run(const float* x, uint8_t* scales, int columns) { quantise<<<128, 32>>>(x, scales, columns); }
"""
TILED = "((row / 128) * (columns / 4) + column / 4) * 512 + (row % 32) * 16 + (row % 128) / 32 * 4 + column % 4"

EXAMPLES = (
    Example("tiles made once", "triton", PREPARE.replace("RESULT", TILES), Status.PRESENT, {"scope": "weight"}),
    Example("tiles kept by a module", "triton", MODULE.replace("RESULT", TILES), Status.PRESENT, {"scope": "weight"}),
    Example(
        "tiles made in every call",
        "triton",
        EACH_CALL.replace("RESULT", TILES),
        Status.ABSENT,
        trap="the permutation is part of every timed call",
    ),
    Example(
        "dense copy",
        "triton",
        PREPARE.replace("RESULT", "W.contiguous()"),
        Status.ABSENT,
        trap="look-alike: a copy in the usual order",
    ),
    Example(
        "transposition",
        "triton",
        PREPARE.replace("RESULT", "W.t().contiguous()"),
        Status.ABSENT,
        trap="look-alike: a plain transposition",
    ),
    Example("scales in tiles", "cuda", CUDA.replace("PLACE", TILED), Status.PRESENT, {"scope": "scale"}),
    Example(
        "scales in rows",
        "cuda",
        CUDA.replace("PLACE", "row * columns + column"),
        Status.ABSENT,
        trap="look-alike: scales in the usual order",
    ),
    Example(
        "tiled place in a comment",
        "cuda",
        CUDA.replace("PLACE", f"row * columns + column  /* {TILED} */"),
        Status.ABSENT,
        trap="comment",
    ),
)
