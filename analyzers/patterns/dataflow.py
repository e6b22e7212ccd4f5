"""Where data comes from and goes to, through casts, reshapes and on-chip memory.

Unlike a slice, data flow leaves out what only steers: addresses, masks and conditions. Arrays in registers, shared or
tensor memory count as one variable each: what is stored anywhere in an array may come out of any load from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType
from weakref import WeakKeyDictionary

from d2k.analyzers.core.fold import fold
from d2k.analyzers.core.view import BodyGraph, BodyView
from d2k.spec.facts import NONE, Constant, Kind, Op

CARRIERS = frozenset(
    {
        Kind.ELEMENTWISE,
        Kind.CAST,
        Kind.SHAPE,
        Kind.REDUCE,
        Kind.SCAN,
        Kind.SORT,
        Kind.HISTOGRAM,
        Kind.MMA,
        Kind.PHI,
        Kind.ITEM,
        Kind.FULL,
        Kind.SHUFFLE,
        Kind.REDUX,
        Kind.ASM,
        Kind.CALL,
        Kind.CONTROL,
    }
)
"""Kinds whose result is made of the values of their operands."""

POINTER_ARITHMETIC = frozenset(
    {Kind.ELEMENTWISE, Kind.PHI, Kind.SHAPE, Kind.CAST, Kind.DESCRIPTOR, Kind.ITEM, Kind.CONTROL}
)

CHOSEN = {"index": 1, "insert": 2, "gather": 1, "block_pointer": 1, "advance": 1}
"""Shape operations whose later operands only say where."""

PRODUCTS = frozenset({"mul", "floordiv", "div", "mod", "shl", "shr", "neg"})
"""Arithmetic that makes offsets: no operand of it is a pointer."""

Through = Callable[[Op], bool]

SEARCHES = 8
"""Searches with one predicate before it pays to follow all values at once."""


def _code(through: Through) -> CodeType | None:
    """What identifies a predicate: its code, unless it depends on variables around it."""
    return through.__code__ if isinstance(through, FunctionType) and through.__closure__ is None else None


def _moves_pointer(op: Op) -> bool:
    return op.kind in POINTER_ARITHMETIC and not (op.kind is Kind.ELEMENTWISE and op.name in PRODUCTS)


@dataclass(frozen=True, slots=True)
class FetchSets:
    """For each value a set of bits over `places`, such as the fetches of the body: a least fixed point of data flow."""

    places: tuple[int, ...]
    bits: tuple[int, ...]

    def of(self, value: int) -> tuple[int, ...]:
        bits = self.bits[value]
        return tuple(place for number, place in enumerate(self.places) if bits >> number & 1) if bits else ()


class Flow:
    """Data flow of one body."""

    def __init__(self, graph: BodyGraph) -> None:
        self._graph = graph
        self._ops = graph.body.ops
        self._operands: dict[int, tuple[int, ...]] = {}
        self._fetches: dict[CodeType, dict[int, tuple[int, ...]]] = {}
        self._behind: dict[CodeType, FetchSets] = {}

    @cached_property
    def _roots(self) -> dict[int, tuple[int, ...]]:
        return {}

    def memory(self, address: int) -> tuple[int, ...]:
        """ALLOC and non-constexpr PARAM values that an address, array or descriptor is made from."""
        if address == NONE:
            return ()
        if address not in self._roots:
            walk = self._graph.walk(address, _moves_pointer)
            found = (value for value in walk if self._is_memory(self._ops[value]))
            self._roots[address] = tuple(sorted(found))
        return self._roots[address]

    @staticmethod
    def _is_memory(op: Op) -> bool:
        return op.kind is Kind.ALLOC or (op.kind is Kind.PARAM and not op.attrs.get("constexpr"))

    def arrays(self, address: int) -> tuple[int, ...]:
        """The on-chip arrays that an address may point into.

        Dynamic shared memory is one allocation that holds many arrays: `base + 4096` stands for the one that
        begins there.
        """
        roots = tuple(root for root in self.memory(address) if self._ops[root].kind is Kind.ALLOC)
        return tuple(self._part(address, root) if self._ops[root].attrs.get("dynamic") else root for root in roots)

    def _part(self, address: int, root: int) -> int:
        """The value that stands for the part of an allocation that begins at a constant offset; the root if
        none is told."""
        seen = {address}
        stack = [address]
        while stack:
            at = stack.pop()
            op = self._ops[at]
            if op.kind is Kind.ELEMENTWISE and op.name == "add" and root in op.args:
                other = op.args[1] if op.args[0] == root else op.args[0]
                offset = fold(self._graph.body, other, {})
                return root if offset is None else self._parts.setdefault((root, offset), at)
            for arg in op.args if op.kind in POINTER_ARITHMETIC else ():
                if arg != NONE and arg not in seen and root in self.memory(arg):
                    seen.add(arg)
                    stack.append(arg)
        return root

    @cached_property
    def _parts(self) -> dict[tuple[int, Constant], int]:
        return {}

    @cached_property
    def _spilled(self) -> dict[int, tuple[int, ...]]:
        """Values stored to addresses outside the block that are loaded from again by the very same address value."""
        loaded = {self._ops[value].args[0] for value in self._graph.by_kind.get(Kind.LOAD, ()) if self._ops[value].args}
        found: dict[int, list[int]] = {}
        for value in self._graph.by_kind.get(Kind.STORE, ()):
            op = self._ops[value]
            # descriptors and arrays name a whole tensor, only a pointer names an element
            if op.attrs.get("via") == "pointer" and op.args[0] in loaded and not self.arrays(op.args[0]):
                found.setdefault(op.args[0], []).append(op.args[1])
        return {address: tuple(values) for address, values in found.items()}

    @cached_property
    def stores(self) -> dict[int, tuple[int, ...]]:
        """For each on-chip array the operations that write it: STORE, ATOMIC, COPY."""
        found: dict[int, list[int]] = {}
        for kind in (Kind.STORE, Kind.ATOMIC, Kind.COPY):
            for value in self._graph.by_kind.get(kind, ()):
                op = self._ops[value]
                for array in self.arrays(op.args[0]) if op.args else ():
                    found.setdefault(array, []).append(value)
        # a matrix instruction may accumulate in place in tensor memory or in an array of registers
        for value in self._graph.by_kind.get(Kind.MMA, ()):
            for array in self.accumulator_arrays(value):
                found.setdefault(array, []).append(value)
        return {array: tuple(values) for array, values in found.items()}

    def accumulator_arrays(self, mma: int) -> tuple[int, ...]:
        """On-chip arrays that an MMA is given as its accumulator and so writes."""
        args = self._ops[mma].args
        if len(args) < 3 or args[2] == NONE:
            return ()
        target = args[2]
        op = self._ops[target]
        if op.kind is Kind.LOAD and op.args:
            target = op.args[0]
        arrays = self.arrays(target)
        if self._ops[target].kind in (Kind.ALLOC, Kind.SHAPE):
            return arrays
        # columns of tensor memory at some distance from its beginning
        return tuple(array for array in arrays if self._ops[array].attrs.get("space") == "tmem")

    @cached_property
    def loads(self) -> dict[int, tuple[int, ...]]:
        """For each on-chip array the operations that read it."""
        found: dict[int, list[int]] = {}
        for value in self._graph.by_kind.get(Kind.LOAD, ()):
            op = self._ops[value]
            for array in self.arrays(op.args[0]) if op.args else ():
                found.setdefault(array, []).append(value)
        return {array: tuple(values) for array, values in found.items()}

    def operands(self, value: int) -> tuple[int, ...]:
        """The values whose data `value` is made of."""
        found = self._operands.get(value)
        if found is None:
            found = self._operands[value] = self._find_operands(value)
        return found

    def _find_operands(self, value: int) -> tuple[int, ...]:
        op = self._ops[value]
        if op.kind is Kind.LOAD and op.args and op.args[0] in self._spilled:
            return self._spilled[op.args[0]]
        if op.kind is Kind.LOAD:
            return (
                tuple(source for array in self.arrays(op.args[0]) for source in self.written(array)) if op.args else ()
            )
        if op.kind is Kind.ALLOC:
            return self.written(value)
        if op.kind is Kind.COPY and len(op.args) > 1 and self.arrays(op.args[1]) and not self.is_output(value):
            return tuple(source for array in self.arrays(op.args[1]) for source in self.written(array))
        if op.kind in (Kind.STORE, Kind.ATOMIC) or (op.kind is Kind.COPY and self.is_output(value)):
            return op.args[1:2]
        if op.kind is Kind.PHI:
            args = op.args[1:] if op.name == "if" else op.args
        elif op.kind is Kind.ELEMENTWISE and op.name == "where":
            args = op.args[1:]
        elif op.kind is Kind.SHUFFLE:
            args = op.args[:1]
        elif op.kind is Kind.SHAPE and op.name in CHOSEN:
            args = op.args[: CHOSEN[op.name]]
        elif op.kind in CARRIERS:
            args = op.args
        else:
            args = ()
        return tuple(arg for arg in args if arg != NONE)

    def written(self, array: int) -> tuple[int, ...]:
        """Values that end up in an on-chip array; a COPY stands for what it fetches."""
        found: list[int] = []
        for value in self.stores.get(array, ()):
            op = self._ops[value]
            found.append(op.args[1] if op.kind in (Kind.STORE, Kind.ATOMIC) and len(op.args) > 1 else value)
        return tuple(dict.fromkeys(found))

    @cached_property
    def _consumers(self) -> tuple[tuple[int, ...], ...]:
        users: list[list[int]] = [[] for _ in self._ops]
        for value in range(len(self._ops)):
            for operand in dict.fromkeys(self.operands(value)):
                if operand != value:
                    users[operand].append(value)
        return tuple(tuple(one) for one in users)

    def consumers(self, value: int) -> tuple[int, ...]:
        """Operations made of the data of `value`, loads of an array that it is stored in included."""
        return self._consumers[value]

    def back(self, values: Iterable[int], through: Through = lambda _: True) -> Iterator[int]:
        """`values` and what their data is made of; operands of an operation count only if `through` accepts it."""
        return self._search(values, self.operands, through)

    def forward(self, values: Iterable[int], through: Through = lambda _: True) -> Iterator[int]:
        """`values` and what is made of them, through operations that `through` accepts; the rejected are left out."""
        seen = set(values)
        stack = list(seen)
        while stack:
            at = stack.pop()
            yield at
            for user in self._consumers[at]:
                if user not in seen and through(self._ops[user]):
                    seen.add(user)
                    stack.append(user)

    def spread(self, values: Iterable[int], accepts: Callable[[int, int], bool]) -> Iterator[int]:
        """`values` and what is made of them, along the edges (value, user) that `accepts` lets pass."""
        seen = set(values)
        stack = list(seen)
        while stack:
            at = stack.pop()
            yield at
            for user in self._consumers[at]:
                if user not in seen and accepts(at, user):
                    seen.add(user)
                    stack.append(user)

    def _search(
        self, values: Iterable[int], neighbours: Callable[[int], tuple[int, ...]], through: Through
    ) -> Iterator[int]:
        starts = tuple(dict.fromkeys(values))
        seen = set(starts)
        stack = list(reversed(starts))
        while stack:
            at = stack.pop()
            yield at
            if through(self._ops[at]):
                for other in reversed(neighbours(at)):
                    if other not in seen:
                        seen.add(other)
                        stack.append(other)

    def fetches(self, value: int, through: Through = lambda _: True) -> tuple[int, ...]:
        """Reads of memory outside the block (LOAD and COPY) that the data of `value` comes from, in program order."""
        code = _code(through)
        if code is None:
            return self._searched(value, through)
        known = self._fetches.setdefault(code, {})
        if value not in known:
            if len(known) < SEARCHES:
                known[value] = self._searched(value, through)
            else:
                known[value] = self._read_off(value, code, through)
        return known[value]

    def _searched(self, value: int, through: Through) -> tuple[int, ...]:
        return tuple(sorted(at for at in self.back((value,), through) if self.is_fetch(at)))

    def _read_off(self, value: int, code: CodeType, through: Through) -> tuple[int, ...]:
        """The same from sets for all values at once, which many searches in a large body would take too long for."""
        if code not in self._behind:
            self._behind[code] = self.fetch_sets(lambda at: through(self._ops[at]))
        return self._behind[code].of(value)

    @cached_property
    def _all_fetches(self) -> tuple[int, ...]:
        return tuple(value for value in range(len(self._ops)) if self.is_fetch(value))

    def fetch_sets(self, passes: Callable[[int], bool]) -> FetchSets:
        """The fetches behind every value, followed through the operands of the values that `passes` accepts."""
        return self.sets(self._all_fetches, passes)

    def sets(self, places: tuple[int, ...], passes: Callable[[int], bool] = lambda _: True) -> FetchSets:
        """Those of `places` behind every value, followed through the operands of the values that `passes` accepts."""
        sets = [0] * len(self._ops)
        for number, place in enumerate(places):
            sets[place] = 1 << number
        passing = [(value, self.operands(value)) for value in range(len(self._ops)) if passes(value)]
        changed = True
        while changed:
            changed = False
            for value, operands in passing:
                bits = sets[value]
                for operand in operands:
                    bits |= sets[operand]
                if bits != sets[value]:
                    sets[value] = bits
                    changed = True
        return FetchSets(places, tuple(sets))

    def is_fetch(self, value: int) -> bool:
        """A read of memory that is no on-chip array and nothing that the block itself stored there."""
        op = self._ops[value]
        if op.kind is Kind.LOAD:
            return self._is_outside(op) and op.args[0] not in self._spilled
        inward = op.kind is Kind.COPY and op.attrs.get("direction", "load") in ("load", "gather")
        # scale factors, for one, are copied from shared to tensor memory
        return inward and not (len(op.args) > 1 and self.arrays(op.args[1]))

    def is_output(self, value: int) -> bool:
        """A write to memory that is no on-chip array."""
        op = self._ops[value]
        if op.kind in (Kind.STORE, Kind.ATOMIC):
            return (
                bool(op.args) and op.attrs.get("space") in (None, "global", "unknown") and not self.arrays(op.args[0])
            )
        return op.kind is Kind.COPY and op.attrs.get("direction") in ("store", "reduce", "scatter")

    def _is_outside(self, op: Op) -> bool:
        if not op.args or op.attrs.get("space", "global") not in ("global", "unknown"):
            return False
        return not self.arrays(op.args[0])

    def outputs(self) -> tuple[int, ...]:
        """Writes to memory outside the block, in program order."""
        return self._outputs

    @cached_property
    def _outputs(self) -> tuple[int, ...]:
        kinds = (Kind.STORE, Kind.ATOMIC, Kind.COPY)
        return tuple(
            sorted(value for kind in kinds for value in self._graph.by_kind.get(kind, ()) if self.is_output(value))
        )

    def source_address(self, fetch: int) -> int:
        """The global address, array or descriptor that a fetch reads."""
        op = self._ops[fetch]
        return op.args[1] if op.kind is Kind.COPY and len(op.args) > 1 else op.args[0]


_FLOWS: WeakKeyDictionary[BodyGraph, Flow] = WeakKeyDictionary()


def flow(view: BodyView) -> Flow:
    """The data flow of a view's body, made once."""
    found = _FLOWS.get(view.graph)
    if found is None:
        found = _FLOWS[view.graph] = Flow(view.graph)
    return found
