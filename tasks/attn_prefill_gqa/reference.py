"""Reference of attn_prefill_gqa in float64: softmax attention by head and by block of queries."""

import math

import torch

QUERIES = 1024  # query rows per step: the score matrix of a whole head would not fit


def run(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Q [B, S, Hq, D], K and V [B, S, Hk, D] -> (O [B, S, Hq, D], LSE [B, Hq, S]), both float32.

    LSE is the natural logarithm of the sum of exp(score / sqrt(D)); query head h reads key head h * Hk // Hq.
    """
    B, S, Hq, D = Q.shape
    Hk = K.shape[2]
    O = torch.empty(B, S, Hq, D, dtype=torch.float32, device=Q.device)
    LSE = torch.empty(B, Hq, S, dtype=torch.float32, device=Q.device)
    for b in range(B):
        for head in range(Hq):
            k = K[b, :, head * Hk // Hq].double()
            v = V[b, :, head * Hk // Hq].double()
            for start in range(0, S, QUERIES):
                end = min(start + QUERIES, S)
                visible = end if is_causal else S
                scores = Q[b, start:end, head].double() @ k[:visible].T / math.sqrt(D)
                if is_causal:
                    future = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=start + 1)
                    scores.masked_fill_(future, -math.inf)
                lse = torch.logsumexp(scores, dim=-1)
                O[b, start:end, head] = (torch.exp(scores - lse[:, None]) @ v[:visible]).float()
                LSE[b, head, start:end] = lse.float()
    return O, LSE
