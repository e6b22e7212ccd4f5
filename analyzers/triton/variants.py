"""The sets of compile-time constants of a kernel: launches, defaults, heuristics and configurations joined."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from d2k.analyzers.triton.builder import Builder
from d2k.analyzers.triton.choices import Choices, assignments, evaluate
from d2k.analyzers.triton.device import constexpr_names, free_names, parameters
from d2k.analyzers.triton.hooks import hooked_blocks
from d2k.analyzers.triton.host import Site
from d2k.analyzers.triton.interp import Interp, NotConstant
from d2k.analyzers.triton.lowering import defaults
from d2k.analyzers.triton.tuning import OPTIONS
from d2k.analyzers.triton.types import named_dtype
from d2k.analyzers.triton.values import UNKNOWN, Config, DType, Func, KernelDef, Layout, Literal, Named, Tup, Value
from d2k.spec.facts import AttrValue, Constant, Kind, Launch

MAX_VARIANTS = 24
MAX_CONFIGS = 128
"""Configurations that are joined with launches; longer lists are thinned out first."""

COMPUTED = "computed"
"""Stands for a launch option that is given, but not as a constant."""


TENSORS = frozenset({Kind.HOST_ALLOC, Kind.HOST_CALL, Kind.PARAM, Kind.ATTRIBUTE, Kind.DESCRIPTOR})
"""Host operations whose element type is that of a tensor, not of a number."""

Block = tuple[int | str, ...]
"""A descriptor's block shape: sizes, or names of the kernel's constants."""


@dataclass(frozen=True, slots=True)
class HostSite:
    """A launch with the host function around it; `value` is its LAUNCH operation in the finished body."""

    function: str
    value: int
    site: Site
    builder: Builder


@dataclass(slots=True)
class Spec:
    """What one variant is lowered with. `bound` are parameters that stand for types, functions or tuples."""

    constants: dict[str, Constant]
    launch: Launch
    bound: dict[str, Value]
    blocks: dict[str, Block]
    dtypes: dict[str, str]
    chosen_by: str
    sites: tuple[tuple[str, int], ...] = ()
    tuned: tuple[str, ...] = ()
    label: str = ""


@dataclass(slots=True)
class _Given:
    constants: dict[str, Constant] = field(default_factory=dict)
    options: dict[str, Constant] = field(default_factory=dict)
    bound: dict[str, Value] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    """Element types of tensors, by parameter, where host code says them."""
    captured: set[str] = field(default_factory=set)
    """Names of constants that come from the function around the kernel."""
    sites: list[tuple[str, int]] = field(default_factory=list)


def specs(kernel: KernelDef, sites: Sequence[HostSite], interp: Interp) -> tuple[tuple[Spec, ...], int]:
    """The variants to lower, in a fixed order, and how many there are before the cap."""
    interp.tune(kernel)
    node = kernel.func.node
    constexprs = frozenset() if isinstance(node, ast.Lambda) else constexpr_names(node, kernel.func.module)
    given = _distinct([one for site in sites for one in _site(site, constexprs)]) or [_Given()]
    fallback = _defaults(kernel, interp)
    configs: Sequence[Config | None] = kernel.configs or (None,)
    found = [_spec(kernel, one, config, fallback, interp) for one in given for config in _thinned(configs)]
    unique = _unique(found)
    total = len(unique) if len(configs) <= MAX_CONFIGS else len(given) * len(configs)
    kept = _extremes(unique)
    _label(kept)
    return tuple(kept), total


def _thinned(configs: Sequence[Config | None]) -> Sequence[Config | None]:
    """At most MAX_CONFIGS configurations: those with extreme values, the rest spread evenly."""
    if len(configs) <= MAX_CONFIGS:
        return configs
    chosen: dict[int, None] = {0: None, len(configs) - 1: None}
    columns: dict[str, list[tuple[float, int]]] = {}
    for at, one in enumerate(configs):
        for name, value in (*one.kwargs.items(), *one.options.items()) if one is not None else ():
            if isinstance(value, (int, float)):
                columns.setdefault(name, []).append((float(value), at))
    for column in columns.values():
        chosen |= {min(column)[1]: None, max(column)[1]: None}
    for step in range(MAX_CONFIGS - len(chosen)):
        chosen[step * len(configs) // MAX_CONFIGS] = None
    return [configs[at] for at in sorted(chosen)]


def _site(host: HostSite, constexprs: frozenset[str]) -> list[_Given]:
    """What a launch gives the kernel: once for each way in which the host conditions behind its constants fall."""
    arguments, options = host.site.arguments, host.site.options
    wanted = [value for name, value in arguments.items() if name in constexprs or name in OPTIONS]
    choices = assignments(host.builder, (*wanted, *options.values()), host.site.value)
    return [_given(host, constexprs, choice) for choice in choices]


def _given(host: HostSite, constexprs: frozenset[str], choice: Choices) -> _Given:
    given = _Given(sites=[(host.function, host.value)])
    builder = host.builder
    for name, value in _closure(host.site.kernel).items():
        known = _known(builder, value, choice)
        given.captured.add(name)
        if not isinstance(known, _Absent):
            given.constants[name] = known
    for name, value in host.site.arguments.items():
        _take(builder, name, value, choice if name in constexprs or name in OPTIONS else {}, given)
        if name in OPTIONS and name in given.constants:
            given.options[name] = given.constants[name]
    for name, value in host.site.options.items():
        known = _known(builder, value, choice)
        if not isinstance(known, _Absent):
            given.options[name] = known
        elif isinstance(value, Tup):
            sizes = [_known(builder, one, choice) for one in value.items]
            given.options[name] = "x".join("?" if isinstance(one, _Absent) else str(one) for one in sizes)
        else:
            given.options[name] = COMPUTED
    return given


class _Absent:
    """The value is not known."""


_ABSENT = _Absent()


def _closure(kernel: KernelDef) -> dict[str, Value]:
    """Variables of the function around a kernel that the kernel reads: constants chosen by its maker."""
    func = kernel.func
    if func.evaluated or not func.env:
        return {}
    read = free_names(func.node)
    return {name: value for name, value in func.env.items() if name in read and isinstance(value, (int, Literal))}


def _known(builder: Builder, value: Value, choice: Choices) -> Constant | _Absent:
    if isinstance(value, Literal):
        return value.value
    if isinstance(value, int):
        known = builder.known[value]
        if known is UNKNOWN:
            known = evaluate(builder, value, choice)
        return _ABSENT if known is UNKNOWN else known
    if isinstance(value, DType) and value.name is not None:
        return value.name
    return _ABSENT


def _take(builder: Builder, name: str, value: Value, choice: Choices, given: _Given) -> None:
    known = _known(builder, value, choice)
    if not isinstance(known, _Absent):
        given.constants[name] = known
    if isinstance(value, DType):
        if value.name is not None:
            given.bound[name] = value
    elif isinstance(value, (Func, KernelDef, Named, Layout)):
        given.bound[name] = value
    elif isinstance(value, Tup):
        inner = [_known(builder, one, choice) for one in value.items]
        if inner and not any(isinstance(one, _Absent) for one in inner):
            given.bound[name] = Tup(tuple(Literal(one) for one in inner if not isinstance(one, _Absent)))
    elif isinstance(value, int):
        block = _block(builder, value)
        if block is not None:
            given.blocks[name] = block
        dtype = builder.ops[value].dtype
        if dtype is not None and builder.ops[value].kind in TENSORS:
            given.dtypes[name] = dtype


def _block(builder: Builder, value: int) -> Block | None:
    """The block shape of a descriptor that host code made."""
    draft = builder.ops[value]
    if draft.kind is not Kind.DESCRIPTOR or draft.shape is None:
        return None
    sizes: list[int | str] = []
    for one in draft.shape:
        known = builder.known[one]
        if isinstance(known, int):
            sizes.append(known)
        elif builder.ops[one].attrs.get("meta"):
            sizes.append(builder.ops[one].name)
        else:
            return None
    return tuple(sizes)


def _distinct(given: Iterable[_Given]) -> list[_Given]:
    """Launches that give the same constants are one."""
    found: list[_Given] = []
    for one in given:
        for other in found:
            if _content(one) == _content(other):
                other.sites.extend(site for site in one.sites if site not in other.sites)
                break
        else:
            found.append(one)
    return found


def _content(one: _Given) -> tuple[object, ...]:
    types = {name: type(value) for name, value in one.constants.items()}  # 1 and True are different constants
    return one.constants, types, one.options, one.bound, one.blocks, one.dtypes


def _defaults(kernel: KernelDef, interp: Interp) -> dict[str, Constant]:
    found: dict[str, Constant] = {}
    for name, node in defaults(kernel.func):
        try:
            value = interp.eval(node, {}, kernel.func.module)
        except NotConstant:
            continue
        if value is None or isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found


def _spec(
    kernel: KernelDef, given: _Given, config: Config | None, fallback: Mapping[str, Constant], interp: Interp
) -> Spec:
    constants = {**fallback, **given.constants}
    options: dict[str, Constant] = {**_constants(kernel.options), **given.options}
    bound = dict(given.bound)
    blocks = dict(given.blocks)
    tuned: tuple[str, ...] = ()
    if config is not None:
        hook = config.options.get("pre_hook")
        if hook is not None:
            blocks = hooked_blocks(hook, interp, constants) if isinstance(hook, Func) else {}
        constants.update(_constants(config.kwargs))
        for name, value in config.kwargs.items():
            _tune(name, value, constants, bound)
        options.update({name: one for name, one in _constants(config.options).items() if one is not None})
        tuned = (*config.kwargs, *(name for name in OPTIONS if name in _constants(config.options)))
    for name, heuristic in kernel.heuristics.items():
        value = _heuristic(heuristic, constants, options, interp, kernel)
        constants.pop(name, None)
        if not isinstance(value, _Absent):
            constants[name] = value
    node = kernel.func.node
    names = set() if isinstance(node, ast.Lambda) else {one.arg for one in parameters(node)}
    names |= given.captured
    for name in OPTIONS:  # a kernel that takes an option as a parameter sees the option
        if name in names and name in options:
            constants[name] = options[name]
    chosen = "autotune" if config is not None else ("launch" if given.sites else "default")
    if config is None and kernel.heuristics:
        chosen = "heuristic"
    known = {name: value for name, value in constants.items() if name in names}
    return Spec(known, _launch(options), bound, blocks, dict(given.dtypes), chosen, tuple(given.sites), tuned)


def _tune(name: str, value: object, constants: dict[str, Constant], bound: dict[str, Value]) -> None:
    """A configuration's constant that is a type, a function or a tuple."""
    match value:
        case Named(dotted):
            dtype = named_dtype(dotted)
            if dtype is None:
                bound[name] = value
            else:
                bound[name], constants[name] = DType(dtype), dtype
        case Func() | KernelDef():
            bound[name] = value
        case tuple() | list():
            if all(isinstance(one, (bool, int, float, str)) for one in value):
                bound[name] = Tup(tuple(Literal(one) for one in value))
        case _:
            pass


def _heuristic(
    heuristic: object,
    constants: Mapping[str, Constant],
    options: Mapping[str, Constant],
    interp: Interp,
    kernel: KernelDef,
) -> Constant | _Absent:
    try:
        value = interp.call(heuristic, ({**options, **constants},), {}, kernel.func.module)
    except (NotConstant, ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
        return _ABSENT
    return value if value is None or isinstance(value, (bool, int, float, str)) else _ABSENT


def _constants(values: Mapping[str, object]) -> dict[str, Constant]:
    found: dict[str, Constant] = {}
    for name, value in values.items():
        if value is None or isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found


def _launch(options: Mapping[str, Constant]) -> Launch:
    def integer(name: str) -> int | None:
        value = options.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(name: str) -> bool | None:
        value = options.get(name)
        return value if isinstance(value, bool) else None

    named = (*OPTIONS, "launch_pdl", "launch_cooperative_grid", "use_pdl", "block", "cluster")
    rest: dict[str, AttrValue] = {
        name: value for name, value in options.items() if name not in named or value == COMPUTED
    }
    warps = integer("num_warps")
    return Launch(
        num_warps=warps,
        num_stages=integer("num_stages"),
        num_ctas=integer("num_ctas"),
        maxnreg=integer("maxnreg"),
        threads=_product(options.get("block")) if warps is None else 32 * warps,
        cluster=_sizes(options.get("cluster")),
        pdl=flag("launch_pdl") if "launch_pdl" in options else flag("use_pdl"),
        cooperative=flag("launch_cooperative_grid"),
        options=rest,
    )


def _sizes(text: Constant) -> tuple[int, ...] | None:
    """Sizes that `_given` has joined with `x`."""
    if not isinstance(text, str) or not all(part.isdigit() for part in text.split("x")):
        return None
    return tuple(int(part) for part in text.split("x"))


def _product(text: Constant) -> int | None:
    sizes = _sizes(text)
    return None if sizes is None else math.prod(sizes)


def _unique(found: Sequence[Spec]) -> list[Spec]:
    unique: dict[tuple[object, ...], Spec] = {}
    for one in found:
        key = (
            tuple(one.constants.items()),
            tuple(type(value) for value in one.constants.values()),
            one.launch.num_warps,
            one.launch.num_stages,
            one.launch.num_ctas,
            one.launch.maxnreg,
            one.launch.pdl,
            one.launch.cooperative,
            tuple(one.launch.options.items()),
            tuple(sorted(one.blocks.items())),
            tuple(sorted(one.dtypes.items())),
            tuple(sorted(one.bound)),
            tuple(id(value) if isinstance(value, (Func, KernelDef)) else str(value) for value in one.bound.values()),
        )
        if key in unique:
            merged = tuple(dict.fromkeys((*unique[key].sites, *one.sites)))
            unique[key].sites = merged
        else:
            unique[key] = one
    return list(unique.values())


def _extremes(found: list[Spec]) -> list[Spec]:
    """At most MAX_VARIANTS: those with the smallest and largest value of each constant, the rest spread evenly."""
    if len(found) <= MAX_VARIANTS:
        return found
    chosen: dict[int, None] = {0: None, len(found) - 1: None}
    columns: dict[str, list[tuple[float, int]]] = {}
    for at, one in enumerate(found):
        launch = {"num_warps": one.launch.num_warps, "num_stages": one.launch.num_stages}
        for name, value in (*one.constants.items(), *launch.items()):
            if isinstance(value, (int, float)):
                columns.setdefault(name, []).append((float(value), at))
    for column in columns.values():
        for at in (min(column)[1], max(column)[1]):
            if len(chosen) < MAX_VARIANTS:
                chosen[at] = None
    room = MAX_VARIANTS - len(chosen)
    for step in range(room):
        chosen[step * len(found) // max(room, 1)] = None
    return [found[at] for at in sorted(chosen)][:MAX_VARIANTS]


def _label(found: Sequence[Spec]) -> None:
    """Names each variant by what tells it from the others."""
    if len(found) == 1:
        return
    names = list(dict.fromkeys(name for one in found for name in (*one.tuned, *one.constants, *OPTIONS)))
    differing = [name for name in names if len({repr(_column(one, name)) for one in found}) > 1]
    bound = [
        name
        for name in dict.fromkeys(name for one in found for name in one.bound)
        if name not in differing and len({_word(one.bound.get(name)) for one in found}) > 1
    ]
    for one in found:
        parts = [f"{name}={_column(one, name)}" for name in differing if _column(one, name) is not UNKNOWN]
        parts += [f"{name}={_word(one.bound.get(name))}" for name in bound]
        one.label = " ".join(parts)
    seen: dict[str, int] = {}
    for one in found:
        seen[one.label] = seen.get(one.label, 0) + 1
        if seen[one.label] > 1 or not one.label:
            one.label = f"{one.label} #{seen[one.label]}".strip()


def _column(one: Spec, name: str) -> object:
    if name in one.constants:
        return one.constants[name]
    options = {
        "num_warps": one.launch.num_warps,
        "num_stages": one.launch.num_stages,
        "num_ctas": one.launch.num_ctas,
        "maxnreg": one.launch.maxnreg,
    }
    value = options.get(name)
    return UNKNOWN if value is None else value


def _word(value: Value | None) -> str:
    match value:
        case DType(name):
            return str(name)
        case Named(dotted):
            return dotted.rpartition(".")[2]
        case Func() | KernelDef():
            return value.qualname if isinstance(value, Func) else value.name
        case Tup(items):
            return ",".join(_word(one) for one in items)
        case Literal(constant):
            return str(constant)
        case _:
            return ""
