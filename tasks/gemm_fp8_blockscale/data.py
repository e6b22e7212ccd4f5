"""Inputs of gemm_fp8_blockscale: codes and power-of-two scales of normal matrices whose groups differ in magnitude."""

from collections.abc import Mapping

import torch

GROUP = 128
E4M3_MAX = 448.0
# Magnitudes 2**-3 to 2**3 on both sides multiply the scale of a product by 12.2 on average; the weight makes up for it.
WEIGHT_SHRINK = 12.0


def activation(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A [M, K] as e4m3 codes and SA [K // 128, M] in fp32: one scale for 128 elements of a row."""
    rows = torch.randn(axes["M"], axes["K"] // GROUP, GROUP, generator=generator, device=generator.device)
    rows *= _magnitudes(rows.shape[:2], generator).unsqueeze(-1)
    codes, scales = _quantise(rows, (-1,))
    return codes.flatten(1), scales.t().contiguous()


def weight(axes: Mapping[str, int], generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """B [N, K] as e4m3 codes and SB [ceil(N / 128), K // 128] in fp32: one scale for a block of 128 x 128."""
    n, k = axes["N"], axes["K"]
    blocks = -(-n // GROUP)
    matrix = torch.zeros(blocks * GROUP, k, device=generator.device)
    matrix[:n] = torch.randn(n, k, generator=generator, device=generator.device) / (WEIGHT_SHRINK * k**0.5)
    tiles = matrix.view(blocks, GROUP, k // GROUP, GROUP)
    tiles *= _magnitudes((blocks, k // GROUP), generator)[:, None, :, None]
    codes, scales = _quantise(tiles, (1, 3))
    return codes.view(blocks * GROUP, k)[:n].contiguous(), scales


def _magnitudes(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.exp2(torch.randint(-3, 4, shape, generator=generator, device=generator.device).float())


def _quantise(values: torch.Tensor, dims: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes in the shape of `values`, and the least power of two for each group that keeps its codes within e4m3."""
    scale = torch.exp2(torch.ceil(torch.log2(values.abs().amax(dims, keepdim=True) / E4M3_MAX)))
    return (values / scale).to(torch.float8_e4m3fn), scale.amax(dims)
