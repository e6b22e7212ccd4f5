"""Sliding windows: values that a loop fetches once and hands on from iteration to iteration, in variables that are
renamed or in a register array that is shifted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import fetch_moves, trip_count
from d2k.analyzers.patterns.numbering import difference, numbering
from d2k.spec.facts import NONE, Carried, Kind, Op


@dataclass(frozen=True, slots=True)
class Window:
    """`depth` values or tiles of earlier iterations are kept besides the newest; None if the source does not say.

    `fetch` reads the newest, `shift` hands one on, `befores` are what the loop starts with. `uses` counts how many of
    them, the newest included, an iteration computes with: one where a fetch only runs ahead, more in a window.
    """

    loop: int
    depth: int | None
    fetch: int
    shift: int
    befores: tuple[int, ...]
    uses: int


def windows(view: BodyView) -> Iterator[Window]:
    for loop in range(len(view.body.loops)):
        yield from _renamed(view, loop)
        yield from _shifted(view, loop)


# variables that are renamed


def _renamed(view: BodyView, loop: int) -> Iterator[Window]:
    """`a = b; b = c; c = fetched`."""
    carried = {one.phi: one for one in view.loop(loop).carried if one.next not in (one.phi, NONE)}
    sources = {phi: _versions(view, one.next) for phi, one in carried.items()}
    for head, behind in sources.items():
        newest = next((at for at in sorted(behind) if _walks(view, loop, at)), NONE)
        if newest == NONE or any(other in behind for other in carried if other != head):
            continue
        chain = _chain(head, sources)
        used = _used(view, (newest, *chain), loop, carried)
        if not used or used == [0]:
            continue  # nothing of an earlier iteration is wanted
        befores = tuple(carried[phi].before for phi in chain)
        yield Window(loop, used[-1] - used[0], newest, carried[head].next, befores, len(used))


def _chain(head: int, sources: dict[int, frozenset[int]]) -> tuple[int, ...]:
    """From the youngest kept value to the oldest, each the next one's new value."""
    chain = [head]
    while True:
        older = next((phi for phi, behind in sources.items() if chain[-1] in behind and phi not in chain), None)
        if older is None:
            return tuple(chain)
        chain.append(older)


def _versions(view: BodyView, value: int) -> frozenset[int]:
    """What a value may be, through conversions and choices; operations that compute are ends."""
    return frozenset(
        at for at in flow(view).back((value,), _hands_on) if not _hands_on(view.op(at)) or _is_phi(view, at)
    )


def _is_phi(view: BodyView, value: int) -> bool:
    return view.op(value).kind is Kind.PHI and view.op(value).name == "loop"


def _hands_on(op: Op) -> bool:
    return (
        op.kind is Kind.CAST
        or (op.kind is Kind.SHAPE and op.name not in ("index", "insert", "gather", "slice"))
        or (op.kind is Kind.PHI and op.name == "if")
        or (op.kind is Kind.ELEMENTWISE and op.name == "where")
    )


def _walks(view: BodyView, loop: int, value: int) -> bool:
    """A read, in the loop itself, of memory outside the block or of a shared tile, at a place that the loop moves."""
    op = view.op(value)
    if op.kind is Kind.ITEM or (op.kind is Kind.SHAPE and op.name == "index"):
        return bool(op.args) and _walks(view, loop, op.args[0])
    return op.kind is Kind.LOAD and op.loop == loop and fetch_moves(view, value, loop)


def _used(view: BodyView, ages: tuple[int, ...], loop: int, carried: dict[int, Carried]) -> list[int]:
    """Ages of the values that results are computed from in the loop; a choice between two is neither's own use."""
    data = flow(view)
    results = frozenset(data.back(data.outputs()))
    reach = [frozenset(data.forward((value,), _hands_on)) for value in ages]
    found: list[int] = []
    for age, own in enumerate(reach):
        others = frozenset[int]().union(*reach[:age], *reach[age + 1 :])
        users = {user for at in own - others for user in data.consumers(at)} & results
        if any(not _hands_on(view.op(user)) and user not in carried and loop in view.loops_of(user) for user in users):
            found.append(age)
    return found


# arrays that are shifted


def _shifted(view: BodyView, loop: int) -> Iterator[Window]:
    """`for i: window[i] = window[i + 1]`, then a fetched value at the end."""
    data = flow(view)
    for one in view.loop(loop).carried:
        if one.next in (one.phi, NONE):
            continue
        chain = [at for at in data.back((one.next,), _keeps_array) if view.op(at).name == "insert"]
        if not chain:
            continue
        moved = [(at, depth) for at in chain for depth in (_moved(view, at, one.phi),) if depth is not False]
        newest = next((at for at in chain if _newest(view, loop, at) != NONE), NONE)
        if not moved or newest == NONE:
            continue
        counts = [depth for _, depth in moved]
        depth = None if None in counts else sum(count for count in counts if count is not None)
        yield Window(loop, depth, _newest(view, loop, newest), moved[0][0], (one.before,), 2)


def _keeps_array(op: Op) -> bool:
    return op.kind is Kind.PHI or (op.kind is Kind.SHAPE and op.name == "insert")


def _moved(view: BodyView, insert: int, old: int) -> int | bool | None:
    """How many elements an assignment moves by a constant distance, over its own loops; False if it does not."""
    numbers = numbering(view)
    op = view.op(insert)
    for at in _versions(view, op.args[1]):
        read = view.op(at)
        if read.kind is not Kind.SHAPE or read.name != "index" or len(read.args) != len(op.args) - 1:
            continue
        apart = [
            difference(numbers.index(a), numbers.index(b)) for a, b in zip(read.args[1:], op.args[2:], strict=True)
        ]
        axes = [axis for axis, distance in enumerate(apart) if distance]
        if len(axes) == 1 and set(apart[axes[0]]) == {()} and _is_version(view, read.args[0], old):
            return _times(view, op.args[2 + axes[0]])
    return False


def _is_version(view: BodyView, array: int, old: int) -> bool:
    """The array is the one that the loop carries, perhaps with some elements replaced already."""
    return old in flow(view).back((array,), _keeps_array)


def _times(view: BodyView, index: int) -> int | None:
    """How many values an index takes: 1, or the iterations of the loop that counts it."""
    if view.fold_int(index) is not None:
        return 1
    loops = {view.op(at).loop for at in view.slice(index) if _is_phi(view, at)} - {NONE}
    return trip_count(view, loops.pop()) if len(loops) == 1 else None


def _newest(view: BodyView, loop: int, insert: int) -> int:
    """The fetch that an assignment puts into the array, NONE if it puts in something else."""
    for at in _versions(view, view.op(insert).args[1]):
        op = view.op(at)
        inner = op.args[0] if op.kind is Kind.SHAPE and op.name == "index" else at
        inside = loop in view.loops_of(inner) and view.op(inner).kind is Kind.LOAD
        if inside and fetch_moves(view, inner, loop):
            return inner
    return NONE
