"""Files, globs and standard input named on a command line."""

from __future__ import annotations

import glob
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from d2k.cli.failure import InputError

MAX_BYTES = 64 * 2**20
"""Files beyond this are refused: no person wrote them."""

MAX_KERNEL_BYTES = 8 * 2**20
"""Kernel files beyond this are refused: twice the largest that generators are known to write, and slow to analyse."""

SECONDS_FOR_A_WRITER = 2.0
"""A named pipe that nobody has opened for writing after that time is refused: reading it might never end."""

STDIN = "-"
SKIPPED = frozenset({".git", "__pycache__", "node_modules", ".venv", "build", "dist"})


@dataclass(frozen=True, slots=True)
class Text:
    """The decoded text of an input; `path` is what the user named, made printable (see `shown`)."""

    path: str
    text: str


def expand(names: Sequence[str], suffixes: Iterable[str]) -> tuple[str, ...]:
    """Paths named by files, directories (searched for `suffixes`) and globs, in the order given, each once."""
    wanted = tuple(suffixes)
    found: dict[str, None] = {}
    for name in names:
        for path in _expand_one(name, wanted):
            found.setdefault(path)
    return tuple(found)


def _expand_one(name: str, suffixes: tuple[str, ...]) -> list[str]:
    if name == STDIN:
        return [STDIN]
    if not name:
        raise InputError("a file name is empty. Is a variable of the shell not set?")
    path = Path(name)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return _matched(name)
    except OSError as error:
        raise InputError(f"cannot read `{name}`: {error.strerror}.") from error
    if not stat.S_ISDIR(mode):
        return [name]
    inside = sorted(_walk(path, suffixes))
    if not inside:
        raise InputError(f"`{name}` is a directory without {_either(suffixes)} files. Name a file.")
    return inside


def _matched(name: str) -> list[str]:
    if glob.has_magic(name):
        # Path.glob takes no absolute pattern
        matched = sorted(one for one in glob.glob(name, recursive=True) if Path(one).is_file())  # noqa: PTH207
        if not matched:
            raise InputError(f"no file matches `{name}`.")
        return matched
    path = Path(name)
    if path.is_symlink():
        raise InputError(f"`{name}` is a link to something that does not exist.")
    raise InputError(f"there is no file `{name}`.{_near(path)}")


def _either(suffixes: tuple[str, ...]) -> str:
    return ", ".join(suffixes[:-1]) + " or " + suffixes[-1] if len(suffixes) > 1 else suffixes[0]


def _walk(folder: Path, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Regular files below `folder` with one of the suffixes; links to folders are not followed.

    Iterative, since folders nest deeper than calls may. What cannot be listed is passed over.
    """
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for one in entries:
                    if one.is_dir(follow_symlinks=False):
                        if one.name not in SKIPPED:
                            waiting.append(one.path)
                    elif one.name.endswith(suffixes) and one.is_file():
                        yield str(Path(one.path))
        except OSError:
            continue


def _near(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = [one.name for one in path.parent.iterdir()]
    except OSError:
        return f" There is no folder `{path.parent}` either."
    near = get_close_matches(path.name, names, n=1)
    return f" Did you mean `{path.parent / near[0]}`?" if near else ""


def shown(path: str) -> str:
    """`path` as it can stand in any output: what is no UTF-8 and what steers a terminal is replaced."""
    if path == STDIN:
        return "<stdin>"
    text = os.fsencode(path).decode("utf-8", "replace")
    return text if text.isprintable() else "".join(one if one.isprintable() else "\ufffd" for one in text)


def read_bytes(path: str, limit: int = MAX_BYTES) -> bytes:
    """The content of `path`, of standard input for `-`. Raises InputError, also beyond `limit` bytes."""
    try:
        data = _standard_input(limit) if path == STDIN else _file(path, limit)
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror}.") from error
    if len(data) > limit:
        raise InputError(f"`{path}` is larger than {limit // 2**20} MiB. Is it the right file?")
    return data


def _standard_input(limit: int) -> bytes:
    # None in a process that was started without one
    if sys.stdin is None:
        raise InputError("standard input is closed.")
    return sys.stdin.buffer.read(limit + 1)


def _file(path: str, limit: int) -> bytes:
    if stat.S_ISFIFO(Path(path).stat().st_mode):
        return _pipe(path, limit)
    with Path(path).open("rb") as file:
        return file.read(limit + 1)


def _pipe(path: str, limit: int) -> bytes:
    """What is written into a named pipe, or one that the shell made for `<(…)`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    latest = time.monotonic() + SECONDS_FOR_A_WRITER
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        # b"" says that there is no writer, None that there is one that has written nothing yet
        while (start := pipe.read(1)) == b"":
            if time.monotonic() > latest:
                raise InputError(f"`{path}` is a pipe that nothing writes into.")
            time.sleep(0.02)
        os.set_blocking(descriptor, True)
        chunks = [start or b""]
        while sum(map(len, chunks)) <= limit and (chunk := pipe.read(2**20)):
            chunks.append(chunk)
    return b"".join(chunks)


def read_kernel(path: str) -> Text:
    """The text of a kernel file.

    Bytes that are no UTF-8 are kept as replacement characters: comments in other encodings are common in real kernels.
    A NUL byte means that the file is no source at all.
    """
    data = read_bytes(path, MAX_KERNEL_BYTES)
    if b"\0" in data:
        raise InputError(f"`{path}` is a binary file. Name a kernel's source: .py, .cu, .cuh, .h.")
    text = data.decode("utf-8-sig", errors="replace")
    return Text(shown(path), text.replace("\r\n", "\n").replace("\r", "\n"))
