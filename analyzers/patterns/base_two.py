"""Exponents in units of log2: where the factor log2(e) comes in, and what it is merged with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import e, isclose, log, log2

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.arguments import arguments
from d2k.analyzers.patterns.dataflow import flow
from d2k.spec.facts import NONE, Kind, Op

LOG2_E = log2(e)
LN_2 = log(2)
MAX_DEPTH = 24
HEADS = range(8, 1025)
"""Head sizes whose inverse square root may be multiplied out with log2(e) in a literal."""


@dataclass(frozen=True, slots=True)
class Change:
    """`product` multiplies data by a factor that holds log2(e); `merged` says that the factor holds more than that."""

    product: int
    merged: bool


def changes(kernel: KernelView, exponent: int) -> Iterator[Change]:
    """Multiplications behind an exponent that change its base from e to 2."""
    data = flow(kernel)
    for at in sorted(data.back((exponent,), linear)):
        op = kernel.op(at)
        if op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma", "div") or len(op.args) < 2:
            continue
        left, right = op.args[:2]
        for factor, other in ((right, left), (left, right)):
            if other == factor or (op.name == "div" and factor == left) or _is_data(kernel, factor):
                continue
            merged = _factor(kernel, factor, op.name == "div", 0)
            if merged is not None:
                yield Change(at, merged)
                break


def linear(op: Op) -> bool:
    """What a scale passes through unchanged."""
    if op.kind is Kind.ELEMENTWISE:
        return op.name in ("add", "sub", "mul", "fma", "div", "neg", "where", "min", "max", "clamp")
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM, Kind.MMA, Kind.LOAD, Kind.CONTROL, Kind.SHUFFLE) or (
        op.kind in (Kind.REDUCE, Kind.SCAN) and op.name in ("sum", "max", "min")
    )


def _is_data(kernel: KernelView, value: int) -> bool:
    """A tile, or in CUDA something that is fetched or multiplied: no factor that all scores share."""
    kinds = (Kind.MMA, Kind.REDUCE, Kind.SCAN, Kind.COPY, Kind.SHUFFLE)
    for at in kernel.walk(value, lambda op: op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI)):
        op = kernel.op(at)
        if op.kind in kinds or (op.kind is Kind.LOAD and (op.loop != NONE or op.shape != ())):
            return True
    return False


def _factor(kernel: KernelView, value: int, inverse: bool, depth: int) -> bool | None:
    """None if a factor does not hold log2(e), else whether it holds more: another scale merged into it."""
    parts = tuple(_parts(kernel, kernel, value, inverse, depth))
    if not any(one == "base" for one in parts) and "both" not in parts:
        return None
    return "both" in parts or "scale" in parts


def _parts(kernel: KernelView, view: BodyView, value: int, inverse: bool, depth: int) -> Iterator[str]:
    """The factors of a scalar: `base` is log2(e) itself, `scale` anything else, `both` a literal product of the two."""
    if value == NONE or depth > MAX_DEPTH:
        return
    op = view.op(value)
    # conversions and broadcasts of a scalar are the scalar
    if op.kind in (Kind.CAST, Kind.SHAPE, Kind.FULL, Kind.CONTROL) and op.args:
        yield from _parts(kernel, view, op.args[0], inverse, depth + 1)
    elif op.kind is Kind.ELEMENTWISE and op.name == "mul" and len(op.args) == 2:
        for arg in op.args:
            yield from _parts(kernel, view, arg, inverse, depth + 1)
    elif op.kind is Kind.ELEMENTWISE and op.name == "div" and len(op.args) == 2:
        yield from _parts(kernel, view, op.args[0], inverse, depth + 1)
        yield from _parts(kernel, view, op.args[1], not inverse, depth + 1)
    elif op.kind is Kind.ELEMENTWISE and op.name == "neg":
        yield from _parts(kernel, view, op.args[0], inverse, depth + 1)
    elif op.kind is Kind.PHI and op.name == "if":
        sides = [tuple(_parts(kernel, view, arg, inverse, depth + 1)) for arg in op.args[1:]]
        yield from min(sides, key=lambda side: "base" in side or "both" in side)
    elif op.kind is Kind.PARAM and view is kernel and view.fold(value) is None:
        passed = [tuple(_parts(kernel, host, arg, inverse, depth + 1)) for host, arg in arguments(kernel, op.name)]
        yield from min(passed, key=lambda one: "base" in one or "both" in one, default=("scale",))
    elif isinstance(known := _number(view, value), float):
        yield from _literal(known, inverse)
    else:
        yield "scale"


def _number(view: BodyView, value: int) -> float | None:
    known = view.fold(value)
    return float(known) if isinstance(known, (int, float)) and not isinstance(known, bool) else None


def _literal(known: float, inverse: bool) -> Iterator[str]:
    size = abs(known)
    if isclose(size, LN_2 if inverse else LOG2_E, rel_tol=1e-3):
        yield "base"
    elif not inverse and size > 0 and _is_head_scale(size / LOG2_E):
        yield "both"
    elif size != 1:
        yield "scale"


def _is_head_scale(scale: float) -> bool:
    """1 / sqrt(D) for some head size D."""
    head = 1 / scale**2
    return round(head) in HEADS and isclose(head, round(head), rel_tol=1e-5)


def other_scale(kernel: KernelView, exponent: int, change: Change) -> int | None:
    """Another multiplication by a shared factor on the way of the data, besides `change`."""
    data = flow(kernel)
    for at in sorted(data.back((exponent,), linear)):
        op = kernel.op(at)
        if at == change.product or op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma", "div"):
            continue
        factors = [arg for arg in op.args[:2] if not _is_data(kernel, arg)]
        if len(factors) == 1 and _number(kernel, factors[0]) not in (1.0, -1.0) and op.shape != ():
            return at
    return None


def prepared_by_host(kernel: KernelView, exponent: int) -> bool:
    """What the exponent is read from was made by a call that is given log2(e)."""
    for fetch in flow(kernel).fetches(exponent, linear):
        name = kernel.pointer(flow(kernel).source_address(fetch))
        if name is None:
            continue
        for host, value in arguments(kernel, name):
            if any(_is_base(host, at) for at in host.slice(value)):
                return True
    return False


def _is_base(host: BodyView, value: int) -> bool:
    known = host.op(value).attrs.get("value")
    return isinstance(known, float) and isclose(known, LOG2_E, rel_tol=1e-3)


def open_ends(kernel: KernelView, exponent: int) -> tuple[int, ...]:
    """Where log2(e) may come in out of sight: tensors that are read, and factors that a caller decides.

    Scores that the kernel multiplies itself are taken to be natural; their scale is looked at.
    """
    data = flow(kernel)
    cone = tuple(sorted(data.back((exponent,), linear)))
    scores = any(kernel.op(at).kind is Kind.MMA for at in cone)
    found = [at for at in cone if data.is_fetch(at)] if not scores else []
    for at in cone:
        op = kernel.op(at)
        if op.kind is Kind.PARAM and kernel.fold(at) is None:
            passed = tuple(arguments(kernel, op.name))
            if not passed or any(_is_open(host, value) for host, value in passed):
                found.append(at)
    return tuple(found)


def _is_open(host: BodyView, value: int) -> bool:
    """A host value that some caller decides, sizes of tensors aside."""
    if host.op(value).kind is Kind.ITEM:
        return False
    walked = host.walk(value, lambda op: op.kind in (Kind.ELEMENTWISE, Kind.PHI, Kind.CAST))
    return any(host.op(at).kind is Kind.PARAM for at in walked)
