"""The total evaluator: every expression ends with a value or an `ExpressionError`, within bounded time and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping

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
    Unary,
    too_deep,
)
from d2k.spec.hardware import Architecture

Scalar = bool | int | float | str | Architecture
Evaluated = Scalar | tuple[Scalar, ...]
"""What a node evaluates to: lists are tuples, a duration is seconds."""

INTEGER_LIMIT = 2**63
LIST_LIMIT = 65_536
STEP_LIMIT = 5_000_000


class Budget:
    """Work that evaluations may share: about one step a node, or 16 list elements handled in one go."""

    def __init__(self, steps: int = STEP_LIMIT) -> None:
        self._left = steps

    def spend(self, node: Expression, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise ExpressionError(
                Fault.TOO_MUCH_WORK, node, "this takes too many steps to evaluate", help="use shorter lists"
            )


def evaluate(
    node: Expression, scope: Mapping[str, Evaluated], functions: Mapping[str, Function], budget: Budget | None = None
) -> Evaluated:
    """The value of a well-typed expression (see `inference.infer`); raises `ExpressionError`."""
    try:
        return _Evaluation(functions, budget or Budget()).value_of(node, scope)
    except RecursionError:
        raise too_deep(node) from None


class _Evaluation:
    def __init__(self, functions: Mapping[str, Function], budget: Budget) -> None:
        self._functions = functions
        self._budget = budget

    def value_of(self, node: Expression, scope: Mapping[str, Evaluated]) -> Evaluated:
        self._budget.spend(node)
        match node:
            case Number(value):
                return _bounded(node, value)
            case Boolean(value) | Text(value):
                return value
            case Duration(seconds):
                return seconds
            case Name(name):
                return scope[name]
            case Binary("and", left, right):
                return self.value_of(left, scope) is True and self.value_of(right, scope)
            case Binary("or", left, right):
                return self.value_of(left, scope) is True or self.value_of(right, scope)
            case Binary(_, left, right):
                return self._binary(node, self.value_of(left, scope), self.value_of(right, scope))
            case Unary("not", operand):
                return self.value_of(operand, scope) is not True
            case Unary(_, operand):
                return _bounded(node, -_number(self.value_of(operand, scope)))
            case Conditional(test, then, otherwise):
                return self.value_of(then if self.value_of(test, scope) is True else otherwise, scope)
            case Sequence(items):
                self._check_length(node, len(items))
                return tuple(_scalar(self.value_of(item, scope)) for item in items)
            case Comprehension(element, variable, source):
                return self._comprehension(element, variable, _list(self.value_of(source, scope)), scope)
            case Index(sequence, position):
                return self._index(node, _list(self.value_of(sequence, scope)), self.value_of(position, scope))
            case Call(function, arguments):
                return self._call(node, function, tuple(self.value_of(argument, scope) for argument in arguments))
            case Among(subject, members):
                wanted = self.value_of(subject, scope)
                return any(self.value_of(member, scope) == wanted for member in members)
            case Has(subject, features):
                found = self.value_of(subject, scope)
                assert isinstance(found, Architecture)
                return found.features.issuperset(features)

    def _comprehension(
        self, element: Expression, variable: str, source: tuple[Scalar, ...], scope: Mapping[str, Evaluated]
    ) -> tuple[Scalar, ...]:
        self._budget.spend(element, len(scope) // 16)
        inner = dict(scope)
        found: list[Scalar] = []
        for value in source:
            inner[variable] = value
            found.append(_scalar(self.value_of(element, inner)))
        return tuple(found)

    def _binary(self, node: Binary, left: Evaluated, right: Evaluated) -> Evaluated:
        op = node.op
        if isinstance(left, tuple) and isinstance(right, tuple) and op == "+":
            self._check_length(node, len(left) + len(right))
            return left + right
        if op in ("==", "!="):
            return (left == right) is (op == "==")
        if isinstance(left, Architecture) and isinstance(right, Architecture):
            return _compare(op, left.generation, right.generation)
        a, b = _number(left), _number(right)
        if op in ("<", "<=", ">", ">="):
            return _compare(op, a, b)
        return _arithmetic(node, op, a, b)

    def _index(self, node: Index, values: tuple[Scalar, ...], position: Evaluated) -> Scalar:
        place = _integer(position)
        if not 0 <= place < len(values):
            raise ExpressionError(
                Fault.DOMAIN, node, f"index {place} is outside a list of {len(values)} elements (the first is 0)"
            )
        return values[place]

    def _call(self, node: Call, name: str, arguments: tuple[Evaluated, ...]) -> Evaluated:
        function = self._functions.get(name)
        if function is not None:
            return self._user(node, function, arguments)
        if isinstance(arguments[0], tuple):
            self._budget.spend(node, len(arguments[0]) // 16)
        match name:
            case "min" | "max":
                values = arguments if len(arguments) > 1 else _list(arguments[0])
                if not values:
                    raise ExpressionError(Fault.DOMAIN, node, f"`{name}` of an empty list")
                numbers = [_number(value) for value in values]
                return min(numbers) if name == "min" else max(numbers)
            case "sum":
                return _bounded(node, sum(_number(value) for value in _list(arguments[0])))
            case "len":
                return len(_list(arguments[0]))
            case "any":
                return any(_list(arguments[0]))
            case "all":
                return all(_list(arguments[0]))
            case "range":
                return self._range(node, _integer(arguments[0]))
            case "cat":
                parts = [part if isinstance(part, tuple) else (part,) for part in arguments]
                self._check_length(node, sum(len(part) for part in parts))
                return tuple(value for part in parts for value in part)
            case _:
                return _function_of_number(node, name, _number(arguments[0]))

    def _user(self, node: Call, function: Function, arguments: tuple[Evaluated, ...]) -> Evaluated:
        try:
            return self.value_of(function.body, dict(zip(function.parameters, arguments, strict=True)))
        except ExpressionError as inner:
            message = f"in `{function.name}`: {inner.message}"
            raise ExpressionError(inner.fault, node, message, help=inner.help) from None

    def _range(self, node: Call, count: int) -> tuple[int, ...]:
        if count < 0:
            raise ExpressionError(Fault.DOMAIN, node, f"`range` of {count}, which is negative")
        self._check_length(node, count)
        return tuple(range(count))

    def _check_length(self, node: Expression, length: int) -> None:
        if length > LIST_LIMIT:
            raise ExpressionError(
                Fault.TOO_LONG, node, f"a list of {length} elements; a list may have at most {LIST_LIMIT}"
            )
        self._budget.spend(node, length // 16)


def _arithmetic(node: Expression, op: str, a: int | float, b: int | float) -> int | float:
    if op in ("/", "//", "%") and b == 0:
        what = "remainder of a division by zero" if op == "%" else "division by zero"
        raise ExpressionError(Fault.DIVISION_BY_ZERO, node, what)
    try:
        match op:
            case "+":
                return _bounded(node, a + b)
            case "-":
                return _bounded(node, a - b)
            case "*":
                return _bounded(node, a * b)
            case "/":
                return _bounded(node, a / b)
            case "//":
                return _bounded(node, a // b)
            case "%":
                return _bounded(node, a % b)
            case _:
                return _power(node, a, b)
    except OverflowError:
        raise _overflow(node) from None


def _power(node: Expression, a: int | float, b: int | float) -> int | float:
    if isinstance(a, int) and isinstance(b, int):
        if b < 0:
            raise ExpressionError(
                Fault.DOMAIN, node, "a negative power of an integer", help="write the base as a real number: `2.0 ** n`"
            )
        # The bound is on the result: 2 ** (2 ** 60) must fail before it is computed.
        if abs(a) > 1 and b >= INTEGER_LIMIT.bit_length():
            raise _overflow(node)
        return _bounded(node, a**b)
    if a == 0 and b < 0:
        raise ExpressionError(Fault.DIVISION_BY_ZERO, node, "a negative power of zero")
    if a < 0 and b != math.floor(b):
        raise ExpressionError(Fault.DOMAIN, node, "a fractional power of a negative number")
    return _bounded(node, float(a) ** b)


def _function_of_number(node: Call, name: str, x: int | float) -> int | float:
    if (name == "sqrt" and x < 0) or (name == "log2" and x <= 0):
        raise ExpressionError(Fault.DOMAIN, node, f"`{name}` of {x}")
    try:
        match name:
            case "abs":
                return abs(x)
            case "ceil":
                return _bounded(node, math.ceil(x))
            case "floor":
                return _bounded(node, math.floor(x))
            case "sqrt":
                return math.sqrt(x)
            case "log2":
                return math.log2(x)
            case _:
                return _bounded(node, math.exp(x))
    except OverflowError:
        raise _overflow(node) from None


def _compare(op: str, a: int | float, b: int | float) -> bool:
    match op:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case _:
            return a >= b


def _bounded(node: Expression, value: int | float) -> int | float:
    if isinstance(value, int):
        if not -INTEGER_LIMIT < value < INTEGER_LIMIT:
            raise _overflow(node)
    elif not math.isfinite(value):
        raise _overflow(node)
    return value


def _overflow(node: Expression) -> ExpressionError:
    return ExpressionError(Fault.OVERFLOW, node, "the result is too large (the limit is 2 ** 63)")


def _number(value: Evaluated) -> int | float:
    assert isinstance(value, int | float)
    return value


def _integer(value: Evaluated) -> int:
    assert isinstance(value, int)
    return value


def _scalar(value: Evaluated) -> Scalar:
    assert not isinstance(value, tuple)
    return value


def _list(value: Evaluated) -> tuple[Scalar, ...]:
    assert isinstance(value, tuple)
    return value
