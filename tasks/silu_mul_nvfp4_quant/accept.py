"""Judge of silu_mul_nvfp4_quant: an approximate sigmoid may push a value over a rounding edge, but no further."""

import torch

BLOCK = 16
EQUAL_SCALES = 0.999
EQUAL_CODES = 0.99


def accept(
    inputs: tuple[torch.Tensor, torch.Tensor],
    got: tuple[torch.Tensor, torch.Tensor],
    ref: tuple[torch.Tensor, torch.Tensor],
) -> tuple[bool, str]:
    """inputs (gu, gs), got and ref (codes [M, I // 2] uint8, sf e4m3) -> (accepted, reason).

    Scales: 99.9 % equal, the others one code apart, padding zero. Codes, in blocks of equal scale: 99 % equal, the
    others one level apart.
    """
    rows, width = inputs[0].shape[0], inputs[0].shape[1] // 2
    place = scale_places(rows, width // BLOCK, inputs[0].device)
    mine, theirs = (sf.view(torch.uint8).int() for sf in (got[1], ref[1]))
    padding = torch.ones_like(mine, dtype=torch.bool)
    padding[place.flatten()] = False
    if bool((mine[padding] != 0).any()):
        return False, "sf: padding is not zero"
    apart = (mine[place] - theirs[place]).abs()
    same = apart == 0
    share = float(same.double().mean())
    if share < EQUAL_SCALES or int(apart.max()) > 1:
        return False, f"sf: {share:.4%} of the scales are equal, the furthest {int(apart.max())} apart"
    levels = (_levels(got[0]) - _levels(ref[0])).abs().unflatten(-1, (-1, BLOCK))[same]
    equal = float((levels == 0).double().mean()) if levels.numel() else 1.0
    if equal < EQUAL_CODES or (levels.numel() and int(levels.max()) > 1):
        return False, f"codes: {equal:.4%} are equal, the furthest {int(levels.max())} levels apart"
    return True, ""


def scale_places(rows: int, blocks: int, device: torch.device) -> torch.Tensor:
    """[rows, blocks] int64: where the scale of a block lies in the layout of 128 x 4 tiles."""
    m = torch.arange(rows, device=device).unsqueeze(-1)
    j = torch.arange(blocks, device=device)
    tile = (m // 128) * (-(-blocks // 4)) + j // 4
    return tile * 512 + (m % 32) * 16 + ((m % 128) // 32) * 4 + j % 4


def _levels(packed: torch.Tensor) -> torch.Tensor:
    """[M, I // 2] bytes -> [M, I] int: the position of each code among the values of e2m1, both zeros being 0."""
    code = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2).int()
    magnitude = code & 7
    return torch.where(code >= 8, -magnitude, magnitude)
