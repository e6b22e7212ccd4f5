"""Inputs of add_rmsnorm_fp8quant: rows in which a few columns are much larger than the others, as activations are."""

from collections.abc import Mapping

import torch

OUTLIER_SHARE = 1e-3
OUTLIER_FACTOR = 20.0


def rows_with_outlier_columns(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """x and r [T, H] in bf16: standard normal, with one column in a thousand (at least one) scaled by 20 in both."""
    shape, device = (axes["T"], axes["H"]), generator.device
    factor = torch.ones(axes["H"], device=device)
    outliers = max(1, round(OUTLIER_SHARE * axes["H"]))
    factor[torch.randperm(axes["H"], generator=generator, device=device)[:outliers]] = OUTLIER_FACTOR
    x, r = (torch.randn(shape, generator=generator, device=device) * factor for _ in range(2))
    return x.bfloat16(), r.bfloat16()
