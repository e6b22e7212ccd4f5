"""Head packing: the query heads that share a KV head are rows of one score tile, so that each key that is fetched meets
all of them at once.

Told by where the two operands of a score come from: the row of the query tile counts on from the KV head of the block,
`kv_head * GROUP + row`, while the keys are addressed by that KV head alone; or, with one KV head for all, rows are
heads of the sequence whose length bounds the loop. A KV head computed as `head // GROUP` by blocks of one head each
shares the keys in the L2 at best.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.head_packing import Packed, packed, scores
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Reason, Status

MAX_PAIRS = 64


def detect(kernel: KernelView) -> Detection:
    pairs = tuple(dict.fromkeys(scores(kernel)))[:MAX_PAIRS]
    if not pairs:
        return Miss(detail="no scores of queries and keys")
    found = [one for score, query, key in pairs for one in packed(kernel, score, query, key)]
    several = [one for one in found if one.heads != 1]
    if several:
        return (_match(kernel, max(several, key=lambda one: one.heads or 0)),)
    if found:
        place = kernel.place(found[0].query)
        return Miss(
            Reason.WRONG_PARAMETER, "a tile holds one head of the group", (Evidence(place, "heads = 1"),), certain=True
        )
    quotient = next((at for _, _, key in pairs for at in _shared_heads(kernel, key)), None)
    if quotient is not None:
        return Miss(
            Reason.NOT_LOAD_BEARING,
            "each query head has a block of its own, which looks up the KV head",
            (Evidence(kernel.place(quotient), "KV head of one query head"),),
        )
    return Miss(detail="rows of the score tile are no heads")


def _match(kernel: KernelView, one: Packed) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if one.heads is None:
        undecided["heads_per_tile"] = "the number of heads in a group is computed at run time"
    else:
        attributes["heads_per_tile"] = one.heads
    evidence = (
        Evidence(kernel.place(one.query), f"query rows are heads: {one.how}"),
        Evidence(kernel.place(one.key), "keys of their KV head"),
        Evidence(kernel.place(one.score), "scores"),
    )
    return Match(evidence, attributes, undecided)


def _shared_heads(kernel: KernelView, key: int) -> Iterator[int]:
    """Quotients of a block's number in the address of the keys."""
    for place in where(kernel, key):
        for at in index_cone(kernel, place) if place != NONE else ():
            op = kernel.op(at)
            quotient = op.kind is Kind.ELEMENTWISE and op.name in ("floordiv", "div")
            if quotient and any(kernel.op(one).kind is Kind.BLOCK_INDEX for one in index_cone(kernel, op.args[0])):
                yield at


TRITON = """
@triton.jit
def decode(Q, K, V, Lens, O, scale, sq_b, sq_h, sk_b, sk_h, sk_n, GROUP: tl.constexpr, BH: tl.constexpr,
           D: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, D)
    length = tl.load(Lens + b)
HEADS
    q = tl.load(Q + b * sq_b + heads[:, None] * sq_h + d[None, :])
    m = tl.full((BH,), -float("inf"), tl.float32)
    l = tl.zeros((BH,), tl.float32)
    acc = tl.zeros((BH, D), tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + b * sk_b + kv * sk_h + n[None, :] * sk_n + d[:, None], mask=n[None, :] < length, other=0.0)
        s = tl.where(n[None, :] < length, tl.dot(q, k) * scale, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        l = l * tl.exp(m - new) + tl.sum(p, 1)
        v = tl.load(V + b * sk_b + kv * sk_h + n[:, None] * sk_n + d[None, :], mask=n[:, None] < length, other=0.0)
        acc = acc * tl.exp(m - new)[:, None] + tl.dot(p.to(tl.bfloat16), v)
        m = new
    tl.store(O + b * sq_b + heads[:, None] * sq_h + d[None, :], acc / l[:, None])

def run(Q, K, V, Lens, O):
    decode[(Q.shape[0], K.shape[1])](Q, K, V, Lens, O, 0.1, Q.stride(0), Q.stride(1), K.stride(0), K.stride(1),
                                     K.stride(2), GROUP=NUMBER, BH=16, D=128, BN=64)
"""
OF_GROUP = """
    kv = tl.program_id(1)
    heads = kv * GROUP + tl.arange(0, BH)
"""
LATENT = """
    kv = 0
    heads = tl.program_id(1) * BH + tl.arange(0, BH)
"""
ROWS = """
@triton.jit
def prefill(Q, K, V, O, scale, N, sq_t, sq_h, sk_t, sk_h, GROUP: tl.constexpr, BM: tl.constexpr, D: tl.constexpr,
            BN: tl.constexpr):
    kv = KV
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    token = TOKEN
    head = HEAD
    q = tl.load(Q + token[:, None] * sq_t + head[:, None] * sq_h + d[None, :])
    m = tl.full((BM,), -float("inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(K + kv * sk_h + n[None, :] * sk_t + d[:, None])
        s = tl.where(n[None, :] <= token[:, None], tl.dot(q, k) * scale, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        l = l * tl.exp(m - new) + tl.sum(p, 1)
        v = tl.load(V + kv * sk_h + n[:, None] * sk_t + d[None, :])
        acc = acc * tl.exp(m - new)[:, None] + tl.dot(p.to(tl.bfloat16), v)
        m = new
    tl.store(O + token[:, None] * sq_t + head[:, None] * sq_h + d[None, :], acc / l[:, None])

def run(Q, K, V, O):
    prefill[(Q.shape[0] * 4 // 128, K.shape[1])](Q, K, V, O, 0.1, K.shape[0], Q.stride(0), Q.stride(1), K.stride(0),
                                                 K.stride(1), GROUP=4, BM=128, D=128, BN=64)
"""
DECODED = (
    ROWS.replace("KV", "tl.program_id(1)", 1)
    .replace("TOKEN", "rows // GROUP")
    .replace("HEAD", "kv * GROUP + rows % GROUP")
)
ONE_HEAD = (
    ROWS.replace("KV", "tl.program_id(1) // GROUP", 1)
    .replace("TOKEN", "rows")
    .replace("HEAD", "tl.program_id(1) + tl.zeros((BM,), tl.int32)")
)
CUDA = """
constexpr int GROUP = NUMBER, D = 128;
__global__ void decode(const float* q, const float* k, const float* v, float* o, int n, int heads, int kv_heads) {
  __shared__ float keys[32][D], values[32][D];
  int kv = KV, b = blockIdx.x, lane = threadIdx.x, head = HEAD;
  const float* mine = q + ((size_t)b * heads + head) * D;
  float own[4], acc[4] = {0.f, 0.f, 0.f, 0.f}, m = -INFINITY, l = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) own[i] = mine[lane * 4 + i];
  for (int start = 0; start < n; start += 32) {
    for (int i = threadIdx.y * 32 + lane; i < 32 * D; i += 32 * blockDim.y) {
      size_t at = (((size_t)b * n + start + i / D) * kv_heads + kv) * D + i % D;
      keys[i / D][i % D] = k[at];
      values[i / D][i % D] = v[at];
    }
    __syncthreads();
    for (int j = 0; j < 32; ++j) {
      float s = 0.f;
#pragma unroll
      for (int i = 0; i < 4; ++i) s += own[i] * keys[j][lane * 4 + i];
      for (int off = 16; off > 0; off >>= 1) s += __shfl_xor_sync(0xffffffffu, s, off);
      float larger = fmaxf(m, s), old = __expf(m - larger), p = __expf(s - larger);
      l = l * old + p;
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[i] = acc[i] * old + p * values[j][lane * 4 + i];
      m = larger;
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) o[((size_t)b * heads + head) * D + lane * 4 + i] = acc[i] / l;
}
void run(const float* q, const float* k, const float* v, float* o, int batch, int n, int heads, int kv_heads) {
  decode<<<dim3(batch, GRID), dim3(32, THREADS)>>>(q, k, v, o, n, heads, kv_heads);
}
"""
WARP_A_HEAD = (
    CUDA.replace("KV", "blockIdx.y", 1)
    .replace("HEAD", "kv * GROUP + threadIdx.y")
    .replace("GRID", "kv_heads")
    .replace("THREADS", "GROUP")
)
BLOCK_A_HEAD = (
    CUDA.replace("KV", "blockIdx.y / GROUP", 1)
    .replace("HEAD", "blockIdx.y")
    .replace("GRID", "heads")
    .replace("THREADS", "1")
)

EXAMPLES = (
    Example(
        "heads of a group as rows",
        "triton",
        TRITON.replace("HEADS", OF_GROUP).replace("NUMBER", "8"),
        Status.PRESENT,
        {"heads_per_tile": 8},
    ),
    Example(
        "latent cache of one head",
        "triton",
        TRITON.replace("HEADS", LATENT).replace("NUMBER", "1"),
        Status.PRESENT,
        {"heads_per_tile": 16},
    ),
    Example("rows decoded into token and head", "triton", DECODED, Status.PRESENT, {"heads_per_tile": 4}),
    Example(
        "group of one",
        "triton",
        TRITON.replace("HEADS", OF_GROUP).replace("NUMBER", "1"),
        Status.ABSENT,
        trap="parameter of size one",
    ),
    Example(
        "block of one head",
        "triton",
        ONE_HEAD,
        Status.ABSENT,
        trap="look-alike: looking up the KV head of a query head packs nothing",
    ),
    Example("head for each warp", "cuda", WARP_A_HEAD.replace("NUMBER", "8"), Status.PRESENT, {"heads_per_tile": 8}),
    Example(
        "group of one warp", "cuda", WARP_A_HEAD.replace("NUMBER", "1"), Status.ABSENT, trap="parameter of size one"
    ),
    Example(
        "block for each head",
        "cuda",
        BLOCK_A_HEAD.replace("NUMBER", "8"),
        Status.ABSENT,
        trap="look-alike: looking up the KV head of a query head packs nothing",
    ),
)
