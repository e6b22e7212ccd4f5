"""Judge of topk_topp_sampling: sums of probabilities round, so a token at the edge of an interval may differ."""

import torch

SLACK = 1e-5


def accept(
    inputs: tuple[torch.Tensor, ...], got: tuple[torch.Tensor, ...], ref: tuple[torch.Tensor, ...]
) -> tuple[bool, str]:
    """inputs (logits, temp, top_k, top_p, u), got and ref (token,) -> (accepted, reason).

    A token that is not the reference's passes if in fp64 less than top_p + 1e-5 of the mass lies before it in
    descending order and its interval in index order, widened by 1e-5, contains u.
    """
    logits, temp, top_k, top_p, u = inputs
    token = got[0].long()
    for row in torch.nonzero(token != ref[0].long()).flatten().tolist():
        chosen = int(token[row])
        if not 0 <= chosen < logits.shape[1]:
            return False, f"token: row {row} has {chosen}, which is no index"
        if not _may_draw(logits[row], float(temp[row]), int(top_k[row]), float(top_p[row]), float(u[row]), chosen):
            return False, f"token: row {row} has {chosen}, which the filters or the draw rule out"
    return True, ""


def _may_draw(logits: torch.Tensor, temp: float, top_k: int, top_p: float, u: float, chosen: int) -> bool:
    best = torch.sort(logits, descending=True, stable=True).indices[:top_k]
    mass = torch.softmax(logits[best].double() / temp, dim=0)
    before = mass.cumsum(0) - mass
    at = torch.nonzero(best == chosen).flatten()
    if at.numel() == 0 or float(before[at]) >= top_p + SLACK:
        return False
    kept = (before < top_p) | (best == chosen)
    total = mass[kept].sum()
    low = float(mass[kept & (best < chosen)].sum() / total)
    return low - SLACK <= u <= low + float(mass[at] / total) + SLACK
