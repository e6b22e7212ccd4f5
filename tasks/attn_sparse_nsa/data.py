"""Inputs of attn_sparse_nsa: which blocks each token selects, and the gates of the two branches."""

from collections.abc import Mapping

import torch

TOKENS_AT_ONCE = 4096


def selection(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """idx [B, S, Hk, NS] int32: own block, block 0, random earlier ones, -1; gates [B, S, Hq, 2] bf16 in (0, 1)."""
    batch, length, groups, slots, size = (axes[name] for name in ("B", "S", "Hk", "NS", "BS"))
    device = generator.device
    blocks = length // size
    taken = min(slots, blocks)
    block = torch.arange(blocks, device=device)
    idx = torch.full((batch, length, groups, slots), -1, dtype=torch.int32, device=device)
    for start in range(0, length, TOKENS_AT_ONCE):
        stop = min(start + TOKENS_AT_ONCE, length)
        own = (torch.arange(start, stop, device=device) // size).view(1, -1, 1, 1)
        rank = torch.rand(batch, stop - start, groups, blocks, generator=generator, device=device)
        rank = torch.where(block == 0, 2.0, rank)
        rank = torch.where(block == own, 3.0, rank)
        rank = torch.where(block > own, -1.0, rank)
        best = rank.topk(taken, dim=-1)
        idx[:, start:stop, :, :taken] = torch.where(best.values < 0, -1, best.indices).int()
    gates = torch.sigmoid(torch.randn(batch, length, axes["Hq"], 2, generator=generator, device=device))
    return idx, gates.bfloat16()
