"""Inputs of gated_delta_chunk: unit keys and queries, and gates under which the state outlives many chunks."""

from collections.abc import Mapping
from math import log

import torch

SLOWEST, FASTEST = 1e-3, 1e-1


def gated_keys(
    axes: Mapping[str, int], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k [B, T, Hk, D] bf16 with rows of length one; g [B, T, Hv] fp32, negative; beta [B, T, Hv] fp32 in (0, 1).

    g is -rate * uniform(0.5, 1.5), with a rate for each head that is log-uniform between 0.001 and 0.1.
    """
    device = generator.device
    rows = (axes["B"], axes["T"])
    q, k = (
        torch.nn.functional.normalize(
            torch.randn(*rows, axes["Hk"], axes["D"], generator=generator, device=device), dim=-1
        ).bfloat16()
        for _ in range(2)
    )
    rate = torch.exp(
        log(SLOWEST) + torch.rand(axes["Hv"], generator=generator, device=device) * (log(FASTEST) - log(SLOWEST))
    )
    g = -rate * (0.5 + torch.rand(*rows, axes["Hv"], generator=generator, device=device))
    beta = torch.sigmoid(torch.randn(*rows, axes["Hv"], generator=generator, device=device))
    return q, k, g, beta
