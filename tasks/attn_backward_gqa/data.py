"""Inputs of attn_backward_gqa: a forward pass whose output and log-sum-exp belong to its Q, K and V."""

from collections.abc import Mapping

import torch

QUERY_BLOCK = 1024


def forward(
    axes: Mapping[str, int], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Q (twice a normal), K, V (normal) [B, S, heads, D] bf16, O like Q, LSE [B, Hq, S] fp32 of the stored values."""
    batch, length, heads, groups, dim = (axes[name] for name in ("B", "S", "Hq", "Hk", "D"))
    device = generator.device
    q = (2 * torch.randn(batch, length, heads, dim, generator=generator, device=device)).bfloat16()
    k, v = (torch.randn(batch, length, groups, dim, generator=generator, device=device).bfloat16() for _ in range(2))
    keys, values = (t.float().repeat_interleave(heads // groups, dim=2).transpose(1, 2) for t in (k, v))
    out = torch.empty_like(q)
    lse = torch.empty(batch, heads, length, device=device)
    for start in range(0, length, QUERY_BLOCK):
        stop = min(start + QUERY_BLOCK, length)
        visible = stop if axes["causal"] else length
        scores = q[:, start:stop].float().transpose(1, 2) @ keys[:, :, :visible].mT * dim**-0.5
        if axes["causal"]:
            row = torch.arange(start, stop, device=device).unsqueeze(-1)
            scores.masked_fill_(torch.arange(visible, device=device) > row, float("-inf"))
        lse[:, :, start:stop] = torch.logsumexp(scores, -1)
        probabilities = torch.exp(scores - lse[:, :, start:stop].unsqueeze(-1))
        out[:, start:stop] = (probabilities @ values[:, :, :visible]).transpose(1, 2).to(out.dtype)
    return q, k, v, out, lse
