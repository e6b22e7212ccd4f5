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
    returns    name of the class of the result, so that its methods are found
    op_arg     position of a functor (`cg::plus<float>`) that names the operation
    op_targ    the same for a template argument
    attr_types attributes whose value is a template argument of an argument's type: [argument, template argument]
    atoms_of   positions of arguments whose types name copy or matrix atoms; the first atom found says what the call is
    ops        in place of one operation, several
    access     in place of kind: load, store, atomic through a pointer; same, same_pointer (the argument itself),
               memcpy, swap; view (a part of the first argument, other arguments are coordinates); local (a register
               array); element (the element type of the result is that of the first template argument)

A table's `needs` are words of which a source must contain one for the table to apply: its names may be common ones.
For methods the object is argument 0. `constants` are the library's own names for numbers. Atoms name types of CUTLASS
and CuTe by a pattern; groups of the pattern m, n, k, acc, a, b become attributes.
"""

from __future__ import annotations

import re
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
    returns: str = ""
    op_arg: int = -1
    op_targ: int = -1
    attr_types: dict[str, tuple[int, int]] = {}
    atoms_of: tuple[int, ...] = ()
    note: str = ""


class Atom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`pattern` is matched against the whole last part of a type's name. `role`: copy mma swizzle layout."""

    pattern: str
    role: str
    kind: str = ""
    op: str = ""
    attrs: dict[str, bool | int | float | str] = {}


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    library: str
    functions: tuple[Entry, ...] = ()
    methods: tuple[Entry, ...] = ()
    atoms: tuple[Atom, ...] = ()
    constants: dict[str, int] = {}
    needs: tuple[str, ...] = ()
    note: str = ""


class Library:
    """Entries by the last part of a name, with the scopes that must come before it."""

    def __init__(self, tables: tuple[Table, ...]) -> None:
        self.functions: dict[str, list[tuple[str, Entry]]] = {}
        self.methods: dict[str, list[tuple[str, Entry]]] = {}
        self.constants: dict[str, int] = {}
        self._atoms: list[tuple[re.Pattern[str], Atom]] = []
        self._known_atoms: dict[str, tuple[Atom, re.Match[str]] | None] = {}
        for table in reversed(tables):
            self.constants.update(table.constants)
        for table in tables:
            self._atoms.extend((re.compile(atom.pattern), atom) for atom in table.atoms)
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

    def atom(self, name: str) -> tuple[Atom, re.Match[str]] | None:
        """The atom that a type name stands for, with the match of its pattern."""
        if name not in self._known_atoms:
            last = name.rsplit("::", 1)[-1]
            found = ((atom, match) for pattern, atom in self._atoms if (match := pattern.fullmatch(last)))
            self._known_atoms[name] = next(found, None)
        return self._known_atoms[name]

    def method(self, class_name: str, name: str) -> Entry | None:
        return _find(self.methods, f"{class_name}::{name}" if class_name else name)


def _find(table: dict[str, list[tuple[str, Entry]]], dotted: str) -> Entry | None:
    scope, _, last = dotted.rpartition("::")
    for wanted, entry in table.get(last, ()):
        if not wanted or scope == wanted or scope.endswith("::" + wanted):
            return entry
    return None


@cache
def tables() -> tuple[Table, ...]:
    """All tables that come with the analyzer."""
    folder = Path(__file__).parent / "wrappers"
    return tuple(msgspec.json.decode(path.read_bytes(), type=Table) for path in sorted(folder.glob("*.json")))


@cache
def _built_in(chosen: tuple[int, ...]) -> Library:
    known = tables()
    return Library(tuple(known[position] for position in chosen))


def built_in(texts: tuple[str, ...]) -> Library:
    """The tables of the libraries that sources may use: those whose `needs` they name."""
    return _built_in(tuple(i for i, table in enumerate(tables()) if _applies(table, texts)))


def _applies(table: Table, texts: tuple[str, ...]) -> bool:
    return not table.needs or any(word in text for word in table.needs for text in texts)


def with_user_tables(paths: tuple[Path, ...], texts: tuple[str, ...]) -> tuple[Library, tuple[str, ...]]:
    """Tables for sources: the user's before the built-in ones, and what is wrong with files that cannot be used."""
    found: list[Table] = []
    problems: list[str] = []
    for path in paths:
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Table))
        except OSError:
            continue
        except msgspec.MsgspecError as error:
            problems.append(f"{path}: not a table of wrappers: {error}")
    if not found:
        return built_in(texts), tuple(problems)
    return Library((*found, *(one for one in tables() if _applies(one, texts)))), tuple(problems)
