"""The reference: plain PyTorch in high precision, written to be read."""

import torch


def run(G: torch.Tensor, U: torch.Tensor) -> torch.Tensor:
    """Y in fp32; the judge rounds it to the output's type."""
    gate = G.float()
    return gate / (1 + torch.exp(-gate)) * U.float()
