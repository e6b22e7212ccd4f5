"""The files that a file includes, as far as they can be found: beside it and in the include directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class _Loader:
    """Follows includes while files are prepared, so that macros are known from the line on that includes them."""

    def __init__(self, target: str, include_dirs: tuple[str, ...]) -> None:
        self.target = target
        self.include_dirs = include_dirs
        self.budget = MAX_BYTES
        self.seen: dict[str, Unit | None] = {}
        """Units by path; None while one is being read, which ends circles."""

    def reader(self, beside: Path, units: list[Unit]) -> Callable[[str], Mapping[str, Macro]]:
        """What `#include` does in a file in folder `beside`; the units that it brings in are added to `units`."""

        def include(name: str) -> Mapping[str, Macro]:
            unit = self._load(name, beside)
            if unit is None:
                return {}
            units.append(unit)
            return unit.prepared.macros

        return include

    def _load(self, name: str, beside: Path) -> Unit | None:
        if len(self.seen) >= MAX_FILES or self.budget <= 0 or name.startswith(LIBRARY_HEADERS):
            return None
        path = _locate(name, beside, self.include_dirs)
        if path is None:
            return None
        if str(path) in self.seen:
            return self.seen[str(path)]
        self.seen[str(path)] = None
        try:
            stat = path.stat()
            if stat.st_size > MAX_FILE:
                return None
            self.budget -= stat.st_size
            key = (str(path), stat.st_mtime_ns, stat.st_size, self.target, self.include_dirs)
            unit = _CACHE.get(key)
            if unit is None:
                unit = self._read(path)
                if len(_CACHE) >= MAX_CACHED:
                    _CACHE.pop(next(iter(_CACHE)))
                _CACHE[key] = unit
        except OSError:
            return None
        self.seen[str(path)] = unit
        return unit

    def _read(self, path: Path) -> Unit:
        units: list[Unit] = []
        text = path.read_text(encoding="utf-8", errors="replace")
        unit = Unit(str(path), text, self.target, self.reader(path.parent, units))
        unit.includes = units
        return unit


MAX_CACHED = 256
_CACHE: dict[tuple[str, int, int, str, tuple[str, ...]], Unit] = {}
"""Headers of earlier files: many sources share them."""


def load_units(
    path: str, text: str, target: str, include_dirs: tuple[str, ...], line_map: tuple[int, ...] | None
) -> list[Unit]:
    """The file itself first, then what it includes, each once."""
    units: list[Unit] = []
    loader = _Loader(target, include_dirs)
    main = Unit(path, text, target, loader.reader(Path(path).parent, units), line_map)
    main.includes = units
    found: dict[str, Unit] = {}
    stack = list(reversed(units))
    while stack and len(found) < MAX_FILES:
        unit = stack.pop()
        if unit.path not in found:
            found[unit.path] = unit
            stack.extend(reversed(unit.includes))
    return [main, *found.values()]


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
