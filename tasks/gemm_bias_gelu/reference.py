"""Reference of gemm_bias_gelu in float64: Y = gelu_tanh(A @ W.T + bias)."""

import math

import torch

ROWS = 4096  # rows of A per step, so that the float64 copies stay small


def gelu_tanh(z: torch.Tensor) -> torch.Tensor:
    """The tanh form of GELU, written out."""
    u = math.sqrt(2.0 / math.pi) * (z + 0.044715 * z**3)
    return 0.5 * z * (1.0 + torch.tanh(u))


def run(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor]:
    """A [M, K], W [N, K], bias [N] -> (Y [M, N],) in float32, not yet rounded to the output's dtype."""
    Wt, b = W.double().T, bias.double()
    Y = torch.empty(A.shape[0], W.shape[0], dtype=torch.float32, device=A.device)
    for start in range(0, A.shape[0], ROWS):
        rows = slice(start, start + ROWS)
        Y[rows] = gelu_tanh(A[rows].double() @ Wt + b).float()
    return (Y,)
