"""Inputs of ssd_chunk_scan: biases that give realistic step sizes."""

from collections.abc import Mapping
from math import log

import torch

SMALLEST, LARGEST = 1e-3, 1e-1


def step_bias(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor]:
    """dt_bias [Hh] fp32, the inverse softplus of step sizes that are log-uniform between 0.001 and 0.1."""
    share = torch.rand(axes["Hh"], generator=generator, device=generator.device, dtype=torch.float64)
    step = torch.exp(log(SMALLEST) + share * (log(LARGEST) - log(SMALLEST)))
    return (torch.log(torch.expm1(step)).float(),)
