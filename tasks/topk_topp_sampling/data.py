"""Inputs of topk_topp_sampling: logits with a few clear favourites in every row."""

from collections.abc import Mapping

import torch

BOOSTED = 50


def boosted_logits(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor]:
    """logits [B, V] fp32: twice a normal, with 6 to 10 added to 50 entries of each row."""
    rows, words, device = axes["B"], axes["V"], generator.device
    logits = 2 * torch.randn(rows, words, generator=generator, device=device)
    for row in range(rows):
        chosen = torch.randperm(words, generator=generator, device=device)[:BOOSTED]
        logits[row, chosen] += 6 + 4 * torch.rand(BOOSTED, generator=generator, device=device)
    return (logits,)
