"""Distributions of tensor contents: `0.1 * normal()`, `pages(lens, page)`, scaled and shifted by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from d2k.spec.dtypes import DTYPES
from d2k.spec.expression import Binary, Call, Expression, Number, Type, Unary, children
from d2k.spec.task import Distribution, Value

Arguments = Mapping[str, Value]
Shape = tuple[int, ...]


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a family; `default` None means that it must be given.

    A parameter whose type is a list takes a single value too, as a list of one.
    """

    name: str
    type: Type
    default: int | float | None = None

    @property
    def types(self) -> tuple[Type, ...]:
        """What an argument may be."""
        return {
            Type.INTS: (Type.INTS, Type.INT),
            Type.FLOATS: (Type.FLOATS, Type.BOOLS, Type.FLOAT, Type.BOOL),
        }.get(self.type, (self.type,))


class Family(msgspec.Struct, frozen=True):
    """A family of distributions.

    `integral` families draw integers and may fill any tensor; the others fill tensors of floating-point type only.
    `problem` says what is wrong with evaluated arguments for a tensor of some shape, or None.
    """

    name: str
    parameters: tuple[Parameter, ...]
    integral: bool
    meaning: str
    problem: Callable[[Arguments, Shape], str | None]


class Affine(msgspec.Struct, frozen=True):
    """`scale * call + shift`, not yet evaluated."""

    call: Call
    scale: Expression
    shift: Expression


class NotAffine(Exception):
    """The expression is no scaled and shifted distribution; `node` is where it goes wrong."""

    def __init__(self, node: Expression, message: str) -> None:
        super().__init__(message)
        self.node = node
        self.message = message


def split(node: Expression) -> Affine:
    """Separate the one family call from the arithmetic around it; raises `NotAffine`."""
    match node:
        case Call(name) if name in FAMILIES:
            return Affine(node, Number(1), Number(0))
        case Unary("-", operand):
            inner = split(operand)
            return Affine(inner.call, Unary("-", inner.scale), Unary("-", inner.shift))
        case Binary("+" | "-" | "*" | "/" as op, left, right):
            if draws(left) and draws(right):
                raise NotAffine(node, "two distributions cannot be combined; draw such contents in Python with `draw`")
            if draws(left):
                inner = split(left)
                return _apply(inner, op, right)
            if draws(right) and op != "/":
                inner = split(right)
                if op == "-":
                    return Affine(inner.call, Unary("-", inner.scale), _binary("-", left, inner.shift))
                return _apply(inner, op, left)
    raise NotAffine(node, "a distribution is a family such as `normal()`, scaled and shifted by arithmetic")


def draws(node: Expression) -> bool:
    """Whether a call of a family stands anywhere in an expression."""
    return (isinstance(node, Call) and node.function in FAMILIES) or any(draws(part) for part in children(node))


def _apply(inner: Affine, op: str, other: Expression) -> Affine:
    if op in ("+", "-"):
        return Affine(inner.call, inner.scale, _binary(op, inner.shift, other))
    return Affine(inner.call, _binary(op, inner.scale, other), _binary(op, inner.shift, other))


def _binary(op: str, left: Expression, right: Expression) -> Expression:
    """A binary node without the noise of multiplying by one or adding to zero."""
    match (op, left, right):
        case ("*", Number(1), _) | ("+", Number(0), _):
            return right
        case ("*" | "/", Number(0), _):
            return left
    return Binary(op, left, right)


def distribution_problem(found: Distribution, dtype: str, shape: Shape) -> str | None:
    """What is wrong with an evaluated distribution for a tensor, or None."""
    family = FAMILIES[found.family]
    if DTYPES[dtype].kind != "float":
        if not family.integral:
            return f"`{family.name}` draws real numbers, but the tensor holds `{dtype}`"
        literal = _literal_values(found)
        if any(value != math.floor(value) for value in literal):
            return f"`{family.name}` gives real numbers, but the tensor holds `{dtype}`"
        if found.scale != math.floor(found.scale) or found.shift != math.floor(found.shift):
            return f"a tensor of `{dtype}` cannot hold multiples of {found.scale:g} shifted by {found.shift:g}"
    return family.problem(found.arguments, shape)


def _literal_values(found: Distribution) -> tuple[bool | int | float, ...]:
    """The numbers that a distribution copies from its arguments."""
    return _list(found.arguments[_COPIED[found.family]]) if found.family in _COPIED else ()


def _fine(_: Arguments, __: Shape) -> str | None:
    return None


def _ordered(arguments: Arguments, _: Shape) -> str | None:
    low, high = _number(arguments["low"]), _number(arguments["high"])
    return None if low <= high else f"the lower bound {low} is above the upper bound {high}"


def _positive_ordered(arguments: Arguments, shape: Shape) -> str | None:
    low = _number(arguments["low"])
    return _ordered(arguments, shape) if low > 0 else f"the lower bound of `log_uniform` must be positive, not {low}"


def _probability(arguments: Arguments, _: Shape) -> str | None:
    p = _number(arguments["p"])
    return None if 0 <= p <= 1 else f"a probability lies between 0 and 1, not at {p}"


def _some_choice(arguments: Arguments, _: Shape) -> str | None:
    return None if _list(arguments["among"]) else "`choice` of an empty list"


def _exact_count(arguments: Arguments, shape: Shape) -> str | None:
    given, wanted = len(_list(arguments["list"])), math.prod(shape)
    return None if given == wanted else f"`values` gives {given} values for a tensor of {wanted} elements"


def _offset_count(arguments: Arguments, shape: Shape) -> str | None:
    given, wanted = len(_list(arguments["lens"])) + 1, math.prod(shape)
    return None if given == wanted else f"`offsets` gives {given} values for a tensor of {wanted} elements"


def _page_table(arguments: Arguments, shape: Shape) -> str | None:
    lens, page = _list(arguments["lens"]), _number(arguments["page"])
    if page < 1:
        return f"a page holds at least one token, not {page}"
    if any(length < 0 for length in lens):
        return "a sequence length is negative"
    rows, columns = len(lens), max((math.ceil(length / page) for length in lens), default=0)
    if len(shape) != 2 or shape[0] != rows or shape[1] < columns:
        return f"`pages` needs a table of {rows} rows and at least {columns} columns, the tensor is {list(shape)}"
    return None


def _zipf(arguments: Arguments, _: Shape) -> str | None:
    if _number(arguments["exponent"]) <= 0:
        return "the exponent of `zipf` must be positive"
    return None if _number(arguments["count"]) >= 1 else "`zipf` needs at least one value to draw from"


def _injective(arguments: Arguments, shape: Shape) -> str | None:
    count, wanted = _number(arguments["count"]), math.prod(shape)
    return None if count >= wanted else f"`injection` cannot draw {wanted} different values out of {count}"


def _number(value: Value) -> int | float:
    assert not isinstance(value, tuple)
    return value


def _list(value: Value) -> tuple[bool | int | float, ...]:
    assert isinstance(value, tuple)
    return value


_LOW, _HIGH = Parameter("low", Type.FLOAT, 0.0), Parameter("high", Type.FLOAT, 1.0)

FAMILIES = MappingProxyType(
    {
        one.name: one
        for one in (
            Family("normal", (), False, "standard normal", _fine),
            Family("uniform", (_LOW, _HIGH), False, "uniform between low and high", _ordered),
            Family(
                "log_uniform",
                (Parameter("low", Type.FLOAT), Parameter("high", Type.FLOAT)),
                False,
                "exponential of a uniform between log(low) and log(high)",
                _positive_ordered,
            ),
            Family("bernoulli", (Parameter("p", Type.FLOAT, 0.5),), True, "1 with probability p, else 0", _probability),
            Family("zeros", (), True, "all 0", _fine),
            Family("ones", (), True, "all 1", _fine),
            Family(
                "randint",
                (Parameter("low", Type.INT), Parameter("high", Type.INT)),
                True,
                "uniform integers, both bounds included",
                _ordered,
            ),
            Family("permutation", (), True, "the numbers below the element count in random order", _fine),
            Family("choice", (Parameter("among", Type.FLOATS),), True, "one of the list, uniformly", _some_choice),
            Family("values", (Parameter("list", Type.FLOATS),), True, "exactly the list", _exact_count),
            Family("offsets", (Parameter("lens", Type.INTS),), True, "running sums from 0 to the total", _offset_count),
            Family(
                "pages",
                (Parameter("lens", Type.INTS), Parameter("page", Type.INT), Parameter("unused", Type.INT, -1)),
                True,
                "a table of pages: each sequence owns as many as it needs, in random order, the rest is `unused`",
                _page_table,
            ),
            Family(
                "zipf",
                (Parameter("exponent", Type.FLOAT), Parameter("count", Type.INT)),
                True,
                "integers below count, the i-th most frequent with weight i ** -exponent",
                _zipf,
            ),
            Family("injection", (Parameter("count", Type.INT),), True, "different integers below count", _injective),
        )
    }
)
"""Every family by name."""

_COPIED = MappingProxyType({"choice": "among", "values": "list"})
