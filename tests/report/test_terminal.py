"""Terminal output, against texts written from the design's sketches."""

from __future__ import annotations

import re

import msgspec
import pytest
from audit_example import SOURCE, example_audit, example_report, example_task
from hypothesis import given
from hypothesis import strategies as st
from submissions import absent, evidence, kernel, report

from d2k.report.layout import cells, clean, cut, points, short_paths, wrap
from d2k.report.terminal import render_audit, render_audit_diff, render_report, render_report_diff
from d2k.spec.audit import Audit
from d2k.spec.finding import FileReport, Reason, Report, Why
from d2k.spec.vocabulary import Tier

SOURCES = {"kernel.py": SOURCE}

# Score: L1 (1 + 1)/2; L2 (1 + 0 + 1/2)/3; L3 (0 + 1/2 + 0 + 0)/4, to (0 + 1/2 + 1 + 0)/4. Mean 54.2, to 62.5.
# Gated changes nothing: what requires the missing pipeline is missing too.
# Steps: pipeline 1/3 of L2 is 100/9; lazy_rescale is unknown, no step; tmem 1/4 of L3 is 100/12; peel lacks 1/2 of 1/3.
# The root cause adds 1/4 of L3 to the pipeline: 100/9 + 100/12.
AUDIT = """\
example · kernel.py · sm_100a · evidence: source

  implementation score 54 (54..62)   L1 100 · L2 50 · L3 12   gated 54

  L1 ✓ online            running max and sum over key blocks        kernel.py:20
  L1 ✓ stop_at_diagonal  loop ends at the diagonal                  kernel.py:17
  L2 ✓ query_tile        block_m 128, block_n {64, 128}           kernel.py:7 +1
  L2 ✗ pipeline          num_stages=1 in every config                kernel.py:7
  L2 ~ peel              edges {boundary}, needs diagonal (50 %)    kernel.py:17
  L3 ✗ bulk              pointer loads; requires pipeline           kernel.py:18
                         (missing)
  L3 ~ fold_scale        exp is called; no log2(e) folded into the  kernel.py:21
                         scale (50 %)
  L3 ? lazy_rescale      helper `rescale` is imported from a module that was not
                         given
  L3 ✗ tmem              no trace of accumulators in tensor memory

  root causes  pipeline -> unlocks bulk (+19.4 points)
  next         1. Keep at least two key blocks in flight at kernel.py:7 (+11.1)
               2. Accumulate in tensor memory (+8.3)
               3. mask_peeling with edges has {diagonal, boundary} at
               kernel.py:17 (+5.6)

  ! guard  library_delegation suspected: torch.matmul on the timed path
           (kernel.py:26)

  --why pipeline unfolds an item
"""

WHY = """\
example · kernel.py · sm_100a · evidence: source

  ✗ pipeline  L2
  missing, credit 0 %, weight 1
  Keep at least two key blocks in flight
  why       The latency of a load is several blocks long; with one buffer the
            matrix units idle at every step.
  check     multistage_pipeline(stages >= 2)
  found     num_stages=1 in every config
  terms     multistage_pipeline(stages >= 2): absent, 0 %
  reason    wrong parameter
    source  kernel.py:7  num_stages=1 in every config
      7 |         triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=1,…
  requires
    L2 ✓ query_tile  A tile of 128 query rows against blocks of 64 keys
      L1 ✓ online  Walk the keys in blocks with a running maximum and sum
"""

# 70 properties: 5 present, 3 absent with words, 1 unknown, the others without a trace
REPORT = """\
kernel.py  triton  2 kernels, 1 launched                          target sm_100a
  _attn_fwd  :13  2 configs
    present   online_softmax:20  block_sparsity_skip(pattern {causal}):17
              output_tiling(block_m 128, block_n {64, 128}):7
              mask_peeling(edges {boundary}):17  fp32_accumulate:16
    absent    multistage_pipeline (num_stages=1 in every config)
              tma_bulk_copy (pointer loads)
              exp2_scaled_softmax (exp is called; no log2(e) folded into the
              scale)
              and 61 without a trace (--all says why)
    unknown   lazy_rescale (helper `rescale` is imported from a module that was
              not given)
  _bwd_old  :140  never launched
  ! guard  library_delegation suspected: torch.matmul on the timed path
           (kernel.py:26)
"""


def analysis(*files: FileReport) -> Report:
    return Report("", "sm_100a", "", (Tier.SOURCE,), files)


def test_audit() -> None:
    assert render_audit(example_audit(), SOURCES, colour=False, width=80) == AUDIT


def test_one_item_unfolded() -> None:
    shown = render_audit(example_audit(), SOURCES, colour=False, width=80, why="pipeline", task=example_task())
    assert shown == WHY


def test_report() -> None:
    assert render_report(analysis(example_report()), colour=False, width=80) == REPORT


def test_without_a_trace_is_counted_and_told_on_request() -> None:
    bare = absent("tma_bulk_copy", detail="every access goes through pointers")
    found = analysis(report(bare))
    short, long = (render_report(found, colour=False, width=80, every=every) for every in (False, True))
    assert "70 without a trace (--all says why)" in short and "tma_bulk_copy" not in short
    assert "tma_bulk_copy (every access goes through pointers)" in long and "and 69 without a trace\n" in long


def test_a_file_without_kernels_says_so() -> None:
    assert "no kernel was found in this file" in render_report(analysis(report(kernels=())), colour=False, width=80)


def test_many_files_have_a_line_each_and_totals() -> None:
    files = [msgspec.structs.replace(example_report(), path=f"src/kernel{index}.py") for index in range(4)]
    lines = render_report(analysis(*files), colour=False, width=80).splitlines()
    assert " ".join(lines[0].split()) == "src/kernel0.py triton 2 kernels 1 launched 5 present 1 unknown"
    assert "4 files, 8 kernels, 4 launched, target sm_100a" in lines
    assert "online_softmax 4" in lines[-1] or "online_softmax 4" in lines[-2]


def test_diff_of_designs() -> None:
    before = example_report()
    after = report(
        *(one for one in before.properties if one.id in ("online_softmax", "block_sparsity_skip", "fp32_accumulate")),
        *(
            msgspec.structs.replace(one, status=before.properties[0].status, instances=before.properties[0].instances)
            for one in before.properties
            if one.id == "multistage_pipeline"
        ),
        path="other.py",
    )
    shown = render_report_diff(analysis(before, after), colour=False, width=80).splitlines()
    assert shown[:2] == ["- kernel.py", "+ other.py"]
    assert "+ multistage_pipeline" in [line.rstrip() for line in shown]
    assert "- mask_peeling edges {boundary}" in shown
    assert "? lazy_rescale unknown -> absent" in shown
    assert shown[-1] == "3 properties present in both alike"


def test_diff_of_audits() -> None:
    shown = render_audit_diff(example_audit(), example_audit("sm_90a"), colour=False, width=80)
    # without tmem L3 is (0 + 1/2 + 0)/3: (100 + 50 + 16.7)/3
    assert shown.splitlines() == [
        "- kernel.py · example · sm_100a · score 54",
        "+ kernel.py · example · sm_90a · score 56",
        "",
        "  L3 ✗ -> –  tmem  sm_90a has no tcgen05 and no tmem",
        "",
        "8 items alike",
    ]


def strip(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_colour_changes_nothing_but_colour() -> None:
    for why in (None, "pipeline", "fold_scale"):
        plain = render_audit(example_audit(), SOURCES, colour=False, width=80, why=why)
        painted = render_audit(example_audit(), SOURCES, colour=True, width=80, why=why)
        assert "\x1b" not in plain
        assert painted != plain
        assert strip(painted) == plain


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_line_fits(width: int) -> None:
    audit = example_audit()
    texts = [
        render_audit(audit, SOURCES, colour=False, width=width),
        *(
            render_audit(audit, SOURCES, colour=False, width=width, why=one.id, task=example_task())
            for one in audit.items
        ),
        render_report(analysis(example_report()), colour=False, width=width),
        render_report(analysis(*[example_report()] * 5), colour=False, width=width),
    ]
    assert [line for text in texts for line in text.splitlines() if cells(line) > width] == []


def test_nothing_applicable_has_no_score() -> None:
    audit = msgspec.structs.replace(
        example_audit(), score=msgspec.structs.replace(example_audit().score, combined=None, low=None, high=None)
    )
    assert "no item of the guidance applies here: no score" in render_audit(audit, {}, colour=False, width=80)


def test_unknown_items_say_what_would_settle_them() -> None:
    items = tuple(
        msgspec.structs.replace(one, reasons=(Why(Reason.NOT_ANALYZABLE, "needs compiled evidence (PTX)"),))
        for one in example_audit().items
    )
    audit = msgspec.structs.replace(example_audit(), items=items)
    assert "of 1 unknown item 1 can be settled by compiled evidence only" in render_audit(audit, {}, False, 100)


def hostile(text: str) -> Audit:
    """The example with a stranger's text wherever a kernel file can put one."""
    example = example_audit()
    places = (evidence(1, text, f"{text}.py"),)
    items = tuple(
        msgspec.structs.replace(one, fact=text, evidence=places, reasons=(Why(Reason.NO_TRACE, text, places),))
        for one in example.items
    )
    problems = (Why(Reason.NOT_ANALYZABLE, text, places),)
    return msgspec.structs.replace(example, items=items, files=(f"{text}.py",), problems=problems)


@given(st.text(max_size=200))
def test_text_of_strangers_cannot_move_the_cursor(text: str) -> None:
    audit = hostile(text)
    shown = render_audit(audit, {f"{text}.py": text}, colour=False, width=80)
    shown += render_audit(audit, {f"{text}.py": text}, colour=False, width=80, why="pipeline")
    shown += render_report(analysis(msgspec.structs.replace(example_report(), path=text)), colour=False, width=80)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    shown.encode("utf-8")


def test_dead_and_unlaunched_kernels_are_told_apart() -> None:
    exported = msgspec.structs.replace(kernel("waits", launched=False), reachable=True)
    shown = render_report(analysis(report(kernels=(exported, kernel("dead", launched=False)))), False, 80)
    assert "waits  :1  no launch in this file" in shown
    assert "dead  :1  never launched" in shown


@given(st.text(), st.integers(1, 30))
def test_wrap_keeps_every_word_and_the_width(text: str, width: int) -> None:
    text = clean(text)
    lines = wrap(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    # a wide character does not fit into one column
    assert all(cells(line) <= max(width, 2) for line in lines)


@given(st.text(), st.integers(2, 30))
def test_cut_fits(text: str, width: int) -> None:
    assert cells(cut(clean(text), width)) <= width


def test_points() -> None:
    shown = [points(value) for value in (0, 0.4, 1, 54.2, 62.5, 99.7, 100)]
    assert shown == ["0", "<1", "1", "54", "62", "99", "100"]


def test_paths_are_short_where_that_is_unique() -> None:
    paths = ["a/kernel.py", "b/kernel.py", "c/other.py"]
    assert short_paths(paths) == {"a/kernel.py": "a/kernel.py", "b/kernel.py": "b/kernel.py", "c/other.py": "other.py"}
