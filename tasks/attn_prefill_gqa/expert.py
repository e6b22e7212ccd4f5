"""attn_prefill_gqa for Hopper and later: online softmax over TMA tiles, interior blocks without a mask.

One program owns 128 query rows of one head, keeps them on chip and streams the keys and values of its KV head past
them. Programs start in the order of falling work, and the query heads of one KV head start together, so that they
share its keys and values in the L2 cache. Exponentials have base 2 with log2(e) / sqrt(D) folded into the scores.

At D <= 128 two programs of one warpgroup share a multiprocessor: one multiplies while the other takes exponentials.
"""

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = math.log2(math.e)


@triton.jit
def attend(
    acc,
    row_max,
    row_sum,
    q,
    K,
    V,
    batch,
    column,
    rows,
    start,
    end,
    S,
    scale,
    MASK: tl.constexpr,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Fold the keys start..end into (acc, row_max, row_sum); row_max is in units of log2.

    MASK: "none" for blocks that every row sees whole, "diagonal" where key <= row, "tail" where key < S.
    """
    for key in tl.range(start, end, BLOCK_N):
        k = K.load([batch, key, column]).reshape((BLOCK_N, D))
        scores = tl.dot(q, k.T)
        cols = key + tl.arange(0, BLOCK_N)
        if MASK == "diagonal":
            scores = tl.where(cols[None, :] <= rows[:, None], scores, -float("inf"))
        elif MASK == "tail":
            scores = tl.where((cols < S)[None, :], scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale)
        p = tl.exp2(scores * scale - new_max[:, None])
        shrink = tl.exp2(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(p, axis=1)
        acc = acc * shrink[:, None]
        v = V.load([batch, key, column]).reshape((BLOCK_N, D))
        acc = tl.dot(p.to(v.dtype), v, acc)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def attention_kernel(
    Q,
    K,
    V,
    O,
    LSE,
    S,
    Hq,
    Hk,
    scale,
    CAUSAL: tl.constexpr,
    TAIL: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Q and O [B, S, Hq * D], K and V [B, S, Hk * D] are tensor descriptors, LSE [B, Hq, S] a pointer.

    `scale` is log2(e) / sqrt(D); TAIL says that S is no multiple of BLOCK_N.
    """
    head = tl.program_id(0) % Hq
    batch = tl.program_id(0) // Hq
    # Under a causal mask the last rows have the longest key loops: they start first.
    tile = tl.num_programs(1) - 1 - tl.program_id(1) if CAUSAL else tl.program_id(1)
    row = tile * BLOCK_M
    rows = row + tl.arange(0, BLOCK_M)
    column = head * Hk // Hq * D

    q = Q.load([batch, row, head * D]).reshape((BLOCK_M, D))
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)

    # The blocks on the mask's edge, then the interior ones without a mask. Keys past S lie past the diagonal of every
    # row that counts. In the other order ptxas (12.8 and 12.9, for sm_90a) serialises every wgmma of the kernel.
    if CAUSAL:
        edge = row
        acc, row_max, row_sum = attend(
            acc, row_max, row_sum, q, K, V, batch, column, rows, edge, edge + BLOCK_M, S, scale, "diagonal", D, BLOCK_N
        )
    else:
        edge = S // BLOCK_N * BLOCK_N
        if TAIL:
            acc, row_max, row_sum = attend(
                acc, row_max, row_sum, q, K, V, batch, column, rows, edge, S, S, scale, "tail", D, BLOCK_N
            )
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, K, V, batch, column, rows, 0, edge, S, scale, "none", D, BLOCK_N
    )

    LN_2: tl.constexpr = 0.6931471805599453
    tl.store(LSE + tl.program_id(0).to(tl.int64) * S + rows, (row_max + tl.log2(row_sum)) * LN_2, mask=rows < S)
    out = (acc * (1.0 / row_sum)[:, None]).to(O.dtype)
    O.store([batch, row, head * D], out.reshape((1, BLOCK_M, D)))


def run(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, is_causal: bool, O: torch.Tensor, LSE: torch.Tensor) -> None:
    """Q [B, S, Hq, D], K and V [B, S, Hk, D] -> O [B, S, Hq, D], LSE [B, Hq, S], filled in place."""
    B, S, Hq, D = Q.shape
    Hk = K.shape[2]
    block_m, block_n = 128, 64
    rows, keys = [1, block_m, D], [1, block_n, D]

    def tiles(t: torch.Tensor, block: list[int]) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(t.view(B, S, -1), block)

    attention_kernel[(B * Hq, triton.cdiv(S, block_m))](
        tiles(Q, rows),
        tiles(K, keys),
        tiles(V, keys),
        tiles(O, rows),
        LSE,
        S,
        Hq,
        Hk,
        LOG2_E / math.sqrt(D),
        CAUSAL=is_causal,
        TAIL=S % block_n != 0,
        D=D,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        num_stages=2,
        num_warps=4 if D <= 128 else 8,
    )
