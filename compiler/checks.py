"""Checks held against the vocabulary: properties, levels, attributes, operators, values and contradictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import msgspec

from d2k.compiler import syntax
from d2k.compiler.problems import Problems
from d2k.compiler.source import Span
from d2k.spec.check import AllKernels, And, AttributeValue, Check, Filter, Not, Op, Or, Term
from d2k.spec.hardware import ARCHITECTURES, FEATURES
from d2k.spec.vocabulary import Attribute, Level, Property, Vocabulary

_EQUALITY = (Op.EQ, Op.NE, Op.IN)
_FITTING: Mapping[str, tuple[Op, ...]] = {
    "int": (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE, Op.IN),
    "bool": (Op.EQ, Op.NE),
    "str": _EQUALITY,
    "role": _EQUALITY,
    "enum": _EQUALITY,
    "set": (Op.HAS,),
}


class CheckScope(msgspec.Struct, frozen=True):
    """What words in a check may mean: roles and tensors of the task (None outside of one), a pattern's integers."""

    roles: frozenset[str] | None
    tensors: frozenset[str] = frozenset()
    constants: Mapping[str, int] = {}


class CheckTyping:
    """Turns checks of the syntax tree into records; every part that is wrong is reported and left out."""

    def __init__(self, problems: Problems, vocabulary: Vocabulary) -> None:
        self._problems = problems
        self._properties = {one.id: one for one in vocabulary.properties}

    def wanted(self, node: syntax.CheckNode, scope: CheckScope, level: Level | None) -> Check | None:
        """The check of an item. With a `level`, what must be present has to be of that level; guards may be of any."""
        parts = node.parts if isinstance(node, syntax.AllOf) else (node,)
        if all(isinstance(part, syntax.Negation) for part in parts):
            self._problems.report("D2K0318", node.span)
            return None
        return self._conjunction(node, parts, scope, level)

    def condition(self, node: syntax.CheckNode, scope: CheckScope) -> Check | None:
        """The check of a `given`: properties of any level, and a guard may stand alone."""
        parts = node.parts if isinstance(node, syntax.AllOf) else (node,)
        return self._conjunction(node, parts, scope, None)

    def term(self, node: syntax.Term, scope: CheckScope, level: Level | None) -> Term | None:
        """One property with its filters."""
        name = node.property
        found = self._properties.get(name.name)
        if found is None:
            self._problems.report_unknown("D2K0312", name.span, name.name, self._properties)
            return None
        if level is not None and found.level is not level:
            help = f"`d2kc explain` lists the properties of {level}"
            self._problems.report("D2K0313", name.span, help=help, name=found.id, level=found.level, wanted=level)
        filters = [self._filter(one, found, scope) for one in node.filters]
        whole = tuple(one for one in filters if one is not None)
        if len(whole) < len(filters):
            return None
        self._contradictory_filters(node, found, whole)
        return Term(found.id, whole)

    def _conjunction(
        self, node: syntax.CheckNode, parts: tuple[syntax.CheckNode, ...], scope: CheckScope, level: Level | None
    ) -> Check | None:
        checks: list[Check | None] = []
        for part in parts:
            if isinstance(part, syntax.Negation):
                inner = self._positive(part.part, scope, None)
                checks.append(None if inner is None else Not(inner))
            else:
                checks.append(self._positive(part, scope, level))
        whole = tuple(one for one in checks if one is not None)
        if len(whole) < len(checks):
            return None
        self._contradictory_terms(node, whole)
        return whole[0] if len(whole) == 1 else And(whole)

    def _positive(self, node: syntax.CheckNode, scope: CheckScope, level: Level | None) -> Check | None:
        match node:
            case syntax.Term():
                return self.term(node, scope, level)
            case syntax.AllOf(parts=parts) | syntax.AnyOf(parts=parts):
                checks = [self._positive(part, scope, level) for part in parts]
                whole = tuple(one for one in checks if one is not None)
                if len(whole) < len(checks):
                    return None
                if isinstance(node, syntax.AnyOf):
                    return Or(whole)
                self._contradictory_terms(node, whole)
                return And(whole)
            case syntax.Negation():
                self._problems.report("D2K0318", node.span)
                return None
            case syntax.Quantified(quantifier=quantifier, part=part):
                if quantifier.name != "all_kernels":
                    self._problems.report_unknown("D2K0317", quantifier.span, quantifier.name, ("all_kernels",))
                    return None
                inner = self._positive(part, scope, level)
                return None if inner is None else AllKernels(inner)

    def _filter(self, node: syntax.Filter, found: Property, scope: CheckScope) -> Filter | None:
        name = node.attribute
        attribute = found.attribute(name.name)
        if attribute is None:
            known = [one.name for one in found.attributes]
            self._problems.report_unknown("D2K0314", name.span, name.name, known, property=found.id)
            return None
        op = Op(node.operator)
        fitting = _FITTING[attribute.type]
        if op not in fitting:
            words = ", ".join(f"`{one}`" for one in fitting)
            type = describe(attribute)
            self._problems.report("D2K0316", node.span, operator=op, attribute=attribute.name, type=type, fitting=words)
            return None
        values = [self._value(value, attribute, scope) for value in node.values]
        whole = tuple(value for value in values if value is not None)
        if len(whole) < len(values):
            return None
        result = Filter(attribute.name, op, whole)
        if _always_true(attribute, result):
            help = "require what an arbitrary kernel does not have, or leave the filter out"
            self._problems.report("D2K0802", node.span, attribute=attribute.name, help=help)
        return result

    def _value(self, node: syntax.Expression, attribute: Attribute, scope: CheckScope) -> AttributeValue | None:
        found = _literal(node, scope.constants if attribute.type == "int" else {})
        match attribute.type, found:
            case ("bool", bool()) | ("str", str()):
                return found
            case "int", int() if not isinstance(found, bool):
                return found
            case (("enum" | "set"), str()) if found in attribute.members:
                return found
            case "role", str():
                return self._role(node.span, found, attribute, scope)
        self._outside(node.span, node.span.text, attribute)
        return None

    def _outside(self, span: Span, value: str, attribute: Attribute) -> None:
        type = describe(attribute)
        if attribute.members:
            self._problems.report_unknown(
                "D2K0315", span, value, attribute.members, value=value, attribute=attribute.name, type=type
            )
        else:
            self._problems.report("D2K0315", span, value=value, attribute=attribute.name, type=type)

    def _role(self, span: Span, word: str, attribute: Attribute, scope: CheckScope) -> str | None:
        bearers = (scope.roles or frozenset()) | scope.tensors
        if attribute.members and word not in attribute.members:
            self._outside(span, word, attribute)
            return None
        if scope.roles is not None and word not in (scope.roles if attribute.members else bearers):
            allowed = sorted(scope.roles & set(attribute.members) if attribute.members else bearers)
            known = f"this task has {', '.join(allowed)}" if allowed else "the task has none that fits"
            self._problems.report(
                "D2K0311", span, role=word, help=f"bind it with `as {word}` behind a tensor or an axis; {known}"
            )
            return None
        return word

    def _contradictory_filters(self, node: syntax.Term, found: Property, filters: tuple[Filter, ...]) -> None:
        for attribute in found.attributes:
            own = [one for one in filters if one.attribute == attribute.name]
            if len(own) > 1 and not _satisfiable(attribute, own):
                self._problems.report("D2K0321", node.span, attribute=attribute.name)

    def _contradictory_terms(self, node: syntax.CheckNode, parts: tuple[Check, ...]) -> None:
        """What `excludes` and `implies` say about the terms of one conjunction."""
        present = [part for part in parts if isinstance(part, Term)]
        absent = [part.part for part in parts if isinstance(part, Not) and isinstance(part.part, Term)]
        for one, other in permutations(present, 2):
            if other.property in self._properties[one.property].excludes:
                self._problems.report("D2K0322", node.span, first=one.property, second=other.property)
            for implied in self._implied(one.property):
                if implied.property == other.property:
                    self._held_together(node, one, other, implied)
        for one in present:
            for guard in absent:
                certain = [implied for implied in self._implied(one.property) if implied.property == guard.property]
                if certain and not guard.filters:
                    self._problems.report("D2K0322", node.span, first=one.property, second=f"not {guard.property}")

    def _held_together(self, node: syntax.CheckNode, one: Term, other: Term, implied: Term) -> None:
        wanted = self._properties[other.property]
        if set(other.filters) <= set(implied.filters):
            self._problems.report("D2K0803", node.span, implied=other.property, property=one.property)
        for attribute in wanted.attributes:
            both = [filter for filter in implied.filters + other.filters if filter.attribute == attribute.name]
            if len(both) > 1 and not _satisfiable(attribute, both):
                self._problems.report("D2K0321", node.span, attribute=f"{other.property}.{attribute.name}")

    def _implied(self, name: str) -> Iterator[Term]:
        """Everything that a property implies, directly or not."""
        seen: set[str] = set()
        pending = [name]
        while pending:
            current = self._properties.get(pending.pop())
            for term in current.implies if current else ():
                yield term
                if term.property not in seen:
                    seen.add(term.property)
                    pending.append(term.property)


def describe(attribute: Attribute) -> str:
    """The type of an attribute in plain words."""
    words = ", ".join(attribute.members)
    return {
        "int": "an integer",
        "bool": "true or false",
        "str": "a word",
        "role": f"a role ({words})" if words else "a role or a tensor of the task",
        "enum": f"one of {words}",
        "set": f"a set of {words}",
    }[attribute.type]


def hardware_allows(check: Check, architecture: str, vocabulary: Vocabulary) -> bool:
    """Whether an architecture has what the positive part of a check needs.

    A property needs its declared features. A filter whose values name hardware features (`instr = tcgen05`) needs them
    too: all of them after `=` and `has`, one of them after `in`, where a value that is no feature needs nothing.
    """
    features = ARCHITECTURES[architecture].features
    match check:
        case Term(name, filters):
            found = vocabulary.get(name)
            needs = frozenset(found.needs) if found else frozenset()
            return needs <= features and all(_filter_allows(one, features) for one in filters)
        case And(parts):
            return all(hardware_allows(part, architecture, vocabulary) for part in parts)
        case Or(parts):
            return any(hardware_allows(part, architecture, vocabulary) for part in parts)
        case AllKernels(part):
            return hardware_allows(part, architecture, vocabulary)
        case Not():
            return True


def _filter_allows(one: Filter, features: frozenset[str]) -> bool:
    missing = [value in FEATURES and value not in features for value in one.values if isinstance(value, str)]
    match one.op:
        case Op.EQ | Op.HAS:
            return not any(missing)
        case Op.IN:
            return not missing or not all(missing)
        case _:
            return True


def _literal(node: syntax.Expression, constants: Mapping[str, int]) -> AttributeValue | None:
    """The constant that a filter value stands for; a word that is no parameter of the pattern is itself."""
    match node:
        case syntax.Name(name=name):
            return constants.get(name, name)
        case syntax.Integer(value=value) | syntax.Boolean(value=value):
            return value
        case syntax.String(value=text):
            return text
        case syntax.Quantity(value=int() as value, unit="KiB" | "MiB" | "GiB" as unit):
            return value * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
        case syntax.Unary(operator="-", operand=operand):
            inner = _literal(operand, constants)
            return -inner if isinstance(inner, int) and not isinstance(inner, bool) else None
        case syntax.Binary(operator="+" | "-" | "*" as operator, left=left, right=right):
            a, b = _literal(left, constants), _literal(right, constants)
            if isinstance(a, int) and isinstance(b, int):
                return {"+": a + b, "-": a - b, "*": a * b}[operator]
    return None


def _always_true(attribute: Attribute, one: Filter) -> bool:
    """Counts of a property that is present start at 1, so `>= 1` filters nothing; logarithms and shares start at 0."""
    least = 0 if attribute.name.endswith(("log2", "fraction", "percent")) else 1
    match attribute.type, one.op, one.values:
        case "int", Op.GE, (int(value),):
            return value <= least
        case "int", (Op.GT | Op.NE), (int(value),):
            return value < least
        case (("enum" | "role"), Op.IN, values):
            return bool(attribute.members) and set(values) >= set(attribute.members)
    return False


def _satisfiable(attribute: Attribute, filters: list[Filter]) -> bool:
    """Whether one value can pass all filters of an attribute; sets may always hold more words."""
    if attribute.type == "set":
        return True
    if attribute.type == "int":
        return _some_integer(filters)
    domain: set[AttributeValue] = {False, True} if attribute.type == "bool" else set(attribute.members)
    domain |= {value for one in filters for value in one.values}
    return any(all(_passes(one, value) for one in filters) for value in domain)


def _some_integer(filters: list[Filter]) -> bool:
    edges = {value for one in filters for value in one.values if isinstance(value, int)}
    candidates = {edge + step for edge in edges for step in (-1, 0, 1)}
    return any(all(_passes(one, value) for one in filters) for value in candidates)


def _passes(one: Filter, value: AttributeValue) -> bool:
    first = one.values[0]
    match one.op:
        case Op.EQ:
            return value == first
        case Op.NE:
            return value != first
        case Op.IN:
            return value in one.values
    assert isinstance(value, int) and isinstance(first, int)
    return {Op.LT: value < first, Op.LE: value <= first, Op.GT: value > first, Op.GE: value >= first}[one.op]
