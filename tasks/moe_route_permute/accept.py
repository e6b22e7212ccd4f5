"""Judge of moe_route_permute: a near-tie may fall either way; everything else must follow from the submission's ids."""

import torch

GAP = 1e-6
SCALE = 2.5


def accept(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, int],
    got: tuple[torch.Tensor, ...],
    ref: tuple[torch.Tensor, ...],
) -> tuple[bool, str]:
    """inputs (logits, bias, x, groups, kept), got and ref (topk_ids, topk_w, offs, perm_x, src) -> (accepted, reason).

    `ref` is not needed: what is right follows from the inputs and the ids.
    """
    logits, bias, x, groups, kept = inputs
    ids, weights, offs, perm_x, src = got
    experts, k = logits.shape[1], ids.shape[1]
    chosen = ids.long()
    if int(chosen.min()) < 0 or int(chosen.max()) >= experts:
        return False, "topk_ids: an entry is no expert"
    if bool((chosen.sort(dim=-1).values.diff(dim=-1) == 0).any()):
        return False, "topk_ids: a token has the same expert twice"
    activation = torch.sigmoid(logits.double())
    wrong = torch.nonzero(~_is_best(activation + bias.double(), chosen, groups, kept)).flatten()
    if wrong.numel():
        return False, f"topk_ids: token {int(wrong[0])} has experts that are not its best by more than {GAP}"
    picked = activation.gather(1, chosen)
    expected = picked / picked.sum(dim=-1, keepdim=True) * SCALE
    if not torch.allclose(weights.double(), expected, rtol=1e-4, atol=1e-6):
        return False, "topk_w: not the normalised activations of the experts in topk_ids"
    flat = chosen.flatten()
    ends = torch.bincount(flat, minlength=experts).cumsum(0)
    if not torch.equal(offs.long(), torch.cat([ends.new_zeros(1), ends])):
        return False, "offs: not the counts of topk_ids"
    order = torch.argsort(flat, stable=True)
    if not torch.equal(src.long(), order):
        return False, "src: not the order (expert, token, slot) of topk_ids"
    if not torch.equal(perm_x, x[order // k]):
        return False, "perm_x: a row is not the token that src names"
    return True, ""


def _is_best(choice: torch.Tensor, chosen: torch.Tensor, groups: int, kept: int) -> torch.Tensor:
    """For each token whether `chosen` [T, k] is a right answer if scores `choice` [T, E] may be off by the gap."""
    tokens, experts = choice.shape
    size = experts // groups
    score = choice.view(tokens, groups, size).topk(min(2, size), dim=-1).values.sum(-1)
    ranked = score.sort(dim=-1, descending=True).values
    limit = ranked[:, kept - 1 : kept]
    above = ranked[:, kept : kept + 1] if kept < groups else torch.full_like(limit, float("-inf"))
    used = torch.zeros_like(score, dtype=torch.bool).scatter_(1, chosen // size, True)
    groups_fit = (~used | (score >= limit - GAP)).all(-1) & (used.sum(-1) <= kept)
    picked = choice.gather(1, chosen)
    descending = (picked[:, :-1] >= picked[:, 1:] - GAP).all(-1)
    # An expert that was left out must not beat the weakest chosen one, if its group is kept beyond doubt.
    surely = (score > above + GAP).repeat_interleave(size, dim=1)
    left_out = surely.scatter(1, chosen, False)
    best_left = torch.where(left_out, choice, float("-inf")).amax(-1)
    return groups_fit & descending & (best_left <= picked.amin(-1) + GAP)
