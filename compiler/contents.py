"""Contents of tensors: distributions typed against their families, and evaluated for one workload."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from d2k.compiler import syntax
from d2k.compiler.distributions import FAMILIES, Affine, Family, NotAffine, Parameter, distribution_problem, split
from d2k.compiler.source import Span
from d2k.compiler.types import Scope, Typed, Typing
from d2k.spec.evaluator import Evaluated
from d2k.spec.expression import Call, Expression, Number, Type, children, render
from d2k.spec.inference import BUILTINS, ELEMENT_OF
from d2k.spec.task import Distribution, Value

_NUMBERS = (Type.INT, Type.FLOAT)


class Contents(msgspec.Struct, frozen=True):
    """A well-typed distribution that no workload has given values yet."""

    family: Family
    arguments: Mapping[str, Typed]
    scale: Typed
    shift: Typed
    text: str
    span: Span


def resolve_contents(node: syntax.Expression, typing: Typing, scope: Scope) -> Contents | None:
    """The distribution that an expression describes, or None after a diagnostic."""
    lowered = typing.lowered(node, scope)
    if lowered is None:
        return None
    try:
        affine = split(lowered)
    except NotAffine as error:
        span = typing.places.of(error.node, node.span)
        call = _stranger(error.node, typing)
        if call is not None:
            # a fix replaces what is marked: the name alone, so that the arguments stay
            start = typing.places.of(call, span).start
            name = Span(start, start + len(call.function), span.source)
            typing.problems.report_unknown("D2K0512", name, call.function, FAMILIES, problem=error.message)
        else:
            help = f"for always the same value write `values({span.text})`" if isinstance(error.node, Number) else ""
            typing.problems.report("D2K0512", span, help=help, problem=error.message, known=", ".join(FAMILIES))
        return None
    arguments = _arguments(affine, node.span, typing, scope)
    scale = typing.typed(affine.scale, node.span, scope, _NUMBERS, "the factor of a distribution")
    shift = typing.typed(affine.shift, node.span, scope, _NUMBERS, "the shift of a distribution")
    if arguments is None or scale is None or shift is None:
        return None
    return Contents(FAMILIES[affine.call.function], arguments, scale, shift, render(lowered), node.span)


def evaluate_contents(
    contents: Contents,
    dtype: str,
    shape: tuple[int, ...],
    values: Mapping[str, Evaluated],
    typing: Typing,
    workload: str,
) -> Distribution | None:
    """The distribution in one workload, or None after a diagnostic."""
    evaluated = {name: typing.evaluated(one, values, workload) for name, one in contents.arguments.items()}
    scale = typing.evaluated(contents.scale, values, workload)
    shift = typing.evaluated(contents.shift, values, workload)
    if scale is None or shift is None or any(value is None for value in evaluated.values()):
        return None
    arguments = {one.name: _argument(one, evaluated.get(one.name)) for one in contents.family.parameters}
    found = Distribution(contents.family.name, arguments, as_number(scale), as_number(shift))
    problem = distribution_problem(found, dtype, shape)
    if problem:
        typing.problems.report("D2K0611", contents.span, workload=workload, problem=problem)
        return None
    return found


def _arguments(affine: Affine, default: Span, typing: Typing, scope: Scope) -> dict[str, Typed] | None:
    call, family = affine.call, FAMILIES[affine.call.function]
    span = typing.places.of(call, default)
    parameters = {one.name: one for one in family.parameters}
    given: dict[str, Expression] = dict(zip(parameters, call.arguments, strict=False))
    signature = f"{family.name}({', '.join(parameters)})"
    problem = ""
    if len(call.arguments) > len(parameters):
        problem = f"`{family.name}` takes {len(parameters)} arguments, {len(call.arguments)} given"
    for name, value in call.named:
        if name not in parameters:
            problem = f"`{family.name}` has no parameter `{name}`"
        elif name in given:
            problem = f"`{name}` is given twice"
        given[name] = value
    missing = [one.name for one in family.parameters if one.default is None and one.name not in given]
    if missing and not problem:
        problem = f"`{family.name}` lacks its argument `{missing[0]}`"
    if problem:
        typing.problems.report("D2K0502", span, help=f"write `{signature}`", problem=problem)
        return None
    typed = {
        name: typing.typed(value, span, scope, parameters[name].types, f"`{name}` of `{family.name}`")
        for name, value in given.items()
    }
    whole = {name: one for name, one in typed.items() if one is not None}
    return whole if len(whole) == len(typed) else None


def _argument(parameter: Parameter, given: Evaluated | None) -> Value:
    value = as_value(parameter.default if given is None else given)
    if parameter.type in ELEMENT_OF and not isinstance(value, tuple):
        return (value,)
    return value


def _stranger(node: Expression, typing: Typing) -> Call | None:
    """The first call of something that is neither a family nor a function: a misspelt family."""
    if isinstance(node, Call) and node.function not in (*FAMILIES, *BUILTINS, *typing.functions):
        return node
    return next((found for part in children(node) if (found := _stranger(part, typing))), None)


def as_value(value: Evaluated | None) -> Value:
    """An evaluated number, truth value or list as it goes into a record."""
    if isinstance(value, tuple):
        return tuple(as_scalar(one) for one in value)
    return as_scalar(value)


def as_scalar(value: Evaluated | None) -> bool | int | float:
    assert isinstance(value, bool | int | float)
    return value


def as_number(value: Evaluated) -> float:
    assert isinstance(value, int | float)
    return float(value)


def as_integer(value: Evaluated) -> int:
    assert isinstance(value, int)
    return value
