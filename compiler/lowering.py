"""From expressions of the syntax tree to the plain records of `d2k.spec.expression`, remembering where each stood.

Recursive, as everything that handles expressions: the parser bounds their depth.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from d2k.compiler import syntax
from d2k.compiler.source import Span
from d2k.spec.expression import (
    Among,
    Binary,
    Boolean,
    Call,
    Comprehension,
    Conditional,
    Duration,
    Expression,
    Has,
    Index,
    Name,
    Number,
    Sequence,
    Text,
    Unary,
    children,
)

_BYTES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SECONDS = {"us": Decimal("1e-6"), "ms": Decimal("1e-3")}


class NotAnExpression(Exception):
    """Something that has a place in an expression's syntax but no meaning there."""

    def __init__(self, span: Span, message: str, help: str = "") -> None:
        super().__init__(message)
        self.span = span
        self.message = message
        self.help = help


class Places:
    """Where each record of an expression was written. Records are compared by identity, so they are kept alive."""

    def __init__(self) -> None:
        self._spans: dict[int, tuple[Expression, Span]] = {}

    def put(self, node: Expression, span: Span) -> Expression:
        self._spans[id(node)] = (node, span)
        return node

    def of(self, node: Expression, default: Span) -> Span:
        """The place of a record; that of its first placed part, or `default`, for one that was made up."""
        if id(node) in self._spans:
            return self._spans[id(node)][1]
        for part in children(node):
            found = self.of(part, default)
            if found is not default:
                return found
        return default


def lower(node: syntax.Expression, places: Places, constants: Mapping[str, int]) -> Expression:
    """The record of an expression in which names of `constants` (a pattern's parameters) are replaced by their values.

    Raises `NotAnExpression`.
    """
    return _Lowering(places, constants).lower(node)


class _Lowering:
    def __init__(self, places: Places, constants: Mapping[str, int]) -> None:
        self._places = places
        self._constants = constants

    def lower(self, node: syntax.Expression) -> Expression:
        return self._places.put(self._record(node), node.span)

    def _record(self, node: syntax.Expression) -> Expression:
        match node:
            case syntax.Name(name=name):
                return Number(self._constants[name]) if name in self._constants else Name(name)
            case syntax.Integer(value=value) | syntax.Real(value=value):
                return Number(value)
            case syntax.Percent(value=value):
                return Number(float(Decimal(repr(value)) / 100))
            case syntax.Quantity(value=value, unit=unit):
                return _quantity(node, value, unit)
            case syntax.Boolean(value=truth):
                return Boolean(truth)
            case syntax.String(value=text):
                return Text(text)
            case syntax.ListOf(elements=elements):
                return Sequence(tuple(self.lower(element) for element in elements))
            case syntax.Comprehension(element=element, variable=variable, iterable=iterable):
                return Comprehension(self.lower(element), variable.name, self.lower(iterable))
            case syntax.Call():
                return self._call(node)
            case syntax.Index(base=base, index=index):
                return Index(self.lower(base), self.lower(index))
            case syntax.Unary(operator=operator, operand=operand):
                return Unary(operator, self.lower(operand))
            case syntax.Binary(operator=operator, left=left, right=right):
                return Binary(operator, self.lower(left), self.lower(right))
            case syntax.Membership(element=element, members=members):
                return Among(self.lower(element), tuple(self.lower(member) for member in members))
            case syntax.Has(container=container, members=members):
                return Has(self.lower(container), tuple(_feature(member) for member in members))
            case syntax.Conditional(condition=condition, consequence=consequence, alternative=alternative):
                return Conditional(self.lower(condition), self.lower(consequence), self.lower(alternative))
            case syntax.FileSymbol():
                raise NotAnExpression(
                    node.span, "a Python function has no value here", "use `draw` to make contents in Python"
                )

    def _call(self, node: syntax.Call) -> Call:
        arguments, named = [], []
        for argument in node.arguments:
            value = self.lower(argument.value)
            if argument.name is not None:
                named.append((argument.name.name, value))
            elif named:
                raise NotAnExpression(argument.span, "an argument without a name follows one with a name")
            else:
                arguments.append(value)
        return Call(node.function.name, tuple(arguments), tuple(named))


def _quantity(node: syntax.Quantity, value: int | float, unit: str) -> Expression:
    if unit in _SECONDS:
        return Duration(float(Decimal(repr(value)) * _SECONDS[unit]), f"{value}{unit}")
    count = Decimal(repr(value)) * _BYTES[unit]
    if count != count.to_integral_value():
        raise NotAnExpression(node.span, f"{value} {unit} is no whole number of bytes")
    return Number(int(count))


def _feature(node: syntax.Expression) -> str:
    if not isinstance(node, syntax.Name):
        raise NotAnExpression(node.span, "`has` is followed by hardware features", "write `arch has {tma, cluster}`")
    return node.name
