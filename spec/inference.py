"""Types of expressions, found without evaluating them. A user function is typed anew for other argument types."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from d2k.spec.expression import (
    Among,
    Binary,
    Boolean,
    Call,
    Comprehension,
    Conditional,
    Duration,
    Expression,
    ExpressionError,
    Fault,
    Function,
    Has,
    Index,
    Name,
    Number,
    Sequence,
    Text,
    Type,
    Unary,
    too_deep,
)
from d2k.spec.hardware import FEATURES

LIST_OF = MappingProxyType({Type.INT: Type.INTS, Type.FLOAT: Type.FLOATS, Type.BOOL: Type.BOOLS})
ELEMENT_OF = MappingProxyType({many: one for one, many in LIST_OF.items()})
_NUMBERS = (Type.INT, Type.FLOAT)


class Builtin(msgspec.Struct, frozen=True):
    """A built-in function; `most` None means any number of arguments."""

    name: str
    least: int
    most: int | None
    meaning: str


BUILTINS = MappingProxyType(
    {
        one.name: one
        for one in (
            Builtin("min", 1, None, "least of a list or of several numbers"),
            Builtin("max", 1, None, "greatest of a list or of several numbers"),
            Builtin("sum", 1, 1, "sum of a list; 0 for an empty one"),
            Builtin("len", 1, 1, "number of elements of a list"),
            Builtin("any", 1, 1, "whether one of a list of truth values is true"),
            Builtin("all", 1, 1, "whether all of a list of truth values are true"),
            Builtin("range", 1, 1, "the list 0, 1, …, n - 1"),
            Builtin("cat", 1, None, "one list of all given lists and single values"),
            Builtin("abs", 1, 1, "magnitude"),
            Builtin("ceil", 1, 1, "least integer that is not below the argument"),
            Builtin("floor", 1, 1, "greatest integer that is not above the argument"),
            Builtin("sqrt", 1, 1, "square root"),
            Builtin("log2", 1, 1, "logarithm to base 2"),
            Builtin("exp", 1, 1, "exponential"),
        )
    }
)
"""The functions that every expression may call, beside those written in the language."""


def infer(node: Expression, scope: Mapping[str, Type], functions: Mapping[str, Function]) -> Type:
    """The type of an expression whose names have the types of `scope`; raises `ExpressionError`.

    An error inside the body of a user function is reported at the call, since the body is right for other arguments.
    """
    try:
        return _Inference(functions).type_of(node, scope)
    except RecursionError:
        raise too_deep(node) from None


class _Inference:
    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._known: dict[tuple[str, tuple[Type, ...]], Type] = {}
        self._open: set[str] = set()

    def type_of(self, node: Expression, scope: Mapping[str, Type]) -> Type:
        match node:
            case Number(value):
                return Type.INT if isinstance(value, int) else Type.FLOAT
            case Boolean():
                return Type.BOOL
            case Text():
                return Type.TEXT
            case Duration():
                return Type.DURATION
            case Name(name):
                return self._name(node, name, scope)
            case Unary("not", operand):
                self._expect(operand, scope, Type.BOOL, "`not` needs a truth value")
                return Type.BOOL
            case Unary(_, operand):
                found = self.type_of(operand, scope)
                if found not in (*_NUMBERS, Type.DURATION):
                    raise _type_error(operand, f"`-` needs a number, this is {describe(found)}")
                return found
            case Binary("and" | "or" as op, left, right):
                self._expect(left, scope, Type.BOOL, f"`{op}` needs truth values")
                self._expect(right, scope, Type.BOOL, f"`{op}` needs truth values")
                return Type.BOOL
            case Binary("==" | "!=" | "<" | "<=" | ">" | ">=", _, _):
                return self._comparison(node, scope)
            case Binary():
                return self._arithmetic(node, scope)
            case Conditional(test, then, otherwise):
                self._expect(test, scope, Type.BOOL, "the condition of `if` must be a truth value")
                return self._unify(node, self.type_of(then, scope), self.type_of(otherwise, scope))
            case Sequence(items):
                return self._sequence(node, items, scope)
            case Comprehension(element, variable, source):
                one = self._element(source, scope, "`for … in` needs a list")
                return self._list_of(element, self.type_of(element, {**scope, variable: one}))
            case Index(sequence, position):
                one = self._element(sequence, scope, "only a list can be indexed")
                self._expect(position, scope, Type.INT, "an index must be an integer")
                return one
            case Call():
                return self._call(node, scope)
            case Among(subject, members):
                wanted = self.type_of(subject, scope)
                for member in members:
                    self._unify(member, wanted, self.type_of(member, scope))
                return Type.BOOL
            case Has(subject, features):
                self._expect(subject, scope, Type.ARCHITECTURE, "`has` asks what `arch` can do")
                for feature in features:
                    if feature not in FEATURES:
                        raise _unknown_feature(node, feature)
                return Type.BOOL

    def _name(self, node: Expression, name: str, scope: Mapping[str, Type]) -> Type:
        if name in scope:
            return scope[name]
        if name in BUILTINS or name in self._functions:
            raise _type_error(node, f"`{name}` is a function; call it as `{name}(…)`")
        raise ExpressionError(Fault.UNKNOWN_NAME, node, f"the name `{name}` is not defined here", name=name)

    def _expect(self, node: Expression, scope: Mapping[str, Type], wanted: Type, message: str) -> None:
        found = self.type_of(node, scope)
        if found is not wanted:
            raise _type_error(node, f"{message}; this is {describe(found)}")

    def _element(self, node: Expression, scope: Mapping[str, Type], message: str) -> Type:
        found = self.type_of(node, scope)
        if found not in ELEMENT_OF:
            raise _type_error(node, f"{message}; this is {describe(found)}")
        return ELEMENT_OF[found]

    def _list_of(self, node: Expression, element: Type) -> Type:
        if element not in LIST_OF:
            raise _type_error(node, f"a list holds numbers or truth values; this is {describe(element)}")
        return LIST_OF[element]

    def _unify(self, node: Expression, left: Type, right: Type) -> Type:
        if left is right:
            return left
        if accepts(left, right):
            return left
        if accepts(right, left):
            return right
        raise _type_error(node, f"{describe(left)} and {describe(right)} do not go together here")

    def _sequence(self, node: Expression, items: tuple[Expression, ...], scope: Mapping[str, Type]) -> Type:
        if not items:
            return Type.INTS
        element = self.type_of(items[0], scope)
        for item in items[1:]:
            element = self._unify(item, element, self.type_of(item, scope))
        return self._list_of(node, element)

    def _comparison(self, node: Binary, scope: Mapping[str, Type]) -> Type:
        left, right = self.type_of(node.left, scope), self.type_of(node.right, scope)
        self._unify(node, left, right)
        ordered = (*_NUMBERS, Type.DURATION, Type.ARCHITECTURE)
        if node.op not in ("==", "!=") and left not in ordered:
            raise _type_error(node, f"`{node.op}` compares numbers; this is {describe(left)}")
        return Type.BOOL

    def _arithmetic(self, node: Binary, scope: Mapping[str, Type]) -> Type:
        op, left, right = node.op, self.type_of(node.left, scope), self.type_of(node.right, scope)
        if op == "+" and left in ELEMENT_OF and right in ELEMENT_OF:
            return self._unify(node, left, right)
        if Type.DURATION in (left, right):
            return self._duration(node, left, right)
        for side, found in ((node.left, left), (node.right, right)):
            if found not in _NUMBERS:
                raise _type_error(side, f"`{op}` needs numbers; this is {describe(found)}")
            if op in ("//", "%") and found is not Type.INT:
                raise _type_error(side, f"`{op}` needs integers; this is {describe(found)}", "write `floor(a / b)`")
        if op == "/":
            return Type.FLOAT
        return Type.INT if left is right is Type.INT else Type.FLOAT

    def _duration(self, node: Binary, left: Type, right: Type) -> Type:
        match node.op:
            case "+" | "-" if left is right:
                return Type.DURATION
            case "*" if left in _NUMBERS or right in _NUMBERS:
                return Type.DURATION
            case "/" if left is Type.DURATION and right in _NUMBERS:
                return Type.DURATION
            case "/" if left is right:
                return Type.FLOAT
        raise _type_error(node, f"`{node.op}` does not combine {describe(left)} and {describe(right)}")

    def _call(self, node: Call, scope: Mapping[str, Type]) -> Type:
        if node.named:
            raise ExpressionError(Fault.ARITY, node, f"`{node.function}` takes no named arguments")
        types = tuple(self.type_of(argument, scope) for argument in node.arguments)
        if node.function in BUILTINS:
            return self._builtin(node, types)
        function = self._functions.get(node.function)
        if function is None:
            raise ExpressionError(
                Fault.UNKNOWN_FUNCTION, node, f"there is no function `{node.function}`", name=node.function
            )
        if len(types) != len(function.parameters):
            raise _arity(node, f"{len(function.parameters)}", len(types))
        return self._user(node, function, types)

    def _user(self, node: Call, function: Function, types: tuple[Type, ...]) -> Type:
        key = (function.name, types)
        if key in self._known:
            return self._known[key]
        if function.name in self._open:
            raise _type_error(node, f"`{function.name}` calls itself; functions must not be recursive")
        self._open.add(function.name)
        try:
            found = self.type_of(function.body, dict(zip(function.parameters, types, strict=True)))
        except ExpressionError as inner:
            message = f"in `{function.name}`: {inner.message}"
            raise ExpressionError(inner.fault, node, message, name=inner.name, help=inner.help) from None
        finally:
            self._open.discard(function.name)
        self._known[key] = found
        return found

    def _builtin(self, node: Call, types: tuple[Type, ...]) -> Type:
        builtin = BUILTINS[node.function]
        if len(types) < builtin.least or (builtin.most is not None and len(types) > builtin.most):
            raise _arity(node, f"{builtin.least}" if builtin.most == builtin.least else "at least one", len(types))
        match builtin.name:
            case "min" | "max" if len(types) > 1:
                for argument, found in zip(node.arguments, types, strict=True):
                    self._number(node, argument, found)
                return Type.INT if all(found is Type.INT for found in types) else Type.FLOAT
            case "min" | "max" | "sum":
                if types[0] not in (Type.INTS, Type.FLOATS):
                    raise _type_error(node.arguments[0], f"`{builtin.name}` needs a list of numbers")
                return ELEMENT_OF[types[0]]
            case "len":
                if types[0] not in ELEMENT_OF:
                    raise _type_error(node.arguments[0], f"`len` needs a list; this is {describe(types[0])}")
                return Type.INT
            case "any" | "all":
                if types[0] is not Type.BOOLS:
                    raise _type_error(node.arguments[0], f"`{builtin.name}` needs a list of truth values")
                return Type.BOOL
            case "range":
                if types[0] is not Type.INT:
                    raise _type_error(node.arguments[0], f"`range` needs an integer; this is {describe(types[0])}")
                return Type.INTS
            case "cat":
                return self._cat(node, types)
            case "abs":
                self._number(node, node.arguments[0], types[0])
                return types[0]
            case "ceil" | "floor":
                self._number(node, node.arguments[0], types[0])
                return Type.INT
            case _:
                self._number(node, node.arguments[0], types[0])
                return Type.FLOAT

    def _cat(self, node: Call, types: tuple[Type, ...]) -> Type:
        lists = [found if found in ELEMENT_OF else self._list_of(node, found) for found in types]
        whole = lists[0]
        for found in lists[1:]:
            whole = self._unify(node, whole, found)
        return whole

    def _number(self, node: Call, argument: Expression, found: Type) -> None:
        if found not in _NUMBERS:
            raise _type_error(argument, f"`{node.function}` needs numbers; this is {describe(found)}")


def accepts(wanted: Type, found: Type) -> bool:
    """Whether a value of type `found` may stand where `wanted` is asked for."""
    return wanted is found or (wanted, found) in ((Type.FLOAT, Type.INT), (Type.FLOATS, Type.INTS))


def describe(found: Type) -> str:
    """A type in plain words, with its article."""
    return {
        Type.INT: "an integer",
        Type.FLOAT: "a real number",
        Type.BOOL: "a truth value",
        Type.TEXT: "a text",
        Type.DURATION: "a time",
        Type.ARCHITECTURE: "an architecture",
        Type.INTS: "a list of integers",
        Type.FLOATS: "a list of real numbers",
        Type.BOOLS: "a list of truth values",
    }[found]


def _type_error(node: Expression, message: str, help: str = "") -> ExpressionError:
    return ExpressionError(Fault.TYPE, node, message, help=help)


def _arity(node: Call, wanted: str, found: int) -> ExpressionError:
    plural = "argument" if wanted == "1" else "arguments"
    return ExpressionError(Fault.ARITY, node, f"`{node.function}` takes {wanted} {plural}, {found} given")


def _unknown_feature(node: Expression, feature: str) -> ExpressionError:
    message = f"there is no hardware feature `{feature}`"
    return ExpressionError(Fault.UNKNOWN_FEATURE, node, message, name=feature)
