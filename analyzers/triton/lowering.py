"""Statements and expressions of Python, lowered to operations; what device and host code have in common.

Control flow becomes guards and phis: a loop variable is a PHI at the head of its loop, a variable that both branches of
an `if` leave different is a PHI after it, what follows a conditional `return` is guarded by the negated condition.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.core.fold import apply
from d2k.analyzers.triton.builder import Builder
from d2k.analyzers.triton.interp import Interp, NotConstant, _Device, _Limits, _Sibling
from d2k.analyzers.triton.module import Import, Module, import_bindings
from d2k.analyzers.triton.nodes import children, walk
from d2k.analyzers.triton.values import (
    UNKNOWN,
    VALUES,
    Bound,
    Choice,
    Class,
    Config,
    Dict,
    DType,
    Element,
    Func,
    Instance,
    KernelDef,
    Known,
    Literal,
    Meta,
    Named,
    Opaque,
    Partial,
    Range,
    Slice,
    Tup,
    Value,
    as_python,
)
from d2k.spec.facts import NONE, Constant, Guard, Kind, Mention, Place

MAX_INLINE_DEPTH = 16
MAX_UNROLL = 8
MAX_UNROLLED = 64
"""Iterations that nested unrolled loops may have in all."""
MAX_GLOBAL_DEPTH = 8

Env = dict[str, Value]

BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}
COMPUTED = frozenset(
    {
        Kind.ARANGE,
        Kind.BLOCK_INDEX,
        Kind.CAST,
        Kind.DESCRIPTOR,
        Kind.ELEMENTWISE,
        Kind.FULL,
        Kind.GRID_SIZE,
        Kind.LOAD,
        Kind.MMA,
        Kind.REDUCE,
        Kind.SCAN,
        Kind.SHAPE,
    }
)
"""Operations whose result is a number or a tile."""

COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "eq",
    ast.IsNot: "ne",
}
NEVER, ALWAYS = -1, -2


@dataclass(frozen=True, slots=True)
class Flow:
    """Under which condition control leaves the function (`leave`) or the iteration (`skip`) early.

    NEVER, ALWAYS, or the value that decides.
    """

    leave: int = NEVER
    skip: int = NEVER

    @property
    def ends(self) -> bool:
        return self.leave == ALWAYS or self.skip == ALWAYS


FALLS = Flow()
LEAVES = Flow(leave=ALWAYS)
SKIPS = Flow(skip=ALWAYS)


@dataclass(slots=True)
class Frame:
    """A function that is being lowered; `returns` are its results with the guards they stand under."""

    module: Module
    env: Env
    node: ast.AST
    guards: int
    loop: int
    returns: list[tuple[tuple[Guard, ...], Value]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its arguments evaluated. `args` ends before the first `*` whose items are not known.

    `spread` are that and the positional arguments behind it, and dictionaries given with `**` whose keys are not known.
    """

    node: ast.Call
    args: tuple[Value, ...]
    keywords: Mapping[str, Value]
    spread: tuple[Value, ...] = ()


class Lowering:
    """Lowers one function into `builder`; subclasses say what calls, attributes and subscripts mean."""

    def __init__(self, module: Module, builder: Builder, interp: Interp) -> None:
        self.b = builder
        self.interp = interp
        self.frames: list[Frame] = [Frame(module, {}, module.tree, 0, NONE)]
        self.global_depth = 0
        self.unrolled = 1
        self.inlined: set[int] = set()
        """Functions whose bodies were lowered in place, by the identity of their node."""

    max_recursion = 3
    """How often a function may stand on the stack of inlined calls."""

    # hooks

    def call(self, callee: Value, call: Call) -> Value:
        raise NotImplementedError

    def attribute(self, owner: Value, name: str, node: ast.Attribute) -> Value:
        raise NotImplementedError

    def subscript(self, owner: Value, index: Value, node: ast.Subscript) -> Value:
        raise NotImplementedError

    def store_subscript(self, owner: Value, index: Value, value: Value, node: ast.Subscript) -> None:
        raise NotImplementedError

    def operation(self, name: str, args: tuple[int, ...], node: ast.AST) -> int:
        raise NotImplementedError

    def unknown(self, what: str, node: ast.AST, args: tuple[int, ...] = ()) -> Value:
        """A value that cannot be followed."""
        raise NotImplementedError

    def global_expression(self, name: str, node: ast.expr, module: Module) -> Value:
        raise NotImplementedError

    # places and names

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def env(self) -> Env:
        return self.frame.env

    @property
    def module(self) -> Module:
        return self.frame.module

    def place(self, node: ast.AST) -> Place:
        return self.module.place(node)

    def eval_Name(self, node: ast.Name) -> Value:
        return self.name(node)

    def name(self, node: ast.Name) -> Value:
        value = self.env.get(node.id)
        if value is not None:
            return value
        return self.global_name(node.id, node)

    def global_name(self, name: str, node: ast.AST) -> Value:
        module = self.module
        try:
            return self.from_python(self.interp.global_value(module, name), node)
        except NotConstant:
            pass
        bound = self.interp.binding(module, name)
        if isinstance(bound, ast.expr) and name not in module.rebound and self.global_depth < MAX_GLOBAL_DEPTH:
            self.global_depth += 1
            try:
                return self.global_expression(name, bound, module)
            finally:
                self.global_depth -= 1
        return Opaque(name)

    def from_python(self, value: object, node: ast.AST) -> Value:
        """A value of the evaluator as a value of the lowering."""
        match value:
            case None | bool() | int() | float() | str():
                return Literal(value)
            case tuple() | list():
                return Tup(tuple(self.from_python(one, node) for one in value))
            case range() if len(value) <= 1024:
                return Tup(tuple(Literal(one) for one in value))
            case dict():
                known = {
                    key: self.from_python(one, node)
                    for key, one in value.items()
                    if key is None or isinstance(key, (bool, int, float, str))
                }
                return Dict(known, open=len(known) != len(value))
            case Func() | KernelDef() | Class():
                return value
            case Partial(func, args, keywords):
                given = tuple(self.from_python(one, node) for one in args)
                named = {name: self.from_python(one, node) for name, one in keywords.items()}
                return Partial(self.from_python(func, node), given, named)
            case Named():
                return self.named(value)
            case _Sibling(module):
                return Named("\0" + module.path)
            case Config() | _Device():
                return Opaque(type(value).__name__)
            case _Limits():
                fields = {name: getattr(value, name) for name in ("max", "min", "eps", "tiny", "bits")}
                return Dict({name: Literal(one) for name, one in fields.items()})
            case _:
                return Opaque(type(value).__name__)

    def named(self, value: Named) -> Value:
        return value

    def dotted(self, node: ast.expr) -> str:
        """How the source names a callee, aliases resolved where they can be: `triton.language.dot`, `.store`."""
        parts: list[str] = []
        at = node.value if isinstance(node, ast.Subscript) else node  # `kernel[grid](…)` is a call of `kernel`
        while isinstance(at, ast.Attribute):
            parts.append(at.attr)
            at = at.value
        if isinstance(at, ast.Name):
            value = self.env.get(at.id)
            if value is None:
                bound = self.interp.binding(self.module, at.id)
                head = bound.dotted if isinstance(bound, Import) else at.id
                return ".".join([head, *reversed(parts)])
            if isinstance(value, Named):
                return ".".join([value.dotted, *reversed(parts)])
            if at.id == "self":
                return ".".join([at.id, *reversed(parts)])
            return "." + parts[0] if parts else at.id
        return "." + parts[0] if parts else "?"

    # values as operations

    def ref(self, value: Value, node: ast.AST) -> int:
        """The operation that computes `value`."""
        match value:
            case int():
                return value
            case Literal(constant):
                return self.b.const(constant, self.place(node))
            case Tup(items, whole):
                if whole != NONE:
                    return whole
                args = tuple(self.ref(one, node) for one in items)
                return self.b.emit(Kind.CALL, "tuple", args, self.place(node))
            case DType(name, of):
                if name is None and of != NONE:
                    return self.b.emit(Kind.ATTRIBUTE, "dtype", (of,), self.place(node))
                return self.b.const(name, self.place(node))
            case Named(dotted):
                return self.b.const(dotted, self.place(node))
            case Func() | KernelDef() as func:
                name = func.qualname if isinstance(func, Func) else func.name
                return self.b.const(name, self.place(node))
            case Slice(start, stop, step):
                args = tuple(NONE if one is None else self.ref(one, node) for one in (start, stop, step))
                return self.b.emit(Kind.CALL, "slice", args, self.place(node))
            case Bound(owner, name):
                return self.b.emit(Kind.ATTRIBUTE, name, (self.ref(owner, node),), self.place(node))
            case Dict(items):
                args = tuple(self.ref(one, node) for one in items.values())
                keys = tuple(items)
                return self.b.emit(Kind.CALL, "dict", args, self.place(node), {"keys": keys})
            case Instance(cls, fields, whole):
                if whole != NONE:
                    return whole
                args = tuple(self.ref(one, node) for one in fields.values())
                return self.b.emit(Kind.CALL, cls.node.name, args, self.place(node))
            case Opaque(what):
                return self.b.emit(Kind.CALL, what, (), self.place(node))
            case _:
                return self.b.emit(Kind.CALL, type(value).__name__.lower(), (), self.place(node))

    def constant(self, value: Value) -> Known:
        """The compile-time constant that `value` is; the body then holds only for variants that agree on it."""
        if isinstance(value, int):
            known = self.b.decide(value, _itself)
            return known if known is UNKNOWN or isinstance(known, (bool, int, float, str, type(None))) else UNKNOWN
        if isinstance(value, Literal):
            return value.value
        if isinstance(value, DType) and value.name is not None:
            return value.name
        return UNKNOWN

    def truth(self, value: Value) -> bool | None:
        """Whether `value` counts as true, None if that is known only at run time."""
        match value:
            case int():
                outcome = self.b.decide(value, _truth)
                return outcome if isinstance(outcome, bool) else None
            case Literal(constant):
                return bool(constant)
            case Tup(items):
                return bool(items)
            case Dict(items, is_open):
                return True if items else (None if is_open else False)
            case Func() | KernelDef() | Class() | Instance() | DType() | Partial():
                return True
            case _:
                return None

    # expressions

    def eval(self, node: ast.expr) -> Value:
        visit: Callable[[ast.expr], Value] = getattr(self, f"eval_{type(node).__name__}", self._other)
        return visit(node)

    def _other(self, node: ast.expr) -> Value:
        return self.unknown(type(node).__name__, node)

    def eval_Constant(self, node: ast.Constant) -> Value:
        value = node.value
        if value is None or isinstance(value, (bool, int, float, str)):
            return Literal(value)
        return Opaque("ellipsis" if value is Ellipsis else "constant")

    def eval_Attribute(self, node: ast.Attribute) -> Value:
        owner = self.eval(node.value)
        if isinstance(owner, Named):
            if owner.dotted.startswith("\0"):
                return self._sibling_name(owner.dotted[1:], node)
            return self._member(owner, node)
        if isinstance(owner, Instance) and node.attr in owner.fields:
            return owner.fields[node.attr]
        if isinstance(owner, Dict) and node.attr in owner.items:
            return owner.items[node.attr]
        if isinstance(owner, (Class, Instance)):
            found = self._class_member(owner, node.attr)
            if found is not None:
                return found
        return self.attribute(owner, node.attr, node)

    def _member(self, owner: Named, node: ast.Attribute) -> Value:
        return self.from_python(self.interp.member(owner, node.attr), node)

    def _sibling_name(self, path: str, node: ast.Attribute) -> Value:
        for sibling in self.module.library.loaded():
            if sibling.path == path:
                try:
                    return self.from_python(self.interp.global_value(sibling, node.attr), node)
                except NotConstant:
                    break
        return Opaque(node.attr)

    def _class_member(self, owner: Class | Instance, name: str) -> Value | None:
        cls = owner.cls if isinstance(owner, Instance) else owner
        for statement in cls.node.body:
            match statement:
                case ast.FunctionDef(name=found) if found == name:
                    kinds = {one.id for one in statement.decorator_list if isinstance(one, ast.Name)}
                    bound = "staticmethod" not in kinds and (isinstance(owner, Instance) or "classmethod" in kinds)
                    func = Func(statement, cls.module, f"{cls.node.name}.{name}", owner=owner if bound else None)
                    if bound and kinds & {"property", "cached_property"}:
                        return self.inline(func, Call(_no_call(statement), (), {}), statement)
                    return self.from_python(self.interp.decorated(func, {}), statement)
                case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                    return self._in_module(cls.module, value)
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                    return self._in_module(cls.module, value)
                case _:
                    pass
        return None

    def _in_module(self, module: Module, node: ast.expr) -> Value:
        """The value of an expression that stands outside any function."""
        try:
            return self.from_python(self.interp.eval(node, {}, module), node)
        except NotConstant:
            return self.lowered(module, node)

    def lowered(self, module: Module, node: ast.expr) -> Value:
        """The same for one that is known to be no constant."""
        self.frames.append(Frame(module, {}, node, len(self.b.guards), self.b.loop))
        try:
            return self.eval(node)
        finally:
            self.frames.pop()

    def eval_Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        items: list[Value] = []
        for one in node.elts:
            if isinstance(one, ast.Starred):
                value = self.eval(one.value)
                if isinstance(value, Tup):
                    items.extend(value.items)
                else:
                    items.append(value)
            else:
                items.append(self.eval(one))
        return Tup(tuple(items))

    eval_List = eval_Tuple
    eval_Set = eval_Tuple

    def eval_Dict(self, node: ast.Dict) -> Value:
        items: dict[Constant, Value] = {}
        is_open = False
        for key, value in zip(node.keys, node.values, strict=True):
            evaluated = self.eval(value)
            if key is None:
                if isinstance(evaluated, Dict):
                    items.update(evaluated.items)
                    is_open = is_open or evaluated.open
                else:
                    is_open = True
                continue
            name = self.constant(self.eval(key))
            if name is UNKNOWN:
                is_open = True
            else:
                items[name] = evaluated
        return Dict(items, is_open)

    def eval_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.eval(node.left), self.eval(node.right)
        return self.binary(BINARY[type(node.op)], left, right, node)

    def binary(self, name: str, left: Value, right: Value, node: ast.AST) -> Value:
        if isinstance(left, Literal) and isinstance(right, Literal):
            if isinstance(left.value, str) and isinstance(right.value, str) and name == "add":
                return Literal(left.value + right.value)
            folded = apply(name, (left.value, right.value))
            if folded is not None:
                return Literal(folded)
        if isinstance(left, Tup) and isinstance(right, Tup) and name == "add":
            return Tup(left.items + right.items)
        if isinstance(left, Tup) and isinstance(right, Literal) and name == "mul":
            times = right.value
            if isinstance(times, int) and len(left.items) * max(times, 0) <= 64:
                return Tup(left.items * times)
        return self.operation(name, (self.ref(left, node), self.ref(right, node)), node)

    def eval_UnaryOp(self, node: ast.UnaryOp) -> Value:
        value = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            truth = self.truth(value)
            if truth is not None and not isinstance(value, int):
                return Literal(not truth)
            return self.operation("not", (self.ref(value, node),), node)
        if isinstance(node.op, ast.UAdd):
            return value
        name = "neg" if isinstance(node.op, ast.USub) else "not"
        if isinstance(value, Literal):
            constant = value.value
            if isinstance(constant, (int, float)) and name == "neg":
                return Literal(-constant)
            if isinstance(constant, int) and not isinstance(constant, bool):
                return Literal(~constant)
        attrs = NO_ATTRS if name == "neg" else {"bitwise": True}
        result = self.operation(name, (self.ref(value, node),), node)
        if attrs:
            self.b.ops[result].attrs = attrs
        return result

    def eval_BoolOp(self, node: ast.BoolOp) -> Value:
        """`and`/`or`: operands decided at compile time drop out, those behind a deciding one are not lowered."""
        deciding = isinstance(node.op, ast.Or)
        result: Value | None = None
        last: Value = Literal(not deciding)
        for part in node.values:
            last = self.eval(part)
            truth = self.truth(last)
            if truth is deciding:
                # `x and False` is as false as False, whatever x is
                return last if result is None else Literal(deciding)
            if truth is None:
                result = last if result is None else self._join(node, result, last)
        return last if result is None else result

    def _join(self, node: ast.BoolOp, left: Value, right: Value) -> int:
        name = "and" if isinstance(node.op, ast.And) else "or"
        return self.operation(name, (self.ref(left, node), self.ref(right, node)), node)

    def eval_Compare(self, node: ast.Compare) -> Value:
        left = self.eval(node.left)
        result: Value | None = None
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.eval(comparator)
            one = self._compare_two(op, left, right, node)
            if isinstance(one, Literal) and one.value is False:
                return one
            both = result is not None and not (isinstance(result, Literal) and result.value is True)
            if both and result is not None:
                one = self.operation("and", (self.ref(result, node), self.ref(one, node)), node)
            result = one
            left = right
        return Literal(True) if result is None else result

    def _compare_two(self, op: ast.cmpop, left: Value, right: Value, node: ast.Compare) -> Value:
        if isinstance(op, (ast.In, ast.NotIn)):
            return self._contains(left, right, isinstance(op, ast.NotIn), node)
        name = COMPARE[type(op)]
        if name in ("eq", "ne"):
            same = False if self._is_none_against_result(left, right) else _same(left, right)
            if same is not None:
                return Literal(same is (name == "eq"))
        if isinstance(left, Literal) and isinstance(right, Literal):
            folded = apply(name, (left.value, right.value))
            if folded is not None:
                return Literal(folded)
        return self.operation(name, (self.ref(left, node), self.ref(right, node)), node)

    def _is_none_against_result(self, left: Value, right: Value) -> bool:
        """None beside the result of an operation, which is never None; an argument or an unknown call may be."""
        nones = [isinstance(one, Literal) and one.value is None for one in (left, right)]
        others = [one for one, none in zip((left, right), nones, strict=True) if not none]
        return len(others) == 1 and isinstance(others[0], int) and self.b.ops[others[0]].kind in COMPUTED

    def _contains(self, item: Value, container: Value, negated: bool, node: ast.Compare) -> Value:
        match container:
            case Tup(items) if len(items) <= 32:
                result: Value | None = None
                for one in items:
                    equal = self._compare_two(ast.Eq(), item, one, node)
                    if self.truth(equal) is True:
                        return Literal(not negated)
                    if self.truth(equal) is None:
                        result = equal if result is None else self.binary("or", result, equal, node)
                if result is None:
                    return Literal(negated)
                return self.operation("not", (self.ref(result, node),), node) if negated else result
            case Dict(items, False):
                key = self.constant(item)
                if key is not UNKNOWN:
                    return Literal((key in items) is not negated)
            case Literal(str() as text):
                part = self.constant(item)
                if isinstance(part, str):
                    return Literal((part in text) is not negated)
            case _:
                pass
        return self.unknown("in", node, (self.ref(item, node), self.ref(container, node)))

    def eval_IfExp(self, node: ast.IfExp) -> Value:
        test = self.eval(node.test)
        truth = self.truth(test)
        if truth is not None:
            self.mention_disabled(node.orelse if truth else node.body, node.test, truth)
            return self.eval(node.body if truth else node.orelse)
        condition = self.ref(test, node)
        guards = self.b.guards
        self.b.guards = (*guards, Guard(condition, True))
        yes = self.eval(node.body)
        self.b.guards = (*guards, Guard(condition, False))
        no = self.eval(node.orelse)
        self.b.guards = guards
        return self.merge(condition, yes, no, node)

    def eval_Subscript(self, node: ast.Subscript) -> Value:
        owner = self.eval(node.value)
        index = self.eval(node.slice)
        return self.index(owner, index, node)

    def index(self, owner: Value, index: Value, node: ast.Subscript) -> Value:
        """An item of something whose items are known, else whatever the language makes of it."""
        match owner:
            case Tup(items):
                if isinstance(index, Slice):
                    bounds = self._bounds(index)
                    if bounds is not None:
                        return Tup(items[bounds])
                else:
                    at = self.constant(index)
                    if isinstance(at, int) and -len(items) <= at < len(items):
                        return items[at]
            case Dict(items):
                key = self.constant(index)
                if key is not UNKNOWN and key in items:
                    return items[key]
            case Meta(values):
                key = self.constant(index)
                if isinstance(key, str):
                    return self.meta(values, key, node)
            case _:
                pass
        return self.subscript(owner, index, node)

    def _bounds(self, index: Slice) -> slice | None:
        """The slice as Python's, None if a bound is not known."""
        found: list[int | None] = []
        for one in (index.start, index.stop, index.step):
            known = None if one is None else self.constant(one)
            if known is not None and not isinstance(known, int):
                return None
            found.append(known)
        return slice(*found)

    def meta(self, values: Mapping[str, Value], key: str, node: ast.AST) -> Value:
        """A constant that a grid function asks for: the launch's, else one that only the configuration knows."""
        if key in values:
            return values[key]
        return self.b.emit(Kind.PARAM, key, (), self.place(node), {"constexpr": True, "meta": True}, None, ())

    def eval_Slice(self, node: ast.Slice) -> Value:
        parts = (node.lower, node.upper, node.step)
        return Slice(*(None if one is None else self.eval(one) for one in parts))

    def eval_Call(self, node: ast.Call) -> Value:
        callee = self.eval(node.func)
        return self.call(callee, self.arguments(node))

    def arguments(self, node: ast.Call) -> Call:
        args: list[Value] = []
        spread: list[Value] = []
        for one in node.args:
            value = self.eval(one.value if isinstance(one, ast.Starred) else one)
            if isinstance(one, ast.Starred) and not isinstance(value, Tup):
                spread.append(value)
            else:
                found = value.items if isinstance(one, ast.Starred) and isinstance(value, Tup) else (value,)
                (spread if spread else args).extend(found)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, Dict) and not value.open:
                keywords.update({str(name): one for name, one in value.items.items()})
            else:
                if isinstance(value, Dict):
                    keywords.update({str(name): one for name, one in value.items.items()})
                spread.append(value)
        return Call(node, tuple(args), keywords, tuple(spread))

    def choose(self, callee: Choice, call: Call) -> Value:
        """A call of one of two callees: each under its condition."""
        guards = self.b.guards
        self.b.guards = (*guards, Guard(callee.condition, True))
        yes = self.call(callee.yes, call)
        self.b.guards = (*guards, Guard(callee.condition, False))
        no = self.call(callee.no, call)
        self.b.guards = guards
        return self.merge(callee.condition, yes, no, call.node)

    def eval_Lambda(self, node: ast.Lambda) -> Value:
        return Func(node, self.module, "<lambda>", dict(self.env))

    def eval_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.assign(node.target, value)
        return value

    def eval_JoinedStr(self, node: ast.JoinedStr) -> Value:
        try:
            return Literal(str(self.interp.eval(node, _python_env(self.env), self.module)))
        except NotConstant:
            return Opaque("text")

    def eval_ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        """A comprehension over known items gives its items; any other one is a loop whose element is lowered once."""
        generator = node.generators[0]
        if len(node.generators) == 1:
            items = self.eval(generator.iter)
            if isinstance(items, Tup) and len(items.items) <= MAX_UNROLL * 4:
                return self._known_comprehension(node.elt, generator, items)
            saved = dict(self.env)
            spec = items if isinstance(items, Range) else None
            self._open_iteration(generator.target, spec, items, generator.iter)
            element = self.ref(self.eval(node.elt), node.elt)
            self.b.close_loop()
            self.frame.env = saved
            return self.unknown("list", node, (element,))
        return self.unknown("list", node)

    eval_GeneratorExp = eval_ListComp
    eval_SetComp = eval_ListComp

    def _known_comprehension(self, element: ast.expr, generator: ast.comprehension, items: Tup) -> Value:
        found: list[Value] = []
        saved = dict(self.env)
        for item in items.items:
            self.assign(generator.target, item)
            truths = [self.truth(self.eval(test)) for test in generator.ifs]
            if all(truth is not False for truth in truths):
                found.append(self.eval(element))
        self.frame.env = saved
        return Tup(tuple(found))

    def eval_Await(self, node: ast.Await) -> Value:
        return self.eval(node.value)

    def eval_Starred(self, node: ast.Starred) -> Value:
        return self.eval(node.value)

    # merging

    def merge(self, condition: int, yes: Value, no: Value, node: ast.AST) -> Value:
        """What a name stands for after the two branches of a run-time condition."""
        if yes is no or yes == no:
            return yes
        if isinstance(yes, Element) or isinstance(no, Element):
            return self.merge(condition, self.ref(yes, node), self.ref(no, node), node)
        if isinstance(yes, Tup) and isinstance(no, Tup) and len(yes.items) == len(no.items):
            return Tup(tuple(self.merge(condition, a, b, node) for a, b in zip(yes.items, no.items, strict=True)))
        if isinstance(yes, Instance) and isinstance(no, Instance) and yes.cls is no.cls:
            fields = {
                name: self.merge(condition, yes.fields[name], no.fields[name], node)
                for name in yes.fields
                if name in no.fields
            }
            return Instance(yes.cls, fields, yes.whole)
        if isinstance(yes, DType) and isinstance(no, DType):
            return DType(None)
        if (_is_data(yes) or _is_data(no)) and all(_is_data(one) or isinstance(one, Bound) for one in (yes, no)):
            then, other = self.ref(yes, node), self.ref(no, node)
            shape, dtype = self.joined_type(then, other)
            return self.b.emit(Kind.PHI, "if", (condition, then, other), self.place(node), NO_ATTRS, dtype, shape)
        callables = (Func, KernelDef, Partial, Named, Bound, Choice)
        if isinstance(yes, callables) and isinstance(no, callables):
            return Choice(condition, yes, no)
        return Opaque("one of several", (*_tuples(yes), *_tuples(no)))

    def joined_type(self, left: int, right: int) -> tuple[tuple[int, ...] | None, str | None]:
        a, b = self.b.ops[left], self.b.ops[right]
        shape = a.shape if a.shape == b.shape or b.shape == () else (b.shape if a.shape == () else None)
        if shape is None and a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape):
            shape = a.shape
        dtype = a.dtype if a.dtype == b.dtype else None
        return shape, dtype

    def _merge_env(self, condition: int, then: Env, other: Env, node: ast.AST) -> Env:
        merged: Env = {}
        for name in dict.fromkeys((*then, *other)):
            if name not in then:
                merged[name] = other[name]
            elif name not in other:
                merged[name] = then[name]
            else:
                value = self.merge(condition, then[name], other[name], node)
                if value is not then[name] and isinstance(value, int) and not self.b.ops[value].variable:
                    self.b.ops[value].variable = name
                merged[name] = value
        return merged

    # statements

    def block(self, body: Sequence[ast.stmt]) -> Flow:
        guards = self.b.guards
        leave, skip = NEVER, NEVER
        for position, node in enumerate(body):
            flow = self.statement(node)
            if flow is FALLS:
                continue
            leave, skip = self._either(leave, flow.leave, node), self._either(skip, flow.skip, node)
            if flow.ends:
                for rest in body[position + 1 :]:
                    self.mention_calls(rest, "dead_code", "after a return")
                break
            for condition in (flow.leave, flow.skip):
                if condition >= 0:
                    self.b.guards = (*self.b.guards, Guard(condition, False))
        self.b.guards = guards
        return FALLS if leave == NEVER and skip == NEVER else Flow(leave, skip)

    def _either(self, left: int, right: int, node: ast.AST) -> int:
        if ALWAYS in (left, right):
            return ALWAYS
        if left == NEVER or right == NEVER:
            return right if left == NEVER else left
        return self.operation("or", (left, right), node)

    def statement(self, node: ast.stmt) -> Flow:
        run: Callable[[ast.stmt], Flow] = getattr(self, f"run_{type(node).__name__}", self._ignored)
        return run(node)

    def _ignored(self, node: ast.stmt) -> Flow:
        return FALLS

    def run_Expr(self, node: ast.Expr) -> Flow:
        if not isinstance(node.value, ast.Constant):
            self.eval(node.value)
        return FALLS

    def run_Assign(self, node: ast.Assign) -> Flow:
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value)
        return FALLS

    def run_AnnAssign(self, node: ast.AnnAssign) -> Flow:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value))
        return FALLS

    def run_AugAssign(self, node: ast.AugAssign) -> Flow:
        target = node.target
        name = BINARY[type(node.op)]
        if isinstance(target, ast.Name):
            before = self.name(target)
            self.assign(target, self.binary(name, before, self.eval(node.value), node))
            return FALLS
        if isinstance(target, ast.Subscript):
            owner, index = self.eval(target.value), self.eval(target.slice)
            before = self.index(owner, index, target)
            value = self.binary(name, before, self.eval(node.value), node)
            self.store_subscript(owner, index, value, target)
            return FALLS
        before = self.eval(target)
        self.assign(target, self.binary(name, before, self.eval(node.value), node))
        return FALLS

    def assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                if isinstance(value, int) and not self.b.ops[value].variable:
                    self.b.ops[value].variable = name
                elif isinstance(value, Tup) and value.whole != NONE and not self.b.ops[value.whole].variable:
                    self.b.ops[value.whole].variable = name
                self.env[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for one, item in zip(targets, self.unpack(value, len(targets), target), strict=False):
                    self.assign(one, item)
            case ast.Starred(value=inner):
                self.assign(inner, value)
            case ast.Subscript():
                self.store_subscript(self.eval(target.value), self.eval(target.slice), value, target)
            case ast.Attribute():
                self.store_attribute(target, value)
            case _:
                pass

    def store_attribute(self, target: ast.Attribute, value: Value) -> None:
        if isinstance(target.value, ast.Name):
            owner = self.env.get(target.value.id)
            if isinstance(owner, Instance):
                fields = {**owner.fields, target.attr: value}
                self.env[target.value.id] = Instance(owner.cls, fields, owner.whole)

    def unpack(self, value: Value, count: int, node: ast.AST) -> tuple[Value, ...]:
        """The items that a tuple assignment gives its `count` targets."""
        if isinstance(value, Tup) and len(value.items) >= count:
            return value.items
        if isinstance(value, Instance) and len(value.fields) == count:
            return tuple(value.fields.values())
        fitting = [one for one in _tuples(value) if len(one.items) == count]
        if len(fitting) == 1:
            return fitting[0].items
        whole = self.ref(value, node)
        return tuple(
            self.b.emit(Kind.ITEM, "", (whole,), self.place(node), {"index": position}) for position in range(count)
        )

    def run_If(self, node: ast.If) -> Flow:
        test = self.eval(node.test)
        truth = self.truth(test)
        if truth is not None:
            for dead in node.orelse if truth else node.body:
                self.mention_disabled(dead, node.test, truth)
            return self.block(node.body if truth else node.orelse)
        condition = self.ref(test, node.test)
        before, guards = dict(self.env), self.b.guards
        self.b.guards = (*guards, Guard(condition, True))
        then_flow = self.block(node.body)
        then_env, self.frame.env = self.env, before
        self.b.guards = (*guards, Guard(condition, False))
        other_flow = self.block(node.orelse)
        other_env = self.env
        self.b.guards = guards
        if then_flow.ends:
            self.frame.env = other_env
        elif other_flow.ends:
            self.frame.env = then_env
        else:
            self.frame.env = self._merge_env(condition, then_env, other_env, node)
        if then_flow is FALLS and other_flow is FALLS:
            return FALLS
        leave = self._branch_exit(condition, then_flow.leave, other_flow.leave, node)
        skip = self._branch_exit(condition, then_flow.skip, other_flow.skip, node)
        return Flow(leave, skip)

    def _branch_exit(self, condition: int, then: int, other: int, node: ast.AST) -> int:
        """The condition under which one of the branches exits."""
        if then == NEVER and other == NEVER:
            return NEVER
        if then == ALWAYS and other == ALWAYS:
            return ALWAYS
        parts: list[int] = []
        if then != NEVER:
            parts.append(condition if then == ALWAYS else self.operation("and", (condition, then), node))
        if other != NEVER:
            opposite = self.operation("not", (condition,), node)
            parts.append(opposite if other == ALWAYS else self.operation("and", (opposite, other), node))
        return parts[0] if len(parts) == 1 else self.operation("or", (parts[0], parts[1]), node)

    def run_Return(self, node: ast.Return) -> Flow:
        value: Value = Literal(None) if node.value is None else self.eval(node.value)
        self.frame.returns.append((self.b.guards[self.frame.guards :], value))
        return LEAVES

    def run_Break(self, node: ast.stmt) -> Flow:
        return SKIPS

    run_Continue = run_Break

    def run_Raise(self, node: ast.Raise) -> Flow:
        return LEAVES

    def run_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Flow:
        func = Func(node, self.module, self.module.qualnames.get(id(node), node.name), self.env)
        made = self.interp.decorated(func, _python_env(self.env)) if node.decorator_list else func
        self.env[node.name] = self.from_python(made, node)
        return FALLS

    run_AsyncFunctionDef = run_FunctionDef

    def run_ClassDef(self, node: ast.ClassDef) -> Flow:
        self.env[node.name] = Class(node, self.module)
        return FALLS

    def run_Import(self, node: ast.Import | ast.ImportFrom) -> Flow:
        for name, dotted in import_bindings(node):
            if name != "*":
                try:
                    self.env[name] = self.from_python(self.interp.imported(self.module, dotted), node)
                except NotConstant:
                    self.env[name] = Named(dotted)
        return FALLS

    run_ImportFrom = run_Import

    def run_With(self, node: ast.With | ast.AsyncWith) -> Flow:
        for item in node.items:
            value = self.eval(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
        return self.block(node.body)

    run_AsyncWith = run_With

    def run_Try(self, node: ast.Try) -> Flow:
        """The body counts; handlers are fallbacks that run only when it fails."""
        for handler in node.handlers:
            kind = "" if handler.type is None else " " + ast.unparse(handler.type)
            for statement in handler.body:
                self.mention_calls(statement, "fallback_path", f"except{kind}")
        flow = self.block([*node.body, *node.orelse])
        after = self.block(node.finalbody)
        return after if after is not FALLS else flow

    def run_Match(self, node: ast.Match) -> Flow:
        """Cases as a chain of conditions; patterns are not taken apart."""
        subject = self.ref(self.eval(node.subject), node.subject)
        before, guards = dict(self.env), self.b.guards
        merged: Env | None = None
        for case in node.cases:
            self.frame.env = dict(before)
            condition = self.ref(self.unknown("match", case.pattern, (subject,)), case.pattern)
            for name in (one for one in walk(case.pattern) if isinstance(one, ast.MatchAs)):
                if name.name:
                    self.env[name.name] = subject
            self.b.guards = (*guards, Guard(condition, True))
            flow = self.block(case.body)
            self.b.guards = guards
            if not flow.ends:
                merged = self.env if merged is None else self._merge_env(condition, self.env, merged, node)
        self.frame.env = before if merged is None else merged
        return FALLS

    # loops

    def run_For(self, node: ast.For | ast.AsyncFor) -> Flow:
        return self.iterate(node, self.eval(node.iter))

    def iterate(self, node: ast.For | ast.AsyncFor, iterated: Value) -> Flow:
        spec = iterated if isinstance(iterated, Range) else None
        if spec is None and isinstance(iterated, Tup) and len(iterated.items) <= MAX_UNROLL:
            times = max(1, len(iterated.items))
            if self.unrolled * times <= MAX_UNROLLED:
                self.unrolled *= times
                flow = self._unrolled(node, iterated)
                self.unrolled //= times
                return flow
        names = self.assigned(node)
        index = self._open_iteration(node.target, spec, iterated, node.iter)
        self._run_loop(index, node.body, names, node)
        return FALLS

    run_AsyncFor = run_For

    def _unrolled(self, node: ast.For | ast.AsyncFor, items: Tup) -> Flow:
        leave = NEVER
        guards = self.b.guards
        for item in items.items:
            self.assign(node.target, item)
            flow = self.block(node.body)
            leave = self._either(leave, flow.leave, node)
            if flow.ends and flow.leave == ALWAYS:
                break
        self.b.guards = guards
        return FALLS if leave == NEVER else Flow(leave=leave)

    def _open_iteration(self, target: ast.expr, spec: Range | None, iterated: Value, node: ast.expr) -> int:
        """Opens the loop and binds its variable: a PHI (start, next) for numbers, else an item of what is iterated."""
        place = self.place(node)
        if spec is None:
            over = self.ref(iterated, node)
            index = self.b.open_loop("for", NONE, NONE, NONE, place, NO_ATTRS)
            variable = self.b.emit(Kind.ITEM, "", (over,), place)
        else:
            index = self.b.open_loop(spec.form, spec.start, spec.stop, spec.step, place, spec.attrs)
            dtype = self.b.ops[spec.start].dtype or "i32"
            variable = self.b.emit(Kind.PHI, "loop", (spec.start, NONE), place, NO_ATTRS, dtype, ())
        self.b.loops[index].variable = variable
        self.assign(target, variable)
        return index

    def run_While(self, node: ast.While) -> Flow:
        names = self.assigned(node)
        index = self.b.open_loop("while", NONE, NONE, NONE, self.place(node), NO_ATTRS)
        self._run_loop(index, node.body, names, node, node.test)
        return FALLS

    def _run_loop(
        self,
        index: int,
        body: Sequence[ast.stmt],
        names: Sequence[str],
        node: ast.stmt,
        test: ast.expr | None = None,
    ) -> None:
        """Lowers the body with a PHI for each variable that it updates; after the loop those PHIs are the variables."""
        loop = self.b.loops[index]
        target = (
            {one.id for one in walk(node.target) if isinstance(one, ast.Name)} if isinstance(node, ast.For) else set()
        )
        entry: list[tuple[str, Value, Value]] = []
        for name in names:
            if name in self.env and name not in target:
                before = self.env[name]
                phi = self._open_phi(name, before, node)
                if phi is not None:
                    entry.append((name, before, phi))
                    self.env[name] = phi
        at_entry = dict(self.env)
        guards = self.b.guards
        if test is not None:
            condition = self.eval(test)
            if not (isinstance(condition, Literal) and condition.value is True):
                loop.condition = self.ref(condition, test)
        self.block(body)
        self.b.guards = guards
        for name, before, phi in entry:
            self._close_phi(name, before, phi, self.env.get(name, phi), node)
            self.env[name] = phi
        if loop.form != "while" and loop.step != NONE:
            following = self.operation("add", (loop.variable, loop.step), node)
            self.b.ops[loop.variable].args = (loop.start, following)
        self.b.close_loop()
        # a name that only the body binds keeps its last value
        self.frame.env = {**at_entry, **self.env, **{name: phi for name, _, phi in entry}}

    def _open_phi(self, name: str, before: Value, node: ast.AST) -> Value | None:
        match before:
            case int() | Literal():
                initial = self.ref(before, node)
                draft = self.b.ops[initial]
                phi = self.b.emit(
                    Kind.PHI, "loop", (initial, NONE), self.place(node), NO_ATTRS, draft.dtype, draft.shape
                )
                self.b.ops[phi].variable = name
                return phi
            case Tup(items):
                phis = [self._open_phi(f"{name}.{at}", item, node) for at, item in enumerate(items)]
                return Tup(tuple(item if phi is None else phi for phi, item in zip(phis, items, strict=True)))
            case Instance(cls, fields):
                inner = {key: self._open_phi(f"{name}.{key}", item, node) for key, item in fields.items()}
                changed = {key: fields[key] if phi is None else phi for key, phi in inner.items()}
                return Instance(cls, changed, before.whole)
            case _:
                return None

    def _close_phi(self, name: str, before: Value, phi: Value, after: Value, node: ast.AST) -> None:
        match phi:
            case int() if isinstance(before, (int, Literal)):
                initial = self.b.ops[phi].args[0]
                following = self.ref(after, node)
                draft, next_draft = self.b.ops[phi], self.b.ops[following]
                if not draft.shape and next_draft.shape:
                    draft.shape = next_draft.shape
                if draft.dtype != next_draft.dtype and isinstance(before, Literal):
                    draft.dtype = next_draft.dtype
                draft.args = (initial, following)
                self.b.loops[self.b.loop].carried.append((name, initial, phi, following))
            case Tup(items) if isinstance(before, Tup):
                afters = after.items if isinstance(after, Tup) and len(after.items) == len(items) else items
                for at, (one, item, last) in enumerate(zip(before.items, items, afters, strict=True)):
                    self._close_phi(f"{name}.{at}", one, item, last, node)
            case Instance(_, fields) if isinstance(before, Instance):
                afters_by_name = after.fields if isinstance(after, Instance) else fields
                for key, item in fields.items():
                    self._close_phi(f"{name}.{key}", before.fields[key], item, afters_by_name.get(key, item), node)
            case _:
                pass

    def assigned(self, node: ast.For | ast.AsyncFor | ast.While) -> tuple[str, ...]:
        """Names that the loop's body binds, in the order they appear."""
        known = self.module.stores
        if id(node) not in known:
            known[id(node)] = tuple(dict.fromkeys(_stores(node.body)))
        return known[id(node)]

    # calls of functions at hand

    def inline(self, func: Func, call: Call, node: ast.AST) -> Value:
        """Lowers the callee's body in place; the result merges its returns."""
        depth = sum(1 for frame in self.frames if frame.node is func.node)
        if len(self.frames) > MAX_INLINE_DEPTH or depth >= self.max_recursion:
            return self.unknown(func.qualname, node, tuple(self.ref(one, node) for one in call.args))
        self.inlined.add(id(func.node))
        env: Env = {**self.closure(func, node), **self.bind(func, call, node)}
        here = self.place(node)
        calls, guards = self.b.calls, self.b.guards
        self.b.calls = (*calls, here)
        self.frames.append(Frame(func.module, env, func.node, len(guards), self.b.loop))
        try:
            if isinstance(func.node, ast.Lambda):
                return self.eval(func.node.body)
            self.block(func.node.body)
            return self._result(node)
        finally:
            self.frames.pop()
            self.b.calls, self.b.guards = calls, guards

    def closure(self, func: Func, node: ast.AST) -> Env:
        """The variables of the function around `func`."""
        if func.evaluated:
            return {name: self.from_python(value, node) for name, value in func.env.items()}
        return {name: value for name, value in func.env.items() if isinstance(value, VALUES)}

    def _result(self, node: ast.AST) -> Value:
        returns = self.frame.returns
        if not returns:
            return Literal(None)
        result = returns[-1][1]
        for guards, value in reversed(returns[:-1]):
            if not guards:
                return value
            condition = guards[0].value if guards[0].expected else self.operation("not", (guards[0].value,), node)
            for guard in guards[1:]:
                one = guard.value if guard.expected else self.operation("not", (guard.value,), node)
                condition = self.operation("and", (condition, one), node)
            result = self.merge(condition, value, result, node)
        return result

    def bind(self, func: Func, call: Call, node: ast.AST) -> Env:
        """The parameters of `func` bound to the arguments of a call."""
        spec = func.node.args
        positional = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        args = call.args
        if func.owner is not None:
            args = (func.owner, *args)
        bound: Env = dict(zip(positional, args, strict=False))
        if spec.vararg is not None:
            bound[spec.vararg.arg] = Tup(tuple(args[len(positional) :]))
        extra = dict(call.keywords)
        for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
            if one.arg in extra:
                bound[one.arg] = extra.pop(one.arg)
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = Dict(dict(extra.items()), bool(call.spread))
        for name, default in defaults(func):
            if name not in bound:
                bound[name] = self._in_module(func.module, default)
        for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
            if one.arg not in bound:
                bound[one.arg] = self.b.emit(Kind.PARAM, one.arg, (), self.place(node))
        return bound

    # code that does not run

    def mention_disabled(self, node: ast.AST, test: ast.expr, truth: bool) -> None:
        condition = ast.unparse(test)
        self.mention_calls(node, "disabled_branch", f"{condition} is {truth}"[:200])

    def mention_calls(self, node: ast.AST, reason: str, detail: str) -> None:
        for one in walk(node):
            if isinstance(one, ast.Call):
                self.b.mentions.append(Mention(self.dotted(one.func), reason, detail, self.place(one)))


def defaults(func: Func) -> Iterator[tuple[str, ast.expr]]:
    """Parameters that have a default, with its expression."""
    spec = func.node.args
    names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
    yield from zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True)
    for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if value is not None:
            yield one.arg, value


def _itself(known: Known) -> object:
    return known


def _truth(known: Known) -> object:
    return None if known is UNKNOWN else bool(known)


def _tuples(value: Value) -> tuple[Tup, ...]:
    """The tuples that a value may be."""
    if isinstance(value, Opaque):
        return value.tuples
    return (value,) if isinstance(value, Tup) else ()


def _is_data(value: Value) -> bool:
    return isinstance(value, (int, Literal))


def _same(left: Value, right: Value) -> bool | None:
    """Whether two compile-time values are equal, None if that is not known."""
    kinds = (DType, Named, Func, KernelDef, Class)
    if isinstance(left, DType) and isinstance(right, DType):
        return left.name == right.name if left.name and right.name else None
    if isinstance(left, kinds) and isinstance(right, kinds):
        return left == right
    for one, other in ((left, right), (right, left)):
        if isinstance(one, (*kinds, Tup, Dict, Instance)) and isinstance(other, Literal) and other.value is None:
            return False
    return None


def _no_call(node: ast.AST) -> ast.Call:
    """A call that the source does not write, at the place of `node`."""
    call = ast.Call(func=ast.Name(id="", ctx=ast.Load()), args=[], keywords=[])
    return ast.fix_missing_locations(ast.copy_location(call, node))


def _python_env(env: Mapping[str, Value]) -> dict[str, object]:
    """The constants of an environment for the evaluator; everything else hides a global of the same name."""
    return {name: as_python(value) for name, value in env.items()}


def _stores(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that statements bind, nested functions left out."""
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            yield node.value.id
        stack.extend(reversed(children(node)))
