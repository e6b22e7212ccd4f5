"""The reference: plain PyTorch in high precision, written to be read."""

import torch


def run(X: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Y in fp32; the judge rounds it to the output's type."""
    return X.float() * s
