"""docs/language.md is true: its examples compile, and its lists are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from d2k.compiler.compile import check_parsed
from d2k.compiler.diagnostics import Severity
from d2k.compiler.distributions import FAMILIES
from d2k.compiler.format import format_text
from d2k.compiler.parse import parse
from d2k.compiler.tables import tables
from d2k.spec.dtypes import DTYPES
from d2k.spec.hardware import ENGINES
from d2k.spec.inference import BUILTINS
from d2k.spec.vocabulary import Tier

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```d2k (file|in task|in guidance)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
RESERVED = {"and", "or", "not", "in", "has", "if", "then", "else", "for", "true", "false"}

TASK = """d2k 1
task t {{
  title "T" summary "S" target sm90, sm100 entry run
  reference "reference.py" :: run baseline eager "baseline.py" :: eager
  cost {{ flops = 1 on cuda.f32 }}
  {}
}}
"""
GUIDANCE = """axes M input A : bf16[M] ~ normal() output Y : bf16[M]
  tolerance Y {{ atol = 1e-2 }} because "x" workload w {{ M = 8 }}
  guidance {{
    L1 fuse "Fuse" {{ check epilogue_fusion }}
    L2 tile "Tile" {{ requires fuse check output_tiling }}
    {}
  }}"""


def whole(kind: str, body: str) -> str:
    if kind == "file":
        return body
    return TASK.format(body if kind == "in task" else GUIDANCE.format(body))


def test_there_are_examples_of_every_kind() -> None:
    assert {kind for kind, _ in EXAMPLES} == {"file", "in task", "in guidance"}


@pytest.mark.parametrize(("kind", "body"), EXAMPLES)
def test_an_example_compiles_without_an_error(kind: str, body: str) -> None:
    found = check_parsed(parse(whole(kind, body), "docs/language.md"))
    assert [one for one in found if one.severity is Severity.ERROR] == []


@pytest.mark.parametrize("body", [body for kind, body in EXAMPLES if kind == "file"])
def test_whole_files_are_in_canonical_form(body: str) -> None:
    assert format_text(body) == body


def test_every_word_of_the_language_is_on_the_page() -> None:
    words = set(re.findall(r"\w+", PAGE))
    assert set(tables().words) - words == set()


def test_the_lists_are_complete() -> None:
    names = set(re.findall(r"[\w.]+", PAGE))
    for known in (FAMILIES, DTYPES, ENGINES, BUILTINS, Tier):
        assert {str(one) for one in known} - names == set()


def test_the_reserved_words_are_those_that_cannot_be_names() -> None:
    refused = set()
    for word in tables().words:
        if parse(f"task t {{ axes {word} }}", "").diagnostics:
            refused.add(word)
    assert refused == RESERVED
    assert "`and or not in has if then else for true false`" in PAGE
