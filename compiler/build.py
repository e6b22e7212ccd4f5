"""The parser's actions: one method for each named alternative of the grammar, called when it is complete.

A method gets the span of the whole alternative and the values of its parts: an `int` is a token's index, None an
optional part that is absent, a `list` a repetition, everything else a node or a tuple of nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from d2k.compiler import syntax as s
from d2k.compiler.diagnostics import Diagnostic, Edit, diagnostic
from d2k.compiler.foreign import LOOKALIKE_TEXT
from d2k.compiler.lexer import Tokens, lexicon
from d2k.compiler.source import Source, Span
from d2k.compiler.text import TextError, block_value, string_value

MAX_INTEGER = 2**63 - 1


class _Clause(msgspec.Struct, frozen=True):
    """A part of a tensor declaration, as it was written."""

    kind: str
    span: Span
    value: s.Expression | s.Ident | None


class Builder:
    def __init__(self, source: Source, tokens: Tokens) -> None:
        self.source = source
        self.tokens = tokens
        self.diagnostics: list[Diagnostic] = []

    def text_of(self, token: int) -> str:
        return self.source.text[self.tokens.starts[token] : self.tokens.ends[token]]

    def token_span(self, token: int) -> Span:
        return Span(self.tokens.starts[token], self.tokens.ends[token], self.source)

    def ident(self, token: int) -> s.Ident:
        return s.Ident(self.token_span(token), self.text_of(token))

    # ---- names and texts ---------------------------------------------------------------------------------------------

    def word(self, span: Span, token: int) -> s.Ident:
        return s.Ident(span, self.text_of(token))

    def tensor_kind(self, span: Span, token: int) -> s.Ident:
        # by the token's kind: a misspelt word may have been taken for the right one
        return s.Ident(span, lexicon().names[self.tokens.kinds[token]].lower())

    cost_kind = tensor_kind

    def dotted(self, span: Span, first: s.Ident, rest: Sequence[s.Ident] = ()) -> s.Dotted:
        return s.Dotted(span, (first, *rest))

    def names(self, span: Span, first: s.Ident, rest: Sequence[s.Ident] = ()) -> tuple[s.Ident, ...]:
        return (first, *rest)

    members = parameters = names

    def string(self, span: Span, token: int) -> s.Text:
        return s.Text(span, self._string_value(token))

    def block(self, span: Span, token: int) -> s.Text:
        return s.Text(span, block_value(self.text_of(token)))

    def _string_value(self, token: int) -> str:
        start = self.tokens.starts[token]
        value, errors = string_value(self.text_of(token))
        self.diagnostics.extend(self._escape_error(start, error) for error in errors)
        return value

    def _escape_error(self, start: int, error: TextError) -> Diagnostic:
        span = Span(start + error.start, start + error.end, self.source)
        return diagnostic("D2K0105", span, escape=span.text)

    def file_symbol(self, span: Span, file: int, symbol: s.Ident) -> s.FileSymbol:
        return s.FileSymbol(span, s.Text(self.token_span(file), self._string_value(file)), symbol)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def name(self, span: Span, ident: s.Ident) -> s.Name:
        return s.Name(span, ident.name)

    def integer(self, span: Span, token: int) -> s.Integer:
        return s.Integer(span, self._integer_value(span, self.text_of(token)))

    def _integer_value(self, span: Span, text: str) -> int:
        digits = text.replace("_", "").lstrip("0") or "0"
        if not digits.isdecimal():
            return 0  # a malformed number, which the parser has reported
        # Python refuses to convert more than 4300 digits, and takes quadratic time below that.
        value = int(digits) if len(digits) <= 20 else MAX_INTEGER + 1
        if value > MAX_INTEGER:
            self.diagnostics.append(diagnostic("D2K0108", span))
            return MAX_INTEGER
        return value

    def _real_value(self, span: Span, text: str) -> float:
        value = float(text.replace("_", ""))
        if value == float("inf"):
            self.diagnostics.append(diagnostic("D2K0109", span))
            return sys.float_info.max
        return value

    def real(self, span: Span, token: int) -> s.Real:
        return s.Real(span, self._real_value(span, self.text_of(token)))

    def percent(self, span: Span, token: int) -> s.Percent:
        return s.Percent(span, self._real_value(span, self.text_of(token)[:-1]))

    def quantity(self, span: Span, token: int) -> s.Quantity:
        text = self.text_of(token)
        unit = text.lstrip("0123456789._")
        number = text[: -len(unit)]
        value = self._real_value(span, number) if "." in number else self._integer_value(span, number)
        return s.Quantity(span, value, unit)

    def boolean(self, span: Span, token: int) -> s.Boolean:
        return s.Boolean(span, self.text_of(token) == "true")

    def literal(self, span: Span, token: int) -> s.String:
        return s.String(span, self._string_value(token))

    def list(self, span: Span, elements: tuple[s.Expression, ...] | None) -> s.ListOf:
        return s.ListOf(span, elements or ())

    def list_comprehension(
        self, span: Span, element: s.Expression, variable: s.Ident, iterable: s.Expression
    ) -> s.Comprehension:
        return s.Comprehension(span, element, variable, iterable)

    generator = list_comprehension

    def expressions(
        self, span: Span, first: s.Expression, rest: Sequence[s.Expression] = ()
    ) -> tuple[s.Expression, ...]:
        return (first, *rest)

    def named_argument(self, span: Span, name: s.Ident, value: s.Expression) -> s.Argument:
        return s.Argument(span, name, value)

    def arguments(
        self, span: Span, first: s.Expression | s.Argument, rest: Sequence[s.Expression | s.Argument] = ()
    ) -> tuple[s.Argument, ...]:
        return tuple(one if isinstance(one, s.Argument) else s.Argument(one.span, None, one) for one in (first, *rest))

    def call_arguments(self, span: Span, arguments: tuple[s.Argument, ...] | None) -> tuple[s.Argument, ...]:
        return arguments or ()

    def call(self, span: Span, function: s.Ident, arguments: tuple[s.Argument, ...]) -> s.Call:
        return s.Call(span, function, arguments)

    def index(self, span: Span, base: s.Expression, index: s.Expression) -> s.Index:
        return s.Index(span, base, index)

    def minus(self, span: Span, sign: int, operand: s.Expression) -> s.Unary:
        return s.Unary(span, "-", operand)

    negative = minus

    def logical_not(self, span: Span, operand: s.Expression) -> s.Unary:
        return s.Unary(span, "not", operand)

    def raise_to(self, span: Span, base: s.Expression, sign: int, exponent: s.Expression) -> s.Binary:
        return s.Binary(span, "**", base, exponent)

    def compare_two(self, span: Span, left: s.Expression, operator: int, right: s.Expression) -> s.Binary:
        return s.Binary(span, self._operator(operator), left, right)

    def _operator(self, token: int) -> str:
        # signs that were reported are taken for what they stand for
        kind, text = lexicon().names[self.tokens.kinds[token]], self.text_of(token)
        if kind in ("AND", "OR"):
            return kind.lower()
        return "==" if text == "=" else LOOKALIKE_TEXT.get(text, text)

    def chain_left(self, span: Span, first: s.Expression, rest: Sequence[int | s.Expression]) -> s.Expression:
        """`a op b op c` as a tree to the left."""
        left = first
        operators = [one for one in rest[::2] if isinstance(one, int)]
        for position, (operator, right) in enumerate(zip(operators, rest[1::2], strict=True)):
            assert not isinstance(right, int)
            # up to the token before the next operator, because a parenthesis may lie there
            last = position == len(operators) - 1
            end = span.end if last else self.tokens.ends[operators[position + 1] - 1]
            left = s.Binary(Span(span.start, end, self.source), self._operator(operator), left, right)
        return left

    def membership(self, span: Span, element: s.Expression, members: tuple[s.Expression, ...]) -> s.Membership:
        return s.Membership(span, element, members)

    def has_one(self, span: Span, container: s.Expression, member: s.Expression) -> s.Has:
        return s.Has(span, container, (member,))

    def has_all(self, span: Span, container: s.Expression, members: tuple[s.Expression, ...]) -> s.Has:
        return s.Has(span, container, members)

    def conditional(
        self, span: Span, condition: s.Expression, consequence: s.Expression, alternative: s.Expression
    ) -> s.Conditional:
        return s.Conditional(span, condition, consequence, alternative)

    # ---- checks ------------------------------------------------------------------------------------------------------

    def filter(self, span: Span, attribute: s.Ident, operator: int, value: s.Expression) -> s.Filter:
        sign = self.text_of(operator)
        if sign == "==":
            place = self.token_span(operator)
            self.diagnostics.append(diagnostic("D2K0210", place).with_fix("write `=`", Edit(place, "=")))
            sign = "="
        return s.Filter(span, attribute, LOOKALIKE_TEXT.get(sign, sign), (value,))

    def filter_equal(self, span: Span, attribute: s.Ident, value: s.Expression) -> s.Filter:
        return s.Filter(span, attribute, "=", (value,))

    def filter_in(self, span: Span, attribute: s.Ident, values: tuple[s.Expression, ...]) -> s.Filter:
        return s.Filter(span, attribute, "in", values)

    def filter_has(self, span: Span, attribute: s.Ident, value: s.Expression) -> s.Filter:
        return s.Filter(span, attribute, "has", (value,))

    def filter_has_all(self, span: Span, attribute: s.Ident, values: tuple[s.Expression, ...]) -> s.Filter:
        return s.Filter(span, attribute, "has", values)

    filter_values = expressions

    def filters(self, span: Span, first: s.Filter, rest: Sequence[s.Filter] = ()) -> tuple[s.Filter, ...]:
        return (first, *rest)

    def term(self, span: Span, property_name: s.Ident, filters: tuple[s.Filter, ...] | None) -> s.Term:
        return s.Term(span, property_name, filters or ())

    def all_of(self, span: Span, first: s.CheckNode, rest: Sequence[s.CheckNode]) -> s.AllOf:
        return s.AllOf(span, (first, *rest))

    def any_of(self, span: Span, first: s.CheckNode, rest: Sequence[s.CheckNode]) -> s.AnyOf:
        return s.AnyOf(span, (first, *rest))

    def negation(self, span: Span, part: s.CheckNode) -> s.Negation:
        return s.Negation(span, part)

    def quantified(self, span: Span, quantifier: s.Ident, part: s.CheckNode) -> s.Quantified:
        return s.Quantified(span, quantifier, part)

    # ---- the file ----------------------------------------------------------------------------------------------------

    def start(self, span: Span, statements: Sequence[s.Node] = ()) -> s.File:
        return s.File(Span(0, len(self.source.text), self.source), tuple(statements))

    def version(self, span: Span, number: int) -> s.Version:
        return s.Version(span, self.integer(self.token_span(number), number))

    def use(self, span: Span, module: s.Dotted, alias: s.Ident | None) -> s.Use:
        return s.Use(span, module, alias)

    def fn(self, span: Span, name: s.Ident, parameters: tuple[s.Ident, ...] | None, body: s.Expression) -> s.Function:
        return s.Function(span, name, parameters or (), body)

    def title(self, span: Span, text: s.Text) -> s.Title:
        return s.Title(span, text)

    # ---- vocabulary --------------------------------------------------------------------------------------------------

    def property(self, span: Span, name: s.Ident, level: int, statements: Sequence[s.Node] = ()) -> s.Property:
        return s.Property(span, tuple(statements), name, self.ident(level))

    def definition(self, span: Span, text: s.Text) -> s.Definition:
        return s.Definition(span, text)

    def scope(self, span: Span, scope: s.Ident) -> s.Scope:
        return s.Scope(span, scope)

    def needs(self, span: Span, features: tuple[s.Ident, ...]) -> s.Needs:
        return s.Needs(span, features)

    def settled_by(self, span: Span, tiers: tuple[s.Ident, ...]) -> s.SettledBy:
        return s.SettledBy(span, tiers)

    def attribute_type(self, span: Span, kind: s.Ident, members: tuple[s.Ident, ...] | None) -> s.AttributeType:
        return s.AttributeType(span, kind, members)

    def attribute(
        self, span: Span, name: s.Ident, attribute_type: s.AttributeType, definition: s.Text | None
    ) -> s.Attribute:
        return s.Attribute(span, name, attribute_type, definition)

    def implies(self, span: Span, term: s.Term) -> s.Implies:
        return s.Implies(span, term)

    def excludes(self, span: Span, properties: tuple[s.Ident, ...]) -> s.Excludes:
        return s.Excludes(span, properties)

    def alias(self, span: Span, first: s.Text, rest: Sequence[s.Text] = ()) -> s.Alias:
        return s.Alias(span, (first, *rest))

    def evidence(self, span: Span, language: s.Ident, text: s.Text) -> s.Evidence:
        return s.Evidence(span, language, text)

    # ---- guidance ----------------------------------------------------------------------------------------------------

    def item(self, span: Span, level: int, name: s.Ident, title: s.Text, statements: Sequence[s.Node] = ()) -> s.Item:
        return s.Item(span, tuple(statements), self.ident(level), name, title)

    def why(self, span: Span, text: s.Text) -> s.Why:
        return s.Why(span, text)

    def hint(self, span: Span, text: s.Text) -> s.Hint:
        return s.Hint(span, text)

    def source_note(self, span: Span, text: s.Text) -> s.SourceNote:
        return s.SourceNote(span, text)

    def requires(self, span: Span, items: tuple[s.Ident, ...]) -> s.Requires:
        return s.Requires(span, items)

    def when(self, span: Span, condition: s.Expression) -> s.When:
        return s.When(span, condition)

    def given(self, span: Span, check: s.CheckNode) -> s.Given:
        return s.Given(span, check)

    def check(self, span: Span, check: s.CheckNode) -> s.Check:
        return s.Check(span, check)

    def accept(self, span: Span, check: s.CheckNode, because: s.Text) -> s.Accept:
        return s.Accept(span, check, because)

    def weight(self, span: Span, value: s.Expression) -> s.Weight:
        return s.Weight(span, value)

    def free(self, span: Span) -> s.Free:
        return s.Free(span)

    def include(
        self, span: Span, pattern: s.Dotted, arguments: tuple[s.Argument, ...], alias: s.Ident | None
    ) -> s.Include:
        return s.Include(span, pattern, arguments, alias)

    def pattern_parameter(self, span: Span, name: s.Ident, kind: s.Ident, default: s.Expression | None) -> s.Parameter:
        return s.Parameter(span, name, kind, default)

    def pattern_parameters(
        self, span: Span, first: s.Parameter, rest: Sequence[s.Parameter] = ()
    ) -> tuple[s.Parameter, ...]:
        return (first, *rest)

    def pattern(
        self,
        span: Span,
        name: s.Ident,
        parameters: tuple[s.Parameter, ...] | None,
        statements: Sequence[s.Node] = (),
    ) -> s.Pattern:
        return s.Pattern(span, tuple(statements), name, parameters or ())

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def task(self, span: Span, name: s.Ident, statements: Sequence[s.Node] = ()) -> s.Task:
        return s.Task(span, tuple(statements), name)

    def summary(self, span: Span, text: s.Text) -> s.Summary:
        return s.Summary(span, text)

    def target(self, span: Span, architectures: tuple[s.Ident, ...]) -> s.Target:
        return s.Target(span, architectures)

    def axis(self, span: Span, name: s.Ident, kind: s.Ident | None, role: s.Ident | None) -> s.Axis:
        return s.Axis(span, name, kind, role)

    def axes(self, span: Span, first: s.Axis, rest: Sequence[s.Axis] = ()) -> s.Axes:
        return s.Axes(span, (first, *rest))

    def let(self, span: Span, name: s.Ident, value: s.Expression) -> s.Let:
        return s.Let(span, name, value)

    def where(self, span: Span, condition: s.Expression) -> s.Where:
        return s.Where(span, condition)

    def type(
        self, span: Span, element: s.Ident, shape: tuple[s.Expression, ...] | None, container: s.Ident | None
    ) -> s.TensorType:
        return s.TensorType(span, element, shape, container)

    def distribution(self, span: Span, value: s.Expression) -> _Clause:
        return _Clause("~", span, value)

    def role(self, span: Span, name: s.Ident) -> _Clause:
        return _Clause("as", span, name)

    def moves(self, span: Span, value: s.Expression) -> _Clause:
        return _Clause("moves", span, value)

    def constant(self, span: Span) -> _Clause:
        return _Clause("constant", span, None)

    def tensor(
        self, span: Span, kind: s.Ident, name: s.Ident, tensor_type: s.TensorType, clauses: Sequence[_Clause] = ()
    ) -> s.Tensor:
        distribution: s.Expression | None = None
        moves: s.Expression | None = None
        role: s.Ident | None = None
        seen: dict[str, _Clause] = {}
        for clause in clauses:
            if clause.kind in seen:
                self.diagnostics.append(
                    diagnostic("D2K0215", clause.span, clause=clause.kind, tensor=name.name).with_note(
                        "the first one is here", seen[clause.kind].span
                    )
                )
                continue
            seen[clause.kind] = clause
            if isinstance(clause.value, s.Ident):
                role = clause.value
            elif clause.kind == "~":
                distribution = clause.value
            elif clause.kind == "moves":
                moves = clause.value
        return s.Tensor(span, kind, name, tensor_type, distribution, role, moves, "constant" in seen)

    def draw(self, span: Span, tensors: tuple[s.Ident, ...], maker: s.FileSymbol) -> s.Draw:
        return s.Draw(span, tensors, maker)

    def entry(self, span: Span, name: s.Ident) -> s.Entry:
        return s.Entry(span, name)

    def reference(self, span: Span, target: s.FileSymbol) -> s.Reference:
        return s.Reference(span, target)

    def baseline(self, span: Span, name: s.Ident, target: s.FileSymbol) -> s.Baseline:
        return s.Baseline(span, name, target)

    def setting(self, span: Span, name: s.Ident, value: s.Expression) -> s.Setting:
        return s.Setting(span, name, value)

    def override(self, span: Span, tensor: s.Ident, distribution: s.Expression) -> s.Override:
        return s.Override(span, tensor, distribution)

    def settings(self, span: Span, settings: Sequence[s.Setting] = ()) -> tuple[s.Setting, ...]:
        return tuple(settings)

    def workload_settings(
        self, span: Span, settings: Sequence[s.Setting | s.Override] = ()
    ) -> tuple[s.Setting | s.Override, ...]:
        return tuple(settings)

    def tags(self, span: Span, tags: tuple[s.Ident, ...]) -> tuple[s.Ident, ...]:
        return tags

    def tolerance(
        self, span: Span, output: s.Ident, settings: tuple[s.Setting, ...], because: s.Text | None
    ) -> s.Tolerance:
        return s.Tolerance(span, output, settings, because)

    def compare(
        self, span: Span, outputs: tuple[s.Ident, ...], judge: s.FileSymbol, because: s.Text | None
    ) -> s.Compare:
        return s.Compare(span, outputs, judge, because)

    def cost_line(self, span: Span, kind: s.Ident, value: s.Expression, engine: s.Dotted | None) -> s.CostLine:
        return s.CostLine(span, kind, value, engine)

    def cost(self, span: Span, lines: Sequence[s.CostLine] = ()) -> s.Cost:
        return s.Cost(span, tuple(lines))

    def forbid(self, span: Span, first: s.Dotted, rest: Sequence[s.Dotted] = ()) -> s.Forbid:
        return s.Forbid(span, (first, *rest))

    def workload(
        self,
        span: Span,
        name: s.Ident,
        tags: tuple[s.Ident, ...] | None,
        settings: tuple[s.Setting | s.Override, ...],
        origin: s.Text | None,
    ) -> s.Workload:
        return s.Workload(span, name, tags or (), settings, origin)

    def guidance(self, span: Span, statements: Sequence[s.Node] = ()) -> s.Guidance:
        return s.Guidance(span, tuple(statements))
