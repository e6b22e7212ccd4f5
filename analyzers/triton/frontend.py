"""A `.py` file to facts: Triton and its sister languages, and the Python that launches their kernels."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from d2k.analyzers.core.drafts import TooLarge
from d2k.analyzers.triton import reach, variants
from d2k.analyzers.triton.builder import Builder
from d2k.analyzers.triton.device import Device, is_constexpr, parameters
from d2k.analyzers.triton.host import Context, Host
from d2k.analyzers.triton.interp import Interp, NotConstant
from d2k.analyzers.triton.lowering import defaults
from d2k.analyzers.triton.module import Library, Module, index
from d2k.analyzers.triton.nodes import children, walk
from d2k.analyzers.triton.pointers import pointer_params
from d2k.analyzers.triton.relevance import Relevance
from d2k.analyzers.triton.values import Class, Func, KernelDef
from d2k.spec.facts import (
    AttrValue,
    Body,
    Constant,
    Function,
    Kernel,
    Mention,
    Param,
    Place,
    Problem,
    Program,
    Reach,
    Variant,
)

MAX_LOWERINGS = 16
"""Bodies of one kernel that differ by their compile-time decisions."""

MAX_TOTAL_OPS = 150_000
EMPTY = Body((), ())
_WORTH_READING = re.compile(r"\b(?:triton|gluon|cute|cutlass|cuda|torch|tilelang|cupy)\b|cpp_extension|load_inline")


@dataclass(slots=True)
class Lowered:
    """A host function with its body, and what it led to."""

    func: Func
    name: str
    host: Host
    body: Body
    problem: str = ""


@dataclass(slots=True)
class Reading:
    """The state of reading one file."""

    module: Module
    interp: Interp
    kernels: dict[int, KernelDef] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    relevance: Relevance = field(default_factory=lambda: Relevance(()))
    contexts: dict[int, Context] = field(default_factory=dict)
    """What the `forward` of each class stores for its `backward`, by the identity of the class."""
    called: frozenset[int] = frozenset()
    """Device functions that other ones call by name."""
    ops: int = 0


def read(path: str, text: str, entry: str = "", target: str = "sm_100a") -> Program:
    """All facts of one file; `entry` is the host function to start from, "" for every public one. Never fails."""
    if not _WORTH_READING.search(text):
        return _without_kernels(path, text, entry)
    # hundreds of thousands of small objects live until the end: looking for garbage among them takes 40 % of the time
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _read(path, text, entry, target)
    finally:
        if collecting:
            gc.enable()


def _without_kernels(path: str, text: str, entry: str) -> Program:
    """A file that names no kernel language; one that is no Python at all is told all the same."""
    try:
        compile(text, path, "exec", ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        return _unreadable(path, entry, error.lineno or 1, f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError):
        return _unreadable(path, entry, 1, "no Python that can be parsed")
    return Program(path, (), (), (), EMPTY, entry)


def _read(path: str, text: str, entry: str, target: str) -> Program:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        line = error.lineno or 1
        message = f"syntax error: {error.msg}"
        return _unreadable(path, entry, line, message)
    except ValueError as error:
        return _unreadable(path, entry, 1, f"not Python source: {error}")
    except (RecursionError, MemoryError):
        return _unreadable(path, entry, 1, "nested too deeply to be parsed")
    try:
        return _program(path, text, tree, entry, target)
    except RecursionError:
        return _unreadable(path, entry, 1, "nested too deeply to be analysed")


def _unreadable(path: str, entry: str, line: int, message: str) -> Program:
    problem = Problem(Place(path, line, line), message)
    return Program(path, (), (), (), EMPTY, entry, problems=(problem,))


def _program(path: str, text: str, tree: ast.Module, entry: str, target: str) -> Program:
    module = index(path, tree, Library(), text)
    reading = Reading(module, Interp(target))
    discover(reading)
    functions = host_functions(reading)
    top = _module_code(reading)
    reached = reach.reach(module, functions, entry, top)
    if reached.problem:
        reading.problems.append(Problem(Place(path, 1, 1), reached.problem))
    kernels, mentions = _kernels(reading, functions, top, reached)
    return Program(
        path=path,
        languages=_languages(reading, module),
        kernels=kernels,
        functions=tuple(_function(one, reached) for one in functions if one.name not in reached.inside),
        module=top.body,
        entry=entry,
        imports=module.imports,
        mentions=mentions,
        problems=tuple(reading.problems),
    )


# what is there


def discover(reading: Reading) -> None:
    """Finds every kernel of the file, wherever its definition stands."""
    module, interp = reading.module, reading.interp
    for name, node, around in module.functions:
        if not node.decorator_list:
            continue
        if not around and interp.binding(module, node.name) is node:
            try:
                made: object = interp.global_value(module, node.name)
            except NotConstant:
                made = None
        else:
            made = interp.decorated(Func(node, module, name), {})
        if isinstance(made, KernelDef):
            reading.kernels.setdefault(id(made.func.node), made)
    for name in module.bindings:
        if isinstance(interp.binding(module, name), ast.Call):
            try:
                made = interp.global_value(module, name)
            except NotConstant:
                continue
            if isinstance(made, KernelDef) and made.func.module is module:
                known = reading.kernels.get(id(made.func.node))
                if known is None or (known.configs is None and not known.pending):
                    reading.kernels[id(made.func.node)] = made


def host_functions(reading: Reading) -> list[Lowered]:
    """Every function that is no kernel, no device helper and no part of another one, lowered."""
    module = reading.module
    device = set(reading.kernels)
    operators = _operators(module)
    reading.relevance = Relevance(kernel.name for kernel in reading.kernels.values())
    found: list[Lowered] = []
    nested: list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, tuple[ast.AST, ...]]] = []
    for name, node, around in module.functions:
        if id(node) in device or any(id(one) in device for one in around):
            continue
        if any(isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) for one in around):
            nested.append((name, node, around))
            continue
        found.append(_lower(reading, name, node, around, operators))
    inlined = {node for one in found for node in (*one.host.inlined, *one.host.called)}
    for name, node, around in nested:
        if id(node) not in inlined:
            found.append(_lower(reading, name, node, around, operators))
    return found


def _operators(module: Module) -> dict[str, Func]:
    """Functions registered as torch operators, by `namespace.name`."""
    found: dict[str, Func] = {}
    for name, node, _ in module.functions:
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and decorator.args and isinstance(decorator.args[0], ast.Constant):
                operator = decorator.args[0].value
                if isinstance(operator, str) and "::" in operator:
                    found[operator.replace("::", ".")] = Func(node, module, name)
    by_name = {name: Func(node, module, name) for name, node, _ in module.functions}
    for statement in walk(module.tree):
        match statement:
            case ast.Call(
                func=ast.Attribute(attr="impl"), args=[ast.Constant(value=str() as operator), ast.Name(id=name), *_]
            ) if name in by_name:
                found[f"*.{operator.rpartition('::')[2]}"] = by_name[name]
            case _:
                pass
    return found


def _lower(
    reading: Reading,
    name: str,
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    around: Sequence[ast.AST],
    operators: dict[str, Func],
) -> Lowered:
    module = reading.module
    host = Host(module, reading.interp, operators, reading.relevance)
    func = Func(node, module, name)
    owner = around[-1] if around else None
    cls = Class(owner, module) if isinstance(owner, ast.ClassDef) else None
    if cls is not None and node.name == "backward":
        host.context = reading.contexts.get(id(owner), host.context)
    problem = ""
    if reading.ops > MAX_TOTAL_OPS:
        problem = "the file has more host code than is analysed"
    else:
        try:
            host.function(func, cls)
        except TooLarge:
            problem = f"`{name}` has more operations than are analysed"
        except RecursionError:
            problem = f"`{name}` is nested too deeply to be analysed"
    reading.ops += len(host.b.ops)
    if cls is not None and node.name == "forward":
        reading.contexts[id(owner)] = host.stored
    if problem:
        reading.problems.append(Problem(module.place(node), problem))
    return Lowered(func, name, host, host.b.finished(), problem)


def _module_code(reading: Reading) -> Lowered:
    module = reading.module
    host = Host(module, reading.interp, {}, reading.relevance)
    problem = ""
    try:
        host.module_code(module)
    except TooLarge:
        problem = "the module has more operations than are analysed"
    except RecursionError:
        problem = "the module is nested too deeply to be analysed"
    if problem:
        reading.problems.append(Problem(Place(module.path, 1, 1), problem))
    anchor = ast.FunctionDef(name="", args=_NO_ARGUMENTS, body=[], decorator_list=[])
    return Lowered(Func(anchor, module, ""), "", host, host.b.finished(), problem)


_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _function(one: Lowered, reached: reach.Reached) -> Function:
    node = one.func.node
    assert not isinstance(node, ast.Lambda)
    params = tuple(Param(arg.arg) for arg in parameters(node))
    return Function(one.name, one.func.module.place(node), params, one.name in reached.functions, one.body)


def _languages(reading: Reading, module: Module) -> tuple[str, ...]:
    found = list(dict.fromkeys(kernel.language for kernel in reading.kernels.values()))
    if "triton" in found and any("tlx" in dotted.split(".") for dotted in module.imports.values()):
        found.append("tlx")
    return tuple(found)


# kernels


def _kernels(
    reading: Reading, functions: Sequence[Lowered], top: Lowered, reached: reach.Reached
) -> tuple[tuple[Kernel, ...], tuple[Mention, ...]]:
    """The kernels, and the calls in device functions that no live kernel contains."""
    sites: dict[int, list[variants.HostSite]] = {}
    dead_sites: dict[int, list[variants.HostSite]] = {}
    order = dict(reading.kernels)
    for one in (*functions, top):
        if one is not top and one.name in reached.inside:
            continue  # its launches stand in its callers, with their constants
        running = one is top or one.name in reached.functions
        for site in one.host.sites:
            key = id(site.kernel.func.node)
            if site.kernel.func.owner is not None:
                order[key] = site.kernel  # a method: with the object that it was called on
            order.setdefault(key, site.kernel)
            value = one.host.b.renumbered[site.value]
            where = sites if running else dead_sites
            where.setdefault(key, []).append(variants.HostSite(one.name, value, site, one.host.b))
    referenced = {node for one in (*functions, top) for node in one.host.referenced}
    launches = bool(sites)
    called = reading.called = _called(reading)
    results: list[Kernel] = []
    live: set[int] = set()
    for key, kernel in order.items():
        here = sites.get(key, [])
        if here:
            how = Reach.LAUNCHED
        elif key in called or _returns_value(kernel):
            continue  # a helper
        elif reached.entry or (launches and key not in referenced):
            how, here = Reach.DEAD, dead_sites.get(key, [])
        else:
            how, here = Reach.EXPORTED, dead_sites.get(key, [])
        inlined: set[int] = set()
        results.append(_kernel(reading, kernel, how, here, inlined))
        if how is not Reach.DEAD:
            live |= {key, *inlined}
    return tuple(results), _dead_mentions(reading, order, live)


def _called(reading: Reading) -> frozenset[int]:
    """Device functions that another device function calls by name, whether or not that call runs."""
    found: set[int] = set()
    for key, kernel in reading.kernels.items():
        module = kernel.func.module
        for node in walk(kernel.func.node):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in module.bindings:
                try:
                    value = reading.interp.global_value(module, node.id)
                except NotConstant:
                    continue
                if isinstance(value, KernelDef) and id(value.func.node) != key:
                    found.add(id(value.func.node))
    return frozenset(found)


def _returns_value(kernel: KernelDef) -> bool:
    """Kernels return nothing; a device function with a result is a helper."""
    if kernel.language not in ("triton", "gluon"):
        return False
    return any(isinstance(node, ast.Return) and node.value is not None for node in _own_nodes(kernel.func.node))


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    stack = children(node)
    while stack:
        one = stack.pop()
        yield one
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            stack.extend(children(one))


def _kernel(
    reading: Reading, kernel: KernelDef, how: Reach, sites: Sequence[variants.HostSite], inlined: set[int]
) -> Kernel:
    """Lowers a kernel once for each way in which its compile-time decisions fall."""
    found, total = variants.specs(kernel, sites, reading.interp)
    bodies: list[tuple[Builder, variants.Spec, Body]] = []
    made: list[Variant] = []
    for spec in found:
        body = next((body for builder, other, body in bodies if _shares(builder, other, spec)), None)
        if body is None:
            if len(bodies) >= MAX_LOWERINGS:
                continue
            builder, body = _lower_kernel(reading, kernel, spec, inlined)
            bodies.append((builder, spec, body))
        made.append(Variant(spec.label, spec.constants, spec.launch, body, spec.chosen_by, spec.sites))
    pointers, numbers = pointer_params(body for _, _, body in bodies)
    attrs: dict[str, AttrValue] = {}
    if kernel.configs is not None:
        attrs["autotuned"] = True
        attrs["configs_total"] = total if kernel.configs else 0
        if kernel.pruned:
            attrs["configs_pruned"] = True
    elif total > 1:
        attrs["configs_total"] = total
    if kernel.heuristics:
        attrs["heuristics"] = tuple(kernel.heuristics)
    if kernel.decorators:
        attrs["decorators"] = kernel.decorators
    return Kernel(
        kernel.name,
        kernel.func.module.place(kernel.func.node),
        kernel.language,
        _params(kernel, reading.interp, pointers, numbers, [spec.dtypes for spec in found]),
        how,
        tuple(made),
        attrs,
    )


def _shares(builder: Builder, other: variants.Spec, spec: variants.Spec) -> bool:
    return _frame(other) == _frame(spec) and builder.agrees(spec.constants)


def _frame(spec: variants.Spec) -> tuple[object, ...]:
    return spec.bound, spec.blocks, spec.dtypes


def _lower_kernel(reading: Reading, kernel: KernelDef, spec: variants.Spec, inlined: set[int]) -> tuple[Builder, Body]:
    builder = Builder(spec.constants)
    device = Device(kernel.func.module, builder, reading.interp)
    device.blocks, device.dtypes = spec.blocks, spec.dtypes
    problem = ""
    try:
        device.kernel(kernel, spec.bound)
    except TooLarge:
        problem = f"kernel `{kernel.name}` has more operations than are analysed"
    except RecursionError:
        problem = f"kernel `{kernel.name}` is nested too deeply to be analysed"
    place = kernel.func.module.place(kernel.func.node)
    if problem:
        builder.unresolved.append(Mention(kernel.name, "", problem, place))
        if not any(one.text == problem for one in reading.problems):
            reading.problems.append(Problem(place, problem, (kernel.name,)))
    inlined.update(device.inlined)
    return builder, builder.finished()


def _params(
    kernel: KernelDef,
    interp: Interp,
    pointers: frozenset[str],
    numbers: frozenset[str],
    dtypes: Sequence[Mapping[str, str]],
) -> tuple[Param, ...]:
    node = kernel.func.node
    if isinstance(node, ast.Lambda):
        return ()
    given: dict[str, Constant] = {}
    for name, default in defaults(kernel.func):
        try:
            value = interp.eval(default, {}, kernel.func.module)
        except NotConstant:
            continue
        if value is None or isinstance(value, (bool, int, float, str)):
            given[name] = value
    found = []
    for one in parameters(node):
        constexpr = is_constexpr(one, kernel.func.module)
        pointer = True if one.arg in pointers else (False if constexpr or one.arg in numbers else None)
        named = {types.get(one.arg) for types in dtypes}
        dtype = named.pop() if len(named) == 1 and pointer else None
        found.append(Param(one.arg, constexpr, pointer, dtype, given.get(one.arg)))
    return tuple(found)


# code that does not run


def _dead_mentions(reading: Reading, kernels: Mapping[int, KernelDef], live: set[int]) -> tuple[Mention, ...]:
    host = Host(reading.module, reading.interp, {}, reading.relevance)
    for key, kernel in kernels.items():
        if key in live:
            continue
        if key in reading.called or _returns_value(kernel):
            host.mention_calls(kernel.func.node, "helper_not_called", kernel.name)
        else:
            host.mention_calls(kernel.func.node, "dead_code", f"nothing launches `{kernel.name}`")
    return tuple(dict.fromkeys(host.b.mentions))
