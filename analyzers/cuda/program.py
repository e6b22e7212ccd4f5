"""From a CUDA file to its program: which kernels there are, who launches them with what, and what does not run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from d2k.analyzers.core.drafts import TooLarge
from d2k.analyzers.cuda.collectives import Collective
from d2k.analyzers.cuda.collectives import source as collective_source
from d2k.analyzers.cuda.core import Context
from d2k.analyzers.cuda.cpp_types import CType
from d2k.analyzers.cuda.frames import Frame
from d2k.analyzers.cuda.host import HostLowerer, LaunchSite
from d2k.analyzers.cuda.includes import load_units
from d2k.analyzers.cuda.library import USER_FILE, Library, with_user_tables
from d2k.analyzers.cuda.lowering import Lowerer, Portable
from d2k.analyzers.cuda.mentions import mentions_in_text
from d2k.analyzers.cuda.parse import MAX_DEPTH, parse_expression
from d2k.analyzers.cuda.scope import FunctionRef, Index, Unit
from d2k.analyzers.cuda.syntax import Function, Node
from d2k.analyzers.cuda.unread import unread_kernel
from d2k.spec.facts import (
    AttrValue,
    Body,
    Constant,
    Kernel,
    Launch,
    Mention,
    Param,
    Place,
    Problem,
    Program,
    Reach,
    Variant,
)
from d2k.spec.facts import Function as HostFunction

MAX_VARIANTS = 6
"""Instantiations of one kernel that are lowered; further ones are counted."""
MAX_PROGRAM_OPS = 40_000
"""Operations of all bodies beyond which only the first instantiation of each kernel is lowered."""
RECURSION = 12_000
_HEADERS = (".cuh", ".h", ".hpp", ".hh", ".hxx", ".inl", ".inc")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_EXPORT = re.compile(r"\b(?:PYBIND11_MODULE|TORCH_LIBRARY\w*|TVM_FFI_DLL_EXPORT_TYPED_FUNC|REGISTER_\w+)\s*\(")
INTERNAL = "could not be lowered, which is a bug"
EMPTY = Body((), ())


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Nested sources need more of Python's stack than its default; the limit is put back."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def read(
    path: str,
    text: str,
    entry: str = "",
    target: str = "sm_100a",
    include_dirs: tuple[str, ...] = (),
    line_map: tuple[int, ...] | None = None,
) -> Program:
    """The facts of one CUDA C++ file.

    `line_map`: line i of `text` stands at line `line_map[i - 1]` of the file at `path` (CUDA in a Python string).
    """
    with _deep_recursion():
        try:
            program = _Reader(path, text, entry, target, include_dirs, line_map).program()
        except RecursionError:
            problem = Problem(Place(path, 1, 1), "nested too deeply")
            return Program(path, ("cuda",), (), (), EMPTY, entry, problems=(problem,))
    line = unread_kernel(text) if not program.kernels else None
    if line is None:
        return program
    place = Place(path, line, line) if line_map is None else Place(path, line_map[line - 1], line_map[line - 1])
    problem = Problem(place, "a kernel is defined here, but it could not be read: is the file complete?")
    return msgspec.structs.replace(program, problems=(*program.problems, problem))


@dataclass(slots=True)
class _Host:
    ref: FunctionRef
    lowerer: HostLowerer
    body: Body
    reachable: bool
    name: str


@dataclass(slots=True)
class _Site:
    host: _Host
    site: LaunchSite


@dataclass(slots=True)
class _Found:
    kernels: list[Kernel] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)


class _Reader:
    def __init__(
        self,
        path: str,
        text: str,
        entry: str,
        target: str,
        include_dirs: tuple[str, ...],
        line_map: tuple[int, ...] | None,
    ) -> None:
        self.path = path
        self.entry = entry
        self.target = target
        folders = (Path(path).parent, *(Path(one) for one in include_dirs))
        units = load_units(path, text, target, include_dirs, line_map)
        self.library: Library
        self.library, wrong = with_user_tables(
            tuple(folder / USER_FILE for folder in folders), tuple(unit.prepared.source for unit in units)
        )
        self.unit: Unit = units[0]
        self.index = Index()
        for unit in units:
            self.index.add(unit)
        self.context = Context(self.index, target)
        self.found = _Found()
        self.ops = 0
        self.host_names: set[str] = set()
        self.found.problems.extend(Problem(Place(path, 1, 1), one) for one in wrong)

    def program(self) -> Program:
        kernels = self._kernels()
        hosts = self._hosts(kernels)
        sites: dict[tuple[str, int], list[_Site]] = {}
        for host in hosts:
            for site in host.lowerer.sites:
                if site.kernel is not None:
                    for ref in site.kernel.refs:
                        sites.setdefault(ref.key, []).append(_Site(host, site))
                        if host.reachable and all(ref.key != known.key for known in kernels):
                            kernels.append(ref)
        launched_somewhere = any(site.kernel is not None for host in hosts for site in host.lowerer.sites)
        for ref in kernels:
            self._kernel(ref, sites.get(ref.key, []), launched_somewhere)
        for host in hosts:
            self._collectives(host)
        self._problems(kernels)
        self._mentions(kernels)
        functions = tuple(
            HostFunction(
                host.name,
                host.ref.unit.place(host.ref.function.at, host.ref.function.end),
                self._params(host.ref.function, host.lowerer),
                host.reachable,
                host.body,
            )
            for host in hosts
        )
        return Program(
            self.path,
            ("cuda",),
            tuple(self.found.kernels),
            functions,
            EMPTY,
            self.entry,
            {},
            tuple(dict.fromkeys(self.found.mentions)),
            tuple(self.found.problems),
        )

    # which functions there are

    def _kernels(self) -> list[FunctionRef]:
        """Kernels of the file itself; of included files, those come in that the file launches."""
        found: list[FunctionRef] = []
        for function in self.unit.items.functions:
            if "global" in function.words and self.unit.converter.has_body(function):
                found.append(FunctionRef(function, self.unit))
        for cls in self.unit.items.classes:
            for method in cls.methods:
                if "global" in method.words and self.unit.converter.has_body(method):
                    found.append(FunctionRef(method, self.unit))
        return found

    def _host_functions(self) -> list[FunctionRef]:
        found: list[FunctionRef] = []
        for function in self.unit.items.functions:
            if not self.unit.converter.has_body(function):
                continue
            if function.words & {"global", "device"} or function.name.startswith("operator"):
                continue
            if function.name in ("PYBIND11_MODULE",) or function.name.startswith("TORCH_LIBRARY"):
                continue
            found.append(FunctionRef(function, self.unit))
        stack = list(self.unit.items.classes)
        while stack:
            cls = stack.pop()
            stack.extend(cls.classes)
            for method in cls.methods:
                if method.words & {"global", "device"} or not self.unit.converter.has_body(method):
                    continue
                text = self.unit.text(method.at, method.end)
                if "<<<" in text or "cudaLaunch" in text:
                    found.append(FunctionRef(method, self.unit))
        return found

    def _hosts(self, kernels: list[FunctionRef]) -> list[_Host]:
        functions = self._host_functions()
        by_name: dict[str, list[FunctionRef]] = {}
        for ref in functions:
            by_name.setdefault(ref.function.name, []).append(ref)
        calls: dict[tuple[str, int], set[str]] = {
            ref.key: {
                name
                for name in _IDENTIFIER.findall(self.unit.text(ref.function.at, ref.function.end))
                if name in by_name and name != ref.function.name
            }
            for ref in functions
        }
        roots = self._roots(functions, calls, by_name)
        reachable = {ref.key for ref in roots}
        stack = list(roots)
        while stack:
            for name in calls[stack.pop().key]:
                for ref in by_name[name]:
                    if ref.key not in reachable:
                        reachable.add(ref.key)
                        stack.append(ref)
        called = {name for names in calls.values() for name in names}
        root_keys = {ref.key for ref in roots}
        hosts: list[_Host] = []
        for ref in functions:
            if ref.key in root_keys or ref.function.name not in called or ref.key not in reachable:
                hosts.append(self._host(ref, ref.key in reachable))
        return hosts

    def _roots(
        self,
        functions: list[FunctionRef],
        calls: dict[tuple[str, int], set[str]],
        by_name: dict[str, list[FunctionRef]],
    ) -> list[FunctionRef]:
        """Where execution enters: the entry, else exported functions, else those that no other one calls."""
        if self.entry:
            chosen = [ref for ref in functions if ref.function.name == self.entry]
            exported = self._exported_as(self.entry)
            chosen = chosen or [ref for ref in functions if ref.function.name == exported]
            if chosen:
                return chosen
        names = self._exported_names()
        exported_refs = [ref for ref in functions if ref.function.name in names or "extern" in ref.function.words]
        if exported_refs:
            return exported_refs
        called = {name for names in calls.values() for name in names}
        return [ref for ref in functions if ref.function.name not in called] or functions

    def _export_bodies(self) -> Iterator[str]:
        for function in self.unit.items.functions:
            if function.name == "PYBIND11_MODULE" or function.name.startswith("TORCH_LIBRARY"):
                yield self.unit.text(function.at, function.end)
        text = self.unit.prepared.text
        for match in _EXPORT.finditer(text):
            yield text[match.start() : match.start() + 4000].split("}", 1)[0]

    def _exported_names(self) -> set[str]:
        return {name for body in self._export_bodies() for name in _IDENTIFIER.findall(body)}

    def _exported_as(self, label: str) -> str:
        """The C++ function behind an exported name."""
        for body in self._export_bodies():
            match = re.search(r'"' + re.escape(label) + r'[^"]*"\s*,\s*&?\s*(?:\w+::)*(\w+)', body)
            if match:
                return match.group(1)
        return ""

    # lowering

    def _host(self, ref: FunctionRef, reachable: bool) -> _Host:
        lowerer = HostLowerer(self.context, {}, self.library)
        problem = self._run(lowerer, ref, {})
        body = lowerer.b.finished()
        if problem:
            place = ref.unit.place(ref.function.at, ref.function.end)
            self.found.problems.append(Problem(place, f"{ref.function.name}: {problem}"))
        return _Host(ref, lowerer, body, reachable, self._unique(ref))

    def _unique(self, ref: FunctionRef) -> str:
        """The function's name; overloads also say their line, because launches refer to host functions by name."""
        name = ref.function.name
        if name in self.host_names:
            name = f"{name}@{ref.unit.place(ref.function.at).line}"
        self.host_names.add(name)
        return name

    def _run(self, lowerer: Lowerer, ref: FunctionRef, bound: dict[str, Portable]) -> str:
        """Lowers a function; returns what stopped it, "" if nothing did."""
        try:
            lowerer.function(ref, bound)
        except TooLarge:
            return f"more than {lowerer.b.max_ops} operations"
        except RecursionError:
            return "nested too deeply"
        except Exception as error:  # a mistake of ours in one function must not hide the rest of the file
            return f"{INTERNAL} ({type(error).__name__}: {error})"
        if any(ref.function.at <= at < ref.function.end for at in ref.unit.converter.cut):
            return f"nested deeper than {MAX_DEPTH} levels"
        return ""

    def _kernel(self, ref: FunctionRef, sites: list[_Site], launched_somewhere: bool) -> None:
        live = [one for one in sites if one.host.reachable]
        function = ref.function
        place = ref.unit.place(function.at, function.end)
        groups: dict[tuple[tuple[str, str], ...], list[_Site]] = {}
        for one in live or sites:
            key = tuple((name, portable.key) for name, portable in one.site.bound.items())
            groups.setdefault(key, []).append(one)
        if not groups:
            groups[()] = []
        total = len(groups)
        variants: list[Variant] = []
        labels: set[str] = {""}
        attrs: dict[str, AttrValue] = {}
        problem = ""
        for number, (_, members) in enumerate(list(groups.items())[:MAX_VARIANTS]):
            if number and self.ops > MAX_PROGRAM_OPS:
                break
            bound = members[0].site.bound if members else {}
            constants = _constants(bound)
            lowerer = Lowerer(self.context, constants, False, self.library)
            blocks = [one.site.options.options.get("block") for one in members]
            lowerer.rows_are_warps = bool(blocks) and all(
                isinstance(block, tuple) and len(block) == 2 and block[0] == 32 for block in blocks
            )
            stopped = self._run(lowerer, ref, bound)
            problem = problem or stopped
            if number == 0:
                attrs.update(self._attributes(ref, lowerer))
            body = lowerer.b.finished()
            self.ops += len(body.ops)
            label = ", ".join(f"{name}={value}" for name, value in constants.items()) if total > 1 else ""
            if total > 1 and label in labels:
                label = f"{label} #{number + 1}"
            labels.add(label)
            variants.append(
                Variant(
                    label,
                    constants,
                    _common_launch([one.site.options for one in members]),
                    body,
                    "template" if bound else "launch" if members else "unknown",
                    tuple((one.host.name, one.host.lowerer.b.renumbered[one.site.value]) for one in members),
                )
            )
        if total > len(variants):
            attrs["configs_total"] = total
        errors = _overlap(ref.unit.errors, function.at, function.end)
        if errors:
            attrs["error_bytes"] = errors
            self.found.problems.append(
                Problem(place, f"{errors} bytes of {function.name} could not be parsed", (function.name,))
            )
        if problem:
            attrs["incomplete"] = True
            self.found.problems.append(Problem(place, f"{function.name}: {problem}", (function.name,)))
        reach = self._reach(ref, live, sites, launched_somewhere)
        params = self._params(function, None)
        self.found.kernels.append(Kernel(function.name, place, "cuda", params, reach, tuple(variants), attrs))

    def _collectives(self, host: _Host) -> None:
        """The kernels that CUTLASS adapters of a host function build, each once."""
        groups: dict[Collective, list[tuple[int, Place]]] = {}
        for one, value, place in host.lowerer.collectives:
            groups.setdefault(one, []).append((value, place))
        for one, sites in groups.items():
            text = collective_source(one)
            place = sites[0][1]
            unit = Unit(self.path, text, self.target, line_map=(place.line,) * (text.count("\n") + 2))
            index = Index()
            index.add(unit)
            ref = next(FunctionRef(f, unit) for f in unit.items.functions if "global" in f.words)
            bound = collective_arguments(one)
            constants = _constants(bound)
            lowerer = Lowerer(Context(index, self.target), constants, False, self.library)
            lowerer.collective_attrs = one.matrix_attrs()
            stopped = self._run(lowerer, ref, bound)
            cluster = tuple(size for size in one.cluster if size is not None)
            launch = Launch(
                threads={"sm90": 384, "sm100": 256}.get(one.family),
                cluster=cluster if len(cluster) == len(one.cluster) and cluster else None,
            )
            attrs: dict[str, AttrValue] = {"library": "cutlass", "collective": one.family, "schedule": one.schedule}
            if one.scheduler:
                attrs["scheduler"] = one.scheduler
            if stopped:
                attrs["incomplete"] = True
            numbers = tuple((host.name, host.lowerer.b.renumbered[value]) for value, _ in sites)
            variant = Variant("", constants, launch, lowerer.b.finished(), "template", numbers)
            reach = Reach.LAUNCHED if host.reachable else Reach.DEAD
            name = f"{one.name}@{place.line}" if one.name in self.host_names else one.name
            self.host_names.add(one.name)
            self.found.kernels.append(
                Kernel(name, place, "cuda", self._params(ref.function, None), reach, (variant,), attrs)
            )

    def _reach(self, ref: FunctionRef, live: list[_Site], sites: list[_Site], launched_somewhere: bool) -> Reach:
        if live:
            return Reach.LAUNCHED
        if sites:
            return Reach.DEAD
        header = self.path.endswith(_HEADERS)
        named = self._named_elsewhere(ref)
        if header or not launched_somewhere or named or "extern" in ref.function.words:
            return Reach.EXPORTED
        return Reach.DEAD

    def _named_elsewhere(self, ref: FunctionRef) -> bool:
        """Whether code outside the kernel names it: its address may be taken and launched in ways not seen."""
        text = self.unit.prepared.text
        pattern = re.compile(rf"\b{re.escape(ref.function.name)}\b")
        for match in pattern.finditer(text):
            if not ref.function.at <= match.start() < ref.function.end:
                inside = any(
                    f.at <= match.start() < f.end and ("global" in f.words or "device" in f.words)
                    for f in self.unit.items.functions
                )
                if not inside:
                    return True
        return False

    def _attributes(self, ref: FunctionRef, lowerer: Lowerer) -> dict[str, AttrValue]:
        """Launch bounds, cluster size and register limit of a kernel."""
        found: dict[str, AttrValue] = {}
        body = ref.unit.converter.body(ref.function)
        end = getattr(body, "at", ref.function.end)
        for name, text in ref.unit.marks(ref.function.at, end):
            values = self._evaluate(text, ref, lowerer)
            if name == "__launch_bounds__" or name.startswith("C10_LAUNCH_BOUNDS"):
                if values and values[0] is not None:
                    found["launch_bounds_threads"] = values[0]
                if len(values) > 1 and values[1] is not None:
                    found["launch_bounds_blocks"] = values[1]
                found["launch_bounds"] = text.strip()
            elif name == "__cluster_dims__":
                found["cluster_dims"] = tuple(values)
            elif name == "__maxnreg__" and values and values[0] is not None:
                found["maxnreg"] = values[0]
        return found

    def _evaluate(self, text: str, ref: FunctionRef, lowerer: Lowerer) -> list[int | None]:
        """The constants in an attribute's argument list."""
        found: list[int | None] = []
        for node in parse_expression(text):
            try:
                value = lowerer.in_frame(
                    Frame(ref.unit, [lowerer.frame.scopes[0]], ref.function.scope),
                    _constant_of,
                    lowerer,
                    node,
                )
            except (TooLarge, RecursionError):
                value = None
            found.append(value)
        return found

    def _params(self, function: Function, lowerer: Lowerer | None) -> tuple[Param, ...]:
        found = [
            Param(t.name, True, False, None, None)
            for t in function.tparams
            if t.name and t.type is not None and "global" in function.words
        ]
        if lowerer is None:
            lowerer = Lowerer(self.context, {}, False, self.library)
        frame = Frame(self.unit, [{}], function.scope)
        for param in function.params:
            if not param.name:
                continue
            type_ = lowerer.in_frame(frame, lowerer.resolve, param.type)
            found.append(Param(param.name, False, type_.pointer > 0 or bool(type_.dims), type_.dtype, None))
        return tuple(found)

    # what cannot be read, and what does not run

    def _is(self, ref: FunctionRef, kernel: Kernel) -> bool:
        return ref.unit.place(ref.function.at, ref.function.end) == kernel.place

    def _called_names(self, kernels: list[FunctionRef]) -> set[str]:
        """Names that code names which may run: all but that of helpers which only such helpers name."""
        texts: dict[str, set[str]] = {}
        for function in self.unit.items.functions:
            words = set(_IDENTIFIER.findall(self.unit.text(function.at, function.end)))
            texts.setdefault(function.name, set()).update(words)
        helpers = {f.name for f in self.unit.items.functions if "device" in f.words and "global" not in f.words}
        seen: set[str] = set()
        stack = [name for name in texts if name not in helpers]
        for cls in self.unit.items.classes:
            stack.extend(_IDENTIFIER.findall(self.unit.text(cls.at, cls.end)))
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack.extend(texts.get(name, ()))
        return seen

    def _mention_function(self, ref: FunctionRef, reason: str) -> None:
        unit = ref.unit
        start = unit.prepared.origin(ref.function.at)
        end = unit.prepared.origin(max(ref.function.at, ref.function.end - 1)) + 1
        self.found.mentions.extend(
            mentions_in_text(unit.prepared.source, start, end, unit, reason, ref.function.name, self.library)
        )

    def _problems(self, kernels: list[FunctionRef]) -> None:
        if self.unit.prepared.exhausted:
            self.found.problems.append(
                Problem(Place(self.path, 1, 1), "macros expand to too much text; the rest stays as calls")
            )

    def _mentions(self, kernels: list[FunctionRef]) -> None:
        """Known calls in code that does not run: disabled branches, dead kernels, helpers that nobody calls."""
        for kernel in self.found.kernels:
            if kernel.reach is Reach.DEAD:
                self._mention_function(next(r for r in kernels if self._is(r, kernel)), "dead_code")
        called = self._called_names(kernels)
        for function in self.unit.items.functions:
            helper = "device" in function.words and "global" not in function.words
            if not helper or function.name in called or function.name.startswith("operator"):
                continue
            if self.unit.converter.has_body(function):
                self._mention_function(FunctionRef(function, self.unit), "helper_not_called")
        for region in self.unit.prepared.inactive:
            self.found.mentions.extend(
                mentions_in_text(
                    self.unit.prepared.source,
                    region.start,
                    region.end,
                    self.unit,
                    "disabled_branch",
                    region.condition,
                    self.library,
                )
            )


def _constants(bound: dict[str, Portable]) -> dict[str, Constant]:
    found: dict[str, Constant] = {}
    for name, portable in bound.items():
        if portable.constant is not None:
            found[name] = portable.constant
        elif portable.type is not None and portable.type.dtype is not None and not portable.type.pointer:
            found[name] = portable.type.dtype
    return found


def _common_launch(options: list[Launch]) -> Launch:
    """What all launches of a variant agree on."""
    if not options:
        return Launch()
    first = options[0]
    if all(one == first for one in options):
        return first

    def same(name: str) -> object:
        values = {repr(getattr(one, name)): getattr(one, name) for one in options}
        return next(iter(values.values())) if len(values) == 1 else None

    return Launch(
        threads=same("threads"),  # type: ignore[arg-type]  # each field keeps its own type
        cluster=same("cluster"),  # type: ignore[arg-type]
        pdl=same("pdl"),  # type: ignore[arg-type]
        cooperative=same("cooperative"),  # type: ignore[arg-type]
        options={k: v for k, v in first.options.items() if all(one.options.get(k) == v for one in options)},
    )


def _overlap(spans: list[tuple[int, int]], start: int, end: int) -> int:
    return sum(max(0, min(end, b) - max(start, a)) for a, b in spans)


def _constant_of(lowerer: Lowerer, node: Node) -> int | None:
    return lowerer.known_int(lowerer.val(lowerer.expression(node)).id)


def collective_arguments(one: Collective) -> dict[str, Portable]:
    """Template arguments of the kernel that a collective lowers to."""
    found: dict[str, Portable] = {}
    for name, dtype in (("TA", one.a), ("TB", one.b), ("TC", one.c), ("TD", one.d)):
        if dtype is not None:
            found[name] = Portable(dtype, type=CType(dtype, name=dtype))
    if one.stages is not None:
        found["STAGES"] = Portable(str(one.stages), one.stages)
    return found
