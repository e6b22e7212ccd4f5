"""Expressions of the language as plain records, and their canonical text.

Records know nothing of source places; the compiler keeps those beside them, by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Type(StrEnum):
    """What an expression evaluates to. `int` is accepted where `float` is expected, for lists too."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "text"
    DURATION = "duration"
    ARCHITECTURE = "architecture"
    INTS = "ints"
    FLOATS = "floats"
    BOOLS = "bools"


class Number(msgspec.Struct, frozen=True, tag="number"):
    value: int | float


class Boolean(msgspec.Struct, frozen=True, tag="boolean"):
    value: bool


class Text(msgspec.Struct, frozen=True, tag="text"):
    value: str


class Duration(msgspec.Struct, frozen=True, tag="duration"):
    """`5us`: a time in seconds with the text that was written."""

    seconds: float
    text: str


class Name(msgspec.Struct, frozen=True, tag="name"):
    name: str


class Unary(msgspec.Struct, frozen=True, tag="unary"):
    """`op` is `-` or `not`."""

    op: str
    operand: Expression


class Binary(msgspec.Struct, frozen=True, tag="binary"):
    """`op` is one of `+ - * / // % ** == != < <= > >= and or`."""

    op: str
    left: Expression
    right: Expression


class Conditional(msgspec.Struct, frozen=True, tag="if"):
    test: Expression
    then: Expression
    otherwise: Expression


class Sequence(msgspec.Struct, frozen=True, tag="list"):
    items: tuple[Expression, ...]


class Comprehension(msgspec.Struct, frozen=True, tag="for"):
    """`[element for variable in source]`."""

    element: Expression
    variable: str
    source: Expression


class Index(msgspec.Struct, frozen=True, tag="index"):
    sequence: Expression
    position: Expression


class Call(msgspec.Struct, frozen=True, tag="call"):
    function: str
    arguments: tuple[Expression, ...]
    named: tuple[tuple[str, Expression], ...] = ()


class Among(msgspec.Struct, frozen=True, tag="in"):
    """`subject in {a, b}`."""

    subject: Expression
    members: tuple[Expression, ...]


class Has(msgspec.Struct, frozen=True, tag="has"):
    """`arch has {tma, cluster}`: the architecture has every named feature."""

    subject: Expression
    features: tuple[str, ...]


Expression = (
    Number
    | Boolean
    | Text
    | Duration
    | Name
    | Unary
    | Binary
    | Conditional
    | Sequence
    | Comprehension
    | Index
    | Call
    | Among
    | Has
)


class Function(msgspec.Struct, frozen=True):
    """`fn name(parameters) = body`: pure, not recursive, typed at each call."""

    name: str
    parameters: tuple[str, ...]
    body: Expression


class Fault(StrEnum):
    """What can be wrong with an expression; the compiler gives each a code."""

    UNKNOWN_NAME = "unknown_name"
    UNKNOWN_FUNCTION = "unknown_function"
    UNKNOWN_FEATURE = "unknown_feature"
    ARITY = "arity"
    TYPE = "type"
    DIVISION_BY_ZERO = "division_by_zero"
    OVERFLOW = "overflow"
    DOMAIN = "domain"
    TOO_LONG = "too_long"
    TOO_MUCH_WORK = "too_much_work"
    TOO_DEEP = "too_deep"


class ExpressionError(Exception):
    """A fault at one node of an expression. `name` is what was not found, `help` says what to write instead."""

    def __init__(self, fault: Fault, node: Expression, message: str, *, name: str = "", help: str = "") -> None:
        super().__init__(message)
        self.fault = fault
        self.node = node
        self.message = message
        self.name = name
        self.help = help


def too_deep(node: Expression) -> ExpressionError:
    """What ends the recursion over an expression that nests, through functions, beyond Python's limit."""
    return ExpressionError(Fault.TOO_DEEP, node, "this expression nests too deeply", help="name its parts with `let`")


def children(node: Expression) -> tuple[Expression, ...]:
    """The direct parts of an expression, in source order."""
    match node:
        case Unary(_, operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Conditional(test, then, otherwise):
            return (test, then, otherwise)
        case Sequence(items):
            return items
        case Comprehension(element, _, source):
            return (element, source)
        case Index(sequence, position):
            return (sequence, position)
        case Call(_, arguments, named):
            return arguments + tuple(value for _, value in named)
        case Among(subject, members):
            return (subject, *members)
        case Has(subject, _):
            return (subject,)
        case _:
            return ()


def free_names(node: Expression) -> Iterator[str]:
    """Names that an expression reads, those bound by its own comprehensions left out."""
    match node:
        case Name(name):
            yield name
        case Comprehension(element, variable, source):
            yield from free_names(source)
            yield from (name for name in free_names(element) if name != variable)
        case _:
            for part in children(node):
                yield from free_names(part)


def called_functions(node: Expression) -> Iterator[str]:
    """Names of the functions that an expression calls."""
    if isinstance(node, Call):
        yield node.function
    for part in children(node):
        yield from called_functions(part)


_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _NEGATE, _POWER, _POSTFIX = range(1, 10)
_PRECEDENCE = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), _COMPARE),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "//", "%"), _PRODUCT),
    "**": _POWER,
}


def render(node: Expression) -> str:
    """The expression as canonical source text, with as few parentheses as its meaning needs."""
    return _render(node, 0)


def _render(node: Expression, outer: int) -> str:
    text, own = _parts(node)
    return f"({text})" if own < outer else text


def _parts(node: Expression) -> tuple[str, int]:
    """Text and precedence of a node."""
    match node:
        case Number(value):
            return repr(value), _POSTFIX if value >= 0 else _NEGATE
        case Boolean(value):
            return ("true" if value else "false"), _POSTFIX
        case Text(value):
            return _quote(value), _POSTFIX
        case Duration(_, text):
            return text, _POSTFIX
        case Name(name):
            return name, _POSTFIX
        case Unary("not", operand):
            return f"not {_render(operand, _NOT)}", _NOT
        case Unary(_, operand):
            return f"-{_render(operand, _NEGATE)}", _NEGATE
        case Binary("**", left, right):
            return f"{_render(left, _POSTFIX)} ** {_render(right, _NEGATE)}", _POWER
        case Binary(op, left, right):
            own = _PRECEDENCE[op]
            left_needs = own + 1 if own == _COMPARE else own
            return f"{_render(left, left_needs)} {op} {_render(right, own + 1)}", own
        case Conditional(test, then, otherwise):
            return f"if {_render(test, 0)} then {_render(then, 0)} else {_render(otherwise, 0)}", 0
        case Sequence(items):
            return f"[{', '.join(render(item) for item in items)}]", _POSTFIX
        case Comprehension(element, variable, source):
            return f"[{render(element)} for {variable} in {render(source)}]", _POSTFIX
        case Index(sequence, position):
            return f"{_render(sequence, _POSTFIX)}[{render(position)}]", _POSTFIX
        case Call(function, (Comprehension(element, variable, source),), ()):
            return f"{function}({render(element)} for {variable} in {render(source)})", _POSTFIX
        case Call(function, arguments, named):
            parts = [render(argument) for argument in arguments] + [f"{key} = {render(value)}" for key, value in named]
            return f"{function}({', '.join(parts)})", _POSTFIX
        case Among(subject, members):
            return f"{_render(subject, _SUM)} in {{{', '.join(render(member) for member in members)}}}", _COMPARE
        case Has(subject, (feature,)):
            return f"{_render(subject, _SUM)} has {feature}", _COMPARE
        case Has(subject, features):
            return f"{_render(subject, _SUM)} has {{{', '.join(features)}}}", _COMPARE


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
