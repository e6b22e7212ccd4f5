"""Inputs of gemm_moe_grouped: group sizes as skewed as a router's."""

from collections.abc import Mapping

import torch


def group_offsets(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor]:
    """offs [E + 1] int32. EA random experts share T rows in proportion to 1, 1/2, 1/3, …, at least one each."""
    device, total, experts, active = generator.device, axes["T"], axes["E"], axes["EA"]
    share = 1.0 / torch.arange(1, active + 1, device=device, dtype=torch.float64)
    sizes = 1 + torch.floor(share / share.sum() * (total - active)).long()
    sizes[: total - int(sizes.sum())] += 1  # what rounding down left over, one row each
    counts = torch.zeros(experts, dtype=torch.long, device=device)
    counts[torch.randperm(experts, generator=generator, device=device)[:active]] = sizes
    zero = torch.zeros(1, dtype=torch.long, device=device)
    return (torch.cat([zero, counts.cumsum(0)]).int(),)
