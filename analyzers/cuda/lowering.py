"""Lowering of one function, kernel or host, to a body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from d2k.analyzers.cuda.core import Context, describe
from d2k.analyzers.cuda.cpp_types import CType
from d2k.analyzers.cuda.frames import Frame
from d2k.analyzers.cuda.inline_ptx import InlinePtx
from d2k.analyzers.cuda.library import Library
from d2k.analyzers.cuda.library_calls import LibraryCalls
from d2k.analyzers.cuda.mentions import mentions_in
from d2k.analyzers.cuda.scope import ClassRef, FunctionRef
from d2k.analyzers.cuda.statements import Statements
from d2k.analyzers.cuda.syntax import Call, Node, TypeName
from d2k.analyzers.cuda.values import ArrayRef, External, Functions, ParamRef, Pointer, SlotRef, Thing, Tuple, Val
from d2k.spec.facts import AttrValue, Constant


@dataclass(frozen=True, slots=True)
class Portable:
    """A template argument outside of the body that it was computed in."""

    key: str
    constant: Constant = None
    type: CType | None = None
    ref: ClassRef | None = None
    args: tuple[tuple[str, Portable], ...] = ()
    function: Functions | None = None
    pack: tuple[Portable, ...] | None = None


@dataclass(slots=True)
class Lowering:
    """One launch's view of a kernel: template arguments by name."""

    bound: tuple[tuple[str, Portable], ...] = ()
    constants: dict[str, Constant] = field(default_factory=dict)


class Lowerer(InlinePtx, LibraryCalls, Statements):
    def __init__(self, context: Context, constants: Mapping[str, Constant], host: bool, library: Library) -> None:
        super().__init__(context, constants, host)
        self.library = library

    # template arguments

    def export(self, thing: Thing, depth: int = 0) -> Portable:
        key = self.key_of(thing)
        if isinstance(thing, Val):
            known = self.known(thing.id)
            return Portable(f"c{known!r}" if known is not None else "?", known)
        if isinstance(thing, CType):
            bare = replace(thing, dim_values=(), args=())
            if thing.instance is not None and depth < 8:
                instance = thing.instance
                args = tuple((name, self.export(arg, depth + 1)) for name, arg in instance.args.items())
                return Portable(key, None, replace(bare, instance=None), instance.ref, args)
            nested = (
                tuple((str(i), self.export(arg, depth + 1)) for i, arg in enumerate(thing.args)) if depth < 8 else ()
            )
            return Portable(key, None, replace(bare, instance=None), None, nested)
        if isinstance(thing, Functions):
            return Portable(key, function=replace(thing, targs=None, this=None, instance=None))
        if isinstance(thing, Tuple):
            return Portable(key, pack=tuple(self.export(item, depth + 1) for item in thing.items))
        return Portable("?")

    def import_(self, portable: Portable, name: str) -> Thing:
        """A template argument as a thing of this body; constants become parameters that fold to them."""
        if portable.type is not None:
            args = tuple((label, self.import_(arg, label)) for label, arg in portable.args)
            dims = tuple(self.const(extent, "i32") for extent in portable.type.dims)
            type_ = replace(portable.type, dim_values=dims)
            if portable.ref is None:
                return replace(type_, args=tuple(arg for _, arg in args))
            instance = self.instantiate(portable.ref, tuple(arg for _, arg in args), dict(args))
            return replace(type_, instance=instance, args=tuple(arg for _, arg in args))
        if portable.function is not None:
            return portable.function
        if portable.pack is not None:
            return Tuple(tuple(self.import_(item, f"{name}{i}") for i, item in enumerate(portable.pack)))
        if portable.constant is not None and not isinstance(portable.constant, str):
            return Val(self.const(portable.constant), CType("bool" if isinstance(portable.constant, bool) else "i32"))
        return self.open_constant(name)

    # functions

    def function(
        self,
        ref: FunctionRef,
        bound: Mapping[str, Portable],
        this: CType | None = None,
        instance_args: Mapping[str, Portable] | None = None,
    ) -> None:
        """Lowers a function whose parameters come from outside."""
        function = ref.function
        scope: dict[str, Thing] = {}
        frame = Frame(ref.unit, [scope], function.scope, name=function.name)
        self.frame, self.unit, self.at = frame, ref.unit, function.at
        for tparam in function.tparams:
            if not tparam.name:
                continue
            portable = bound.get(tparam.name)
            if portable is not None and portable.key != "?":
                thing = self.import_(portable, tparam.name)
                if isinstance(thing, Val):
                    # the parameter keeps its name, so that evidence can speak of it
                    thing = Val(self.param(tparam.name, thing.type, {"constexpr": True}), thing.type)
                scope[tparam.name] = thing
            elif tparam.pack:
                scope[tparam.name] = External(tparam.name)
            elif tparam.type is not None:
                scope[tparam.name] = self.open_constant(tparam.name)
            else:
                scope[tparam.name] = CType(name=tparam.name)
        frame.scopes.append({})
        for param in function.params:
            self.at = param.at
            pack = scope.get(param.type.base.name) if param.type.pack and param.type.base is not None else None
            if isinstance(pack, Tuple):
                parts = (
                    self.parameter(f"{param.name}{i}", one if isinstance(one, CType) else CType(), param.type)
                    for i, one in enumerate(pack.items)
                )
                self.bind(param.name, Tuple(tuple(parts)))
                continue
            type_ = self.resolve(param.type)
            if param.name:
                self.bind(param.name, self.parameter(param.name, type_, param.type))
        body = ref.unit.converter.body(function)
        if body is not None:
            self.at = function.at
            self.statement(body)

    def parameter(self, name: str, type_: CType, declared: TypeName) -> Thing:
        attrs: dict[str, AttrValue] = {}
        if type_.const and type_.pointer:
            attrs["const"] = True
        if type_.restrict:
            attrs["restrict"] = True
        if type_.dims:
            type_ = replace(type_, dims=type_.dims[1:], dim_values=type_.dim_values[1:], pointer=type_.pointer + 1)
        if not self.host and not type_.pointer and type_.dtype is None and type_.name not in ("CUtensorMap",):
            # a struct by value: its members are parameters of their own
            return ParamRef(name, replace(type_, reference=False))
        index = self.param(name, type_, attrs)
        if type_.pointer and not self.host:
            self.spaces[index] = "global"
            return SlotRef(self.new_slot(Pointer(index, type_.pointee(), "global")), type_)
        return SlotRef(self.new_slot(Val(index, replace(type_, reference=False, const=False))), type_)

    def dropped(self, node: Node, condition: int) -> None:
        draft = self.b.ops[condition]
        detail = draft.variable or draft.name or "constant condition"
        known = self.context.mentions.get(id(node))
        if known is None:
            found = mentions_in(node, self.unit, "disabled_branch", detail, self.library)
            known = self.context.mentions[id(node)] = (node, tuple(found))
        self.b.mentions.extend(known[1])

    def launch(self, node: Call) -> Thing:
        callee = self._callee(node)
        config = [self.evaluate(one) for one in node.launch or ()]
        args = [self.read(arg) if not isinstance(arg, ArrayRef) else arg for arg in self.arguments(node.args)]
        self.at = node.at
        return self.launch_kernel(callee, config, args, {})

    def launch_kernel(
        self, callee: Thing, config: list[Thing], args: list[Thing], options: dict[str, AttrValue]
    ) -> Thing:
        """A launch from device code: what it runs is not followed."""
        values = [self.val(arg).id for arg in args if isinstance(arg, (Val, Pointer))]
        return self.unknown(f"launch of {describe(callee)}", values)
