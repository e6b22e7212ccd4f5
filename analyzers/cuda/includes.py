"""The files that a file includes, as far as they can be found: beside it and in the include directories."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from d2k.analyzers.cuda.prepare import Macro
from d2k.analyzers.cuda.scope import Unit

LIBRARY_HEADERS = (
    "ATen/",
    "c10/",
    "cooperative_groups",
    "cub/",
    "cuda/",
    "cute/",
    "cutlass/",
    "kittens",
    "nv/",
    "pybind11/",
    "raft/",
    "rmm/",
    "thrust/",
    "torch/",
    "tvm/",
)
"""Headers of libraries that the tables of `wrappers` stand for: what a call means counts, not how it is done."""
MAX_FILES = 60
MAX_BYTES = 1_500_000
"""Included text that one file may bring in; what lies beyond is as if it were not given."""
MAX_FILE = 400_000


def load_units(
    path: str, text: str, target: str, include_dirs: tuple[str, ...], line_map: tuple[int, ...] | None
) -> list[Unit]:
    """The file itself first, then what it includes, nearest first."""
    probe = _includes_of(text)
    found: dict[str, Unit] = {}
    budget = [MAX_BYTES]
    for name in probe:
        _follow(name, Path(path).parent, target, include_dirs, found, budget)
    macros: dict[str, Macro] = {}
    for unit in found.values():
        macros.update(unit.prepared.macros)
    main = Unit(path, text, target, macros, line_map)
    return [main, *found.values()]


def _includes_of(text: str) -> list[str]:
    import re

    return re.findall(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', text, re.MULTILINE)


def _follow(
    name: str, beside: Path, target: str, include_dirs: tuple[str, ...], found: dict[str, Unit], budget: list[int]
) -> None:
    """Loads a file and what it includes, depth first, so that macros come before their users."""
    if len(found) >= MAX_FILES or budget[0] <= 0 or name.startswith(LIBRARY_HEADERS):
        return
    path = _locate(name, beside, include_dirs)
    if path is None or str(path) in found:
        return
    try:
        stat = path.stat()
        if stat.st_size > MAX_FILE:
            return
        budget[0] -= stat.st_size
        found[str(path)] = unit = _load(str(path), target, stat.st_mtime_ns, stat.st_size)
    except OSError:
        return
    for inner in unit.prepared.includes:
        _follow(inner, path.parent, target, include_dirs, found, budget)


def _locate(name: str, beside: Path, include_dirs: tuple[str, ...]) -> Path | None:
    if len(name) > 300:
        return None
    for folder in (beside, *(Path(one) for one in include_dirs)):
        path = folder / name
        try:
            if path.is_file():
                return path.resolve()
        except (OSError, ValueError):
            continue
    return None


@lru_cache(maxsize=256)
def _load(path: str, target: str, mtime: int, size: int) -> Unit:
    return Unit(path, Path(path).read_text(encoding="utf-8", errors="replace"), target, {}, None)
