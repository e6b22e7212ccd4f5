"""Every semantic diagnostic, told at its place: `semantic/*.d2k` mark what must be said about a line behind `#~`.

A mark is a code and the text under the caret. All mistakes of a file are found in one run, and nothing else is said.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from d2k.compiler.compile import check_parsed
from d2k.compiler.diagnostics import CODES, Diagnostic
from d2k.compiler.parse import parse_bytes
from d2k.compiler.problems import nearest

CASES = sorted((Path(__file__).parent / "semantic").glob("*.d2k"))
MARK = re.compile(r"#~ (D2K\d{4})(?: (.*?))?\s*(?=#~|$)", re.MULTILINE)

Mark = tuple[str, int, str, str]


def marks(path: Path) -> set[Mark]:
    found = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        found |= {(path.name, number, code, text) for code, text in MARK.findall(line)}
    return found


def check(path: Path) -> tuple[Diagnostic, ...]:
    return check_parsed(parse_bytes(path.read_bytes(), str(path)), path.parent)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_mistake_is_told_at_its_place_and_nothing_else(path: Path) -> None:
    told = {(Path(one.span.path).name, one.span.line, one.code, one.span.text) for one in check(path)}
    files = {path} | {Path(one.span.path) for one in check(path)}
    assert told == {mark for file in files for mark in marks(file)}


def test_the_cases_cover_every_semantic_code() -> None:
    covered = {code for path in CASES for _, _, code, _ in marks(path)}
    covered |= {code for _, _, code, _ in marks(CASES[0].parent / "circle" / "b.d2k")}
    semantic = {code for code in CODES if "D2K0300" < code < "D2K0900" or code > "D2K0910"}
    elsewhere = {"D2K0605", "D2K0914", "D2K0917", "D2K0918"}  # test_compile.py and test_modules.py
    assert semantic - covered == elsewhere


def test_names_have_suggestions_with_a_fix() -> None:
    by_text = {one.span.text: one for path in CASES if path.stem in ("names", "checks") for one in check(path)}
    for wrong, right in (
        ("shared_operand_reus", "shared_operand_reuse"),
        ("consumer", "consumers"),
        ("weigth", "weight"),
        ("bf61", "bf16"),
        ("halve", "half"),
        ("rtoll", "rtol"),
        ("edgy", "edge"),
        ("sm95", "sm90"),
        ("nromal", "normal"),  # the name alone: its arguments stay
    ):
        fix = by_text[wrong].fix
        assert by_text[wrong].help == f"did you mean `{right}`?"
        assert fix is not None
        assert [(edit.span.text, edit.replacement) for edit in fix.edits] == [(wrong, right)]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("dropout", None),  # resembles `route`, which would be a wrong fix
        ("rms_norm", "rmsnorm"),
        ("rmsnrom", "rmsnorm"),
        ("SiLU", "silu"),
    ],
)
def test_a_word_that_only_resembles_another_is_not_replaced(word: str, meant: str | None) -> None:
    known = ("add", "rmsnorm", "layernorm", "quant", "silu", "mul", "rope", "cache_write", "softmax", "route", "gate")
    assert nearest(word, known) == meant


def test_a_cycle_is_told_as_a_path_with_the_places_of_its_edges() -> None:
    path = next(path for path in CASES if path.stem == "cycle")
    (one,) = check(path)
    assert one.message == "requirements form a cycle: tile -> ring -> stage -> tile"
    assert [(note.text, note.span and note.span.line) for note in one.notes] == [
        ("`tile` requires `ring`", 19),
        ("`ring` requires `stage`", 21),
        ("`stage` requires `tile`", 20),
    ]


def test_a_mistake_in_a_pattern_leads_to_its_include() -> None:
    text = """d2k 1
pattern reuse(first : item) { L1 kv "A" { requires first  check shared_operand_reuse(operand = kv) } }
task t {
  title "t" summary "s" target sm90 axes M
  input A : bf16[M] ~ normal()
  output Y : bf16[M]
  entry run
  tolerance Y { atol = 1 } because "b"
  cost { flops = M on cuda.f32 }
  workload one { M = 8 }
  guidance {
    L1 a "A" { check epilogue_fusion }
    L2 tile "A" { requires a  check output_tiling }
    include reuse(first = a) as one
  }
}
"""
    (unbound,) = [one for one in check_parsed(parse_bytes(text.encode(), "t.d2k")) if one.code == "D2K0311"]
    assert (unbound.span.line, unbound.span.text) == (2, "kv")
    assert [(note.text, note.span and note.span.line) for note in unbound.notes] == [
        ("pattern `reuse` is included here", 14)
    ]


def test_what_every_workload_repeats_is_told_once() -> None:
    path = next(path for path in CASES if path.stem == "values")
    (mismatch,) = [one for one in check(path) if one.code == "D2K0608"]
    assert mismatch.message.startswith("workload `cost`: ")
