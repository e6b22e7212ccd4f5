"""SARIF and GitHub annotations of analyses and audits."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from audit_example import example_audit, example_report, hostile_audit
from submissions import report

from d2k.report.findings import render, render_audit_findings
from d2k.spec.finding import FileReport, Reason, Report, Why
from d2k.spec.vocabulary import Tier


def results(text: str) -> list[dict[str, Any]]:
    """The results of a log, after checks that hold for every SARIF log."""
    document = json.loads(text)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        # SARIF 2.1.0, 3.27.9 and 3.27.10: only a failure has a level
        assert one["kind"] == "fail" or one["level"] == "none"
        assert one["message"]["text"]
        for location in [*one["locations"], *one.get("relatedLocations", [])]:
            region = location["physicalLocation"]["region"]
            assert 1 <= region["startLine"] <= region["endLine"]
    found: list[dict[str, Any]] = run["results"]
    return found


def line(result: dict[str, Any]) -> int:
    found: int = result["locations"][0]["physicalLocation"]["region"]["startLine"]
    return found


def analysis(*files: FileReport) -> Report:
    return Report("", "sm_100a", "", (Tier.SOURCE,), files)


def test_verdicts_have_the_kinds_that_sarif_has_for_them() -> None:
    found = {one["ruleId"]: one for one in results(render_audit_findings(example_audit("sm_90a"), "sarif"))}
    kinds = {name: (one["kind"], one["level"]) for name, one in found.items()}
    assert kinds == {
        "guidance/online": ("pass", "none"),
        "guidance/stop_at_diagonal": ("pass", "none"),
        "guidance/query_tile": ("pass", "none"),
        "guidance/pipeline": ("fail", "warning"),
        "guidance/peel": ("fail", "note"),
        "guidance/bulk": ("fail", "warning"),
        "guidance/fold_scale": ("fail", "note"),
        "guidance/lazy_rescale": ("open", "none"),
        "guidance/tmem": ("notApplicable", "none"),
        "guard/library_delegation": ("review", "none"),
    }
    assert line(found["guidance/pipeline"]) == 7
    # what stands nowhere is shown at the launched kernel
    assert line(found["guidance/tmem"]) == 13


def test_audit_annotations() -> None:
    lines = render_audit_findings(example_audit(), "github").splitlines()
    assert lines[0] == (
        "::warning file=kernel.py,line=7,endLine=7,title=guidance/pipeline::"
        "L2 pipeline missing: Keep at least two key blocks in flight. num_stages=1 in every config"
    )
    # what is implemented needs no annotation
    assert not any("guidance/online" in one for one in lines)


def test_analysis() -> None:
    found = results(render(analysis(example_report()), "sarif"))
    by_rule = {one["ruleId"]: one for one in found}
    assert by_rule["property/online_softmax"]["kind"] == "informational"
    assert by_rule["property/lazy_rescale"]["kind"] == "open"
    assert "property/tma_bulk_copy" not in by_rule
    assert [line(by_rule["property/output_tiling"]), len(by_rule["property/output_tiling"]["relatedLocations"])] == [
        7,
        1,
    ]


def test_problems_are_errors() -> None:
    problem = Why(Reason.NOT_ANALYZABLE, "syntax error")
    broken = msgspec.structs.replace(report(kernels=()), problems=(problem,))
    (found,) = results(render(analysis(broken), "sarif"))
    assert (found["ruleId"], found["level"], line(found)) == ("problem", "error", 1)
    assert render(analysis(broken), "github") == "::error file=kernel.py,line=1,endLine=1,title=problem::syntax error"


def test_a_strangers_text_stays_inside_its_message() -> None:
    audit = hostile_audit("a\n::error file=b::c,d%0A")
    results(render_audit_findings(audit, "sarif"))
    lines = render_audit_findings(audit, "github").splitlines()
    start = re.compile(r"::(warning|notice|error) file=(a%0A%3A%3Aerror file=b%3A%3Ac%2Cd%250A|kernel\.py),")
    assert [one for one in lines if not start.match(one)] == []
    # of the nine items six have an annotation, and there are a guard and a problem
    assert len(lines) == 8
