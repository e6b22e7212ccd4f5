"""The 26 tasks: they compile without a warning, have the figures that the design derives, and hold its corrections."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import d2k
from d2k.compiler.compile import Compiled, load_task
from d2k.compiler.format import format_text
from d2k.spec.check import Check, Op, Term, terms
from d2k.spec.device import bound, devices, floor
from d2k.spec.guidance import Item
from d2k.spec.task import Direction, Task
from d2k.spec.vocabulary import Level, vocabulary

TASKS = Path(d2k.__file__).parent / "tasks"
NAMES = sorted(one.parent.name for one in TASKS.glob("*/task.d2k"))
# A task without a reference or a baseline cannot be measured yet; that is a warning, and the only one allowed.
UNFINISHED = {"D2K0804", "D2K0805"}
every_task = pytest.mark.parametrize("name", NAMES)


@cache
def compiled(name: str) -> Compiled:
    return load_task(TASKS / name / "task.d2k")


def task(name: str) -> Task:
    found = compiled(name).task
    assert found is not None, [one.message for one in compiled(name).diagnostics]
    return found


def item(name: str, identifier: str) -> Item:
    return task(name).item(identifier)


def checks(one: Item) -> tuple[Check, ...]:
    return (one.check, *(accepted.check for accepted in one.accept), *((one.given,) if one.given else ()))


def used(one: Item) -> set[str]:
    return {term.property for check in checks(one) for term in terms(check)}


def test_there_are_26_tasks_with_85_workloads_to_measure() -> None:
    assert len(NAMES) == 26
    assert sum(not one.held_out for name in NAMES for one in task(name).workloads) == 85


@every_task
def test_a_task_compiles_without_complaint(name: str) -> None:
    assert task(name).id == name
    assert {one.code for one in compiled(name).diagnostics} <= UNFINISHED


@every_task
def test_bytes_are_written_out_and_so_held_against_what_the_tensors_move(name: str) -> None:
    assert task(name).cost.bytes
    for workload in task(name).workloads:
        moved = {one.name: one.moved_bytes for one in workload.tensors}
        sides = Counter[bool]()
        for tensor in task(name).arguments:
            sides[tensor.direction is Direction.INPUT] += moved[tensor.name]
        assert workload.bytes == sides[True] + sides[False]
        assert (workload.bytes_read, workload.bytes_written) == (sides[True], sides[False])


FIGURES = [
    # 2 * 4096 * 12288 * 3072 + 12 * 4096 * 12288; 2 * (4096 * 3072 + 12288 * 3072 + 12288 + 4096 * 12288)
    ("gemm_bias_gelu", "flux_image_ff", 309_841_625_088, 201_351_168),
    # 4 * 2 * 32 * 128 * (8192 * 8193 / 2); 2 * (2 * 2 * 8192 * 32 * 128 + 2 * 2 * 8192 * 8 * 128) + 4 * 2 * 32 * 8192
    ("attn_prefill_gqa", "llama31_8b_8k", 1_099_645_845_504, 337_641_472),
    # 8 * 4096 * 7168; 4096 * 7168 * (4 + 2 + 1) + 2 * 7168 + 4 * 4096 * 56
    ("add_rmsnorm_fp8quant", "dsv3_prefill_4k", 234_881_024, 206_452_736),
    # 2 * 128 * 2112 * (7168 + 56); 128 * 7168 + 2112 * 7168 + 4 * 128 * 56 + 4 * 17 * 56 + 2 * 128 * 2112
    ("gemm_fp8_blockscale", "dsv3_kv_a_b128", 3_905_814_528, 16_629_472),
    # 120 of 128 experts move their weights: 2 * (512 * 2880 + 120 * 5760 * 2880 + 512 * 5760) + 4 * 129
    ("gemm_moe_grouped", "gpt_oss_120b_decode", 16_986_931_200, 3_990_159_876),
    # 4 * 16 * 128 * 131072; 4 * 2 * 128 * 131072 + 4 * 16 * 16 * 128 + 4 * 16 * 16 + 4 * (131072 / 16) + 4 * 16
    ("attn_paged_decode_gqa", "llama31_70b_tp4_b16", 1_073_741_824, 134_382_656),
    # 8 sequences of 128 * 129 / 2 + 3968 * 128 = 516,160 pairs, 4 * 64 * 64 operations each
    ("attn_varlen_window", "gpt_oss_120b_local", 67_654_123_520, 612_368_420),
    # 4 fp32 a logit and 20 a row; 10 operations a logit
    ("topk_topp_sampling", "dsv3_b8", 10_342_400, 4_137_120),
    # 12 bytes a step, 1 a reset, 4 for the last value
    ("segmented_linear_scan", "flat_segsum_32m", 67_108_864, 436_207_620),
    # 8 steps of 9 * 4 + 6 operations a point; 4 passes of 20 bytes a point, and 5 coefficients
    ("stencil3d_wave", "rtm_o8_512", 45_097_156_608, 10_737_418_260),
]


@pytest.mark.parametrize(("name", "workload", "flops", "moved"), FIGURES)
def test_figures_derived_by_hand(name: str, workload: str, flops: int, moved: int) -> None:
    found = next(one for one in task(name).workloads if one.name == workload)
    assert (sum(found.flops.values()), found.bytes) == (flops, moved)


def test_floors_lie_below_bounds_and_repeated_rows_count_once() -> None:
    for name in NAMES:
        for workload in task(name).workloads:
            for device in devices().values():
                lower, upper = floor(workload, device), bound(workload, device)
                assert lower is not None and upper is not None and lower.seconds <= upper.seconds * 1.01
    bag = task("embedding_bag_jagged")
    h200 = devices()["sm90"]
    # 420094, 349391 and 585733 distinct rows of 1753088, 1310720 and 2867200 lookups.
    assert [round(found.seconds * 1e6) for one in bag.workloads[:3] if (found := bound(one, h200))] == [37, 24, 21]


def test_flops_min_leaves_out_what_need_not_be_done_on_the_matrix_units() -> None:
    gemm = task("gemm_bias_gelu").workloads[0]
    assert gemm.flops_min == 2 * 4096 * 12288 * 3072
    ssd = task("ssd_chunk_scan").workloads[0]
    assert ssd.flops_min == 4 * 4 * 4096 * 80 * 128 * 64
    delta = task("gated_delta_chunk").workloads[0]
    assert delta.flops_min == 6 * 32768 * 32 * 128 * 128
    stencil = task("stencil3d_wave").workloads[0]
    assert stencil.bytes_min == 20 * 512**3 + 4 * 5


def test_workloads_bound_below_five_microseconds_are_tagged() -> None:
    tagged = {one.name for name in NAMES for one in task(name).workloads if "latency" in one.tags}
    assert tagged == {
        "dsv3_router_b128",
        "dsv3_decode_b64",
        "qwen3_235b_decode_b512",
        "dsv3_b8",
        "dsv3_dense_b100",
        "dsv3_kv_a_b128",
        "glm45_b256",
    }
    for name in NAMES:
        for one in task(name).workloads:
            found = bound(one, devices()["sm90"])
            if not one.held_out:
                assert found is not None and (found.seconds < 5e-6) == ("latency" in one.tags), one.name


@every_task
def test_hidden_workloads_test_sizes_and_edges(name: str) -> None:
    hidden = [one for one in task(name).workloads if one.held_out]
    assert any("edge" in one.tags for one in hidden) and any("edge" not in one.tags for one in hidden)
    assert all(one.held_out for one in task(name).workloads if "edge" in one.tags)


@every_task
def test_every_workload_fits_on_the_smaller_device(name: str) -> None:
    for workload in task(name).workloads:
        held = sum(workload.tensor(one.name).bytes for one in task(name).arguments)
        assert 3 * held < devices()["sm90"].memory_bytes, workload.name  # inputs and outputs, a reference, workspace


# ---- guidance --------------------------------------------------------------------------------------------------------


@every_task
def test_every_item_says_what_and_why(name: str) -> None:
    levels = Counter(one.level for one in task(name).guidance)
    assert 2 <= levels[Level.L1] <= 4 and 2 <= levels[Level.L2] <= 5 and 4 <= levels[Level.L3] <= 7
    names = {one.id for one in vocabulary().properties}
    for one in task(name).guidance:
        assert one.id not in names, "the id of an item would give its check away"
        assert one.why.endswith(".") and not one.title.endswith(".") and len(one.title) > 20
        assert all(accepted.because for accepted in one.accept)


@every_task
def test_at_most_three_tenths_of_a_level_are_free(name: str) -> None:
    for level in Level:
        items = [one for one in task(name).guidance if one.level is level]
        free = sum(one.weight for one in items if one.free)
        assert free <= 0.3 * sum(one.weight for one in items) + 1e-9, level


def test_every_property_is_asked_for() -> None:
    asked = set(chain.from_iterable(used(one) for name in NAMES for one in task(name).guidance))
    assert asked == {one.id for one in vocabulary().properties}


def test_what_a_plain_kernel_earns_is_free() -> None:
    """Plain Triton kernels emit wide loads and shuffles and accumulate in fp32: such items are never worth much."""
    easy = {"vectorized_global_access", "fp32_accumulate", "lane_contiguous_mapping"}
    for name in NAMES:
        for one in task(name).guidance:
            if isinstance(one.check, Term) and one.check.property in easy:
                assert one.free and one.weight < 1, (name, one.id)


def test_no_filter_is_vacuous() -> None:
    for name in NAMES:
        for one in task(name).guidance:
            for term in (term for check in checks(one) for term in terms(check)):
                for each in term.filters:
                    attribute = next(p for p in vocabulary().properties if p.id == term.property).attribute(
                        each.attribute
                    )
                    assert attribute is not None
                    assert not (each.op is Op.GE and each.values[0] in (0, 1)), (name, one.id)
                    assert not (each.op is Op.IN and set(each.values) >= set(attribute.members) != set()), (
                        name,
                        one.id,
                    )


@every_task
def test_loads_in_flight_may_be_asynchronous_copies(name: str) -> None:
    for one in task(name).guidance:
        if isinstance(one.check, Term) and one.check.property == "unrolled_independent_loads":
            (wanted,) = one.check.filters[0].values
            accepted = [term for each in one.accept for term in terms(each.check)]
            assert any(t.property == "multistage_pipeline" and t.filters[0].values == (wanted,) for t in accepted)


ACCEPTED = [
    ("gemm_w4a16", "weights_on_m", "tensor_core_mma"),
    ("gemm_w4a16", "async_copy", "tma_bulk_copy"),
    ("attn_paged_decode_gqa", "async_gather", "tma_bulk_copy"),
    ("moe_route_permute", "publish", "acquire_release_flags"),
    ("segmented_linear_scan", "publish", "acquire_release_flags"),
    ("moe_route_permute", "chain_prefixes", "op_chain_fusion"),
    ("gemm_fp8_blockscale", "fold_scales", "block_scaled_mma"),
    ("gemm_bias_gelu", "tanh", "fast_math_intrinsics"),
]


@pytest.mark.parametrize(("name", "identifier", "design"), ACCEPTED)
def test_equal_designs_earn_full_credit(name: str, identifier: str, design: str) -> None:
    found = [term.property for each in item(name, identifier).accept for term in terms(each.check)]
    assert design in found


GIVEN = [
    ("gemm_splitk_skinny", "vector_atomics", "split_partial_combine"),
    ("gemm_splitk_skinny", "ordered_arrival", "split_partial_combine"),
    ("moe_route_permute", "publish", "decoupled_lookback"),
    ("segmented_linear_scan", "publish", "decoupled_lookback"),
    ("gemm_fp8_blockscale", "fp32_promotion", "block_scaled_mma"),
    ("gemm_fp8_blockscale", "move_registers", "warp_specialization"),
    ("attn_backward_gqa", "move_registers", "warp_specialization"),
]


@pytest.mark.parametrize(("name", "identifier", "condition"), GIVEN)
def test_items_that_presuppose_a_design_say_so(name: str, identifier: str, condition: str) -> None:
    given = item(name, identifier).given
    assert given is not None and [term.property for term in terms(given)] == [condition]


APPLIES = [
    # 17 tiles of 128 x 128 for more than 130 SMs; the other shapes have 224 and more
    ("gemm_fp8_blockscale", "split_k", {"dsv3_kv_a_b128"}),
    ("gemm_fp8_blockscale", "combine", {"dsv3_kv_a_b128"}),
    # 80 and 64 column tiles; 896 tiles for 512 tokens
    ("gemm_w4a16", "split_k", {"llama31_70b_qkv_b16", "qwen25_72b_down_b64"}),
    ("topk_topp_sampling", "split_rows", {"llama31_8b_b64", "dsv3_b8"}),
    # 512 rows on 128 experts are decode
    ("gemm_moe_grouped", "skip_empty", {"gpt_oss_120b_decode"}),
    ("gemm_moe_grouped", "narrow_tokens", {"gpt_oss_120b_decode"}),
    ("gemm_moe_grouped", "evict_weights", {"gpt_oss_120b_decode"}),
    ("add_rmsnorm_fp8quant", "cluster", {"dsv3_decode_b64"}),
    ("segmented_linear_scan", "short_rows", {"ppo_gae_64k_envs"}),
    ("attn_prefill_gqa", "stop_at_diagonal", {"llama31_8b_8k", "qwen3_235b_32k", "qwen3_next_16k_d256"}),
]


@pytest.mark.parametrize(("name", "identifier", "workloads"), APPLIES)
def test_items_apply_to_the_workloads_that_they_are_about(name: str, identifier: str, workloads: set[str]) -> None:
    shown = {one.name for one in task(name).workloads if not one.held_out}
    for target in ("sm90", "sm100"):
        assert set(item(name, identifier).applies[target]) & shown == workloads


def test_an_item_for_hardware_that_a_target_lacks_does_not_apply_there() -> None:
    applies = item("gemm_bias_gelu", "tmem").applies
    assert not applies.get("sm90") and applies["sm100"]
    assert not item("attn_prefill_gqa", "polynomial").applies.get("sm90")


def test_items_that_cannot_be_measured_are_gone() -> None:
    for name in ("gemv_decode_residual", "add_rmsnorm_fp8quant"):
        assert all("programmatic_dependent_launch" not in used(one) for one in task(name).guidance)


def test_checks_say_what_their_sentences_say() -> None:
    (term,) = terms(item("attn_backward_gqa", "transposed_scores").check)
    assert ("m_axis", ("kv",)) in [(each.attribute, each.values) for each in term.filters]
    (term,) = terms(item("ssd_chunk_scan", "heads_inside").check)
    assert ("inner", ("head",)) in [(each.attribute, each.values) for each in term.filters]
    streams = terms(item("embedding_bag_jagged", "stream_indices").check)
    assert {each.values for term in streams for each in term.filters} == {("evict_first",), ("index",), ("result",)}
    for name in ("gemm_fp8_blockscale", "attn_backward_gqa"):
        (term,) = terms(item(name, "move_registers").check)
        assert term.filters[0].values == ("setmaxnreg",)


# ---- data and judgement ----------------------------------------------------------------------------------------------


def test_corrected_data_and_tolerances() -> None:
    scale = next(one for one in task("gemm_fp8_blockscale").tensors if one.name == "SA")
    assert scale.shape == ("KB", "M") and "M % 4 == 0" in task("gemm_fp8_blockscale").where
    assert all((one.relative_rms, one.slab_rows) == (1e-2, 128) for one in task("attn_backward_gqa").tolerances)
    (compare,) = task("moe_route_permute").compares
    assert set(compare.outputs) == {"topk_ids", "topk_w", "offs", "perm_x", "src"}
    assert task("embedding_bag_jagged").workloads[0].lets["R"] == 24_184_588


@every_task
def test_ragged_outputs_must_match_everywhere(name: str) -> None:
    assert all(one.matched == 1.0 for one in task(name).tolerances)


@every_task
def test_weights_may_be_prepared_once(name: str) -> None:
    """Where guidance asks for a layout made once, the tensor that it is made from is constant."""
    for one in task(name).guidance:
        for term in terms(one.check):
            if term.property == "prepacked_weight_layout" and term.filters[0].values == ("weight",):
                assert [t.name for t in task(name).inputs if t.constant and t.role == "weight"]


def test_tasks_and_vocabulary_stand_in_canonical_form() -> None:
    vocabulary_source = Path(d2k.__file__).parent / "spec" / "vocabulary.d2k"
    for path in (*(TASKS / name / "task.d2k" for name in NAMES), vocabulary_source):
        text = path.read_text(encoding="utf-8")
        assert format_text(text) == text, f"run `d2kc fmt {path.name}` in {path.parent.name}"
