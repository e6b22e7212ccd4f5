"""Alternating consumers: two or more groups of warps, or query tiles, each with accumulators of its own, take turns, so
that one runs matrix instructions while the other runs softmax or epilogue. Several groups that work on one tile
together, or side by side without an order, do not alternate.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss, Undecided
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.alternation import Alternation, alternations
from d2k.analyzers.patterns.known import moves_all_memory
from d2k.analyzers.patterns.partitions import partitions
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

FACTOR = "data_partition_factor"


def detect(kernel: KernelView) -> Detection:
    found = next(alternations(kernel), None)
    if found is not None:
        return (_match(kernel, found),)
    factor = kernel.launch.options.get(FACTOR)
    if isinstance(factor, int) and factor >= 2 and kernel.values(Kind.MMA):
        place = Evidence(kernel.kernel.place, f"{FACTOR}={factor}")
        return (Match((place,), {"tiles_in_flight": factor}),)
    for one in kernel.body.loops:
        if one.attrs.get("warp_specialize") is True and kernel.values(Kind.ELEMENTWISE, name=("exp", "exp2")):
            text = f"{NEEDS_COMPILED}: whether the compiler makes two consumers"
            return Undecided(text, (Evidence(one.place, "warp_specialize=True"),))
    consumers = [one for one in partitions(kernel) if one.products]
    if consumers:
        place = Evidence(kernel.place(consumers[0].first), f"{consumers[0].name} multiplies")
        return Miss(Reason.NOT_LOAD_BEARING, "no barrier makes consumers take turns", (place,))
    return Miss(detail="one tile at a time", certain=moves_all_memory(kernel))


def _match(kernel: KernelView, found: Alternation) -> Match:
    evidence = tuple(Evidence(kernel.place(value), found.text) for value in found.values[:4])
    if found.tiles is None:
        return Match(evidence, {}, {"tiles_in_flight": "the number of groups of a block is not known here"})
    return Match(evidence, {"tiles_in_flight": found.tiles})


TRITON = """
@triton.jit
def attend(Q, K, V, O, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * 2 * BM + tl.arange(0, BM)
    others = rows + BM
    dims = tl.arange(0, D)
    q0 = tl.load(Q + rows[:, None] * D + dims[None, :])
    q1 = tl.load(Q + others[:, None] * D + dims[None, :])
    acc0, acc1 = tl.zeros((BM, D), tl.float32), tl.zeros((BM, D), tl.float32)
    top0, top1 = tl.full((BM,), -1e30, tl.float32), tl.full((BM,), -1e30, tl.float32)
    sum0, sum1 = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for start in range(0, S, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(K + keys[:, None] * D + dims[None, :])
        v = tl.load(V + keys[:, None] * D + dims[None, :])
        score0 = tl.dot(q0, tl.trans(k))
        SECOND_SCORE
        new0 = tl.maximum(top0, tl.max(score0, 1))
        p0, shrink0 = tl.exp(score0 - new0[:, None]), tl.exp(top0 - new0)
        acc0 = acc0 * shrink0[:, None] + tl.dot(p0.to(tl.bfloat16), v)
        sum0, top0 = sum0 * shrink0 + tl.sum(p0, 1), new0
        SECOND_SOFTMAX
    tl.store(O + rows[:, None] * D + dims[None, :], acc0 / sum0[:, None])
    tl.store(O + others[:, None] * D + dims[None, :], acc1 / sum1[:, None])

def run(Q, K, V, O):
    attend[(Q.shape[0] // 128,)](Q, K, V, O, K.shape[0], D=64, BM=64, BN=64)
"""
SECOND = """new1 = tl.maximum(top1, tl.max(score1, 1))
        p1, shrink1 = tl.exp(score1 - new1[:, None]), tl.exp(top1 - new1)
        acc1 = acc1 * shrink1[:, None] + tl.dot(p1.to(tl.bfloat16), v)
        sum1, top1 = sum1 * shrink1 + tl.sum(p1, 1), new1"""


def _triton(both: bool) -> str:
    code = TRITON.replace("SECOND_SCORE", "score1 = tl.dot(q1, tl.trans(k))" if both else "pass")
    return code.replace("SECOND_SOFTMAX", SECOND if both else "sum1 += tl.sum(q1, 1)")


CUDA = r"""
__global__ void attend(const float* x, float* y, int blocks) {
  const int group = threadIdx.x / 128;
  if (group == 2) {
    for (int i = 0; i < blocks; ++i)
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(x + i * 1024), "r"(4096));
  } else {
    float d[4] = {0.f, 0.f, 0.f, 0.f};
    for (int i = 0; i < blocks; ++i) {
      BEFORE
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"((uint64_t)i), "l"((uint64_t)(i + 8)));
      AFTER
      for (int j = 0; j < 4; ++j) d[j] = exp2f(d[j]);
    }
    y[blockIdx.x * 256 + threadIdx.x] = d[0] + d[1] + d[2] + d[3];
  }
}
void run(const float* x, float* y, int blocks) { attend<<<64, 384>>>(x, y, blocks); }
"""


def _cuda(before: str, after: str) -> str:
    return CUDA.replace("BEFORE", before).replace("AFTER", after)


TURN = 'asm volatile("bar.sync %0, 256;" ::"r"(1 + group));'
NEXT = 'asm volatile("bar.arrive %0, 256;" ::"r"(2 - group));'

EXAMPLES = (
    Example("two query tiles", "triton", _triton(both=True), Status.PRESENT, {"tiles_in_flight": 2}),
    Example(
        "second tile without scores",
        "triton",
        _triton(both=False),
        Status.ABSENT,
        trap="declared but unused: a second accumulator alone",
    ),
    Example("groups take turns", "cuda", _cuda(TURN, NEXT), Status.PRESENT, {"tiles_in_flight": 2}),
    Example(
        "groups without an order",
        "cuda",
        _cuda("", ""),
        Status.ABSENT,
        trap="two consumers side by side do not alternate",
    ),
    Example(
        "groups in step",
        "cuda",
        _cuda('asm volatile("bar.sync 1, 256;");', 'asm volatile("bar.sync 2, 256;");'),
        Status.ABSENT,
        trap="look-alike: a barrier that all groups meet at is no turn",
    ),
    Example("turns in a comment", "cuda", _cuda(f"// {TURN}", f"// {NEXT}"), Status.ABSENT, trap="comment"),
)
