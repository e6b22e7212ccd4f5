"""Reference of add_rmsnorm_fp8quant: residual add, RMSNorm, FP8 quantisation in groups of 128 columns."""

import torch

EPS = 1e-6
GROUP = 128
E4M3_MAX = 448.0
MIN_AMAX = 1e-10


def normalise(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x, r [T, H], w [H] -> (h [T, H] in x's dtype, n [T, H] in float64, from the rounded h)."""
    h = (x.float() + r.float()).to(x.dtype)
    wide = h.double()
    n = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPS) * w.double()
    return h, n


def run(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x, r [T, H], w [H] -> (h [T, H], q e4m3 [T, H], s fp32 [T, H // 128])."""
    h, n = normalise(x, r, w)
    groups = n.unflatten(-1, (-1, GROUP))
    s = (groups.abs().amax(dim=-1).clamp(min=MIN_AMAX) / E4M3_MAX).float()
    q = (groups / s.double().unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX).flatten(-2)
    return h, q.float().to(torch.float8_e4m3fn), s


def accept(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    got: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ref: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> tuple[bool, str]:
    """Judge (h, q, s): h and s near the reference, and q * s near the normalised row n.

    A code may be off by half the spacing of e4m3: 2**-4 of n, and 2**-9 * s more where the code is subnormal.
    Returns (accepted, reason); the reason names the first output that fails.
    """
    h, q, s = got
    ref_h, _, ref_s = ref
    if not torch.allclose(h.float(), ref_h.float(), rtol=8e-3, atol=0.0):
        return False, "h: not within one bf16 rounding of x + r"
    if not torch.allclose(s, ref_s, rtol=1e-3, atol=1e-12):
        return False, "s: not within 1e-3 of amax / 448"
    _, n = normalise(*inputs)
    scale = s.double().repeat_interleave(GROUP, dim=-1)
    error = (q.double() * scale - n).abs()
    if not bool((error <= 7e-2 * n.abs() + 2.0**-9 * scale).all()):  # NaN compares false
        return False, "q: q * s is not within half a code of the normalised row"
    return True, ""
