"""Groups of warps, or tiles of one program, that take turns: one multiplies while the other computes something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.loops import index_cone
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.partitions import Partition, partitions
from d2k.analyzers.patterns.softmax import running_softmaxes
from d2k.analyzers.patterns.spans import threads
from d2k.spec.facts import NONE, Kind

GROUP = 128
"""Threads of a group of warps that issues matrix instructions together."""


@dataclass(frozen=True, slots=True)
class Alternation:
    """`tiles` are worked on in turns, None if their number is not known; `values` are places that show it."""

    tiles: int | None
    values: tuple[int, ...]
    text: str


def alternations(kernel: KernelView) -> Iterator[Alternation]:
    yield from _ordered_groups(kernel)
    yield from _softmax_roles(kernel)
    yield from _consumer_roles(kernel)
    if kernel.kernel.language != "cuda":
        yield from _query_tiles(kernel)


def _ordered_groups(kernel: KernelView) -> Iterator[Alternation]:
    """One code for all groups: each waits for its own barrier before it multiplies, and then signals the next one."""
    for one in partitions(kernel):
        for product in one.products:
            loops = kernel.loops_of(product)
            own = [at for at in one.barriers if loops and loops[0] in kernel.loops_of(at) and _names_group(kernel, at)]
            waits = [at for at in own if at < product and not _signals(kernel, at)]
            signals = [at for at in own if at > product and _signals(kernel, at)]
            if waits and signals and _barrier(kernel, waits[-1]) != _barrier(kernel, signals[0]):
                tiles = _groups(kernel, one)
                text = "a group waits for its turn to multiply, and then lets the next one"
                yield Alternation(tiles, (waits[-1], product, signals[0]), text)
                return


def _signals(kernel: KernelView, barrier: int) -> bool:
    op = kernel.op(barrier)
    return bool(op.attrs.get("arrive")) or op.name == "mbarrier_arrive"


def _names_group(kernel: KernelView, barrier: int) -> bool:
    """The barrier is chosen by the number of the group."""
    args = kernel.op(barrier).args[:1]
    return any(kernel.op(at).kind is Kind.WARP for arg in args if arg != NONE for at in index_cone(kernel, arg))


def _barrier(kernel: KernelView, value: int) -> int:
    return numbering(kernel).number(kernel.op(value).args[0])


def _groups(kernel: KernelView, own: Partition) -> int | None:
    """Groups that run the partition: those of the block without the other roles."""
    count = threads(kernel)
    others = sum(1 for one in partitions(kernel) if one.name != own.name and not one.products)
    if count is None or count % GROUP or count // GROUP - others < 2:
        return None
    return count // GROUP - others


def _softmax_roles(kernel: KernelView) -> Iterator[Alternation]:
    """Two or more roles evaluate exponentials of score tiles of their own, while another one multiplies."""
    roles = [one for one in partitions(kernel) if "softmax" in one.roles and one.barriers]
    if len(roles) >= 2:
        yield Alternation(len(roles), tuple(one.first for one in roles), "each role has a score tile of its own")


def _consumer_roles(kernel: KernelView) -> Iterator[Alternation]:
    """Roles that multiply and finish tiles of their own and order themselves by a barrier that both name."""
    roles = [one for one in partitions(kernel) if one.products and one.roles & {"epilogue", "softmax"}]
    named = [{kernel.fold_int(kernel.op(at).args[0]) for at in one.barriers if _is_named(kernel, at)} for one in roles]
    if len(roles) >= 2 and set.intersection(*named) - {None}:
        yield Alternation(len(roles), tuple(one.first for one in roles), "roles with tiles of their own take turns")


def _is_named(kernel: KernelView, barrier: int) -> bool:
    op = kernel.op(barrier)
    return op.name == "named" and bool(op.args)


def _query_tiles(kernel: KernelView) -> Iterator[Alternation]:
    """Two running softmaxes in one loop, of different queries and the same keys."""
    by_loop: dict[int, list[int]] = {}
    for one in running_softmaxes(kernel):
        if one.factors and one.accumulators:
            by_loop.setdefault(one.loop, []).append(one.maximum.update)
    for loop, maxima in by_loop.items():
        scores = [one for one in products(kernel) if loop in kernel.loops_of(one.value)]
        shared: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for score in scores:
            if score.a_fetches and score.b_fetches:
                shared.setdefault(score.b_fetches, set()).add(score.a_fetches)
        tiles = max((len(queries) for queries in shared.values()), default=0)
        if len(maxima) >= 2 and tiles >= 2:
            text = f"{tiles} query tiles meet each block of keys, each with a softmax of its own"
            yield Alternation(min(tiles, len(maxima)), tuple(maxima), text)
