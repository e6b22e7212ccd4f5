"""Things on a command line that are no ordinary files, and streams that are closed or full."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import KERNEL, Command


def test_a_pipe_without_a_writer_is_refused(d2kc: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel.py")
    done = d2kc("analyze", tmp_path / "kernel.py")
    assert done.code == 2
    assert "pipe" in done.err


def test_a_pipe_is_read_to_its_end(d2kc: Command, tmp_path: Path) -> None:
    pipe = tmp_path / "kernel.py"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(KERNEL,))
    writer.start()
    done = d2kc("analyze", pipe)
    writer.join()
    assert done.code == 0
    assert "1 kernel" in done.out


def test_a_device_is_no_task(d2kc: Command) -> None:
    assert d2kc("compile", "/dev/null").code == 2


@pytest.mark.parametrize("command", ["analyze", "check", "fmt", "annotate"])
@pytest.mark.parametrize(
    ("name", "words"),
    [("", "empty"), ("loop.py", "symbolic links"), ("gone.py", "does not exist"), ("x" * 5000, "too long")],
)
def test_a_name_that_leads_nowhere(
    d2kc: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop.py").symlink_to("loop.py")
    Path("gone.py").symlink_to("missing.py")
    done = d2kc(command, name)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize("name", ["", "x" * 5000])
@pytest.mark.parametrize("command", ["compile", "graph", "prompt"])
def test_a_task_name_that_leads_nowhere(d2kc: Command, command: str, name: str) -> None:
    assert d2kc(command, name).code == 2


def test_a_folder_name_that_is_too_long(d2kc: Command) -> None:
    assert d2kc("new", "task", "t", "--folder", "x" * 500).code == 2


def test_a_folder_of_headers_that_is_not_there(d2kc: Command, kernel: Path) -> None:
    done = d2kc("analyze", kernel, "-I", "/nowhere")
    assert done.code == 2
    assert "/nowhere" in done.err


def test_no_score_reaches_what_is_no_number(d2kc: Command, kernel: Path) -> None:
    assert d2kc("audit", kernel, "--task", "gemm_bias_gelu", "--fail-under", "nan").code == 1


def test_folders_are_searched_wherever_they_stand(d2kc: Command, tmp_path: Path) -> None:
    # the folder that was named may lie in one that a search would pass over
    folder = tmp_path / "build" / "kernels"
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(KERNEL)
    assert d2kc("analyze", folder).code == 0
    assert d2kc("analyze", tmp_path).code == 2


def test_an_unreadable_file_among_others_is_left_out(d2kc: Command, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\0\0")
    (tmp_path / "b.py").write_text(KERNEL)
    os.mkfifo(tmp_path / "c.py")
    done = d2kc("analyze", tmp_path, "--json")
    assert done.code == 0
    assert [one["path"] for one in json.loads(done.out)["files"]] == [str(tmp_path / "b.py")]
    assert "left out" in done.err and "a.py" in done.err
    # what was named itself must be readable
    assert d2kc("analyze", tmp_path / "a.py", tmp_path / "b.py").code == 2
    (tmp_path / "b.py").unlink()
    assert d2kc("analyze", tmp_path).code == 2


@pytest.mark.parametrize("command", ["analyze", "annotate"])
def test_a_kernel_beyond_all_measure_is_refused_at_once(d2kc: Command, tmp_path: Path, command: str) -> None:
    (tmp_path / "kernel.py").write_bytes(b"int x = 1;\n" * 10**6)
    done = d2kc(command, tmp_path / "kernel.py")
    assert done.code == 2
    assert "larger than 8 MiB" in done.err


@pytest.mark.parametrize("name", [b"\xff.py", b"a\nb.py", b"\x1b[31m.py"])
@pytest.mark.parametrize("form", ["human", "json", "sarif", "github"])
def test_names_that_cannot_be_printed(d2kc: Command, tmp_path: Path, name: bytes, form: str) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.write_text(KERNEL)
    done = d2kc("analyze", path, "--format", form)
    assert done.code == 0
    assert "\x1b" not in done.out
    if form in ("json", "sarif"):
        json.loads(done.out)


def test_a_specification_whose_name_is_no_utf8(d2kc: Command, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.d2k"))
    path.write_text("d2k 1\ntask t { unknown }\n")
    done = d2kc("check", path, "--json")
    assert done.code == 1
    json.loads(done.out)


def test_a_device_is_written_into_and_never_replaced(d2kc: Command, kernel: Path, tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    assert d2kc("analyze", kernel, "--out", link).code == 0
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert link.is_symlink()


def test_a_pipe_that_nobody_reads_is_not_waited_for(d2kc: Command, kernel: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out")
    done = d2kc("analyze", kernel, "--out", tmp_path / "out")
    assert done.code == 2
    assert "cannot write" in done.err


def test_an_output_that_is_a_loop_of_links(d2kc: Command, kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    done = d2kc("analyze", kernel, "--out", tmp_path / "loop")
    assert done.code == 2
    assert "cannot write" in done.err


@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 0), ("2>&-", 0), (">/dev/full", 2), ("| head -c 1", 0), ("<&-", 0), ("- <&-", 2)],
)
def test_streams_that_are_closed_or_full(tmp_path: Path, redirection: str, code: int) -> None:
    start = "import sys; from d2k.cli.main import main; sys.argv[0] = 'd2kc'; main()"
    name = "check" if redirection.startswith("-") else "completion bash"
    script = f'set -o pipefail; {sys.executable} -c "{start}" {name} {redirection}'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr and "internal" not in done.stderr
