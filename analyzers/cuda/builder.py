"""Collects the operations and loops of one body while a function is lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from d2k.analyzers.core.fold import apply
from d2k.spec.facts import NONE, AttrValue, Body, Carried, Constant, Guard, Kind, Loop, Mention, Op, Place

MAX_OPS = 24_000
"""Operations of one body; hostile or generated code stops here and is reported."""

NO_ATTRS: Mapping[str, AttrValue] = {}
_FOLDABLE = (Kind.ELEMENTWISE, Kind.CAST)


class TooLarge(Exception):
    """The body has more operations than can be analysed in bounded time."""


class Draft:
    """An operation whose operands may still change."""

    __slots__ = (
        "args",
        "attrs",
        "calls",
        "dtype",
        "guards",
        "kind",
        "loop",
        "name",
        "partition",
        "place",
        "shape",
        "variable",
    )

    def __init__(
        self,
        kind: Kind,
        name: str,
        args: tuple[int, ...],
        place: Place,
        attrs: Mapping[str, AttrValue],
        dtype: str | None,
        shape: tuple[int, ...] | None,
        loop: int,
        guards: tuple[Guard, ...],
        calls: tuple[Place, ...],
        partition: str,
    ) -> None:
        self.kind = kind
        self.name = name
        self.args = args
        self.place = place
        self.attrs = attrs
        self.dtype = dtype
        self.shape = shape
        self.loop = loop
        self.guards = guards
        self.calls = calls
        self.variable = ""
        self.partition = partition


class LoopDraft:
    __slots__ = (
        "attrs",
        "calls",
        "carried",
        "condition",
        "form",
        "guards",
        "parent",
        "place",
        "start",
        "step",
        "stop",
        "variable",
    )

    def __init__(
        self, parent: int, form: str, place: Place, guards: tuple[Guard, ...], calls: tuple[Place, ...]
    ) -> None:
        self.parent = parent
        self.form = form
        self.variable = NONE
        self.start = NONE
        self.stop = NONE
        self.step = NONE
        self.condition = NONE
        self.carried: list[tuple[str, int, int, int]] = []
        self.place = place
        self.attrs: dict[str, AttrValue] = {}
        self.guards = guards
        self.calls = calls


class Builder:
    """`constants` are the compile-time constants of the variant that is lowered, by parameter name."""

    def __init__(self, constants: Mapping[str, Constant], max_ops: int = MAX_OPS) -> None:
        self.constants = constants
        self.max_ops = max_ops
        self.ops: list[Draft] = []
        self.known: list[Constant] = []
        """For each operation the constant that it is, None where that is not known."""
        self.loops: list[LoopDraft] = []
        self.loop = NONE
        self.guards: tuple[Guard, ...] = ()
        self.calls: tuple[Place, ...] = ()
        self.partition = ""
        self.mentions: list[Mention] = []
        self.unresolved: list[Mention] = []
        self._constants: dict[tuple[str, Constant, str | None], int] = {}
        self.same: dict[int, int] = {}
        """Values that are to be replaced by others."""

    def emit(
        self,
        kind: Kind,
        name: str,
        args: tuple[int, ...],
        place: Place,
        attrs: Mapping[str, AttrValue] = NO_ATTRS,
        dtype: str | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> int:
        index = len(self.ops)
        if index >= self.max_ops:
            raise TooLarge
        known = self.known
        value: Constant = None
        if kind is Kind.ELEMENTWISE or (kind is Kind.CAST and name == "cast"):
            values = []
            for arg in args:
                one = known[arg] if arg >= 0 else None
                if one is None:
                    break
                values.append(one)
            else:
                value = _evaluate(kind, name, tuple(values), dtype)
                if value is not None and all(self.ops[arg].kind is Kind.CONST for arg in args):
                    return self.const(value, place, dtype)
        elif kind is Kind.PARAM:
            value = self.constants.get(name)
        self.ops.append(
            Draft(kind, name, args, place, attrs, dtype, shape, self.loop, self.guards, self.calls, self.partition)
        )
        known.append(value)
        return index

    def const(self, value: Constant, place: Place, dtype: str | None = None) -> int:
        """A constant; equal ones share one operation, which stands outside all loops and guards."""
        if dtype is None:
            dtype = const_dtype(value)
        key = (type(value).__name__, value, dtype)
        index = self._constants.get(key)
        if index is None:
            index = len(self.ops)
            if index >= self.max_ops:
                raise TooLarge
            self.ops.append(Draft(Kind.CONST, "", (), place, {"value": value}, dtype, (), NONE, (), (), ""))
            self.known.append(value)
            self._constants[key] = index
        return index

    def open_loop(self, form: str, place: Place) -> LoopDraft:
        draft = LoopDraft(self.loop, form, place, self.guards, self.calls)
        self.loops.append(draft)
        self.loop = len(self.loops) - 1
        return draft

    def close_loop(self) -> None:
        self.loop = self.loops[self.loop].parent

    def body(self) -> Body:
        """The finished body: loop variables that the loop never changes are replaced by their value before it."""
        new, survivors = self._numbering()
        self.renumbered = new

        def renumber(values: Sequence[int]) -> tuple[int, ...]:
            return tuple([new[value] if value >= 0 else value for value in values])

        guards: dict[int, tuple[Guard, ...]] = {}

        def guard(before: tuple[Guard, ...]) -> tuple[Guard, ...]:
            if not before:
                return ()
            known = guards.get(id(before))
            if known is None:
                known = guards[id(before)] = tuple(Guard(new[one.value], one.expected) for one in before)
            return known

        ops = tuple(
            Op(
                draft.kind,
                draft.name,
                renumber(draft.args),
                draft.place,
                draft.attrs,
                draft.dtype,
                None if draft.shape is None else renumber(draft.shape),
                draft.loop,
                guard(draft.guards),
                draft.calls,
                draft.variable,
                draft.partition,
            )
            for draft in (self.ops[old] for old in survivors)
        )
        kept = set(survivors)
        loops = tuple(
            Loop(
                loop.parent,
                loop.form,
                new[loop.variable] if loop.variable >= 0 else NONE,
                new[loop.start] if loop.start >= 0 else NONE,
                new[loop.stop] if loop.stop >= 0 else NONE,
                new[loop.step] if loop.step >= 0 else NONE,
                new[loop.condition] if loop.condition >= 0 else NONE,
                tuple(
                    Carried(name, *renumber((before, phi, after)))
                    for name, before, phi, after in loop.carried
                    if phi in kept and phi != loop.variable
                ),
                loop.place,
                loop.attrs,
                guard(loop.guards),
                loop.calls,
            )
            for loop in self.loops
        )
        return Body(ops, loops, tuple(dict.fromkeys(self.mentions)), tuple(dict.fromkeys(self.unresolved)))

    def _numbering(self) -> tuple[list[int], list[int]]:
        """New number of each operation, and the old numbers of those that stay."""
        count = len(self.ops)
        same = list(range(count))
        for value, other in self.same.items():
            same[value] = other
        phis = [entry for loop in self.loops for entry in loop.carried]
        for _, before, phi, _ in phis:
            if before >= 0:
                same[phi] = before

        def behind(value: int) -> int:
            while value >= 0 and same[value] != value:
                value = same[value]
            return value

        # optimistic: every carried variable counts as unchanged until its next value proves otherwise
        changed = True
        while changed:
            changed = False
            for _, _, phi, after in phis:
                if same[phi] != phi and (after < 0 or behind(after) != behind(phi)):
                    same[phi] = phi
                    changed = True
        survivors = [value for value in range(count) if same[value] == value]
        new = [0] * count
        for position, old in enumerate(survivors):
            new[old] = position
        for value in range(count):
            if same[value] != value:
                new[value] = new[behind(value)]
        return new, survivors


def const_dtype(value: Constant) -> str | None:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "f32" if isinstance(value, float) else None


def _evaluate(kind: Kind, name: str, values: tuple[Constant, ...], dtype: str | None) -> Constant:
    if kind is Kind.CAST:
        return convert(values[0] if values else None, dtype)
    if len(values) == 2 and name in ("floordiv", "mod") and not isinstance(values[0], str):
        left, right = values
        if isinstance(left, int) and isinstance(right, int):
            # C++ divides toward zero
            if right == 0:
                return None
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if name == "floordiv" else left - quotient * right
    return apply(name, values)


def convert(value: Constant, dtype: str | None) -> Constant:
    """`value` as C++ converts it to an element type; None if that cannot be said."""
    if value is None or isinstance(value, str) or dtype is None:
        return value
    try:
        if dtype == "bool":
            return bool(value)
        if dtype[0] in "iu" and dtype[1:].isdigit():
            number = int(value)
            bits = int(dtype[1:])
            if dtype[0] == "u":
                return number & ((1 << bits) - 1)
            return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None
        return float(value)
    except (ValueError, OverflowError):
        return None
