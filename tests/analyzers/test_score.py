"""Scores by hand, and the properties that every score has."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2k.analyzers.root_causes import gain, next_steps, root_causes
from d2k.analyzers.score import Credit, gated_credits, score
from d2k.spec.vocabulary import Level


def item(
    identifier: str, low: float, *requires: str, high: float | None = None, weight: float = 1, free: bool = False
) -> Credit:
    """An item whose level stands in the first letter of its id: `a1` L1, `b1` L2, `c1` L3."""
    level = {"a": Level.L1, "b": Level.L2, "c": Level.L3}[identifier[0]]
    return Credit(identifier, level, weight, low, low if high is None else high, requires, free)


def off(credit: Credit) -> Credit:
    return replace(credit, applicable=False)


def test_weighted_mean_within_a_level_then_mean_over_levels() -> None:
    # L1 = 1, L2 = (2*1 + 1*0) / 3, L3 = 0.5
    found = score([item("a1", 1), item("b1", 1, weight=2), item("b2", 0), item("c1", 0.5)])
    assert found.L1 == 100
    assert pytest.approx(200 / 3) == found.L2
    assert found.L3 == 50
    assert found.combined == found.low == pytest.approx((100 + 200 / 3 + 50) / 3)


def test_upper_end_uses_the_upper_ends() -> None:
    # L1 0.5 to 1, L2 0 to 0.5
    found = score([item("a1", 0.5, high=1), item("b1", 0, high=0.5)])
    assert (found.low, found.high) == (25, 75)


def test_level_without_applicable_items_is_dropped_and_named() -> None:
    found = score([item("a1", 1), item("b1", 0), off(item("c1", 0))])
    assert found.combined == 50
    assert found.L3 is None
    assert found.dropped_levels == (Level.L3,)


def test_level_that_the_task_does_not_have_is_not_named() -> None:
    assert score([item("a1", 1)]).dropped_levels == ()


def test_nothing_applicable_is_null() -> None:
    found = score([off(item("a1", 1))])
    assert (found.combined, found.low, found.high, found.gated, found.free) == (None,) * 5


def test_gated_credit_is_cut_by_the_least_prerequisite() -> None:
    # c1: 1 * min(0.5, 1); d: 1 * 0.5
    credits = [item("a1", 0.5), item("a2", 1), item("b1", 1, "a1", "a2"), item("c1", 1, "b1")]
    assert gated_credits(credits) == {"a1": 0.5, "a2": 1, "b1": 0.5, "c1": 0.5}


def test_gates_multiply() -> None:
    credits = [item("a1", 0.5), item("b1", 0.5, "a1"), item("c1", 0.5, "b1")]
    assert gated_credits(credits)["c1"] == 0.125


def test_prerequisite_that_does_not_apply_is_replaced_by_its_own() -> None:
    credits = [item("a1", 0.5), off(item("b1", 0, "a1")), off(item("b2", 0, "b1")), item("c1", 1, "b2")]
    assert gated_credits(credits)["c1"] == 0.5
    assert gated_credits([off(item("a1", 0)), item("b1", 1, "a1")])["b1"] == 1


def test_free_part() -> None:
    # L1 = (1*1 + 3*1)/4 of which free 1/4; L2 has none: (25 + 0) / 2
    found = score([item("a1", 1, free=True), item("a2", 1, weight=3), item("b1", 1)])
    assert found.combined == 100
    assert found.free == 12.5


def test_root_cause_unlocks_what_waits_for_it() -> None:
    # L1 100, L2 0 of 1, L3 0 of 2; all three give 100/3 + 100/3
    credits = [item("a1", 1), item("b1", 0, "a1"), item("c1", 0, "b1"), item("c2", 0, "c1")]
    causes = root_causes(credits, {"b1", "c1", "c2"})
    assert [(one.id, one.unlocks) for one in causes] == [("b1", ("c1", "c2"))]
    assert causes[0].points == pytest.approx(200 / 3)


def test_an_implemented_item_between_ends_the_chain() -> None:
    credits = [item("a1", 0), item("b1", 1, "a1"), item("c1", 0, "b1")]
    assert root_causes(credits, {"a1", "c1"}) == ()


def test_an_item_that_does_not_apply_passes_the_chain_on() -> None:
    credits = [item("a1", 0), off(item("b1", 0, "a1")), item("c1", 0, "b1")]
    assert [(one.id, one.unlocks) for one in root_causes(credits, {"a1", "c1"})] == [("a1", ("c1",))]


def test_next_steps_are_ready_and_sorted_by_points() -> None:
    # L2: weight 1 of 4 is 25 of a level, a third of it combined; weight 3 at credit 0.5 gains 37.5
    credits = [item("a1", 1), item("b1", 0, "a1"), item("b2", 0.5, weight=3), item("c1", 0, "b1")]
    steps = next_steps(credits, {"b1", "c1"}, {"b2"}, {"b1": "do b1", "b2": "do b2", "c1": "do c1"})
    assert [(one.id, one.advice) for one in steps] == [("b2", "do b2"), ("b1", "do b1")]
    assert [one.points for one in steps] == [pytest.approx(12.5), pytest.approx(25 / 3)]


def test_equal_points_prefer_what_unlocks_more() -> None:
    credits = [item("b1", 0), item("b2", 0), item("c1", 0, "b2")]
    steps = next_steps(credits, {"b1", "b2", "c1"}, set(), dict.fromkeys(("b1", "b2", "c1"), ""))
    assert [one.id for one in steps] == ["b2", "b1"]


def test_gain_of_nothing_applicable_is_nothing() -> None:
    assert gain([off(item("a1", 0))], {"a1"}) == 0


# ---- properties ---------------------------------------------------------------------------------------------------

fractions = st.one_of(st.sampled_from((0.0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1.0)), st.floats(0, 1))


@st.composite
def credit_lists(draw: st.DrawFn) -> list[Credit]:
    """Items that require earlier ones of the same or a higher level."""
    found: list[Credit] = []
    for index in range(draw(st.integers(1, 9))):
        level = draw(st.sampled_from("abc"))
        earlier = [one.id for one in found if one.id[0] <= level]
        requires = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        low, high = sorted((draw(fractions), draw(fractions)))
        weight = draw(st.floats(0.01, 100))
        one = item(f"{level}{index}", low, *requires, high=high, weight=weight, free=draw(st.booleans()))
        found.append(one if draw(st.booleans()) else off(one))
    return found


@given(credit_lists())
def test_scores_are_within_bounds_and_ordered(credits: list[Credit]) -> None:
    found = score(credits)
    if found.low is None or found.high is None or found.gated is None or found.free is None:
        assert not any(one.applicable for one in credits)
        return
    assert 0 <= found.gated <= found.low <= found.high <= 100
    assert 0 <= found.free <= found.low


@given(credit_lists(), st.data())
def test_more_credit_never_lowers_a_score(credits: list[Credit], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(credits) - 1))
    improved = list(credits)
    improved[index] = replace(credits[index], low=1.0, high=1.0)
    before, after = score(credits), score(improved)
    for name in ("combined", "low", "high", "gated", "free", "L1", "L2", "L3"):
        old, new = getattr(before, name), getattr(after, name)
        assert (old is None) == (new is None)
        assert old is None or new >= old


@given(credit_lists(), st.randoms(use_true_random=False))
def test_order_of_items_does_not_matter(credits: list[Credit], shuffler: random.Random) -> None:
    shuffled = list(credits)
    shuffler.shuffle(shuffled)
    assert score(shuffled) == score(credits)
    assert gated_credits(shuffled) == gated_credits(credits)


@given(credit_lists())
def test_the_steps_of_a_plan_reach_every_missing_item(credits: list[Credit]) -> None:
    # implementing what is ready, again and again, ends with nothing missing: the graph is never stuck
    missing = {one.id for one in credits if one.applicable and one.low == 0}
    for _ in range(len(credits) + 1):
        ready = {step.id for step in next_steps(credits, missing, (), {one.id: "" for one in credits})}
        assert ready <= missing
        if not ready:
            break
        missing -= ready
    assert not missing
