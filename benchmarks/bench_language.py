"""Speed of the language, as ratios measured in one run, so that they mean the same on any machine.

    python benchmarks/bench_language.py            # a table; exit code 1 if a bound is missed
    python benchmarks/bench_language.py --json FILE

Each ratio is of medians over runs that take turns, so that a busy machine slows both sides.

start     `d2kc check` on one task / `python -c "import lark"`, both as new processes         bound 4
parse     our parser (syntax tree, spans, recovery ready) / bare lark LALR with positions,     bound 2
          on 10,000 lines
growth    parsing and checking 4x, 2x the text / 1x, divided by 4, by 2                        bound 1.5
recover   a text with an error in every tenth task / the same text without                     bound 2
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from lark import Lark

from d2k.compiler.compile import check_parsed
from d2k.compiler.format import format_parsed
from d2k.compiler.parse import parse
from d2k.compiler.tables import grammar_text

TASK = Path(str(files("d2k").joinpath("tasks", "gemm_bias_gelu", "task.d2k")))
LINES = 10_000


def medians(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median seconds of each call; the calls take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, seconds in zip(calls, times, strict=True):
            begun = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begun)
    return [statistics.median(seconds) for seconds in times]


def text_of(lines: int, break_every: int = 0) -> str:
    """At least that many lines: the task again and again under new names, every so manieth one broken."""
    body = TASK.read_text(encoding="utf-8").replace("d2k 1\n", "")
    copies = []
    while len(copies) * body.count("\n") < lines:
        copy = body.replace("task gemm_bias_gelu", f"task t{len(copies)}")
        if break_every and len(copies) % break_every == 0:
            copy = copy.replace("axes  M,", "axes  M, =", 1)
        copies.append(copy)
    return "d2k 1\n" + "".join(copies)


def process(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def start_ratio(rounds: int) -> dict[str, float]:
    d2kc = shutil.which("d2kc", path=str(Path(sys.executable).parent)) or "d2kc"
    check, lark, python = medians(
        [
            process(d2kc, "check", str(TASK)),
            process(sys.executable, "-c", "import lark"),
            process(sys.executable, "-c", ""),
        ],
        rounds,
    )
    return {"check_s": check, "import_lark_s": lark, "python_s": python, "ratio": check / lark, "bound": 4}


def parse_ratio(rounds: int) -> dict[str, float]:
    text = text_of(LINES)
    lark = Lark(grammar_text(), parser="lalr", lexer="basic", maybe_placeholders=False, propagate_positions=True)
    ours, bare = medians([lambda: parse(text, "x.d2k"), lambda: lark.parse(text)], rounds)
    return {"lines": text.count("\n"), "parse_s": ours, "lark_s": bare, "ratio": ours / bare, "bound": 2}


def growth_ratio(work: Callable[[str], object], rounds: int) -> dict[str, float]:
    """How much more a line costs in a text of 2x and 4x the size."""
    texts = [text_of(LINES // 4 * factor) for factor in (1, 2, 4)]
    lines = [text.count("\n") for text in texts]
    seconds = medians([lambda text=text: work(text) for text in texts], rounds)
    per_line = [one / count for one, count in zip(seconds, lines, strict=True)]
    ratio = max(per_line[1], per_line[2]) / per_line[0]
    return {"x1_s": seconds[0], "x2_s": seconds[1], "x4_s": seconds[2], "ratio": ratio, "bound": 1.5}


def recover_ratio(rounds: int) -> dict[str, float]:
    clean, broken = text_of(LINES // 4), text_of(LINES // 4, break_every=10)
    assert len(parse(broken, "x").diagnostics) == (broken.count("axes  M, ="))
    with_errors, without = medians([lambda: parse(broken, "x"), lambda: parse(clean, "x")], rounds)
    return {"broken_s": with_errors, "clean_s": without, "ratio": with_errors / without, "bound": 2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file as well")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds: int = options.rounds
    results = {
        "start": start_ratio(2 * rounds + 1),
        "parse": parse_ratio(rounds),
        "growth of parsing": growth_ratio(lambda text: parse(text, "x.d2k"), rounds),
        "growth of checking": growth_ratio(lambda text: check_parsed(parse(text, "x.d2k")), max(1, rounds // 2)),
        "growth of formatting": growth_ratio(lambda text: format_parsed(parse(text, "x.d2k")), max(1, rounds // 2)),
        "recover": recover_ratio(rounds),
    }
    for name, figures in results.items():
        rest = ", ".join(f"{key} {value:.3f}" for key, value in figures.items() if key.endswith("_s"))
        mark = "ok  " if figures["ratio"] <= figures["bound"] else "MISS"
        print(f"{mark} {name:22}{figures['ratio']:6.2f}  (bound {figures['bound']})   {rest}")
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0 if all(one["ratio"] <= one["bound"] for one in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
