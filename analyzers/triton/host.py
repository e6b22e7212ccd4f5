"""Host code: tensors are allocated, descriptors made, kernels launched; functions of the files at hand are inlined."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.triton import gluon_calls
from d2k.analyzers.triton.builder import Builder
from d2k.analyzers.triton.device import initial_value, parameters
from d2k.analyzers.triton.interp import Interp, NotConstant
from d2k.analyzers.triton.lowering import FALLS, Call, Env, Flow, Frame, Lowering, defaults
from d2k.analyzers.triton.module import Module
from d2k.analyzers.triton.nodes import walk
from d2k.analyzers.triton.relevance import Relevance
from d2k.analyzers.triton.tuning import OPTIONS
from d2k.analyzers.triton.types import named_dtype, words
from d2k.analyzers.triton.values import (
    UNKNOWN,
    Bound,
    Choice,
    Class,
    Dict,
    DType,
    Func,
    Gridded,
    Instance,
    KernelDef,
    Layout,
    Literal,
    Meta,
    Named,
    Opaque,
    Partial,
    Range,
    Slice,
    Tup,
    Value,
)
from d2k.spec.facts import NONE, AttrValue, Constant, Kind

MEMOS = frozenset({"functools.lru_cache", "functools.cache"})
"""Decorators that remember results by arguments."""

LAUNCH_OPTIONS = frozenset(
    {
        *OPTIONS,
        "launch_pdl",
        "launch_cooperative_grid",
        "cluster_dims",
        "enable_fp_fusion",
        "maxnreg",
        "ir_override",
        "debug",
        "sanitize_overflow",
        "allow_flush_denorm",
        "waves_per_eu",
        "matrix_instr_nonkdim",
        "kpack",
        "warmup",
        "extern_libs",
        "stream",
    }
)
"""Keywords of a launch that are no parameters of the kernel."""

ALLOCATIONS = words(
    "empty zeros ones full empty_like zeros_like ones_like full_like empty_strided rand randn randint "
    "rand_like randn_like arange eye tensor"
)
METHOD_ALLOCATIONS: Mapping[str, str] = {
    "new_empty": "empty",
    "new_zeros": "zeros",
    "new_ones": "ones",
    "new_full": "full",
    "new_empty_strided": "empty_strided",
}
ATTRIBUTE_METHODS = words("numel dim ndimension element_size is_contiguous data_ptr nelement get_device storage_offset")
KEEPING = words(
    "contiguous reshape transpose t permute flatten squeeze unsqueeze detach clone cuda expand narrow movedim "
    "unflatten repeat requires_grad_ index_select pin_memory view_as reshape_as expand_as swapaxes"
)
"""Methods whose result has the element type of the tensor."""
VIEWS = frozenset({"T", "mT", "H", "mH", "data"})
"""Attributes that are tensors of the same elements."""
CASTING: Mapping[str, str] = {
    "half": "f16",
    "bfloat16": "bf16",
    "float": "f32",
    "double": "f64",
    "int": "i32",
    "long": "i64",
    "bool": "bool",
    "char": "i8",
}
WRAPPERS = frozenset(
    {
        "torch.library.wrap_triton",
        "torch._library.triton.wrap_triton",
        "torch._library.capture_triton",
        "torch.library.capture_triton",
        "tilelang.compile",
        "tilelang.cached",
    }
)
DESCRIPTORS = ("TensorDescriptor", "TensorDescriptor.from_tensor")
MAX_HOST_OPS = 12_000
MAX_TABLE = 4


@dataclass(frozen=True, slots=True)
class Site:
    """A launch in host code: `value` is its LAUNCH operation, before the body is renumbered."""

    kernel: KernelDef
    value: int
    arguments: Mapping[str, Value]
    options: Mapping[str, Value]


CONTEXTS = ("ctx", "context")


@dataclass(slots=True)
class Context:
    """What an autograd function's `forward` leaves for its `backward`: constants, and attributes of parameters."""

    constants: dict[str, Value] = field(default_factory=dict)
    flags: dict[str, Mapping[str, AttrValue]] = field(default_factory=dict)


class Host(Lowering):
    """Lowers one host function, or the code of the module itself."""

    max_recursion = 1

    def __init__(self, module: Module, interp: Interp, operators: Mapping[str, Func], relevance: Relevance) -> None:
        super().__init__(module, Builder(max_ops=MAX_HOST_OPS), interp)
        self.sites: list[Site] = []
        self.referenced: set[int] = set()
        """Kernels that are used otherwise than by a launch, by the identity of their node."""
        self.called: set[int] = set()
        """Functions at hand that are called but not lowered in place, by the identity of their node."""
        self.context = Context()
        """What `forward` stored in the context that this function, `backward`, gets."""
        self.stored = Context()
        self.operators = operators
        self.relevance = relevance
        self._globals: dict[str, Value] = {}
        self._queries: dict[tuple[str, int, int], int] = {}

    def function(self, func: Func, owner: Class | None) -> None:
        node = func.node
        assert not isinstance(node, ast.Lambda)
        env: Env = self.closure(func, node)
        self.frames.append(Frame(func.module, env, node, 0, NONE))
        try:
            given = dict(defaults(func))
            for position, one in enumerate(parameters(node)):
                attrs = self._parameter(one, given.get(one.arg), func.module)
                value = self.b.emit(Kind.PARAM, one.arg, (), self.place(one), attrs)
                self.b.ops[value].variable = one.arg
                env[one.arg] = value
                if position == 0 and owner is not None and _takes_self(node):
                    env[one.arg] = Instance(owner, {}, value)
            for extra in (node.args.vararg, node.args.kwarg):
                if extra is not None:
                    env[extra.arg] = self.b.emit(Kind.PARAM, extra.arg, (), self.place(extra))
            self._note_memo(func)
            self.block(node.body)
        finally:
            self.frames.pop()

    def inline(self, func: Func, call: Call, node: ast.AST) -> Value:
        self._note_memo(func)
        return super().inline(func, call, node)

    def _note_memo(self, func: Func) -> None:
        """A function whose results are remembered by argument: its decorator as a call that spans the function."""
        if isinstance(func.node, ast.Lambda) or func.module is not self.module or not parameters(func.node):
            return
        for decorator in func.node.decorator_list:
            named = decorator.func if isinstance(decorator, ast.Call) else decorator
            if self.dotted(named) in MEMOS:
                self.b.emit(Kind.HOST_CALL, "functools.lru_cache", (), self.place(func.node))

    def assign(self, target: ast.expr, value: Value) -> None:
        super().assign(target, value)
        if isinstance(target, ast.Name) and target.id in _globals(self.frame.node):
            args = (self.ref(value, target),)
            self.b.emit(Kind.HOST_CALL, "setattr", args, self.place(target), {"target": f"globals.{target.id}"})

    def _parameter(self, node: ast.arg, default: ast.expr | None, module: Module) -> dict[str, AttrValue]:
        """`default`, if it is a constant other than None, and `bool` for a parameter that is true or false."""
        attrs: dict[str, AttrValue] = {}
        if default is not None:
            try:
                value = self.interp.eval(default, {}, module)
            except NotConstant:
                value = None
            if isinstance(value, (bool, int, float, str)):
                attrs["default"] = value
        annotated = isinstance(node.annotation, ast.Name) and node.annotation.id == "bool"
        if annotated or isinstance(attrs.get("default"), bool):
            attrs["bool"] = True
        return attrs

    def module_code(self, module: Module) -> None:
        """What runs on import; the `__main__` block is a program of its own."""
        body = [node for node in module.tree.body if not is_main_block(node)]
        self.frame.env = {}
        for node in body:
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
                self.statement(node)

    # hooks

    def named(self, value: Named) -> Value:
        dtype = named_dtype(value.dotted)
        return value if dtype is None else DType(dtype)

    def operation(self, name: str, args: tuple[int, ...], node: ast.AST) -> int:
        if name == "matmul":
            return self.b.emit(Kind.HOST_CALL, "torch.matmul", args, self.place(node), {"operator": "@"})
        return self.b.emit(Kind.ELEMENTWISE, name, args, self.place(node))

    def unknown(self, what: str, node: ast.AST, args: tuple[int, ...] = ()) -> int:
        return self.b.emit(Kind.HOST_CALL, what, args, self.place(node))

    def global_expression(self, name: str, node: ast.expr, module: Module) -> Value:
        key = f"{module.path}:{name}"
        if key not in self._globals:
            self._globals[key] = Opaque(name)  # a name that is defined by itself
            value = self.lowered(module, node)
            if isinstance(value, int) and not self.b.ops[value].variable:
                self.b.ops[value].variable = name
            self._globals[key] = value
        return self._globals[key]

    def name(self, node: ast.Name) -> Value:
        value = super().name(node)
        if isinstance(value, KernelDef):
            self.referenced.add(id(value.func.node))
        return value

    def run_Assert(self, node: ast.Assert) -> Flow:
        """An assertion about element types makes them known: `assert x.dtype == torch.float16`."""
        tests = (
            node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
        )
        for test in tests:
            if isinstance(test, ast.Compare) and all(isinstance(one, ast.Eq) for one in test.ops):
                values = [self.eval(one) for one in (test.left, *test.comparators) if _names_dtype(one)]
                known = next((one.name for one in values if isinstance(one, DType) and one.name), None)
                for one in values:
                    if isinstance(one, DType) and one.of != NONE and self.b.ops[one.of].dtype is None:
                        self.b.ops[one.of].dtype = known
        return FALLS

    # attributes and items

    def query(self, name: str, owner: int, node: ast.AST) -> int:
        """A property of an object; asked twice outside branches, it is the same operation."""
        return self._once(Kind.ATTRIBUTE, name, owner, -1, node)

    def item(self, owner: int, index: int, node: ast.AST) -> int:
        return self._once(Kind.ITEM, "", owner, index, node)

    def _once(self, kind: Kind, name: str, owner: int, index: int, node: ast.AST) -> int:
        key = (f"{kind}{name}", owner, index)
        if key in self._queries:
            return self._queries[key]
        attrs = NO_ATTRS if kind is Kind.ATTRIBUTE else {"index": index}
        dtype = self.b.ops[owner].dtype if name in VIEWS else None
        value = self.b.emit(kind, name, (owner,), self.place(node), attrs, dtype)
        if not self.b.guards and self.b.loop == NONE:
            self._queries[key] = value
        return value

    def attribute(self, owner: Value, name: str, node: ast.Attribute) -> Value:
        match owner:
            case int():
                return self._tensor_attribute(owner, name, node)
            case Instance(cls, _, whole):
                return self._field(cls, whole, name, node)
            case _:
                return Bound(owner, name)

    def _tensor_attribute(self, owner: int, name: str, node: ast.AST) -> Value:
        draft = self.b.ops[owner]
        if name == "dtype":
            return DType(draft.dtype, owner)
        if name == "shape" and draft.shape:
            return Tup(draft.shape)
        if name in VIEWS:
            return self.query(name, owner, node)
        if draft.kind is Kind.PARAM and draft.name in CONTEXTS:
            if name in self.context.constants:
                return self.context.constants[name]
            if name in self.context.flags:
                return self.b.emit(Kind.PARAM, name, (), self.place(node), self.context.flags[name])
        return Bound(owner, name)

    def _field(self, cls: Class, whole: int, name: str, node: ast.AST) -> Value:
        """A field of `self`: its constant, if `__init__` sets one."""
        value = initial_value(cls, name)
        if value is not None:
            try:
                return self.from_python(self.interp.eval(value, {}, cls.module), node)
            except NotConstant:
                pass
        return Bound(Instance(cls, {}, whole), name)

    def ref(self, value: Value, node: ast.AST) -> int:
        match value:
            case Func() if not isinstance(value.node, ast.Lambda):
                self.called.add(id(value.node))  # whoever gets the function may call it
                return super().ref(value, node)
            case Bound(int() as owner, name):
                return self.query(name, owner, node)
            case Bound(Instance(_, _, whole), name) if whole != NONE:
                return self.query(name, whole, node)
            case Bound(inner, name):
                return self.b.emit(Kind.ATTRIBUTE, name, (self.ref(inner, node),), self.place(node))
            case _:
                return super().ref(value, node)

    def subscript(self, owner: Value, index: Value, node: ast.Subscript) -> Value:
        match owner:
            case KernelDef():
                self.referenced.discard(id(owner.func.node))
                return Gridded(owner, index)
            case Choice(condition, yes, no) if _is_kernel(yes) or _is_kernel(no):
                return Choice(condition, self.subscript(yes, index, node), self.subscript(no, index, node))
            case Dict(items) if items and all(_is_kernel(one) for one in items.values()):
                return self._selected(tuple(items.values()), index, node)
            case Tup(items) if items and all(_is_kernel(one) for one in items):
                return self._selected(items, index, node)
            case Dict(items, False) if 0 < len(items) <= MAX_TABLE:
                return self._looked_up(tuple(items.values()), index, node)
            case Opaque() | Named() if isinstance(index, (Tup, Func)):
                return Gridded(owner, index)
            case _:
                pass
        whole = self.ref(owner, node)
        at = self.constant(index)
        if isinstance(at, int) and not isinstance(at, bool):
            return self.item(whole, at, node)
        if isinstance(at, str):
            return self.b.emit(Kind.ATTRIBUTE, at, (whole,), self.place(node), {"item": True})
        parts = index.items if isinstance(index, Tup) else (index,)
        args = (whole, *(self.ref(one, node) for one in parts))
        name = "slice" if any(isinstance(one, Slice) for one in parts) else "index"
        return self.b.emit(Kind.SHAPE, name, args, self.place(node))

    def _selected(self, values: Sequence[Value], index: Value, node: ast.AST) -> Value:
        """One of several kernels by a key that only a run can tell."""
        key = self.ref(index, node)
        chosen = values[-1]
        for one in reversed(values[:-1]):
            condition = self.b.emit(Kind.HOST_CALL, "select", (key,), self.place(node))
            chosen = Choice(condition, one, chosen)
        return chosen

    def _looked_up(self, values: Sequence[Value], index: Value, node: ast.AST) -> Value:
        """An item of a table by a key that only a run can tell: one of its values."""
        key = self.ref(index, node)
        chosen = values[-1]
        for one in reversed(values[:-1]):
            condition = self.b.emit(Kind.HOST_CALL, "select", (key,), self.place(node))
            chosen = self.merge(condition, one, chosen, node)
        return chosen

    def store_subscript(self, owner: Value, index: Value, value: Value, node: ast.Subscript) -> None:
        if isinstance(owner, Dict) and isinstance(node.value, ast.Name) and node.value.id in self.env:
            key = self.constant(index)
            if key is not UNKNOWN:
                self.env[node.value.id] = Dict({**owner.items, key: value}, owner.open)
                return
        args = (self.ref(owner, node), self.ref(index, node), self.ref(value, node))
        self.b.emit(Kind.HOST_CALL, "setitem", args, self.place(node))

    def store_attribute(self, target: ast.Attribute, value: Value) -> None:
        super().store_attribute(target, value)
        if isinstance(target.value, ast.Name) and target.value.id in CONTEXTS:
            self._remember(target.attr, value)
        args = (self.ref(value, target),)
        self.b.emit(Kind.HOST_CALL, "setattr", args, self.place(target), {"target": self.dotted(target)})

    def _remember(self, name: str, value: Value) -> None:
        """Keeps what another body can know of a value: its constant, or the parameter that it is."""
        if isinstance(value, (Literal, Func, KernelDef, Named)):
            self.stored.constants[name] = value
        elif isinstance(value, int):
            draft = self.b.ops[value]
            known = self.b.known[value]
            if known is not UNKNOWN:
                self.stored.constants[name] = Literal(known)
            elif draft.kind is Kind.PARAM and draft.attrs:
                self.stored.flags[name] = draft.attrs

    # calls

    def call(self, callee: Value, call: Call) -> Value:
        node = call.node
        match callee:
            case Gridded(kernel, grid):
                return self.launch(kernel, grid, call)
            case Func():
                return self._function_call(callee, call)
            case Partial():
                joined = Call(node, (*callee.args, *call.args), {**callee.keywords, **call.keywords}, call.spread)
                return self.call(callee.func, joined)
            case Choice():
                return self.choose(callee, call)
            case KernelDef():
                if callee.language == "cute_dsl":
                    return Partial(callee, call.args, call.keywords)  # `.launch(grid=…)` follows
                return self.launch(callee, Opaque("grid"), call)
            case Named(dotted):
                return self.named_call(dotted, call)
            case Bound(owner, name):
                return self.method(owner, name, call)
            case Class():
                return self.construct(callee, call)
            case Instance(cls):
                return self._call_object(callee, cls, call)
            case _:
                return self.host_call(self.dotted(node.func), call)

    def _function_call(self, callee: Func, call: Call) -> Value:
        if self.relevance.inlines(callee.node, callee.module):
            return self.inline(callee, call, call.node)
        self.called.add(id(callee.node))
        first = () if callee.owner is None else (self.ref(callee.owner, call.node),)
        return self.host_call(callee.qualname, call, first)

    def host_call(self, name: str, call: Call, first: tuple[int, ...] = (), **extra: AttrValue) -> int:
        args = first + tuple(self.ref(one, call.node) for one in (*call.args, *call.spread))
        args += tuple(self.ref(one, call.node) for one in call.keywords.values())
        attrs: dict[str, AttrValue] = dict(extra)
        if call.keywords:
            attrs["keywords"] = tuple(call.keywords)
        return self.b.emit(Kind.HOST_CALL, name, args, self.place(call.node), attrs)

    def named_call(self, dotted: str, call: Call) -> Value:
        node = call.node
        if dotted.startswith("builtins."):
            return self._builtin(dotted[9:], call)
        if dotted in WRAPPERS and call.args:
            return call.args[0]
        if dotted == "cutlass.cute.compile" and call.args:
            return self._compiled(call)
        if dotted == "cuda.tile.launch" and len(call.args) >= 4:
            _, grid, kernel, arguments = call.args[:4]
            if isinstance(arguments, Tup):
                return self.launch(kernel, grid, Call(node, arguments.items, {}))
            return self.launch(kernel, grid, Call(node, (), {}, (arguments,)))
        if dotted in ("functools.partial",) and call.args:
            return Partial(call.args[0], call.args[1:], call.keywords)
        if dotted == "triton.cdiv" and len(call.args) == 2:
            x, y = call.args
            rounded = self.binary("sub", self.binary("add", x, y, node), Literal(1), node)
            result = self.binary("floordiv", rounded, y, node)
            if isinstance(result, int):
                self.b.ops[result].attrs = {"cdiv": True}
            return result
        head, _, last = dotted.rpartition(".")
        if head == "torch" and last in ALLOCATIONS:
            return self._allocation(last, dotted, call)
        made = gluon_calls.layout(dotted, call.args, call.keywords)
        if made is not None:
            return made
        if dotted.endswith(DESCRIPTORS):
            return self._descriptor(dotted, call)
        if dotted.startswith("torch.ops."):
            parts = dotted.split(".")[2:4]
            operator = self.operators.get(".".join(parts)) or self.operators.get(f"*.{parts[-1]}")
            if operator is not None:
                return self.call(operator, call)
        constant = self._evaluated(dotted, call)
        if constant is not None:
            return constant
        return self.host_call(dotted, call)

    def _compiled(self, call: Call) -> Value:
        """`cute.compile(function, …)` traces the function, launches included; its result is called later."""
        rest = {name: one for name, one in call.keywords.items() if name not in ("options",)}
        if isinstance(call.args[0], (Func, KernelDef, Class, Instance, Partial)):
            self.call(call.args[0], Call(call.node, call.args[1:], rest))
        return self.host_call("cutlass.cute.compile", Call(call.node, call.args[1:], rest))

    def _evaluated(self, dotted: str, call: Call) -> Value | None:
        """Pure functions of constants, and queries that the target architecture answers."""
        plain = [one.value for one in call.args if isinstance(one, Literal)]
        if len(plain) != len(call.args) or call.keywords:
            return None
        if dotted.endswith("get_device_properties"):
            return None  # its attributes are asked for by name: the number of multiprocessors stays symbolic
        if dotted in ("os.getenv", "os.environ.get"):
            return None  # a call that asks each time may get another answer than the default
        try:
            made = self.from_python(self.interp.call(Named(dotted), tuple(plain), {}, self.module), call.node)
        except (NotConstant, ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
            return None
        return None if isinstance(made, Opaque) else made

    def _builtin(self, name: str, call: Call) -> Value:
        node, args = call.node, call.args
        match name:
            case "range" if args:
                bounds = [self.ref(one, node) for one in args[:3]]
                start = self.b.const(0, self.place(node)) if len(bounds) == 1 else bounds[0]
                step = bounds[2] if len(bounds) == 3 else self.b.const(1, self.place(node))
                return Range("for", start, bounds[0] if len(bounds) == 1 else bounds[1], step)
            case "len" if len(args) == 1 and isinstance(args[0], Tup):
                return Literal(len(args[0].items))
            case "len" if len(args) == 1:
                return self.query("len", self.ref(args[0], node), node)
            case "min" | "max" if len(args) >= 2:
                result = args[0]
                for one in args[1:]:
                    result = self.binary(name, result, one, node)
                return result
            case "int" | "float" | "bool" if len(args) == 1:
                if isinstance(args[0], Literal) and isinstance(args[0].value, (int, float)):
                    made: int | float = {"int": int, "float": float, "bool": bool}[name](args[0].value)
                    return Literal(made)
                dtype = {"int": "i64", "float": "f64", "bool": "bool"}[name]
                return self.b.emit(Kind.CAST, "cast", (self.ref(args[0], node),), self.place(node), NO_ATTRS, dtype)
            case "abs" if len(args) == 1:
                return self.operation("abs", (self.ref(args[0], node),), node)
            case "tuple" | "list" if len(args) == 1 and isinstance(args[0], Tup):
                return args[0]
            case "tuple" | "list" if not args:
                return Tup(())
            case "dict" if not args:
                entries: dict[Constant, Value] = {}
                entries.update(call.keywords)
                return Dict(entries, bool(call.spread))
            case "zip" if args and all(isinstance(one, Tup) for one in args):
                columns = [one.items for one in args if isinstance(one, Tup)]
                return Tup(tuple(Tup(row) for row in zip(*columns, strict=False)))
            case "enumerate" if len(args) == 1 and isinstance(args[0], Tup):
                return Tup(tuple(Tup((Literal(at), one)) for at, one in enumerate(args[0].items)))
            case "print":
                return Literal(None)
            case "super":
                return Opaque("super")
            case _:
                return self.host_call(name, call)

    def _allocation(self, name: str, callee: str, call: Call, like: int = NONE) -> Value:
        node = call.node
        sizes: tuple[Value, ...] = call.args
        if name.endswith("_like"):
            source = self.ref(call.args[0], node) if call.args else NONE
            shape = self.b.ops[source].shape if source != NONE else None
            args: tuple[int, ...] = (source,)
            inherited = self.b.ops[source].dtype if source != NONE else None
        else:
            size = call.keywords.get("size")
            if size is not None:
                sizes = (size, *sizes)
            if sizes and isinstance(sizes[0], Tup):
                sizes = sizes[0].items
            elif name in ("full", "tensor", "randint", "empty_strided"):
                sizes = sizes[:1]
            args = tuple(self.ref(one, node) for one in sizes)
            scalars = all(
                not isinstance(one, int)
                or self.b.ops[one].kind is not Kind.ATTRIBUTE
                or self.b.ops[one].name != "shape"
                for one in args
            )
            shape = args if args and scalars and name not in ("tensor", "arange") else None
            inherited = None if name != "new" else self.b.ops[like].dtype
        wanted = call.keywords.get("dtype")
        dtype = wanted.name if isinstance(wanted, DType) else (inherited if wanted is None else None)
        attrs: dict[str, AttrValue] = {"callee": callee}
        return self.b.emit(Kind.HOST_ALLOC, name, args, self.place(node), attrs, dtype, shape)

    def _descriptor(self, dotted: str, call: Call) -> Value:
        node = call.node
        names = (
            ("base", "block_shape") if dotted.endswith("from_tensor") else ("base", "shape", "strides", "block_shape")
        )
        given = {**dict(zip(names, call.args, strict=False)), **call.keywords}
        block = given.get("block_shape", given.get("tensor"))
        base = given.get("base", given.get("tensor"))
        sizes = tuple(self.ref(one, node) for one in block.items) if isinstance(block, Tup) else None
        args = [NONE if base is None else self.ref(base, node)]
        for name in ("shape", "strides"):
            value = given.get(name)
            if value is not None:
                args.extend(self.ref(one, node) for one in (value.items if isinstance(value, Tup) else (value,)))
        attrs: dict[str, AttrValue] = {"host": True}
        if sizes is not None:
            known = [self.b.known[one] for one in sizes]
            attrs["rank"] = len(sizes)
            if UNKNOWN not in known:
                attrs["block"] = tuple(one for one in known if one is not UNKNOWN)
        dtype = None if args[0] == NONE else self.b.ops[args[0]].dtype
        return self.b.emit(Kind.DESCRIPTOR, "", tuple(args), self.place(node), attrs, dtype, sizes)

    def method(self, owner: Value, name: str, call: Call) -> Value:
        node = call.node
        match owner:
            case KernelDef():
                if name in ("run", "warmup"):
                    grid = call.keywords.get("grid", Opaque("grid"))
                    rest = {key: one for key, one in call.keywords.items() if key != "grid"}
                    return self.launch(owner, grid, Call(node, call.args, rest, call.spread))
                return self.host_call(f"{owner.name}.{name}", call)
            case Partial(KernelDef() as kernel, args, keywords) if name == "launch":
                return self._cute_launch(kernel, Call(node, args, keywords), call)
            case Class():
                return self._class_method(owner, name, call)
            case Instance(cls, _, whole):
                made = initial_value(cls, name)
                callee = self.dotted_callee(made, cls.module) if made is not None else ""
                extra = {"callee": callee} if callee else {}
                first = (whole,) if whole != NONE else ()
                return self.host_call(f"self.{name}", call, first, **extra)
            case Tup(items) if name in ("append", "extend") and call.args:
                self._appended(node, items, call.args[0], name)
                return Literal(None)
            case Tup() | Dict() | Literal():
                found = self._pure_method(owner, name, call)
                if found is not None:
                    return found
            case Named(dotted):
                return self.named_call(f"{dotted}.{name}", call)
            case Layout():
                return Opaque("layout")
            case Opaque(what):
                return self.host_call(f"{what}.{name}" if what.isidentifier() else f".{name}", call)
            case _:
                pass
        return self._tensor_method(self.ref(owner, node), name, call)

    def dotted_callee(self, value: ast.expr, module: Module) -> str:
        """The dotted name of what a field was constructed with."""
        if not isinstance(value, ast.Call):
            return ""
        self.frames.append(Frame(module, {}, value, 0, NONE))
        try:
            return self.dotted(value.func)
        finally:
            self.frames.pop()

    def _appended(self, node: ast.Call, items: tuple[Value, ...], value: Value, name: str) -> None:
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            more = value.items if name == "extend" and isinstance(value, Tup) else (value,)
            if len(items) + len(more) <= 256 and self.b.loop == NONE:
                self.env[node.func.value.id] = Tup(items + more)

    def _pure_method(self, owner: Tup | Dict | Literal, name: str, call: Call) -> Value | None:
        if isinstance(owner, Dict):
            if name == "get" and call.args:
                key = self.constant(call.args[0])
                if key is not UNKNOWN and (key in owner.items or not owner.open):
                    return owner.items.get(key, call.args[1] if len(call.args) > 1 else Literal(None))
            if name == "values":
                return Tup(tuple(owner.items.values()))
            if name == "items":
                return Tup(tuple(Tup((Literal(key), one)) for key, one in owner.items.items()))
        if isinstance(owner, Literal) and isinstance(owner.value, str):
            return Opaque("text")
        return None

    def _tensor_method(self, owner: int, name: str, call: Call) -> Value:
        node = call.node
        if name in ("size", "stride"):
            whole = self.query("shape" if name == "size" else "stride", owner, node)
            given = call.args or tuple(call.keywords.values())
            if not given:
                return whole
            at = self.constant(given[0])
            if isinstance(at, int):
                draft = self.b.ops[owner]
                if name == "size" and draft.shape and -len(draft.shape) <= at < len(draft.shape):
                    return draft.shape[at]
                return self.item(whole, at, node)
            return self.b.emit(Kind.SHAPE, "index", (whole, self.ref(given[0], node)), self.place(node))
        if name in ATTRIBUTE_METHODS:
            return self.query(name, owner, node)
        if name in METHOD_ALLOCATIONS:
            return self._allocation(METHOD_ALLOCATIONS[name], f".{name}", call, owner)
        value = self.host_call(f".{name}", call, (owner,))
        self.b.ops[value].dtype = self._method_dtype(owner, name, call)
        return value

    def _method_dtype(self, owner: int, name: str, call: Call) -> str | None:
        """The element type of what a tensor's method returns."""
        if name in KEEPING:
            return self.b.ops[owner].dtype
        if name in CASTING:
            return CASTING[name]
        if name in ("to", "type", "view"):
            for one in (*call.args, *call.keywords.values()):
                if isinstance(one, DType):
                    return one.name
            return self.b.ops[owner].dtype if name != "type" else None
        return None

    def _class_method(self, cls: Class, name: str, call: Call) -> Value:
        """`Function.apply` runs `forward`; anything else that the class does not define is a call by name."""
        if name == "apply":
            forward = class_function(cls, "forward")
            if forward is not None:
                func = Func(forward, cls.module, f"{cls.node.name}.forward")
                backward = class_function(cls, "backward")
                if backward is not None:
                    self.inlined.add(id(backward))
                self.inlined.add(id(forward))
                context = Instance(cls, {}, self.b.emit(Kind.PARAM, "ctx", (), self.place(call.node)))
                takes_context = bool(forward.args.args) and forward.args.args[0].arg in ("ctx", "self", "context")
                args = (context, *call.args) if takes_context else call.args
                return self.inline(func, Call(call.node, args, call.keywords, call.spread), call.node)
        return self.host_call(f"{cls.node.name}.{name}", call)

    def construct(self, cls: Class, call: Call) -> Value:
        value = self.host_call(cls.node.name, call)
        names = [
            one.target.id
            for one in cls.node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        init = class_function(cls, "__init__")
        fields: dict[str, Value] = {}
        if init is None:
            fields = {**dict(zip(names, call.args, strict=False)), **call.keywords}
        else:
            self.inlined.add(id(init))
            func = Func(init, cls.module, f"{cls.node.name}.__init__", owner=Instance(cls, {}, value))
            self.frames.append(
                Frame(cls.module, self.bind(func, call, call.node), init, len(self.b.guards), self.b.loop)
            )
            calls = self.b.calls
            self.b.calls = (*calls, self.place(call.node))
            try:
                if len(self.frames) < 12:
                    self.block(init.body)
                made = self.env.get(init.args.args[0].arg) if init.args.args else None
                fields = dict(made.fields) if isinstance(made, Instance) else {}
            finally:
                self.frames.pop()
                self.b.calls = calls
        return Instance(cls, fields, value)

    def _call_object(self, owner: Instance, cls: Class, call: Call) -> Value:
        """An object that is called: `__call__`, or `forward` of a module."""
        for name in ("__call__", "forward"):
            found = class_function(cls, name)
            if found is not None:
                func = Func(found, cls.module, f"{cls.node.name}.{name}", owner=owner)
                return self.call(func, call)
        return self.host_call(cls.node.name, call, (self.ref(owner, call.node),))

    # launches

    def launch(self, kernel: Value, grid: Value, call: Call) -> Value:
        node = call.node
        if isinstance(kernel, (Choice,)):
            return self.choose(Choice(kernel.condition, Gridded(kernel.yes, grid), Gridded(kernel.no, grid)), call)
        if not isinstance(kernel, KernelDef):
            name = self.dotted(node.func.value) if isinstance(node.func, ast.Subscript) else self.dotted(node.func)
            return self.host_call(name, call, self.grid(grid, {}, node), launch=True)
        self.referenced.discard(id(kernel.func.node))
        func_node = kernel.func.node
        names = [] if isinstance(func_node, ast.Lambda) else [one.arg for one in parameters(func_node)]
        if kernel.func.owner is not None:
            names = names[1:]
        arguments: dict[str, Value] = dict(zip(names, call.args, strict=False))
        options: dict[str, Value] = {}
        for name, value in call.keywords.items():
            if name in names or name not in LAUNCH_OPTIONS:
                arguments[name] = value
            else:
                options[name] = value
        sizes = self.grid(grid, arguments, node)
        args = (*sizes, *(self.ref(one, node) for one in (*arguments.values(), *call.spread)))
        names = [*arguments, *("*" for _ in call.spread)]
        attrs: dict[str, AttrValue] = {"grid": len(sizes), "params": tuple(names)}
        value = self.b.emit(Kind.LAUNCH, kernel.name, args, self.place(node), attrs)
        self.sites.append(Site(kernel, value, arguments, options))
        return value

    def _cute_launch(self, kernel: KernelDef, arguments: Call, call: Call) -> Value:
        """`kernel(…).launch(grid=…, block=…, cluster=…)` of the CuTe DSL."""
        value = self.launch(kernel, call.keywords.get("grid", Opaque("grid")), arguments)
        site = self.sites.pop()
        options = {name: one for name, one in call.keywords.items() if name in ("block", "cluster", "use_pdl", "smem")}
        self.sites.append(Site(site.kernel, site.value, site.arguments, options))
        return value

    def grid(self, grid: Value, arguments: Mapping[str, Value], node: ast.AST) -> tuple[int, ...]:
        """The grid's sizes as operations, () if its form is not known."""
        match grid:
            case Tup(items):
                return tuple(self.ref(one, node) for one in items)
            case Func() | Partial():
                call = Call(
                    ast.copy_location(ast.Call(func=ast.Name(id="grid", ctx=ast.Load()), args=[], keywords=[]), node),
                    (Meta(arguments),),
                    {},
                )
                result = self.call(grid, call)
                return () if isinstance(result, (Func, Partial)) else self.grid(result, arguments, node)
            case int() | Literal() | Bound():
                return (self.ref(grid, node),)
            case _:
                return ()


@lru_cache(maxsize=256)
def _globals(function: ast.AST) -> frozenset[str]:
    """Names that a function declares global."""
    return frozenset(name for node in walk(function) if isinstance(node, ast.Global) for name in node.names)


def _names_dtype(node: ast.expr) -> bool:
    """`x.dtype` or `torch.float16`: an expression that costs nothing to look at."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_kernel(value: Value) -> bool:
    return isinstance(value, KernelDef) or (isinstance(value, Choice) and _is_kernel(value.yes))


def _takes_self(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {one.id for one in node.decorator_list if isinstance(one, ast.Name)}
    return not names & {"staticmethod"}


def class_function(cls: Class, name: str) -> ast.FunctionDef | None:
    for statement in cls.node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    return None


def is_main_block(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.left, ast.Name)
        and node.test.left.id == "__name__"
    )


__all__ = ["Host", "Site", "class_function", "defaults", "is_main_block"]
