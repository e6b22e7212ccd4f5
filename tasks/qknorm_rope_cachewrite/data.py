"""Inputs of qknorm_rope_cachewrite: the table of angles, and positions that repeat."""

from collections.abc import Mapping

import torch

TABLE_ROWS = 40960
BASE = 1e6


def rope_table(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor]:
    """cos_sin [40960, D] fp32: in row p the cosines of p * 1e6**(-2i/D) for i < D/2, then the sines."""
    half = torch.arange(axes["D"] // 2, device=generator.device, dtype=torch.float64)
    angle = torch.arange(TABLE_ROWS, device=generator.device).unsqueeze(-1) * BASE ** (-2 * half / axes["D"])
    return (torch.cat([angle.cos(), angle.sin()], dim=-1).float(),)


def positions(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor]:
    """pos [T] int64: U different rows of the table in rising order, again and again."""
    distinct = torch.randperm(TABLE_ROWS, generator=generator, device=generator.device)[: axes["U"]].sort().values
    return (distinct[torch.arange(axes["T"], device=generator.device) % axes["U"]],)
