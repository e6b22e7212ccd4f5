"""Prompts: complete, equal outside the guidance, and silent about checks and hidden workloads. For every task."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

import d2k
from d2k.compiler.compile import compile_text, load_task
from d2k.compiler.prompt import BEGIN, END, GUIDANCE, prompt
from d2k.compiler.signature import c_signature
from d2k.spec.task import Task
from d2k.spec.vocabulary import Level, vocabulary

TASKS = Path(d2k.__file__).parent / "tasks"
NAMES = sorted(one.parent.name for one in TASKS.glob("*/task.d2k"))
LEVELS = {"none": "", "L1": "L1", "L1+L2": "L1 L2", "full": "L1 L2 L3"}

every_task = pytest.mark.parametrize("name", NAMES)
every_guidance = pytest.mark.parametrize("guidance", GUIDANCE)


@cache
def task(name: str) -> Task:
    found = load_task(TASKS / name / "task.d2k").task
    assert found is not None
    return found


def split(text: str) -> tuple[str, str, str]:
    """What stands before, in and after the guidance section, the marker lines outside."""
    before, inside = text.split(BEGIN + "\n")
    inside, after = inside.split(END + "\n")
    return before, inside, after


@every_task
def test_prompts_of_a_pair_differ_in_the_guidance_section_only(name: str) -> None:
    parts = [split(prompt(task(name), one)) for one in GUIDANCE]
    assert len({(before, after) for before, _, after in parts}) == 1
    assert parts[0][1] == ""
    assert len({inside for _, inside, _ in parts}) == len(GUIDANCE)


@every_task
@every_guidance
def test_the_compiled_task_records_the_hash_of_every_prompt(name: str, guidance: str) -> None:
    assert task(name).prompts[guidance] == sha256(prompt(task(name), guidance).encode()).hexdigest()


@every_task
@every_guidance
def test_guidance_holds_the_items_of_its_levels_and_no_others(name: str, guidance: str) -> None:
    _, inside, _ = split(prompt(task(name), guidance))
    for item in task(name).guidance:
        wanted = item.level in LEVELS[guidance].split()
        assert (f"**{item.id}**: {item.title}" in inside) == wanted
        if wanted:
            assert item.why in inside and item.hint in inside
            assert all(re.search(rf"Rests on: .*\b{one}\b", inside) for one in item.requires)


@every_task
def test_no_prompt_names_a_property_or_a_check(name: str) -> None:
    text = prompt(task(name), "full")
    for one in vocabulary().properties:
        assert not re.search(rf"\b{one.id}\b", text), f"{one.id} gives the check away"
        for attribute in one.attributes:
            assert not re.search(rf"\b{attribute.name} *(>=|<=|has|in \{{)", split(text)[1])


@every_task
def test_no_prompt_shows_a_workload_that_is_held_out(name: str) -> None:
    text = prompt(task(name), "full")
    for workload in task(name).workloads:
        assert bool(re.search(rf"\b{workload.name}\b", text)) is not workload.held_out
        if workload.origin:
            assert (workload.origin in text) is not workload.held_out


@every_task
def test_a_prompt_says_everything_that_a_kernel_needs(name: str) -> None:
    text = prompt(task(name), "none")
    assert task(name).summary.strip() in text
    assert f"def {task(name).entry}(" in text and f'extern "C" int {task(name).entry}(' in text
    for tensor in task(name).arguments:
        assert f"| `{tensor.name}` | {tensor.direction}" in text
    for workload in task(name).workloads:
        for tensor in workload.tensors if not workload.held_out else ():
            if tensor.shape and task(name).tensor(tensor.name).direction != "intermediate":
                assert f"{tensor.name} {list(tensor.storage_shape)}" in text
    for condition in task(name).where:
        assert f"`{condition}`" in text
    for tolerance in task(name).tolerances:
        assert tolerance.because in text
    for compare in task(name).compares:
        assert compare.because in text
    for callee in task(name).forbid:
        assert f"`{callee}`" in text
    for device in ("B200", "H200"):
        assert f"- {device} (" in text and f" us on {device} (" in text
    assert "filled with NaN" in text and "`eager`" in text and "kernel.py" in text and "kernel.cu" in text


@every_task
def test_prepare_is_offered_exactly_where_inputs_are_constant(name: str) -> None:
    constants = [one.name for one in task(name).inputs if one.constant]
    text = prompt(task(name), "none")
    assert ("def prepare(" in text) == bool(constants)
    for one in constants:
        assert f"| `{one}` | input, constant |" in text


def test_figures_of_a_workload_are_those_derived_by_hand() -> None:
    text = prompt(task("gemm_bias_gelu"), "none")
    # 2 * 4096 * 12288 * 3072 + 12 * 4096 * 12288 = 309,841,625,088 operations, on 2250 and 989 TFLOP/s;
    # 2 * (4096 * 3072 + 12288 * 3072 + 12288 + 4096 * 12288) = 201,351,168 bytes.
    cost = "309.8 GFLOP on tensor.bf16; 201.4 MB; bound 138 us on B200 (tensor.bf16), 313 us on H200 (tensor.bf16)"
    assert f"- cost: {cost}\n" in text


def test_a_scalar_of_half_precision_is_a_float_in_c() -> None:
    whole = task("moe_route_permute")
    half = tuple(msgspec.structs.replace(one, dtype="bf16") if one.name == "kept" else one for one in whole.tensors)
    assert "float kept" in c_signature(msgspec.structs.replace(whole, tensors=half))


def test_scalars_lists_and_packed_tensors_are_shown_as_they_are_passed() -> None:
    prefill = prompt(task("attn_prefill_gqa"), "none")
    assert "| `is_causal` | input | Python bool | scalar | always `causal` |" in prefill
    assert "- scalars: is_causal = false" in prefill
    assert "| `kept` | input | Python int | scalar | always `KG` |" in prompt(task("moe_route_permute"), "none")
    paged = prompt(task("attn_paged_decode_gqa"), "none")
    assert "lens = [65536, 31 times 1024]" in paged
    # Hq, Hk, D, page are the axes that are no list; B, P, MP derive from the list.
    assert "\n    ".join(f"int64_t {one}," for one in ("Hq", "Hk", "D", "page", "B", "P", "MP")) in paged
    packed = prompt(task("gemm_w4a16"), "none")
    assert "| `Q` | input, constant | `u4` packed in `torch.int32` | `[N, K]` |" in packed
    # 8192 four-bit codes are 1024 int32.
    assert "Q [10240, 1024]" in packed


def test_items_say_where_they_apply() -> None:
    _, inside, _ = split(prompt(task("attn_prefill_gqa"), "full"))
    items = dict(re.findall(r"- \*\*(\w+)\*\*: ((?:.|\n)*?)(?=\n- \*\*|\n\n|\Z)", inside))
    assert "Applies to llama31_8b_8k, qwen3_235b_32k, qwen3_next_16k_d256." in items["stop_at_diagonal"]
    assert "Applies on B200." in items["polynomial"]
    assert "Applies" not in items["online"]


def test_a_task_with_little_in_it_has_a_prompt_too() -> None:
    compiled = compile_text(
        'd2k 1\ntask t { title "T" summary "y = x" target sm80 axes N entry run\n'
        "input x : f32[N] ~ normal()\ninput eps : f32 ~ uniform(0, 1)\noutput y : f32[N]\n"
        'tolerance y { atol = 0 } because "copy"\ncost { flops = N on cuda.f64 }\nworkload w { N = 8 } }',
        "t.d2k",
    )
    assert compiled.task is not None, compiled.diagnostics
    text = prompt(compiled.task, "full")
    assert "eps: float" in text and "bound not known" in text
    assert split(text)[1].count("- **") == 0 and {one.level for one in compiled.task.guidance} <= set(Level)
