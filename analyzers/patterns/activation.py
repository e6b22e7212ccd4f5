"""Activation functions, told by what they compute: x * sigmoid(x), x * Phi(x), sigmoid(g) * x."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import EXPONENTIALS
from d2k.analyzers.patterns.memo import memo
from d2k.spec.facts import NONE, Kind, Op

QUICK_GELU = 1.702
MAX_CONE = 400


@dataclass(frozen=True, slots=True)
class Activation:
    """`name` is gelu, silu or gate; `value` is the product that applies it.

    `variable` is what it is a function of: x, not the polynomial in x that GELU gives to its tanh.
    """

    name: str
    value: int
    variable: int


@dataclass(frozen=True, slots=True)
class _Sigmoidal:
    """An s-shaped function of `argument`: sigmoid, tanh, erf, or 1 / (1 + exp(-x)).

    `numerator` is what it divides if it is written as x / (1 + exp(-x)).
    """

    value: int
    argument: int
    name: str
    numerator: int = NONE


@memo
def activations(view: BodyView) -> tuple[Activation, ...]:
    """Every activation of the body, in program order of their s-shaped part."""
    return tuple(_activations(view))


def _activations(view: BodyView) -> Iterator[Activation]:
    for one in sorted(_sigmoidals(view), key=lambda found: found.value):
        yield from _applied(view, one)


def sigmoids(view: BodyView) -> tuple[int, ...]:
    """Values of logistic functions, whoever they multiply."""
    return tuple(one.value for one in _sigmoidals(view) if one.name == "sigmoid")


def derivatives(view: BodyView) -> Iterator[tuple[int, int]]:
    """Products s * (1 - s), s * (1 + x * (1 - s)) and 1 - t * t of s-shaped functions, with the function's value."""
    for one in _sigmoidals(view):
        same = frozenset(_scaled_versions(view, one.value))
        for value in same:
            for user in view.users(value):
                if _is_complement(view, user, value):
                    yield from ((one.value, at) for at in _multiplied(view, user, same))
        if one.name == "tanh":
            for value in _scaled_versions(view, one.value):
                op = view.op(value)
                if (
                    op.kind is Kind.ELEMENTWISE
                    and op.name == "mul"
                    and view.strip(op.args[0]) == view.strip(op.args[1])
                ):
                    yield from ((one.value, user) for user in view.users(value) if view.op(user).name == "sub")


def _scaled_versions(view: BodyView, value: int) -> Iterator[int]:
    """The function's value, also converted or multiplied by something."""
    yield from flow(view).forward(
        (value,),
        lambda op: op.kind in (Kind.CAST, Kind.SHAPE) or (op.kind is Kind.ELEMENTWISE and op.name == "mul"),
    )


def _is_complement(view: BodyView, value: int, of: int) -> bool:
    op = view.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name != "sub":
        return False
    return op.args[1] == of and view.fold(op.args[0]) == 1


def _multiplied(view: BodyView, complement: int, same: frozenset[int]) -> Iterator[int]:
    """Products of the function, or of something it is multiplied with, and what is made of its complement."""
    made = frozenset(
        flow(view).forward(
            (complement,),
            lambda op: (
                op.kind in (Kind.CAST, Kind.SHAPE) or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "add", "fma"))
            ),
        )
    )
    for at in sorted(made):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name == "mul" and len(op.args) == 2:
            left, right = op.args
            if (left in made and right in same - made) or (right in made and left in same - made):
                yield at


def _sigmoidals(view: BodyView) -> Iterator[_Sigmoidal]:
    for value in view.values(Kind.ELEMENTWISE, name=("sigmoid", "tanh", "erf")):
        yield _Sigmoidal(value, view.op(value).args[0], view.op(value).name)
    for value in view.values(Kind.ASM, Kind.CALL):
        op = view.op(value)
        name = next((word for word in ("tanh", "erf", "sigmoid") if _named(op, word)), None)
        if name is not None and op.args:
            yield _Sigmoidal(value, op.args[-1], name)
    for value in view.values(Kind.ELEMENTWISE, name=EXPONENTIALS):
        yield from _logistic(view, value)


def _named(op: Op, word: str) -> bool:
    last = op.name.replace("::", ".").rsplit(".", 1)[-1] if op.kind is Kind.CALL else op.name.split(".", 1)[0]
    return last in (word, f"{word}f", f"fast_{word}", f"__{word}f", f"h{word}", f"h2{word}")


def _logistic(view: BodyView, exponential: int) -> Iterator[_Sigmoidal]:
    """c / (1 + exp(x)) and its relatives: `exponential` plus a constant is divided by."""
    data = flow(view)
    argument = view.op(exponential).args[0]
    for value in data.forward((exponential,), _shape_or_scaled):
        for user in view.users(value):
            op = view.op(user)
            if op.kind is not Kind.ELEMENTWISE or op.name not in ("add", "fma") or not _has_constant(view, op, 1):
                continue
            for denominator in data.forward((user,), _shape_or_scaled):
                for quotient in view.users(denominator):
                    found = view.op(quotient)
                    if found.kind is not Kind.ELEMENTWISE:
                        continue
                    if found.name == "rcp":
                        yield _Sigmoidal(quotient, argument, "sigmoid")
                    elif found.name == "div" and len(found.args) == 2 and found.args[1] == denominator:
                        yield _Sigmoidal(quotient, argument, "sigmoid", found.args[0])


def _shape_or_scaled(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI)


def _has_constant(view: BodyView, op: Op, wanted: int) -> bool:
    return any(view.fold(arg) == wanted and view.fold(arg) is not None for arg in op.args)


def _applied(view: BodyView, one: _Sigmoidal) -> Iterator[Activation]:
    """Products of an s-shaped function with its own argument, or with something else."""
    own = leaves(view, one.argument)
    if one.numerator != NONE and not isinstance(view.fold(one.numerator), (int, float)):
        yield _activation(view, one, one.value, one.numerator, own)
        return
    for value in flow(view).forward((one.value,), lambda op: _affine(view, op)):
        for user in view.users(value):
            op = view.op(user)
            if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma") and value in op.args[:2]:
                other = op.args[1] if op.args[0] == value else op.args[0]
                if not isinstance(view.fold(other), (int, float)) and not _is_own(view, one.value, other):
                    yield _activation(view, one, user, other, own)


def _is_own(view: BodyView, sigmoidal: int, factor: int) -> bool:
    """The factor is made of the s-shaped function itself and nothing else, as in s * (1 - s): its derivative."""
    return leaves(view, factor) == {sigmoidal}


def _activation(view: BodyView, one: _Sigmoidal, value: int, other: int, own: frozenset[int]) -> Activation:
    if not own & leaves(view, other):
        return Activation("gate", value, one.argument)
    variable = max(set(_cone(view, one.argument)) & set(_cone(view, other)))
    curved = one.name == "erf" or _nonlinear(view, one.argument)
    quick = any(_close(view.fold(at), QUICK_GELU) for at in _cone(view, one.argument))
    return Activation("gelu" if curved or quick else "silu", value, variable)


def _close(constant: object, wanted: float) -> bool:
    return isinstance(constant, (int, float)) and abs(abs(constant) - wanted) < 1e-2


def _affine(view: BodyView, op: Op) -> bool:
    """A conversion, one of several versions, or a sum or product with a constant."""
    if op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM) or (op.kind is Kind.ASM and len(op.args) == 1):
        return True
    if op.kind is Kind.PHI:
        return op.name == "if"
    return (
        op.kind is Kind.ELEMENTWISE
        and op.name in ("add", "sub", "mul", "neg", "fma")
        and sum(not isinstance(view.fold(arg), (int, float)) for arg in op.args) == 1
    )


def _cone(view: BodyView, value: int) -> tuple[int, ...]:
    """`value` and the arithmetic behind it, up to what is fetched, reduced or carried."""
    found: list[int] = []
    for at in view.walk(value, _smooth):
        found.append(at)
        if len(found) >= MAX_CONE:
            break
    return tuple(found)


def _smooth(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "sub", "mul", "div", "neg", "fma", "min", "max", "clamp")
    )


def inner_arithmetic(view: BodyView, one: Activation) -> frozenset[int]:
    """The operations that make up an activation, from its variable to the product that applies it."""
    kinds = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ASM, Kind.ITEM)
    return frozenset(at for at in view.walk(one.value, lambda op: op.kind in kinds) if at > one.variable)


def leaves(view: BodyView, value: int) -> frozenset[int]:
    """What a value is an arithmetic function of: fetched, reduced, multiplied or carried values."""
    return frozenset(
        at for at in _cone(view, value) if not _smooth(view.op(at)) and view.op(at).kind not in (Kind.CONST, Kind.PARAM)
    )


def _nonlinear(view: BodyView, value: int) -> bool:
    """Some product in the arithmetic behind `value` has the same variable on both sides."""
    for at in _cone(view, value):
        op = view.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma") and len(op.args) >= 2:
            left, right = leaves(view, op.args[0]), leaves(view, op.args[1])
            if left & right:
                return True
    return False
