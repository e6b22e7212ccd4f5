"""The table of codes, their long forms with both examples compiled, and suggestions."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2k.compiler.compile import check_parsed
from d2k.compiler.diagnostics import CODES, Severity, diagnostic, edit_distance, explain, nearest, title
from d2k.compiler.parse import parse
from d2k.compiler.source import Source, Span

# Codes whose cause does not fit into a few lines of text: bytes, size and depth.
WITHOUT_EXAMPLE = {"D2K0101", "D2K0102", "D2K0103", "D2K0217", "D2K0224"}
SYNTAX = sorted(code for code in CODES if code < "D2K0300" and code not in WITHOUT_EXAMPLE)
"""Those of the other codes are compiled by test_semantic_explanations.py."""

EXAMPLE = re.compile(
    r"^(Wrong|Right):\n\n```d2k (file|in task|in guidance|in item)\n(.*?)\n```$", re.MULTILINE | re.DOTALL
)

# What the examples of a task, of a guidance or of an item leave out. An example's own statements replace these.
TASK = {
    "title": 'title "Double"',
    "summary": 'summary "Y = 2 X"',
    "target": "target sm100, sm90",
    "axes": "axes M",
    "input": "input X : bf16[M] ~ normal() as activation",
    "output": "output Y : bf16[M]",
    "entry": "entry run",
    "reference": 'reference "reference.py" :: run',
    "baseline": 'baseline eager "baseline.py" :: eager',
    "tolerance": 'tolerance Y { atol = 1e-2 } because "one rounding"',
    "cost": "cost { flops = 2 * M on cuda.f32 }",
    "workload": "workload small { M = 128 }",
}


def whole_file(kind: str, example: str) -> str:
    if kind == "file":
        return example
    if kind == "in item":
        example = f'L1 fuse "Fuse" {{\n{example}\n}}\nL2 tile "Tile" {{ requires fuse  check output_tiling }}'
        kind = "in guidance"
    if kind == "in guidance":
        example = f"guidance {{\n{example}\n}}"
    own = {words[0] for words in map(str.split, example.splitlines()) if words}
    others = [text for keyword, text in TASK.items() if keyword not in own and keyword + "{" not in own]
    return "d2k 1\n\ntask t {\n" + "\n".join([*others, example]) + "\n}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("task")
    (found / "reference.py").write_text("def run(): ...\ndef accept(): ...\n")
    (found / "baseline.py").write_text("def eager(): ...\n")
    (found / "data.py").write_text("def make(): ...\n")
    return found


def found(text: str, folder: Path) -> dict[str, Severity]:
    return {one.code: one.severity for one in check_parsed(parse(text, "example.d2k"), folder)}


def examples(code: str) -> dict[str, tuple[str, str]]:
    return {name: (kind, text) for name, kind, text in EXAMPLE.findall(explain(code) or "")}


@pytest.mark.parametrize("code", SYNTAX)
def test_the_wrong_example_has_this_mistake_and_no_other(code: str, folder: Path) -> None:
    diagnostics = found(whole_file(*examples(code)["Wrong"]), folder)
    assert code in diagnostics
    assert {one for one, severity in diagnostics.items() if severity is Severity.ERROR} <= {code}


@pytest.mark.parametrize("code", SYNTAX)
def test_the_right_example_is_right(code: str, folder: Path) -> None:
    diagnostics = found(whole_file(*examples(code)["Right"]), folder)
    assert code not in diagnostics
    assert Severity.ERROR not in diagnostics.values()


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_has_a_title_and_an_explanation(code: str) -> None:
    text = explain(code)
    assert text is not None
    assert text.startswith(f"# {CODES[code].severity}[{code}]: {title(code)}\n\n")
    assert code > "D2K0300" or (code in WITHOUT_EXAMPLE) == (examples(code) == {})
    assert max(map(len, text.splitlines())) <= 120


def test_no_explanation_is_left_over() -> None:
    names = {one.name.removesuffix(".md") for one in files("d2k.compiler").joinpath("explanations").iterdir()}
    assert names == set(CODES)


def test_an_unknown_code_has_no_explanation() -> None:
    assert explain("D2K9999") is None


@pytest.mark.parametrize("code", sorted(CODES))
def test_ids_have_one_form_and_templates_can_be_filled(code: str) -> None:
    entry = CODES[code]
    assert re.fullmatch(r"D2K0\d{3}", entry.id) and entry.id == code
    templates = entry.message + entry.label + entry.help
    details = {name: "x" for _, name, _, _ in Formatter().parse(templates) if name}
    filled = diagnostic(code, Span(0, 0, Source("", "")), **details)
    assert filled.message and filled.severity is entry.severity
    assert not filled.message.endswith(".")


def test_long_details_are_cut_and_stay_on_one_line() -> None:
    filled = diagnostic("D2K0303", Span(0, 0, Source("", "")), name="a\nb\x1b[31m" + "x" * 500)
    assert filled.message.startswith("`a\\nb\\x1b[31mxxx")
    assert filled.message.isprintable()
    assert len(filled.message) < 150


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("baselne", "baseline"),
        ("outptu", "output"),  # a swap is one edit
        ("weigth", "weight"),
        ("Guidance", "guidance"),
        ("frobnicate", None),
        ("x", None),
        ("weight", None),  # known words are no misspellings
    ],
)
def test_the_nearest_word(word: str, meant: str | None) -> None:
    assert nearest(word, ["baseline", "output", "input", "weight", "guidance"]) == meant


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [("", "", 0), ("abc", "abc", 0), ("abc", "abd", 1), ("abc", "acb", 1), ("abc", "ab", 1), ("kitten", "sitting", 3)],
)
def test_edit_distances(left: str, right: str, distance: int) -> None:
    assert edit_distance(left, right, 10) == distance
    assert edit_distance(right, left, 10) == distance


@given(st.text(alphabet="abc", max_size=8), st.text(alphabet="abc", max_size=8), st.integers(0, 4))
def test_a_limit_only_hides_what_is_beyond_it(left: str, right: str, limit: int) -> None:
    full = edit_distance(left, right, 99)
    limited = edit_distance(left, right, limit)
    assert limited == full if full <= limit else limited > limit
