"""Verdicts, reasons and scores of whole audits."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from submissions import (
    absent,
    evidence,
    host,
    joined,
    kernel,
    op,
    present,
    program,
    report,
    task,
    tensor,
    unknown,
)

from d2k.analyzers.audit import audit
from d2k.spec.audit import Audit, Interval, ItemAudit, Verdict
from d2k.spec.check import And, Check, Filter, Not, Op, Or, Term
from d2k.spec.facts import Kind
from d2k.spec.finding import FileReport, Finding, GuardFinding, Reason, Why
from d2k.spec.guidance import Accepted, Item
from d2k.spec.vocabulary import Level

STAGES_3 = Term("multistage_pipeline", (Filter("stages", Op.GE, (3,)),))
LOAD = Term("tma_bulk_copy", (Filter("direction", Op.HAS, ("load",)),))


def item(identifier: str, check: Check | str, *requires: str, **fields: object) -> Item:
    """An item whose level stands in the first letter of its id: `a…` L1, `b…` L2, `c…` L3."""
    level = {"a": Level.L1, "b": Level.L2, "c": Level.L3}[identifier[0]]
    term = Term(check) if isinstance(check, str) else check
    return msgspec.structs.replace(Item(identifier, level, f"Title of {identifier}", term, requires), **fields)


@dataclass(frozen=True)
class Case:
    audit: Audit

    def __getitem__(self, identifier: str) -> ItemAudit:
        return next(one for one in self.audit.items if one.id == identifier)


def run(items: tuple[Item, ...], *reports: FileReport, target: str = "sm_100a", workload: str | None = None) -> Case:
    return Case(audit(task(*items), reports, (), target, workload))


# the guidance of the sketch in the design: a chain with two items that wait for the pipeline
CHAIN = (
    item("a_reuse", "online_softmax"),
    item("b_tile", Term("output_tiling", (Filter("block_m", Op.GE, (128,)),)), "a_reuse"),
    item("b_pipeline", STAGES_3, "b_tile"),
    item("c_tma", LOAD, "b_pipeline"),
    item("c_lazy", "lazy_rescale", "b_tile"),
)


class TestVerdicts:
    found = report(
        present("online_softmax", line=57, text="running max and sum over KV blocks"),
        present("output_tiling", {"block_m": 128, "block_n": 64}, line=31),
        absent("multistage_pipeline", Reason.WRONG_PARAMETER, "num_stages=1", line=18),
        unknown("lazy_rescale", "helper `rescale` is not known"),
    )
    case = run(CHAIN, found)

    def test_each(self) -> None:
        assert {one.id: one.verdict for one in self.case.audit.items} == {
            "a_reuse": Verdict.IMPLEMENTED,
            "b_tile": Verdict.IMPLEMENTED,
            "b_pipeline": Verdict.MISSING,
            "c_tma": Verdict.MISSING,
            "c_lazy": Verdict.UNKNOWN,
        }

    def test_score(self) -> None:
        # L1 1, L2 1/2, L3 0 (to 1/2): 50, up to (100 + 50 + 50) / 3
        score = self.case.audit.score
        assert (score.L1, score.L2, score.L3) == (100, 50, 0)
        assert score.combined == score.low == 50
        assert score.high == pytest.approx(200 / 3)
        assert score.gated == 50

    def test_facts_in_words(self) -> None:
        assert self.case["a_reuse"].fact == "running max and sum over KV blocks"
        assert self.case["b_tile"].fact == "block_m 128"
        assert self.case["b_pipeline"].fact == "num_stages=1"
        assert (
            self.case["c_tma"].fact
            == "no trace of bulk copies by the tensor-memory accelerator; requires b_pipeline (missing)"
        )
        assert self.case["c_lazy"].fact == "helper `rescale` is not known"

    def test_reasons(self) -> None:
        assert [one.reason for one in self.case["b_pipeline"].reasons] == [Reason.WRONG_PARAMETER]
        assert [one.reason for one in self.case["c_tma"].reasons] == [Reason.NO_TRACE, Reason.PREREQUISITE_MISSING]
        assert self.case["c_tma"].reasons[1].detail == "b_pipeline"
        assert [one.reason for one in self.case["c_lazy"].reasons] == [Reason.NOT_ANALYZABLE]
        assert self.case["a_reuse"].reasons == ()

    def test_evidence(self) -> None:
        assert [one.line for one in self.case["a_reuse"].evidence] == [57]
        assert [one.line for one in self.case["b_pipeline"].reasons[0].evidence] == [18]

    def test_root_cause_and_next_step(self) -> None:
        # the pipeline is half of L2 (50/3 points), and half of L3 waits for it (50/3 more)
        causes = self.case.audit.root_causes
        assert [(one.id, one.unlocks) for one in causes] == [("b_pipeline", ("c_tma",))]
        assert causes[0].points == pytest.approx(100 / 3, abs=1e-5)
        steps = self.case.audit.next_steps
        assert [one.id for one in steps] == ["b_pipeline"]
        assert steps[0].points == pytest.approx(50 / 3, abs=1e-5)
        assert steps[0].advice == "Title of b_pipeline at kernel.py:18"

    def test_json_round_trip(self) -> None:
        text = msgspec.json.encode(self.case.audit)
        assert msgspec.json.decode(text, type=Audit) == self.case.audit


class TestPartial:
    def test_wrong_parameter_says_expected_and_found(self) -> None:
        case = run((item("b", STAGES_3),), report(present("multistage_pipeline", {"stages": 2}, line=18)))
        assert case["b"].verdict is Verdict.PARTIAL
        assert case["b"].credit == 0.5
        assert case["b"].fact == "stages 2, needs stages >= 3"
        (why,) = case["b"].reasons
        assert (why.reason, why.detail, why.evidence[0].line) == (
            Reason.WRONG_PARAMETER,
            "stages 2, needs stages >= 3",
            18,
        )
        assert case.audit.next_steps[0].advice == "multistage_pipeline with stages >= 3 at kernel.py:18"

    def test_only_the_missing_members_of_a_set_are_asked_for(self) -> None:
        check = Term("epilogue_fusion", (Filter("ops", Op.HAS, ("bias", "gelu")),))
        case = run((item("a", check),), report(present("epilogue_fusion", {"ops": ("bias", "cast")})))
        assert case["a"].fact == "ops {bias, cast}, needs gelu"

    def test_half_of_an_and(self) -> None:
        case = run((item("b", And((STAGES_3, Term("persistent_schedule")))),), report(present("persistent_schedule")))
        assert case["b"].verdict is Verdict.PARTIAL
        assert case["b"].credit == 0.5
        assert [one.reason for one in case["b"].reasons] == [Reason.NO_TRACE]

    def test_part_known_part_unknown_is_unknown_when_it_may_be_whole(self) -> None:
        found = report(present("multistage_pipeline", {}, undecided={"stages": "chosen at run time"}))
        case = run((item("b", STAGES_3),), found)
        assert case["b"].verdict is Verdict.UNKNOWN
        assert case["b"].interval == Interval(0.5, 1)
        assert case["b"].fact == "stages is not known: chosen at run time"

    def test_part_known_to_fail_is_partial_whatever_the_rest(self) -> None:
        # one of two is missing, the other unknown to be whole: at most (1 + 0) / 2, at least (0.5 + 0) / 2
        found = report(present("multistage_pipeline", {}))
        case = run((item("b", And((STAGES_3, Term("persistent_schedule")))),), found)
        assert case["b"].verdict is Verdict.PARTIAL
        assert case["b"].interval == Interval(0.25, 0.5)


class TestConfigurations:
    def test_numbers_of_all_configurations(self) -> None:
        check = Term("output_tiling", (Filter("block_n", Op.GE, (64,)),))
        found = joined(
            present("output_tiling", {"block_n": 64}, config="a", line=30),
            present("output_tiling", {"block_n": 128}, config="b", line=31),
        )
        case = run((item("b", check),), report(found, kernels=(kernel(configs=("a", "b")),)))
        assert case["b"].verdict is Verdict.IMPLEMENTED
        assert case["b"].fact == "block_n {64, 128}"
        assert [one.line for one in case["b"].evidence] == [30, 31]

    def test_some_configurations_only(self) -> None:
        found = joined(
            present("multistage_pipeline", {"stages": 2}, config="a"),
            present("multistage_pipeline", {"stages": 4}, config="b"),
        )
        case = run((item("b", STAGES_3),), report(found, kernels=(kernel(configs=("a", "b")),)))
        assert case["b"].verdict is Verdict.UNKNOWN
        assert case["b"].interval == Interval(0.5, 1)
        assert case["b"].fact == "in 1 of 2 configurations; elsewhere stages 2, needs stages >= 3"


class TestNotApplicable:
    def test_hardware(self) -> None:
        only_blackwell = item(
            "c", "tmem_accumulator", applies={"sm100": ("small", "large"), "sm90": ()}, when="arch has tcgen05"
        )
        case = run((item("a", "online_softmax"), only_blackwell), report(), target="sm_90a")
        assert case["c"].verdict is Verdict.NOT_APPLICABLE
        assert case["c"].fact == "sm_90a has no tcgen05 and no tmem"
        assert [one.reason for one in case["c"].reasons] == [Reason.HARDWARE_UNSUPPORTED]
        assert case.audit.score.dropped_levels == (Level.L3,)
        assert run((only_blackwell,), report())["c"].verdict is Verdict.MISSING

    def test_workload(self) -> None:
        small_only = item("b", "swap_ab", applies={"sm100": ("small",)}, when="M <= 64")
        assert run((small_only,), report())["b"].verdict is Verdict.MISSING
        assert run((small_only,), report(), workload="small")["b"].verdict is Verdict.MISSING
        case = run((small_only,), report(), workload="large")
        assert case["b"].verdict is Verdict.NOT_APPLICABLE
        assert case["b"].fact == "only when M <= 64"
        assert case.audit.score.combined is None

    def test_given(self) -> None:
        waits = item("b", "smem_histogram", given=Term("decoupled_lookback"))
        assert run((waits,), report())["b"].verdict is Verdict.NOT_APPLICABLE
        assert run((waits,), report(present("decoupled_lookback")))["b"].verdict is Verdict.MISSING
        assert run((waits,), report(unknown("decoupled_lookback")))["b"].verdict is Verdict.MISSING
        assert run((waits,), report())["b"].fact == "only given decoupled_lookback"

    def test_given_not_denies_every_kernel(self) -> None:
        # the second kernel has no block scaling, but the submission has
        unscaled = item("c", "fp32_accumulate", given=Not(Term("block_scaled_mma")))
        found = report(present("block_scaled_mma", kernel="a"), kernels=(kernel("a"), kernel("b")))
        assert run((unscaled,), found)["c"].verdict is Verdict.NOT_APPLICABLE
        assert run((unscaled,), report())["c"].verdict is Verdict.MISSING


class TestAcceptAndGuards:
    tanh = item(
        "c",
        Term("fast_math_intrinsics", (Filter("fn", Op.HAS, ("tanh",)),)),
        accept=(Accepted(Term("fast_math_intrinsics", (Filter("fn", Op.HAS, ("exp",)),)), "it is the same function"),),
    )

    def test_an_accepted_design_earns_all_and_says_why(self) -> None:
        case = run((self.tanh,), report(present("fast_math_intrinsics", {"fn": ("exp",)}, text="exp of 2u")))
        assert case["c"].verdict is Verdict.IMPLEMENTED
        assert case["c"].fact == "exp of 2u (accepted: it is the same function)"

    def test_the_check_itself_needs_no_excuse(self) -> None:
        case = run((self.tanh,), report(present("fast_math_intrinsics", {"fn": ("tanh",)}, text="tanh.approx")))
        assert case["c"].fact == "tanh.approx"

    def test_contradicted(self) -> None:
        check = And((Term("persistent_schedule"), Not(Term("l2_raster_swizzle"))))
        case = run((item("b", check),), report(present("persistent_schedule"), present("l2_raster_swizzle")))
        assert case["b"].verdict is Verdict.CONTRADICTED
        assert case["b"].interval == Interval(0, 0)
        assert case["b"].fact == "has l2_raster_swizzle, which the check rules out"

    def test_the_nearer_alternative_explains(self) -> None:
        check = Or((Term("persistent_schedule"), STAGES_3))
        near = absent("multistage_pipeline", Reason.WRONG_PARAMETER, "num_stages=1", line=18)
        assert run((item("b", check),), report(near))["b"].fact == "num_stages=1"


class TestNothingLaunched:
    def test_every_item_is_missing_and_the_score_is_zero(self) -> None:
        guidance = (*CHAIN, item("b_given", "smem_histogram", given=Term("decoupled_lookback")))
        found = report(present("online_softmax", kernel="old"), kernels=(kernel("old", launched=False),))
        case = run(guidance, found)
        assert {one.verdict for one in case.audit.items} == {Verdict.MISSING}
        assert (case.audit.score.low, case.audit.score.high) == (0, 0)
        assert case["a_reuse"].reasons[0].reason is Reason.DEAD_CODE
        assert "nothing launches `old`" in case.audit.problems[0].detail

    def test_a_library_did_it(self) -> None:
        guard = GuardFinding("library_delegation", "suspected", "torch.matmul does all of it", (evidence(4, "matmul"),))
        case = run(CHAIN, report(kernels=(), guards=(guard,)))
        assert case["a_reuse"].reasons[0] == Why(Reason.DELEGATED_TO_LIBRARY, guard.detail, guard.evidence)

    def test_a_file_that_does_not_parse_is_unknown(self) -> None:
        problem = Why(Reason.NOT_ANALYZABLE, "syntax error", (evidence(3, "def f(:"),))
        case = run(CHAIN, report(kernels=(), problems=(problem,)))
        assert {one.verdict for one in case.audit.items} == {Verdict.UNKNOWN}
        assert (case.audit.score.low, case.audit.score.high) == (0, 100)
        assert case["a_reuse"].reasons[0] == problem


def test_roles_bind_through_the_task() -> None:
    check = And(
        (
            Term("tma_bulk_copy", (Filter("tensor", Op.EQ, ("activation",)),)),
            Term("tma_bulk_copy", (Filter("tensor", Op.EQ, ("weight",)),)),
        )
    )
    spec = task(item("c", check), tensors=(tensor("A", "activation"), tensor("W", "weight")))
    code = program(
        host("run", ("p", "q"), op(Kind.LAUNCH, "k", 0, 1, params=("a_desc", "b_desc"), grid=0)),
        params=("a_desc", "b_desc"),
    )
    one = report(present("tma_bulk_copy", {"tensor": "b_desc"}))
    two = report(joined(present("tma_bulk_copy", {"tensor": "a_desc"}), present("tma_bulk_copy", {"tensor": "b_desc"})))
    # only W: the first conjunct has its property, but not its filter: (1/2 + 1) / 2
    assert audit(spec, (one,), (code,), "sm_100a").items[0].credit == 0.75
    assert audit(spec, (two,), (code,), "sm_100a").items[0].verdict is Verdict.IMPLEMENTED
    # without host code nothing can be bound: (1/2 + 1/2) / 2 for certain, all of it perhaps
    assert audit(spec, (two,), (), "sm_100a").items[0].interval == Interval(0.5, 1)


def test_guards_of_several_files_are_one_list() -> None:
    first = GuardFinding("library_delegation", "absent")
    second = GuardFinding("library_delegation", "suspected", "torch.matmul", (evidence(3, "matmul", "b.py"),))
    case = run(CHAIN, report(guards=(first,)), report(path="b.py", guards=(second,), kernels=()))
    assert case.audit.guards == (second,)


# ---- properties ---------------------------------------------------------------------------------------------------

PROPERTIES = {"a": "online_softmax", "b": "persistent_schedule", "c": "lazy_rescale"}
NAMES = ("a1", "a2", "b1", "b2", "c1", "c2")
CHECKS = dict(
    zip(
        NAMES,
        (
            "online_softmax",
            "epilogue_fusion",
            "persistent_schedule",
            "l2_raster_swizzle",
            "tma_bulk_copy",
            "packed_math",
        ),
        strict=True,
    )
)


@st.composite
def guidance(draw: st.DrawFn) -> tuple[Item, ...]:
    found: list[Item] = []
    for name in NAMES:
        requires = draw(st.lists(st.sampled_from([one.id for one in found]), unique=True)) if found else []
        found.append(item(name, CHECKS[name], *requires, weight=draw(st.floats(0.1, 10)), free=draw(st.booleans())))
    return tuple(found)


present_sets = st.frozensets(st.sampled_from(NAMES))


def findings(names: frozenset[str]) -> tuple[Finding, ...]:
    return tuple(present(CHECKS[name]) for name in sorted(names))


@given(guidance(), present_sets, st.sampled_from(NAMES))
def test_implementing_one_more_item_never_lowers_a_score(
    items: tuple[Item, ...], there: frozenset[str], more: str
) -> None:
    before = run(items, report(*findings(there))).audit.score
    after = run(items, report(*findings(there | {more}))).audit.score
    for name in ("combined", "low", "high", "gated", "L1", "L2", "L3"):
        assert getattr(after, name) >= getattr(before, name)


@given(guidance(), present_sets, st.permutations(range(len(NAMES))))
def test_order_of_items_does_not_matter(items: tuple[Item, ...], there: frozenset[str], order: list[int]) -> None:
    found = report(*findings(there))
    forward = run(items, found).audit
    shuffled = run(tuple(items[index] for index in order), found).audit
    assert shuffled.score == forward.score
    assert {one.id: one for one in shuffled.items} == {one.id: one for one in forward.items}
    assert {one.id: one.points for one in shuffled.next_steps} == {one.id: one.points for one in forward.next_steps}


@given(guidance(), present_sets)
def test_next_steps_keep_their_promise(items: tuple[Item, ...], there: frozenset[str]) -> None:
    before = run(items, report(*findings(there))).audit
    for step in before.next_steps:
        after = run(items, report(*findings(there | {step.id}))).audit.score
        assert after.combined is not None and before.score.combined is not None
        assert after.combined - before.score.combined == pytest.approx(step.points, abs=1e-5)
