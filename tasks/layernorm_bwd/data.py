"""Inputs of layernorm_bwd: rows and the statistics that the forward pass saved of them."""

from collections.abc import Mapping

import torch

EPS = 1e-5


def forward(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [T, H] bf16, normal with mean 1 and deviation 2; mean and rstd [T] fp32 of the stored rows."""
    x = (1 + 2 * torch.randn(axes["T"], axes["H"], generator=generator, device=generator.device)).bfloat16()
    variance, mean = torch.var_mean(x.float(), dim=-1, correction=0)
    return x, mean, torch.rsqrt(variance + EPS)
