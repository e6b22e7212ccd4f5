"""What an address is made of: which indices move it, and whether two accesses touch the same elements."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from d2k.analyzers.core.view import BodyView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.analyzers.patterns.numbering import Numbering, Polynomial, difference, numbering
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind

INDICES = frozenset(
    {Kind.ARANGE, Kind.THREAD_INDEX, Kind.LANE, Kind.WARP, Kind.BLOCK_INDEX, Kind.CLUSTER_RANK, Kind.PHI}
)


def indices(view: BodyView, access: int) -> frozenset[int]:
    """Index values that the place of an access depends on: ranges, thread and block indices, loop variables."""
    return frozenset(at for arg in where(view, access) if arg != NONE for at in index_atoms(view, arg))


def index_atoms(view: BodyView, value: int) -> frozenset[int]:
    """Numbers of the index values that `value` is computed from by index arithmetic."""
    numbers = numbering(view)
    known = _ATOMS.setdefault(numbers, {})
    if value not in known:
        known[value] = frozenset(numbers.number(at) for at in index_cone(view, value) if view.op(at).kind in INDICES)
    return known[value]


_ATOMS: WeakKeyDictionary[Numbering, dict[int, frozenset[int]]] = WeakKeyDictionary()


def place_polynomials(view: BodyView, access: int) -> tuple[Polynomial, ...]:
    """The operands that say where an access goes, as sums of products."""
    numbers = numbering(view)
    return tuple(numbers.index(arg) for arg in where(view, access) if arg != NONE)


def same_elements(view: BodyView, left: int, right: int) -> bool:
    """Two accesses of the same array touch the same elements at the same iterations."""
    a, b = place_polynomials(view, left), place_polynomials(view, right)
    return len(a) == len(b) and all(not difference(x, y) for x, y in zip(a, b, strict=True))


def block_indices(view: BodyView, value: int) -> frozenset[int]:
    """BLOCK_INDEX values that `value` is computed from by index arithmetic, loads included."""
    return frozenset(at for at in view.slice(value) if view.op(at).kind is Kind.BLOCK_INDEX)


def memory_of(view: BodyView, access: int) -> tuple[int, ...]:
    """Parameters that an access of global memory points into."""
    data = flow(view)
    op = view.op(access)
    address = data.source_address(access) if op.kind in (Kind.LOAD, Kind.COPY) else op.args[0]
    return data.memory(address)


def is_tile(view: BodyView, access: int) -> bool:
    """The access goes to many elements of a block, not to one number such as a length or a label."""
    op = view.op(access)
    if op.kind is Kind.COPY or op.attrs.get("via") in ("descriptor", "block_pointer"):
        return True
    return any(differs_within(view, place) for place in where(view, access) if place != NONE)
