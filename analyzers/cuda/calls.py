"""Calls: functions of the given files are inlined, library functions become what they do, the rest stays."""

from __future__ import annotations

from msgspec.structs import replace

from d2k.analyzers.cuda.cpp_types import DIM3, UNKNOWN_TYPE, CType
from d2k.analyzers.cuda.expressions import Expressions
from d2k.analyzers.cuda.frames import Frame
from d2k.analyzers.cuda.parse import EMPTY
from d2k.analyzers.cuda.scope import FunctionRef
from d2k.analyzers.cuda.syntax import Call, Function, Init, Member, Name, Node, Opaque, Param, TypeName
from d2k.analyzers.cuda.type_names import plain_name
from d2k.analyzers.cuda.values import (
    ArrayRef,
    Choice,
    Closure,
    External,
    Functions,
    LocalPointer,
    MemRef,
    Method,
    Obj,
    ParamRef,
    Pointer,
    SlotRef,
    Thing,
    Tuple,
    Val,
)
from d2k.spec.facts import NONE, AttrValue, Guard, Kind, Mention

MAX_INLINE_DEPTH = 40
MAX_RECURSION = 6
"""Calls of a function inside itself that are followed where no template constant says when it ends."""


class Calls(Expressions):
    def _call(self, node: Call) -> Thing:
        if node.launch is not None:
            return self.launch(node)
        callee = self._callee(node)
        self.at = node.at
        return self.call(callee, self.arguments(node.args), node)

    def _callee(self, node: Call) -> Thing:
        callee = node.callee
        if isinstance(callee, TypeName):
            return self.resolve(callee)
        if isinstance(callee, Member):
            base = self.expression(callee.base)
            thing = self.member(base, callee.name, callee.arrow, callee.targs)
            if isinstance(thing, ParamRef):
                # a method of a parameter whose class was not given
                return Method(base, callee.name, self.template_arguments(callee.targs) if callee.targs else ())
            return thing
        return self.expression(callee)

    def arguments(self, nodes: tuple[Node, ...]) -> list[Thing]:
        found: list[Thing] = []
        for node in nodes:
            if isinstance(node, Opaque) and node.text == "..." and node.parts:
                inner = self.expression(node.parts[0])
                held = self.slots.get(inner.slot) if isinstance(inner, SlotRef) else inner
                if isinstance(held, Tuple):
                    found.extend(held.items)
                    continue
                found.append(inner)
                continue
            found.append(self.expression(node))
        return found

    def call(self, callee: Thing, args: list[Thing], node: Call) -> Thing:
        if isinstance(callee, Functions):
            return self.call_functions(callee, args, node)
        if isinstance(callee, Closure):
            return self.inline_closure(callee, args)
        if isinstance(callee, External):
            return self.library_call(callee.name, callee.targs, args, node)
        if isinstance(callee, CType):
            return self.construct(callee, args)
        if isinstance(callee, Method):
            return self.method_call(callee, args, node)
        if isinstance(callee, SlotRef):
            held = self.slots.get(callee.slot)
            if isinstance(held, (Closure, Functions, Choice, Obj, External)):
                return self.call(held, args, node)
        if isinstance(callee, Choice):
            return self.call(callee.items[0], args, node)
        if isinstance(callee, Obj):
            methods = self.class_member(callee.instance, "operator()", callee)
            if isinstance(methods, Functions):
                return self.call_functions(methods, args, node)
            return self.library_call(f"{callee.instance.name}::operator()", (), args, node)
        type_ = self.static_type(callee)
        if type_.instance is not None:
            return self.call(self.object_at(callee, type_), args, node)
        if not self.host and isinstance(callee, (SlotRef, Val, Pointer, MemRef)):
            return self.subscript(callee, args)
        return self.opaque_call(self.text_of(node.callee), args, node)

    def subscript(self, tensor: Thing, args: list[Thing]) -> Thing:
        """`t(i, j)`: an element or, where a coordinate is left open, a part of a tensor of a library's own kind."""
        indices = [self.val(arg) for arg in args if not isinstance(arg, (External, Tuple, CType, Functions))]
        held = self.slots.get(tensor.slot) if isinstance(tensor, SlotRef) else tensor
        whole = all(not isinstance(arg, (External, Tuple)) for arg in args)
        elem = replace(self.static_type(tensor), name="", dims=(), dim_values=(), pointer=0)
        if isinstance(held, Val) and isinstance(tensor, SlotRef) and whole and indices:
            return SlotRef(tensor.slot, elem, tuple(index.id for index in indices))
        base = self.val(tensor)
        part = self.emit(Kind.SHAPE, "slice", (base.id, *(i.id for i in indices)), {}, base.type.dtype, None)
        if isinstance(held, Pointer):
            return MemRef(part, held.elem, held.space) if whole else replace(held, id=part)
        return Val(part, base.type)

    def text_of(self, node: Node) -> str:
        if isinstance(node, Name):
            return node.dotted
        if isinstance(node, Member):
            return f"{self.text_of(node.base)}.{node.name}"
        return type(node).__name__.lower()

    # functions of the given files

    def call_functions(self, callee: Functions, args: list[Thing], node: Call) -> Thing:
        ref = self._overload(callee, args)
        known = self.known_library(callee.name)
        if ref is None or ref.unit.converter.body(ref.function) is None or known:
            if ref is not None and not known and self.kernel_named(ref):
                return Val(self.emit(Kind.CALL, callee.name, (), {"value": True}, None, None))
            return self.library_call(callee.name, callee.targs or (), args, node)
        if self.active.get(ref.key, 0) >= MAX_RECURSION:
            # deeper down it does nothing that it has not done before
            values = [self.operand(arg).id for arg in args]
            return Val(self.emit(Kind.CALL, callee.name, values, {"recursive": True, "value": True}, None, None))
        if self.keeps_call(ref):
            return self.opaque_call(callee.name, args, node)
        return self.inline(ref, args, callee)

    def keeps_call(self, ref: FunctionRef) -> bool:
        """Whether a call stays a call although its body is given."""
        if self.host and "global" in ref.function.words:
            return True
        return self.depth >= MAX_INLINE_DEPTH

    def kernel_named(self, ref: FunctionRef) -> bool:
        return "global" in ref.function.words

    def _overload(self, callee: Functions, args: list[Thing]) -> FunctionRef | None:
        """The overload that fits the number of arguments, and their types where several do."""
        fitting = [ref for ref in callee.refs if _accepts(ref.function.params, len(args))]
        with_body = [ref for ref in fitting if ref.unit.converter.has_body(ref.function)]
        fitting = with_body or fitting
        if callee.targs:
            with_templates = [ref for ref in fitting if len(ref.function.tparams) >= len(callee.targs)]
            fitting = with_templates or fitting
        if len(fitting) > 1:
            fitting = sorted(fitting, key=lambda ref: -self._fit(ref, args))
        return fitting[0] if fitting else None

    def _fit(self, ref: FunctionRef, args: list[Thing]) -> int:
        """How well the parameters fit the arguments: more is better."""
        score = 0
        names = {param.name for param in ref.function.tparams}
        for param, arg in zip(ref.function.params, args, strict=False):
            given = self.static_type(arg)
            if param.type.base is None:
                continue
            if param.type.base.name in names:
                score += 1 if param.type.pointer == given.pointer else -2
                continue
            wanted = self.parameter_type(ref, param)
            if wanted.pointer != given.pointer or (bool(wanted.dims) and not given.dims):
                score -= 4
            elif wanted.dtype is not None and given.dtype is not None:
                same = wanted.dtype == given.dtype and wanted.lanes == given.lanes
                score += 3 if same else (-1 if wanted.lanes == given.lanes else -4)
            elif wanted.instance is not None and given.instance is not None:
                score += 3 if wanted.instance is given.instance else -4
            elif wanted.name and wanted.name == given.name:
                score += 3
        return score

    def parameter_type(self, ref: FunctionRef, param: Param) -> CType:
        """The type of a parameter that names no template parameter of its function."""
        key = (ref.unit.path, param.at)
        known = self.parameter_types.get(key)
        if known is None:
            frame = Frame(ref.unit, [{}], ref.function.scope)
            known = self.parameter_types[key] = self.in_frame(frame, self.resolve, param.type)
        return known

    def inline(self, ref: FunctionRef, args: list[Thing], callee: Functions) -> Thing:
        """Lowers the body of a function in place of a call to it."""
        function = ref.function
        body = ref.unit.converter.body(function)
        if body is None:
            body = EMPTY
        bound = self._bind_function(ref, args, callee)
        scope: dict[str, Thing] = {}
        frame = Frame(
            ref.unit,
            [bound, scope],
            function.scope,
            callee.this,
            callee.instance,
            name=function.name,
        )
        for position, param in enumerate(function.params):
            if param.type.pack:
                rest = args[position:]
                scope[param.name] = Tuple(tuple(self._argument(param, arg, frame) for arg in rest))
                break
            if position < len(args):
                value = self._argument(param, args[position], frame)
            elif param.default is not None:
                default = param.default
                value = self.in_frame(frame, self.evaluate, default)
            else:
                continue
            if param.name:
                scope[param.name] = value
        ends = any(isinstance(thing, Val) and self.known(thing.id) is not None for thing in bound.values())
        if ends:
            return self.run_body(frame, body)
        self.active[ref.key] = self.active.get(ref.key, 0) + 1
        try:
            return self.run_body(frame, body)
        finally:
            self.active[ref.key] -= 1

    def run_body(self, frame: Frame, body: Node) -> Thing:
        """Lowers a body in a frame of its own and returns the value that it returns."""
        b = self.b
        saved = b.guards, b.calls, b.partition
        b.calls = (*b.calls, self.place())
        frame.guards = b.guards
        self.depth += 1
        try:
            self.in_frame(frame, self.run_statement, body)
        finally:
            self.depth -= 1
            b.guards, b.calls, b.partition = saved
        return self._returned(frame)

    def run_statement(self, node: Node) -> None:
        raise NotImplementedError

    def _returned(self, frame: Frame) -> Thing:
        """One value of what the function's return statements return, each under its conditions."""
        if not frame.returns:
            return Val(NONE, CType(name="void"))
        result = frame.returns[-1][1]
        for guards, value in reversed(frame.returns[:-1]):
            own = guards[len(frame.guards) :]
            if not own or isinstance(result, (Obj, Tuple, Closure)) or isinstance(value, (Obj, Tuple, Closure)):
                continue
            last = own[-1]
            condition = Val(last.value)
            yes, no = (value, result) if last.expected else (result, value)
            result = self.choose(condition, yes, no)
        return result

    def _argument(self, param: Param, arg: Thing, frame: Frame) -> Thing:
        """What a parameter is bound to: the caller's place for references, else a variable with a copy."""
        type_ = self.in_frame(frame, self.resolve, param.type)
        if type_.reference or isinstance(arg, (Closure, Functions, Choice, External, CType, Method)):
            if isinstance(arg, Val) and type_.dtype is not None and not type_.pointer:
                return self.convert(arg, replace(type_, reference=False))
            return arg
        if isinstance(arg, ArrayRef) and (type_.pointer or param.type.dims):
            arg = self.decay(arg)
        if param.type.dims and not type_.reference:
            type_ = replace(type_.element(), pointer=1) if len(type_.dims) == 1 else type_.element().pointer_to()
        if isinstance(arg, SlotRef) and arg.type.dims and not isinstance(self.slots.get(arg.slot), Pointer):
            if type_.pointer or type_.name in ("auto", ""):
                zero = self.const(0)
                return LocalPointer(SlotRef(arg.slot, arg.type.element(), (*arg.path, zero)), arg.type.element())
            return arg
        value = self.read(arg)
        if isinstance(value, Obj):
            return self.copy_of(value)
        if isinstance(value, (LocalPointer, Tuple, ArrayRef)):
            return SlotRef(self.new_slot(value), type_)
        held = self.simple(value, type_)
        if type_.dtype is None and not type_.pointer and isinstance(held, Val):
            type_ = held.type
        return SlotRef(self.new_slot(held), type_)

    def copy_of(self, value: Obj) -> Obj:
        fields: dict[str, Thing] = {}
        for name, place in value.fields.items():
            held = self.read(place) if not isinstance(place, Obj) else place
            if isinstance(place, ArrayRef):
                fields[name] = place
            elif isinstance(held, Obj):
                fields[name] = self.copy_of(held)
            else:
                fields[name] = SlotRef(self.new_slot(held), self.static_type(place))
        return Obj(value.instance, fields)

    def _bind_function(self, ref: FunctionRef, args: list[Thing], callee: Functions) -> dict[str, Thing]:
        """Template arguments: explicit ones, those deduced from the arguments, and defaults."""
        function = ref.function
        if not function.tparams:
            return {}
        explicit = callee.targs or ()
        deduced: dict[str, Thing] = {}
        names = {param.name for param in function.tparams}
        for param, arg in zip(function.params, args, strict=False):
            self._deduce(param.type, arg, names, deduced)
        given: list[Thing] = []
        complete = True
        bound: dict[str, Thing] = {}
        for position, tparam in enumerate(function.tparams):
            if tparam.pack:
                rest = tuple(explicit[position:]) or self._deduced_pack(function, tparam.name, args)
                known_pack = deduced.get(tparam.name)
                if isinstance(known_pack, Tuple):
                    rest = known_pack.items
                bound[tparam.name] = Tuple(rest)
                complete = False
            elif position < len(explicit):
                given.append(explicit[position])
                bound[tparam.name] = explicit[position]
            elif tparam.name in deduced:
                bound[tparam.name] = deduced[tparam.name]
                given.append(deduced[tparam.name])
            elif complete:
                frame = Frame(ref.unit, [bound], function.scope, None, callee.instance)
                if tparam.default is not None:
                    default = tparam.default
                    bound[tparam.name] = self.in_frame(frame, self.template_argument, default)
                elif tparam.type is not None:
                    bound[tparam.name] = self.open_constant(tparam.name)
                elif tparam.name:
                    bound[tparam.name] = CType(name=tparam.name)
        return {name: value for name, value in bound.items() if name}

    def _deduced_pack(self, function: Function, name: str, args: list[Thing]) -> tuple[Thing, ...]:
        """Types of the arguments that a parameter `Name... rest` takes."""
        for position, param in enumerate(function.params):
            if param.type.pack and param.type.base is not None and param.type.base.name == name:
                given = (self.static_type(arg) for arg in args[position:])
                return tuple(replace(type_, reference=False, const=False) for type_ in given)
        return ()

    def _deduce(self, pattern: TypeName, arg: Thing, names: set[str], found: dict[str, Thing]) -> None:
        base = pattern.base
        if base is None:
            return
        given = self.static_type(arg)
        if base.scope is None and base.targs is None and base.name in names:
            if base.name in found:
                return
            bare = replace(given, reference=False, const=False, restrict=False)
            for _ in range(pattern.pointer):
                if bare.dims:
                    bare = bare.element()
                elif bare.pointer:
                    bare = bare.pointee()
            if pattern.dims and bare.dims:
                for extent, value in zip(pattern.dims, bare.dim_values, strict=False):
                    if isinstance(extent, Name) and extent.name in names and value >= 0:
                        found.setdefault(extent.name, Val(value))
                for _ in pattern.dims:
                    bare = bare.element() if bare.dims else bare
            if isinstance(arg, (Closure, Functions, Choice, External)):
                return
            found[base.name] = bare
            return
        if pattern.dims and given.dims:
            for extent, value in zip(pattern.dims, given.dim_values, strict=False):
                if isinstance(extent, Name) and extent.name in names and value >= 0:
                    found.setdefault(extent.name, Val(value))
        if base.targs is not None and given.args:
            for position, one in enumerate(base.targs[: len(given.args)]):
                value_thing = given.args[position]
                if isinstance(one, Opaque) and one.text == "..." and one.parts:
                    pack = plain_name(one.parts[0])
                    if pack in names:
                        found.setdefault(pack, Tuple(given.args[position:]))
                    continue
                name = one.base if isinstance(one, TypeName) else one
                if isinstance(name, Name) and name.scope is None and name.targs is None and name.name in names:
                    found.setdefault(name.name, value_thing)

    def inline_closure(self, closure: Closure, args: list[Thing]) -> Thing:
        if self.depth >= MAX_INLINE_DEPTH:
            return self.unknown("lambda")
        outer = closure.frame
        scope: dict[str, Thing] = {}
        frame = Frame(outer.unit, [scope], outer.namespace, None, None, outer, name="lambda")
        for tparam, targ in zip(closure.node.tparams, closure.targs, strict=False):
            scope[tparam.name] = targ
        for position, param in enumerate(closure.node.params):
            if param.type.pack:
                scope[param.name] = Tuple(tuple(args[position:]))
                break
            if position < len(args):
                scope[param.name] = self._argument(param, args[position], frame)
        return self.run_body(frame, closure.node.body)

    # construction

    def construct(self, type_: CType, args: list[Thing]) -> Thing:
        """`T(args)` or `T{args}`."""
        if type_.pointer:
            return self.cast(args[0], type_, "c") if args else Val(self.const(0), type_)
        if type_.instance is not None and not type_.dims:
            return self.construct_object(type_, args)
        if type_.name in ("dim3", "uint3", "cuda::dim3"):
            return self.dim3(args)
        if type_.lanes > 1:
            if len(args) == type_.lanes:
                return self.vector(type_, args)
            if len(args) == 1:
                return self.cast(args[0], type_, "static")
            return Val(self.const(0, type_.dtype), type_)
        if not args:
            if type_.dtype is not None:
                return Val(self.const(0.0 if type_.is_float else 0, type_.dtype), type_)
            return self.external_object(type_, args)
        if type_.dtype is not None:
            return self.cast(args[0], type_, "static")
        if type_.name == "auto":
            return args[0]
        deduced = self.deduced_object(type_.name, args)
        return deduced if deduced is not None else self.external_object(type_, args)

    def deduced_object(self, name: str, args: list[Thing]) -> Thing | None:
        """An object of a class template whose arguments follow from what it is made of."""
        refs = [ref for ref in self.index.classes.get(name.rsplit("::", 1)[-1], ()) if ref.cls.specialised is None]
        if not refs or not refs[0].cls.tparams:
            return None
        ref = refs[0]
        cls = ref.cls
        made = next((m for m in ref.members.methods.get(cls.name, ()) if _accepts(m.params, len(args))), None)
        types = [p.type for p in made.params] if made is not None else [d.type for d in cls.fields]
        names = {param.name for param in cls.tparams}
        found: dict[str, Thing] = {}
        for type_, arg in zip(types, args, strict=False):
            self._deduce(type_, arg, names, found)
        given: list[Thing] = []
        for param in cls.tparams:
            if param.name in found:
                given.append(found[param.name])
            elif param.default is not None:
                break
            else:
                given.append(CType(name=param.name) if param.type is None else self.open_constant(param.name))
        instance = self.instantiate(ref, tuple(given))
        return None if instance is None else self.construct_object(CType(name=name, instance=instance), args)

    def operand(self, thing: Thing) -> Val:
        raise NotImplementedError

    def dim3(self, args: list[Thing]) -> Val:
        if len(args) == 1 and self.static_type(args[0]).name == "dim3":
            return self.val(args[0])
        values = [self.val(arg).id for arg in args[:3]]
        values += [self.const(1, "i32")] * (3 - len(values))
        return Val(self.emit(Kind.SHAPE, "join", values, {"dim3": True}, "u32", None), DIM3)

    def external_object(self, type_: CType, args: list[Thing]) -> Thing:
        """An object of a class that was not given."""
        if type_.name.endswith("atomic_ref") and args:
            target = self.address_of(args[0])
            if isinstance(target, Pointer):
                self.spaces[target.id] = target.space
                return Val(target.id, replace(type_, dtype=target.elem.dtype))
        values = [self.operand(arg).id for arg in args if not isinstance(arg, (Closure, Functions, Choice, CType))]
        kind = Kind.HOST_CALL if self.host else Kind.CALL
        index = self.emit(kind, type_.name or "object", values, {"construct": True}, None, None)
        return Val(index, replace(type_, reference=False, const=False))

    def vector(self, type_: CType, args: list[Thing]) -> Val:
        parts = [self.val(arg).id for arg in args]
        return Val(self.emit(Kind.SHAPE, "join", parts, {}, type_.dtype, None), replace(type_, reference=False))

    def construct_object(self, type_: CType, args: list[Thing]) -> Thing:
        instance = type_.instance
        assert instance is not None
        if len(args) == 1 and isinstance(args[0], (Obj, SlotRef)):
            other = self.read(args[0])
            if isinstance(other, Obj) and other.instance is instance:
                return self.copy_of(other)
        obj = self.new_object(instance)
        self._default_fields(obj)
        constructors = [
            FunctionRef(method, instance.ref.unit)
            for method in instance.ref.cls.methods
            if method.name == instance.ref.cls.name.rsplit("::", 1)[-1] and _accepts(method.params, len(args))
        ]
        if constructors:
            callee = Functions(instance.name, tuple(constructors), None, obj, instance)
            ref = self._overload(callee, args)
            if ref is not None and self.depth < MAX_INLINE_DEPTH:
                self._constructor(ref, args, callee, obj)
                return obj
        for name, arg in zip(list(obj.fields), args, strict=False):
            self._init_field(obj, name, arg)
        return obj

    def _init_field(self, obj: Obj, name: str, arg: Thing) -> None:
        place = obj.fields[name]
        type_ = self.static_type(place)
        if type_.reference or isinstance(arg, (Closure, Functions)) or (isinstance(arg, ArrayRef) and not type_.dtype):
            obj.fields[name] = arg
        elif isinstance(arg, SlotRef) and arg.type.dims and type_.pointer:
            obj.fields[name] = SlotRef(self.new_slot(self._argument_pointer(arg)), type_)
        else:
            self.write(place, self.read(arg))

    def _argument_pointer(self, arg: SlotRef) -> LocalPointer:
        return LocalPointer(SlotRef(arg.slot, arg.type.element(), (*arg.path, self.const(0))), arg.type.element())

    def _default_fields(self, obj: Obj) -> None:
        cls = obj.instance.ref.cls
        frame = Frame(obj.instance.ref.unit, [{}], obj.instance.full_name, obj, obj.instance)
        for decl in cls.fields:
            if decl.init is not None and decl.name in obj.fields and "static" not in decl.storage:
                type_ = obj.instance.field_types.get(decl.name, UNKNOWN_TYPE)
                init = decl.init
                value = self.in_frame(frame, self.initial, init, type_)
                self.write(obj.fields[decl.name], self.read(value))

    def _constructor(self, ref: FunctionRef, args: list[Thing], callee: Functions, obj: Obj) -> None:
        function = ref.function
        bound = self._bind_function(ref, args, callee)
        scope: dict[str, Thing] = {}
        frame = Frame(ref.unit, [bound, scope], function.scope, None, callee.instance, name=function.name)
        for position, param in enumerate(function.params):
            if position < len(args):
                scope[param.name] = self._argument(param, args[position], frame)
            elif param.default is not None:
                default = param.default
                scope[param.name] = self.in_frame(frame, self.evaluate, default)
        for name, nodes in function.inits:
            values = self.in_frame(frame, self.arguments, nodes)
            if name in obj.fields:
                if len(values) == 1:
                    field_type = self.static_type(obj.fields[name])
                    if field_type.instance is not None and not isinstance(self.read(values[0]), Obj):
                        made = self.construct(replace(field_type, reference=False), values)
                        obj.fields[name] = made
                    else:
                        self._init_field(obj, name, values[0])
                elif values:
                    obj.fields[name] = self.construct(self.static_type(obj.fields[name]), values)
        frame.this = obj
        body = ref.unit.converter.body(function)
        if body is not None:
            self.run_body(frame, body)

    def initial(self, node: Node, type_: CType) -> Thing:
        """The value of an initialiser for something of type `type_`."""
        if not isinstance(node, Init):
            return self.expression(node)
        own = self.resolve(node.type) if node.type is not None else type_
        if node.names and own.instance is not None:
            obj = self.new_object(own.instance)
            self._default_fields(obj)
            for name, item in zip(node.names, node.items, strict=False):
                if name in obj.fields:
                    self._init_field(obj, name, self.initial(item, self.static_type(obj.fields[name])))
            return obj
        if own.dims:
            return self._array_initial(node, own)
        if own.instance is not None and not own.pointer:
            types = list(own.instance.field_types.values())
            items = [
                self.initial(item, types[i] if i < len(types) else UNKNOWN_TYPE) for i, item in enumerate(node.items)
            ]
            return self.construct_object(replace(own, reference=False), items)
        values = [
            self.expression(item) if not isinstance(item, Init) else self.initial(item, UNKNOWN_TYPE)
            for item in node.items
        ]
        if own.lanes > 1 and 1 <= len(values) < own.lanes:
            values += [self.int_val(0)] * (own.lanes - len(values))
        if own.dtype is not None or own.pointer or own.name == "dim3":
            return self.construct(own, values)
        if node.type is not None and own.name not in ("", "auto"):
            return self.external_object(own, [self.read(value) for value in values])
        return Tuple(tuple(self.read(value) for value in values), own)

    def _array_initial(self, node: Init, type_: CType) -> Thing:
        zero = len(node.items) == 0
        if len(node.items) == 1 and not isinstance(node.items[0], Init):
            value = self.value(node.items[0])
            zero = self.known(value.id) == 0
        if (
            not node.items
            or zero
            or (len(node.items) == 1 and isinstance(node.items[0], Init) and not node.items[0].items)
        ):
            fill = self.const(0.0 if type_.is_float else 0, type_.dtype)
            return Val(self.emit(Kind.FULL, "", (fill,), {"space": "local"}, type_.dtype, type_.dim_values), type_)
        flat = self._flatten(node, [])
        if flat is None or len(flat) > 64:
            return Val(
                self.emit(Kind.ALLOC, "", (), {"space": "local", "initialised": True}, type_.dtype, type_.dim_values),
                type_,
            )
        if type_.instance is not None or len(type_.dims) == 1:
            items = tuple(self.read(self.initial(item, type_.element())) for item in node.items)
            if all(isinstance(item, Val) for item in items):
                parts = [self.val(item).id for item in items]
                return Val(self.emit(Kind.SHAPE, "join", parts, {}, type_.dtype, type_.dim_values), type_)
            return Tuple(items, type_)
        parts = [self.value(item).id for item in flat]
        return Val(self.emit(Kind.SHAPE, "join", parts, {}, type_.dtype, type_.dim_values), type_)

    def _flatten(self, node: Init, found: list[Node]) -> list[Node] | None:
        for item in node.items:
            if isinstance(item, Init):
                if self._flatten(item, found) is None:
                    return None
            else:
                found.append(item)
            if len(found) > 64:
                return None
        return found

    def operator(self, op: str, left: Thing, right: Thing) -> Thing | None:
        """An overloaded operator of a class or of two objects, None if there is none."""
        name = "operator" + op if op != "operator" else op
        if isinstance(left, Obj):
            methods = self.class_member(left.instance, name, left)
            if isinstance(methods, Functions):
                args = [] if right is left and op in ("-", "!", "~", "*", "++", "--", "operator") else [right]
                ref = self._overload(methods, args)
                if ref is not None and self.depth < MAX_INLINE_DEPTH:
                    return self.read(self.inline(ref, args, methods))
        free = self.index.functions.get(name)
        if free and self.depth < MAX_INLINE_DEPTH:
            callee = Functions(name, tuple(ref for ref in free if not ref.function.owner))
            args = [left, right]
            ref = self._overload(callee, args)
            if ref is not None and self._fit(ref, args) > 0:
                return self.read(self.inline(ref, args, callee))
        return None

    # what was not given

    def known_library(self, name: str) -> bool:
        """Whether the library table knows what a function does, so that its body is not looked into."""
        raise NotImplementedError

    def library_call(self, name: str, targs: tuple[Thing, ...], args: list[Thing], node: Call) -> Thing:
        raise NotImplementedError

    def method_call(self, method: Method, args: list[Thing], node: Call) -> Thing:
        raise NotImplementedError

    def launch(self, node: Call) -> Thing:
        raise NotImplementedError

    def opaque_call(self, name: str, args: list[Thing], node: Call) -> Thing:
        """A call whose body is not known. Lambdas among its arguments may run."""
        values: list[int] = []
        for arg in args:
            if isinstance(arg, SlotRef) and isinstance(self.slots.get(arg.slot), Closure):
                arg = self.read(arg)
            if isinstance(arg, Closure):
                self.inline_closure(arg, [self.anything(param) for param in arg.node.params])
            elif isinstance(arg, (Functions, Choice, External, CType, Method)):
                continue
            elif isinstance(arg, ArrayRef):
                values.append(self.decay(arg).id if arg.indices else arg.base)
            else:
                values.append(self.val(arg).id)
        if self.host:
            asked = tuple(arg.name for arg in args if isinstance(arg, External))
            attrs: dict[str, AttrValue] = {"asked": asked} if asked else {}
            functions = tuple(arg.name for arg in map(self._held, args) if isinstance(arg, Functions))
            if functions:
                attrs["functions"] = functions
            index = self.emit(Kind.HOST_CALL, name.replace("::", "."), values, attrs, None, None)
            self._numbers_returned(index, args)
            return Val(index)
        self.b.unresolved.append(Mention(name, "not_analyzable", "not given", self.place()))
        index = self.emit(Kind.CALL, name.replace("::", "."), values, {}, None, None)
        # what the callee may have written through a reference or pointer is not known any more
        for arg in args:
            if isinstance(arg, (SlotRef, LocalPointer)):
                target = arg if isinstance(arg, SlotRef) else arg.target
                held = self.slots.get(target.slot)
                if isinstance(held, Val) and (isinstance(arg, LocalPointer) or target.type.dims or self._writes(name)):
                    self.set_slot(
                        target.slot,
                        Val(self.emit(Kind.ITEM, "", (index,), {"index": 0}, held.type.dtype, None), held.type),
                    )
        return Val(index)

    def _numbers_returned(self, call: int, args: list[Thing]) -> None:
        """Numbers that a host function returns through pointers, as in `cudaDeviceGetAttribute(&count, …)`."""
        for arg in args:
            held = self.slots.get(arg.target.slot) if isinstance(arg, LocalPointer) else None
            if isinstance(arg, LocalPointer) and isinstance(held, Val) and held.type.dtype is not None:
                item = self.emit(Kind.ITEM, "", (call,), {"index": 0}, held.type.dtype, None)
                self.set_slot(arg.target.slot, Val(item, held.type))

    def _held(self, thing: Thing) -> Thing:
        """What a variable holds, for functions and the like."""
        return (self.slots.get(thing.slot) or thing) if isinstance(thing, SlotRef) else thing

    @staticmethod
    def _writes(name: str) -> bool:
        """Whether an unknown function may write scalar arguments: those named like pure functions do not."""
        return not name.rsplit("::", 1)[-1].startswith(("get", "is", "make", "ceil", "max", "min"))

    def anything(self, param: Param) -> Thing:
        """An argument of which nothing is known."""
        type_ = self.resolve(param.type)
        kind = Kind.HOST_CALL if self.host else Kind.CALL
        return Val(self.emit(kind, param.name or "argument", (), {"value": True}, type_.dtype, None), type_)

    def guarded(self, condition: int, expected: bool) -> tuple[Guard, ...]:
        return (*self.b.guards, Guard(condition, expected))


def _accepts(params: tuple[Param, ...], count: int) -> bool:
    required = sum(1 for param in params if param.default is None and not param.type.pack and param.name != "void")
    if (
        len(params) == 1
        and params[0].type.base is not None
        and params[0].type.base.name == "void"
        and not params[0].name
    ):
        required = 0
    return required <= count and (count <= len(params) or any(param.type.pack for param in params))
