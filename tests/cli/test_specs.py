"""`d2kc check fmt compile prompt graph explain new completion`: what a person who writes tasks relies on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from d2k.cli.tasks import known_tasks
from d2k.spec.finding import Reason
from d2k.spec.validate import find_problems
from tests.cli.conftest import Command


@pytest.fixture
def task(d2kc: Command, tmp_path: Path) -> Path:
    assert d2kc("new", "task", "sample", "--folder", tmp_path).code == 0
    return tmp_path / "sample" / "task.d2k"


def test_a_new_task_is_right_as_it_stands(d2kc: Command, task: Path) -> None:
    assert d2kc("check", "--strict", task).code == 0
    assert d2kc("fmt", "--check", task).code == 0
    done = d2kc("compile", task)
    assert done.code == 0
    compiled = json.loads(done.out)
    assert not list(find_problems(compiled, "task"))
    assert compiled["id"] == "sample"


def test_the_naive_kernel_of_a_new_task_has_the_insight_that_every_kernel_of_it_has(d2kc: Command, task: Path) -> None:
    done = d2kc("audit", task.parent / "naive.py", "--task", task, "--json")
    verdicts = {one["id"]: one["verdict"] for one in json.loads(done.out)["items"]}
    assert verdicts["fuse"] == "implemented"
    assert verdicts["lanes"] == "implemented"


def test_new_leaves_what_exists(d2kc: Command, task: Path) -> None:
    before = task.read_text()
    done = d2kc("new", "task", "sample", "--folder", task.parent.parent)
    assert done.code == 2
    assert task.read_text() == before


def test_check_reports_all_mistakes_with_places(d2kc: Command, task: Path) -> None:
    text = task.read_text().replace("op_chain_fusion", "op_chain_fusin").replace("requires lanes", "requires lane")
    task.write_text(text)
    done = d2kc("check", task)
    assert done.code == 1
    assert "did you mean `op_chain_fusion`" in done.out
    assert "did you mean `lanes`" in done.out
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "op_chain_fusin" in one)
    assert f"task.d2k:{line}:" in done.out
    assert "2 errors" in done.out


def test_check_fix_applies_what_it_proposes(d2kc: Command, task: Path) -> None:
    right = task.read_text()
    task.write_text(right.replace("op_chain_fusion", "op_chain_fusin"))
    assert d2kc("check", "--fix", task).code == 0
    assert task.read_text() == right


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_check_in_other_forms(d2kc: Command, task: Path, form: str) -> None:
    task.write_text(task.read_text().replace("op_chain_fusion", "op_chain_fusin"))
    done = d2kc("check", "--format", form, task)
    assert done.code == 1
    assert "op_chain_fusin" in done.out
    if form != "github":
        json.loads(done.out)


def test_fmt_writes_check_refuses(d2kc: Command, task: Path) -> None:
    right = task.read_text()
    task.write_text(right.replace(", N", "  ,N").replace("task sample {", "task   sample{"))
    assert d2kc("fmt", "--check", task).code == 1
    assert d2kc("fmt", task).code == 0
    assert task.read_text() == right


def test_standard_input(d2kc: Command, task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with task.open("rb") as file:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": file})())
        done = d2kc("fmt", "-")
    assert done.out == task.read_text()


@pytest.mark.parametrize("guidance", ["none", "L1", "L1+L2", "full"])
def test_prompt(d2kc: Command, guidance: str) -> None:
    done = d2kc("prompt", "gemm_bias_gelu", "--guidance", guidance)
    assert done.code == 0
    assert "run(" in done.out


@pytest.mark.parametrize(("form", "word"), [("svg", "<svg"), ("dot", "digraph"), ("mermaid", "flowchart")])
def test_graph(d2kc: Command, form: str, word: str) -> None:
    assert word in d2kc("graph", "gemm_bias_gelu", "--format", form).out


def test_all_tasks_pass_check(d2kc: Command) -> None:
    assert len(known_tasks()) == 26
    root = Path(__file__).parents[2] / "tasks"
    done = d2kc("check", root)
    assert done.code == 0, done.out


@pytest.mark.parametrize("what", ["tma_bulk_copy", "TMA", "D2K0104", "gemm_bias_gelu", None])
def test_explain(d2kc: Command, what: str | None) -> None:
    done = d2kc("explain", *([what] if what else []))
    assert done.code == 0
    assert len(done.out.splitlines()) > 5


@pytest.mark.parametrize("what", [*Reason, "gated", "free", "root causes", "no trace"])
def test_words_of_an_audit_are_explained(d2kc: Command, what: str) -> None:
    done = d2kc("explain", what)
    assert done.code == 0
    assert what.replace("_", " ") in done.out


def test_explain_knows_aliases_in_any_case_and_suggests_by_word(d2kc: Command) -> None:
    assert d2kc("explain", "tma").out.startswith("tma_bulk_copy")
    assert "`smem_histogram`" in d2kc("explain", "smem").err


def test_explain_shows_examples_with_their_traps(d2kc: Command) -> None:
    done = d2kc("explain", "tma_bulk_copy")
    assert "make_block_ptr is not TMA" in done.out
    assert "Asked for by" in done.out and "gemm_bias_gelu" in done.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(d2kc: Command, shell: str) -> None:
    assert "_D2KC_COMPLETE" in d2kc("completion", shell).out


def test_the_command_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from d2k.cli.main import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("d2kc, version ")


def test_an_internal_error_says_how_to_report_it(d2kc: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> str:
        raise ZeroDivisionError("nothing")

    monkeypatch.setattr("d2k.cli.explanations.explanation", broken)
    done = d2kc("explain", "tma_bulk_copy")
    assert done.code == 3
    assert "ZeroDivisionError" in done.err and "report" in done.err
