"""The formatter: canonical, idempotent, and nothing that was said is lost."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from d2k.compiler.format import format_text
from d2k.compiler.layout import WIDTH
from d2k.compiler.lexer import tokenize
from d2k.compiler.parse import parse
from d2k.compiler.syntax import without_spans

FAST = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

SAMPLE = '''d2k 1
use guidance.pipelined_mma as pm

fn half(n) = -n // 2 + (n % 3) ** 2

property p L2 { title "P" definition """ long
  text """ needs tma attr stages : int "buffers" implies q(a >= 1) alias "x", "y" evidence cuda "z" }

pattern over(after : item, n : int = 2) { L2 o "x" { requires after check p(stages >= n) } }

task t {
  title "T" summary """
    a
      b

    c
  """
  target sm100, sm90
  axes M, lens : ints, causal : bool, V as vocab
  let B = [n * 2 for n in lens][0] + max(1, M,)
  where not (M == 3 or M > 4) and V in {1, 2}
  input X : bf16[M, B] ~ 2 * normal() as kv moves (M + 1) * 2 constant
  inout S : f4e2m1[M] packed u8
  output Y : f32
  intermediate pre : f32[M, M]
  draw X, S ~ "data.py" :: make
  entry run
  reference "reference.py" :: run
  baseline eager "b.py" :: eager
  baseline compiled "b.py" :: compiled
  tolerance Y { atol = 1e-2, matched = 99.9% } because "why"
  compare S with "reference.py" :: accept
  cost { flops = 2 * M on tensor.bf16 bytes = 64KiB }
  forbid torch.mm, torch.nn.functional.linear
  workload w { M = 1, lens = [1, 2], X ~ zeros() } from "x"
  workload odd [edge, held_out] { M = 2 }
  guidance {
    L1 a "A" { why "w" check all_kernels:(p(a = -1, b has {x, y}) and not q) or r weight 2 free }
    include pm.overlap(after = a) as ov
  }
}
'''


def assert_canonical(text: str) -> None:
    """Formatting keeps meaning and comments and is idempotent."""
    before = parse(text, "")
    assert before.diagnostics == ()
    formatted = format_text(text)
    after = parse(formatted, "")
    assert after.diagnostics == ()
    assert without_spans(after.tree) == without_spans(before.tree)
    assert [one.text for one in after.comments] == [one.text for one in before.comments]
    assert format_text(formatted) == formatted


def sources() -> list[str]:
    root = files("d2k")
    tasks = sorted(one.name for one in root.joinpath("tasks").iterdir() if one.joinpath("task.d2k").is_file())
    found = [root.joinpath("tasks", name, "task.d2k") for name in tasks]
    found += [root.joinpath("spec", "vocabulary.d2k"), root.joinpath("spec", "library", "std.d2k")]
    return [one.read_text(encoding="utf-8") for one in found if one.is_file()]


def test_the_sources_of_the_project_keep_their_meaning() -> None:
    texts = sources()
    assert len(texts) >= 3
    for text in texts:
        assert_canonical(text)


@FAST
@given(st.data())
def test_spaces_and_comments_between_tokens_never_matter(data: st.DataObject) -> None:
    """Any spacing and any comments between the tokens of a file format to something that means the same."""
    tokens = tokenize(SAMPLE)
    words = [SAMPLE[start:end] for start, end in zip(tokens.starts, tokens.ends, strict=True)]
    gaps = st.sampled_from([" ", "\n", "\n\n\n", "\t", "  # c\n", "\n# own\n", "\n\n#z\n\n", " \n"])
    spaces = data.draw(st.lists(gaps, min_size=len(words), max_size=len(words)))
    assert_canonical("".join(word + space for word, space in zip(words, spaces, strict=True)))


@FAST
@given(st.data())
def test_spacing_alone_does_not_change_the_canonical_form(data: st.DataObject) -> None:
    """Without comments and blank lines to keep, there is one canonical form."""
    tokens = tokenize(SAMPLE)
    words = [SAMPLE[start:end] for start, end in zip(tokens.starts, tokens.ends, strict=True)]
    gaps = st.sampled_from([" ", "\n", "\t", "  ", "\n   "])
    spaces = data.draw(st.lists(gaps, min_size=len(words), max_size=len(words)))
    respaced = "".join(word + space for word, space in zip(words, spaces, strict=True))
    assert format_text(respaced) == format_text(" ".join(words))


@FAST
@given(st.lists(st.integers(0, 10**9), max_size=60), st.integers(1, 40))
def test_broken_lists_fit_and_keep_their_elements(numbers: list[int], length: int) -> None:
    name = "n" * length
    text = f"task t {{ let {name} = {numbers} workload w {{ {name} = {numbers}, u ~ values({numbers}) }} }}"
    assert_canonical(text)
    assert all(len(line) <= WIDTH for line in format_text(text).splitlines())


@pytest.mark.parametrize("text", ["task t {", "task t { let x = }", "\0", 'title "x'])
def test_a_text_with_errors_comes_back_as_it_is(text: str) -> None:
    assert format_text(text) == text


def test_an_empty_text_stays_empty_and_comments_stay_alone() -> None:
    assert format_text("") == ""
    assert format_text("\n\n") == ""
    assert format_text("\n# a\n\n\n\n# b") == "# a\n\n# b\n"


def test_a_comment_stays_with_the_brace_behind_which_it_stood() -> None:
    text = "task t {  # one\n}  # two\n"
    assert format_text(text) == text


def test_one_blank_line_stays_none_is_made() -> None:
    text = "task t {\n\n\n  let   A = 1\n\n\n\n  let   B = 2\n  let   C = 3\n\n}\n"
    assert format_text(text) == "task t {\n  let   A = 1\n\n  let   B = 2\n  let   C = 3\n}\n"


def test_blocks_of_a_file_stand_apart_and_their_comments_with_them() -> None:
    text = "d2k 1\n# about t\ntask t {}\n# about u\ntask u {}\nfn f() = 1\nfn g() = 2\n"
    assert format_text(text) == ("d2k 1\n\n# about t\ntask t {}\n\n# about u\ntask u {}\n\nfn f() = 1\nfn g() = 2\n")


def test_columns_line_up_only_with_direct_neighbours() -> None:
    text = """task t {
  input Q : bf16[B, S] ~ 2 * normal() as query
  input K : bf16[B] ~ normal() as kv

  input long_name : i32 ~ zeros()
  output O : f32[B]
}
"""
    assert (
        format_text(text)
        == """task t {
  input  Q : bf16[B, S] ~ 2 * normal() as query
  input  K : bf16[B]    ~ normal()     as kv

  input  long_name : i32 ~ zeros()
  output O         : f32[B]
}
"""
    )


def test_a_long_condition_breaks_at_its_connectives() -> None:
    term = "tma_bulk_copy(direction has load, tensor = activation)"
    text = f'task t {{ guidance {{ L1 a "x" {{ check {term} and {term} and ({term} or p) }} }} }}'
    assert format_text(text).splitlines()[3:6] == [
        f"      check {term}",
        f"        and {term}",
        f"        and ({term} or p)",
    ]
    assert_canonical(text)


def test_fixes_and_formatting_do_not_depend_on_line_ends() -> None:
    assert format_text(SAMPLE.replace("\n", "\r\n")) == format_text(SAMPLE)
    assert format_text("\ufeff" + SAMPLE) == format_text(SAMPLE)
