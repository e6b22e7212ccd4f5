"""Speed of the analyzers, as ratios measured in one run, so that they mean the same on any machine.

    python benchmarks/bench_analysis.py            # needs the corpus (`make corpus`) and ast-grep (PyPI ast-grep-cli)
    python benchmarks/bench_analysis.py --files 40 --json FILE

triton, cuda   files a second on one core, every detector and guard on every kernel file of a sample of the corpus;
               beside it ast-grep on the same files with ten patterns, in the same minute
start          `d2kc analyze` on a small kernel / the interpreter's own start, both as new processes
growth         a kernel file 2x and 4x as large / 1x, divided by 2 and 4: 1 is linear
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from d2k.analyzers.analyze import Options, read, report

CORPUS = Path(__file__).parents[1] / ".corpus"
SMALL = Path(__file__).parents[1] / "cli" / "skeletons" / "task" / "naive.py"
PATTERNS = {
    "python": (
        "tl.load($$$A)",
        "tl.store($$$A)",
        "tl.dot($$$A)",
        "tl.max($$$A)",
        "tl.sum($$$A)",
        "tl.exp($$$A)",
        "tl.program_id($$$A)",
        "tl.arange($$$A)",
        "tl.make_block_ptr($$$A)",
        "triton.Config($$$A)",
    ),
    "cpp": (
        "__syncthreads()",
        "atomicAdd($$$A)",
        "__shfl_xor_sync($$$A)",
        "expf($$$A)",
        "fmaxf($$$A)",
        "__ldg($$$A)",
        "min($$$A)",
        "reinterpret_cast<$T>($A)",
        "static_cast<$T>($A)",
        "assert($$$A)",
    ),
}


def sample(suffixes: tuple[str, ...], word: str, count: int) -> list[Path]:
    """Kernel files of the corpus, chosen by the hash of their names."""
    found = [
        path
        for path in CORPUS.rglob("*")
        if path.suffix in suffixes and word in path.read_text(errors="replace") and "cutlass" not in str(path)
    ]
    return sorted(found, key=lambda path: zlib.crc32(str(path.relative_to(CORPUS)).encode()))[:count]


def ours(paths: list[Path]) -> float:
    """Files a second."""
    begun = time.perf_counter()
    for path in paths:
        text = path.read_text(errors="replace")
        report(read(str(path), text, Options()), text, Options())
    return len(paths) / (time.perf_counter() - begun)


def ast_grep(paths: list[Path], language: str) -> float:
    """Files a second with ten patterns in one process on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            suffix = ".py" if language == "python" else ".cpp"
            (Path(folder) / f"{zlib.crc32(str(path).encode())}{suffix}").write_bytes(path.read_bytes())
        rules = "\n---\n".join(
            f"id: r{number}\nlanguage: {language}\nrule:\n  pattern: {json.dumps(pattern)}"
            for number, pattern in enumerate(PATTERNS[language])
        )
        command = ["ast-grep", "scan", "--inline-rules", rules, "--threads", "1", "--json=stream", folder]
        begun = time.perf_counter()
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return len(paths) / (time.perf_counter() - begun)


def seconds(call: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def start() -> tuple[float, float]:
    """(seconds of a cold `d2kc analyze`, seconds of the interpreter's start)."""
    command = [sys.executable, "-c", "from d2k.cli.main import main; main()", "analyze", str(SMALL)]
    run: Callable[[list[str]], object] = lambda one: subprocess.run(one, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    return seconds(lambda: run(command), 7), seconds(lambda: run([sys.executable, "-c", "pass"]), 7)


def growth() -> dict[str, float]:
    """Cost of larger files, relative to their size."""
    text = SMALL.read_text()
    kernel = text[text.index("@triton.jit") :]

    def of(copies: int) -> str:
        rest = (kernel.replace("scale_kernel", f"scale_{n}").replace("def run", f"def run_{n}") for n in range(copies))
        return text[: text.index("@triton.jit")] + "\n\n".join(rest)

    times = {copies: seconds(lambda copies=copies: ours_text(of(copies)), 3) for copies in (100, 200, 400)}  # type: ignore[misc]
    return {"2x": times[200] / times[100] / 2, "4x": times[400] / times[100] / 4}


def ours_text(text: str) -> None:
    report(read("kernel.py", text, Options()), text, Options())


def measured(count: int) -> Iterator[tuple[str, dict[str, float]]]:
    for name, language, suffixes, word in (
        ("triton", "python", (".py",), "@triton.jit"),
        ("cuda", "cpp", (".cu", ".cuh"), "__global__"),
    ):
        paths = sample(suffixes, word, count)
        own, other = ours(paths), ast_grep(paths, language)
        yield name, {"files": len(paths), "files/s": own, "ast-grep files/s": other, "ratio": own / other}
    analyze, interpreter = start()
    yield "start", {"seconds": analyze, "interpreter": interpreter, "ratio": analyze / interpreter}
    yield "growth", growth()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=60, help="files of each language")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    arguments = parser.parse_args()
    figures = dict(measured(arguments.files))
    for name, row in figures.items():
        print(f"{name:8}" + "  ".join(f"{key} {value:.3g}" for key, value in row.items()))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
