"""A bounded evaluator of the Python that builds constants: configuration lists, module constants, heuristics.

It executes nothing of the analysed file: it walks the syntax tree, knows a closed set of pure functions, and gives up
(`NotConstant`) on everything else. Environment variables count as unset; the target answers capability queries.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from d2k.analyzers.triton.module import Definition, Either, Import, Module, canonical, import_bindings
from d2k.analyzers.triton.types import named_dtype, words
from d2k.analyzers.triton.values import (
    UNKNOWN,
    VALUES,
    Class,
    Config,
    Func,
    KernelDef,
    Named,
    Partial,
    Value,
    as_python,
)

MAX_STEPS = 200_000
"""Steps of one evaluation; a file has ten times as many in all."""
MAX_FILE_STEPS = 3_000_000
MAX_ITEMS = 20_000
MAX_TEXT = 100_000
MAX_BITS = 4096
MAX_DEPTH = 40

Env = dict[str, object]


class NotConstant(Exception):
    """The expression has no value that can be known here."""


@dataclass(frozen=True, slots=True)
class Decorator:
    """What `triton.autotune(…)` or `triton.heuristics(…)` returns: a step that makes or tunes a kernel."""

    apply: Callable[[object], object]


AUTOTUNE = "triton.autotune"


@dataclass(frozen=True, slots=True)
class Method:
    owner: object
    name: str


class _Return(Exception):
    def __init__(self, value: object) -> None:
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


# operands are whatever the source computes with; `eval` turns what these raise into NotConstant
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

_UNARY: Mapping[type[ast.unaryop], Callable[[Any], object]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}

_METHODS: Mapping[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "copy", "index", "count", "insert", "pop", "reverse", "sort"}),
    dict: frozenset({"get", "items", "keys", "values", "copy", "update", "setdefault", "pop"}),
    tuple: frozenset({"index", "count"}),
    set: frozenset({"add", "update", "union", "copy"}),
    str: frozenset(
        {
            "format",
            "join",
            "replace",
            "split",
            "strip",
            "lstrip",
            "rstrip",
            "lower",
            "upper",
            "startswith",
            "endswith",
            "encode",
            "removeprefix",
            "removesuffix",
            "splitlines",
            "count",
            "find",
        }
    ),
    int: frozenset({"bit_length"}),
    bytes: frozenset({"decode"}),
}

_BUILTINS = words(
    "abs all any bool dict enumerate filter float frozenset hasattr int isinstance len list map max min "
    "pow range reversed round set sorted str sum tuple zip getattr divmod print super type object id repr "
    "iter next open exec eval setattr delattr callable property staticmethod classmethod globals locals "
    "vars slice input compile __import__"
)


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "builtins.abs": abs,
    "builtins.all": all,
    "builtins.any": any,
    "builtins.bool": bool,
    "builtins.dict": dict,
    "builtins.divmod": divmod,
    "builtins.enumerate": lambda *a, **k: list(enumerate(*a, **k)),
    "builtins.float": float,
    "builtins.frozenset": frozenset,
    "builtins.int": int,
    "builtins.len": len,
    "builtins.list": list,
    "builtins.max": max,
    "builtins.min": min,
    "builtins.range": range,
    "builtins.reversed": lambda a: list(reversed(a)),
    "builtins.round": round,
    "builtins.set": set,
    "builtins.str": str,
    "builtins.sum": sum,
    "builtins.tuple": tuple,
    "builtins.zip": lambda *a: list(zip(*a, strict=False)),
    "itertools.product": lambda *a, repeat=1: _bounded(itertools.product(*a, repeat=repeat)),
    "itertools.chain": lambda *a: _bounded(itertools.chain(*a)),
    "itertools.chain.from_iterable": lambda a: _bounded(itertools.chain.from_iterable(a)),
    "itertools.combinations": lambda a, n: _bounded(itertools.combinations(a, n)),
    "itertools.permutations": lambda a, n=None: _bounded(itertools.permutations(a, n)),
    "copy.copy": lambda a: a.copy() if isinstance(a, (list, dict, set)) else a,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.log2": math.log2,
    "math.log": math.log,
    "math.sqrt": math.sqrt,
    "math.exp": math.exp,
    "math.prod": math.prod,
    "math.gcd": math.gcd,
    "triton.cdiv": lambda a, b: -(-a // b),
    "triton.next_power_of_2": next_power_of_2,
    "triton.language.cdiv": lambda a, b: -(-a // b),
    "triton.language.constexpr": lambda a: a,
    "triton.experimental.gluon.language.constexpr": lambda a: a,
    "os.getenv": lambda name, default=None: default,
    "os.environ.get": lambda name, default=None: default,
    "typing.cast": lambda kind, a: a,
}

_CONSTANTS: Mapping[str, object] = {
    "math.pi": math.pi,
    "math.e": math.e,
    "math.inf": math.inf,
    "torch.version.hip": None,
    "torch.version.cuda": "13.0",
}


def _bounded(items: Iterable[object]) -> list[object]:
    return list(itertools.islice(items, MAX_ITEMS))


def capability(target: str) -> tuple[int, int]:
    """(major, minor) of an architecture such as `sm_100a`."""
    digits = "".join(char for char in target if char.isdigit()) or "100"
    return int(digits[:-1] or 0), int(digits[-1])


@dataclass(slots=True)
class Interp:
    target: str = "sm_100a"
    steps: int = 0
    spent: int = 0
    depth: int = 0
    globals: dict[tuple[int, str], object] = field(default_factory=dict)
    results: dict[int, object] = field(default_factory=dict)
    """Results of functions without arguments, by the identity of their node."""

    # names

    def lookup(self, name: str, env: Mapping[str, object], module: Module) -> object:
        if name in env:
            value = env[name]
            if value is UNKNOWN:
                raise NotConstant(name)
            return value
        return self.global_value(module, name)

    def global_value(self, module: Module, name: str) -> object:
        """What a module-level name stands for; computed once."""
        key = (id(module), name)
        if key not in self.globals:
            self.globals[key] = UNKNOWN  # a name that is defined by itself
            with suppress(NotConstant):
                self.globals[key] = self._global(module, name)
        value = self.globals[key]
        if value is UNKNOWN:
            raise NotConstant(name)
        return value

    def _global(self, module: Module, name: str) -> object:
        bound = self.binding(module, name)
        match bound:
            case None:
                return self._elsewhere(module, name)
            case Import(dotted):
                return self.imported(module, dotted)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self.decorated(Func(bound, module, name), {})
            case ast.ClassDef():
                return Class(bound, module)
            case _:
                if name in module.rebound:
                    return self._replayed(module, name)
                return self.eval(bound, {}, module)

    def _replayed(self, module: Module, name: str) -> object:
        """The value of a name that module-level code changes: the statements that touch it, one after the other."""
        env: Env = {}
        self.depth += 1
        try:
            for node in module.touching(name):
                self._statement(node, env, module)
        except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, _Return, _Break, _Continue) as why:
            raise NotConstant(str(why)) from None
        finally:
            self.depth -= 1
        if env.get(name, UNKNOWN) is UNKNOWN:
            raise NotConstant(name)
        return env[name]

    def binding(self, module: Module, name: str) -> Definition | None:
        """What the module binds a name to; where only a run could tell, the first alternative."""
        bound = module.bindings.get(name)
        while isinstance(bound, Either):
            try:
                truth = bool(self.eval(bound.test, {}, module))
            except NotConstant:
                truth = bound.yes is not None
            bound = bound.yes if truth else bound.no
        return bound

    def _elsewhere(self, module: Module, name: str) -> object:
        for dotted in module.stars:
            sibling = module.library.sibling(module, dotted)
            if sibling is not None and name in sibling.bindings:
                return self.global_value(sibling, name)
        if name in _BUILTINS:
            return Named(f"builtins.{name}")
        outside = [dotted for dotted in module.stars if module.library.sibling(module, dotted) is None]
        if outside:
            return Named(canonical(f"{outside[0]}.{name}"))
        raise NotConstant(name)

    def imported(self, module: Module, dotted: str) -> object:
        head, _, last = dotted.rpartition(".")
        if head.strip(".") or dotted.startswith("."):
            base = head if head.strip(".") else dotted[: len(dotted) - len(dotted.lstrip("."))]
            if dotted.startswith(".") and not head.strip("."):
                sibling = module.library.sibling(module, dotted)
                return Named(dotted) if sibling is None else _Sibling(sibling)
            sibling = module.library.sibling(module, base)
            if sibling is not None and last in sibling.bindings:
                return self.global_value(sibling, last)
        whole = module.library.sibling(module, dotted)
        return Named(canonical(dotted)) if whole is None else _Sibling(whole)

    # kernels and decorators

    def decorated(self, func: Func, env: Mapping[str, object]) -> object:
        """The function after its decorators: a kernel, or itself; decorators that are not known leave it as it is."""
        value: object = func
        unknown: list[str] = []
        assert not isinstance(func.node, ast.Lambda)
        for decorator in reversed(func.node.decorator_list):
            if isinstance(value, KernelDef) and isinstance(decorator, ast.Call) and self._tunes(decorator, env, func):
                value.pending = (*value.pending, (decorator, env, func.module))
                continue
            try:
                step = self.eval(decorator, env, func.module)
                if isinstance(step, (Named, Decorator, Func, Partial)):
                    value = self.call(step, (value,), {}, func.module)
                    continue
            except NotConstant:
                pass
            unknown.append(ast.unparse(decorator)[:200])
        if isinstance(value, KernelDef) and unknown:
            value.decorators = tuple(unknown)
        return value if isinstance(value, (KernelDef, Func)) else func

    def _tunes(self, node: ast.Call, env: Mapping[str, object], func: Func) -> bool:
        """`triton.autotune`, or a tuner of the program's own: whatever takes `configs` and is no other known step."""
        try:
            step = self.eval(node.func, env, func.module)
        except NotConstant:
            step = None
        if isinstance(step, Named) and _is_tuner(step):
            return step == Named(AUTOTUNE)
        return any(one.arg == "configs" for one in node.keywords)

    def tune(self, kernel: KernelDef) -> None:
        """Evaluates the configurations: long lists are not worth building for kernels that are only imported."""
        pending, kernel.pending = kernel.pending, ()
        for node, env, module in pending:
            kernel.configs = kernel.configs or ()
            with suppress(NotConstant):
                if self.eval(node.func, env, module) == Named(AUTOTUNE):
                    made = self.call(self.eval(node, env, module), (kernel,), {}, module)
                    if isinstance(made, KernelDef):
                        kernel.configs, kernel.pruned = made.configs, made.pruned
            if not kernel.configs:
                kernel.configs, kernel.pruned = self._candidates(node, env, module), True

    def _candidates(self, node: ast.Call, env: Mapping[str, object], module: Module) -> tuple[Config, ...]:
        """Configurations that a tuner is given, also where a function that is not known selects among them."""
        given = [one.value for one in node.keywords if one.arg == "configs"] or node.args[:1]
        while given:
            one = given.pop()
            with suppress(NotConstant):
                value = self.eval(one, env, module)
                found = (
                    tuple(config for config in value if isinstance(config, Config)) if isinstance(value, list) else ()
                )
                if found:
                    return found
            if isinstance(one, ast.Call):
                given.extend(one.args)
        return ()

    # expressions

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS or self.depth > MAX_DEPTH or self.spent > MAX_FILE_STEPS:
            raise NotConstant("too large")

    def eval(self, node: ast.expr, env: Mapping[str, object], module: Module) -> object:
        if self.depth == 0:
            self.spent += self.steps
            self.steps = 0
        self._step()
        self.depth += 1
        try:
            return self._eval(node, env, module)
        except (
            ArithmeticError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            RecursionError,
            MemoryError,
        ) as why:
            raise NotConstant(str(why)) from None
        finally:
            self.depth -= 1

    def _eval(self, node: ast.expr, env: Mapping[str, object], module: Module) -> object:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.lookup(node.id, env, module)
            case ast.Attribute():
                return self._attribute(node, env, module)
            case ast.Call():
                return self._call(node, env, module)
            case ast.Tuple():
                return tuple(self._items(node.elts, env, module))
            case ast.List():
                return self._items(node.elts, env, module)
            case ast.Set():
                return set(self._items(node.elts, env, module))
            case ast.Dict():
                return self._dict(node, env, module)
            case ast.BinOp():
                left, right = self.eval(node.left, env, module), self.eval(node.right, env, module)
                return _binary(node.op, left, right)
            case ast.UnaryOp():
                return _UNARY[type(node.op)](self.eval(node.operand, env, module))
            case ast.BoolOp():
                value: object = None
                for part in node.values:
                    value = self.eval(part, env, module)
                    if bool(value) is isinstance(node.op, ast.Or):
                        return value
                return value
            case ast.Compare():
                return self._compare(node, env, module)
            case ast.IfExp():
                return self._conditional(node, env, module)
            case ast.Subscript():
                owner = self.eval(node.value, env, module)
                if isinstance(owner, (Named, Func, KernelDef)):
                    raise NotConstant("subscript")
                if isinstance(node.slice, ast.Slice):
                    parts = (node.slice.lower, node.slice.upper, node.slice.step)
                    bounds = [None if one is None else self.eval(one, env, module) for one in parts]
                    return _indexable(owner)[slice(*bounds)]
                return _indexable(owner)[self.eval(node.slice, env, module)]
            case ast.Lambda():
                return Func(node, module, "<lambda>", env, evaluated=True)
            case ast.ListComp() | ast.GeneratorExp():
                return self._comprehension(node.elt, node.generators, env, module)
            case ast.SetComp():
                return set(self._comprehension(node.elt, node.generators, env, module))
            case ast.DictComp():
                pair = ast.Tuple(elts=[node.key, node.value], ctx=ast.Load())
                pairs: Any = self._comprehension(pair, node.generators, env, module)
                return dict(pairs)
            case ast.JoinedStr():
                return "".join(self._formatted(part, env, module) for part in node.values)
            case ast.Starred():
                raise NotConstant("star")
            case ast.NamedExpr():
                value = self.eval(node.value, env, module)
                if isinstance(env, dict):
                    env[node.target.id] = value
                return value
            case _:
                raise NotConstant(type(node).__name__)

    def _conditional(self, node: ast.IfExp, env: Mapping[str, object], module: Module) -> object:
        """`a if test else b`. Of two lists that only a run chooses between, all items: any of them may be tried."""
        try:
            chosen = node.body if self.eval(node.test, env, module) else node.orelse
        except NotConstant:
            yes, no = self.eval(node.body, env, module), self.eval(node.orelse, env, module)
            if isinstance(yes, list) and isinstance(no, list):
                return yes + [one for one in no if one not in yes]
            raise
        return self.eval(chosen, env, module)

    def _formatted(self, part: ast.expr, env: Mapping[str, object], module: Module) -> str:
        if not isinstance(part, ast.FormattedValue):
            return str(self.eval(part, env, module))
        value = self.eval(part.value, env, module)
        if not isinstance(value, (str, int, float, bool)):
            raise NotConstant("format")
        if part.conversion == ord("r"):
            value = repr(value)
        spec = "" if part.format_spec is None else str(self.eval(part.format_spec, env, module))
        return format(value, spec)

    def _items(self, nodes: list[ast.expr], env: Mapping[str, object], module: Module) -> list[object]:
        items: list[object] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(_iterate(self.eval(node.value, env, module)))
            else:
                items.append(self.eval(node, env, module))
        return items

    def _dict(self, node: ast.Dict, env: Mapping[str, object], module: Module) -> dict[object, object]:
        result: dict[object, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.eval(value, env, module)
                if not isinstance(inner, dict):
                    raise NotConstant("**")
                result.update(inner)
                continue
            try:
                result[self.eval(key, env, module)] = self.eval(value, env, module)
            except NotConstant:
                if not isinstance(key, ast.Constant):
                    raise
                result[key.value] = UNKNOWN
        return result

    def _compare(self, node: ast.Compare, env: Mapping[str, object], module: Module) -> bool:
        left = self.eval(node.left, env, module)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.eval(comparator, env, module)
            if isinstance(left, Named) or isinstance(right, Named):
                if not isinstance(op, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)):
                    raise NotConstant("comparison")
                if isinstance(left, Named) != isinstance(right, Named) and not isinstance(op, (ast.In, ast.NotIn)):
                    raise NotConstant("comparison")
            if isinstance(op, (ast.Is, ast.IsNot)) and left is not None and right is not None:
                op = ast.Eq() if isinstance(op, ast.Is) else ast.NotEq()
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _comprehension(
        self, element: ast.expr, generators: list[ast.comprehension], env: Mapping[str, object], module: Module
    ) -> list[object]:
        found: list[object] = []

        def step(level: int, scope: Env) -> None:
            if level == len(generators):
                found.append(self.eval(element, scope, module))
                if len(found) > MAX_ITEMS:
                    raise NotConstant("too large")
                return
            generator = generators[level]
            for item in _iterate(self.eval(generator.iter, scope, module)):
                inner = dict(scope)
                _assign(generator.target, item, inner)
                if all(self.eval(test, inner, module) for test in generator.ifs):
                    step(level + 1, inner)

        step(0, dict(env))
        return found

    # attributes and calls

    def member(self, owner: Named, name: str) -> object:
        """What an attribute of another module is."""
        dotted = canonical(f"{owner.dotted}.{name}")
        return _CONSTANTS[dotted] if dotted in _CONSTANTS else Named(dotted)

    def _attribute(self, node: ast.Attribute, env: Mapping[str, object], module: Module) -> object:
        owner = self.eval(node.value, env, module)
        match owner:
            case Named():
                return self.member(owner, node.attr)
            case _Sibling(sibling):
                return self.global_value(sibling, node.attr)
            case Config():
                if node.attr == "kwargs":
                    return dict(owner.kwargs)
                if node.attr in owner.options:
                    return owner.options[node.attr]
            case Class():
                for statement in owner.node.body:
                    match statement:
                        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == node.attr:
                            return self.eval(value, {}, owner.module)
                        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == node.attr:
                            return self.eval(value, {}, owner.module)
                        case ast.FunctionDef(name=name) if name == node.attr:
                            func = Func(statement, owner.module, f"{owner.node.name}.{name}", owner=owner)
                            return self.decorated(func, {})
                        case _:
                            pass
            case _Device():
                return owner.attribute(node.attr)
            case _Limits():
                return getattr(owner, node.attr)
            case KernelDef() if node.attr == "fn":
                return owner
            case _:
                for kind, names in _METHODS.items():
                    if isinstance(owner, kind) and node.attr in names:
                        return Method(owner, node.attr)
        raise NotConstant(node.attr)

    def _call(self, node: ast.Call, env: Mapping[str, object], module: Module) -> object:
        func = self.eval(node.func, env, module)
        partial = isinstance(func, Named) and func.dotted == "triton.Config"
        args: list[object] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                args.extend(_iterate(self.eval(arg.value, env, module)))
            else:
                args.append(self._maybe(arg, env, module, partial))
        keywords: dict[str, object] = {}
        for keyword in node.keywords:
            value = self._maybe(keyword.value, env, module, partial or _is_tuner(func))
            if keyword.arg is None:
                if value is UNKNOWN and _is_tuner(func):
                    continue  # options of the tuner itself, such as where it caches
                if not isinstance(value, dict):
                    raise NotConstant("**")
                keywords.update({str(name): one for name, one in value.items()})
            else:
                keywords[keyword.arg] = value
        return self.call(func, tuple(args), keywords, module)

    def _maybe(self, node: ast.expr, env: Mapping[str, object], module: Module, allowed: bool) -> object:
        """The value, or UNKNOWN where the callee copes: one unknown option must not lose a whole configuration."""
        try:
            return self.eval(node, env, module)
        except NotConstant:
            if allowed:
                return UNKNOWN
            raise

    def call(self, func: object, args: tuple[object, ...], keywords: dict[str, object], module: Module) -> object:
        match func:
            case Func():
                if not args and not keywords and not func.env:
                    return self._called_once(func)
                return self.call_function(func, args, keywords)
            case Partial():
                return self.call(func.func, (*func.args, *args), {**func.keywords, **keywords}, module)
            case Decorator():
                return func.apply(args[0])
            case Method():
                return self._method(func, args, keywords, module)
            case Named(dotted):
                return self._named(dotted, args, keywords, module)
            case _:
                raise NotConstant("call")

    def _method(self, method: Method, args: tuple[object, ...], keywords: dict[str, object], module: Module) -> object:
        if method.name == "sort":
            items = method.owner
            if not isinstance(items, list):
                raise NotConstant("sort")
            items[:] = self._named("builtins.sorted", (items,), keywords, module)  # type: ignore[call-overload]
            return None
        if method.name == "join" and args:
            args = (list(_iterate(args[0])),)
        if UNKNOWN in args:
            raise NotConstant(method.name)
        if isinstance(method.owner, str) and method.name == "format" and not _plain_format(method.owner):
            raise NotConstant("format")
        result = getattr(method.owner, method.name)(*args, **keywords)
        if isinstance(result, str) and len(result) > MAX_TEXT * 10:
            raise NotConstant("too large")
        if isinstance(method.owner, (list, set, dict)) and len(method.owner) > MAX_ITEMS:
            raise NotConstant("too large")
        if result is UNKNOWN:
            raise NotConstant(method.name)
        return list(result) if method.name in ("items", "keys", "values") else result

    def _named(self, dotted: str, args: tuple[object, ...], keywords: dict[str, object], module: Module) -> object:
        from d2k.analyzers.triton.tuning import TUNING

        if dotted in TUNING:
            return TUNING[dotted](*args, **keywords)
        if dotted in ("functools.partial", "functools.lru_cache", "functools.cache"):
            return self._functools(dotted, args, keywords)
        if dotted in ("builtins.map", "builtins.filter", "builtins.sorted"):
            return self._higher_order(dotted, args, keywords, module)
        if dotted == "builtins.isinstance":
            return _is_instance(args[0], args[1])
        if dotted in ("torch.finfo", "torch.iinfo") and args:
            return _limits(args[0])
        if dotted == "builtins.hasattr" and args and isinstance(args[0], Named):
            return _has_attribute(args[0].dotted, str(args[1]))
        if dotted == "builtins.getattr" and len(args) >= 2 and isinstance(args[0], Named):
            return self.member(args[0], str(args[1]))
        if dotted == "torch.cuda.get_device_capability":
            return capability(self.target)
        if dotted == "torch.cuda.get_device_name":
            return DEVICE_NAMES.get(capability(self.target)[0], "NVIDIA")
        if dotted.endswith("utils.get_device_properties"):
            return {"max_shared_mem": SHARED_MEMORY, "warpSize": 32}
        if dotted in ("torch.cuda.device_count", "torch.cuda.current_device"):
            return int(dotted.endswith("count"))
        if dotted.endswith("get_current_target"):
            return _Device(self.target)
        if dotted in ("torch.cuda.is_available", "torch.cuda.is_bf16_supported"):
            return True
        if dotted in _FUNCTIONS:
            function = _FUNCTIONS[dotted]
            numbers: Any = args
            if dotted == "builtins.range" and len(range(*numbers)) > MAX_ITEMS:
                raise NotConstant("too large")
            plain = (*args, *keywords.values())
            if any(one is UNKNOWN or isinstance(one, (Named, _Device)) for one in plain):
                raise NotConstant(dotted)
            return function(*args, **keywords)
        raise NotConstant(dotted)

    def _functools(self, dotted: str, args: tuple[object, ...], keywords: dict[str, object]) -> object:
        if dotted == "functools.partial":
            return Partial(args[0], args[1:], keywords)  # type: ignore[arg-type]
        if args and isinstance(args[0], (Func, KernelDef)):
            return args[0]
        return Decorator(lambda inner: inner)

    def _higher_order(
        self, dotted: str, args: tuple[object, ...], keywords: dict[str, object], module: Module
    ) -> list[object]:
        if dotted == "builtins.sorted":
            items = list(_iterate(args[0]))
            key, reverse = keywords.get("key"), bool(keywords.get("reverse", False))
            keys = [one if key is None else self.call(key, (one,), {}, module) for one in items]
            sortable: Any = keys
            order = sorted(range(len(items)), key=sortable.__getitem__, reverse=reverse)
            return [items[at] for at in order]
        if dotted == "builtins.filter":
            return [
                one
                for one in _iterate(args[1])
                if (bool(one) if args[0] is None else self.call(args[0], (one,), {}, module))
            ]
        columns = zip(*(list(_iterate(one)) for one in args[1:]), strict=False)
        return [self.call(args[0], tuple(one), {}, module) for one in columns]

    def _called_once(self, func: Func) -> object:
        """The result of a function without arguments: a long list of configurations is built only once."""
        key = id(func.node)
        if key not in self.results:
            self.results[key] = UNKNOWN
            with suppress(NotConstant):
                self.results[key] = self.call_function(func, (), {})
        value = self.results[key]
        if value is UNKNOWN:
            raise NotConstant(func.qualname)
        return list(value) if isinstance(value, list) else value

    def call_function(self, func: Func, args: tuple[object, ...], keywords: Mapping[str, object]) -> object:
        env: Env = dict(func.env) if func.evaluated else {name: as_python(one) for name, one in _values(func.env)}
        env.update(self.bind(func, args, keywords))
        if isinstance(func.node, ast.Lambda):
            return self.eval(func.node.body, env, func.module)
        self.depth += 1
        try:
            self._block(func.node.body, env, func.module)
        except _Return as result:
            return result.value
        finally:
            self.depth -= 1
        return None

    def bind(self, func: Func, args: tuple[object, ...], keywords: Mapping[str, object]) -> Env:
        spec = func.node.args
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        bound: Env = {}
        if func.owner is not None and names and not _is_static(func):
            args = (func.owner, *args)
        for name, value in zip(names, args, strict=False):
            bound[name] = value
        if spec.vararg is not None:
            bound[spec.vararg.arg] = tuple(args[len(names) :])
        extra = dict(keywords)
        for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
            if one.arg in extra:
                bound[one.arg] = extra.pop(one.arg)
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = extra
        defaults = [*zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True)]
        defaults += [(one.arg, value) for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value]
        for name, value in defaults:
            if name not in bound:
                bound[name] = self._maybe(value, {}, func.module, True)
        for name in (*names, *(one.arg for one in spec.kwonlyargs)):
            bound.setdefault(name, UNKNOWN)
        return bound

    # statements

    def _block(self, body: list[ast.stmt], env: Env, module: Module) -> None:
        for node in body:
            self._step()
            self._statement(node, env, module)

    def _statement(self, node: ast.stmt, env: Env, module: Module) -> None:
        match node:
            case ast.Return():
                raise _Return(None if node.value is None else self.eval(node.value, env, module))
            case ast.Assign():
                value = self._maybe(node.value, env, module, True)
                for target in node.targets:
                    self._store(target, value, env, module)
            case ast.AnnAssign():
                if node.value is not None:
                    self._store(node.target, self._maybe(node.value, env, module, True), env, module)
            case ast.AugAssign():
                if not isinstance(node.target, ast.Name):
                    raise NotConstant("augmented assignment")
                before = self.lookup(node.target.id, env, module)
                value = self.eval(node.value, env, module)
                if isinstance(before, list) and isinstance(node.op, ast.Add):
                    before.extend(_iterate(value))
                else:
                    env[node.target.id] = _binary(node.op, before, value)
            case ast.Expr():
                if not isinstance(node.value, ast.Constant) and not _is_print(node.value):
                    self.eval(node.value, env, module)
            case ast.If():
                self._block(node.body if self.eval(node.test, env, module) else node.orelse, env, module)
            case ast.For():
                self._for(node, env, module)
            case ast.While():
                while self.eval(node.test, env, module):
                    try:
                        self._block(node.body, env, module)
                    except _Continue:
                        continue
                    except _Break:
                        break
            case ast.FunctionDef():
                env[node.name] = self.decorated(Func(node, module, node.name, env, evaluated=True), env)
            case ast.Break():
                raise _Break
            case ast.Continue():
                raise _Continue
            case ast.Pass() | ast.Assert() | ast.Global() | ast.Nonlocal():
                pass
            case ast.Import() | ast.ImportFrom():
                for name, dotted in import_bindings(node):
                    env[name] = self.imported(module, dotted)
            case ast.Try():
                self._block(node.body, env, module)
            case ast.With():
                self._block(node.body, env, module)
            case _:
                raise NotConstant(type(node).__name__)

    def _for(self, node: ast.For, env: Env, module: Module) -> None:
        for item in _iterate(self.eval(node.iter, env, module)):
            _assign(node.target, item, env)
            try:
                self._block(node.body, env, module)
            except _Continue:
                continue
            except _Break:
                return
        self._block(node.orelse, env, module)

    def _store(self, target: ast.expr, value: object, env: Env, module: Module) -> None:
        match target:
            case ast.Subscript():
                owner = self.eval(target.value, env, module)
                if not isinstance(owner, (list, dict)) or isinstance(target.slice, ast.Slice):
                    raise NotConstant("store")
                container: Any = owner
                container[self.eval(target.slice, env, module)] = value
            case ast.Attribute():
                raise NotConstant("store")
            case _:
                if value is UNKNOWN and isinstance(target, (ast.Tuple, ast.List)):
                    for one in target.elts:
                        self._store(one, UNKNOWN, env, module)
                else:
                    _assign(target, value, env)


@dataclass(frozen=True, slots=True)
class _Sibling:
    module: Module


@dataclass(frozen=True, slots=True)
class _Device:
    """What `get_current_target()` returns."""

    target: str

    def attribute(self, name: str) -> object:
        major, minor = capability(self.target)
        known: dict[str, object] = {"backend": "cuda", "arch": 10 * major + minor, "warp_size": 32}
        if name not in known:
            raise NotConstant(name)
        return known[name]


@dataclass(frozen=True, slots=True)
class _Limits:
    """`torch.finfo` of an element type."""

    max: float
    min: float
    eps: float
    tiny: float
    bits: int


DEVICE_NAMES: Mapping[int, str] = {8: "NVIDIA A100-SXM4-80GB", 9: "NVIDIA H200", 10: "NVIDIA B200"}
"""The product that stands for an architecture, by its major number."""

SHARED_MEMORY = 232_448
"""Bytes of shared memory that a block may have on architectures 9 and 10."""

LIMITS: Mapping[str, _Limits] = {
    "f64": _Limits(1.7976931348623157e308, -1.7976931348623157e308, 2.0**-52, 2.0**-1022, 64),
    "f32": _Limits(3.4028234663852886e38, -3.4028234663852886e38, 2.0**-23, 2.0**-126, 32),
    "bf16": _Limits(3.3895313892515355e38, -3.3895313892515355e38, 2.0**-7, 2.0**-126, 16),
    "f16": _Limits(65504.0, -65504.0, 2.0**-10, 2.0**-14, 16),
    "f8e4m3": _Limits(448.0, -448.0, 0.125, 2.0**-6, 8),
    "f8e5m2": _Limits(57344.0, -57344.0, 0.25, 2.0**-14, 8),
    "i8": _Limits(127, -128, 0, 0, 8),
    "i32": _Limits(2**31 - 1, -(2**31), 0, 0, 32),
    "i64": _Limits(2**63 - 1, -(2**63), 0, 0, 64),
}


def _limits(dtype: object) -> _Limits:
    name = named_dtype(dtype.dotted) if isinstance(dtype, Named) else None
    if name is None or name not in LIMITS:
        raise NotConstant("finfo")
    return LIMITS[name]


PLAIN_TYPES: Mapping[str, type] = {
    f"builtins.{one.__name__}": one for one in (bool, int, float, str, list, tuple, dict, set, bytes)
}


def _is_instance(value: object, kinds: object) -> bool:
    """`isinstance` of plain values and plain types."""
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    if value is not None and not isinstance(value, tuple(PLAIN_TYPES.values())):
        raise NotConstant("isinstance")
    found = []
    for one in wanted:
        if not isinstance(one, Named) or one.dotted not in PLAIN_TYPES:
            raise NotConstant("isinstance")
        found.append(PLAIN_TYPES[one.dotted])
    return isinstance(value, tuple(found))


def _has_attribute(dotted: str, name: str) -> bool:
    """Whether a library's module has a name: current ones have what code asks for, other vendors' parts aside."""
    if dotted.split(".")[0] not in ("triton", "torch"):
        raise NotConstant("hasattr")
    return name not in ("npu", "mlu", "musa", "xpu", "hip", "gcu", "hpu")


def _is_tuner(func: object) -> bool:
    return isinstance(func, Named) and func.dotted in ("triton.autotune", "triton.heuristics", "triton.jit")


def _is_static(func: Func) -> bool:
    node = func.node
    return not isinstance(node, ast.Lambda) and any(
        isinstance(one, ast.Name) and one.id == "staticmethod" for one in node.decorator_list
    )


def _is_print(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def _plain_format(text: str) -> bool:
    """Whether a format string only names its fields: `{0.__class__}` could reach anything."""
    return "." not in "".join(part.partition("}")[0] for part in text.split("{")[1:])


def _indexable(value: object) -> Any:
    """Something whose items may be asked for; what is none raises TypeError there."""
    return value


def _values(env: Mapping[str, object]) -> Iterable[tuple[str, Value]]:
    return ((name, value) for name, value in env.items() if isinstance(value, VALUES))


def _iterate(value: object) -> Iterable[object]:
    if isinstance(value, (list, tuple, range, set, frozenset, str)):
        return value if not isinstance(value, (set, frozenset)) else sorted(value, key=repr)
    if isinstance(value, dict):
        return list(value)
    raise NotConstant("iteration")


def _assign(target: ast.expr, value: object, env: Env) -> None:
    if isinstance(target, ast.Name):
        env[target.id] = value
        return
    if isinstance(target, (ast.Tuple, ast.List)):
        items = list(_iterate(value))
        if len(items) == len(target.elts):
            for one, item in zip(target.elts, items, strict=True):
                _assign(one, item, env)
            return
    raise NotConstant("assignment")


def _binary(op: ast.operator, left: object, right: object) -> object:
    if isinstance(left, (Named, Func)) or isinstance(right, (Named, Func)) or UNKNOWN in (left, right):
        raise NotConstant("operand")
    for one in (left, right):
        if isinstance(one, int) and one.bit_length() > MAX_BITS:
            raise NotConstant("too large")
    if isinstance(op, (ast.Pow, ast.LShift)) and isinstance(right, int) and abs(right) > MAX_BITS:
        raise NotConstant("too large")
    if isinstance(op, ast.Mult):
        for sequence, times in ((left, right), (right, left)):
            size = len(sequence) if isinstance(sequence, (str, list, tuple, bytes)) else 0
            if isinstance(times, int) and size * times > MAX_TEXT:
                raise NotConstant("too large")
    if isinstance(op, ast.Mod) and isinstance(left, (str, bytes)) and len(left) > MAX_TEXT:
        raise NotConstant("too large")
    result = _BINARY[type(op)](left, right)
    if isinstance(result, (str, list, tuple)) and len(result) > MAX_TEXT * 10:
        raise NotConstant("too large")
    return result
