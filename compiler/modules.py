"""Modules: what a file shares with others by `use`, and the functions that every file knows.

`use guidance.pipelined_mma` is looked for as `guidance/pipelined_mma.d2k` beside the file that says so, then in the
installed library. Functions come in under their own names, patterns under the module's (`pm.epilogue_overlap`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from pathlib import Path

import msgspec

from d2k.compiler import syntax
from d2k.compiler.diagnostics import Note
from d2k.compiler.lowering import NotAnExpression, Places, lower
from d2k.compiler.parse import parse, parse_bytes
from d2k.compiler.problems import Problems
from d2k.compiler.source import Span
from d2k.spec.expression import Function, Name, called_functions, children, free_names
from d2k.spec.inference import BUILTINS

LANGUAGE_VERSION = 1
DEPTH_LIMIT = 16
"""Levels of modules, of patterns within patterns, and of functions that call each other."""
STANDARD = "std"
"""The module whose functions every file knows without `use`."""


class Module(msgspec.Struct, frozen=True):
    """A file's declarations that others may use. `uses` are the modules behind its own names."""

    path: str
    tree: syntax.File
    patterns: Mapping[str, syntax.Pattern]
    uses: Mapping[str, Module]


class Declared(msgspec.Struct, frozen=True):
    """A function with the place of its name."""

    function: Function
    span: Span


class ModuleLoader:
    """Loads a file's modules and gathers the functions of all of them."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._loaded: dict[Path, Module] = {}
        self._open: list[tuple[Path, str]] = []
        self._functions: dict[str, Declared] = {}

    @property
    def functions(self) -> dict[str, Function]:
        return {name: one.function for name, one in self._functions.items()}

    def module(self, tree: syntax.File, folder: Path | None, path: str) -> Module:
        """The module of a parsed file; what is wrong with it or with what it uses is reported."""
        standard = Path(path).resolve() == _standard_file().resolve()
        if not self._open and not standard:
            self._functions = dict(_standard_functions())
        self._check_version(tree)
        uses: dict[str, Module] = {}
        for use in tree.every(syntax.Use):
            name = use.alias or use.module.parts[-1]
            if name.name in uses:
                self._problems.report("D2K0301", name.span, name=name.name)
                continue
            found = self._used(use, folder)
            if found is not None:
                uses[name.name] = found
        if not (standard and self._open):  # `use std` brings in what is known anyway
            self._declare(tree)
        patterns: dict[str, syntax.Pattern] = {}
        for pattern in tree.every(syntax.Pattern):
            if pattern.name.name in patterns:
                first = Note("declared here first", patterns[pattern.name.name].name.span)
                self._problems.report("D2K0301", pattern.name.span, name=pattern.name.name, note=first)
            patterns.setdefault(pattern.name.name, pattern)
        return Module(path, tree, patterns, uses)

    def _check_version(self, tree: syntax.File) -> None:
        version = tree.first(syntax.Version)
        if version is None:
            if tree.statements:
                start = Span(0, 0, tree.span.source)
                self._problems.report("D2K0916", start)
        elif version.number.value != LANGUAGE_VERSION:
            span, number = version.number.span, version.number.value
            self._problems.report("D2K0915", span, version=number, known=LANGUAGE_VERSION)

    def _used(self, use: syntax.Use, folder: Path | None) -> Module | None:
        parts = [part.name for part in use.module.parts]
        relative = Path(*parts).with_suffix(".d2k")
        candidates = [root / relative for root in (folder, library_folder()) if root is not None]
        found = next((path for path in candidates if path.is_file()), None)
        if found is None:
            tried = f"`{relative}` in the installed library" + (" and beside this file" if folder else "")
            self._problems.report("D2K0308", use.module.span, name=use.module.name, tried=tried)
            return None
        resolved = found.resolve()
        if resolved in self._loaded:
            return self._loaded[resolved]
        if any(path == resolved for path, _ in self._open):
            names = [name for _, name in self._open]
            circle = [*names[[path for path, _ in self._open].index(resolved) :], use.module.name]
            self._problems.report("D2K0309", use.module.span, path=" -> ".join(circle))
            return None
        if len(self._open) >= DEPTH_LIMIT:
            self._problems.report("D2K0917", use.module.span, limit=DEPTH_LIMIT)
            return None
        self._open.append((resolved, use.module.name))
        try:
            return self._load(use, found)
        finally:
            self._open.pop()

    def _load(self, use: syntax.Use, path: Path) -> Module | None:
        try:
            parsed = parse_bytes(path.read_bytes(), str(path))
        except OSError as error:
            self._problems.report("D2K0918", use.module.span, path=path, problem=error.strerror)
            return None
        with self._problems.context(f"module `{use.module.name}` is used here", use.module.span):
            for one in parsed.diagnostics:
                self._problems.add(one)
            module = self.module(parsed.tree, path.parent, str(path))
        self._loaded[path.resolve()] = module
        return module

    def _declare(self, tree: syntax.File) -> None:
        """Check and add the functions of one file."""
        own: dict[str, tuple[Declared, Places]] = {}
        for node in tree.every(syntax.Function):
            name = node.name
            known = own[name.name][0] if name.name in own else self._functions.get(name.name)
            if name.name in BUILTINS:
                self._problems.report("D2K0302", name.span, name=name.name, reason="it is a built-in function")
            elif known is not None:
                self._problems.report(
                    "D2K0301", name.span, name=name.name, note=Note("declared here first", known.span)
                )
            else:
                places = Places()
                function = self._function(node, places)
                if function is not None:
                    own[name.name] = (Declared(function, name.span), places)
        everything = self._functions | {key: declared for key, (declared, _) in own.items()}
        for declared, places in own.values():
            self._check_body(declared, places, everything)
        for circle in circles({key: declared.function for key, (declared, _) in own.items()}):
            self._problems.report("D2K0504", own[circle[0]][0].span, path=" -> ".join(circle))
            self._drop(circle[1:], everything)
        depths = call_depths({key: declared.function for key, declared in everything.items()})
        for key in own:
            if depths.get(key) == DEPTH_LIMIT + 1:
                problem = f"`{key}` calls functions through more than {DEPTH_LIMIT} levels"
                self._problems.report("D2K0514", own[key][0].span, problem=problem)
        self._drop([key for key in own if depths.get(key, 0) > DEPTH_LIMIT], everything)
        self._functions = everything

    def _drop(self, names: list[str], functions: dict[str, Declared]) -> None:
        """Take out functions that were reported; nothing is said about who calls them."""
        self._problems.lost |= set(names)
        for name in names:
            del functions[name]

    def _function(self, node: syntax.Function, places: Places) -> Function | None:
        parameters = [one.name for one in node.parameters]
        for place, one in enumerate(node.parameters):
            if one.name in parameters[:place]:
                self._problems.report("D2K0301", one.span, name=one.name)
                return None
        try:
            return Function(node.name.name, tuple(parameters), lower(node.body, places, {}))
        except NotAnExpression as error:
            self._problems.lost |= {node.name.name}
            self._problems.report("D2K0503", error.span, help=error.help, problem=error.message)
            return None

    def _check_body(self, declared: Declared, places: Places, functions: Mapping[str, Declared]) -> None:
        function = declared.function
        unknown = set(free_names(function.body)) - set(function.parameters)
        missing = set(called_functions(function.body)) - set(functions) - set(BUILTINS)
        if not unknown and not missing:
            return
        pending = [function.body]
        while pending:
            node = pending.pop(0)
            pending.extend(children(node))
            if isinstance(node, Name) and node.name in unknown:
                unknown.discard(node.name)
                span = places.of(node, declared.span)
                self._problems.report_unknown("D2K0303", span, node.name, function.parameters)
        for name in sorted(missing):
            self._problems.report_unknown("D2K0304", declared.span, name, (*functions, *BUILTINS))


def circles(functions: Mapping[str, Function]) -> list[list[str]]:
    """Circles of calls, one for each group of functions that reach themselves; the first name is also the last."""
    calls = {name: {one for one in called_functions(one.body) if one in functions} for name, one in functions.items()}
    found = []
    while True:
        try:
            TopologicalSorter(calls).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][::-1]
            found.append(circle)
            calls = {name: called - set(circle) for name, called in calls.items() if name not in circle}
        else:
            return found


def call_depths(functions: Mapping[str, Function]) -> dict[str, int]:
    """For each function, how many functions are on the longest chain of calls that begins with it."""
    calls = {name: {one for one in called_functions(one.body) if one in functions} for name, one in functions.items()}
    depths: dict[str, int] = {}
    for name in TopologicalSorter(calls).static_order():
        depths[name] = 1 + max((depths[called] for called in calls[name]), default=0)
    return depths


def library_folder() -> Path:
    """Where the installed library lies."""
    return Path(str(files("d2k.spec").joinpath("library")))


def _standard_file() -> Path:
    return library_folder() / f"{STANDARD}.d2k"


@cache
def _standard_functions() -> dict[str, Declared]:
    path = _standard_file()
    parsed = parse(path.read_text(encoding="utf-8"), str(path))
    functions = {}
    for node in parsed.tree.every(syntax.Function):
        body = lower(node.body, Places(), {})
        function = Function(node.name.name, tuple(one.name for one in node.parameters), body)
        functions[node.name.name] = Declared(function, node.name.span)
    return functions
