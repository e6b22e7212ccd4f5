"""From type names to types: templates, aliases, members of classes, and the type traits that real code uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from d2k.analyzers.cuda.core import Context, Core
from d2k.analyzers.cuda.cpp_types import ARRAYS, INT, UNKNOWN_TYPE, CType, builtin
from d2k.analyzers.cuda.frames import Frame
from d2k.analyzers.cuda.scope import ClassInstance, ClassRef, Unit
from d2k.analyzers.cuda.syntax import Class, Decl, Name, Node, Opaque, TemplateParam, TypeName
from d2k.analyzers.cuda.values import (
    ArrayRef,
    External,
    Functions,
    MemRef,
    Obj,
    ParamRef,
    Pointer,
    SlotRef,
    Thing,
    Tuple,
    Val,
)
from d2k.spec.facts import Constant, Kind

T = TypeVar("T")
P = ParamSpec("P")
MAX_TYPE_DEPTH = 24
MAX_SEQUENCE = 64
KEYWORDS = frozenset(
    {
        "bool",
        "char",
        "double",
        "float",
        "int",
        "long",
        "long long",
        "short",
        "unsigned",
        "unsigned char",
        "unsigned int",
        "unsigned long",
        "unsigned long long",
        "unsigned short",
        "void",
    }
)
_SAME = frozenset(
    {
        "remove_const_t",
        "remove_reference_t",
        "remove_cvref_t",
        "remove_cv_t",
        "remove_pointer_t",
        "decay_t",
        "add_const_t",
        "type_identity_t",
        "type_identity",
        "remove_cv",
        "remove_const",
        "remove_reference",
        "decay",
        "remove_cvref",
        "common_type_t",
        "atomic",
        "optional",
    }
)
_INTEGRALS = frozenset({"Int", "C", "integral_constant", "Const", "constant", "bool_constant", "Integral", "IntConst"})


class Types(Core):
    """Names of types, and lookups of names of all kinds."""

    def __init__(self, context: Context, constants: Mapping[str, Constant], host: bool) -> None:
        super().__init__(context, constants, host)
        self.global_things: dict[str, Thing | None] = {}
        """What names mean that no function declares."""
        self.parameter_types: dict[tuple[str, int], CType] = {}
        self.instances: dict[tuple[str, int, tuple[str, ...]], ClassInstance] = {}
        self.type_depth = 0

    # names

    def find(self, name: str) -> Thing | None:
        """What a plain name means here; None if no scope and no file declares it."""
        frame: Frame | None = self.frame
        while frame is not None:
            for scope in reversed(frame.scopes):
                thing = scope.get(name)
                if thing is not None:
                    return thing
            if frame.this is not None and name in frame.this.fields:
                return frame.this.fields[name]
            if frame.instance is not None:
                thing = self.class_member(frame.instance, name, frame.this)
                if thing is not None:
                    return thing
            frame = frame.parent
        return self.find_global(name)

    def find_global(self, name: str, scope: str = "") -> Thing | None:
        """A function, constant, enumerator, class or alias of the given files."""
        if scope:
            return self._find_global(name, scope)
        if name in self.global_things:
            return self.global_things[name]
        found = self._find_global(name, "")
        if not isinstance(found, External):
            # an External may be a constant that is just being worked out
            self.global_things[name] = found
        return found

    def _find_global(self, name: str, scope: str) -> Thing | None:
        index = self.index
        functions = index.functions.get(name)
        if functions:
            chosen = [ref for ref in functions if not ref.function.owner and _within(ref.function.scope, scope)]
            if chosen:
                return Functions(name, tuple(chosen))
        variables = index.variables.get(name)
        if variables:
            for where, decl, unit in variables:
                if _within(where, scope):
                    return self.global_variable(where, decl, unit)
        for enum, position, unit in index.enumerators.get(name, ()):
            full = f"{enum.scope}::{enum.name}" if enum.scope else enum.name
            if not scope or _within(full, scope) or _within(enum.scope, scope):
                return self.enumerator(enum.items[: position + 1], unit)
        for where, using, unit in index.aliases.get(name, ()):
            if not using.tparams and _within(where, scope):
                return self._in_file(unit, where, self.resolve, using.type)
        for ref in index.classes.get(name, ()):
            plain = all(param.default is not None or param.pack for param in ref.cls.tparams)
            if _within(ref.cls.scope, scope) and not ref.cls.specialised and plain:
                instance = self.instantiate(ref, ())
                return CType(name=name, instance=instance) if instance is not None else None
        return None

    def enumerator(self, items: tuple[tuple[str, Node | None], ...], unit: Unit) -> Thing:
        value = 0
        start = 0
        for position in range(len(items) - 1, -1, -1):
            node = items[position][1]
            if node is not None:
                start = position
                known = self._in_file(unit, "", self.expression, node)
                number = self.known_int(self.val(known).id)
                if number is None:
                    return self.val(known)
                value = number
                break
        return self.int_val(value + len(items) - 1 - start)

    def global_variable(self, where: str, decl: Decl, unit: Unit) -> Thing:
        key = (unit.path, decl.at + len(decl.name) * 0 + decl.end)
        known = self.globals.get(key)
        if known is not None:
            return known
        self.globals[key] = External(decl.name)  # a constant that is defined by itself ends here
        words = decl.storage
        thing: Thing
        constant = decl.type.const or "constexpr" in words or "const" in words
        if "shared" in words or "device" in words or "constant" in words or "managed" in words:
            if constant and decl.init is not None and "shared" not in words and not decl.type.dims:
                thing = self._in_file(unit, where, self._constant, decl)
            else:
                thing = self._in_file(unit, where, self.memory_variable, decl)
        elif decl.init is not None and constant:
            thing = self._in_file(unit, where, self._constant, decl)
        else:
            thing = External(decl.name)
        self.globals[key] = thing
        return thing

    def _constant(self, decl: Decl) -> Thing:
        type_ = self.resolve(decl.type)
        assert decl.init is not None
        value = self.initial(decl.init, type_)
        if isinstance(value, Val) and not type_.dims:
            return self.simple(value, type_)
        return value

    def memory_variable(self, decl: Decl) -> Thing:
        """A variable in shared, constant or global device memory."""
        type_ = self.resolve(decl.type)
        shared = "shared" in decl.storage
        attrs: dict[str, bool | str] = {"space": "shared"} if shared else {}
        if shared and "extern" in decl.storage:
            attrs["dynamic"] = True
        b = self.b
        saved = b.loop, b.guards
        b.loop, b.guards = -1, ()
        bits = type_.bits()
        if type_.instance is not None and bits is not None:
            attrs["object"] = type_.instance.name
        shape = type_.dim_values if type_.dims else ()
        if shared:
            base = self.emit(Kind.ALLOC, decl.name, (), {**attrs}, type_.dtype, shape)
            b.ops[base].variable = decl.name
        else:
            base = self.emit(
                Kind.PARAM,
                decl.name,
                (),
                {"memory": "constant" if "constant" in decl.storage else "global"},
                type_.dtype,
            )
        b.loop, b.guards = saved
        space = "shared" if shared else "global"
        self.spaces[base] = space
        if type_.dims:
            return ArrayRef(base, (), type_, space, type_.dim_values)
        if type_.instance is not None:
            return MemRef(base, type_, space)
        return ArrayRef(base, (), type_, space, ())

    def initial(self, node: Node, type_: CType) -> Thing:
        raise NotImplementedError

    def _in_file(self, unit: Unit, namespace: str, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `action` with the names of a file's own scope, outside all loops and guards."""
        return self.in_frame(Frame(unit, [{}], namespace), action, *args, **kwargs)

    def in_frame(self, frame: Frame, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `action` with the names that are in scope in a frame."""
        raise NotImplementedError

    def evaluate(self, node: Node) -> Thing:
        """The value of an expression; what it reads, it reads where it stands."""
        thing = self.expression(node)
        saved = self.at
        at = getattr(node, "at", -1)
        if at >= 0:
            self.at = at
        result = self.read(thing)
        self.at = saved
        return result

    # types

    def resolve(self, type_: TypeName) -> CType:
        """The type that a type name means; what cannot be told stays open."""
        name = type_.base
        if name is not None and name.scope is None and name.targs is None and name.name in KEYWORDS and not type_.dims:
            return _keyword_type(name.name, type_.pointer, type_.const, type_.reference, type_.volatile, type_.restrict)
        self.type_depth += 1
        try:
            base = self._base(type_) if self.type_depth < MAX_TYPE_DEPTH else UNKNOWN_TYPE
        finally:
            self.type_depth -= 1
        changes: dict[str, object] = {}
        if type_.to_array and type_.pointer == 1:
            values = tuple(self.dim(one) for one in type_.dims)
            extents = tuple(self.known_int(value) for value in values)
            whole = replace(base, dims=(*extents, *base.dims), dim_values=(*values, *base.dim_values), reference=False)
            return replace(base, pointer=1, target=whole, reference=False)
        if type_.pointer:
            base = replace(base, pointer=base.pointer + type_.pointer, reference=False)
        if type_.const and not base.const:
            changes["const"] = True
        if type_.reference:
            changes["reference"] = True
        if type_.volatile:
            changes["volatile"] = True
        if type_.restrict:
            changes["restrict"] = True
        if type_.dims:
            values = tuple(self.dim(one) for one in type_.dims)
            changes["dims"] = (*(self.known_int(value) for value in values), *base.dims)
            changes["dim_values"] = (*values, *base.dim_values)
        return replace(base, **changes) if changes else base

    def dim(self, node: Node | None) -> int:
        if node is None:
            return self.const(None, "i32")
        return self.val(self.expression(node)).id

    def _base(self, type_: TypeName) -> CType:
        if type_.base is None:
            if type_.of is not None:
                return self.type_of(type_.of)
            return CType(name="auto")
        return self.named_type(type_.base)

    def type_of(self, node: Node) -> CType:
        """decltype."""
        thing = self.peek(node)
        if isinstance(thing, CType):
            return thing
        return self.static_type(thing)

    def peek(self, node: Node) -> Thing:
        """What an expression is, without leaving operations behind."""
        raise NotImplementedError

    def static_type(self, thing: Thing) -> CType:
        if isinstance(thing, CType):
            return thing
        if isinstance(thing, Obj):
            return CType(name=thing.instance.name, instance=thing.instance)
        if isinstance(thing, Pointer):
            return thing.elem.pointer_to()
        if isinstance(thing, (Val, SlotRef, MemRef, ParamRef, ArrayRef)):
            return thing.type
        if isinstance(thing, Tuple):
            return thing.type
        return UNKNOWN_TYPE

    def named_type(self, name: Name) -> CType:
        if name.scope is None and name.targs is None:
            found = self.find_type(name.name)
            if found is not None:
                return found
            known = builtin(name.name)
            return known if known is not None else CType(name=name.name)
        if name.scope is None or self._is_namespace(name.scope):
            return self._template_type(name)
        owner = self.named_type(name.scope)
        if name.name in ("type", "Type") and owner.instance is None:
            return owner
        if owner.instance is not None:
            member = self.class_member(owner.instance, name.name, None, name.targs)
            if isinstance(member, CType):
                return member
        if owner.dtype is None and owner.instance is None:
            known = builtin(name.name)
            if known is not None and name.targs is None:
                return known
        # a member of a class that was not given keeps what that class was made from
        return CType(name=name.dotted, atoms=owner.atoms, args=owner.args)

    def _is_namespace(self, scope: Name) -> bool:
        """Whether a scope is a namespace and no class: nothing of that name is a type here."""
        if scope.targs is not None:
            return False
        if scope.scope is not None and not self._is_namespace(scope.scope):
            return False
        found = self.find_type(scope.name)
        return found is None or (found.instance is None and found.dtype is None and not found.name)

    def find_type(self, name: str) -> CType | None:
        thing = self.find(name)
        if isinstance(thing, CType):
            return thing
        return None

    def _template_type(self, name: Name) -> CType:
        """`scope::name<targs>` where the scope is a namespace."""
        plain = name.name
        if name.targs is None:
            known = builtin(plain)
            found = self.find_type(plain)
            return found or known or CType(name=name.dotted)
        args = self.template_arguments(name.targs)
        plain = self.template_behind(plain)
        trait = self._trait(plain, args)
        if trait is not None:
            return trait
        instance = self.class_template(plain, args, name.scope.dotted if name.scope is not None else "")
        if instance is not None:
            return instance
        atoms = _atoms(name.dotted, args)
        return CType(name=name.dotted, args=args, atoms=atoms)

    def template_behind(self, name: str) -> str:
        """The template that a template template parameter is bound to."""
        thing = self.find(name)
        bound = isinstance(thing, CType) and thing.instance is None and thing.dtype is None and not thing.args
        return thing.name if bound and isinstance(thing, CType) and thing.name else name

    def class_template(self, name: str, args: tuple[Thing, ...], scope: str) -> CType | None:
        """A class template or alias template of the given files with its arguments."""
        for where, using, unit in self.index.aliases.get(name, ()):
            if using.tparams:
                bound = self._bind_templates(using.tparams, args)
                return self.in_frame(Frame(unit, [bound], where), self.resolve, using.type)
        candidates = [ref for ref in self.index.classes.get(name, ()) if _within(ref.cls.scope, scope)]
        if candidates:
            special = self._specialisation(candidates, args)
            if special is not None:
                ref, bound = special
                instance = self.instantiate(ref, args, bound)
            else:
                general = [ref for ref in candidates if ref.cls.specialised is None]
                instance = self.instantiate(general[0], args) if general else None
            if instance is not None:
                return CType(name=name, instance=instance, args=args, atoms=_atoms(name, args))
        return None

    def template_arguments(self, targs: tuple[Node, ...]) -> tuple[Thing, ...]:
        found: list[Thing] = []
        for node in targs:
            thing = self.template_argument(node)
            if isinstance(thing, Tuple):
                found.extend(thing.items)
            else:
                found.append(thing)
        return tuple(found)

    def template_argument(self, node: Node) -> Thing:
        if isinstance(node, TypeName):
            # a name that stands for a value is parsed as a type
            if node.base is not None and not node.pointer and not node.dims and not node.reference:
                thing = self.value_named(node.base)
                if thing is not None:
                    return thing
            return self.resolve(node)
        if isinstance(node, Opaque) and node.text == "..." and node.parts:
            return self.template_argument(node.parts[0])
        if isinstance(node, Name):
            thing = self.value_named(node)
            if thing is not None:
                return thing
            return self.named_type(node)
        thing = self.expression(node)
        return thing if isinstance(thing, (CType, Functions, External, Tuple)) else self.val(thing)

    def value_named(self, name: Name) -> Thing | None:
        """The value or function that a name stands for, None if it is a type or not known."""
        if name.targs is not None and name.scope is None:
            return None
        if name.scope is None:
            thing = self.find(name.name)
        elif self._is_namespace(name.scope):
            thing = self.find_global(name.name, name.scope.dotted) if name.targs is None else None
        else:
            owner = self.named_type(name.scope)
            thing = self.class_member(owner.instance, name.name, None, name.targs) if owner.instance else None
            if thing is None and name.name == "value" and owner.integral is not None:
                thing = self.int_val(owner.integral)
        if thing is None or isinstance(thing, CType):
            return None
        return thing if isinstance(thing, (Functions, External, Tuple)) else self.val(thing)

    def _trait(self, name: str, args: tuple[Thing, ...]) -> CType | None:
        """Type traits and library templates with a meaning of their own."""
        first = args[0] if args else None
        if name in ("conditional_t", "conditional") and len(args) >= 3:
            known = self.known(first.id) if isinstance(first, Val) else None
            chosen = args[1] if known or known is None else args[2]
            return chosen if isinstance(chosen, CType) else UNKNOWN_TYPE
        if name in _INTEGRALS and args:
            last = args[-1]
            if isinstance(last, Val):
                number = self.known(last.id)
                value = int(number) if isinstance(number, (int, bool)) else None
                return CType(name=name, integral=value, args=args)
        if name in ("make_integer_sequence", "make_index_sequence") and isinstance(args[-1] if args else None, Val):
            count = self.known_int(self.val(args[-1]).id)
            if count is not None and 0 <= count <= MAX_SEQUENCE:
                numbers = tuple(self.int_val(number) for number in range(count))
                return CType(name="integer_sequence", args=(INT, *numbers))
        if name == "index_sequence":
            return CType(name="integer_sequence", args=(INT, *args))
        if name in _SAME and isinstance(first, CType):
            bare = replace(first, reference=False, const=False)
            return bare.pointee() if name.startswith("remove_pointer") else bare
        if name in ARRAYS and len(args) >= 2 and isinstance(first, CType) and isinstance(args[1], Val):
            extent = self.known_int(args[1].id)
            return replace(first, dims=(extent, *first.dims), dim_values=(args[1].id, *first.dim_values), atoms=())
        if name in ("complex",) and isinstance(first, CType):
            return replace(first, lanes=2)
        if name in ("shared_ptr", "unique_ptr") and isinstance(first, CType):
            return first.pointer_to()
        return None

    # classes

    def instantiate(
        self, ref: ClassRef, args: tuple[Thing, ...], bound: dict[str, Thing] | None = None
    ) -> ClassInstance | None:
        cls = ref.cls
        key = (ref.unit.path, cls.at, tuple(self.key_of(arg) for arg in args))
        known = self.instances.get(key)
        if known is not None:
            return known
        if self.type_depth > MAX_TYPE_DEPTH:
            return None
        if bound is None:
            bound = self._bind_templates(cls.tparams, args)
        instance = ClassInstance(ref, dict(bound), key="|".join(key[2]))
        self.instances[key] = instance
        frame = Frame(ref.unit, [bound], cls.scope, instance=instance)
        self.type_depth += 1
        try:
            self.in_frame(frame, self._complete, instance, cls)
        finally:
            self.type_depth -= 1
        return instance

    def _complete(self, instance: ClassInstance, cls: Class) -> None:
        bases: list[ClassInstance] = []
        for base in cls.bases:
            resolved = self.resolve(base)
            if resolved.instance is not None and resolved.instance is not instance:
                bases.append(resolved.instance)
        instance.bases = tuple(bases)
        total: int | None = sum(size for base in bases if (size := base.bits()) is not None)
        widest = 8
        for decl in cls.fields:
            if "static" in decl.storage or not decl.name:
                continue
            type_ = self.resolve(decl.type)
            instance.field_types[decl.name] = type_
            bits = type_.bits()
            total = None if total is None or bits is None else (max(total, bits) if cls.union else total + bits)
            if bits:
                widest = max(widest, min(bits, 128) if not type_.dims else 8)
        instance.sized = total if instance.field_types or bases else 8
        kinds = {type_.dtype if not type_.pointer else None for type_ in instance.field_types.values()}
        instance.element = kinds.pop() if len(kinds) == 1 and not bases else None

    def _specialisation(
        self, candidates: list[ClassRef], args: tuple[Thing, ...]
    ) -> tuple[ClassRef, dict[str, Thing]] | None:
        for ref in candidates:
            if ref.cls.specialised is None:
                continue
            bound = self._match(ref, args)
            if bound is not None:
                return ref, bound
        return None

    def _match(self, ref: ClassRef, args: tuple[Thing, ...]) -> dict[str, Thing] | None:
        """Template parameters of a specialisation, if its pattern fits the arguments."""
        patterns = ref.cls.specialised or ()
        if len(patterns) > len(args):
            return None
        names = {param.name for param in ref.cls.tparams}
        bound: dict[str, Thing] = {}
        for pattern, arg in zip(patterns, args, strict=False):
            name = plain_name(pattern)
            if name in names:
                bound[name] = arg
                continue
            if any(name_in in names for name_in in _names_in(pattern)):
                return None  # a pattern with structure: not taken apart
            expected = self.in_frame(Frame(ref.unit, [bound], ref.cls.scope), self.template_argument, pattern)
            if self.key_of(expected) != self.key_of(arg):
                return None
        return bound

    def key_of(self, thing: Thing) -> str:
        """A text that is equal for equal template arguments."""
        if isinstance(thing, CType):
            if thing.integral is not None:
                return f"i{thing.integral}"
            inner = (
                thing.instance.full_name + "<" + thing.instance.key + ">" if thing.instance is not None else thing.name
            )
            if thing.dtype is not None:
                inner = thing.dtype
            elif thing.atoms:
                inner += "@" + "@".join(thing.atoms)
            nested = ",".join(self.key_of(one) for one in thing.args) if thing.args and thing.instance is None else ""
            return f"{inner}{'*' * thing.pointer}x{thing.lanes}{thing.dims}{nested}"
        if isinstance(thing, Val):
            known = self.known(thing.id)
            if known is None:
                return f"%{thing.id}"
            return f"i{int(known)}" if isinstance(known, (bool, int)) else repr(known)
        if isinstance(thing, Functions):
            return "f" + thing.name
        if isinstance(thing, External):
            return "x" + thing.name
        return str(id(thing))

    def _bind_templates(self, tparams: tuple[TemplateParam, ...], args: tuple[Thing, ...]) -> dict[str, Thing]:
        """Template parameters by name; defaults are filled in, what is not given stays open."""
        bound: dict[str, Thing] = {}
        for position, param in enumerate(tparams):
            if not param.name:
                continue
            if param.pack:
                bound[param.name] = Tuple(args[position:])
            elif position < len(args):
                bound[param.name] = args[position]
            elif param.default is not None:
                default = param.default
                frame = Frame(self.frame.unit, [bound], self.frame.namespace, None, self.frame.instance)
                value = self.in_frame(frame, self.template_argument, default)
                if isinstance(value, CType) and value.name and param.type is not None and value.dtype is None:
                    value = self.open_constant(param.name)
                bound[param.name] = value
            elif param.type is not None:
                bound[param.name] = self.open_constant(param.name)
            else:
                bound[param.name] = CType(name=param.name)
        return bound

    def open_constant(self, name: str) -> Val:
        """A compile-time constant whose value is not known."""
        return Val(self.param(name, INT, {"constexpr": True}), INT)

    def class_member(
        self, instance: ClassInstance, name: str, this: Obj | None, targs: tuple[Node, ...] | None = None
    ) -> Thing | None:
        """A static constant, alias, enumerator, nested class, method or template argument of a class."""
        if name in instance.args:
            return instance.args[name]
        if name in instance.statics:
            return instance.statics[name]
        cls = instance.ref.cls
        unit = instance.ref.unit
        if name == cls.name:
            return CType(name=cls.name, instance=instance)
        frame = Frame(unit, [{}], instance.full_name, None, instance)
        members = instance.ref.members
        if (decl := members.statics.get(name)) is not None:
            instance.statics[name] = External(name)
            value = self.in_frame(frame, self._constant, decl)
            instance.statics[name] = value
            return value
        if (using := members.aliases.get(name)) is not None:
            if using.tparams and targs is not None:
                frame.scopes.append(self._bind_templates(using.tparams, self.template_arguments(targs)))
                return self.in_frame(frame, self.resolve, using.type)
            instance.statics[name] = CType(name=name)
            result = self.in_frame(frame, self.resolve, using.type)
            instance.statics[name] = result
            return result
        if name in members.enumerators:
            enum, position = members.enumerators[name]
            return self.in_frame(frame, self.enumerator, enum.items[: position + 1], unit)
        if (inner := members.classes.get(name)) is not None:
            args = self.template_arguments(targs) if targs else ()
            bound = {**instance.args, **self._bind_templates(inner.tparams, args)}
            nested = self.instantiate(ClassRef(inner, unit), (CType(name=instance.key), *args), bound)
            return CType(name=name, instance=nested) if nested is not None else None
        methods = instance.methods(name)
        if methods:
            return self.methods(name, instance, this)
        outside = self.index.members.get((cls.name.rsplit("::", 1)[-1], name))
        if outside:
            return Functions(name, tuple(outside), None, this, instance)
        for base in instance.bases:
            found = self.class_member(base, name, this, targs)
            if found is not None:
                return found
        return None

    def methods(self, name: str, instance: ClassInstance, this: Obj | None) -> Functions:
        from d2k.analyzers.cuda.scope import FunctionRef

        found = instance.methods(name)
        owner = found[0][1]
        refs = [FunctionRef(method, owner.ref.unit) for method, _ in found]
        defined = [ref for ref in refs if ref.function.body is not None]
        if not defined:
            refs = self.index.members.get((owner.name.rsplit("::", 1)[-1], name), refs)
        return Functions(name, tuple(refs), None, this, owner)


@cache
def _keyword_type(name: str, pointer: int, const: bool, reference: bool, volatile: bool, restrict: bool) -> CType:
    """A type that is a word of the language: no scope can give it another meaning."""
    base = builtin(name) or CType(name=name)
    return replace(base, pointer=pointer, const=const, reference=reference, volatile=volatile, restrict=restrict)


def _within(where: str, scope: str) -> bool:
    """Whether a declaration in scope `where` may be meant by a name qualified with `scope`."""
    return not scope or where == scope or where.endswith(scope) or scope.endswith(where)


def plain_name(node: Node) -> str:
    if isinstance(node, TypeName) and node.base is not None and not node.pointer and not node.dims:
        node = node.base
    return node.name if isinstance(node, Name) and node.scope is None and node.targs is None else ""


def _names_in(node: Node) -> list[str]:
    found: list[str] = []
    stack: list[Node] = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, TypeName) and one.base is not None:
            stack.append(one.base)
        elif isinstance(one, Name):
            found.append(one.name)
            stack.extend(one.targs or ())
            if one.scope is not None:
                stack.append(one.scope)
    return found


def _atoms(name: str, args: tuple[Thing, ...]) -> tuple[str, ...]:
    """Library names in a type, outermost first, each once."""
    found = [name]
    for arg in args:
        if isinstance(arg, CType):
            found.extend(arg.atoms or ((arg.name,) if arg.name and arg.dtype is None else ()))
    return tuple(dict.fromkeys(found))[:24]
