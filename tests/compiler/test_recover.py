"""Error recovery: every independent mistake, nothing invented, and the rest of the file intact.

The single cases are those of the conformance suite; here is what its files cannot say.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest

from d2k.compiler import syntax as s
from d2k.compiler.lexer import tokenize
from d2k.compiler.parse import Parsed, parse
from d2k.compiler.recover import MAX_ERRORS


def codes(parsed: Parsed) -> list[str]:
    return [one.code for one in parsed.diagnostics]


def names(nodes: tuple[s.Node, ...]) -> list[str]:
    return [node.name.name for node in nodes if isinstance(node, s.Let | s.Item | s.Task | s.Workload)]


TASK = """d2k 1

task attention {
  axes  lens : ints, Hq, Hk, D, page
  let   B = len(lens)
  let   P = sum(cdiv(n, page) for n in lens)
  input q : bf16[B, Hq, D] ~ 2 * normal() as query
  output O : bf16[B, Hq, D]

  workload small { lens = [1, 2], Hq = 32, Hk = 8, D = 128, page = 64 }
  workload large { lens = [65536], Hq = 32, Hk = 8, D = 128, page = 64 } from "one long request"

  guidance {
    L1 split "Cut the key axis" {
      check reduction_axis_parallelism(axis = kv, splits >= 2)
    }
    L2 balance "Balance chunks" { requires split  check balanced_work_split(policy in {a, b}) }
    L3 wide "Wide loads" {
      requires balance
      check vectorized_global_access(bits >= 128)
    }
  }
}
"""


def damaged(*changes: tuple[str, str]) -> Parsed:
    text = TASK
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} must be unambiguous"
        text = text.replace(old, new)
    return parse(text, "test.d2k")


def test_the_text_without_damage_is_clean() -> None:
    assert codes(parse(TASK, "test.d2k")) == []


def test_four_seeded_mistakes_are_four_diagnostics() -> None:
    parsed = damaged(
        ("let   B = len(lens)", "let   B ="),
        ("axis = kv, splits", "axis = , splits"),
        ("requires split  check", "requires   check"),
        ("[65536], Hq = 32", "[65536], Hq = "),
    )
    assert [(one.code, one.span.line) for one in parsed.diagnostics] == [
        ("D2K0202", 5),
        ("D2K0202", 11),
        ("D2K0202", 15),
        ("D2K0220", 17),
    ]


def test_what_surrounds_a_broken_statement_stays() -> None:
    parsed = damaged(("let   B = len(lens)", "let   B ="), ("axis = kv, splits", "axis = , splits"))
    (task,) = parsed.tree.every(s.Task)
    assert names(task.every(s.Let)) == ["P"]
    guidance = task.first(s.Guidance)
    assert guidance is not None
    assert names(guidance.every(s.Item)) == ["split", "balance", "wide"]
    assert guidance.every(s.Item)[0].statements == ()


def test_names_of_a_broken_statement_are_lost_not_unknown() -> None:
    parsed = damaged(("let   B = len(lens)", "let   B ="))
    assert "B" in parsed.lost
    assert "P" not in parsed.lost


def test_what_an_open_block_string_swallows_is_lost() -> None:
    parsed = damaged(("  let   P = sum", '  summary """\n  let   P = sum'))
    assert codes(parsed) == ["D2K0106"]
    assert {"P", "workload", "small", "guidance"} <= parsed.lost


def test_a_repaired_statement_loses_nothing() -> None:
    parsed = damaged(("let   B = len(lens)", "let   B len(lens)"), ("requires balance", "require balance"))
    assert codes(parsed) == ["D2K0203", "D2K0206"]
    assert parsed.lost == frozenset()
    (task,) = parsed.tree.every(s.Task)
    assert names(task.every(s.Let)) == ["B", "P"]


def test_a_misspelt_direction_is_taken_for_the_right_one() -> None:
    parsed = damaged(("  output O", "  outptu O"))
    assert codes(parsed) == ["D2K0206"]
    (task,) = parsed.tree.every(s.Task)
    assert [one.kind.name for one in task.every(s.Tensor)] == ["input", "output"]


def test_an_unclosed_item_keeps_its_neighbours_and_itself() -> None:
    parsed = damaged(("splits >= 2)\n    }", "splits >= 2)"))
    assert [(one.code, one.span.line) for one in parsed.diagnostics] == [("D2K0204", 14)]
    guidance = parsed.tree.every(s.Task)[0].first(s.Guidance)
    assert guidance is not None and names(guidance.every(s.Item)) == ["split", "balance", "wide"]


def test_an_unclosed_task_is_blamed_on_the_block_whose_brace_is_gone() -> None:
    """The brace of `guidance` is missing; the last one of the file closes it, by its indentation it was the task's."""
    parsed = damaged(("    }\n  }\n}\n", "    }\n}\n"))
    assert [(one.code, one.span.line) for one in parsed.diagnostics] == [("D2K0204", 13)]


def test_a_file_that_stops_halfway_keeps_what_was_read() -> None:
    text = TASK[: TASK.index("Hq = 32, Hk = 8, D = 128, page = 64 } from")]
    parsed = parse(text, "test.d2k")
    assert len(parsed.diagnostics) == 1
    assert names(parsed.tree.every(s.Task)) == ["attention"]


@pytest.mark.parametrize("position", range(0, len(TASK), 7))
def test_a_file_cut_anywhere_gives_at_most_two_messages(position: int) -> None:
    """One for what was begun, one if a string or a block is open as well."""
    assert len(parse(TASK[:position], "test.d2k").diagnostics) <= 2


@pytest.mark.parametrize("line", range(4, TASK.count("\n") - 1))
def test_a_lost_line_gives_at_most_one_message(line: int) -> None:
    lines = TASK.splitlines(keepends=True)
    parsed = parse("".join(lines[: line - 1] + lines[line:]), "test.d2k")
    assert len(parsed.diagnostics) <= 1


def test_one_wrong_token_is_almost_always_one_message() -> None:
    """Every token of a file once left out and once written twice."""
    tokens = tokenize(TASK)
    places = list(zip(tokens.starts, tokens.ends, strict=True))[:-1]
    counts: Counter[int] = Counter()
    for start, end in places:
        for text in (TASK[:start] + TASK[end:], TASK[:end] + " " + TASK[start:end] + TASK[end:]):
            counts[len(parse(text, "test.d2k").diagnostics)] += 1
    assert max(counts) <= 2
    assert counts[2] <= 0.02 * counts.total()


def test_a_mistake_in_every_statement_is_a_message_for_every_statement() -> None:
    lines = [f"  let A{number} = {number} +" for number in range(40)]
    parsed = parse("task t {\n" + "\n".join(lines) + "\n}\n", "test.d2k")
    assert [one.span.line for one in parsed.diagnostics] == list(range(2, 42))
    assert set(codes(parsed)) == {"D2K0202"}


def test_after_fifty_errors_the_parser_stops() -> None:
    parsed = parse("task t {\n" + "  let A =\n" * 500 + "}\n", "test.d2k")
    assert len(parsed.diagnostics) == MAX_ERRORS + 1
    assert parsed.diagnostics[-1].code == "D2K0224"


def test_two_tasks_are_read_apart() -> None:
    """A mistake in one top-level block does not reach into the next, not even a missing brace."""
    parsed = parse("task a {\n  axes M\n  cost { flops = 2\n\ntask b {\n  let x =\n}\n", "test.d2k")
    assert names(parsed.tree.every(s.Task)) == ["a", "b"]
    assert [one.span.line for one in parsed.diagnostics if one.code == "D2K0202"] == [6]


def test_fixes_of_missing_signs_make_the_file_clean() -> None:
    from d2k.compiler.fixes import apply

    parsed = damaged(
        ("axes  lens : ints, Hq, Hk", "axes  lens : ints, Hq Hk"),
        ("let   B = len(lens)", "let   B len(lens)"),
        ("bf16[B, Hq, D] ~ 2", "bf16[B, Hq, D ~ 2"),
        ("requires balance", "require balance"),
        ("splits >= 2)\n    }", "splits >= 2)"),
        ("bits >= 128", "bits == 128"),
    )
    assert len(parsed.diagnostics) == 6
    text, count = apply(parsed.source.text, parsed.diagnostics)
    assert count == 6
    assert codes(parse(text, "test.d2k")) == []


def test_fixes_of_foreign_spelling_make_the_file_clean() -> None:
    from d2k.compiler.fixes import apply

    text = (
        'task t {\n  title \'a "b" c\';\n  where M = 3 && N \u2264 4\n  let x = 128%M\n  baselne eager "b.py" :: f\n}\n'
    )
    parsed = parse(text, "test.d2k")
    assert codes(parsed) == ["D2K0113", "D2K0214", "D2K0209", "D2K0213", "D2K0114", "D2K0222", "D2K0206"]
    assert codes(parse(apply(text, parsed.diagnostics)[0], "test.d2k")) == []


RUBBISH = [
    "(",
    "let x = ( ",
    "let x = { \n",
    "task t { \n",
    "L1 a { check ( \n",
    "} \n",
    "  } \n",
    "frobnicate 3\n",
    "chekc 3\n",
    "a { b ( c [\n",
    '"""\n',
    "let @ \n",
]


def seconds(text: str) -> float:
    begun = time.process_time()
    parse(text, "test.d2k")
    return time.process_time() - begun


def test_ten_megabytes_are_refused_at_once() -> None:
    assert codes(parse("(" * 10_000_000, "test.d2k")) == ["D2K0102"]
    assert seconds("(" * 10_000_000) < 5


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_time_on_rubbish_is_bounded(rubbish: str) -> None:
    """A quadratic recovery would take minutes; how time grows is measured in benchmarks/bench_language.py."""
    assert seconds(rubbish * (32_000 // len(rubbish))) < 5
