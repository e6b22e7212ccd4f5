"""Inputs of silu_mul_nvfp4_quant: gate and up values with the factor that fits their product into e4m3 scales."""

from collections.abc import Mapping

import torch

E4M3_MAX, E2M1_MAX = 448.0, 6.0
ROWS_AT_ONCE = 1024


def gate_up_with_global_scale(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """gu [M, 2 I] bf16, twice a normal; gs [1] fp32 = 448 * 6 / max |silu(gate) * up|."""
    gu = (2 * torch.randn(axes["M"], 2 * axes["I"], generator=generator, device=generator.device)).bfloat16()
    largest = torch.zeros((), device=generator.device)
    for rows in gu.split(ROWS_AT_ONCE):
        gate, up = rows.float().chunk(2, dim=-1)
        largest = torch.maximum(largest, (torch.nn.functional.silu(gate) * up).abs().amax())
    return gu, (E4M3_MAX * E2M1_MAX / largest).reshape(1)
