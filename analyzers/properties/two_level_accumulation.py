"""Two-level accumulation: the products of one scale block are summed unscaled in an accumulator of their own, and that
partial sum, times its scales, is added to the accumulator of the whole reduction.

Scaling once after the last block is an epilogue; scaling the operands before the product is dequantisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import fetch_moves, trip_count
from d2k.analyzers.patterns.matmul import Product, products
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import FoundValue, Status


@dataclass(frozen=True, slots=True)
class _Folded:
    """`scaled` is the partial sum of `product` times its scales, added to what `loop` carries."""

    product: Product
    scaled: int
    loop: int


def detect(kernel: KernelView) -> Detection:
    found = tuple(one for product in products(kernel) for one in _folded(kernel, product))
    if found:
        return tuple(_match(kernel, one) for one in found[:1])
    if not products(kernel):
        return Miss(detail="no matrix product")
    place = kernel.place(products(kernel)[0].value)
    return Miss(detail="no block's partial sum is scaled inside the reduction", evidence=(Evidence(place, "product"),))


def _folded(kernel: KernelView, product: Product) -> Iterator[_Folded]:
    data = flow(kernel)
    partial = frozenset(data.spread((product.value,), lambda at, user: _sums(kernel, at, user)))
    for loop in kernel.loops_of(product.value):
        carried = tuple(cells(kernel, loop))
        for scaled in sorted(data.forward(partial, _multiplied)):
            op = kernel.op(scaled)
            if op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma") or op.loop != loop:
                continue
            factors = [arg for arg in op.args[:2] if arg not in partial]
            if not any(_is_scale(kernel, arg, loop) for arg in factors):
                continue
            added = frozenset(data.forward((scaled,), _added))
            if any(
                new in added and cell.olds & set(data.back(cell.news, _added)) for cell in carried for new in cell.news
            ):
                yield _Folded(product, scaled, loop)
                return


def _sums(kernel: KernelView, value: int, user: int) -> bool:
    """The product's own partial sum; not as an operand of another product."""
    op = kernel.op(user)
    if op.kind is Kind.MMA:
        return value in op.args[2:3]
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.PHI)


def _multiplied(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM) or (op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma"))


def _added(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.PHI) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("mul", "add", "fma")
    )


def _is_scale(kernel: KernelView, value: int, loop: int) -> bool:
    """Read from memory, a new one for each block, and only converted: no decay, no probability."""
    data = flow(kernel)
    plain = frozenset(data.back((value,), _is_plain))
    if any(kernel.op(at).kind in (Kind.MMA, Kind.REDUCE) for at in plain):
        return False
    if any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("exp", "exp2", "sub") for at in plain):
        return False
    return any(data.is_fetch(at) and fetch_moves(kernel, at, loop) for at in plain)


def _is_plain(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.LOAD, Kind.PHI) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("mul", "where", "shl")
    )


def _match(kernel: KernelView, one: _Folded) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    depth = _depth(kernel, one)
    if depth is None:
        undecided["block_k"] = "the depth of a block is not known here"
    else:
        attributes["block_k"] = depth
    evidence = (
        Evidence(kernel.place(one.product.value), "product of one block"),
        Evidence(kernel.place(one.scaled), "its sum times the block's scales"),
    )
    return Match(evidence, attributes, undecided)


def _depth(kernel: KernelView, one: _Folded) -> int | None:
    """Depth of one instruction times the inner loops that sum to the partial result."""
    depth = one.product.k
    for loop in kernel.loops_of(one.product.value):
        if loop == one.loop or depth is None:
            break
        trips = trip_count(kernel, loop)
        depth = None if trips is None else depth * trips
    return depth


EXAMPLES: tuple[Example, ...] = ()
_ = (Status, NONE)
