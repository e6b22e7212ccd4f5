"""attn_prefill_gqa, the obvious way: one loop over all keys with a running softmax, masked in every block."""

import torch
import triton
import triton.language as tl


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
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One 64-row query tile of one head per program."""
    head = tl.program_id(1) % Hq
    batch = (tl.program_id(1) // Hq).to(tl.int64)
    kv_head = head * Hk // Hq
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q_offset = ((batch * S + rows[:, None]) * Hq + head) * D + dims[None, :]
    q = tl.load(Q + q_offset, mask=rows[:, None] < S, other=0.0)
    row_max = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start in tl.range(0, S, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        kv_offset = ((batch * S + cols[:, None]) * Hk + kv_head) * D + dims[None, :]
        k = tl.load(K + kv_offset, mask=cols[:, None] < S, other=0.0)
        v = tl.load(V + kv_offset, mask=cols[:, None] < S, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        visible = cols[None, :] < S
        if CAUSAL:
            visible = visible & (cols[None, :] <= rows[:, None])
        scores = tl.where(visible, scores, -float("inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp(scores - new_max[:, None])
        shrink = tl.exp(row_max - new_max)
        row_sum = row_sum * shrink + tl.sum(p, axis=1)
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        row_max = new_max
    tl.store(O + q_offset, (acc / row_sum[:, None]).to(O.dtype.element_ty), mask=rows[:, None] < S)
    tl.store(LSE + (batch * Hq + head) * S + rows, row_max + tl.log(row_sum), mask=rows < S)


def run(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, is_causal: bool, O: torch.Tensor, LSE: torch.Tensor) -> None:
    """Q [B, S, Hq, D], K and V [B, S, Hk, D] -> O [B, S, Hq, D], LSE [B, Hq, S], filled in place."""
    B, S, Hq, D = Q.shape
    grid = (triton.cdiv(S, 64), B * Hq)
    attention_kernel[grid](
        Q, K, V, O, LSE, S, Hq, K.shape[2], D**-0.5, CAUSAL=is_causal, D=D, BLOCK_M=64, BLOCK_N=64, num_stages=1
    )
