"""What library functions do: tables in `wrappers/*.json`, and in files that the user supplies.

An entry names functions and says which operation a call is:

    names      the functions; a name with scopes (`ptx::mbarrier_init`) matches calls whose scopes end with them
    kind, op   the operation's kind and name (see `spec.facts.Kind`); kind `none`: the call does nothing that counts
    args       which arguments become operands, by position from 0 (-1: an operand that is not there), or "all"
    attrs      attributes with fixed values
    attr_args  attributes whose value is the constant that an argument is
    attr_targs attributes whose value is a template argument (a constant or the name of a type)
    dtype      element type of the result; `same` as the first operand's, `common` to all, `float` (the first
               operand's, f32 for integers), `targ` (the first template argument)
    lanes      lanes of the result, where it is a vector
    out        position of the argument that the result is written to
    ops        in place of one operation, several
    access     in place of kind: load, store, atomic through a pointer; same, same_pointer (the argument itself),
               memcpy, swap
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

USER_FILE = "d2k_wrappers.json"
"""A file of this name beside the analysed file, or in an include directory, extends the tables."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    names: tuple[str, ...] = ()
    kind: str = ""
    op: str = ""
    args: tuple[int, ...] | str = ()
    attrs: dict[str, bool | int | float | str] = {}
    attr_args: dict[str, int] = {}
    attr_targs: dict[str, int] = {}
    dtype: str = ""
    lanes: int = 1
    out: int = -1
    ops: tuple[Entry, ...] = ()
    access: str = ""
    note: str = ""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    library: str
    functions: tuple[Entry, ...] = ()
    methods: tuple[Entry, ...] = ()
    note: str = ""


class Library:
    """Entries by the last part of a name, with the scopes that must come before it."""

    def __init__(self, tables: tuple[Table, ...]) -> None:
        self.functions: dict[str, list[tuple[str, Entry]]] = {}
        self.methods: dict[str, list[tuple[str, Entry]]] = {}
        for table in tables:
            for entries, into in ((table.functions, self.functions), (table.methods, self.methods)):
                for entry in entries:
                    for name in entry.names:
                        scope, _, last = name.rpartition("::")
                        into.setdefault(last, []).append((scope, entry))
        for into in (self.functions, self.methods):
            for found in into.values():
                found.sort(key=lambda one: -len(one[0]))

    def function(self, dotted: str) -> Entry | None:
        return _find(self.functions, dotted)

    def method(self, class_name: str, name: str) -> Entry | None:
        return _find(self.methods, f"{class_name}::{name}" if class_name else name)


def _find(table: dict[str, list[tuple[str, Entry]]], dotted: str) -> Entry | None:
    scope, _, last = dotted.rpartition("::")
    for wanted, entry in table.get(last, ()):
        if not wanted or scope == wanted or scope.endswith("::" + wanted):
            return entry
    return None


@cache
def _tables() -> tuple[Table, ...]:
    folder = Path(__file__).parent / "wrappers"
    return tuple(msgspec.json.decode(path.read_bytes(), type=Table) for path in sorted(folder.glob("*.json")))


@cache
def built_in() -> Library:
    return Library(_tables())


def with_user_tables(paths: tuple[Path, ...]) -> tuple[Library, tuple[str, ...]]:
    """The built-in tables with those of the user before them, and what is wrong with files that cannot be used."""
    tables: list[Table] = []
    problems: list[str] = []
    for path in paths:
        try:
            tables.append(msgspec.json.decode(path.read_bytes(), type=Table))
        except OSError:
            continue
        except msgspec.MsgspecError as error:
            problems.append(f"{path}: not a table of wrappers: {error}")
    if not tables:
        return built_in(), tuple(problems)
    return Library((*tables, *_tables())), tuple(problems)
