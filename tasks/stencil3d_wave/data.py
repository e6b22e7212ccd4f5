"""Inputs of stencil3d_wave: smooth fields, and the coefficients of the standard central difference."""

from collections.abc import Mapping
from math import pi

import torch

MODES = 4
# Second derivative of order 2 R on a unit grid: the weight of the centre, then of the neighbours at distance 1 to R.
CENTRAL = {
    1: (-2.0, 1.0),
    2: (-5 / 2, 4 / 3, -1 / 12),
    3: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
    4: (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560),
}


def wave_fields(
    axes: Mapping[str, int], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """prev, cur, v2 [Z, Y, X] and coef [R + 1], fp32. v2 lies between 0.05 and 0.15, where every order is stable."""
    shape, device = (axes["Z"], axes["Y"], axes["X"]), generator.device
    cur = _smooth(shape, generator)
    prev = 0.9 * cur + 0.1 * _smooth(shape, generator)
    v2 = 0.1 + 0.05 * _smooth(shape, generator)
    centre, *others = CENTRAL[axes["R"]]
    return prev, cur, v2, torch.tensor([3 * centre, *others], device=device)


def _smooth(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """A field within [-1, 1]: the mean of a few products of sines, at most eight waves along an axis."""
    field = torch.zeros(shape, device=generator.device)
    for _ in range(MODES):
        wave = torch.ones(1, 1, 1, device=generator.device)
        for axis, extent in enumerate(shape):
            waves, phase = torch.rand(2, generator=generator, device=generator.device).tolist()
            line = torch.linspace(0, 2 * pi * (1 + 7 * waves), extent, device=generator.device)
            wave = wave * torch.sin(line + 2 * pi * phase).view([-1 if i == axis else 1 for i in range(3)])
        field += wave / MODES
    return field
