"""Warp specialization: warps of one block run different roles (load, multiply, softmax, epilogue) and hand over through
barriers. In Triton the loop asks for it, and the compiler makes the roles. One warp that finishes a reduction or stores
the result alone is no role, and a request on a loop without loads and products divides nothing.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.partitions import Partition, partitions
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

NAMES = ("warp_specialize", "async_tasks", "async_task")
GROUPS = "num_consumer_groups"
"""Launch option of compilers that specialise whole kernels."""


def detect(kernel: KernelView) -> Detection:
    return _by_regions(kernel) or _asked_for(kernel) or _miss(kernel)


def _by_regions(kernel: KernelView) -> tuple[Match, ...]:
    working = [one for one in partitions(kernel) if one.roles]
    handing = [one for one in working if one.barriers]
    if len(handing) < 2 or len({one.roles for one in working}) < 2:
        return ()
    roles = tuple(sorted({role for one in working for role in one.roles}))
    return (Match(tuple(_place(kernel, one) for one in working[:4]), {"roles": roles}),)


def _place(kernel: KernelView, one: Partition) -> Evidence:
    return Evidence(kernel.place(one.first), f"{one.name}: {', '.join(sorted(one.roles)) or 'no role'}")


def _asked_for(kernel: KernelView) -> tuple[Match, ...]:
    undecided = {"roles": f"{NEEDS_COMPILED}: the compiler makes the roles"}
    for loop, one in enumerate(kernel.body.loops):
        if one.attrs.get("warp_specialize") is True and _works(kernel, loop):
            return (
                Match((Evidence(one.place, "warp_specialize=True on a loop with loads and products"),), {}, undecided),
            )
    groups = kernel.launch.options.get(GROUPS)
    if isinstance(groups, int) and groups > 0 and kernel.values(Kind.MMA):
        place = Evidence(kernel.kernel.place, f"{GROUPS}={groups}")
        return (Match((place,), {}, undecided),)
    return ()


def _works(kernel: KernelView, loop: int) -> bool:
    data = flow(kernel)
    fetches = any(data.is_fetch(at) and loop in kernel.loops_of(at) for at in kernel.values(Kind.LOAD, Kind.COPY))
    return fetches and any(loop in kernel.loops_of(at) for at in kernel.values(Kind.MMA))


def _miss(kernel: KernelView) -> Miss | Undecided:
    for one in kernel.body.loops:
        asked = one.attrs.get("warp_specialize")
        if asked == "unknown":
            return Undecided("whether the loop asks for it is an argument", (Evidence(one.place, "warp_specialize"),))
        if asked is True:
            text = "the loop has no loads and products to divide"
            return Miss(Reason.NOT_LOAD_BEARING, text, (Evidence(one.place, "warp_specialize=True"),))
        if asked is not None:
            text = "the loop turns it off"
            return Miss(Reason.WRONG_PARAMETER, text, (Evidence(one.place, f"warp_specialize={asked}"),), certain=True)
    regions = partitions(kernel)
    if regions:
        text = "a region for some warps alone, without another role that it hands over to"
        return Miss(Reason.NOT_LOAD_BEARING, text, tuple(_place(kernel, one) for one in regions[:2]))
    return mentioned(kernel, NAMES) or Miss(detail="all warps run the same code", certain=moves_all_memory(kernel))


TRITON = """
@triton.jit
def matmul(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=FLAG):
        total = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, total)
    c_desc.store([row, column], total.to(tl.bfloat16))

def run(a_desc, b_desc, c_desc, M, N, K):
    matmul[(M // 128, N // 128)](a_desc, b_desc, c_desc, K, BM=128, BN=128, BK=64, num_warps=4)
"""

ELEMENTWISE = """
@triton.jit
def scale(X, Y, N, BLOCK: tl.constexpr):
    for start in tl.range(0, N, BLOCK, warp_specialize=True):
        place = tl.program_id(0) * N + start + tl.arange(0, BLOCK)
        tl.store(Y + place, 2 * tl.load(X + place))

def run(X, Y):
    scale[(X.shape[0],)](X, Y, X.shape[1], BLOCK=1024)
"""

GLUON = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, fence_async_shared
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.blackwell import tcgen05_commit, tcgen05_mma

@gluon.jit
def load(a_desc, b_desc, a_bufs, b_bufs, full, empty, row, col, K, BK: gl.constexpr, STAGES: gl.constexpr):
    for k in range(0, K, BK):
        s = (k // BK) % STAGES
        mbarrier.wait(empty.index(s), ((k // BK) // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(s), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(a_desc, [row, k], full.index(s), a_bufs.index(s))
        tma.async_copy_global_to_shared(b_desc, [col, k], full.index(s), b_bufs.index(s))

@gluon.jit
def multiply(a_bufs, b_bufs, full, empty, done, acc, K, BK: gl.constexpr, STAGES: gl.constexpr):
    use = False
    for k in range(0, K, BK):
        s = (k // BK) % STAGES
        mbarrier.wait(full.index(s), (k // BK) // STAGES & 1)
        tcgen05_mma(a_bufs.index(s), b_bufs.index(s).permute((1, 0)), acc, use_acc=use)
        tcgen05_commit(empty.index(s))
        use = True
    tcgen05_commit(done)

@gluon.jit
def finish(c_desc, done, acc, row, col, BM: gl.constexpr, BN: gl.constexpr):
    mbarrier.wait(done, 0)
    c = acc.load(gl.BlockedLayout([1, 64], [32, 1], [4, 1], [1, 0]))
    c_smem = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c_smem.store(c.to(c_desc.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [row, col], c_smem)
    tma.store_wait(0)

@gluon.jit
def matmul(a_desc, b_desc, c_desc, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    a_bufs = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)
    b_bufs = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(done, count=1)
    layout: gl.constexpr = blackwell.TensorMemoryLayout([BM, BN], col_stride=1)
    acc = blackwell.allocate_tensor_memory(gl.float32, [BM, BN], layout)
    row = gl.program_id(0) * BM
    col = gl.program_id(1) * BN
    gl.warp_specialize([
        (finish, (c_desc, done, acc, row, col, BM, BN)),
        (load, (a_desc, b_desc, a_bufs, b_bufs, full, empty, row, col, K, BK, STAGES)),
        (multiply, (a_bufs, b_bufs, full, empty, done, acc, K, BK, STAGES)),
    ], [1, 1], [24, 24])

def run(a_desc, b_desc, c_desc, M, N, K):
    matmul[(M // 128, N // 128)](a_desc, b_desc, c_desc, K, BM=128, BN=128, BK=64, STAGES=4, num_warps=4)
"""

CUDA = r"""
constexpr int STAGES = 4, ROWS = 64;
__device__ inline uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ inline void wait(uint64_t* bar, uint32_t parity) {
  asm volatile("{
.reg .pred p;
W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;
@!p bra W;
}"
               ::"r"(at(bar)), "r"(parity));
}
__device__ inline void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)));
}
__device__ void fetch(const float* x, float (*tile)[ROWS * 32], uint64_t* full, uint64_t* empty, int tiles) {
  for (int i = 0; i < tiles; ++i) {
    const int stage = i % STAGES;
    wait(&empty[stage], (i / STAGES & 1) ^ 1);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(&full[stage])), "r"(ROWS * 128));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     at(tile[stage])), "l"(x + i * ROWS * 32), "r"(ROWS * 128), "r"(at(&full[stage])));
  }
}
__device__ void sum(float* y, float (*tile)[ROWS * 32], uint64_t* full, uint64_t* empty, int tiles) {
  float total = 0.f;
  for (int i = 0; i < tiles; ++i) {
    const int stage = i % STAGES;
    wait(&full[stage], i / STAGES & 1);
    for (int r = 0; r < ROWS; ++r) total += tile[stage][r * 32 + threadIdx.x % 32];
    arrive(&empty[stage]);
  }
  y[blockIdx.x * 128 + threadIdx.x] = total;
}
__global__ void sums(const float* x, float* y, int tiles) {
  __shared__ alignas(128) float tile[STAGES][ROWS * 32];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  BODY
}
void run(const float* x, float* y, int tiles) { sums<<<64, 160>>>(x, y, tiles); }
"""
ROLES = """if (threadIdx.x / 32 == 4) {
    fetch(x, tile, full, empty, tiles);
  } else {
    sum(y, tile, full, empty, tiles);
  }"""
TOGETHER = """float total = 0.f;
  for (int i = threadIdx.x; i < tiles * ROWS * 32; i += 160) total += x[i];
  for (int o = 16; o > 0; o >>= 1) total += __shfl_xor_sync(0xffffffffu, total, o);
  if (threadIdx.x % 32 == 0) tile[0][threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x / 32 == 0) {
    total = threadIdx.x < 5 ? tile[0][threadIdx.x] : 0.f;
    for (int o = 16; o > 0; o >>= 1) total += __shfl_xor_sync(0xffffffffu, total, o);
    y[blockIdx.x] = total;
  }"""

EXAMPLES = (
    Example("loop asks for it", "triton", TRITON.replace("FLAG", "True"), Status.PRESENT),
    Example("partitions in Gluon", "triton", GLUON, Status.PRESENT, {"roles": ("epilogue", "load", "mma")}),
    Example("turned off", "triton", TRITON.replace("FLAG", "False"), Status.ABSENT, trap="parameter that turns it off"),
    Example(
        "named in a comment",
        "triton",
        TRITON.replace(", warp_specialize=FLAG):", "):  # warp_specialize=True"),
        Status.ABSENT,
        trap="comment",
    ),
    Example("loop without products", "triton", ELEMENTWISE, Status.ABSENT, trap="nothing to divide into roles"),
    Example("a warp that loads", "cuda", CUDA.replace("BODY", ROLES), Status.PRESENT),
    Example(
        "first warp finishes the sum",
        "cuda",
        CUDA.replace("BODY", TOGETHER),
        Status.ABSENT,
        trap="look-alike: `if (warp == 0)` around an epilogue is no role",
    ),
    Example(
        "roles that nothing calls",
        "cuda",
        CUDA.replace("BODY", f"// {ROLES.splitlines()[0]}\n  {TOGETHER}"),
        Status.ABSENT,
        trap="helpers that nothing calls, named in a comment",
    ),
)
