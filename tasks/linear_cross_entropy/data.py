"""Inputs of linear_cross_entropy: target words, a tenth of them ignored."""

from collections.abc import Mapping

import torch

IGNORED = -100
IGNORED_SHARE = 0.1


def targets(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor]:
    """y [T] int64: uniform over the vocabulary, -100 with probability 0.1."""
    device = generator.device
    words = torch.randint(0, axes["V"], (axes["T"],), generator=generator, device=device)
    ignored = torch.rand(axes["T"], generator=generator, device=device) < IGNORED_SHARE
    return (torch.where(ignored, IGNORED, words),)
