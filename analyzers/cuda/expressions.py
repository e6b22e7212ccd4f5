"""Expressions: arithmetic, casts, members, indices, and what numbers threads, warps and lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from d2k.analyzers.cuda.core import Context
from d2k.analyzers.cuda.cpp_types import (
    BITS,
    BOOL,
    INT,
    U32,
    U64,
    UNKNOWN_TYPE,
    CType,
    builtin,
    common,
    lane_of,
)
from d2k.analyzers.cuda.syntax import (
    Asm,
    Assign,
    Binary,
    Block,
    Call,
    Cast,
    Fold,
    Index,
    Init,
    Lambda,
    Literal,
    Member,
    Name,
    Node,
    Opaque,
    SizeOf,
    Ternary,
    TypeName,
    Unary,
)
from d2k.analyzers.cuda.type_names import Types, plain_name
from d2k.analyzers.cuda.values import (
    ArrayRef,
    Choice,
    Closure,
    External,
    Functions,
    LaneRef,
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
from d2k.spec.facts import Constant, Guard, Kind

_ARITHMETIC = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "mod",
    "<<": "shl",
    ">>": "shr",
    "&": "and",
    "|": "or",
    "^": "xor",
    "&&": "and",
    "||": "or",
    "and": "and",
    "or": "or",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    ">": "gt",
    "<=": "le",
    ">=": "ge",
}
_COMPARE = frozenset({"==", "!=", "<", ">", "<=", ">="})
_AXES = {"x": 0, "y": 1, "z": 2}
_THREADS = {
    "threadIdx": Kind.THREAD_INDEX,
    "blockIdx": Kind.BLOCK_INDEX,
    "blockDim": Kind.BLOCK_SIZE,
    "gridDim": Kind.GRID_SIZE,
}
_CONSTANTS: dict[str, tuple[bool | int | float, CType]] = {
    "warpSize": (32, INT),
    "INFINITY": (float("inf"), CType("f32")),
    "HUGE_VALF": (float("inf"), CType("f32")),
    "NAN": (float("nan"), CType("f32")),
    "CUDART_INF_F": (float("inf"), CType("f32")),
    "CUDART_NEG_INF_F": (float("-inf"), CType("f32")),
    "CUDART_INF": (float("inf"), CType("f64")),
    "FLT_MAX": (3.4028234663852886e38, CType("f32")),
    "FLT_MIN": (1.1754943508222875e-38, CType("f32")),
    "FLT_EPSILON": (1.1920928955078125e-07, CType("f32")),
    "DBL_MAX": (1.7976931348623157e308, CType("f64")),
    "INT_MAX": (2147483647, INT),
    "INT_MIN": (-2147483648, INT),
    "UINT_MAX": (4294967295, U32),
    "INT32_MAX": (2147483647, INT),
    "UINT32_MAX": (4294967295, U32),
    "M_LOG2E": (1.4426950408889634, CType("f64")),
    "M_LN2": (0.6931471805599453, CType("f64")),
    "M_PI": (3.141592653589793, CType("f64")),
    "M_SQRT1_2": (0.7071067811865476, CType("f64")),
    "M_2_SQRTPI": (1.1283791670955126, CType("f64")),
    "CUDART_L2E_F": (1.4426950216293335, CType("f32")),
    "CUDART_LOG2E_F": (1.4426950216293335, CType("f32")),
    "CUDART_LN2_F": (0.6931471824645996, CType("f32")),
    "CUDART_PI_F": (3.1415927410125732, CType("f32")),
}


class Expressions(Types):
    def __init__(self, context: Context, constants: Mapping[str, Constant], host: bool) -> None:
        super().__init__(context, constants, host)
        self.handlers: dict[type, Callable[[Any], Thing]] = {
            Name: self._name,
            Literal: self._literal,
            Binary: self._binary,
            Unary: self._unary,
            Assign: self._assign,
            Ternary: self._ternary,
            Member: self._member,
            Index: self._index,
            Cast: self._cast,
            SizeOf: self._sizeof,
            Init: self._init,
            Lambda: self._lambda,
            TypeName: self._type_name,
            Opaque: self._opaque,
            Fold: self._fold,
            Call: self._call,
            Asm: self._asm,
            Block: self._block,
        }
        """Each handler takes the node type that it stands under."""

    def expression(self, node: Node) -> Thing:
        """What an expression is: a value or a place."""
        saved = self.at
        at = getattr(node, "at", -1)
        if at >= 0:
            self.at = at
        try:
            handler = self.handlers.get(type(node))
            return handler(node) if handler is not None else self.other(node)
        finally:
            self.at = saved

    def other(self, node: Node) -> Thing:
        raise NotImplementedError

    def value(self, node: Node) -> Val:
        return self.val(self.evaluate(node))

    def peek(self, node: Node) -> Thing:
        b = self.b
        count, loops, unresolved = len(b.ops), len(b.loops), len(b.unresolved)
        mark = len(self.journal)
        thing = self.expression(node)
        if len(b.loops) == loops:
            kept = [thing.id] if isinstance(thing, (Val, Pointer)) else []
            if not any(one >= count for one in kept):
                self._forget(count)
                self.take_back(mark)
        del b.unresolved[unresolved:]
        return thing

    def _forget(self, count: int) -> None:
        """Drops the operations from `count` on, if nothing that stays was made meanwhile."""
        b = self.b
        if any(draft.kind in (Kind.PARAM, Kind.CONST) for draft in b.ops[count:]):
            return
        if self.globals_since(count):
            return
        del b.ops[count:]
        del b.known[count:]

    def globals_since(self, count: int) -> bool:
        """Whether a value of a file's scope stands at or behind operation `count`."""
        for thing in (*self.globals.values(), *self.global_things.values()):
            if isinstance(thing, (Val, Pointer)) and thing.id >= count:
                return True
            if isinstance(thing, ArrayRef) and thing.base >= count:
                return True
        return any(
            isinstance(value, Val) and value.id >= count
            for instance in self.instances.values()
            for value in (*instance.statics.values(), *instance.args.values())
        )

    # names and literals

    def _name(self, node: Name) -> Thing:
        if node.scope is None:
            if node.targs is None:
                thing = self.find(node.name)
                if thing is not None:
                    return thing
                return self._builtin_name(node.name)
            thing = self.find(node.name)
            args = self.template_arguments(node.targs)
            if isinstance(thing, Functions):
                return replace(thing, targs=args)
            type_ = self.class_template(self.template_behind(node.name), args, "")
            if type_ is not None:
                return type_
            if isinstance(thing, CType):
                return thing
            trait = self._trait(node.name, args)
            return trait if trait is not None else External(node.name, args)
        return self._scoped(node)

    def _scoped(self, node: Name) -> Thing:
        scope = node.scope
        assert scope is not None
        args = self.template_arguments(node.targs) if node.targs is not None else None
        if self._is_namespace(scope):
            thing = self.find_global(node.name, scope.dotted)
            if isinstance(thing, Functions) and args is not None:
                return replace(thing, targs=args)
            if thing is not None:
                return thing
            if args is not None:
                type_ = self.class_template(node.name, args, scope.dotted)
                if type_ is not None:
                    return type_
                trait = self._trait(node.name, args)
                if trait is not None:
                    return trait
            number = self.library_constant(node.name) if args is None else None
            if number is not None:
                return Val(self.const(number), INT if number < 1 << 31 else U64)
            if node.name in ("max", "min", "lowest", "infinity") and scope.name == "numeric_limits":
                return External(node.dotted, args or ())
            return External(node.dotted, args or ())
        owner = self.named_type(scope)
        if owner.instance is not None:
            this = self.frame.this if self.frame.this is not None else None
            thing = self.class_member(owner.instance, node.name, this, node.targs)
            if isinstance(thing, Functions) and args is not None:
                thing = replace(thing, targs=args)
            if thing is not None:
                return thing
        if node.name == "value" and owner.integral is not None:
            return self.int_val(owner.integral)
        number = self.library_constant(node.name) if args is None and owner.instance is None else None
        if number is not None:
            return Val(self.const(number), INT if number < 1 << 31 else U64)
        if owner.dtype is None and not owner.pointer and node.targs is None and self._looks_constant(node.name):
            # a constant of a class that was not given, such as Traits::kStages
            return Val(self.param(node.dotted, INT, {"constexpr": True}), INT)
        nested = replace(owner, instance=None, dtype=None, integral=None, name="")
        prefix = owner.name or scope.dotted
        base_args = tuple(arg for arg in owner.args if isinstance(arg, CType | Val))
        del nested
        return External(f"{prefix}::{node.name}", (*(args or ()), *base_args))

    @staticmethod
    def _looks_constant(name: str) -> bool:
        return name.isupper() or (name[0] == "k" and name[1:2].isupper()) or name == "value"

    def _builtin_name(self, name: str) -> Thing:
        if name in _THREADS:
            return CType(name=name)
        constant = _CONSTANTS.get(name)
        if constant is not None:
            return Val(self.const(constant[0], constant[1].dtype), constant[1])
        if name == "this":
            if self.frame.this is not None:
                return self.frame.this
            return Val(self.emit(Kind.CALL, "this", (), {"value": True}, None, None))
        number = self.library_constant(name)
        if number is not None:
            return Val(self.const(number), INT if number < 1 << 31 else U64)
        type_ = builtin(name)
        return type_ if type_ is not None else External(name)

    def library_constant(self, name: str) -> int | None:
        """A number that a library has a name for."""
        return None

    def _literal(self, node: Literal) -> Thing:
        if node.dtype == "":
            return Val(self.const(0, "u64"), U64)
        if node.dtype == "str":
            return Val(self.const(node.value, "str"), CType(name="str"))
        return Val(self.const(node.value, node.dtype), CType(node.dtype))

    # arithmetic

    def _binary(self, node: Binary) -> Thing:
        # long chains lean left: walk them with a loop
        chain = [node]
        while isinstance(chain[-1].left, Binary):
            chain.append(chain[-1].left)
        result: Thing | None = None
        for one in reversed(chain):
            if one.op == ",":
                if result is None:
                    self.expression(one.left)
                result = self.expression(one.right)
                continue
            left = self.evaluate(one.left) if result is None else self.read(result)
            self.at = one.at
            if one.op in ("&&", "and", "||", "or"):
                result = self._logical(one, left)
                continue
            right = self.evaluate(one.right)
            self.at = one.at
            result = self.binary(one.op, left, right)
        assert result is not None
        return result

    def _logical(self, node: Binary, left: Thing) -> Thing:
        conjunction = node.op in ("&&", "and")
        a = self.truth(left)
        known = self.known(a.id)
        if known is not None and bool(known) is not conjunction:
            return a
        # what the right operand does runs only where the left one lets it
        b = self.b
        before = b.guards
        if known is None:
            b.guards = (*before, Guard(a.id, conjunction))
        right = self.truth(self.evaluate(node.right))
        b.guards = before
        if known is not None:
            return right
        return Val(self.emit(Kind.ELEMENTWISE, "and" if conjunction else "or", (a.id, right.id), {}, "bool"), BOOL)

    def truth(self, thing: Thing) -> Val:
        """A value as a condition."""
        value = self.val(thing)
        if value.type.dtype == "bool" or self.b.ops[value.id].dtype == "bool":
            return value
        known = self.known(value.id)
        if known is not None and not isinstance(known, str):
            return Val(self.const(bool(known)), BOOL)
        if value.type.dtype is None or value.type.pointer:
            return value
        return Val(self.emit(Kind.ELEMENTWISE, "ne", (value.id, self.const(0, value.type.dtype)), {}, "bool"), BOOL)

    def binary(self, op: str, left: Thing, right: Thing) -> Thing:
        """`left op right` of values that have been read."""
        if isinstance(left, ArrayRef):
            left = self.decay(left)
        if isinstance(right, ArrayRef):
            right = self.decay(right)
        if op in ("+", "-"):
            moved = self._pointer_arithmetic(op, left, right)
            if moved is not None:
                return moved
        if isinstance(left, Obj) or isinstance(right, Obj):
            overloaded = self.operator(op, left, right)
            if overloaded is not None:
                return overloaded
        a, b = self.val(left), self.val(right)
        if self.host and op in ("<<", ">>") and (a.type.dtype is None or b.type.dtype is None or b.type.name == "str"):
            return a  # a stream
        name = _ARITHMETIC.get(op)
        if name is None:
            return self.unknown(op, (a.id, b.id))
        if op in _COMPARE:
            return Val(self.emit(Kind.ELEMENTWISE, name, (a.id, b.id), {}, "bool"), BOOL)
        type_ = a.type if op in ("<<", ">>") else common(a.type, b.type)
        if type_.pointer or type_.dims:
            type_ = UNKNOWN_TYPE if type_.dims else type_
        if (name == "div" and type_.dtype is not None and type_.dtype[0] in "iu") or (
            name == "div" and type_.dtype is None and self._both_integers(a, b)
        ):
            name = "floordiv"
        special = self._thread_number(name, a, b)
        if special is not None:
            return special
        value = self.elementwise(name, (a.id, b.id), replace(type_, reference=False, const=False))
        self._note_linear(name, a, b, value)
        return value

    def _both_integers(self, a: Val, b: Val) -> bool:
        known = self.known(b.id)
        return (a.type.dtype or "i")[0] in "iu" and isinstance(known, int)

    def operator(self, op: str, left: Thing, right: Thing) -> Thing | None:
        raise NotImplementedError

    def _pointer_arithmetic(self, op: str, left: Thing, right: Thing) -> Thing | None:
        if isinstance(left, Val) and left.type.pointer:
            left = Pointer(left.id, left.type.pointee(), self.spaces.get(left.id, "unknown"))
        if isinstance(right, Val) and right.type.pointer and op == "+":
            right = Pointer(right.id, right.type.pointee(), self.spaces.get(right.id, "unknown"))
        if isinstance(left, Pointer) and isinstance(right, Pointer):
            return Val(self.emit(Kind.ELEMENTWISE, "sub", (left.id, right.id), {}, "i64"), CType("i64"))
        if isinstance(left, Pointer):
            return self.offset(left, self.val(right), op == "-")
        if isinstance(right, Pointer) and op == "+":
            return self.offset(right, self.val(left))
        if isinstance(left, LocalPointer):
            index = self.val(right)
            if op == "-":
                index = self.elementwise("neg", (index.id,), INT)
            return LocalPointer(self._local_offset(left, index), left.elem)
        if isinstance(left, Val) and left.type.dims and op == "+":
            return None
        return None

    def _unary(self, node: Unary) -> Thing:
        op = node.op
        if op in ("++", "--", "p++", "p--"):
            return self._step(node)
        if op == "&":
            return self.address_of(self.expression(node.operand))
        if op == "*":
            return self.deref(self.expression(node.operand))
        operand = self.evaluate(node.operand)
        if isinstance(operand, Obj):
            overloaded = self.operator(op, operand, operand)
            if overloaded is not None:
                return overloaded
        if op in ("!", "not"):
            value = self.truth(operand)
            known = self.known(value.id)
            if known is not None:
                return Val(self.const(not known), BOOL)
            return Val(self.emit(Kind.ELEMENTWISE, "not", (value.id,), {}, "bool"), BOOL)
        value = self.val(operand)
        if op == "-":
            known = self.known(value.id)
            literal = self.b.ops[value.id].kind is Kind.CONST
            if literal and isinstance(known, (int, float)) and not isinstance(known, bool):
                return Val(self.const(-known, value.type.dtype), value.type)
            return self.elementwise("neg", (value.id,), value.type)
        if op == "~":
            known = self.known(value.id)
            if isinstance(known, int):
                mask = (1 << BITS.get(value.type.dtype or "", 32)) - 1
                flipped = ~int(known) & mask if (value.type.dtype or "i")[0] == "u" else ~int(known)
                return Val(self.const(flipped, value.type.dtype), value.type)
            return self.elementwise("xor", (value.id, self.const(-1, value.type.dtype)), value.type)
        return value

    def _step(self, node: Unary) -> Thing:
        place = self.expression(node.operand)
        if isinstance(place, Obj):
            called = self.operator(node.op.lstrip("p"), place, place)
            return called if called is not None else place
        old = self.read(place)
        new = self.binary("+" if "+" in node.op else "-", old, self.int_val(1))
        self.write(place, new)
        return old if node.op.startswith("p") else place

    def _assign(self, node: Assign) -> Thing:
        place = self.expression(node.target)
        self.at = node.at
        if node.op:
            if isinstance(place, Obj):
                called = self.operator(node.op + "=", place, self.evaluate(node.value))
                if called is not None:
                    return place
            right = self.evaluate(node.value)
            self.at = node.at
            value: Thing = self.binary(node.op, self.read(place), right)
        else:
            value = self.initial(node.value, self.static_type(place))
            if not isinstance(place, Obj):
                self.at = max(getattr(node.value, "at", -1), 0) or node.at
                value = self.read(value)
            self.at = node.at
        if isinstance(place, External) and self.host:
            self.emit(Kind.HOST_CALL, f"set {place.name}", (self.val(value).id,), {"assignment": True}, None, None)
            return value
        if isinstance(place, (Val, Method)) and isinstance(node.target, (Member, Index)) and self.host:
            # a member of an object of a class that was not given, such as `config.gridDim`
            self.set_member(node.target, value, node.value)
            return value
        self.write(place, value)
        if isinstance(node.target, Name) and isinstance(place, SlotRef):
            held = self.slots.get(place.slot)
            if isinstance(held, (Val, Pointer)):
                self.named(held.id, node.target.name)
        return place

    def set_member(self, target: Node, value: Thing, source: Node) -> None:
        raise NotImplementedError

    def _ternary(self, node: Ternary) -> Thing:
        condition = self.truth(self.evaluate(node.condition))
        known = self.known(condition.id)
        if known is not None:
            return self.evaluate(node.yes if known else node.no)
        b = self.b
        before = b.guards
        b.guards = (*before, Guard(condition.id, True))
        yes = self.evaluate(node.yes)
        b.guards = (*before, Guard(condition.id, False))
        no = self.evaluate(node.no)
        b.guards = before
        self.at = node.at
        return self.choose(condition, yes, no)

    def choose(self, condition: Val, yes: Thing, no: Thing) -> Thing:
        """`condition ? yes : no` of values."""
        if yes == no:
            return yes
        if isinstance(yes, ArrayRef):
            yes = self.decay(yes)
        if isinstance(no, ArrayRef):
            no = self.decay(no)
        if isinstance(yes, Pointer) and isinstance(no, (Pointer, Val)):
            other = no.id
            chosen = self.emit(Kind.ELEMENTWISE, "where", (condition.id, yes.id, other), {}, None)
            space = yes.space if not isinstance(no, Pointer) or no.space == yes.space else "unknown"
            return replace(yes, id=chosen, space=space)
        if isinstance(yes, (Functions, Choice)) and isinstance(no, (Functions, Choice)):
            return either(yes, no)
        if isinstance(yes, (Obj, Tuple, LocalPointer, Closure, Functions, External, Method, CType)):
            return yes
        a, b = self.val(yes), self.val(no)
        type_ = common(a.type, b.type)
        return self.elementwise("where", (condition.id, a.id, b.id), replace(type_, reference=False, const=False))

    # threads, warps, lanes

    def _is_linear(self, value: int) -> bool:
        draft = self.b.ops[value]
        if draft.kind is Kind.CAST:
            return self._is_linear(draft.args[0])
        return value in self.linear or (draft.kind is Kind.THREAD_INDEX and draft.attrs.get("axis") == 0)

    def _thread_number(self, name: str, a: Val, b: Val) -> Val | None:
        """Warp, warp group and lane, by the arithmetic that makes them from the thread's number."""
        divisor = self.known_int(b.id)
        if divisor is None or divisor <= 0:
            return None
        if name == "shr" and divisor < 16:
            name, divisor = "floordiv", 1 << divisor
        if name == "and" and divisor & (divisor + 1) == 0:
            name, divisor = "mod", divisor + 1
        if name not in ("floordiv", "mod"):
            return None
        if self._is_linear(a.id):
            if name == "floordiv" and divisor % 32 == 0:
                attrs = {"group": True, "warps": divisor // 32} if divisor > 32 else {}
                return Val(self.emit(Kind.WARP, "", (a.id,), attrs, "i32"), INT)
            if name == "mod" and divisor == 32:
                return Val(self.emit(Kind.LANE, "", (a.id,), {}, "i32"), INT)
            if name == "mod" and divisor % 32 == 0:
                value = self.elementwise("mod", (a.id, b.id), INT)
                self.linear.add(value.id)
                return value
        draft = self.b.ops[a.id]
        if draft.kind is Kind.WARP and divisor in (2, 4, 8) and not draft.attrs.get("group"):
            if name == "floordiv":
                return Val(self.emit(Kind.WARP, "", (a.id,), {"group": True, "warps": divisor}, "i32"), INT)
            return Val(self.emit(Kind.WARP, "", (a.id,), {"within": divisor}, "i32"), INT)
        return None

    def _note_linear(self, name: str, a: Val, b: Val, value: Val) -> None:
        """Marks `threadIdx.y * blockDim.x + threadIdx.x` and the like as numbers of threads."""
        if name != "add":
            return
        for one, other in ((a.id, b.id), (b.id, a.id)):
            if self._is_linear(one) and self._is_row_of_threads(other):
                self.linear.add(value.id)

    def _is_row_of_threads(self, value: int) -> bool:
        draft = self.b.ops[value]
        if draft.kind is not Kind.ELEMENTWISE or draft.name != "mul":
            return False
        kinds = {self.b.ops[arg].kind for arg in draft.args}
        other_axis = any(
            (self.b.ops[arg].kind is Kind.THREAD_INDEX and self.b.ops[arg].attrs.get("axis") != 0)
            or (self.b.ops[arg].kind is Kind.WARP and self.rows_are_warps)
            for arg in draft.args
        )
        return other_axis and (Kind.BLOCK_SIZE in kinds or Kind.CONST in kinds or Kind.PARAM in kinds)

    # places

    def _member(self, node: Member) -> Thing:
        if isinstance(node.base, Name) and node.base.scope is None and node.base.name in _THREADS:
            return self.thread_builtin(node.base.name, node.name)
        base = self.expression(node.base)
        self.at = node.at
        return self.member(base, node.name, node.arrow, node.targs)

    def thread_builtin(self, name: str, axis: str) -> Val:
        if axis not in _AXES or self.find(name) is not None:
            return self.unknown(f"{name}.{axis}")
        if name == "threadIdx" and axis == "y" and self.rows_are_warps:
            return self._row_warp()
        kind = _THREADS[name]
        key = f"{name}.{axis}"
        known = self.params.get(key)
        if known is None:
            b = self.b
            saved = b.loop, b.guards, b.partition
            b.loop, b.guards, b.partition = -1, (), ""
            known = self.emit(kind, "", (), {"axis": _AXES[axis]}, "u32")
            b.loop, b.guards, b.partition = saved
            self.params[key] = known
        return Val(known, U32)

    def _row_warp(self) -> Val:
        """`threadIdx.y` of blocks that are launched 32 threads wide."""
        known = self.params.get("warp of threadIdx.y")
        if known is None:
            b = self.b
            saved = b.loop, b.guards, b.partition
            b.loop, b.guards, b.partition = -1, (), ""
            row = self.emit(Kind.THREAD_INDEX, "", (), {"axis": 1}, "u32")
            known = self.params["warp of threadIdx.y"] = self.emit(Kind.WARP, "", (row,), {}, "u32")
            b.loop, b.guards, b.partition = saved
        return Val(known, U32)

    def member(self, base: Thing, name: str, arrow: bool, targs: tuple[Node, ...] | None = None) -> Thing:
        """`base.name` or `base->name`."""
        if arrow and not isinstance(base, Obj):
            base = self.deref(base)
        if isinstance(base, SlotRef):
            held = self.slots.get(base.slot)
            if isinstance(held, (Obj, Tuple, Pointer, LocalPointer, ArrayRef)) and not base.path:
                base = self.deref(held) if arrow and isinstance(held, (Pointer, LocalPointer)) else held
        held_function = self.slots.get(base.slot) if isinstance(base, SlotRef) else base
        if isinstance(held_function, Closure) and name == "operator()":
            return replace(held_function, targs=self.template_arguments(targs) if targs else ())
        if isinstance(base, Obj):
            if name in base.fields:
                return base.fields[name]
            thing = self.class_member(base.instance, name, base)
            if thing is not None:
                return self.with_targs(thing, targs)
            return Method(base, name, self.template_arguments(targs) if targs else ())
        type_ = self.static_type(base)
        lane = lane_of(name)
        if lane is not None and type_.lanes > 1 and not type_.pointer and not type_.dims:
            return LaneRef(base, lane, replace(type_, lanes=1, reference=False, const=False))
        if lane is not None and type_.lanes == 1 and type_.name.endswith("1") and type_.dtype is not None:
            return base
        if type_.instance is not None and not type_.pointer and not type_.dims:
            field_type = self.field_type(type_.instance, name)
            if field_type is not None:
                return self._field(base, name, field_type)
            thing = self.class_member(type_.instance, name, None)
            if isinstance(thing, Functions):
                return self.with_targs(replace(thing, this=self.object_at(base, type_)), targs)
            if thing is not None:
                return thing
        if isinstance(base, ParamRef) and targs is None:
            return ParamRef(f"{base.path}.{name}", UNKNOWN_TYPE)
        return Method(base, name, self.template_arguments(targs) if targs else ())

    def with_targs(self, thing: Thing, targs: tuple[Node, ...] | None) -> Thing:
        if isinstance(thing, Functions) and targs is not None:
            return replace(thing, targs=self.template_arguments(targs))
        return thing

    def field_type(self, instance: object, name: str) -> CType | None:
        from d2k.analyzers.cuda.scope import ClassInstance

        if not isinstance(instance, ClassInstance):
            return None
        found = instance.field_types.get(name)
        if found is not None:
            return found
        unnamed = (type_.instance for field, type_ in instance.field_types.items() if field.startswith("<"))
        for inner in (*instance.bases, *unnamed):
            found = self.field_type(inner, name)
            if found is not None:
                return found
        return None

    def object_at(self, base: Thing, type_: CType) -> Obj:
        """An object whose fields lie in memory or in a parameter."""
        assert type_.instance is not None
        fields: dict[str, Thing] = {}
        stack = [type_.instance]
        while stack:
            instance = stack.pop()
            for name, field in instance.field_types.items():
                fields.setdefault(name, self._field(base, name, field))
            stack.extend(instance.bases)
        return Obj(type_.instance, fields)

    def _field(self, base: Thing, name: str, type_: CType) -> Thing:
        """A field of an object in memory, in a parameter or in a value."""
        if isinstance(base, ParamRef):
            return ParamRef(f"{base.path}.{name}", replace(type_, reference=False))
        if isinstance(base, (MemRef, ArrayRef)):
            where = base if isinstance(base, MemRef) else None
            if where is None:
                assert isinstance(base, ArrayRef)
                pointer = self.decay(base)
                where = MemRef(pointer.id, base.type, base.space)
            if where.space == "shared":
                return self._shared_field(where, name, type_)
            moved = self.emit(Kind.SHAPE, "index", (where.address,), {"member": name}, None)
            if type_.dims:
                return ArrayRef(moved, (), type_, where.space, type_.dim_values)
            return MemRef(moved, type_, where.space)
        value = self.val(base)
        part = self.emit(Kind.SHAPE, "index", (value.id,), {"member": name}, type_.dtype)
        if type_.pointer:
            return Pointer(part, type_.pointee(), "global")
        return Val(part, type_)

    def _shared_field(self, where: MemRef, name: str, type_: CType) -> Thing:
        """A field of a struct in shared memory is an allocation of its own, inside that of the struct."""
        key = (where.address, name)
        base = self.shared_members.get(key)
        if base is None:
            b = self.b
            saved = b.loop, b.guards
            b.loop, b.guards = b.ops[where.address].loop, b.ops[where.address].guards
            attrs: dict[str, bool | str | int] = {"space": "shared", "member": True}
            if type_.lanes > 1:
                attrs["lanes"] = type_.lanes
            if type_.name and type_.dtype is None:
                attrs["object"] = type_.name
            base = self.emit(
                Kind.ALLOC, name, (where.address,), attrs, type_.dtype, type_.dim_values if type_.dims else ()
            )
            b.loop, b.guards = saved
            self.b.ops[base].variable = name
            self.shared_members[key] = base
            self.spaces[base] = "shared"
        if type_.dims:
            return ArrayRef(base, (), type_, "shared", type_.dim_values)
        if type_.instance is not None:
            return MemRef(base, type_, "shared")
        return ArrayRef(base, (), type_, "shared", ())

    def _index(self, node: Index) -> Thing:
        base = self.expression(node.base)
        self.at = node.at
        if isinstance(base, Obj):
            called = self.operator("[]", base, self.value(node.args[0]) if node.args else self.int_val(0))
            if called is not None:
                return called
        return self.index_into(base, tuple(self.value(arg) for arg in node.args))

    # casts

    def _cast(self, node: Cast) -> Thing:
        type_ = self.resolve(node.type)
        thing = self.expression(node.value)
        self.at = node.at
        return self.cast(thing, type_, node.style)

    def cast(self, thing: Thing, type_: CType, style: str) -> Thing:
        if type_.reference and style in ("reinterpret", "static", "const", "c") and not type_.pointer:
            return self._view(thing, type_)
        if type_.pointer and isinstance(thing, SlotRef) and thing.type.dims:
            held = self.slots.get(thing.slot)
            if held is None or isinstance(held, Val):
                # a local array decays to the address of its first element
                first = SlotRef(thing.slot, thing.type.element(), (*thing.path, self.const(0)))
                return self._cast_pointer(LocalPointer(first, first.type), type_)
        value = self.read(thing)
        if type_.pointer:
            return self._cast_pointer(value, type_)
        if isinstance(value, Obj) and type_.instance is None:
            converted = self.operator("operator", value, value)
            if converted is not None:
                return self.cast(converted, type_, style)
        if type_.name in ("void", "auto") or isinstance(value, (Obj, Closure, Functions, External)):
            return value
        if isinstance(value, Pointer):
            return Val(value.id, type_)
        one = self.val(value)
        if style == "reinterpret" and type_.dtype is not None:
            if one.type.pointer or type_.dtype == one.type.dtype:
                return Val(one.id, type_)
            return Val(self.emit(Kind.CAST, "bitcast", (one.id,), {}, type_.dtype), type_)
        if type_.lanes > 1 and one.type.lanes == type_.lanes and one.type.dtype != type_.dtype:
            return Val(
                self.emit(Kind.CAST, "cast", (one.id,), {"packed": type_.lanes}, type_.dtype),
                replace(type_, const=False),
            )
        if type_.lanes > 1 or type_.dtype is None:
            return Val(one.id, type_) if type_.lanes > 1 and one.type.dtype is None else one
        return self.convert(one, replace(type_, const=False, reference=False))

    def _view(self, thing: Thing, type_: CType) -> Thing:
        """`reinterpret_cast<T&>(thing)`: the same place seen as another type."""
        bare = replace(type_, reference=False)
        if isinstance(thing, MemRef):
            return replace(thing, type=bare)
        if isinstance(thing, ArrayRef):
            return self.deref(replace(self.decay(thing), elem=bare))
        if isinstance(thing, SlotRef):
            if bare.dtype is None and bare.instance is None:
                return thing
            return self.deref(self._cast_pointer(self.address_of(thing), bare.pointer_to()))
        return thing

    def _cast_pointer(self, value: Thing, type_: CType) -> Thing:
        elem = replace(type_.pointee(), reference=False)
        if isinstance(value, ArrayRef):
            value = self.decay(value)
        if isinstance(value, Pointer):
            old = value.elem
            if old == elem or elem.name == "void":
                return value
            width = BITS.get(elem.dtype or "", 0)
            before = BITS.get(old.dtype or "", 0)
            if width and before and width != before and not elem.pointer and not old.pointer:
                # offsets behind the cast count in the new element's width
                cast = self.emit(
                    Kind.CAST, "bitcast", (value.id,), {"pointer": True, "from_bits": before, "to_bits": width}, None
                )
                return Pointer(cast, elem, value.space)
            return Pointer(value.id, elem, value.space)
        if isinstance(value, LocalPointer):
            return replace(value, elem=elem)
        if isinstance(value, Val) and value.type.dims:
            return value
        if isinstance(value, Val):
            return Pointer(value.id, elem, self.spaces.get(value.id, "unknown"))
        return value

    def _sizeof(self, node: SizeOf) -> Thing:
        operand = node.operand
        plain = plain_name(operand)
        if (
            plain
            and isinstance(pack := self.find(plain), Tuple)
            and self.unit.text(node.at, node.at + 9) == "sizeof..."
        ):
            return Val(self.const(len(pack.items), "u64"), U64)
        if isinstance(operand, (TypeName, Name)):
            thing: Thing = self.template_argument(operand)
        else:
            thing = self.peek(operand)
        bits = self.static_type(thing).bits()
        if isinstance(thing, ArrayRef):
            bits = thing.type.bits()
        if bits is None or bits % 8:
            return Val(self.emit(Kind.CALL, "sizeof", (), {"value": True}, "u64"), U64)
        return Val(self.const(bits // 8, "u64"), U64)

    def _init(self, node: Init) -> Thing:
        type_ = self.resolve(node.type) if node.type is not None else UNKNOWN_TYPE
        return self.initial(node, type_)

    def _lambda(self, node: Lambda) -> Thing:
        return Closure(node, self.frame)

    def _type_name(self, node: TypeName) -> Thing:
        if node.base is not None and not node.pointer:
            thing = self.value_named(node.base)
            if thing is not None:
                return thing
        return self.resolve(node)

    def _fold(self, node: Fold) -> Thing:
        """The operand for every element of its packs, combined by the operator."""
        packs = {name: thing for name in names_in(node.operand) if isinstance(thing := self.find(name), Tuple)}
        count = min((len(pack.items) for pack in packs.values()), default=1)
        result: Thing | None = None
        for position in range(count):
            scope: dict[str, Thing] = {name: pack.items[position] for name, pack in packs.items()}
            self.frame.scopes.append(scope)
            try:
                value = self.evaluate(node.operand)
            finally:
                self.frame.scopes.pop()
            result = value if result is None or node.op == "," else self.binary(node.op, result, value)
        return result if result is not None else Val(-1, CType(name="void"))

    def _opaque(self, node: Opaque) -> Thing:
        parts = [self.evaluate(part) for part in node.parts]
        if node.text == "..." and len(parts) == 1:
            return parts[0]
        values = [self.val(part).id for part in parts if isinstance(part, (Val, Pointer))]
        text = " ".join(node.text.split())[:60]
        if self.host:
            return Val(self.emit(Kind.HOST_CALL, text or "?", values, {"opaque": True}, None, None))
        return self.unknown(text or "?", values)

    def _call(self, node: Call) -> Thing:
        raise NotImplementedError

    def _asm(self, node: Asm) -> Thing:
        raise NotImplementedError

    def _block(self, node: Block) -> Thing:
        raise NotImplementedError


def either(yes: Functions | Choice, no: Functions | Choice) -> Choice:
    """Either of two functions."""
    items = (*_functions(yes), *_functions(no))
    return Choice(items[:64])


def _functions(thing: Functions | Choice) -> tuple[Functions, ...]:
    return thing.items if isinstance(thing, Choice) else (thing,)


def names_in(node: Node) -> list[str]:
    """The plain names in an expression, each once."""
    found: dict[str, None] = {}
    stack: list[object] = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, Name) and one.scope is None:
            found[one.name] = None
        if isinstance(one, msgspec.Struct):
            stack.extend(getattr(one, field) for field in one.__struct_fields__)
        elif isinstance(one, tuple):
            stack.extend(one)
    return list(found)
