"""Rows stay on chip: a block fetches whole rows once, takes a statistic of them and uses it on the very same registers
or shared memory. A row that is fetched again for the second use, one whose statistic is still growing when it is used,
parts of a row, and groups of neighbours that share a scale, are not resident rows.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.known import computes_all_results
from d2k.analyzers.patterns.residents import Resident, in_shared, residents, rows_held, scanned
from d2k.spec.facts import Kind
from d2k.spec.finding import FoundValue, Status


def detect(kernel: KernelView) -> Detection:
    found = tuple(residents(kernel))
    again = [one for one in found if one.again]
    kept = [one for one in found if not one.again and not one.group]
    fetched_again = {kernel.pointer(flow(kernel).source_address(one.fetch)) for one in again}
    kept = [one for one in kept if kernel.pointer(flow(kernel).source_address(one.fetch)) not in fetched_again]
    if kept:
        return (_match(kernel, kept),)
    for scan, fetch in scanned(kernel):
        evidence = (Evidence(kernel.place(fetch), "a whole row"), Evidence(kernel.place(scan), "is scanned at once"))
        return (Match(evidence, {"residence": "registers"}, {"rows_per_cta": "rows of a scanned tile"}),)
    return _miss(kernel, found, again)


def _match(kernel: KernelView, kept: list[Resident]) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    rows = rows_held(kernel, kept)
    if rows is None:
        undecided["rows_per_cta"] = "the extents of the tile are not known here"
    else:
        attributes["rows_per_cta"] = rows
    first = min(kept, key=lambda one: (kernel.op(one.use).name not in ("mul", "div", "sub"), one.use))
    attributes["residence"] = "smem" if in_shared(kernel, first) else "registers"
    name = kernel.pointer(flow(kernel).source_address(first.fetch)) or "the row"
    evidence = (
        Evidence(kernel.place(first.fetch), f"{name} is fetched once"),
        Evidence(kernel.place(first.statistic.value), "statistic of it"),
        Evidence(kernel.place(first.use), "used on the same data"),
    )
    return Match(evidence, attributes, undecided)


def _miss(kernel: KernelView, found: tuple[Resident, ...], again: list[Resident]) -> Miss:
    if again:
        one = again[0]
        name = kernel.pointer(flow(kernel).source_address(one.fetch)) or "the row"
        places = (
            Evidence(kernel.place(one.statistic.value), "statistic"),
            Evidence(kernel.place(one.fetch), "fetched once more"),
        )
        return Miss(detail=f"{name} is fetched again to use its statistic", evidence=places)
    if found:
        place = Evidence(kernel.place(found[0].statistic.value), "statistic of a part of the row")
        return Miss(detail="the statistic is that of a part of a row, no row has to stay", evidence=(place,))
    reduced = kernel.values(Kind.REDUCE, Kind.REDUX)[:1]
    evidence = tuple(Evidence(kernel.place(one), "a reduction") for one in reduced)
    text = "no data is kept for a statistic of itself"
    return Miss(detail=text, evidence=evidence, certain=computes_all_results(kernel))


TRITON = """
@triton.jit
def norm(X, W, Y, H, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    ok = columns < H
    x = tl.load(X + row * H + columns, mask=ok, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x) / H + eps)
    w = tl.load(W + columns, mask=ok, other=0.0)
    tl.store(Y + row * H + columns, USED * scale * w, mask=ok)

def run(X, W, Y):
    H = X.shape[1]
    norm[(X.shape[0],)](X, W, Y, H, 1e-6, BLOCK=triton.next_power_of_2(H))
"""
AGAIN = "tl.load(X + row * H + columns, mask=ok, other=0.0)"

ROWS = """
@triton.jit
def softmax(X, Y, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    place = rows[:, None] * N + columns[None, :]
    ok = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(X + place, mask=ok, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(Y + place, e / tl.sum(e, 1)[:, None], mask=ok)

def run(X, Y):
    M, N = X.shape
    softmax[(triton.cdiv(M, 4),)](X, Y, M, N, ROWS=4, BLOCK=128)
"""

TWO_PASSES = """
@triton.jit
def norm(X, Y, H, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, H, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * H + columns, mask=columns < H, other=0.0)
        total += x * x
    scale = tl.rsqrt(tl.sum(total) / H + eps)
    for start in range(0, H, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(X + row * H + columns, mask=columns < H, other=0.0)
        tl.store(Y + row * H + columns, x * scale, mask=columns < H)

def run(X, Y):
    norm[(X.shape[0],)](X, Y, X.shape[1], 1e-6, BLOCK=1024)
"""

GROUPS = """
@triton.jit
def quantise(X, Q, S):
    group = tl.program_id(0)
    place = group * 128 + tl.arange(0, 128)
    x = tl.load(X + place)
    scale = tl.max(tl.abs(x)) / 448.0
    tl.store(S + group, scale)
    tl.store(Q + place, (x / scale).to(tl.float8e4nv))

def run(X, Q, S):
    quantise[(X.numel() // 128,)](X, Q, S)
"""

CUDA = r"""
__device__ float block_sum(float value) {
  __shared__ float parts[8];
  for (int o = 16; o > 0; o >>= 1) value += __shfl_xor_sync(0xffffffffu, value, o);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.f;
  for (int i = 0; i < 8; ++i) total += parts[i];
  return total;
}
__global__ void norm(const float* x, float* y, int n) {
  const float* row = x + blockIdx.x * n;
  float* out = y + blockIdx.x * n;
  BODY
}
void run(const float* x, float* y, int rows, int n) { norm<<<rows, 256>>>(x, y, n); }
"""
REGISTERS = """float kept[8], squares = 0.f;
  for (int i = 0; i < 8; ++i) {
    const int c = threadIdx.x + 256 * i;
    kept[i] = c < n ? row[c] : 0.f;
    squares += kept[i] * kept[i];
  }
  const float scale = rsqrtf(block_sum(squares) / n + 1e-6f);
  for (int i = 0; i < 8; ++i) {
    const int c = threadIdx.x + 256 * i;
    if (c < n) out[c] = kept[i] * scale;
  }"""
SHARED = """__shared__ float kept[4096];
  float squares = 0.f;
  for (int c = threadIdx.x; c < n; c += 256) {
    const float v = row[c];
    kept[c] = v;
    squares += v * v;
  }
  const float scale = rsqrtf(block_sum(squares) / n + 1e-6f);
  for (int c = threadIdx.x; c < n; c += 256) out[c] = USED * scale;"""

EXAMPLES = (
    Example(
        "row of one block",
        "triton",
        TRITON.replace("USED", "x"),
        Status.PRESENT,
        {"rows_per_cta": 1, "residence": "registers"},
    ),
    Example("four rows of a block", "triton", ROWS, Status.PRESENT, {"rows_per_cta": 4, "residence": "registers"}),
    Example(
        "row fetched again",
        "triton",
        TRITON.replace("USED", AGAIN),
        Status.ABSENT,
        trap="the second use fetches the row again",
    ),
    Example("two passes", "triton", TWO_PASSES, Status.ABSENT, trap="two sweeps over the row"),
    Example("groups with a scale", "triton", GROUPS, Status.ABSENT, trap="look-alike: a group is no row"),
    Example(
        "row in registers",
        "cuda",
        CUDA.replace("BODY", REGISTERS),
        Status.PRESENT,
        {"rows_per_cta": 1, "residence": "registers"},
    ),
    Example(
        "row in shared memory",
        "cuda",
        CUDA.replace("BODY", SHARED.replace("USED", "kept[c]")),
        Status.PRESENT,
        {"residence": "smem"},
    ),
    Example(
        "copy in shared memory that nothing reads",
        "cuda",
        CUDA.replace("BODY", SHARED.replace("USED", "row[c]")),
        Status.ABSENT,
        trap="declared but unused: the row is fetched again",
    ),
)
