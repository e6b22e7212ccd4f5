"""Baselines of attn_prefill_gqa in the working dtype. Each returns (O, LSE).

`scaled_dot_product_attention` drops the log-sum-exp; the operators below are the ones that it dispatches to.
"""

import torch


def eager(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's built-in FlashAttention."""
    q, k, v = (t.transpose(1, 2) for t in (Q, K, V))
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)
    return out.transpose(1, 2), lse


def library(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """cuDNN's fused attention."""
    q, k, v = (t.transpose(1, 2) for t in (Q, K, V))
    out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, is_causal)
    return out.transpose(1, 2), lse.squeeze(-1)
