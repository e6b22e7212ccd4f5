"""TMA bulk copy: tiles move between global and shared memory through tensor maps or bulk copies, for at least half
of what is moved of the tensor. A descriptor that nothing is loaded through, and block pointers, are no bulk copies.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accesses import HALF, Access, accesses, by_tensor, share
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

BULK = frozenset({"descriptor", "tma", "bulk"})
DIRECTIONS = {"load": "load", "gather": "gather", "store": "store", "scatter": "store", "reduce": "reduce"}
NAMES = ("make_tensor_descriptor", "TensorDescriptor", "cp.async.bulk", "SM90_TMA", "cuTensorMapEncodeTiled")


def detect(kernel: KernelView) -> Detection:
    everything = tuple(one for one in accesses(kernel) if one.direction in DIRECTIONS)
    bulk = tuple(one for one in everything if one.how in BULK)
    if not bulk:
        return _miss(kernel)
    whole = by_tensor(everything)
    carrying = {tensor: group for tensor, group in by_tensor(bulk).items() if share(group, whole[tensor]) >= HALF}
    unnamed = tuple(one for one in bulk if one.tensor is None)
    if not carrying and not unnamed:
        tensor, group = next(iter(by_tensor(bulk).items()))
        percent = round(100 * share(group, whole[tensor]))
        return Miss(
            Reason.NOT_LOAD_BEARING, f"bulk copies move about {percent} % of {tensor}", _evidence(kernel, group)
        )
    matches = [_match(kernel, group, tensor) for tensor, group in carrying.items()]
    together = tuple(one for one in bulk if one.tensor is None or one.tensor in carrying)
    if len(matches) != 1 or unnamed:
        matches.insert(0, _match(kernel, together, None))
    return tuple(matches)


def _match(kernel: KernelView, group: tuple[Access, ...], tensor: str | None) -> Match:
    directions = tuple(sorted({DIRECTIONS[one.direction] for one in group}))
    multicast = any(bool(kernel.op(one.value).attrs.get("multicast")) for one in group)
    attributes: dict[str, tuple[str, ...] | bool | str] = {"direction": directions, "multicast": multicast}
    if tensor is not None:
        attributes["tensor"] = tensor
    return Match(_evidence(kernel, group), attributes)


def _evidence(kernel: KernelView, group: tuple[Access, ...]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(kernel.place(one.value), f"bulk {one.direction} of {one.tensor or 'a tensor'}") for one in group[:4]
    )


def _miss(kernel: KernelView) -> Miss:
    unused = kernel.values(Kind.DESCRIPTOR)
    if unused:
        return Miss(
            Reason.NOT_LOAD_BEARING,
            "a tensor descriptor is made, but nothing moves through it",
            (Evidence(kernel.place(unused[0]), "a descriptor"),),
        )
    found = mentioned(kernel, NAMES)
    if found is not None:
        return found
    block = next((one for one in accesses(kernel) if one.how == "block_pointer"), None)
    if block is not None:
        return Miss(
            detail="block pointers become pointer loads, not bulk copies",
            evidence=(Evidence(kernel.place(block.value), "a block pointer"),),
        )
    return Miss(detail="every access goes through pointers")


TRITON = """
@triton.jit
def copy(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(X, [M, N], [N, 1], [BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    tile = {load}
    rows = row + tl.arange(0, BM)
    columns = column + tl.arange(0, BN)
    tl.store(Y + rows[:, None] * N + columns[None, :], tile)

def run(X, Y):
    M, N = X.shape
    copy[(triton.cdiv(M, 64), triton.cdiv(N, 64))](X, Y, M, N, BM=64, BN=64)
"""

HOST = """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def double(x, y, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    tile = x.load([row, 0])
    y.store([row, 0], tile * 2)

def run(X, Y):
    x = TensorDescriptor.from_tensor(X, [64, 64])
    y = TensorDescriptor.from_tensor(Y, [64, 64])
    double[(X.shape[0] // 64,)](x, y, BM=64, BN=64)
"""

BLOCK_POINTER = """
@triton.jit
def copy(X, Y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0) * BM
    x = tl.make_block_ptr(X, (M, N), (N, 1), (row, 0), (BM, BN), (1, 0))
    y = tl.make_block_ptr(Y, (M, N), (N, 1), (row, 0), (BM, BN), (1, 0))
    tl.store(y, tl.load(x))

def run(X, Y):
    M, N = X.shape
    copy[(triton.cdiv(M, 64),)](X, Y, M, N, BM=64, BN=64)
"""

CUDA = r"""
__global__ void copy(const __grid_constant__ CUtensorMap map, float* out) {
  __shared__ alignas(128) float tile[64 * 64];
  __shared__ alignas(8) uint64_t bar;
  uint32_t dst = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
  uint32_t mbar = static_cast<uint32_t>(__cvta_generic_to_shared(&bar));
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(mbar));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbar), "r"(16384));
    COPY
  }
  __syncthreads();
  out[blockIdx.x * 4096 + threadIdx.x] = tile[threadIdx.x];
}
void run(CUtensorMap map, float* out) { copy<<<64, 128>>>(map, out); }
"""
BULK_TENSOR = (
    'asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"'
    ' " [%0], [%1, {%3, %4}], [%2];" ::"r"(dst), "l"(&map), "r"(mbar), "r"(0), "r"(0) : "memory");'
)

EXAMPLES = (
    Example(
        "device-side descriptor",
        "triton",
        TRITON.replace("{load}", "source.load([row, column])"),
        Status.PRESENT,
        {"direction": ("load",), "multicast": False, "tensor": "X"},
    ),
    Example("host-side descriptors", "triton", HOST, Status.PRESENT, {"direction": ("load", "store")}),
    Example(
        "descriptor without use",
        "triton",
        TRITON.replace(
            "{load}", "tl.load(X + (row + tl.arange(0, BM))[:, None] * N + column + tl.arange(0, BN)[None, :])"
        ),
        Status.ABSENT,
        trap="declared but unused: a descriptor that nothing is loaded through",
    ),
    Example("block pointers", "triton", BLOCK_POINTER, Status.ABSENT, trap="look-alike: make_block_ptr is not TMA"),
    Example(
        "tensor copy in inline PTX",
        "cuda",
        CUDA.replace("COPY", BULK_TENSOR),
        Status.PRESENT,
        {"direction": ("load",), "multicast": False},
    ),
    Example(
        "tensor copy in a comment",
        "cuda",
        CUDA.replace("COPY", "// " + BULK_TENSOR),
        Status.ABSENT,
        trap="comment",
    ),
    Example(
        "copy by each thread",
        "cuda",
        CUDA.replace(
            "COPY", 'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(out) : "memory");'
        ),
        Status.ABSENT,
        trap="look-alike: cp.async is not cp.async.bulk",
    ),
)
