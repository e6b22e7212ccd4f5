"""The operators of a memory-bound kernel: normalisation, activation, quantisation, rotation, selection and the like."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.activation import activations
from d2k.analyzers.patterns.addresses import INDICES, is_tile, memory_of, place_polynomials, same_elements
from d2k.analyzers.patterns.branches import exclude
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.normalise import Transformed, transformed
from d2k.analyzers.patterns.numbering import Monomial, difference, numbering
from d2k.analyzers.patterns.rope import rotations
from d2k.analyzers.patterns.softmax import running_softmaxes
from d2k.spec.facts import NONE, Kind, Op

NARROW = frozenset({"i8", "u8", "f8e4m3", "f8e5m2", "f4e2m1", "u4", "i4"})
LIMITS = frozenset({448.0, 127.0, 128.0, 57344.0, 6.0, 240.0})
"""Largest magnitudes of the formats that are quantised to."""


def operators(kernel: KernelView) -> dict[str, int]:
    """Words for what a kernel computes, each with a value where it does so; () for kernels with matrix products."""
    found: dict[str, int] = {}
    if kernel.values(Kind.MMA):
        return found
    for word, value in _all(kernel):
        found.setdefault(word, value)
    return found


def fetches_once(kernel: KernelView) -> bool:
    """No tile of an array is fetched a second time by the same kernel."""
    data = flow(kernel)
    fetched: dict[tuple[int, ...], list[int]] = {}
    for fetch in kernel.values(Kind.LOAD, Kind.COPY):
        if data.is_fetch(fetch) and is_tile(kernel, fetch):
            fetched.setdefault(memory_of(kernel, fetch), []).append(fetch)
    return not any(
        same_elements(kernel, left, right) and not exclude(kernel, left, right)
        for found in fetched.values()
        for at, left in enumerate(found)
        for right in found[at + 1 :]
    )


def _all(kernel: KernelView) -> Iterator[tuple[str, int]]:
    pairs = tuple(transformed(kernel))
    yield from _norms(kernel, pairs)
    yield from _softmax(kernel, pairs)
    yield from _quantised(kernel, pairs)
    applied = tuple(activations(kernel))
    for one in applied:
        yield one.name, one.value
    turns = rotations(kernel)
    for turn in turns[:1]:
        yield "rope", turn.value
    # a gate's product, and those of a rotation, are no operators of their own
    inner = {one.value for one in applied} | {at for turn in turns for at in kernel.op(turn.value).args}
    yield from _products(kernel, inner)
    yield from _convolutions(kernel)
    yield from _scattered(kernel)
    yield from _selections(kernel)


def _norms(kernel: KernelView, pairs: tuple[Transformed, ...]) -> Iterator[tuple[str, int]]:
    """x * rsqrt(mean(x²) + eps), with the mean subtracted or not."""
    for one in pairs:
        if "sumsq" not in one.statistic.kinds:
            continue
        after = frozenset(flow(kernel).forward((one.statistic.value,)))
        path = [kernel.op(at) for at in flow(kernel).back((one.value,)) if at in after]
        if any(op.kind is Kind.ELEMENTWISE and op.name in ("rsqrt", "sqrt") for op in path):
            yield ("layernorm" if _is_centred(kernel, one, pairs) else "rmsnorm"), one.value
            return


def _is_centred(kernel: KernelView, one: Transformed, pairs: tuple[Transformed, ...]) -> bool:
    """The mean of the same data is subtracted from it."""
    return any("sum" in other.statistic.kinds and kernel.op(other.value).name == "sub" for other in pairs)


def _softmax(kernel: KernelView, pairs: tuple[Transformed, ...]) -> Iterator[tuple[str, int]]:
    for one in pairs:
        if "expsum" in one.statistic.kinds:
            yield "softmax", one.value
            return
    for running in running_softmaxes(kernel):
        if running.factors and not running.accumulators:
            yield "softmax", running.factors[0]
            return


def _quantised(kernel: KernelView, pairs: tuple[Transformed, ...]) -> Iterator[tuple[str, int]]:
    """A scaled value that is stored in a narrow type, or one that is scaled by its own largest magnitude."""
    data = flow(kernel)
    stored = frozenset(data.back(data.outputs()))
    for value in kernel.values(Kind.CAST):
        op = kernel.op(value)
        if op.dtype in NARROW and value in stored and op.name == "cast" and _is_scaled(kernel, op.args[0]):
            yield "quant", value
            return
    for one in pairs:
        if "amax" in one.statistic.kinds and kernel.op(one.value).name in ("mul", "div"):
            yield "quant", one.value
            return


def _is_scaled(kernel: KernelView, value: int) -> bool:
    """Something is multiplied or divided, not only converted."""
    through = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE)
    return any(
        kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("mul", "div", "fma")
        for at in kernel.walk(value, lambda op: op.kind in through)
    )


def _products(kernel: KernelView, inner: set[int]) -> Iterator[tuple[str, int]]:
    """Sums and products of two streams of data; `inner` belong to other operators."""
    data = flow(kernel)
    inner = {kernel.strip(value) for value in inner}
    for word, name in (("add", "add"), ("mul", "mul")):
        for value in kernel.values(Kind.ELEMENTWISE, name=name):
            if len(kernel.op(value).args) != 2 or value in inner:
                continue
            left, right = kernel.op(value).args
            through = _plain if word == "add" else _pointwise
            a, b = data.fetches(left, through), data.fetches(right, through)
            if a and b and not _arrays(kernel, a) & _arrays(kernel, b) and _same_extent(kernel, a, b):
                yield word, value
                break


def _plain(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name == "where"
    )


def _pointwise(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.ELEMENTWISE)


def _arrays(kernel: KernelView, fetches: tuple[int, ...]) -> frozenset[int]:
    return frozenset(root for fetch in fetches for root in memory_of(kernel, fetch))


def _same_extent(kernel: KernelView, left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Both streams go on along the same indices: neither is a vector that repeats for each row."""
    return any(_row_indices(kernel, a) == _row_indices(kernel, b) for a in left for b in right)


def _row_indices(kernel: KernelView, fetch: int) -> frozenset[int]:
    """Block indices and outer positions that an address depends on: a weight vector has none."""
    kinds = (Kind.BLOCK_INDEX, Kind.PHI)
    return frozenset(
        at
        for arg in where(kernel, fetch)
        if arg != NONE
        for at in index_cone(kernel, arg)
        if kernel.op(at).kind in kinds
    )


def _convolutions(kernel: KernelView) -> Iterator[tuple[str, int]]:
    """A sum of products with neighbours of one array: x[t] * w0 + x[t - 1] * w1 + …"""
    data = flow(kernel)
    taps: dict[int, list[int]] = {}
    for value in kernel.values(Kind.ELEMENTWISE, name=("mul", "fma")):
        for arg in kernel.op(value).args[:2]:
            for fetch in data.fetches(arg, _plain):
                for root in memory_of(kernel, fetch):
                    taps.setdefault(root, []).append(fetch)
    for fetches in taps.values():
        distinct = list(dict.fromkeys(fetches))
        places = [place_polynomials(kernel, fetch) for fetch in distinct]
        shifted = 0
        for place in places[1:]:
            deltas = [difference(a, b) for a, b in zip(places[0], place, strict=False)]
            if any(deltas) and all(len(delta) <= 1 for delta in deltas):
                shifted += 1
        if shifted >= 2:
            yield "conv", distinct[0]
            return


def _scattered(kernel: KernelView) -> Iterator[tuple[str, int]]:
    """Rows that go to, or come from, places which are read from memory."""
    data = flow(kernel)
    for store in data.outputs():
        op = kernel.op(store)
        if op.kind is Kind.ATOMIC or len(op.args) < 2:
            continue
        fetched = data.fetches(op.args[1], _pointwise)
        moved = data.fetches(op.args[1], lambda one: one.kind in (Kind.CAST, Kind.SHAPE))
        to_slot = any(_is_loaded(kernel, place) for place in where(kernel, store))
        if to_slot and fetched:
            yield ("permute" if moved and not _is_paged(kernel, store) else "cache_write"), store
        elif moved and any(_is_loaded(kernel, place) for fetch in moved for place in where(kernel, fetch)):
            yield "permute", store


def _is_loaded(kernel: KernelView, place: int) -> bool:
    """A row's place is read from memory; the origin of a segment, to which a position is added, is not."""
    if place == NONE:
        return False
    numbers = numbering(kernel)
    polynomial = numbers.index(place)
    loaded: list[Monomial] = []
    counted: list[Monomial] = []
    for monomial in polynomial:
        for factor in monomial:
            rest = tuple(other for other in monomial if other != factor)
            cone = index_cone(kernel, numbers.example(factor))
            if any(kernel.op(at).kind is Kind.LOAD for at in cone):
                loaded.append(rest)
            elif any(kernel.op(at).kind in INDICES for at in cone):
                counted.append(rest)
    return any(rest not in counted for rest in loaded)


def _is_paged(kernel: KernelView, store: int) -> bool:
    """The loaded slot is split into a page and a place in it."""
    return any(
        kernel.op(at).name in ("floordiv", "mod") and _is_loaded(kernel, kernel.op(at).args[0])
        for place in where(kernel, store)
        if place != NONE
        for at in index_cone(kernel, place)
        if kernel.op(at).kind is Kind.ELEMENTWISE
    )


def _selections(kernel: KernelView) -> Iterator[tuple[str, int]]:
    picked = kernel.values(Kind.REDUCE, name=("argmax", "argmin")) or kernel.values(Kind.SORT)
    if picked:
        yield "select", picked[0]
    counted = kernel.values(Kind.HISTOGRAM) or tuple(
        value for value in kernel.values(Kind.ATOMIC, name="add") if _counts(kernel, value)
    )
    if counted:
        yield "route", counted[0]


def _counts(kernel: KernelView, atomic: int) -> bool:
    """Adds one, or a count, at a place that a fetched or computed key names."""
    op = kernel.op(atomic)
    return (
        len(op.args) > 1
        and kernel.fold(op.args[1]) == 1
        and any(kernel.op(at).kind in (Kind.LOAD, Kind.REDUCE) for at in index_cone(kernel, op.args[0]))
    )
