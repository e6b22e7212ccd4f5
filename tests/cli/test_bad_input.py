"""Bad input gets a clear message and exit code 1 or 2, in bounded time; never a traceback (the fixture looks)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command

BAD = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "invalid UTF-8": b'd2k 1\ntask t { title "\xff\xfe" }\n',
    "no line end": b"d2k 1",
    "byte-order mark only": b"\xef\xbb\xbf",
    "tabs": b"\td2k\t1\n\ttask\tt\t{\n",
    "nested parentheses": b"d2k 1\ntask t { let x = " + b"(" * 100_000,
    "nested braces": b"{" * 100_000,
    "open string": b'd2k 1\ntask t { title "abc\n',
    "open block": b'd2k 1\ntask t { summary """abc\n',
    "huge integer": b"d2k 1\ntask t { let x = " + b"9" * 100_000 + b" }\n",
    "ten megabytes": b"# a comment that goes on\n" * 420_000,
    "no task": b"d2k 1\n",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", ["check", "compile", "prompt", "graph"])
def test_a_bad_specification_is_refused(d2kc: Command, tmp_path: Path, name: str, command: str) -> None:
    path = tmp_path / "bad.d2k"
    path.write_bytes(BAD[name])
    done = d2kc(command, path)
    if command == "check" and name in ("empty", "byte-order mark only", "no task", "ten megabytes", "no line end"):
        # nothing is wrong with a file that says nothing, unless it is too large to be a specification
        assert done.code in (0, 1)
    else:
        assert done.code in (1, 2)
        assert done.out + done.err


KERNELS = {
    "empty": b"",
    "invalid UTF-8": b"# caf\xe9\nimport triton\n",
    "syntax error": b"def f(:\n",
    "open bracket": b"x = (",
    "nested parentheses": b"x = " + b"(" * 100_000 + b")" * 100_000,
    "deep expression": b"x = " + b"-" * 50_000 + b"1",
    "long chain": b"x = " + b"a." * 50_000 + b"b",
    "carriage returns": b"import triton\r\nx = 1\r",
    "null in a string": b"x = '\\0'",
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("suffix", [".py", ".cu"])
def test_a_strange_kernel_file_is_analysed_or_refused(d2kc: Command, tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"strange{suffix}"
    path.write_bytes(KERNELS[name])
    done = d2kc("analyze", path)
    assert done.code in (0, 2)
    assert done.out + done.err


@pytest.mark.parametrize("command", ["analyze", "annotate", "check", "fmt"])
def test_a_missing_file_is_named_with_its_neighbour(d2kc: Command, kernel: Path, command: str) -> None:
    done = d2kc(command, kernel.with_name("kernal.py"))
    assert done.code == 2
    assert "kernal.py" in done.err
    assert "Did you mean" in done.err and "kernel.py" in done.err


def test_a_directory_without_kernels(d2kc: Command, tmp_path: Path) -> None:
    done = d2kc("analyze", tmp_path)
    assert done.code == 2
    assert "directory" in done.err


def test_a_binary_kernel(d2kc: Command, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_bytes(b"\x7fELF\0\0\0")
    done = d2kc("analyze", path)
    assert done.code == 2
    assert "binary" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("analize", "x.py"), ("analize", "Did you mean `analyze`")),
        (("analyze",), ("FILE",)),
        (("analyze", "KERNEL", "--target", "sm_42"), ("sm_42", "sm_100a")),
        (("analyze", "KERNEL", "--entry", "rum"), ("rum", "Did you mean `run`")),
        (("analyze", "KERNEL", "--only", "tma_bulk_cpy"), ("tma_bulk_cpy", "Did you mean `tma_bulk_copy`")),
        (("analyze", "--diff", "KERNEL"), ("two files",)),
        (("audit", "KERNEL", "--task", "gem_bias_gelu"), ("gem_bias_gelu", "Did you mean `gemm_bias_gelu`")),
        (("audit", "KERNEL", "--task", "gemm_bias_gelu", "--workload", "flux"), ("flux", "workload")),
        (("audit", "KERNEL", "--task", "gemm_bias_gelu", "--why", "pipelin"), ("pipelin", "Did you mean `pipeline`")),
        (("explain", "tma_bulk_copi"), ("tma_bulk_copi", "tma_bulk_copy")),
        (("new", "task", "not a name"), ("not a name",)),
    ],
)
def test_usage_errors_suggest(d2kc: Command, kernel: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    done = d2kc(*(str(kernel) if one == "KERNEL" else one for one in arguments))
    assert done.code == 2
    for word in words:
        assert word in done.err


def test_an_output_that_cannot_be_written(d2kc: Command, kernel: Path, tmp_path: Path) -> None:
    done = d2kc("analyze", kernel, "--out", tmp_path / "missing" / "report.txt")
    assert done.code == 2
    assert "cannot write" in done.err
