"""Inputs of embedding_bag_jagged: bags of lookups whose rows are as unevenly popular as real items."""

from collections.abc import Mapping

import torch

EXPONENT = 1.05


def jagged_lookups(
    axes: Mapping[str, int | bool | tuple[int, ...]], generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """idx [NNZ], off [F * B + 1] and base [F], all int64.

    Table f has B * lens[f] lookups, drawn by Zipf's law over its rows (popular ones in random places): lens[f] for each
    bag or, if jagged, geometrically distributed sizes of that mean, zero among them.
    """
    batch, jagged, device = axes["B"], axes["jagged"], generator.device
    rows, lens = axes["rows"], axes["lens"]
    assert isinstance(batch, int) and isinstance(rows, tuple) and isinstance(lens, tuple)
    sizes, indices = [], []
    for count, mean in zip(rows, lens, strict=True):
        total = batch * mean
        sizes.append(_geometric(batch, total, generator) if jagged else torch.full((batch,), mean, device=device))
        indices.append(_zipf(count, total, generator))
    zero = torch.zeros(1, dtype=torch.long, device=device)
    off = torch.cat([zero, torch.cat(sizes).cumsum(0)])
    base = torch.cat([zero, torch.tensor(rows, device=device).cumsum(0)[:-1]])
    return torch.cat(indices), off, base


def _geometric(parts: int, total: int, generator: torch.Generator) -> torch.Tensor:
    """`parts` sizes of the given sum: every composition is equally likely, as geometric sizes are, given their sum."""
    places = torch.randperm(total + parts - 1, generator=generator, device=generator.device)[: parts - 1].sort().values
    edge = torch.tensor([-1], device=generator.device)
    return torch.cat([edge, places, edge + total + parts]).diff() - 1


def _zipf(rows: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """[count] int64 below `rows`: the i-th most popular row has a weight of i ** -1.05."""
    device = generator.device
    mass = (torch.arange(1, rows + 1, device=device, dtype=torch.float64) ** -EXPONENT).cumsum(0)
    draw = torch.rand(count, generator=generator, device=device, dtype=torch.float64) * mass[-1]
    rank = torch.searchsorted(mass, draw).clamp(max=rows - 1)
    return torch.randperm(rows, generator=generator, device=device)[rank]
