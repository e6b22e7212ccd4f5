"""`d2kc analyze`, `annotate` and `audit` on small kernels: contracts that other programs rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from d2k.spec.validate import find_problems
from d2k.spec.vocabulary import vocabulary
from tests.cli.conftest import KERNEL, Command


def test_json_has_an_entry_for_every_property(d2kc: Command, kernel: Path) -> None:
    done = d2kc("analyze", kernel, "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert not list(find_problems(report, "report"))
    (file,) = report["files"]
    assert file["path"] == str(kernel)
    assert file["language"] == "triton"
    assert [(one["name"], one["line"], one["reachable"]) for one in file["kernels"]] == [("scale", 8, True)]
    assert [one["id"] for one in file["properties"]] == [one.id for one in vocabulary().properties]
    assert {one["status"] for one in file["properties"]} <= {"present", "absent", "unknown"}
    hint = next(one for one in file["properties"] if one["id"] == "cache_policy_hint")
    (instance,) = hint["instances"]
    assert hint["status"] == "present"
    assert instance["kernel"] == "scale"
    assert instance["attributes"]["policy"] == ["evict_first"]
    assert instance["evidence"][0]["line"] == 10


def test_a_selection_does_not_change_the_contract(d2kc: Command, kernel: Path) -> None:
    done = d2kc("analyze", kernel, "--json", "--only", "L1")
    assert len(json.loads(done.out)["files"][0]["properties"]) == len(vocabulary().properties)


def test_output_is_deterministic(d2kc: Command, kernel: Path) -> None:
    assert d2kc("analyze", kernel, "--json").out == d2kc("analyze", kernel, "--json").out


def test_human_output_names_what_is_there(d2kc: Command, kernel: Path) -> None:
    done = d2kc("analyze", kernel, "--only", "cache_policy_hint")
    assert "scale" in done.out and "cache_policy_hint" in done.out and "evict_first" in done.out
    assert "\x1b[" not in done.out


def test_several_files_end_in_totals(d2kc: Command, kernel: Path) -> None:
    other = kernel.with_name("other.py")
    other.write_text(KERNEL.replace("scale", "double"))
    done = d2kc("analyze", kernel.parent)
    assert done.code == 0
    assert "kernel.py" in done.out and "other.py" in done.out and "2 files" in done.out


@pytest.mark.parametrize("form", ["sarif", "github"])
def test_other_forms(d2kc: Command, kernel: Path, form: str) -> None:
    done = d2kc("analyze", kernel, "--format", form)
    assert done.code == 0
    if form == "sarif":
        assert json.loads(done.out)["version"] == "2.1.0"


def test_the_audit_contract(d2kc: Command, kernel: Path) -> None:
    done = d2kc("audit", kernel, "--task", "gemm_bias_gelu", "--json")
    assert done.code == 0
    audit = json.loads(done.out)
    assert not list(find_problems(audit, "audit"))
    assert {"id", "level", "verdict", "credit", "reasons", "evidence"} <= set(audit["items"][0])
    assert {"combined", "low", "high", "L1", "L2", "L3", "gated"} <= set(audit["score"])


def test_fail_under(d2kc: Command, kernel: Path) -> None:
    low = d2kc("audit", kernel, "--task", "gemm_bias_gelu", "--fail-under", "90")
    assert low.code == 1
    assert d2kc("audit", kernel, "--task", "gemm_bias_gelu", "--fail-under", "0").code == 0


def test_html_is_one_page(d2kc: Command, kernel: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    assert d2kc("audit", kernel, "--task", "gemm_bias_gelu", "--html", page).code == 0
    text = page.read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert 'src="http' not in text and 'href="http' not in text


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_annotations_come_and_go(d2kc: Command, kernel: Path, ending: str, mark: bytes) -> None:
    before = mark + KERNEL.replace("\n", ending).encode()
    kernel.write_bytes(before)
    assert d2kc("annotate", kernel).code == 0
    annotated = kernel.read_bytes()
    assert b"# d2k| present cache_policy_hint(" in annotated
    lines = annotated.decode("utf-8-sig").splitlines()
    (at,) = [number for number, line in enumerate(lines) if "x = tl.load" in line]
    assert any("cache_policy_hint" in line for line in lines[at - 4 : at])
    assert d2kc("annotate", kernel).code == 0
    assert kernel.read_bytes() == annotated
    assert d2kc("annotate", kernel, "--remove").code == 0
    assert kernel.read_bytes() == before


def test_annotating_no_python(d2kc: Command, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n")
    done = d2kc("annotate", path)
    assert done.code == 2
    assert path.read_text() == "def f(:\n"
