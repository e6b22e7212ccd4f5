"""Asynchronous copies per thread: global to shared memory with commit and wait groups (cp.async), for at least half of
what is moved of the tensor. In Triton: pointer loads that the compiler is asked to pipeline into a matrix product.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accesses import HALF, Access, accesses, by_tensor, share
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.pipelines import DEFAULT_STAGES, pipelined
from d2k.spec.facts import Kind
from d2k.spec.finding import FoundValue, Reason, Status

NAMES = ("cp.async", "__pipeline_memcpy_async", "memcpy_async")
POINTERS = ("pointer", "block_pointer")


def detect(kernel: KernelView) -> Detection:
    copies = tuple(one for one in accesses(kernel) if one.how == "cp_async" and one.direction == "load")
    if copies:
        return _by_tensor(kernel, copies)
    asked = [one for one in pipelined(kernel) if any(_by_pointer(kernel, load) for load in one.loads)]
    if not asked:
        return mentioned(kernel, NAMES) or Miss(detail="no asynchronous copy and no pipelined pointer load")
    deep = [one for one in asked if (one.stages or 0) >= 2]
    if deep:
        loads = tuple(load for one in deep for load in one.loads if _by_pointer(kernel, load))
        evidence = tuple(
            Evidence(kernel.place(load), f"a pointer load, pipelined with num_stages={deep[0].stages}")
            for load in loads[:4]
        )
        return (Match(evidence, {}, {"bytes": f"{NEEDS_COMPILED}: the width of a copy"}),)
    first = asked[0]
    place = (Evidence(kernel.loop(first.loop).place, "the loop"),)
    if first.stages is None:
        detail = f"{NEEDS_COMPILED}: num_stages is not given, the compiler's own {DEFAULT_STAGES} may apply"
        return Undecided(detail, place)
    return Miss(Reason.WRONG_PARAMETER, f"num_stages={first.stages}: loads are not asynchronous", place)


def _by_pointer(kernel: KernelView, load: int) -> bool:
    op = kernel.op(load)
    return op.kind is Kind.LOAD and op.attrs.get("via", "pointer") in POINTERS


def _by_tensor(kernel: KernelView, copies: tuple[Access, ...]) -> Detection:
    whole = by_tensor(one for one in accesses(kernel) if one.direction in ("load", "gather"))
    groups = by_tensor(copies)
    carrying = {tensor: group for tensor, group in groups.items() if share(group, whole[tensor]) >= HALF}
    unnamed = tuple(one for one in copies if one.tensor is None)
    if not carrying and not unnamed:
        tensor, group = next(iter(groups.items()))
        percent = round(100 * share(group, whole[tensor]))
        detail = f"asynchronous copies move about {percent} % of {tensor}"
        return Miss(Reason.NOT_LOAD_BEARING, detail, _evidence(kernel, group))
    matches = [_match(kernel, group, tensor) for tensor, group in carrying.items()]
    return tuple(matches + ([_match(kernel, unnamed, None)] if unnamed else []))


def _match(kernel: KernelView, group: tuple[Access, ...], tensor: str | None) -> Match:
    attributes: dict[str, FoundValue] = {} if tensor is None else {"tensor": tensor}
    sizes = {kernel.op(one.value).attrs.get("bytes") for one in group}
    widest = max((one for one in sizes if isinstance(one, int)), default=None)
    if widest is None:
        return Match(_evidence(kernel, group), attributes, {"bytes": "the size of a copy is not a constant here"})
    return Match(_evidence(kernel, group), attributes | {"bytes": widest})


def _evidence(kernel: KernelView, group: tuple[Access, ...]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(kernel.place(one.value), f"asynchronous copy of {one.tensor or 'a tensor'}") for one in group[:4]
    )


TRITON = """
@triton.jit
def matmul(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
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
    matmul[(M // 64, N // 64)](A, B, C, M, N, K, BM=64, BN=64, BK=32, num_warps=4STAGES)
"""

ROW_SUM = """
@triton.jit
def row_sum(X, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in RANGE:
        total += tl.load(X + row * N + start + tl.arange(0, BLOCK))
    tl.store(Y + row, tl.sum(total))

def run(X, Y):
    row_sum[(X.shape[0],)](X, Y, X.shape[1], BLOCK=1024, num_stages=4)
"""

CUDA = r"""
__global__ void sum(const float* __restrict__ x, float* y, int n) {
  __shared__ float tile[256];
  float total = 0.f;
  uint32_t dst = static_cast<uint32_t>(__cvta_generic_to_shared(&tile[threadIdx.x]));
  for (int i = threadIdx.x; i < n; i += 256) {
    LOAD
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    total += tile[threadIdx.x ^ 1];
    __syncthreads();
  }
  y[threadIdx.x] = total;
}
void run(const float* x, float* y, int n) { sum<<<1, 256>>>(x, y, n); }
"""
COPY = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(dst), "l"(x + i));'

EXAMPLES = (
    Example("pipelined pointer loads", "triton", TRITON.replace("STAGES", ", num_stages=3"), Status.PRESENT),
    Example(
        "loop asks for stages itself",
        "triton",
        ROW_SUM.replace("RANGE", "tl.range(0, N, BLOCK, num_stages=4)"),
        Status.PRESENT,
    ),
    Example(
        "one stage", "triton", TRITON.replace("STAGES", ", num_stages=1"), Status.ABSENT, trap="parameter of size one"
    ),
    Example(
        "stages left to the compiler",
        "triton",
        TRITON.replace("STAGES", ""),
        Status.UNKNOWN,
        trap="nothing is asked for: only the compiled code can tell",
    ),
    Example(
        "stages of a launch without a product",
        "triton",
        ROW_SUM.replace("RANGE", "range(0, N, BLOCK)"),
        Status.ABSENT,
        trap="num_stages means nothing to a loop without a matrix product",
    ),
    Example("cp.async in inline PTX", "cuda", CUDA.replace("LOAD", COPY), Status.PRESENT, {"bytes": 4, "tensor": "x"}),
    Example(
        "plain copy",
        "cuda",
        CUDA.replace("LOAD", "tile[threadIdx.x] = x[i];"),
        Status.ABSENT,
        trap="look-alike: commit and wait without a copy",
    ),
    Example(
        "switched off by the preprocessor",
        "cuda",
        CUDA.replace("LOAD", f"\n#if 0\n{COPY}\n#else\ntile[threadIdx.x] = x[i];\n#endif\n"),
        Status.ABSENT,
        trap="#if 0",
    ),
)
