"""Value numbering: operations that compute the same get the same number, wherever they stand.

Loop variables that run over equal ranges count as equal, and so do pointers that equal loops advance by equal
steps: two sweeps
over a row visit the same elements. `index` polynomials say what an address or an index is as a sum of products
of numbers.
Compile-time parameters stay symbols, so that the variants of a kernel share their numbering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from d2k.analyzers.core.view import BodyGraph, BodyView
from d2k.spec.facts import NONE, Kind

Key = tuple[object, ...]
Monomial = tuple[int, ...]
"""Numbers that are multiplied, sorted; () is the constant term."""
Polynomial = Mapping[Monomial, int]

MAX_MONOMIALS = 256

COMMUTATIVE = frozenset(["add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"])

PURE = frozenset(
    {
        Kind.ELEMENTWISE,
        Kind.CAST,
        Kind.SHAPE,
        Kind.ARANGE,
        Kind.FULL,
        Kind.BLOCK_INDEX,
        Kind.GRID_SIZE,
        Kind.THREAD_INDEX,
        Kind.BLOCK_SIZE,
        Kind.LANE,
        Kind.WARP,
        Kind.CLUSTER_RANK,
        Kind.ITEM,
        Kind.LOAD,
        Kind.DESCRIPTOR,
        Kind.CONTROL,
        Kind.ATTRIBUTE,
    }
)


class Numbering:
    """Numbers of the values of one body."""

    def __init__(self, graph: BodyGraph) -> None:
        self._view = BodyView(graph, {})
        self._numbers: dict[int, int] = {}
        self._keys: dict[Key, int] = {}
        self._example: list[int] = []
        self._polynomials: dict[int, Polynomial] = {}
        self._loop_of = {loop.variable: index for index, loop in enumerate(graph.body.loops) if loop.variable != NONE}
        self._carried = {one.phi: (index, one) for index, loop in enumerate(graph.body.loops) for one in loop.carried}

    def number(self, value: int) -> int:
        """The number of `value`; equal numbers mean equal values at equal iterations."""
        stack = [value]
        while stack:
            at = stack[-1]
            if at in self._numbers:
                stack.pop()
                continue
            needed = [one for one in self._needs(at) if one != NONE and one not in self._numbers]
            if needed:
                stack.extend(needed)
                continue
            same = self._transparent(at)
            if same != NONE and same < at and self._view.fold(at) is None:
                self._numbers[at] = self._numbers[same]
            else:
                self._numbers[at] = self._intern(self._key(at), at)
            stack.pop()
        return self._numbers[value]

    def example(self, number: int) -> int:
        """Some value with this number."""
        return self._example[number]

    def _intern(self, key: Key, value: int) -> int:
        if key not in self._keys:
            self._keys[key] = len(self._example)
            self._example.append(value)
        return self._keys[key]

    def _transparent(self, value: int) -> int:
        """The operand whose number a conversion or broadcast shares, or NONE."""
        op = self._view.op(value)
        same = op.kind in (Kind.CAST, Kind.CONTROL) or (
            op.kind is Kind.SHAPE and op.name in ("expand_dims", "broadcast", "reshape", "permute", "trans")
        )
        return op.args[0] if same and op.args and op.name != "bitcast" else NONE

    def _needs(self, value: int) -> tuple[int, ...]:
        """Operands that must be numbered first; only earlier values, so that this ends."""
        op = self._view.op(value)
        if value in self._loop_of:
            loop = self._view.loop(self._loop_of[value])
            return tuple(one for one in (loop.start, loop.stop, loop.step) if one < value)
        if value in self._carried:
            _, carried = self._carried[value]
            advance = self._advance(value)
            return tuple(one for one in (carried.before, advance) if one < value)
        if op.kind in PURE:
            return tuple(one for one in op.args if one < value)
        return ()

    def _advance(self, phi: int) -> int:
        """By how much a loop advances a carried pointer or index, NONE if it does something else."""
        _, carried = self._carried[phi]
        if carried.next == NONE:
            return NONE
        op = self._view.op(carried.next)
        if op.kind is Kind.ELEMENTWISE and op.name == "add" and phi in op.args:
            other = op.args[1] if op.args[0] == phi else op.args[0]
            return other if other < phi else self._constant_after(other)
        return NONE

    def _constant_after(self, value: int) -> int:
        return value if isinstance(self._view.fold(value), int) else NONE

    def _key(self, value: int) -> Key:
        op = self._view.op(value)
        folded = self._view.fold(value)
        if folded is not None:
            return ("constant", type(folded) is bool, folded)
        if value in self._loop_of:
            loop = self._view.loop(self._loop_of[value])
            bounds = tuple(self._bound(one, value) for one in (loop.start, loop.stop, loop.step))
            depth = len(self._view.ancestors(loop.parent))
            return ("loop", depth, *bounds)
        if value in self._carried:
            index, carried = self._carried[value]
            advance = self._advance(value)
            if advance != NONE and carried.before < value:
                step = self._view.fold(advance) if advance > value else self.number(advance)
                loop = self._view.loop(index)
                bounds = tuple(self._bound(one, value) for one in (loop.start, loop.stop, loop.step))
                return ("walk", self.number(carried.before), step, *bounds)
            return ("value", value)
        if op.kind not in PURE or any(one > value for one in op.args):
            return ("value", value)
        args = tuple(NONE if one == NONE else self.number(one) for one in op.args)
        if op.kind is Kind.ELEMENTWISE and op.name in COMMUTATIVE:
            args = tuple(sorted(args))
        return (op.kind, op.name, args, tuple(sorted((k, str(v)) for k, v in op.attrs.items())))

    def _bound(self, bound: int, variable: int) -> object:
        if bound == NONE:
            return None
        return self.number(bound) if bound < variable else ("after", self._view.fold(bound), bound)

    # sums of products

    def index(self, value: int) -> Polynomial:
        """`value` as a sum of products; conversions and broadcasts are looked through."""
        if value not in self._polynomials:
            self._polynomials[value] = self._expand(value)
        return self._polynomials[value]

    def _expand(self, value: int) -> Polynomial:
        found: Counter[Monomial] = Counter()
        stack: list[tuple[int, tuple[int, ...], int]] = [(value, (), 1)]
        steps = 0
        while stack:
            at, factors, sign = stack.pop()
            steps += 1
            constant = self._view.fold_int(at)
            if constant is not None:
                if constant:
                    found[self._monomial(factors)] += sign * constant
                continue
            if steps > MAX_MONOMIALS:
                found[self._monomial((*factors, self.number(at)))] += sign
                continue
            inner = self._sum(at)
            if inner is not None:
                stack.extend((one, factors, sign * direction) for one, direction in inner)
                continue
            product = self._product(at)
            if product is not None:
                left, right = product
                for l_factors, l_sign in self.index(left).items():
                    for r_factors, r_sign in self.index(right).items():
                        found[self._monomial((*factors, *l_factors, *r_factors))] += sign * l_sign * r_sign
                continue
            found[self._monomial((*factors, self.number(at)))] += sign
        return {monomial: times for monomial, times in found.items() if times}

    @staticmethod
    def _monomial(factors: tuple[int, ...]) -> Monomial:
        return tuple(sorted(factors))

    def _sum(self, value: int) -> list[tuple[int, int]] | None:
        op = self._view.op(value)
        same = self._transparent(value)
        if same != NONE:
            return [(same, 1)]
        if op.kind is not Kind.ELEMENTWISE:
            return None
        match op.name, op.args:
            case "add", (a, b):
                return [(a, 1), (b, 1)]
            case "sub", (a, b):
                return [(a, 1), (b, -1)]
            case "neg", (a,):
                return [(a, -1)]
        return None

    def _product(self, value: int) -> tuple[int, int] | None:
        op = self._view.op(value)
        if op.kind is Kind.ELEMENTWISE and op.name == "mul" and len(op.args) == 2:
            return op.args[0], op.args[1]
        return None


_NUMBERINGS: WeakKeyDictionary[BodyGraph, Numbering] = WeakKeyDictionary()


def numbering(view: BodyView) -> Numbering:
    """The numbering of a view's body, made once."""
    found = _NUMBERINGS.get(view.graph)
    if found is None:
        found = _NUMBERINGS[view.graph] = Numbering(view.graph)
    return found


def difference(left: Polynomial, right: Polynomial) -> dict[Monomial, int]:
    """left - right."""
    found = Counter(left)
    found.subtract(right)
    return {monomial: times for monomial, times in found.items() if times}
