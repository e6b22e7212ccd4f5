"""The order in which tiles are visited: tile numbers that are regrouped, so that blocks which run together share rows
and columns of tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.numbering import Monomial, Polynomial, numbering
from d2k.analyzers.patterns.tiles import differs_within, rests_on_tile
from d2k.spec.facts import NONE, Kind

WIDEST = 32


@dataclass(frozen=True, slots=True)
class Raster:
    """A tile index made of the group's first tile and the place in the group; `group` is None if not a constant."""

    value: int
    group: int | None
    how: str


def rasters(kernel: KernelView) -> Iterator[Raster]:
    """Regrouped tile indices that global accesses rest on, in program order, where there are operands to share."""
    for value in _tile_indices(kernel) if contractions(kernel) else ():
        op = kernel.op(value)
        if op.name == "add":
            found = _grouped(kernel, value)
            if found is not None:
                yield found
        elif op.name == "xor" and all(rests_on_tile(kernel, arg) for arg in op.args):
            yield Raster(value, None, "tile numbers are combined by exclusive or")


def _tile_indices(kernel: KernelView) -> tuple[int, ...]:
    """Sums that number tiles, in the places of global accesses."""
    data = flow(kernel)
    found: set[int] = set()
    for access in kernel.values(Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.COPY):
        if data.is_fetch(access) or data.is_output(access):
            for place in where(kernel, access):
                if place != NONE:
                    found.update(at for at in index_cone(kernel, place) if _numbers_tiles(kernel, at))
    return tuple(sorted(found))


def _numbers_tiles(kernel: KernelView, value: int) -> bool:
    op = kernel.op(value)
    return (
        op.kind is Kind.ELEMENTWISE
        and op.name in ("add", "xor")
        and not differs_within(kernel, value)
        and rests_on_tile(kernel, value)
    )


def _grouped(kernel: KernelView, value: int) -> Raster | None:
    """`group of the tile * size + place in the group`, where the groups are more than one tile wide.

    In `linear // (size * columns) * size + linear % … % size` the quotient is taken by a multiple of the size; in
    `b * size + a % size` the other index is `a // size`.
    """
    numbers = numbering(kernel)
    polynomial = numbers.index(value)
    for monomial, times in polynomial.items():
        within = _place_in_group(kernel, {one: count for one, count in polynomial.items() if one != monomial})
        if within is None:
            continue
        for factor in monomial:
            rest = list(monomial)
            rest.remove(factor)
            group = kernel.strip(numbers.example(factor))
            if rests_on_tile(kernel, group):
                found = _regrouped(kernel, value, group, within, (tuple(rest), times))
                if found is not None:
                    return found
    return None


Size = tuple[Monomial, int]
"""A product of numbers and a constant."""


def _regrouped(kernel: KernelView, value: int, group: int, within: int, size: Size) -> Raster | None:
    op = kernel.op(group)
    tiles = _constant(kernel, size)
    if op.kind is Kind.ELEMENTWISE and op.name == "shl":
        shift = kernel.fold_int(op.args[1])
        tiles = None if shift is None or tiles is None else tiles << shift
        op = kernel.op(kernel.strip(op.args[0]))
    by_quotient = op.kind is Kind.ELEMENTWISE and op.name in ("floordiv", "div", "shr") and len(op.args) == 2
    if by_quotient and not _is_multiple(kernel, op.args[1], size):
        return None
    if not by_quotient and not _is_split(kernel, within, tiles):
        return None
    return Raster(value, tiles, "tiles are numbered group by group")


def _place_in_group(kernel: KernelView, rest: Polynomial) -> int | None:
    """The remainder that is added to the group's first tile."""
    numbers = numbering(kernel)
    if len(rest) != 1:
        return None
    ((monomial, times),) = rest.items()
    if len(monomial) != 1 or times != 1:
        return None
    example = kernel.strip(numbers.example(monomial[0]))
    op = kernel.op(example)
    is_remainder = op.kind is Kind.ELEMENTWISE and op.name in ("mod", "and")
    return example if is_remainder and rests_on_tile(kernel, op.args[0]) else None


def _is_multiple(kernel: KernelView, divisor: int, size: Size) -> bool:
    """The quotient is taken by groups of whole rows: `x // n * n + x % n` would be x itself."""
    monomial, times = size
    parts = numbering(kernel).index(divisor)
    return parts != {monomial: times} and all(_divides(monomial, times, one, count) for one, count in parts.items())


def _divides(size: Monomial, times: int, monomial: Monomial, count: int) -> bool:
    rest = list(monomial)
    for factor in size:
        if factor not in rest:
            return False
        rest.remove(factor)
    return times != 0 and count % times == 0


def _is_split(kernel: KernelView, within: int, tiles: int | None) -> bool:
    """What the remainder is taken of is divided by the same size elsewhere, as the other tile index."""
    numbers = numbering(kernel)
    op = kernel.op(within)
    divisor = kernel.fold_int(op.args[1])
    # more are heads or batches that lie side by side
    if divisor is None or tiles is None or tiles > WIDEST or divisor + (op.name == "and") != tiles:
        return False
    dividend = numbers.number(op.args[0])
    quotients = kernel.values(Kind.ELEMENTWISE, name=("floordiv", "div", "shr"))
    return any(numbers.number(kernel.op(at).args[0]) == dividend for at in quotients)


def _constant(kernel: KernelView, size: Size) -> int | None:
    monomial, times = size
    for factor in monomial:
        known = kernel.fold_int(numbering(kernel).example(factor))
        if known is None:
            return None
        times *= known
    return abs(times)
