"""Where results go: standard output, or a file that is written whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

import click

from d2k.cli.failure import InputError


def colour() -> bool:
    """Whether standard output takes colour: a terminal, and NO_COLOR not set (FORCE_COLOR overrides both)."""
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width() -> int:
    """Columns of the terminal; 100 when piped, so that output does not depend on the place it runs in."""
    return min(os.get_terminal_size().columns, 140) if sys.stdout.isatty() else 100


def emit(text: str, out: str | None = None) -> None:
    """Print `text`, or write it to the file `out` (`-` is standard output)."""
    if out is None or out == "-":
        click.echo(text, nl=not text.endswith("\n"), color=True)
    else:
        write(Path(out), text if text.endswith("\n") else text + "\n")


def write(path: Path, text: str) -> None:
    """Replace `path` by `text`; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_bytes(name: str | Path, content: bytes) -> None:
    """Replace a file in one step, keeping its mode; a full disk or a crash leaves the old file as it was.

    A device or a pipe is written into: it must not be replaced. Raises InputError.
    """
    try:
        path, mode = Path(name), _mode(Path(name))
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            # without O_NONBLOCK a pipe that nobody reads would be waited for without end
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            return
        path, mode = path.resolve(), stat.S_IMODE(mode)
        descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(temporary_name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(mode)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot write `{name}`: {error.strerror}.") from error


def _mode(path: Path) -> int:
    """Kind and permissions of the file, of a new one where there is none."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return stat.S_IFREG | 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class Progress:
    """A counter on standard error for long work; silent unless that is a terminal."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._shown = sys.stderr.isatty() and total > 8

    def step(self) -> None:
        self._done += 1
        if self._shown:
            end = "\n" if self._done == self._total else ""
            sys.stderr.write(f"\r{self._what} {self._done}/{self._total}{end}")
            sys.stderr.flush()
