"""Typing of expressions with diagnostics: names are looked up, kinds are held against what the place asks for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from d2k.compiler import syntax
from d2k.compiler.lowering import NotAnExpression, Places, lower
from d2k.compiler.problems import Problems
from d2k.compiler.source import Span
from d2k.spec.evaluator import Budget, Evaluated, evaluate
from d2k.spec.expression import Binary, Expression, ExpressionError, Fault, Function, Type, free_names, render
from d2k.spec.hardware import FEATURES
from d2k.spec.inference import BUILTINS, accepts, describe, infer

_CODES = {
    Fault.UNKNOWN_NAME: "D2K0303",
    Fault.UNKNOWN_FUNCTION: "D2K0304",
    Fault.UNKNOWN_FEATURE: "D2K0307",
    Fault.ARITY: "D2K0502",
    Fault.TYPE: "D2K0501",
    Fault.TOO_DEEP: "D2K0514",
    Fault.DIVISION_BY_ZERO: "D2K0601",
    Fault.OVERFLOW: "D2K0602",
    Fault.DOMAIN: "D2K0603",
    Fault.TOO_LONG: "D2K0604",
    Fault.TOO_MUCH_WORK: "D2K0605",
}


class Typed(msgspec.Struct, frozen=True):
    """A well-typed expression with its place."""

    node: Expression
    type: Type
    span: Span

    @property
    def text(self) -> str:
        return render(self.node)


class Scope:
    """Names with their types. What uses a name whose declaration was wrong is passed over in silence.

    `constants` are the integer parameters of a pattern that is being included.
    """

    def __init__(self, types: Mapping[str, Type] | None = None, constants: Mapping[str, int] | None = None) -> None:
        self.types: dict[str, Type] = dict(types or {})
        self.constants: Mapping[str, int] = constants or {}
        self.wrong: set[str] = set()
        self.used: set[str] = set()

    def child(self, types: Mapping[str, Type], constants: Mapping[str, int] | None = None) -> Scope:
        """A scope that knows more names and marks use in this one."""
        inner = Scope({**self.types, **types}, constants)
        inner.wrong, inner.used = self.wrong, self.used
        return inner


class Typing:
    """Lowers, types and evaluates the expressions of one file."""

    def __init__(self, problems: Problems, functions: Mapping[str, Function]) -> None:
        self.problems = problems
        self.functions = functions
        self.budget = Budget()
        self.places = Places()

    def lowered(self, node: syntax.Expression, scope: Scope) -> Expression | None:
        """The record of an expression, not yet typed, or None after a diagnostic."""
        try:
            return lower(node, self.places, scope.constants)
        except NotAnExpression as error:
            self.problems.report("D2K0503", error.span, help=error.help, problem=error.message)
            return None

    def expression(
        self, node: syntax.Expression, scope: Scope, wanted: tuple[Type, ...] = (), what: str = ""
    ) -> Typed | None:
        """The typed expression, or None after a diagnostic. `what` names the place for one of an unwanted type."""
        lowered = self.lowered(node, scope)
        return None if lowered is None else self.typed(lowered, node.span, scope, wanted, what)

    def typed(
        self, node: Expression, span: Span, scope: Scope, wanted: tuple[Type, ...] = (), what: str = ""
    ) -> Typed | None:
        names = set(free_names(node))
        scope.used |= names
        if names & scope.wrong:
            return None
        try:
            found = infer(node, scope.types, self.functions)
        except ExpressionError as error:
            self._report(error, span, scope)
            return None
        if wanted and not any(accepts(one, found) for one in wanted):
            kinds = " or ".join(describe(one) for one in wanted)
            divides = isinstance(node, Binary) and node.op == "/" and Type.INT in wanted
            help = "use `//` for integer division" if divides else ""
            problem = f"{what} must be {kinds}, this is {describe(found)}"
            self.problems.report("D2K0501", span, help=help, problem=problem)
            return None
        return Typed(node, found, span)

    def evaluated(self, typed: Typed, values: Mapping[str, Evaluated], workload: str) -> Evaluated | None:
        """The value in one workload, or None after a diagnostic."""
        try:
            return evaluate(typed.node, values, self.functions, self.budget)
        except ExpressionError as error:
            span = self.places.of(error.node, typed.span)
            problem = f"{error.message} in `{typed.text}`" if span != typed.span else error.message
            self.problems.report(_CODES[error.fault], span, help=error.help, workload=workload, problem=problem)
            return None

    def _report(self, error: ExpressionError, default: Span, scope: Scope) -> None:
        code, span = _CODES[error.fault], self.places.of(error.node, default)
        match error.fault:
            case Fault.UNKNOWN_NAME:
                self.problems.report_unknown(code, span, error.name, scope.types)
            case Fault.UNKNOWN_FUNCTION:
                name = Span(span.start, span.start + len(error.name), span.source)
                self.problems.report_unknown(code, name, error.name, (*self.functions, *BUILTINS))
            case Fault.UNKNOWN_FEATURE:
                place = span.text.rfind(error.name)
                word = Span(span.start + place, span.start + place + len(error.name), span.source)
                self.problems.report_unknown(code, word if place >= 0 else span, error.name, FEATURES)
            case _:
                self.problems.report(code, span, help=error.help, problem=error.message)
