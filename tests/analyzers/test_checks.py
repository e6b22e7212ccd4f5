"""Credit of checks: each value is derived from the rules by hand, as the comment or the name of the test says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from submissions import absent, host, joined, kernel, lack, op, present, program, report, unknown

from d2k.analyzers.checks import Evaluator, holds, holds_for_role
from d2k.analyzers.submission import Submission
from d2k.spec.audit import Interval
from d2k.spec.check import AllKernels, And, Check, Filter, Not, Op, Or, Term
from d2k.spec.facts import Body, Kind, Launch, Variant
from d2k.spec.finding import FileReport, Finding, FoundValue, Reason, Status, Why
from d2k.spec.vocabulary import Tier

STAGES_3 = Term("multistage_pipeline", (Filter("stages", Op.GE, (3,)),))
TILE = Term(
    "output_tiling",
    (Filter("block_m", Op.GE, (128,)), Filter("block_n", Op.GE, (128,)), Filter("block_k", Op.GE, (64,))),
)
PERSISTENT = Term("persistent_schedule")
ONLINE = Term("online_softmax")
FUSED = Term("epilogue_fusion")


def credit(check: Check, *reports: FileReport) -> Interval:
    return Evaluator(Submission(reports, ()), None).item(check).interval


class TestTerm:
    def test_absent_property_earns_nothing(self) -> None:
        assert credit(STAGES_3, report(absent("multistage_pipeline"))) == Interval(0, 0)

    def test_present_property_without_filters_earns_all(self) -> None:
        assert credit(PERSISTENT, report(present("persistent_schedule"))) == Interval(1, 1)

    def test_true_filter_earns_all(self) -> None:
        assert credit(STAGES_3, report(present("multistage_pipeline", {"stages": 3}))) == Interval(1, 1)

    def test_false_filter_leaves_half(self) -> None:
        # (1 + 0) / (1 + 1)
        assert credit(STAGES_3, report(present("multistage_pipeline", {"stages": 2}))) == Interval(0.5, 0.5)

    def test_two_of_three_filters(self) -> None:
        # (1 + 2) / (1 + 3)
        found = {"block_m": 128, "block_n": 64, "block_k": 64}
        assert credit(TILE, report(present("output_tiling", found))) == Interval(0.75, 0.75)

    def test_unknown_property_may_earn_anything(self) -> None:
        assert credit(STAGES_3, report(unknown("multistage_pipeline"))) == Interval(0, 1)

    def test_unknown_filter_counts_below_as_false_and_above_as_true(self) -> None:
        # block_m true, block_n false, block_k unknown: (1 + 1) / 4 to (1 + 2) / 4
        found = present("output_tiling", {"block_m": 128, "block_n": 64}, undecided={"block_k": "read at run time"})
        assert credit(TILE, report(found)) == Interval(0.5, 0.75)

    def test_attribute_that_nobody_mentions_is_unknown(self) -> None:
        assert credit(STAGES_3, report(present("multistage_pipeline", {}))) == Interval(0.5, 1)

    def test_filters_must_hold_for_one_finding(self) -> None:
        # 128 x 64 and 64 x 128 are no 128 x 128: each finding has three of four parts, no finding has four
        first = present("output_tiling", {"block_m": 128, "block_n": 64, "block_k": 64})
        second = present("output_tiling", {"block_m": 64, "block_n": 128, "block_k": 64})
        assert credit(TILE, report(joined(first, second))) == Interval(0.75, 0.75)

    def test_best_finding_of_a_variant_counts(self) -> None:
        few = present("multistage_pipeline", {"stages": 2})
        many = present("multistage_pipeline", {"stages": 4})
        assert credit(STAGES_3, report(joined(few, many))) == Interval(1, 1)

    def test_role_without_a_task_is_unknown(self) -> None:
        check = Term("shared_operand_reuse", (Filter("operand", Op.EQ, ("kv",)),))
        assert credit(check, report(present("shared_operand_reuse", {"operand": "k_ptr"}))) == Interval(0.5, 1)


class TestCombinations:
    def test_and_is_the_mean(self) -> None:
        # (1 + 0.5) / 2
        found = report(present("persistent_schedule"), present("multistage_pipeline", {"stages": 2}))
        assert credit(And((PERSISTENT, STAGES_3)), found) == Interval(0.75, 0.75)

    def test_and_of_known_and_unknown(self) -> None:
        found = report(present("persistent_schedule"), unknown("multistage_pipeline"))
        assert credit(And((PERSISTENT, STAGES_3)), found) == Interval(0.5, 1)

    def test_nested_and_is_one_mean(self) -> None:
        # one of three is present, however they are bracketed
        found = report(present("persistent_schedule"))
        third = pytest.approx(1 / 3)
        for check in (And((PERSISTENT, And((ONLINE, FUSED)))), And((And((PERSISTENT, ONLINE)), FUSED))):
            interval = credit(check, found)
            assert (interval.low, interval.high) == (third, third)

    def test_or_is_the_best(self) -> None:
        found = report(present("multistage_pipeline", {"stages": 2}))
        assert credit(Or((PERSISTENT, STAGES_3)), found) == Interval(0.5, 0.5)

    def test_or_with_an_unknown_part_may_be_more(self) -> None:
        found = report(present("multistage_pipeline", {"stages": 2}), unknown("persistent_schedule"))
        assert credit(Or((PERSISTENT, STAGES_3)), found) == Interval(0.5, 1)


class TestGuards:
    check = And((PERSISTENT, Not(STAGES_3)))

    def test_broken_guard_contradicts(self) -> None:
        found = report(present("persistent_schedule"), present("multistage_pipeline", {"stages": 3}))
        value = Evaluator(Submission((found,), ()), None).item(self.check)
        assert value.interval == Interval(0, 0)
        assert value.contradicted

    def test_guard_counts_only_when_all_of_it_holds(self) -> None:
        found = report(present("persistent_schedule"), present("multistage_pipeline", {"stages": 2}))
        value = Evaluator(Submission((found,), ()), None).item(self.check)
        assert value.interval == Interval(1, 1)
        assert not value.contradicted

    def test_guard_is_no_conjunct(self) -> None:
        # its absence earns nothing: the mean is over the positive part alone
        assert credit(self.check, report()) == Interval(0, 0)

    def test_unknown_guard_may_cost_everything(self) -> None:
        found = report(present("persistent_schedule"), unknown("multistage_pipeline"))
        value = Evaluator(Submission((found,), ()), None).item(self.check)
        assert value.interval == Interval(0, 1)
        assert not value.contradicted

    def test_another_kernel_may_keep_the_guard(self) -> None:
        found = report(
            joined(present("persistent_schedule", kernel="a"), present("persistent_schedule", kernel="b")),
            present("multistage_pipeline", {"stages": 3}, kernel="a"),
            kernels=(kernel("a"), kernel("b")),
        )
        value = Evaluator(Submission((found,), ()), None).item(self.check)
        assert value.interval == Interval(1, 1)
        assert not value.contradicted


class TestVariants:
    def test_the_whole_check_must_hold_in_one_kernel(self) -> None:
        # each kernel has one of two parts; the best kernel has half
        found = report(
            present("persistent_schedule", kernel="a"),
            present("online_softmax", kernel="b"),
            kernels=(kernel("a"), kernel("b")),
        )
        assert credit(And((PERSISTENT, ONLINE)), found) == Interval(0.5, 0.5)

    def test_worst_and_best_configuration(self) -> None:
        two = present("multistage_pipeline", {"stages": 2}, config="s2")
        four = present("multistage_pipeline", {"stages": 4}, config="s4")
        assert credit(STAGES_3, report(joined(two, four), kernels=(kernel(configs=("s2", "s4")),))) == Interval(0.5, 1)

    def test_configuration_without_a_finding_has_none(self) -> None:
        four = present("multistage_pipeline", {"stages": 4}, config="s4")
        assert credit(STAGES_3, report(four, kernels=(kernel(configs=("s1", "s4")),))) == Interval(0, 1)

    def test_configuration_in_which_the_property_is_unknown(self) -> None:
        four = present("multistage_pipeline", {"stages": 4}, config="s4")
        finding = Finding(
            four.id, four.status, Tier.SOURCE, four.instances, lacks=(lack("k", "s?", status=Status.UNKNOWN),)
        )
        value = Evaluator(Submission((report(finding, kernels=(kernel(configs=("s?", "s4")),)),), ()), None).item(
            STAGES_3
        )
        assert [one.interval for one in value.configs] == [Interval(0, 1), Interval(1, 1)]

    def test_best_kernel_counts(self) -> None:
        found = report(present("multistage_pipeline", {"stages": 4}, kernel="b"), kernels=(kernel("a"), kernel("b")))
        assert credit(STAGES_3, found) == Interval(1, 1)

    def test_instantiations_that_host_code_chose_count_as_kernels(self) -> None:
        # two launches with different constants: both run, so the better one counts; a tuner would run either
        labels = ("BLOCK=64", "BLOCK=128")
        found = report(present("persistent_schedule", config="BLOCK=128"), kernels=(kernel(configs=labels),))
        sites = ((("run", 1),), (("run", 2),))
        for chosen_by, expected in (("launch", Interval(1, 1)), ("autotune", Interval(0, 1))):
            variants = [
                Variant(label, {}, Launch(), Body((), ()), chosen_by, sites[0] if chosen_by == "autotune" else site)
                for label, site in zip(labels, sites, strict=True)
            ]
            submission = Submission((found,), (program(variants=variants),))
            assert Evaluator(submission, None).item(PERSISTENT).interval == expected

    def test_all_kernels_takes_the_worst_kernel(self) -> None:
        only_a = report(present("online_softmax", kernel="a"), kernels=(kernel("a"), kernel("b")))
        both = report(
            joined(present("online_softmax", kernel="a"), present("online_softmax", kernel="b")),
            kernels=(kernel("a"), kernel("b")),
        )
        assert credit(AllKernels(ONLINE), only_a) == Interval(0, 0)
        assert credit(AllKernels(ONLINE), both) == Interval(1, 1)

    def test_all_kernels_needs_a_kernel(self) -> None:
        assert credit(AllKernels(ONLINE), report(kernels=())) == Interval(0, 0)

    def test_program_scope_counts_with_any_kernel(self) -> None:
        chain = Term("op_chain_fusion", (Filter("launches", Op.LE, (1,)),))
        found = report(present("op_chain_fusion", {"launches": 1}, kernel=""), present("row_resident_tile"))
        assert credit(And((chain, Term("row_resident_tile"))), found) == Interval(1, 1)

    def test_program_scope_over_files(self) -> None:
        host_file = report(present("op_chain_fusion", kernel=""), path="a.py")
        device_file = report(path="b.cu")
        assert credit(Term("op_chain_fusion"), host_file, device_file) == Interval(1, 1)

    def test_kernel_that_is_not_launched_does_not_count(self) -> None:
        found = report(
            present("online_softmax", kernel="dead"), kernels=(kernel("live"), kernel("dead", launched=False))
        )
        assert credit(ONLINE, found) == Interval(0, 0)

    def test_kernel_launched_from_another_file_counts(self) -> None:
        summary = kernel("k", launched=False)
        exported = type(summary)("k", 1, 2, "triton", reachable=True, launched=False)
        found = report(present("online_softmax"), kernels=(exported,), path="kernels.py")
        launching = program(host("run", ("x",), op(Kind.LAUNCH, "kernels.k", 0, params=("x",), grid=0)), path="main.py")
        assert Evaluator(Submission((found,), (launching,)), None).item(ONLINE).interval == Interval(1, 1)
        assert Evaluator(Submission((found,), ()), None).item(ONLINE).interval == Interval(0, 0)


class TestNothingLaunched:
    def test_nothing_is_unknown_then(self) -> None:
        assert credit(ONLINE, report(unknown("online_softmax"), kernels=())) == Interval(0, 0)

    def test_unread_file_leaves_everything_open(self) -> None:
        problem = Why(Reason.NOT_ANALYZABLE, "syntax error")
        assert credit(ONLINE, report(kernels=(), problems=(problem,))) == Interval(0, 1)

    def test_idle_kernel_is_named(self) -> None:
        found = report(present("online_softmax", kernel="idle", line=7), kernels=(kernel("idle", launched=False),))
        value = Evaluator(Submission((found,), ()), None).item(ONLINE)
        why = value.worst.terms[0].observed.why
        assert value.interval == Interval(0, 0)
        assert why is not None and why.reason is Reason.DEAD_CODE and why.evidence[0].line == 7


def test_what_another_property_implies_counts_where_nothing_is_known() -> None:
    # `lazy_rescale` implies `online_softmax`
    assert credit(ONLINE, report(present("lazy_rescale"), unknown("online_softmax"))) == Interval(1, 1)
    assert credit(ONLINE, report(present("lazy_rescale"), absent("online_softmax"))) == Interval(0, 0)


@pytest.mark.parametrize(
    ("op_", "values", "found", "expected"),
    [
        (Op.EQ, (3,), 3, True),
        (Op.EQ, (True,), 1, False),
        (Op.EQ, (True,), True, True),
        (Op.NE, ("a",), "b", True),
        (Op.LT, (3,), 2, True),
        (Op.LT, (3,), 3, False),
        (Op.LE, (3,), 3, True),
        (Op.GT, (3,), 3, False),
        (Op.GE, (3,), 3, True),
        (Op.IN, ("wgmma", "tcgen05"), "mma_sync", False),
        (Op.IN, ("wgmma", "tcgen05"), "wgmma", True),
        (Op.HAS, ("bias", "gelu"), ("bias", "cast"), False),
        (Op.HAS, ("bias", "gelu"), ("gelu", "cast", "bias"), True),
        (Op.EQ, ("max", "sum"), ("sum", "max"), True),
    ],
)
def test_filters(op_: Op, values: tuple[int | str, ...], found: FoundValue, expected: bool) -> None:
    assert holds(Filter("x", op_, values), found) is expected


def test_role_filters() -> None:
    kv, query = frozenset({"K", "kv"}), frozenset({"Q", "query"})
    is_kv = Filter("operand", Op.EQ, ("kv",))
    assert holds_for_role(is_kv, [(kv,)]) is True
    assert holds_for_role(is_kv, [(query,)]) is False
    assert holds_for_role(is_kv, [(None,)]) is None
    # launched once with K and once with Q: true in some launches only
    assert holds_for_role(is_kv, [(kv, query)]) is None
    # two tensors were found, one of them is it
    assert holds_for_role(is_kv, [(query,), (kv,)]) is True
    assert holds_for_role(Filter("operand", Op.NE, ("kv",)), [(query,)]) is True
    assert holds_for_role(Filter("operand", Op.HAS, ("kv", "query")), [(query,), (kv,)]) is True
    assert holds_for_role(Filter("operand", Op.HAS, ("kv", "query")), [(kv,)]) is False


# ---- properties over arbitrary checks and findings --------------------------------------------------------------

NAMES = ("online_softmax", "persistent_schedule", "epilogue_fusion")
term_checks = st.one_of(
    st.sampled_from(NAMES).map(Term),
    st.integers(1, 4).map(lambda n: Term("multistage_pipeline", (Filter("stages", Op.GE, (n,)),))),
)
checks = st.recursive(
    term_checks,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
        st.tuples(inner, inner).map(lambda pair: And((pair[0], Not(pair[1])))),
        inner.map(AllKernels),
    ),
    max_leaves=6,
)
statuses = st.sampled_from(Status)
KERNELS = (kernel("a"), kernel("b", ("x", "y")))


@st.composite
def findings(draw: st.DrawFn) -> tuple[Finding, ...]:
    found = []
    for name in (*NAMES, "multistage_pipeline"):
        variants = [(k, c) for k, c in (("a", ""), ("b", "x"), ("b", "y")) if draw(st.booleans())]
        attributes = {"stages": draw(st.integers(1, 4))} if draw(st.booleans()) else {}
        if variants:
            found.append(joined(*(present(name, attributes, kernel=k, config=c) for k, c in variants)))
        else:
            found.append(unknown(name) if draw(st.booleans()) else absent(name))
    return tuple(found)


@given(checks, findings())
def test_interval_is_ordered_and_within_bounds(check: Check, found: tuple[Finding, ...]) -> None:
    interval = credit(check, report(*found, kernels=KERNELS))
    assert 0 <= interval.low <= interval.high <= 1


@given(checks, findings())
def test_order_of_kernels_does_not_matter(check: Check, found: tuple[Finding, ...]) -> None:
    forward = credit(check, report(*found, kernels=KERNELS))
    backward = credit(check, report(*found, kernels=tuple(reversed(KERNELS))))
    assert forward == backward
