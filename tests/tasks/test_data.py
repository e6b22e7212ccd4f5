"""Contents that Python draws: shapes and types as the task declares, and the facts that each promises."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import d2k
from d2k.compiler.compile import load_task
from d2k.compiler.workloads import workload_values
from d2k.spec.task import Task, Workload

torch = pytest.importorskip("torch")

TASKS = Path(d2k.__file__).parent / "tasks"
DRAWN = sorted(one.parent.name for one in TASKS.glob("*/data.py"))
TYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f8e4m3": torch.float8_e4m3fn,
    "i32": torch.int32,
    "i64": torch.int64,
}


@cache
def task(name: str) -> Task:
    found = load_task(TASKS / name / "task.d2k").task
    assert found is not None
    return found


@cache
def module(name: str, file: str = "data.py") -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_{file[:-3]}", TASKS / name / file)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def drawn(name: str, workload: Workload, seed: int = 0) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for draw in task(name).draws:
        make: Callable[..., tuple[torch.Tensor, ...]] = getattr(module(name), draw.function.name)
        contents = make(workload_values(workload), torch.Generator().manual_seed(seed))
        tensors |= zip(draw.tensors, contents, strict=True)
    return tensors


def edges(name: str) -> list[Workload]:
    return [one for one in task(name).workloads if "edge" in one.tags]


def edge(name: str, workload: str) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    found = next(one for one in edges(name) if one.name == workload)
    return drawn(name, found), {key: value for key, value in workload_values(found).items() if isinstance(value, int)}


@pytest.mark.parametrize("name", DRAWN)
def test_contents_have_the_declared_shapes_and_types_and_follow_the_seed(name: str) -> None:
    for workload in edges(name):
        contents = drawn(name, workload)
        again, other = drawn(name, workload), drawn(name, workload, seed=1)
        for tensor, value in contents.items():
            instance = workload.tensor(tensor)
            assert tuple(value.shape) == instance.shape and value.dtype == TYPES[instance.storage_dtype]
            assert value.is_contiguous() and bool(torch.isfinite(value.float()).all())
            assert torch.equal(value.float(), again[tensor].float())
        fixed = {"cos_sin", "coef", "base"}
        if workload.name not in ("one_expert", "a_row_each", "one_step", "one_token"):
            assert any(not torch.equal(contents[one].float(), other[one].float()) for one in contents.keys() - fixed)


def test_rows_have_outlier_columns() -> None:
    contents, _ = edge("add_rmsnorm_fp8quant", "short_rows")  # 384 columns: one outlier
    deviation = contents["x"].float().std(dim=0)
    assert int((deviation > 10).sum()) == 1
    assert torch.equal(deviation > 10, contents["r"].float().std(dim=0) > 10)


def test_scales_are_powers_of_two_that_use_the_range_of_the_codes() -> None:
    contents, axes = edge("gemm_fp8_blockscale", "ragged_rows")
    for codes, scales in (("A", "SA"), ("B", "SB")):
        mantissa, _ = torch.frexp(contents[scales])
        assert bool((mantissa == 0.5).all())
        assert contents[scales].unique().numel() > 4  # an index that is ignored gives wrong results
        assert float(contents[codes].float().abs().max()) > 224  # more than half of the range of e4m3
    rows = contents["A"].float().unflatten(-1, (-1, 128)) * contents["SA"].t().unsqueeze(-1)
    weights = contents["B"].float().unflatten(-1, (-1, 128))
    weights *= contents["SB"].repeat_interleave(128, dim=0)[: axes["N"]].unsqueeze(-1)
    product = rows.flatten(1) @ weights.flatten(1).t()
    assert 0.3 < float(product.std()) < 3  # outputs of order one, as the tolerance presumes


def test_groups_are_skewed_and_complete() -> None:
    shown = next(one for one in task("gemm_moe_grouped").workloads if one.name == "gpt_oss_120b_decode")
    sizes = drawn("gemm_moe_grouped", shown)["offs"].diff()
    assert int(sizes.sum()) == 512 and int((sizes > 0).sum()) == 120
    assert int(sizes.max()) > 8 * 512 // 120
    for workload in edges("gemm_moe_grouped"):
        sizes = drawn("gemm_moe_grouped", workload)["offs"].diff()
        assert int(sizes.sum()) == workload.axes["T"] and int((sizes > 0).sum()) == workload.axes["EA"]


def test_saved_statistics_belong_to_the_stored_forward_pass() -> None:
    for name, causal in (("ragged_causal", True), ("ragged_full", False)):
        contents, axes = edge("attn_backward_gqa", name)
        q, k, v = (contents[one].double() for one in "QKV")
        b, h, i = 0, axes["Hq"] - 1, 50
        g = h * axes["Hk"] // axes["Hq"]
        visible = i + 1 if causal else axes["S"]
        scores = k[b, :visible, g] @ q[b, i, h] / axes["D"] ** 0.5
        assert float(contents["LSE"][b, h, i]) == pytest.approx(float(torch.logsumexp(scores, 0)), abs=1e-4)
        expected = torch.softmax(scores, 0) @ v[b, :visible, g]
        assert torch.allclose(contents["O"][b, i, h].double(), expected, atol=1e-2)


def test_selected_blocks_are_distinct_earlier_ones_with_the_first_and_the_own() -> None:
    for workload in edges("attn_sparse_nsa"):
        contents, size = drawn("attn_sparse_nsa", workload), int(workload.axes["BS"])  # type: ignore[arg-type]
        slots = int(workload.axes["NS"])  # type: ignore[arg-type]
        for t in (0, size - 1, size, int(workload.axes["S"]) - 1):  # type: ignore[arg-type]
            own = t // size
            for row in contents["idx"][:, t].flatten(0, 1).tolist():
                chosen = [one for one in row if one >= 0]
                assert len(chosen) == len(set(chosen)) == min(slots, own + 1)
                assert {0, own} <= set(chosen) and max(chosen) == own
                assert row[len(chosen) :] == [-1] * (slots - len(chosen))
        assert 0 < float(contents["gates"].min()) <= float(contents["gates"].max()) < 1


def test_a_tenth_of_the_targets_is_ignored() -> None:
    contents, axes = edge("linear_cross_entropy", "ragged")
    words = contents["y"]
    assert 0.05 < float((words == -100).double().mean()) < 0.15
    assert bool(((words == -100) | ((words >= 0) & (words < axes["V"]))).all())


def test_normalisation_statistics() -> None:
    contents, _ = edge("layernorm_bwd", "ragged")
    rows = (contents["x"].double() - contents["mean"].double().unsqueeze(-1)) * contents["rstd"].double().unsqueeze(-1)
    assert float(rows.mean(-1).abs().max()) < 1e-5
    assert torch.allclose(rows.square().mean(-1), torch.ones(rows.shape[0], dtype=torch.float64), atol=1e-4)
    assert float(contents["x"].float().mean()) == pytest.approx(1, abs=0.02)


def test_angles_and_positions() -> None:
    contents, axes = edge("qknorm_rope_cachewrite", "odd_heads")
    cos, sin = contents["cos_sin"].chunk(2, dim=-1)
    assert torch.allclose(cos.square() + sin.square(), torch.ones_like(cos))
    assert float(sin[3, 0]) == pytest.approx(0.14112, abs=1e-5)  # sin 3
    assert contents["pos"].unique().numel() == axes["U"] and int(contents["pos"].max()) < 40960


def test_favourites_stand_out() -> None:
    contents, _ = edge("topk_topp_sampling", "odd_vocab")
    top = contents["logits"].topk(50, dim=-1).values
    assert float(top[:, 9].min()) > 8  # ten of 50257 plain logits reach only 2 * 3.6


def test_step_sizes() -> None:
    contents, _ = edge("ssd_chunk_scan", "one_step")
    step = torch.nn.functional.softplus(contents["dt_bias"].double())
    assert float(step.min()) > 0.99e-3 and float(step.max()) < 1.01e-1


def test_gated_keys() -> None:
    contents, _ = edge("gated_delta_chunk", "ragged_time")
    for one in ("q", "k"):
        assert torch.allclose(contents[one].float().norm(dim=-1), torch.ones(()), atol=1e-2)
    assert float(contents["g"].min()) >= -0.15 and float(contents["g"].max()) < 0
    assert float(contents["beta"].min()) > 0 and float(contents["beta"].max()) < 1


def test_the_global_scale_fills_the_range_of_the_block_scales() -> None:
    contents, _ = edge("silu_mul_nvfp4_quant", "padded_scales")
    gate, up = contents["gu"].double().chunk(2, dim=-1)
    largest = (torch.nn.functional.silu(gate) * up).abs().max()
    assert float(largest * contents["gs"][0] / 6) == pytest.approx(448, rel=1e-5)


def test_lookups_are_complete_and_skewed() -> None:
    contents, axes = edge("embedding_bag_jagged", "tiny_bags")
    rows, sizes = (3, 1000, 1), contents["off"].diff().view(3, axes["B"])
    assert contents["base"].tolist() == [0, 3, 1003]
    assert sizes.sum(-1).tolist() == [67, 134, 67] and int(sizes.min()) == 0 and int(sizes.max()) > 2
    edges_of_tables = contents["off"][::67].tolist()
    for count, start, stop in zip(rows, edges_of_tables[:-1], edges_of_tables[1:], strict=True):
        assert int(contents["idx"][start:stop].max()) < count


def test_the_cost_counts_the_rows_that_are_expected_to_be_distinct() -> None:
    workload = next(one for one in task("embedding_bag_jagged").workloads if one.name == "fbgemm_tbe_t32")
    contents = drawn("embedding_bag_jagged", workload)
    table = torch.arange(32).repeat_interleave(2048 * 20)
    distinct = (contents["idx"] + 100_000 * table).unique().numel()
    assert distinct == pytest.approx(workload.axes["UNIQ"], rel=0.01)


def test_coefficients_cancel_on_a_constant_field_and_fields_are_stable() -> None:
    for workload in edges("stencil3d_wave"):
        contents = drawn("stencil3d_wave", workload)
        centre, *others = contents["coef"].tolist()
        assert centre + 6 * sum(others) == pytest.approx(0, abs=1e-5)
        # The scheme is stable if v2 times the largest eigenvalue of -L stays below four.
        assert 0.15 * (abs(centre) + 6 * sum(abs(one) for one in others)) < 4
        assert float(contents["v2"].min()) >= 0.05 and float(contents["v2"].max()) <= 0.15
