"""Who merges the partial results of a reduction that several blocks share, and what is merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.arguments import arguments
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.hosts import launches, short
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.memo import memo
from d2k.analyzers.patterns.splitting import Split, splits
from d2k.spec.facts import NONE, Guard, Kind, Op, Place

REDUCTIONS = frozenset({"sum", "nansum", "einsum", "logsumexp", "amax", "max", "mean"})
VIEWS = frozenset(
    {"view", "reshape", "contiguous", "to", "float", "squeeze", "unsqueeze", "flatten", "data_ptr", "permute"}
)
EXPONENTIALS = ("exp", "exp2")
REMOTE = "mapa"


@dataclass(frozen=True, slots=True)
class Combination:
    """`mechanism` is second_kernel, last_block, atomic or cluster; `payload` sum, lse_weighted, scan_pair or topk.

    `partial` is where a block leaves its part, `merged` where parts are merged.
    """

    mechanism: str
    payload: str
    partial: Place
    merged: Place


@memo
def shared_reductions(kernel: KernelView) -> tuple[Split, ...]:
    """The reductions of a kernel that several blocks share, those cut into one part included."""
    return tuple(splits(kernel))


def combinations(kernel: KernelView) -> Iterator[Combination]:
    """How the parts of a kernel's shared reductions are merged, the owner of the result first."""
    yield from _by_cluster(kernel)
    if any(one.splits != 1 for one in shared_reductions(kernel)):
        yield from _by_last_block(kernel)
        yield from _atomically(kernel)
        yield from _by_later_work(kernel)


# inside the kernel


def _by_cluster(kernel: KernelView) -> Iterator[Combination]:
    """Blocks of a cluster read each other's parts from shared memory."""
    data = flow(kernel)
    for load in kernel.values(Kind.LOAD):
        if not _is_remote(kernel, kernel.op(load)):
            continue
        moved = data.forward((load,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI))
        merged = [user for at in moved for user in data.consumers(at) if _merges(kernel.op(user))]
        if merged:
            place = kernel.place(load)
            yield Combination("cluster", _payload(kernel, (load,)), place, kernel.place(min(merged)))
            return


def _is_remote(kernel: KernelView, op: Op) -> bool:
    if op.attrs.get("cluster"):
        return True
    through = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI)
    walk = kernel.walk(op.args[0], lambda inner: inner.kind in through) if op.args else ()
    return any(kernel.op(at).name == REMOTE for at in walk)


def _merges(op: Op) -> bool:
    return op.kind in (Kind.REDUCE, Kind.SHUFFLE) or (op.kind is Kind.ELEMENTWISE and op.name in ("add", "max", "fma"))


def _by_last_block(kernel: KernelView) -> Iterator[Combination]:
    """A counter tells the block that comes last, which reads the parts of the others."""
    data = flow(kernel)
    written = {kernel.pointer(kernel.op(store).args[0]): store for store in data.outputs() if _is_store(kernel, store)}
    for ticket in kernel.values(Kind.ATOMIC, name=("add", "inc")):
        if not data.is_output(ticket) or kernel.fold_int(kernel.op(ticket).args[1]) is None:
            continue
        counted = frozenset(data.forward((ticket,)))
        for load in kernel.values(Kind.LOAD, Kind.COPY):
            name = kernel.pointer(data.source_address(load))
            if load < ticket or name not in written or not _waits_for(kernel, load, counted):
                continue
            yield Combination("last_block", _payload(kernel, (load,)), kernel.place(written[name]), kernel.place(load))
            return


def _is_store(kernel: KernelView, output: int) -> bool:
    return kernel.op(output).kind in (Kind.STORE, Kind.COPY)


def _waits_for(kernel: KernelView, load: int, counted: frozenset[int]) -> bool:
    """The load stands under a branch on the ticket."""
    return any(_rests_on(kernel, guard, counted) for guard in kernel.op(load).guards)


def _rests_on(kernel: KernelView, guard: Guard, values: frozenset[int]) -> bool:
    return not values.isdisjoint(index_cone(kernel, guard.value))


def _atomically(kernel: KernelView) -> Iterator[Combination]:
    """Sums and maxima in memory to which every block adds its part."""
    data = flow(kernel)
    for store in data.outputs():
        op = kernel.op(store)
        reduces = op.kind is Kind.COPY and op.attrs.get("direction") == "reduce"
        if not reduces and (op.kind is not Kind.ATOMIC or op.name not in ("add", "max", "min") or _counts(kernel, op)):
            continue
        if not _is_scattered(kernel, store):
            place = kernel.place(store)
            yield Combination("atomic", "sum", place, place)
            return


def _counts(kernel: KernelView, op: Op) -> bool:
    """A counter or a flag, no result."""
    return kernel.fold(op.args[1]) is not None


def _is_scattered(kernel: KernelView, store: int) -> bool:
    """The places are data: a histogram or a scatter."""
    places = (place for place in where(kernel, store) if place != NONE)
    return any(kernel.op(at).kind is Kind.LOAD for place in places for at in index_cone(kernel, place))


# after the kernel


def _by_later_work(kernel: KernelView) -> Iterator[Combination]:
    """A later kernel, or host code, reduces what the blocks left in memory."""
    data = flow(kernel)
    for store in data.outputs():
        name = kernel.pointer(kernel.op(store).args[0])
        if not _is_store(kernel, store) or name is None or not _is_reduced(kernel, store):
            continue
        for (host, buffer), (_, launch) in zip(arguments(kernel, name), launches(kernel), strict=False):
            for user in _later(host, buffer, launch):
                found = _merged_by(kernel, host, user, buffer)
                if found is not None:
                    yield Combination("second_kernel", found[0], kernel.place(store), found[1])
                    return


def _is_reduced(kernel: KernelView, store: int) -> bool:
    """What is stored was summed or compared over elements or iterations, not only computed from them."""
    data = flow(kernel)
    carried = {old for loop in range(len(kernel.body.loops)) for cell in cells(kernel, loop) for old in cell.olds}
    kinds = (Kind.REDUCE, Kind.REDUX, Kind.MMA, Kind.SHUFFLE, Kind.SCAN)
    return any(kernel.op(at).kind in kinds or at in carried for at in data.back(kernel.op(store).args[1:2]))


def _later(host: BodyView, buffer: int, launch: int) -> Iterator[int]:
    """Operations after a launch that use a buffer, or a view of it."""
    yield from sorted(user for user in host.flows_to(origin(host, buffer), _is_view) if user > launch)


def origin(host: BodyView, value: int) -> int:
    """What a pointer or view belongs to."""
    while host.op(value).args and _is_view(host.op(value)):
        value = host.op(value).args[0]
    return value


def _is_view(op: Op) -> bool:
    if op.kind in (Kind.SHAPE, Kind.ITEM, Kind.CAST):
        return True
    return op.kind in (Kind.ATTRIBUTE, Kind.HOST_CALL) and short(op.name) in VIEWS


def _merged_by(kernel: KernelView, host: BodyView, user: int, buffer: int) -> tuple[str, Place] | None:
    """(payload, place) if the operation reduces the buffer."""
    op = host.op(user)
    if op.kind is Kind.HOST_CALL and short(op.name) in REDUCTIONS:
        return ("lse_weighted" if short(op.name) == "logsumexp" else "sum"), op.place
    if op.kind is not Kind.LAUNCH or short(op.name) == kernel.kernel.name:
        return None
    names, first = op.attrs.get("params"), op.attrs.get("grid")
    if not isinstance(names, tuple) or not isinstance(first, int):
        return None
    root = origin(host, buffer)
    handed = [
        str(name)
        for name, argument in zip(names, op.args[first:], strict=False)
        if argument != NONE and origin(host, argument) == root
    ]
    for other in kernel.program.kernels:
        if other.kernel.name != short(op.name):
            continue
        for name in handed:
            merged = _reduces(other, name)
            if merged is not None:
                return _payload(other, merged), other.place(merged[0])
    return None


def _reduces(kernel: KernelView, name: str) -> tuple[int, ...] | None:
    """The fetches from a parameter whose data the kernel sums, weighs, scans or selects."""
    data = flow(kernel)
    fetched = tuple(
        value
        for value in kernel.values(Kind.LOAD, Kind.COPY)
        if data.is_fetch(value) and kernel.pointer(data.source_address(value)) == name
    )
    reduced = list(kernel.values(Kind.REDUCE, Kind.REDUX, Kind.SORT))
    reduced += [new for loop in range(len(kernel.body.loops)) for cell in cells(kernel, loop) for new in cell.news]
    made_of = frozenset(data.back([value for value in reduced if value >= 0]))
    return fetched if fetched and not made_of.isdisjoint(fetched) else None


def _payload(kernel: KernelView, fetched: tuple[int, ...]) -> str:
    """What the merging code does with the parts."""
    data = flow(kernel)
    made = frozenset(data.forward(fetched))
    results = frozenset(data.back(data.outputs()))
    if any(value in made for value in kernel.values(Kind.SORT)) or any(
        value in made for value in kernel.values(Kind.REDUCE, name=("argmax", "argmin"))
    ):
        return "topk"
    for value in kernel.values(Kind.ELEMENTWISE, name=EXPONENTIALS):
        if value in results and _weighs(kernel, value):
            return "lse_weighted"
    return "sum"


def _weighs(kernel: KernelView, exponential: int) -> bool:
    """exp(part's maximum or log-sum - the overall one), multiplied with or summed over parts."""
    inner = kernel.op(kernel.strip(kernel.op(exponential).args[0]))
    while inner.kind is Kind.ELEMENTWISE and inner.name == "mul":
        inner = kernel.op(kernel.strip(inner.args[0]))
    return inner.kind is Kind.ELEMENTWISE and inner.name in ("sub", "fma", "add")
