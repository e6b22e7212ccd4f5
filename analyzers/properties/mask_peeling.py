"""Masks only where they matter: interior blocks run without comparing positions, and only the blocks on the diagonal,
at the edge of a window, at the tail or at the boundary of the array take the masked path: a loop of its own, or a
branch.

Masks that a compile-time switch turns on for all blocks, and masks in every block, are not peeled.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.edges import Peeled, peeled, regions
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.spec.finding import Status


def detect(kernel: KernelView) -> Detection:
    found: dict[str, Peeled] = {}
    for one in peeled(kernel):
        found.setdefault(one.edge, one)
    if found:
        evidence = tuple(
            place
            for edge, one in sorted(found.items())
            for place in (Evidence(kernel.place(one.masked), f"mask of the {edge}"), _plain(kernel, one))
        )
        return (Match(evidence[:4], {"edges": tuple(sorted(found))}),)
    for region in regions(kernel):
        for edge, mask in region.masks.items():
            place = Evidence(kernel.place(mask), f"mask of the {edge}")
            return Miss(detail="every block compares positions", evidence=(place,))
    return Miss(detail="no block is masked", certain=moves_all_memory(kernel))


def _plain(kernel: KernelView, one: Peeled) -> Evidence:
    return Evidence(kernel.place(one.plain), one.how)


TRITON = """
@triton.jit
def visit(acc, top, total, q, K, V, rows, first, last, S, D: tl.constexpr, BN: tl.constexpr, MASK: tl.constexpr):
    dims = tl.arange(0, D)
    for start in range(first, last, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(K + keys[:, None] * D + dims[None, :])
        v = tl.load(V + keys[:, None] * D + dims[None, :])
        score = tl.dot(q, tl.trans(k))
        APPLY
        new = tl.maximum(top, tl.max(score, 1))
        p = tl.exp(score - new[:, None])
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p.to(tl.bfloat16), v)
        top = new
    return acc, top, total

@triton.jit
def attend(Q, K, V, O, S, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    first_row = tl.program_id(0) * BM
    rows = first_row + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :])
    acc = tl.zeros((BM, D), tl.float32)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    VISITS
    tl.store(O + rows[:, None] * D + dims[None, :], acc / total[:, None])

def run(Q, K, V, O):
    attend[(Q.shape[0] // 128,)](Q, K, V, O, K.shape[0], CAUSAL=True, D=64, BM=128, BN=32)
"""
CAUSAL = "score = tl.where(keys[None, :] <= rows[:, None], score, -1e30)"
CALL = "acc, top, total = visit(acc, top, total, q, K, V, rows, {}, S, D, BN, {})"
TWO_LOOPS = f"""{CALL.format("0, first_row", "False")}
    {CALL.format("first_row, first_row + BM", "True")}"""
ONE_LOOP = CALL.format("0, first_row + BM", "True")


def _triton(apply: str, visits: str) -> str:
    return TRITON.replace("APPLY", apply).replace("VISITS", visits)


IF_MASK = f"""if MASK:
            {CAUSAL}"""
BRANCH = f"""if start + BN > tl.min(rows):
            {CAUSAL}"""

REMAINDER = """
@triton.jit
def row_sum(X, Y, N, BLOCK: tl.constexpr):
    row = X + tl.program_id(0) * N
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    whole = N // BLOCK * BLOCK
    for start in range(0, END, BLOCK):
        total += tl.load(row + start + columnsMASK)
    TAIL
    tl.store(Y + tl.program_id(0), tl.sum(total))

def run(X, Y):
    row_sum[(X.shape[0],)](X, Y, X.shape[1], BLOCK=1024)
"""
TAIL = "total += tl.load(row + whole + columns, mask=whole + columns < N, other=0.0)"

CUDA = r"""
template <bool MASK>
__device__ void visit(const float* q, const float* k, float& total, int row, int first, int last) {
  for (int key = first; key < last; ++key) {
    float score = 0.f;
    for (int d = 0; d < 64; ++d) score += q[row * 64 + d] * k[key * 64 + d];
    if (MASK && key > row) score = -1e30f;
    total += __expf(score);
  }
}
__global__ void denominators(const float* q, const float* k, float* out) {
  const int first_row = blockIdx.x * 128, row = first_row + threadIdx.x;
  float total = 0.f;
  VISITS
  out[row] = total;
}
void run(const float* q, const float* k, float* out, int rows) { denominators<<<rows / 128, 128>>>(q, k, out); }
"""

BORDER = r"""
__global__ void smooth(const float* x, float* y, int n) {
  const int first = blockIdx.x * 256, i = first + threadIdx.x;
  BODY
}
void run(const float* x, float* y, int n) { smooth<<<(n + 255) / 256, 256>>>(x, y, n); }
"""
INSIDE = "y[i] = x[i - 1] + x[i] + x[i + 1];"
TESTED = "y[i] = (i > 0 ? x[i - 1] : 0.f) + (i < n ? x[i] : 0.f) + (i + 1 < n ? x[i + 1] : 0.f);"

EXAMPLES = (
    Example(
        "two loops, one with the mask", "triton", _triton(IF_MASK, TWO_LOOPS), Status.PRESENT, {"edges": ("diagonal",)}
    ),
    Example(
        "branch on how the block lies",
        "triton",
        _triton(BRANCH.replace("tl.min(rows)", "tl.program_id(0) * 128"), ONE_LOOP),
        Status.PRESENT,
        {"edges": ("diagonal",)},
    ),
    Example(
        "remainder after the loop",
        "triton",
        REMAINDER.replace("END", "whole").replace("MASK", "").replace("TAIL", TAIL),
        Status.PRESENT,
        {"edges": ("tail",)},
    ),
    Example(
        "mask in every block",
        "triton",
        _triton(IF_MASK, ONE_LOOP),
        Status.ABSENT,
        trap="one loop that compares positions in every block",
    ),
    Example(
        "both loops masked",
        "triton",
        _triton(IF_MASK, TWO_LOOPS.replace("False", "True")),
        Status.ABSENT,
        trap="two loops are no peeling if both are masked",
    ),
    Example(
        "mask switched off",
        "triton",
        _triton(IF_MASK, TWO_LOOPS.replace("True", "False")),
        Status.ABSENT,
        trap="constexpr switched off",
    ),
    Example(
        "tail masked in every step",
        "triton",
        REMAINDER.replace("END", "N").replace("MASK", ", mask=start + columns < N, other=0.0").replace("TAIL", "pass"),
        Status.ABSENT,
        trap="every step compares with the length",
    ),
    Example(
        "two instantiations",
        "cuda",
        CUDA.replace(
            "VISITS",
            "visit<false>(q, k, total, row, 0, first_row); visit<true>(q, k, total, row, first_row, first_row + 128);",
        ),
        Status.PRESENT,
        {"edges": ("diagonal",)},
    ),
    Example(
        "blocks at the border",
        "cuda",
        BORDER.replace("BODY", f"if (first > 0 && first + 257 <= n) {{ {INSIDE} }} else if (i < n) {{ {TESTED} }}"),
        Status.PRESENT,
    ),
    Example(
        "one instantiation",
        "cuda",
        CUDA.replace("VISITS", "visit<true>(q, k, total, row, 0, first_row + 128);"),
        Status.ABSENT,
        trap="one loop that compares positions in every block",
    ),
    Example(
        "every thread tests the border",
        "cuda",
        BORDER.replace("BODY", f"if (i < n) {{ {TESTED} }}"),
        Status.ABSENT,
        trap="predicates in every block",
    ),
)
