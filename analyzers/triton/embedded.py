"""CUDA that a Python file holds in strings: followed into the calls that compile it, with the lines it was written on.

A string counts only if it flows into such a call: joined, formatted, replaced in, read by name, or handed through
functions of the file. A prompt or a deny-list that merely names `__global__` does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from d2k.analyzers.triton.interp import Interp, NotConstant
from d2k.analyzers.triton.module import Import, Library, Module, import_bindings, index
from d2k.analyzers.triton.nodes import children, walk
from d2k.analyzers.triton.traced_text import MAX_TEXT, Traced, joined, literal, plain
from d2k.spec.facts import Place

MAX_ALTERNATIVES = 8
MAX_DEPTH = 24
MAX_SOURCES = 32

WORDS = ("cpp_extension", "_inline", "Raw", "nvrtc", "Program", "SourceModule", "_compile_kernel", "nvcc")
"""A file without any of these compiles no CUDA."""

CUDA_SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".h", ".hpp")


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """CUDA or C++ text; `lines[i]` is the line of `path` on which line i (from 0) of `text` is written.

    `sink` names the call that compiles it and the argument: `load_inline.cuda_sources`. `place` is that call.
    """

    text: str
    lines: tuple[int, ...]
    sink: str
    place: Place
    path: str


SINKS: Mapping[str, Mapping[str, int]] = {
    "torch.utils.cpp_extension.load_inline": {"cpp_sources": 1, "cuda_sources": 2},
    "torch.utils.cpp_extension.load": {"sources": 1},
    "torch.cuda._compile_kernel": {"kernel_source": 0},
    "tvm_ffi.cpp.load_inline": {"cpp_sources": 1, "cuda_sources": 2},
    "tvm_ffi.cpp.build_inline": {"cpp_sources": 1, "cuda_sources": 2},
    "cupy.RawModule": {"code": 0, "path": -1},
    "cupy.RawKernel": {"code": 0},
    "cupy.cuda.compile_with_cache": {"source": 0},
    "pycuda.compiler.SourceModule": {"source": 0},
    "nvrtc.nvrtcCreateProgram": {"src": 0},
    "cuda.nvrtc.nvrtcCreateProgram": {"src": 0},
    "cuda.bindings.nvrtc.nvrtcCreateProgram": {"src": 0},
    "cuda.core.Program": {"code": 0},
    "cuda.core.experimental.Program": {"code": 0},
}
"""Calls that compile CUDA, and where their sources stand: by keyword, and by position unless that is -1."""

FILES = frozenset({"torch.utils.cpp_extension.load.sources", "cupy.RawModule.path"})
"""Arguments that name files."""

WRITERS = frozenset({"write", "write_text", "write_bytes", "writelines"})
"""Methods that put text into a file, which a call of `load` or of `nvcc` then compiles."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Where a name is looked up: a function's body, then what is around it."""

    module: Module
    functions: tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...] = ()
    owner: ast.ClassDef | None = None
    bound: Mapping[str, tuple[ast.expr, Scope]] = field(default_factory=dict)


def read_sources(path: str, text: str, target: str = "sm_100a") -> tuple[EmbeddedSource, ...]:
    """The CUDA in a Python file's text; () where it cannot be parsed."""
    if not any(word in text for word in WORDS):
        return ()
    try:
        return cuda_sources(index(path, ast.parse(text), Library(), text), target)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def cuda_sources(module: Module, target: str = "sm_100a") -> tuple[EmbeddedSource, ...]:
    """Every source that flows into a compiling call, in the order of the calls."""
    return tuple(_Reader(module, target).sources())


class _Reader:
    def __init__(self, module: Module, target: str) -> None:
        self.module = module
        self.interp = Interp(target)
        self.calls = list(_calls(module.tree, Scope(module)))
        self.depth = 0

    # sinks

    def sources(self) -> Iterator[EmbeddedSource]:
        seen: set[tuple[str, tuple[int, ...]]] = set()
        compiles_files = any(self._compiles_files(node, scope) for node, scope in self.calls)
        for node, scope in self.calls:
            for sink, argument in self._arguments(node, scope, compiles_files):
                for traced in self._texts(argument, scope, sink in FILES):
                    source = _source(traced, sink, self.module.place(node))
                    wanted = source.text.strip() and (sink != "write" or "__global__" in source.text)
                    if wanted and (source.text, source.lines) not in seen:
                        seen.add((source.text, source.lines))
                        yield source
                        if len(seen) >= MAX_SOURCES:
                            return

    def _arguments(self, node: ast.Call, scope: Scope, compiles_files: bool) -> Iterator[tuple[str, ast.expr]]:
        dotted = self.dotted(node.func, scope)
        sinks = SINKS.get(dotted)
        if sinks is not None:
            short = (
                dotted if dotted in ("torch.utils.cpp_extension.load", "cupy.RawModule") else dotted.rpartition(".")[2]
            )
            for name, position in sinks.items():
                for argument in _given(node, name, position):
                    full = f"{dotted}.{name}"
                    yield full if full in FILES else f"{short.rpartition('.')[2]}.{name}", argument
        elif compiles_files and isinstance(node.func, ast.Attribute) and node.func.attr in WRITERS and node.args:
            yield "write", node.args[0]

    def _compiles_files(self, node: ast.Call, scope: Scope) -> bool:
        dotted = self.dotted(node.func, scope)
        if dotted == "torch.utils.cpp_extension.load":
            return True
        if not dotted.startswith(("subprocess.", "os.")):
            return False
        return any(
            isinstance(one, ast.Constant) and isinstance(one.value, str) and "nvcc" in one.value for one in walk(node)
        )

    def _texts(self, argument: ast.expr, scope: Scope, files: bool) -> list[Traced]:
        """What a source argument can be; a list is one translation unit."""
        resolved, where = self.resolve(argument, scope)
        if isinstance(resolved, (ast.List, ast.Tuple)):
            columns = [self._file(one, where) if files else self.trace(one, where) for one in resolved.elts]
            if files:
                return [traced for column in columns for traced in column]
            return _products(columns, "\n")
        if isinstance(resolved, ast.Dict):
            return [traced for one in resolved.values for traced in self._texts(one, where, files)]
        return self._file(resolved, where) if files else self.trace(resolved, where)

    def _file(self, node: ast.expr, scope: Scope) -> list[Traced]:
        """The text of a file that stands beside the analysed one."""
        name = self._file_name(node, scope)
        if name is None or not name.endswith(CUDA_SUFFIXES):
            return []
        path = Path(self.module.path).parent / name
        text = self.module.library.text(path)
        if text is None:
            return []
        return [joined([plain(line, str(path), at) for at, line in enumerate(text.splitlines(keepends=True), 1)])]

    def _file_name(self, node: ast.expr, scope: Scope) -> str | None:
        """The last string of a path expression: `os.path.join(here, "kernel.cu")`, `Path(__file__).parent / "k.cu"`."""
        resolved, where = self.resolve(node, scope)
        match resolved:
            case ast.Constant(value=str() as name):
                return name
            case ast.Call(args=[*_, last]):
                return self._file_name(last, where)
            case ast.BinOp(op=ast.Div() | ast.Add(), right=last):
                return self._file_name(last, where)
            case _:
                return None

    # names

    def dotted(self, node: ast.expr, scope: Scope) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([self._imported(node.id, scope), *reversed(parts)])

    def _imported(self, name: str, scope: Scope) -> str:
        for function in reversed(scope.functions):
            for one in walk(function):
                if isinstance(one, (ast.Import, ast.ImportFrom)):
                    for local, dotted in import_bindings(one):
                        if local == name:
                            return dotted
        bound = self.interp.binding(scope.module, name)
        if isinstance(bound, Import):
            return bound.dotted
        if isinstance(bound, (ast.Name, ast.Attribute)) and self.depth < MAX_DEPTH:
            self.depth += 1
            try:
                return self.dotted(bound, Scope(scope.module))
            finally:
                self.depth -= 1
        return name

    def resolve(self, node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope]:
        """The expression behind a name, as far as there is exactly one."""
        for _ in range(MAX_DEPTH):
            if not isinstance(node, ast.Name):
                break
            found = self._assigned(node.id, scope, node.lineno)
            if len(found) != 1 or found[0][0] is node:
                break
            node, scope = found[0]
        return node, scope

    def _assigned(self, name: str, scope: Scope, line: int) -> list[tuple[ast.expr, Scope]]:
        """What a name stands for at a line: an argument, a local assignment, or one of the module."""
        if name in scope.bound:
            return [scope.bound[name]]
        for level in range(len(scope.functions), 0, -1):
            function = scope.functions[level - 1]
            inner = Scope(scope.module, scope.functions[:level], scope.owner, scope.bound)
            local = _local_values(function, name)
            if local:
                # of assignments before the use the last one counts, a loop's later ones where there is no other
                before = [one for one in local if one.lineno < line] or local
                return [(before[-1], inner)]
            if name in {one.arg for one in _parameters(function)}:
                return self._passed(function, name, inner)
        bound = self.interp.binding(scope.module, name)
        if isinstance(bound, ast.expr):
            return [(bound, Scope(scope.module))]
        if isinstance(bound, Import):
            return self._from_sibling(bound.dotted, scope.module)
        return []

    def _from_sibling(self, dotted: str, module: Module) -> list[tuple[ast.expr, Scope]]:
        head, _, last = dotted.rpartition(".")
        if not head:
            return []
        sibling = module.library.sibling(module, head if head.strip(".") else head + ".")
        if sibling is None:
            return []
        bound = self.interp.binding(sibling, last)
        return [(bound, Scope(sibling))] if isinstance(bound, ast.expr) else []

    def _passed(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, scope: Scope
    ) -> list[tuple[ast.expr, Scope]]:
        """What the file's calls of a function pass for one of its parameters, else the default."""
        found: list[tuple[ast.expr, Scope]] = []
        names = [one.arg for one in _parameters(function)]
        method = bool(names) and names[0] in ("self", "cls")
        for node, where in self.calls:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            constructs = function.name == "__init__" and scope.owner is not None and called == scope.owner.name
            if called != function.name and not constructs:
                continue
            position = names.index(name) - (1 if method else 0)
            found.extend((one, where) for one in _given(node, name, position))
        if not found:
            spec = function.args
            given = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
            if name in given:
                found.append((given[name], Scope(scope.module)))
        return found[:MAX_ALTERNATIVES]

    # texts

    def trace(self, node: ast.expr, scope: Scope) -> list[Traced]:
        """The texts that an expression can be, with their lines; a part that is not known is an identifier."""
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                return []
            return self._trace(node, scope)[:MAX_ALTERNATIVES]
        finally:
            self.depth -= 1

    def _trace(self, node: ast.expr, scope: Scope) -> list[Traced]:
        match node:
            case ast.Constant(value=str() | bytes()) | ast.JoinedStr():
                return [literal(node, scope.module, lambda one: self._field(one, scope))]
            case ast.Constant():
                return [plain(str(node.value), scope.module.path, node.lineno)]
            case ast.Name():
                return self._name(node, scope)
            case ast.BinOp(op=ast.Add()):
                return _products([self.trace(node.left, scope), self.trace(node.right, scope)], "")
            case ast.BinOp(op=ast.Mod()):
                return [self._percent(one, node.right, scope) for one in self.trace(node.left, scope)]
            case ast.IfExp():
                return [*self.trace(node.body, scope), *self.trace(node.orelse, scope)]
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Subscript():
                owner, where = self.resolve(node.value, scope)
                return self._item(owner, node.slice, where, scope)
            case ast.Call():
                return self._called(node, scope)
            case ast.NamedExpr():
                return self.trace(node.value, scope)
            case _:
                return []

    def _name(self, node: ast.Name, scope: Scope) -> list[Traced]:
        found: list[Traced] = []
        for value, where in self._assigned(node.id, scope, node.lineno):
            base = self.trace(value, where)
            for added in self._added(node.id, scope, value, node.lineno):
                base = _products([base, self.trace(added, scope)], "")
            found.extend(base)
        return found

    def _added(self, name: str, scope: Scope, value: ast.expr, line: int) -> list[ast.expr]:
        """What `name += …` adds after the assignment and before the use."""
        body: ast.AST = scope.functions[-1] if scope.functions else scope.module.tree
        found = [
            one.value
            for one in walk(body)
            if isinstance(one, ast.AugAssign)
            and isinstance(one.op, ast.Add)
            and isinstance(one.target, ast.Name)
            and one.target.id == name
            and value.lineno <= one.lineno < line
        ]
        return sorted(found, key=lambda one: one.lineno)[:MAX_ALTERNATIVES]

    def _field(self, node: ast.FormattedValue, scope: Scope) -> Traced:
        """A replacement field of an f-string."""
        if node.format_spec is None and node.conversion == -1:
            return self._value(node.value, scope)
        known = self._constant(node.value, scope)
        if known is not None and isinstance(node.format_spec, ast.JoinedStr) and len(node.format_spec.values) == 1:
            spec = node.format_spec.values[0]
            if isinstance(spec, ast.Constant):
                try:
                    return plain(format(known, str(spec.value)), scope.module.path, node.lineno)
                except (ValueError, TypeError):
                    pass
        return self._unknown(node.value, scope)

    def _value(self, node: ast.expr, scope: Scope) -> Traced:
        known = self._constant(node, scope)
        if known is not None and not isinstance(known, str):
            return plain(str(known), scope.module.path, node.lineno)
        texts = self.trace(node, scope)
        if texts:
            return texts[0]
        return plain(known, scope.module.path, node.lineno) if known is not None else self._unknown(node, scope)

    def _constant(self, node: ast.expr, scope: Scope) -> str | int | float | None:
        env: dict[str, object] = {}
        for one in walk(node):
            if isinstance(one, ast.Name) and one.id not in env:
                found = self._assigned(one.id, scope, one.lineno)
                if found and found[0][1].functions and self.depth < MAX_DEPTH // 2:
                    self.depth += 1
                    value = self._constant(*found[0])
                    self.depth -= 1
                    if value is not None:
                        env[one.id] = value
        try:
            result = self.interp.eval(node, env, scope.module)
        except NotConstant:
            return None
        return result if isinstance(result, (str, int, float)) else None

    def _unknown(self, node: ast.expr, scope: Scope) -> Traced:
        """An identifier for a part that only a run can tell: it reads as a name, a type or a number."""
        word = re.sub(r"\W+", "_", ast.unparse(node))[:40].strip("_")
        return plain(f"D2K_UNKNOWN_{word}", scope.module.path, node.lineno)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> list[Traced]:
        """`self.source`, `Class.SOURCE`, `module.SOURCE`."""
        found: list[Traced] = []
        match node.value:
            case ast.Name(id="self" | "cls") if scope.owner is not None:
                return self._class_text(scope.owner, node.attr, scope)
            case ast.Name(id=name):
                bound = self.interp.binding(scope.module, name)
                if isinstance(bound, ast.ClassDef):
                    return self._class_text(bound, node.attr, Scope(scope.module))
                if isinstance(bound, Import):
                    sibling = scope.module.library.sibling(scope.module, bound.dotted)
                    value = None if sibling is None else self.interp.binding(sibling, node.attr)
                    if sibling is not None and isinstance(value, ast.expr):
                        return self.trace(value, Scope(sibling))
            case _:
                pass
        return found

    def _class_text(self, owner: ast.ClassDef, name: str, scope: Scope) -> list[Traced]:
        for node in walk(owner):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    return self.trace(value, Scope(scope.module))
                case ast.FunctionDef():
                    for one in walk(node):
                        match one:
                            case ast.Assign(targets=[ast.Attribute(attr=target)], value=value) if target == name:
                                return self.trace(value, Scope(scope.module, (node,), owner))
                            case _:
                                pass
                case _:
                    pass
        return []

    def _item(self, owner: ast.expr, key: ast.expr, where: Scope, scope: Scope) -> list[Traced]:
        known = self._constant(key, scope)
        match owner:
            case ast.Dict(keys=keys, values=values):
                exact = [
                    value
                    for name, value in zip(keys, values, strict=True)
                    if isinstance(name, ast.Constant) and name.value == known
                ]
                return [text for value in (exact or values) for text in self.trace(value, where)]
            case ast.List(elts=items) | ast.Tuple(elts=items):
                if isinstance(known, int) and -len(items) <= known < len(items):
                    return self.trace(items[known], where)
                return [text for value in items for text in self.trace(value, where)]
            case _:
                return []

    def _called(self, node: ast.Call, scope: Scope) -> list[Traced]:
        if isinstance(node.func, ast.Attribute):
            found = self._method(node, node.func, scope)
            if found is not None:
                return found
        dotted = self.dotted(node.func, scope)
        if dotted in ("textwrap.dedent", "inspect.cleandoc") and node.args:
            return [one.dedented() for one in self.trace(node.args[0], scope)]
        if dotted in ("str", "string.Template", "bytes", "jinja2.Template") and node.args:
            return self.trace(node.args[0], scope)
        return self._function(node, scope)

    def _method(self, node: ast.Call, func: ast.Attribute, scope: Scope) -> list[Traced] | None:
        """Methods of strings that keep or change their text; None for anything else."""
        match func.attr:
            case "join" if node.args:
                items, where = self.resolve(node.args[0], scope)
                if not isinstance(items, (ast.List, ast.Tuple)):
                    return None
                between = self._constant(func.value, scope)
                parts = [self.trace(one, where) for one in items.elts]
                return _products(parts, between if isinstance(between, str) else "\n")
            case "encode" if isinstance(func.value, ast.Name) and func.value.id == "str" and node.args:
                return self.trace(node.args[0], scope)
            case "encode" | "decode" | "lstrip" | "rstrip" | "strip" | "expandtabs":
                texts = self.trace(func.value, scope)
                keep = func.attr in ("encode", "decode", "expandtabs") or node.args
                return texts if keep else [one.stripped() for one in texts]
            case "replace" if len(node.args) >= 2:
                old = self._constant(node.args[0], scope)
                new = self._value(node.args[1], scope)
                texts = self.trace(func.value, scope)
                return [one.replaced(old, new) for one in texts] if isinstance(old, str) else texts
            case "format" | "substitute" | "safe_substitute" | "render":
                texts = self.trace(func.value, scope)
                if not texts:
                    return None
                values = {one.arg: self._value(one.value, scope) for one in node.keywords if one.arg}
                values |= {str(at): self._value(one, scope) for at, one in enumerate(node.args)}
                return [_formatted(one, values, func.attr) for one in texts]
            case "read" | "read_text":
                return self._file_text(func.value, scope)
            case _:
                return None

    def _file_text(self, node: ast.expr, scope: Scope) -> list[Traced]:
        resolved, where = self.resolve(node, scope)
        if isinstance(resolved, ast.Call) and isinstance(resolved.func, ast.Name) and resolved.func.id == "open":
            return self._file(resolved.args[0], where) if resolved.args else []
        if isinstance(resolved, ast.Name):
            opened = _opened(scope, resolved.id)
            return self._file(opened, scope) if opened is not None else []
        return self._file(resolved, where)

    def _percent(self, text: Traced, values: ast.expr, scope: Scope) -> Traced:
        """`text % values`."""
        resolved, where = self.resolve(values, scope)
        given: dict[str, Traced] = {}
        if isinstance(resolved, ast.Dict):
            for key, value in zip(resolved.keys, resolved.values, strict=True):
                if isinstance(key, ast.Constant):
                    given[str(key.value)] = self._value(value, where)
        elif isinstance(resolved, ast.Tuple):
            given = {str(at): self._value(one, where) for at, one in enumerate(resolved.elts)}
        else:
            given = {"0": self._value(resolved, where)}
        return _formatted(text, given, "%")

    def _function(self, node: ast.Call, scope: Scope) -> list[Traced]:
        """What a function of the file returns for these arguments."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for _, function, around in self.module.functions:
            if function.name != name:
                continue
            owner = next((one for one in around if isinstance(one, ast.ClassDef)), None)
            names = [one.arg for one in _parameters(function)]
            method = bool(names) and names[0] in ("self", "cls")
            bound: dict[str, tuple[ast.expr, Scope]] = {}
            for position, one in enumerate(names[1:] if method else names):
                given = list(_given(node, one, position))
                if given:
                    bound[one] = (given[0], scope)
            inner = Scope(self.module, (function,), owner, bound)
            found: list[Traced] = []
            for child in walk(function):
                if isinstance(child, ast.Return) and child.value is not None:
                    found.extend(self.trace(child.value, inner))
            return found
        return []


def _source(traced: Traced, sink: str, place: Place) -> EmbeddedSource:
    paths = [piece.path for piece in traced.pieces]
    path = max(set(paths), key=paths.count) if paths else place.path
    name = sink.replace("torch.utils.cpp_extension.", "").replace("cupy.", "")
    return EmbeddedSource(traced.text, traced.lines(), name, place, path)


def _products(columns: Sequence[list[Traced]], between: str) -> list[Traced]:
    """All texts made of one part from each column; a column without texts is left out."""
    found: list[list[Traced]] = [[]]
    for column in columns:
        if column:
            found = [[*before, one] for before in found for one in column][:MAX_ALTERNATIVES]
    results: list[Traced] = []
    for parts in found:
        if not parts:
            continue
        spaced: list[Traced] = []
        for at, part in enumerate(parts):
            if at and between and part.pieces:
                spaced.append(plain(between, part.pieces[0].path, part.pieces[0].line))
            spaced.append(part)
        whole = joined(spaced)
        if sum(len(piece.text) for piece in whole.pieces) <= MAX_TEXT:
            results.append(whole)
    return results


_PERCENT = re.compile(r"%(?:\((\w+)\))?[-+ #0]*\d*(?:\.\d+)?([sdifgxXre%])")
_BRACES = re.compile(r"\{\{|\}\}|\{(\w*)(?:![rs])?(?::[^{}]*)?\}")
_DOLLAR = re.compile(r"\$\$|\$(\w+)|\$\{(\w+)\}")
_JINJA = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_STYLES = {"%": _PERCENT, "format": _BRACES, "render": _JINJA}


def _formatted(text: Traced, values: Mapping[str, Traced], style: str) -> Traced:
    """The text with its fields filled in; a field without a value stays."""
    source = text.text
    parts: list[Traced] = []
    start, counter = 0, 0
    for match in _STYLES.get(style, _DOLLAR).finditer(source):
        found = match.group()
        parts.append(text.cut(start, match.start()))
        start = match.end()
        here = text.cut(match.start(), match.end())
        if found in ("{{", "}}", "$$", "%%"):
            parts.append(text.cut(match.start(), match.start() + 1))
            continue
        name = next((one for one in match.groups() if one and one not in "sdifgxXre%"), "")
        if not name or (style == "%" and not match.group(1)):
            name, counter = str(counter), counter + 1
        parts.append(values.get(name, here))
    parts.append(text.cut(start, len(source)))
    return joined(parts)


def _calls(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.Call, Scope]]:
    """Every call with the scope that it stands in, in source order."""
    stack: list[tuple[ast.AST, Scope]] = [(node, scope)]
    while stack:
        at, where = stack.pop()
        if isinstance(at, ast.Call):
            yield at, where
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef)):
            where = Scope(where.module, (*where.functions, at), where.owner)
        elif isinstance(at, ast.ClassDef):
            where = Scope(where.module, where.functions, at)
        stack.extend((child, where) for child in reversed(list(children(at))))


def _given(node: ast.Call, name: str, position: int) -> Iterator[ast.expr]:
    """The argument that a call gives for a parameter."""
    for keyword in node.keywords:
        if keyword.arg == name:
            yield keyword.value
            return
    if 0 <= position < len(node.args) and not any(isinstance(one, ast.Starred) for one in node.args[: position + 1]):
        yield node.args[position]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _local_values(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> list[ast.expr]:
    """Expressions that a function assigns to a name, in source order."""
    found: list[ast.expr] = []
    for node in walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                    found.append(value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                found.append(value)
            case ast.NamedExpr(target=ast.Name(id=target), value=value) if target == name:
                found.append(value)
            case _:
                pass
    return sorted(found, key=lambda one: one.lineno)


def _opened(scope: Scope, name: str) -> ast.expr | None:
    """The file name of `with open(…) as name`."""
    body: ast.AST = scope.functions[-1] if scope.functions else scope.module.tree
    for node in walk(body):
        if isinstance(node, ast.With):
            for item in node.items:
                match item:
                    case ast.withitem(
                        context_expr=ast.Call(func=ast.Name(id="open"), args=[first, *_]),
                        optional_vars=ast.Name(id=target),
                    ) if target == name:
                        return first
                    case _:
                        pass
    return None
