"""Whole tasks: what they compile to, that the JSON is valid and stable, and that bad ones end in diagnostics."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from task_example import FULL, SHORT, short

from d2k.compiler.compile import Compiled, compile_text, load_task, to_json
from d2k.compiler.format import format_text
from d2k.compiler.lexer import tokenize
from d2k.spec.check import Term
from d2k.spec.task import Distribution, Task
from d2k.spec.validate import find_problems, read_record

ROOT = Path(__file__).parents[2]


def compiled(text: str, folder: Path | None = None) -> Task:
    found = compile_text(text, "task.d2k", folder)
    assert found.task is not None, [one.message for one in found.diagnostics]
    return found.task


def codes(found: Compiled) -> list[str]:
    return [one.code for one in found.diagnostics]


@pytest.fixture(scope="module")
def full() -> Task:
    return compiled(FULL)


def test_statements_become_fields(full: Task) -> None:
    assert full.id == "gemm_bias_gelu"
    assert full.language_version == 1
    assert full.summary == "Y = gelu(A @ W.T + bias), FP32 accumulation, one rounding to BF16."
    assert full.target == ("sm100", "sm90")
    assert [one.name for one in full.axes] == ["M", "N", "K"]
    assert [one.name for one in full.arguments] == ["A", "W", "bias", "Y"]
    assert full.tensor("W").role == "weight"
    assert full.tensor("W").constant
    assert full.prepare == "prepare"
    assert full.entry == "run"
    assert full.reference is not None
    assert (full.reference.path, full.reference.name) == ("reference.py", "run")
    assert [(one.name, one.function.name) for one in full.baselines] == [("eager", "eager"), ("library", "cublaslt")]
    assert [(one.output, one.atol, one.rtol, one.matched) for one in full.tolerances] == [("Y", 1e-2, 1.6e-2, 1.0)]
    assert full.forbid == ("torch.matmul", "torch.nn.functional.linear")
    assert full.cost.flops[0].expression == "2 * M * N * K + 12 * M * N"


def test_workloads_are_evaluated(full: Task) -> None:
    flux, _, odd = full.workloads
    m, n, k = 4096, 12288, 3072
    assert flux.axes == {"M": m, "N": n, "K": k}
    assert flux.flops == {"tensor.bf16": 2 * m * n * k + 12 * m * n}
    assert flux.bytes == 2 * (m * k + n * k + n + m * n)
    assert flux.bytes_read == 2 * (m * k + n * k + n)
    assert flux.bytes_written == 2 * m * n
    assert (flux.flops_min, flux.bytes_min) == (flux.flops["tensor.bf16"], flux.bytes)
    assert flux.tensor("W").shape == (n, k)
    assert flux.tensor("W").distribution == Distribution("normal", {}, scale=1 / 3072**0.5)
    assert flux.tensor("bias").distribution == Distribution("normal", {}, scale=0.1)
    assert flux.tensor("pre").moved_bytes == 0
    assert odd.tags == ("edge", "held_out")
    assert odd.held_out
    assert not flux.held_out


def test_items_apply_where_hardware_and_condition_allow(full: Task) -> None:
    everywhere = ("flux_image_ff", "wan_14b_ff", "odd")
    assert full.item("tile").applies == {"sm100": everywhere, "sm90": everywhere}
    assert full.item("tcgen05").applies == {"sm100": everywhere, "sm90": ()}
    assert full.item("overlap.two_accumulators").applies == {"sm100": everywhere, "sm90": ()}


def test_includes_prefix_ids_and_resolve_their_arguments(full: Task) -> None:
    assert full.item("overlap.persistent").requires == ("fuse",)
    assert full.item("overlap.two_accumulators").requires == ("overlap.persistent",)
    check = full.item("overlap.two_accumulators").check
    assert isinstance(check, Term)
    assert check.filters[0].values == (2,)  # the default of the pattern's `buffers`


def test_the_json_is_valid_and_reads_back(full: Task) -> None:
    data = to_json(full)
    assert read_record(data, "task", Task) == full


def test_layout_comments_and_spelling_of_numbers_do_not_change_the_meaning(full: Task) -> None:
    squeezed = "\n".join(line.split("#")[0].strip() for line in FULL.splitlines() if line.strip())
    respelt = squeezed.replace("2 * M * N * K", "((2*M)*N)*K").replace("32760", "32_760").replace("1e-2", "0.01")
    respelt = respelt.replace("sm100, sm90", "sm_100a, sm_90a")
    assert "#" not in respelt
    assert compiled(respelt) == full


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_any_layout_and_its_canonical_form_mean_the_same(random: Random) -> None:
    tokens = tokenize(FULL)
    text, end = "", 0
    for start, stop in zip(tokens.starts, tokens.ends, strict=True):
        gap = random.choice([" ", "\n", "\t ", " # note\n", "\r\n"]) if start > end else ""
        text += gap + FULL[start:stop]
        end = stop
    assert compiled(text) == compiled(FULL)
    assert compiled(format_text(text)) == compiled(FULL)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1.6e-2", "1.7e-2"),
        ("128x128", "256x128"),
        ("block_k >= 64", "block_k >= 32"),
        ("K = 3072", "K = 3073"),
        ("0.1 * normal()", "0.2 * normal()"),
        ("weight 2", "weight 3"),
        ("[edge, held_out]", "[held_out]"),
        ("2 * M * N * K + 12", "2 * M * N * K + 11"),
        (" constant", ""),
    ],
)
def test_a_change_of_meaning_changes_the_hash(full: Task, old: str, new: str) -> None:
    assert compiled(FULL.replace(old, new)).content_hash != full.content_hash


def test_the_hash_covers_the_python_files(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text("def run(): return 1\n")
    (tmp_path / "baseline.py").write_text("def eager(): return 1\n")
    first = compiled(SHORT, tmp_path)
    assert set(first.sources) == {"reference.py", "baseline.py"}
    (tmp_path / "reference.py").write_text("def run(): return 2\n")
    assert compiled(SHORT, tmp_path).content_hash != first.content_hash


# ---- tensors and traffic


def one(text: str) -> Task:
    return compiled(text)


def test_bytes_default_to_what_the_tensors_move() -> None:
    task = one(
        short(
            "axes P",
            "input  B : f32[M, P] ~ normal() moves M",
            "inout  C : f32[M]    ~ zeros()",
            "inout  D : f32[M]    ~ zeros() moves 3",
            "input  f : f32       ~ values(0.5)",
            'tolerance C { atol = 1 } because "b"',
            'tolerance D { atol = 1 } because "b"',
        ).replace("{ M = 8 }", "{ M = 8, P = 100 }")
    )
    (workload,) = task.workloads
    # A, B and half of C are read; Y, half of C and all that D says it moves are written; the scalar moves nothing.
    assert (workload.bytes_read, workload.bytes_written) == (32 + 32 + 32, 32 + 32 + 12)
    assert workload.bytes == 172
    assert workload.tensor("f").shape == ()
    assert workload.tensor("f").distribution == Distribution("values", {"list": (0.5,)})
    assert [tensor.name for tensor in task.arguments] == ["A", "B", "f", "Y", "C", "D"]


def test_packed_tensors_have_a_storage_of_their_own() -> None:
    task = one(
        short(
            "input Q : u4[M, 6] packed u8 ~ randint(0, 15)",
            "output Z : f4e2m1[M, 16] packed i32",
            'compare Z with "reference.py" :: accept',
        )
    )
    packed = task.workloads[0].tensor("Q")
    assert (packed.shape, packed.storage_dtype, packed.storage_shape) == ((8, 6), "u8", (8, 3))
    assert (packed.bytes, packed.moved_bytes) == (24, 24)
    wide = task.workloads[0].tensor("Z")
    assert (wide.storage_dtype, wide.storage_shape, wide.bytes) == ("i32", (8, 2), 64)


def test_floors_may_be_below_the_bounds() -> None:
    task = one(SHORT.replace("flops = M on cuda.f32", "flops = M on cuda.f32 flops_min = M // 2 bytes_min = 4 * M"))
    assert (task.workloads[0].flops_min, task.workloads[0].bytes_min) == (4, 32)


def test_distributions_are_evaluated_with_their_scale_and_shift() -> None:
    task = one(
        short(
            "axes lens : ints",
            "let  B = len(lens)",
            "input a : f32[M] ~ 2 * (3 - normal() / 4)",
            "input b : i32[B, 3] ~ pages(lens, 4, unused = -7)",
            "input c : i32[B + 1] ~ offsets(lens)",
            "input d : i32[M] ~ choice([20, 40])",
        ).replace("{ M = 8 }", "{ M = 8, lens = [3, 9], d ~ 5 + zeros() }")
    )
    (workload,) = task.workloads
    assert workload.tensor("a").distribution == Distribution("normal", {}, scale=-0.5, shift=6.0)
    assert workload.tensor("b").distribution == Distribution("pages", {"lens": (3, 9), "page": 4, "unused": -7})
    assert workload.tensor("c").distribution == Distribution("offsets", {"lens": (3, 9)})
    assert workload.tensor("d").distribution == Distribution("zeros", {}, shift=5.0)


def test_conditions_may_speak_of_axes_hardware_and_multiprocessors() -> None:
    guidance = """guidance {
      L1 a "A" { check epilogue_fusion }
      L1 b "B" { when M < sms  check op_chain_fusion }
      L1 c "C" { when arch >= sm100 and not (arch in {sm120})  check op_chain_fusion }
      L1 d "D" { when arch has {tma, cluster} or M > 1000  check op_chain_fusion }
    }"""
    text = short(guidance, "workload two { M = 140 }", "workload big { M = 2048 }").replace(
        "sm100, sm90", "sm80, sm90, sm100, sm120"
    )
    task = one(text)
    every = ("one", "two", "big")
    assert task.item("b").applies == {  # 108, 132, 148 and 170 multiprocessors
        "sm80": ("one",),
        "sm90": ("one",),
        "sm100": ("one", "two"),
        "sm120": ("one", "two"),
    }
    assert task.item("c").applies == {"sm80": (), "sm90": (), "sm100": every, "sm120": ()}
    assert task.item("d").applies == {"sm80": ("big",), "sm90": every, "sm100": every, "sm120": every}


def test_hardware_that_the_check_needs_is_asked_for_without_a_condition() -> None:
    guidance = """guidance {
      L1 a "A" { check epilogue_fusion }
      L3 b "B" { requires a  check tma_bulk_copy }
      L3 c "C" { requires a  check tma_bulk_copy or cp_async_copy }
      L3 d "D" { requires a  check tma_bulk_copy  accept cp_async_copy because "equal" }
      L3 e "E" { requires a  check tensor_core_mma(instr = wgmma) }
      L3 f "F" { requires a  check tensor_core_mma(instr in {wgmma, tcgen05}) }
      L3 g "G" { requires a  check cp_async_copy and not tmem_accumulator }
    }"""
    task = one(short(guidance).replace("sm100, sm90", "sm80, sm90, sm100, sm120"))

    def targets(item: str) -> set[str]:
        return {arch for arch, workloads in task.item(item).applies.items() if workloads}

    assert targets("b") == {"sm90", "sm100", "sm120"}
    assert targets("c") == targets("d") == targets("g") == {"sm80", "sm90", "sm100", "sm120"}
    assert targets("e") == {"sm90"}
    assert targets("f") == {"sm90", "sm100"}


# ---- whole files


def test_a_text_with_two_tasks_or_none_is_a_diagnostic() -> None:
    assert codes(compile_text("d2k 1\n", "t.d2k")) == ["D2K0914"]
    twice = compile_text(SHORT + SHORT.replace("d2k 1", "").replace("task short", "task other"), "t.d2k")
    assert codes(twice) == ["D2K0914"]
    assert twice.task is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tolerance Y {", "tolerance Y { atol = ,"),
        ("output    Y : f32[M]", "output    Y : [M]"),
        ("input     A : f32[M] ~ normal()", "input     A f32[M] ~ normal()"),
        ("reference ", "reference = "),
        ("baseline  eager", "baseline  eager ="),
        ("flops = M on", "flops M on"),
        ("axes      M", "axes      = M"),
        ("{ M = 8 }", "{ M = = 8 }"),
        ("title     ", "title     :"),
    ],
)
def test_a_syntax_error_does_not_drag_others_behind_it(old: str, new: str) -> None:
    found = compile_text(SHORT.replace(old, new), "t.d2k")
    assert found.task is None
    assert [one[:5] for one in codes(found)] == ["D2K02"]


def test_work_in_one_file_is_bounded() -> None:
    text = short("let X = sum(sum(sum(1 for i in range(3000)) for j in range(3000)) for k in range(M))", "where X > 0")
    assert codes(compile_text(text, "t.d2k")) == ["D2K0605"]


def test_text_or_path(tmp_path: Path) -> None:
    (tmp_path / "task.d2k").write_text(SHORT)
    assert load_task(SHORT).task == compiled(SHORT)
    assert codes(load_task(tmp_path / "task.d2k")) == ["D2K0911", "D2K0911"]
    with pytest.raises(FileNotFoundError):
        load_task(tmp_path / "other.d2k")


@pytest.mark.parametrize("path", sorted(ROOT.glob("tasks/*/task.d2k")), ids=lambda path: path.parent.name)
def test_the_tasks_compile_to_valid_json(path: Path) -> None:
    found = load_task(path)
    assert [one.message for one in found.diagnostics if one.severity == "error"] == []
    assert found.task is not None
    assert found.task.id == path.parent.name
    assert list(find_problems(msgspec.json.decode(to_json(found.task)), "task")) == []
    text = path.read_text(encoding="utf-8")
    assert compile_text(format_text(text), str(path), path.parent).task == found.task
