"""Judges of selections and packed formats: what is right passes, what is wrong fails, ties may fall either way."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

import d2k

torch = pytest.importorskip("torch")

TASKS = Path(d2k.__file__).parent / "tasks"


def judge(name: str) -> Callable[..., tuple[bool, str]]:
    spec = importlib.util.spec_from_file_location(f"{name}_accept", TASKS / name / "accept.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., tuple[bool, str]] = module.accept
    return found


# ---- sampling --------------------------------------------------------------------------------------------------------

# Probabilities 0.1, 0.4, 0.2, 0.3 of four words.
LOGITS = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()


def sampled(token: int, reference: int, u: float, top_k: int = 4, top_p: float = 1.0) -> tuple[bool, str]:
    inputs = (LOGITS, torch.ones(1), torch.tensor([top_k]), torch.tensor([top_p]), torch.tensor([u]))
    return judge("topk_topp_sampling")(inputs, (torch.tensor([token]),), (torch.tensor([reference]),))


def test_the_reference_token_passes() -> None:
    assert sampled(2, 2, u=0.6)[0]


def test_a_token_passes_if_its_interval_touches_u() -> None:
    # In index order the intervals end at 0.1, 0.5, 0.7 and 1.0.
    assert sampled(1, 2, u=0.5)[0] and sampled(2, 1, u=0.5)[0]
    assert not sampled(0, 1, u=0.5)[0]
    assert not sampled(3, 2, u=0.6)[0]


def test_filtered_tokens_fail() -> None:
    # The two best are words 1 and 3, with 4/7 and 3/7 of what is kept.
    assert not sampled(2, 1, u=0.5, top_k=2)[0]
    assert sampled(3, 1, u=0.571428, top_k=2)[0]
    # A mass of 0.7 needs words 1 and 3 only, if at all more than slack.
    assert not sampled(2, 1, u=0.5, top_p=0.69)[0]


def test_no_index_fails() -> None:
    ok, reason = sampled(4, 1, u=0.2)
    assert not ok and "no index" in reason
    assert not sampled(-1, 1, u=0.2)[0]


# ---- routing ---------------------------------------------------------------------------------------------------------

Outputs = tuple[torch.Tensor, ...]


def routed(logits: torch.Tensor, x: torch.Tensor, ids: list[list[int]]) -> Outputs:
    """All outputs that follow from some ids."""
    chosen = torch.tensor(ids)
    tokens, k = chosen.shape
    s = torch.sigmoid(logits.double()).gather(1, chosen)
    pairs = sorted((int(chosen[t, slot]), t, slot) for t in range(tokens) for slot in range(k))
    src = torch.tensor([t * k + slot for _, t, slot in pairs], dtype=torch.int32)
    experts = logits.shape[1]
    offs = torch.tensor([sum(e < one for e, _, _ in pairs) for one in range(experts + 1)], dtype=torch.int32)
    return chosen.int(), (s / s.sum(-1, keepdim=True) * 2.5).float(), offs, x[src.long() // k], src


# Two groups of three experts, two kept experts of one kept group.
ROUTER = torch.tensor([[2.0, 1.0, -9.0, 1.9, 0.5, -9.0], [0.0, 3.0, 1.0, 2.0, 2.0, -1.0]])
ROWS = torch.arange(8.0).view(2, 4)
ZERO = torch.zeros(6)


def judged(outputs: Outputs, logits: torch.Tensor = ROUTER) -> tuple[bool, str]:
    return judge("moe_route_permute")((logits, ZERO, ROWS, 2, 1), outputs, outputs)


def test_the_best_experts_of_the_best_group_pass() -> None:
    # Row 0: group 0 has sigmoids .88 + .73 against .87 + .62. Row 1: group 1 has .88 + .88 against .95 + .73.
    assert judged(routed(ROUTER, ROWS, [[0, 1], [3, 4]])) == (True, "")


def test_ties_may_fall_either_way() -> None:
    assert judged(routed(ROUTER, ROWS, [[0, 1], [4, 3]]))[0]
    tied = ROUTER.clone()
    tied[0, 2] = tied[0, 1]
    assert judged(routed(tied, ROWS, [[0, 2], [3, 4]]), tied)[0]


@pytest.mark.parametrize(
    "ids",
    [
        [[0, 3], [3, 4]],  # best of all, but from two groups
        [[3, 4], [3, 4]],  # the other group
        [[1, 0], [3, 4]],  # not in descending order
        [[0, 2], [3, 4]],  # a better one left out
        [[0, 0], [3, 4]],  # twice the same
    ],
)
def test_other_experts_fail(ids: list[list[int]]) -> None:
    ok, reason = judged(routed(ROUTER, ROWS, ids))
    assert not ok and reason.startswith("topk_ids")


@pytest.mark.parametrize(("at", "name"), [(1, "topk_w"), (2, "offs"), (3, "perm_x"), (4, "src")])
def test_everything_else_must_follow_from_the_ids(at: int, name: str) -> None:
    outputs = [one.clone() for one in routed(ROUTER, ROWS, [[0, 1], [3, 4]])]
    outputs[at].view(-1)[1] += 1
    ok, reason = judged(tuple(outputs))
    assert not ok and reason.startswith(name)


def test_an_entry_that_is_no_expert_fails() -> None:
    outputs = [one.clone() for one in routed(ROUTER, ROWS, [[0, 1], [3, 4]])]
    outputs[0][0, 0] = 6
    assert not judged(tuple(outputs))[0]


# ---- packed formats --------------------------------------------------------------------------------------------------

M, WIDTH = 129, 144  # nine blocks a row: tiles of 128 x 4 scales are padded in both directions
INPUTS = (torch.zeros(M, 2 * WIDTH), torch.ones(1))


def quantised() -> tuple[torch.Tensor, torch.Tensor]:
    """Codes with low nibble 1 and high nibble 10, and all scales 0x38 (1.0) in their places."""
    scales = torch.zeros(256 * 12, dtype=torch.uint8)
    for m in range(M):
        for j in range(9):
            # Two rows of three tiles, of 512 scales each.
            scales[((m // 128) * 3 + j // 4) * 512 + (m % 32) * 16 + (m % 128 // 32) * 4 + j % 4] = 0x38
    return torch.full((M, WIDTH // 2), 0xA1, dtype=torch.uint8), scales


def packed(codes: torch.Tensor, scales: torch.Tensor) -> tuple[bool, str]:
    ref = quantised()
    view = torch.float8_e4m3fn
    return judge("silu_mul_nvfp4_quant")(INPUTS, (codes, scales.view(view)), (ref[0], ref[1].view(view)))


def test_equal_codes_and_scales_pass() -> None:
    assert packed(*quantised()) == (True, "")


def test_few_codes_may_be_one_level_off() -> None:
    codes, scales = quantised()
    codes[:1] = 0xA2  # 72 of 18576 codes
    assert packed(codes, scales)[0]
    codes[:4] = 0xA2  # 288, more than a hundredth
    assert not packed(codes, scales)[0]
    codes, scales = quantised()
    codes[0, 0] = 0xA3  # two levels
    assert not packed(codes, scales)[0]


def test_both_zeros_are_one_value_and_signs_count() -> None:
    codes, scales = quantised()
    codes[0, 0] = 0xA8  # minus zero is next to the first positive code
    assert packed(codes, scales)[0]
    codes[0, 0] = 0x21  # plus instead of minus
    assert not packed(codes, scales)[0]


def test_scales_may_be_off_by_one_code_once_in_a_thousand() -> None:
    codes, scales = quantised()
    scales[0] = 0x39
    codes[0, :8] = 0  # codes of a block with another scale are not compared
    assert packed(codes, scales)[0]
    scales[0] = 0x3A
    assert not packed(codes, scales)[0]
    scales[0] = 0x38
    scales[16:48:16] = 0x39  # two of 1161
    assert not packed(codes, scales)[0]


def test_padding_must_be_zero() -> None:
    codes, scales = quantised()
    empty = int((scales == 0).nonzero()[0])
    scales[empty] = 0x38
    ok, reason = packed(codes, scales)
    assert not ok and "padding" in reason
