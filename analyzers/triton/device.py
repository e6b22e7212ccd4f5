"""Kernel code: expressions become tile operations with shapes and element types; helpers are inlined."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from d2k.analyzers.core.drafts import NO_ATTRS
from d2k.analyzers.triton.builder import Builder
from d2k.analyzers.triton.interp import Interp, NotConstant, capability
from d2k.analyzers.triton.lowering import Call, Flow, Frame, Lowering, defaults
from d2k.analyzers.triton.module import Module
from d2k.analyzers.triton.nodes import children, walk
from d2k.analyzers.triton.types import BITS, NAMES, is_float, named_dtype, promote
from d2k.analyzers.triton.values import (
    UNKNOWN,
    Bound,
    Choice,
    Class,
    Dict,
    DType,
    Element,
    Func,
    Gridded,
    Instance,
    KernelDef,
    Known,
    Layout,
    Literal,
    Meta,
    Named,
    Opaque,
    Partial,
    Range,
    Region,
    Slice,
    Tiles,
    Tup,
    Value,
    as_python,
)
from d2k.spec.facts import NONE, AttrValue, Kind, Mention, Place

NOTHING: Value = Literal(None)

Shape = tuple[int, ...] | None

UNSAID: Mapping[str, str] = {
    "cutile": "how cuTile realises loads, stores and loops",
    "tilelang": "how TileLang realises copies, products and pipelines",
    "cute_dsl": "the layout algebra and the copy and MMA atoms of the CuTe DSL",
}
"""Languages whose compilers choose what the source does not say, and what that is."""

LANGUAGES = ("triton.language.", "triton.experimental.gluon.language.")


class Args:
    """The arguments of a known function by parameter name."""

    __slots__ = ("device", "node", "rest", "values")

    def __init__(self, device: Device, node: ast.Call, names: Sequence[str], call: Call) -> None:
        self.device = device
        self.node = node
        self.values: dict[str, Value] = dict(zip(names, call.args, strict=False))
        self.rest: tuple[Value, ...] = call.args[len(names) :]
        self.values.update(call.keywords)

    def get(self, name: str) -> Value | None:
        return self.values.get(name)

    def value(self, name: str, default: Value = NOTHING) -> Value:
        """An argument, or what stands for it where it is not given; operation 0 is a value too."""
        value = self.values.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and not (isinstance(value, Literal) and value.value is None)

    def op(self, name: str) -> int:
        """The operation behind an argument, NONE if it is not given or None."""
        value = self.values.get(name)
        if value is None or (isinstance(value, Literal) and value.value is None):
            return NONE
        return self.device.ref(value, self.node)

    def const(self, name: str) -> Known:
        """A compile-time argument; None if it is not given."""
        value = self.values.get(name)
        return None if value is None else self.device.constant(value)

    def text(self, name: str) -> str:
        value = self.const(name)
        return value if isinstance(value, str) else ""

    def flag(self, name: str) -> bool:
        return self.const(name) is True

    def integer(self, name: str) -> int | None:
        value = self.const(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def literal(self, name: str) -> Known:
        """A number that the source writes as such: what is computed from constants differs from variant to variant."""
        value = self.values.get(name)
        if isinstance(value, int) and self.device.b.ops[value].kind is Kind.CONST:
            return self.device.b.known[value]
        return value.value if isinstance(value, Literal) else UNKNOWN

    def items(self, name: str) -> tuple[Value, ...]:
        """The items of a tuple argument; a single value counts as a tuple of one."""
        value = self.values.get(name)
        if value is None or (isinstance(value, Literal) and value.value is None):
            return ()
        return value.items if isinstance(value, Tup) else (value,)

    def integers(self, name: str) -> tuple[int, ...]:
        found = []
        for item in self.items(name):
            known = self.device.constant(item)
            if not isinstance(known, int) or isinstance(known, bool):
                return ()
            found.append(known)
        return tuple(found)


Handler = Callable[["Device", Args], Value]


class Device(Lowering):
    """Lowers one kernel under the constants of `builder`."""

    def __init__(self, module: Module, builder: Builder, interp: Interp) -> None:
        super().__init__(module, builder, interp)
        self.language = "triton"
        self.blocks: Mapping[str, tuple[int | str, ...]] = {}
        """Block shapes of descriptors that host code made, by kernel parameter."""
        self.dtypes: Mapping[str, str] = {}
        """Element types of what parameters point to, where host code says them."""
        self.kernel_params: dict[str, int] = {}

    def kernel(self, kernel: KernelDef, bound: Mapping[str, Value]) -> None:
        """Lowers a kernel's body; `bound` are parameters that stand for something else than a run-time value."""
        func = kernel.func
        node = func.node
        env: dict[str, Value] = self.closure(func, node)
        self.frames.append(Frame(func.module, env, node, 0, NONE))
        try:
            if isinstance(node, ast.Lambda):
                return
            self.language = kernel.language
            self.note_language(node)
            self._captured(func, env)
            given = dict(defaults(func))
            for position, one in enumerate(parameters(node)):
                if position == 0 and func.owner is not None:
                    env[one.arg] = func.owner if not _has_operation(func.owner) else _detached(func.owner)
                    continue
                attrs: dict[str, AttrValue] = {}
                if is_constexpr(one, func.module):
                    attrs["constexpr"] = True
                value = self.b.emit(Kind.PARAM, one.arg, (), self.place(one), attrs, None, ())
                self.b.ops[value].variable = one.arg
                self.kernel_params[one.arg] = value
                env[one.arg] = bound.get(one.arg, value)
                if attrs and one.arg not in self.b.constants and one.arg not in bound and one.arg in given:
                    default = self._in_module(func.module, given[one.arg])
                    if isinstance(default, (DType, Func, KernelDef, Named, Tup)):
                        env[one.arg] = default
            if node.args.vararg is not None:
                env[node.args.vararg.arg] = self.b.emit(Kind.PARAM, node.args.vararg.arg, (), self.place(node))
            self.block(node.body)
        finally:
            self.frames.pop()

    def note_language(self, node: ast.AST) -> None:
        """What a body in this language leaves to its compiler."""
        if self.language in UNSAID:
            self.b.unresolved.append(Mention(self.language, "", UNSAID[self.language], self.place(node)))

    def _captured(self, func: Func, env: dict[str, Value]) -> None:
        """Variables of the enclosing function: constants of the kernel whose values its maker chooses."""
        if not env and "." not in func.qualname:
            return
        for name, node in free_names(func.node).items():
            value = env.get(name)
            if isinstance(value, (int, Literal)) or (value is None and self._is_enclosed(name, func)):
                env[name] = self.b.emit(
                    Kind.PARAM, name, (), func.module.place(node), {"constexpr": True, "closure": True}, None, ()
                )
        for name, value in list(env.items()):
            if not isinstance(value, int) and _has_operation(value):
                env[name] = Opaque(name)

    def _is_enclosed(self, name: str, func: Func) -> bool:
        """Whether a function around this one binds the name."""
        for qualname, _, around in func.module.functions:
            if qualname == func.qualname:
                return any(
                    isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and name in bound_names(one)
                    for one in around
                )
        return False

    # hooks

    def named(self, value: Named) -> Value:
        dtype = named_dtype(value.dotted)
        return value if dtype is None else DType(dtype)

    def operation(self, name: str, args: tuple[int, ...], node: ast.AST) -> int:
        """An elementwise operation on broadcast operands."""
        return self.b.emit(
            Kind.ELEMENTWISE, name, args, self.place(node), NO_ATTRS, self.result_type(name, args), self.broadcast(args)
        )

    def elementwise(self, name: str, args: tuple[int, ...], node: ast.AST, attrs: Mapping[str, AttrValue]) -> int:
        value = self.operation(name, args, node)
        if attrs:
            self.b.ops[value].attrs = attrs
        return value

    def result_type(self, name: str, args: tuple[int, ...]) -> str | None:
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            return "bool"
        operands = args[1:] if name == "where" else args
        drafts = [self.b.ops[arg] for arg in operands if arg != NONE]
        # a literal takes the type of the other operand, unless it brings a fraction into integers
        typed = [one for one in drafts if one.kind is not Kind.CONST] or drafts
        result = typed[0].dtype if typed else None
        for one in typed[1:]:
            result = promote(result, one.dtype)
        if result is not None and not is_float(result) and any(one.dtype == "f32" for one in drafts):
            result = "f32"
        if name == "div" and result is not None and not is_float(result):
            result = "f32"
        return result

    def broadcast(self, args: tuple[int, ...]) -> Shape:
        shape: Shape = ()
        for arg in args:
            if arg == NONE:
                continue
            other = self.b.ops[arg].shape
            if shape is None or other is None:
                return None
            shape = self._broadcast_two(shape, other)
        return shape

    def _broadcast_two(self, left: tuple[int, ...], right: tuple[int, ...]) -> Shape:
        if not left or not right or left == right:
            return left or right
        if len(left) < len(right):
            left, right = right, left
        lead = len(left) - len(right)
        return left[:lead] + tuple(self._wider(a, b) for a, b in zip(left[lead:], right, strict=True))

    def _wider(self, left: int, right: int) -> int:
        if left == right:
            return left
        return right if self.is_one(left) else left

    def is_one(self, dim: int) -> bool:
        return self.b.decide(dim, _is_one) is True

    def unknown(self, what: str, node: ast.AST, args: tuple[int, ...] = ()) -> int:
        self.b.unresolved.append(Mention(what, "", "a construct that is not followed", self.place(node)))
        return self.b.emit(Kind.CALL, what, args, self.place(node))

    def global_expression(self, name: str, node: ast.expr, module: Module) -> Value:
        if isinstance(node, (ast.Tuple, ast.Attribute, ast.Name)) or self._makes_layout(node, module):
            value = self.lowered(module, node)
            if isinstance(value, (DType, Named, Func, KernelDef, Layout)):
                return value
        # a module-level constant whose value only a run can tell
        return self.b.emit(Kind.CONST, name, (), module.place(node))

    def _makes_layout(self, node: ast.expr, module: Module) -> bool:
        if not isinstance(node, ast.Call):
            return False
        try:
            callee = self.interp.eval(node.func, {}, module)
        except NotConstant:
            return False
        return isinstance(callee, Named) and "Layout" in callee.dotted

    # types

    def dtype(self, value: Value | None) -> DType:
        match value:
            case DType():
                return value
            case Literal(str() as text):
                return DType(NAMES.get(text, text if text in BITS else None))
            case int():
                known = self.constant(value)
                return DType(NAMES.get(known, known)) if isinstance(known, str) else DType(None)
            case _:
                return DType(None)

    def cast(self, value: int, to: DType, node: ast.AST, bitcast: bool = False) -> int:
        attrs: dict[str, AttrValue] = {}
        if to.name is None and to.of != NONE and self.b.ops[to.of].kind is Kind.PARAM:
            attrs["dtype_of"] = self.b.ops[to.of].name
        name = "bitcast" if bitcast else "cast"
        return self.b.emit(Kind.CAST, name, (value,), self.place(node), attrs, to.name, self.b.ops[value].shape)

    def shape_of(self, items: Sequence[Value], node: ast.AST) -> tuple[int, ...]:
        return tuple(self.ref(one, node) for one in items)

    def one(self, node: ast.AST) -> int:
        return self.b.const(1, self.place(node))

    # attributes and items

    def attribute(self, owner: Value, name: str, node: ast.Attribute) -> Value:
        if isinstance(owner, int):
            draft = self.b.ops[owner]
            match name:
                case "dtype" | "type":
                    return DType(draft.dtype or self.element_type(owner), owner)
                case "shape" if draft.shape:
                    return Tup(draft.shape)
                case "layout" if self.is_descriptor(owner):
                    return Layout("NVMMASharedLayout", {})
                case "layout":
                    return Opaque(name)
                case "block_shape" if (block := self.block_shape(owner, node)) is not None:
                    return Tup(block)
                case "T":
                    return self.transposed(owner, node)
                case "value":
                    return owner
                case _:
                    return Bound(owner, name)
        if isinstance(owner, DType):
            match name:
                case "element_ty" | "scalar" | "dtype":
                    return owner
                case "primitive_bitwidth" | "itemsize" if owner.name is not None:
                    return Literal(BITS[owner.name] // (1 if name == "primitive_bitwidth" else 8))
                case "primitive_bitwidth" | "itemsize" if owner.of != NONE:
                    return self.b.emit(Kind.ATTRIBUTE, name, (owner.of,), self.place(node), NO_ATTRS, "i32", ())
                case _:
                    return Bound(owner, name)
        if isinstance(owner, Layout):
            return owner.fields.get(name, Opaque("layout"))
        if isinstance(owner, Instance):
            known = initial_value(owner.cls, name)
            if known is not None:
                try:
                    return self.from_python(self.interp.eval(known, {}, owner.cls.module), node)
                except NotConstant:
                    pass
        if name == "value" and isinstance(owner, (Literal, Tup, Func)):
            return owner
        return Bound(owner, name)

    def block_shape(self, descriptor: int, node: ast.AST) -> Shape:
        """The tile shape that loads through a descriptor give."""
        at = descriptor
        for _ in range(64):
            draft = self.b.ops[at]
            if draft.kind is Kind.PHI and draft.args and draft.args[0] >= 0:
                at = draft.args[1] if draft.name == "if" else draft.args[0]
                continue
            if draft.kind is Kind.DESCRIPTOR:
                return draft.shape
            if draft.kind is Kind.PARAM and draft.name in self.blocks:
                return tuple(self._size(one, node) for one in self.blocks[draft.name])
            break
        return None

    def is_memory(self, value: int) -> bool:
        """Whether a value names on-chip memory or a part of it."""
        draft = self.b.ops[value]
        while draft.kind is Kind.SHAPE and draft.args:
            draft = self.b.ops[draft.args[0]]
        return draft.kind is Kind.ALLOC

    def is_descriptor(self, value: int) -> bool:
        """Whether a value is, for all that is known, a tensor map: one made here or a kernel's parameter."""
        draft = self.b.ops[value]
        return draft.kind is Kind.DESCRIPTOR or (draft.kind is Kind.PARAM and not draft.attrs)

    def _size(self, size: int | str, node: ast.AST) -> int:
        if isinstance(size, int):
            return self.b.const(size, self.place(node))
        found = self.kernel_params.get(size)
        return self.b.emit(Kind.CONST, size, (), self.place(node)) if found is None else found

    def element_type(self, address: int) -> str | None:
        """The element type of what an address or descriptor points to, where host code says it."""
        for _ in range(64):
            draft = self.b.ops[address]
            if draft.kind is Kind.PARAM:
                return self.dtypes.get(draft.name)
            if draft.kind is Kind.ELEMENTWISE and draft.name in ("add", "sub"):
                address = next((arg for arg in draft.args if self._points(arg)), NONE)
            elif draft.kind is Kind.PHI and draft.args:
                address = draft.args[1] if draft.name == "if" else draft.args[0]
            elif draft.kind in (Kind.SHAPE, Kind.CONTROL, Kind.DESCRIPTOR) and draft.args:
                address = draft.args[0]
            else:
                return None
            if address < 0:
                return None
        return None

    def _points(self, value: int) -> bool:
        """Whether a parameter with a known element type is behind a sum."""
        for _ in range(64):
            draft = self.b.ops[value]
            if draft.kind is Kind.PARAM:
                return draft.name in self.dtypes
            follow = draft.kind in (Kind.SHAPE, Kind.CONTROL, Kind.DESCRIPTOR, Kind.PHI) or (
                draft.kind is Kind.ELEMENTWISE and draft.name in ("add", "sub")
            )
            if not follow or not draft.args:
                return False
            value = draft.args[1] if draft.kind is Kind.PHI and draft.name == "if" else draft.args[0]
            if value < 0:
                return False
        return False

    def transposed(self, value: int, node: ast.AST) -> int:
        shape = self.b.ops[value].shape
        flipped = None if shape is None else tuple(reversed(shape))
        return self.reshaped("trans", value, flipped, node)

    def reshaped(
        self, name: str, value: int, shape: Shape, node: ast.AST, attrs: Mapping[str, AttrValue] = NO_ATTRS
    ) -> int:
        return self.b.emit(Kind.SHAPE, name, (value,), self.place(node), attrs, self.b.ops[value].dtype, shape)

    def subscript(self, owner: Value, index: Value, node: ast.Subscript) -> Value:
        if isinstance(owner, int):
            parts = index.items if isinstance(index, Tup) else (index,)
            if self.language in UNSAID and self.b.ops[owner].kind in (Kind.PARAM, Kind.ALLOC, Kind.CALL):
                return Element(owner, tuple(self._start(one, node) for one in parts))
            if self.is_memory(owner):
                draft = self.b.ops[owner]
                args = (owner, *(self.ref(one, node) for one in parts))
                inner = draft.shape[len(parts) :] if draft.shape else None
                return self.b.emit(Kind.SHAPE, "index", args, self.place(node), NO_ATTRS, draft.dtype, inner)
            if parts and all(_full_or_new(one) for one in parts):
                return self._expanded(owner, parts, node)
            at = self.constant(index)
            if isinstance(at, int):
                return self.b.emit(Kind.ITEM, "", (owner,), self.place(node), {"index": at}, None, ())
            args = (owner, *(self.ref(one, node) for one in parts))
            return self.b.emit(Kind.SHAPE, "index", args, self.place(node))
        if isinstance(owner, Tup) and not isinstance(index, Slice):
            # an item that a loop variable selects: any of them
            args = (*(self.ref(one, node) for one in owner.items), self.ref(index, node))
            first = self.b.ops[args[0]]
            return self.b.emit(Kind.SHAPE, "index", args, self.place(node), NO_ATTRS, first.dtype, first.shape)
        if isinstance(owner, (Func, KernelDef)):
            return owner
        if isinstance(owner, Bound):
            return self.subscript(self.ref(owner, node), index, node)
        return self.unknown("subscript", node)

    def _start(self, index: Value, node: ast.AST) -> int:
        """An index; a slice counts by where it starts."""
        if isinstance(index, Slice):
            return self.ref(Literal(0) if index.start is None else index.start, node)
        return self.ref(index, node)

    def _expanded(self, owner: int, parts: tuple[Value, ...], node: ast.AST) -> int:
        """`x[:, None]`: a new axis for each None."""
        shape = self.b.ops[owner].shape
        axes = tuple(at for at, one in enumerate(parts) if isinstance(one, Literal))
        new: Shape = None
        if shape is not None:
            kept = iter(shape)
            new = tuple(self.one(node) if isinstance(one, Literal) else next(kept, NONE) for one in parts)
            new = (*new, *kept)
            if NONE in new:  # more axes than the tile has: a scalar splat
                new = tuple(self.one(node) if dim == NONE else dim for dim in new)
        if not axes:
            return owner
        return self.reshaped("expand_dims", owner, new, node, {"axes": axes})

    def store_subscript(self, owner: Value, index: Value, value: Value, node: ast.Subscript) -> None:
        if isinstance(owner, int) and self.language in UNSAID:
            parts = index.items if isinstance(index, Tup) else (index,)
            stored = self.ref(value, node)
            indices = tuple(self._start(one, node) for one in parts)
            attrs: dict[str, AttrValue] = {"space": self.space(owner), "via": "array"}
            args = (owner, stored, NONE, *indices)
            self.b.emit(Kind.STORE, "store", args, self.place(node), attrs, self.b.ops[stored].dtype)
            return
        self.b.unresolved.append(Mention("[]=", "", "a store into an item", self.place(node)))

    def run_For(self, node: ast.For | ast.AsyncFor) -> Flow:
        """A parallel loop is no loop: its body runs once, on tiles."""
        iterated = self.eval(node.iter)
        if isinstance(iterated, Tiles):
            axes = iterated.axes
            self.assign(node.target, axes[0] if len(axes) == 1 else Tup(axes))
            return self.block(node.body)
        return self.iterate(node, iterated)

    def ref(self, value: Value, node: ast.AST) -> int:
        if isinstance(value, Element):
            draft = self.b.ops[value.owner]
            space = self.space(value.owner)
            args = (value.owner, NONE, *value.indices)
            attrs: dict[str, AttrValue] = {"space": space, "via": "array"}
            shape = self.broadcast(value.indices)
            return self.b.emit(Kind.LOAD, "load", args, self.place(node), attrs, draft.dtype, shape)
        return super().ref(value, node)

    def space(self, value: int) -> str:
        draft = self.b.ops[value]
        while draft.kind in (Kind.SHAPE, Kind.ITEM) and draft.args:
            draft = self.b.ops[draft.args[0]]
        if draft.kind is Kind.ALLOC:
            return str(draft.attrs.get("space", "unknown"))
        return "global" if draft.kind is Kind.PARAM else "unknown"

    def assign(self, target: ast.expr, value: Value) -> None:
        super().assign(target, self.ref(value, target) if isinstance(value, Element) else value)

    def run_With(self, node: ast.With | ast.AsyncWith) -> Flow:
        """`with` opens a role's region, or binds what its expression gives."""
        outer = self.b.partition
        for item in node.items:
            value = self.eval(item.context_expr)
            if isinstance(value, Region) and value.name:
                self.b.partition = value.name
                self.b.emit(Kind.CONTROL, "partition", (), self.place(item.context_expr), value.attrs)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
        flow = self.block(node.body)
        self.b.partition = outer
        return flow

    # calls

    def call(self, callee: Value, call: Call) -> Value:
        node = call.node
        match callee:
            case Func():
                return self.inline(callee, call, node)
            case KernelDef():
                return self.inline(callee.func, call, node)
            case Partial():
                joined = Call(node, (*callee.args, *call.args), {**callee.keywords, **call.keywords}, call.spread)
                return self.call(callee.func, joined)
            case Named(dotted):
                return self.named_call(dotted, call)
            case Bound(owner, name):
                return self.method(owner, name, call)
            case Class():
                return self.construct(callee, call)
            case Choice():
                return self.choose(callee, call)
            case DType() if call.args:
                return self.cast(self.ref(call.args[0], node), callee, node)
            case _:
                return self.unresolved(self.dotted(node.func), call)

    def evaluated(self, dotted: str, call: Call) -> Value | None:
        """A pure function of compile-time constants, None for anything else."""
        args = tuple(as_python(one) for one in call.args)
        keywords = {name: as_python(one) for name, one in call.keywords.items()}
        if UNKNOWN in args or UNKNOWN in keywords.values():
            return None
        try:
            return self.from_python(self.interp.call(Named(dotted), args, keywords, self.module), call.node)
        except (NotConstant, ArithmeticError, ValueError, TypeError, LookupError, AttributeError):
            return None

    def known_call(self, name: str, call: Call) -> int:
        """A call whose effect is covered by what is said of the whole body."""
        args = tuple(self.ref(one, call.node) for one in (*call.args, *call.spread, *call.keywords.values()))
        return self.b.emit(Kind.CALL, name, args, self.place(call.node))

    def unresolved(self, name: str, call: Call, why: str = "its code is not given") -> int:
        args = tuple(self.ref(one, call.node) for one in (*call.args, *call.spread, *call.keywords.values()))
        self.b.unresolved.append(Mention(name, "", why, self.place(call.node)))
        return self.b.emit(Kind.CALL, name, args, self.place(call.node))

    def named_call(self, dotted: str, call: Call) -> Value:
        from d2k.analyzers.triton import tile_calls

        return tile_calls.named_call(self, dotted, call)

    def method(self, owner: Value, name: str, call: Call) -> Value:
        from d2k.analyzers.triton import tile_calls

        return tile_calls.method_call(self, owner, name, call)

    def construct(self, cls: Class, call: Call) -> Value:
        """An object of a class whose fields are annotated (named tuple, data class, aggregate) or set in `__init__`."""
        for statement in cls.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                return self._initialised(cls, statement, call)
        names = [
            one.target.id
            for one in cls.node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        if not names:
            return self.unresolved(cls.node.name, call)
        return Instance(cls, {**dict(zip(names, call.args, strict=False)), **call.keywords})

    def _initialised(self, cls: Class, init: ast.FunctionDef, call: Call) -> Value:
        func = Func(init, cls.module, f"{cls.node.name}.__init__", owner=Instance(cls, {}))
        self.frames.append(Frame(cls.module, self.bind(func, call, call.node), init, len(self.b.guards), self.b.loop))
        calls = self.b.calls
        self.b.calls = (*calls, self.place(call.node))
        try:
            self.block(init.body)
            return self.env[init.args.args[0].arg] if init.args.args else Opaque(cls.node.name)
        finally:
            self.frames.pop()
            self.b.calls = calls

    # ranges

    def range_value(self, form: str, args: Args, attrs: Mapping[str, AttrValue]) -> Range:
        """`range(stop)`, `range(start, stop)` or `range(start, stop, step)`."""
        start, stop, step = args.get("arg1"), args.get("arg2"), args.get("step")
        if stop is None or (isinstance(stop, Literal) and stop.value is None):
            start, stop = Literal(0), start
        node = args.node
        return Range(
            form,
            self.ref(start if start is not None else Literal(0), node),
            self.ref(stop if stop is not None else Literal(None), node),
            self.ref(step if step is not None and not _none(step) else Literal(1), node),
            attrs,
        )

    def capability(self) -> tuple[int, int]:
        return capability(self.interp.target)


def _none(value: Value) -> bool:
    return isinstance(value, Literal) and value.value is None


def _is_one(known: Known) -> object:
    return known is not UNKNOWN and known == 1 and not isinstance(known, bool)


def _full_or_new(part: Value) -> bool:
    if isinstance(part, Slice):
        return part.start is None and part.stop is None and part.step is None
    return (isinstance(part, Literal) and part.value is None) or part == Opaque("ellipsis")


def _has_operation(value: Value) -> bool:
    """Whether a value refers to an operation, of whatever body."""
    match value:
        case int():
            return True
        case Tup(items, whole):
            return whole != NONE or any(_has_operation(one) for one in items)
        case Dict(items):
            return any(_has_operation(one) for one in items.values())
        case DType(_, of):
            return of != NONE
        case Bound(owner):
            return _has_operation(owner)
        case Instance(_, fields, whole):
            return whole != NONE or any(_has_operation(one) for one in fields.values())
        case Partial(_, args, keywords):
            return any(_has_operation(one) for one in (*args, *keywords.values()))
        case Range() | Choice() | Gridded() | Meta() | Element() | Tiles():
            return True
        case _:
            return False


def _detached(value: Value) -> Value:
    """An object without the fields that only its own body knows."""
    if isinstance(value, Instance):
        return Instance(value.cls, {name: one for name, one in value.fields.items() if not _has_operation(one)})
    return Opaque("self")


def free_names(node: ast.AST) -> dict[str, ast.Name]:
    """Names that a function reads and does not bind, with their first reading."""
    found: dict[str, ast.Name] = {}
    own = bound_names(node) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else frozenset()
    for one in walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id not in own:
            found.setdefault(one.id, one)
    return found


def bound_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Parameters and names that a function's own code assigns, functions inside it left out."""
    names = {one.arg for one in parameters(node)}
    stack: list[ast.AST] = list(node.body)
    while stack:
        one = stack.pop()
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(one.name)
        elif not isinstance(one, ast.Lambda):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                names.add(one.id)
            stack.extend(children(one))
    return frozenset(names)


def initial_value(cls: Class, name: str) -> ast.expr | None:
    """What `__init__` sets a field to, where it does so once."""
    found = [
        node.value
        for statement in cls.node.body
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__"
        for node in walk(statement)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == name
    ]
    return found[0] if len(found) == 1 else None


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def is_constexpr(parameter: ast.arg, module: Module) -> bool:
    """Whether the annotation says `constexpr`, whatever it is imported as."""
    at = parameter.annotation
    if isinstance(at, ast.Subscript):
        at = at.value
    if isinstance(at, ast.Constant) and isinstance(at.value, str):
        return at.value.rpartition(".")[2] == "constexpr"
    if isinstance(at, ast.Attribute):
        return at.attr in ("constexpr", "Constexpr", "Constant")
    if isinstance(at, ast.Name):
        alias = module.bindings.get(at.id)
        if isinstance(alias, ast.Subscript) and isinstance(alias.value, ast.Attribute):
            return alias.value.attr == "Constant"
        dotted = module.imports.get(at.id, at.id)
        return dotted.rpartition(".")[2] in ("constexpr", "Constexpr", "ConstInt", "ConstFloat", "ConstBool")
    return False


def constexpr_names(node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> frozenset[str]:
    return frozenset(one.arg for one in parameters(node) if is_constexpr(one, module))


__all__ = ["Args", "Device", "Handler", "Place", "constexpr_names", "is_constexpr", "parameters"]
