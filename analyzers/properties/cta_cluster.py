"""Cluster of thread blocks: blocks are launched together and cooperate: they read or write each other's shared memory,
receive one copy for all, or multiply in pairs. A cluster of one block, and blocks that only wait for each other, share
nothing. In Triton `num_ctas` asks for it; what the blocks of a matrix product then share is the compiler's choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import NONE, Kind, Op, Place
from d2k.spec.finding import FoundValue, Reason, Status

NAMES = ("this_cluster", "map_shared_rank", "mapa", "barrier.cluster", "__cluster_dims__")
REMOTE = "mapa"
"""The instruction that makes an address in another block's shared memory."""


def detect(kernel: KernelView) -> Detection:
    size = _size(kernel)
    uses = dict(_uses(kernel))
    if size == 1:
        text = "clusters of one block"
        return Miss(Reason.WRONG_PARAMETER, text, (Evidence(_launch(kernel), "size 1"),), certain=True)
    if uses and (size is not None or not kernel.launch_sites()):
        return tuple(_match(kernel, use, value, size) for use, value in uses.items())
    if size is not None and kernel.kernel.language == "triton":
        return _of_tiles(kernel, size)
    if size is not None:
        text = f"the {size} blocks of a cluster share nothing"
        return Miss(
            Reason.NOT_LOAD_BEARING, text, (Evidence(_launch(kernel), f"clusters of {size}"), *_barriers(kernel))
        )
    if uses:
        value = next(iter(uses.values()))
        place = Evidence(kernel.place(value), "another block's shared memory")
        return Miss(Reason.WRONG_PARAMETER, "the launch names no cluster", (place,))
    return mentioned(kernel, NAMES) or Miss(detail="blocks are launched one by one", certain=moves_all_memory(kernel))


def _size(kernel: KernelView) -> int | None:
    """Blocks of a cluster; None if nothing is said."""
    if kernel.launch.num_ctas is not None:
        return kernel.launch.num_ctas
    for dims in (kernel.launch.cluster, kernel.kernel.attrs.get("cluster_dims")):
        known = [one for one in dims if isinstance(one, int)] if isinstance(dims, tuple) else []
        if known:
            return prod(known)
    return None


def _uses(kernel: KernelView) -> Iterator[tuple[str, int]]:
    """What blocks share, each with an operation that does it; `shared` where it is no reduction."""
    for value in kernel.values(Kind.MMA):
        if kernel.op(value).attrs.get("cta_group") == 2:
            yield "two_cta", value
            break
    for value in kernel.values(Kind.COPY):
        if kernel.op(value).attrs.get("multicast"):
            yield "multicast", value
            break
    for value in kernel.values(Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.COPY):
        op = kernel.op(value)
        if _is_remote(kernel, op):
            reduces = op.kind is Kind.ATOMIC or _is_combined(kernel, value)
            yield ("reduce" if reduces else "shared"), value
            break


def _is_remote(kernel: KernelView, op: Op) -> bool:
    """The address lies in the shared memory of another block."""
    # bulk copies into one's own memory are written with `shared::cluster` too
    if op.attrs.get("cluster") and op.kind is not Kind.COPY:
        return True
    if not op.args or op.args[0] == NONE:
        return False
    through = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI)
    walk = kernel.walk(op.args[0], lambda inner: inner.kind in through)
    return any(kernel.op(at).name == REMOTE and kernel.op(at).attrs.get("cluster") for at in walk)


def _is_combined(kernel: KernelView, value: int) -> bool:
    """What is read there, or stored there, becomes part of a sum or a maximum."""
    data = flow(kernel)
    through = (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.STORE)
    moved = data.forward((value,), lambda op: op.kind in through)
    consumers = {user for at in moved for user in data.consumers(at)}
    reduced = any(kernel.op(user).kind in (Kind.REDUCE, Kind.SHUFFLE) for user in consumers)
    return reduced or any(kernel.op(user).name in ("add", "max", "min", "fma") for user in consumers)


def _match(kernel: KernelView, use: str, value: int, size: int | None) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if size is None:
        undecided["size"] = "no launch in this file names it"
    else:
        attributes["size"] = size
    if use == "shared":
        undecided["use"] = "what is read from the other block's shared memory is no partial result"
    else:
        attributes["use"] = use
    words = {"two_cta": "a matrix instruction of two blocks", "multicast": "one copy for several blocks"}
    evidence = (
        Evidence(_launch(kernel), f"clusters of {size if size is not None else 'unknown size'}"),
        Evidence(kernel.place(value), words.get(use, "another block's shared memory")),
    )
    return Match(evidence, attributes, undecided)


def _of_tiles(kernel: KernelView, size: int) -> Detection:
    """Triton: blocks of a cluster share the operands of a product; other work is only spread over them."""
    place = Evidence(_launch(kernel), f"num_ctas={size}")
    if kernel.values(Kind.MMA):
        use = f"{NEEDS_COMPILED}: the compiler chooses between copies for all blocks and products of two"
        return (Match((place,), {"size": size}, {"use": use}),)
    if kernel.values(Kind.REDUCE, Kind.SCAN):
        return Miss(Reason.NOT_LOAD_BEARING, "a row reduction over the blocks of a cluster does not compile", (place,))
    return Miss(Reason.NOT_LOAD_BEARING, f"the {size} blocks of a cluster share nothing", (place,))


def _launch(kernel: KernelView) -> Place:
    written_at_the_kernel = kernel.kernel.attrs.get("cluster_dims") is not None
    return kernel.kernel.place if written_at_the_kernel else kernel.launch_place()


def _barriers(kernel: KernelView) -> tuple[Evidence, ...]:
    found = kernel.values(Kind.BARRIER, name="cluster")[:1]
    return tuple(Evidence(kernel.place(value), "only a barrier") for value in found)


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
    matmul[(M // 128, N // 128)](A, B, C, M, N, K, BM=128, BN=128, BK=64, num_ctas=SIZE)
"""

CONFIG = """
@triton.autotune(configs=[triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_ctas=2)], key=["M"])
@triton.jit"""

ROW_SUM = """
@triton.jit
def row_sum(X, Y, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(X + tl.program_id(0) * N + columns, mask=columns < N, other=0.0)
    tl.store(Y + tl.program_id(0), tl.sum(x))

def run(X, Y):
    row_sum[(X.shape[0],)](X, Y, X.shape[1], BLOCK=4096, num_ctas=2)
"""

CUDA = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void CLUSTER sums(const float* x, float* y, int n) {
  __shared__ float part;
  float sum = 0.f;
  for (int i = (blockIdx.x % SIZE) * 256 + threadIdx.x; i < n; i += 256 * SIZE) sum += x[blockIdx.x / SIZE * n + i];
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x == 0) part = 0.f;
  __syncthreads();
  if (threadIdx.x % 32 == 0) atomicAdd(&part, sum);
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  float total = 0.f;
  for (int rank = 0; rank < SIZE; ++rank) total += SHARE;
  cluster.sync();
  if (threadIdx.x == 0) y[blockIdx.x / SIZE] = total;
}
LAUNCHER
"""
PLAIN = "void run(const float* x, float* y, int rows, int n) { sums<<<rows * SIZE, 256>>>(x, y, n); }"
BY_ATTRIBUTE = """void run(const float* x, float* y, int rows, int n) {
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = SIZE;
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = rows * SIZE;
  config.blockDim = 256;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, sums, x, y, n);
}"""


def _cuda(share: str, size: int, launcher: str = PLAIN, dims: bool = True) -> str:
    code = CUDA.replace("LAUNCHER", launcher).replace("SHARE", share)
    return code.replace("CLUSTER", "__cluster_dims__(SIZE, 1, 1)" if dims else "").replace("SIZE", str(size))


REMOTE_PART = "*cluster.map_shared_rank(&part, rank)"

EXAMPLES = (
    Example("product over two blocks", "triton", TRITON.replace("SIZE", "2"), Status.PRESENT, {"size": 2}),
    Example(
        "in a configuration",
        "triton",
        TRITON.replace("\n@triton.jit", CONFIG).replace(", BM=128, BN=128, BK=64, num_ctas=SIZE", ""),
        Status.PRESENT,
        {"size": 2},
    ),
    Example("one block", "triton", TRITON.replace("SIZE", "1"), Status.ABSENT, trap="parameter of size one"),
    Example("row reduction", "triton", ROW_SUM, Status.ABSENT, trap="a row reduction does not compile over a cluster"),
    Example(
        "parts read from other blocks",
        "cuda",
        _cuda(REMOTE_PART, 4),
        Status.PRESENT,
        {"size": 4, "use": "reduce"},
    ),
    Example(
        "cluster set at the launch",
        "cuda",
        _cuda(REMOTE_PART, 2, BY_ATTRIBUTE, dims=False),
        Status.PRESENT,
        {"size": 2, "use": "reduce"},
    ),
    Example("cluster of one", "cuda", _cuda(REMOTE_PART, 1), Status.ABSENT, trap="cluster {1, 1, 1}"),
    Example(
        "blocks that only wait",
        "cuda",
        _cuda("part", 4),
        Status.ABSENT,
        trap="declared but unused: a barrier and nothing shared",
    ),
    Example(
        "no cluster",
        "cuda",
        _cuda("part", 4, dims=False).replace("cluster.sync();", "__syncthreads();"),
        Status.ABSENT,
        trap="a cluster group is named, but no cluster is launched",
    ),
)
