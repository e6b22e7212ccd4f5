"""Files, globs and standard input named on a command line."""

from __future__ import annotations

import glob
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from d2k.cli.failure import InputError

MAX_BYTES = 64 * 2**20
"""Kernel files beyond this are refused: no person wrote them."""

STDIN = "-"
SKIPPED = frozenset({".git", "__pycache__", "node_modules", ".venv", "build", "dist"})


@dataclass(frozen=True, slots=True)
class Text:
    """The decoded text of an input; `path` is what the user named, `<stdin>` for `-`."""

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
    path = Path(name)
    if path.is_dir():
        inside = sorted(
            str(one)
            for one in path.rglob("*")
            if one.suffix in suffixes and not SKIPPED.intersection(one.parts) and one.is_file()
        )
        if not inside:
            raise InputError(f"`{name}` is a directory without {' or '.join(suffixes)} files. Name a file.")
        return inside
    if path.exists():
        return [name]
    if glob.has_magic(name):
        # Path.glob takes no absolute pattern
        matched = sorted(one for one in glob.glob(name, recursive=True) if Path(one).is_file())  # noqa: PTH207
        if not matched:
            raise InputError(f"no file matches `{name}`.")
        return matched
    raise InputError(f"there is no file `{name}`.{_near(path)}")


def _near(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = [one.name for one in path.parent.iterdir()]
    except OSError:
        return f" There is no folder `{path.parent}` either."
    near = get_close_matches(path.name, names, n=1)
    return f" Did you mean `{path.parent / near[0]}`?" if near else ""


def read_bytes(path: str) -> bytes:
    """The content of `path`, of standard input for `-`."""
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror}.") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"`{path}` is larger than {MAX_BYTES // 2**20} MiB. Is it the right file?")
    return data


def read_kernel(path: str) -> Text:
    """The text of a kernel file.

    Bytes that are no UTF-8 are kept as replacement characters: comments in other encodings are common in real kernels.
    A NUL byte means that the file is no source at all.
    """
    data = read_bytes(path)
    if b"\0" in data:
        raise InputError(f"`{path}` is a binary file. Name a kernel's source: .py, .cu, .cuh, .h.")
    text = data.decode("utf-8-sig", errors="replace")
    return Text("<stdin>" if path == STDIN else path, text.replace("\r\n", "\n").replace("\r", "\n"))
