"""One Python file: what its names are bound to, and the files beside it that it imports."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from d2k.analyzers.triton.nodes import children, walk
from d2k.spec.facts import Place

MUTATORS = frozenset({"append", "extend", "insert", "update", "remove", "pop", "clear", "sort", "reverse"})
"""Methods that change a list or a dictionary."""

MAX_SIBLING_BYTES = 1_000_000
MAX_SIBLINGS = 40
MAX_PACKAGE_DEPTH = 12
FOREIGN = frozenset({"triton", "torch"})
"""Packages that an absolute import means wherever it stands; folders of packages are often named after them."""

ALIASES: Mapping[str, str] = {
    "triton.language.core": "triton.language",
    "triton.language.standard": "triton.language",
    "triton.runtime.jit": "triton",
    "triton.runtime.autotuner": "triton",
    "triton.runtime": "triton",
    "triton.tools.tensor_descriptor": "triton.tools",
    "triton.experimental.gluon._runtime": "triton.experimental.gluon",
    "triton.experimental.gluon.language._core": "triton.experimental.gluon.language",
}
"""Modules that define what another module exports, by the name that is used for both."""


@dataclass(frozen=True, slots=True)
class Import:
    """A name bound by an import. Relative imports start with their dots: `..utils.helper`."""

    dotted: str


Definition = Import | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """A name that an `if` of the module binds: to `yes` or, where its test fails, to `no`."""

    test: ast.expr
    yes: Binding | None
    no: Binding | None


Binding = Definition | Either


@dataclass(eq=False)
class Module:
    path: str
    tree: ast.Module
    library: Library
    text: str = ""
    bindings: dict[str, Binding] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    rebound: set[str] = field(default_factory=set)
    """Names that module-level code binds more than once to different things."""
    stores: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Names that the body of each loop binds, by the identity of its node."""

    def place(self, node: ast.AST) -> Place:
        line: int = getattr(node, "lineno", 1)
        end: int = getattr(node, "end_lineno", None) or line
        return Place(self.path, line, end, getattr(node, "col_offset", 0))

    @cached_property
    def imports(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, bound in self.bindings.items():
            one: Binding | None = bound
            while isinstance(one, Either):
                one = one.yes or one.no
            if isinstance(one, Import):
                found[name] = one.dotted
        return found

    def touching(self, name: str) -> list[ast.stmt]:
        """Module-level statements that bind or change a name, in order."""
        return [node for node in self.tree.body if name in self._changes.get(id(node), ())]

    @cached_property
    def _changes(self) -> dict[int, frozenset[str]]:
        return {
            id(node): frozenset(_changed(node))
            for node in self.tree.body
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))
        }

    @cached_property
    def qualnames(self) -> dict[int, str]:
        """Qualified names of functions by the identity of their node."""
        return {id(node): name for name, node, _ in self.functions}

    @cached_property
    def source_lines(self) -> list[str]:
        """The text's lines with their ends. Only these three breaks count, as in the parser (a form feed is none)."""
        return [line + "\n" for line in self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]

    @cached_property
    def package(self) -> tuple[str, ...]:
        """The packages around this file, outermost first, by the `__init__.py` files of the folders."""
        names: list[str] = []
        folder = Path(self.path).parent
        while len(names) < MAX_PACKAGE_DEPTH and folder.name and self.library.is_package(folder):
            names.append(folder.name)
            folder = folder.parent
        return tuple(reversed(names))

    @cached_property
    def functions(self) -> tuple[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, tuple[ast.AST, ...]], ...]:
        """Every function with its qualified name and the definitions around it, in source order."""
        return tuple(_with_own_names(_functions(self.tree, "", ())))


class Library:
    """Files beside the analysed one, read when it imports them; a file that cannot be read counts as not given."""

    def __init__(self, read: Callable[[Path], str | None] | None = None) -> None:
        self._read = read or _read_text
        self._modules: dict[Path, Module | None] = {}
        self._packages: dict[Path, bool] = {}

    def is_package(self, folder: Path) -> bool:
        if folder not in self._packages:
            self._packages[folder] = self._read(folder / "__init__.py") is not None
        return self._packages[folder]

    def sibling(self, module: Module, dotted: str) -> Module | None:
        """The module that `dotted`, as imported by `module`, names, if its file stands in the same folders."""
        folder = Path(module.path).parent
        names = dotted.lstrip(".")
        if dotted.startswith("."):
            for _ in range(len(dotted) - len(names) - 1):
                folder = folder.parent
        elif names.partition(".")[0] in module.package and names.partition(".")[0] not in FOREIGN:
            for _ in range(len(module.package) - module.package.index(names.partition(".")[0])):
                folder = folder.parent
        if not names:
            return None
        path = folder.joinpath(*names.split("."))
        for candidate in (path.with_name(path.name + ".py"), path / "__init__.py"):
            if candidate in self._modules:
                return self._modules[candidate]
            if len(self._modules) >= MAX_SIBLINGS:
                return None
            text = self._read(candidate)
            if text is not None:
                self._modules[candidate] = None
                self._modules[candidate] = self._parse(candidate, text)
                return self._modules[candidate]
        return None

    def text(self, path: Path) -> str | None:
        """The text of a file, None if it cannot be read."""
        return self._read(path)

    def loaded(self) -> tuple[Module, ...]:
        return tuple(module for module in self._modules.values() if module is not None)

    def _parse(self, path: Path, text: str) -> Module | None:
        tree = _parsed(text)
        return None if tree is None else index(str(path), tree, self, text)


@lru_cache(maxsize=MAX_SIBLINGS)
def _parsed(text: str) -> ast.Module | None:
    """The tree of a file that several analysed files may import; trees are never changed."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _read_text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_SIBLING_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def index(path: str, tree: ast.Module, library: Library, text: str = "") -> Module:
    """The module with its module-level names; of alternatives (`try`, `if`) the first one counts."""
    module = Module(path, tree, library, text)
    _bind(module, tree.body, alternative=False)
    return module


def canonical(dotted: str) -> str:
    """One name for what several modules export: `triton.language.core.dot` is `triton.language.dot`."""
    head, _, last = dotted.rpartition(".")
    return f"{ALIASES[head]}.{last}" if head in ALIASES else dotted


def import_bindings(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Local names and what they stand for; `*` for a star import."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            else:
                first = alias.name.partition(".")[0]
                yield first, first
        return
    base = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            yield "*", base
        else:
            yield alias.asname or alias.name, f"{base}.{alias.name}" if base.strip(".") else base + alias.name


def _bind(module: Module, body: list[ast.stmt], alternative: bool) -> None:
    def bind(name: str, bound: Binding) -> None:
        if name in module.bindings:
            if alternative:
                return
            module.rebound.add(name)
        module.bindings[name] = bound

    for node in body:
        _bind_statement(module, node, bind, alternative)


def _bind_statement(module: Module, node: ast.stmt, bind: Callable[[str, Binding], None], alternative: bool) -> None:
    match node:
        case ast.Import() | ast.ImportFrom():
            for name, dotted in import_bindings(node):
                if name == "*":
                    module.stars.append(dotted)
                else:
                    bind(name, Import(dotted))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            bind(node.name, node)
        case ast.Assign():
            for target in node.targets:
                _bind_target(bind, target, node.value)
        case ast.AnnAssign() if node.value is not None:
            _bind_target(bind, node.target, node.value)
        case ast.AugAssign() if isinstance(node.target, ast.Name):
            module.rebound.add(node.target.id)
        case ast.Expr(value=value) if _mutated(value):
            module.rebound.add(_mutated(value))
        case ast.Try():
            _bind(module, node.body, alternative)
            _bind(module, node.orelse, alternative)
            for handler in node.handlers:
                _bind(module, handler.body, alternative=True)
            _bind(module, node.finalbody, alternative)
        case ast.If():
            _bind_either(module, node, bind)
        case ast.With():
            _bind(module, node.body, alternative)
        case ast.For() | ast.While():
            for inner in walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    module.rebound.add(inner.id)
                changed = _mutated(inner)
                if changed:
                    module.rebound.add(changed)
        case _:
            pass


def _changed(node: ast.stmt) -> Iterator[str]:
    """Names that a statement binds, or whose list or dictionary it changes."""
    for one in walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id
        elif isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name):
            yield one.value.id
        changed = _mutated(one)
        if changed:
            yield changed


def _mutated(node: ast.AST) -> str:
    """The name whose list or dictionary a method call changes, "" if it is no such call."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in MUTATORS:
            return name
        case _:
            return ""


def _bind_either(module: Module, node: ast.If, bind: Callable[[str, Binding], None]) -> None:
    """Names that the branches of an `if` bind; a branch that leaves a name alone keeps what it was."""
    branches = []
    for body in (node.body, node.orelse):
        inner = Module(module.path, module.tree, module.library)
        _bind(inner, body, alternative=False)
        module.stars.extend(inner.stars)
        module.rebound |= inner.rebound
        branches.append(inner.bindings)
    yes, no = branches
    for name in dict.fromkeys((*yes, *no)):
        before = module.bindings.get(name)
        module.bindings.pop(name, None)
        bind(name, Either(node.test, yes.get(name, before), no.get(name, before)))


def _bind_target(bind: Callable[[str, Binding], None], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name):
        bind(target.id, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            for one, part in zip(target.elts, value.elts, strict=True):
                _bind_target(bind, one, part)
            return
        for position, one in enumerate(target.elts):
            if isinstance(one, ast.Name):
                item = ast.Subscript(value=value, slice=ast.Constant(position), ctx=ast.Load())
                bind(one.id, ast.fix_missing_locations(ast.copy_location(item, value)))


def _with_own_names(
    found: Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, tuple[ast.AST, ...]]],
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, tuple[ast.AST, ...]]]:
    """The functions with names that tell them apart: a fallback under `else` often bears the name of the real one."""
    taken: set[str] = set()
    for name, node, around in found:
        own = name if name not in taken else f"{name} (line {node.lineno})"
        taken.add(own)
        yield own, node, around


def _functions(
    node: ast.AST, prefix: str, around: tuple[ast.AST, ...]
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, tuple[ast.AST, ...]]]:
    stack: list[tuple[ast.AST, str, tuple[ast.AST, ...]]] = [(node, prefix, around)]
    while stack:
        at, name, outer = stack.pop()
        inner: list[tuple[ast.AST, str, tuple[ast.AST, ...]]] = []
        for child in children(at):
            if isinstance(child, ast.expr):
                continue
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner.append((child, f"{name}{child.name}.", (*outer, child)))
            else:
                inner.append((child, name, outer))
        stack.extend(reversed(inner))
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield name[:-1], at, outer[:-1]
