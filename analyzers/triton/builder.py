"""Collects the operations and loops of one body while a function is lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from d2k.analyzers.core.fold import apply
from d2k.analyzers.triton.values import UNKNOWN, Known
from d2k.spec.facts import NONE, AttrValue, Body, Carried, Constant, Guard, Kind, Loop, Mention, Op, Place

MAX_OPS = 30_000
"""Operations of one body; hostile or generated code stops here and is reported."""

NO_ATTRS: Mapping[str, AttrValue] = {}
NO_CONSTANTS: Mapping[str, Constant] = {}


class TooLarge(Exception):
    """The body has more operations than can be analysed in bounded time."""


class Draft:
    """An operation whose operands and attributes may still change."""

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


@dataclass(slots=True)
class LoopDraft:
    parent: int
    form: str
    variable: int
    start: int
    stop: int
    step: int
    condition: int
    carried: list[tuple[str, int, int, int]]
    place: Place
    attrs: Mapping[str, AttrValue]
    guards: tuple[Guard, ...]
    calls: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The lowering depended on what `value` is as a constant: on `read(value)` being `outcome`."""

    value: int
    read: Callable[[Known], object]
    outcome: object


class Builder:
    """`constants` are the compile-time constants of the variant that is lowered, by parameter name."""

    def __init__(self, constants: Mapping[str, Constant] = NO_CONSTANTS, max_ops: int = MAX_OPS) -> None:
        self.constants = constants
        self.max_ops = max_ops
        self.ops: list[Draft] = []
        self.known: list[Known] = []
        self.loops: list[LoopDraft] = []
        self.loop = NONE
        self.guards: tuple[Guard, ...] = ()
        self.calls: tuple[Place, ...] = ()
        self.partition = ""
        self.mentions: list[Mention] = []
        self.unresolved: list[Mention] = []
        self.decisions: dict[tuple[int, object], Decision] = {}

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
        self.ops.append(
            Draft(kind, name, args, place, attrs, dtype, shape, self.loop, self.guards, self.calls, self.partition)
        )
        self.known.append(_evaluate(kind, name, args, attrs, self.known, self.constants))
        return index

    def const(self, value: Constant, place: Place) -> int:
        return self.emit(Kind.CONST, "", (), place, {"value": value}, const_dtype(value), ())

    def decide(self, value: int, read: Callable[[Known], object]) -> object:
        """What `read` makes of the constant that `value` is; variants that agree on it can share the body."""
        outcome = read(self.known[value])
        if self.ops[value].kind is not Kind.CONST:
            self.decisions[value, read] = Decision(value, read, outcome)
        return outcome

    def agrees(self, constants: Mapping[str, Constant]) -> bool:
        """Whether the same body results from other constants."""
        memo: dict[int, Known] = {}
        return all(
            one.read(refold(self.ops, one.value, constants, memo)) == one.outcome for one in self.decisions.values()
        )

    def open_loop(
        self, form: str, start: int, stop: int, step: int, place: Place, attrs: Mapping[str, AttrValue]
    ) -> int:
        self.loops.append(
            LoopDraft(self.loop, form, NONE, start, stop, step, NONE, [], place, attrs, self.guards, self.calls)
        )
        self.loop = len(self.loops) - 1
        return self.loop

    def close_loop(self) -> None:
        self.loop = self.loops[self.loop].parent

    def body(self) -> Body:
        """The finished body: loop variables that the loop never changes are replaced by their value before it."""
        new, survivors = self._numbering()
        self._mark_used_atomics()

        def renumber(values: Sequence[int]) -> tuple[int, ...]:
            return tuple(new[value] if value >= 0 else value for value in values)

        guards: dict[int, tuple[Guard, ...]] = {}

        def guard(before: tuple[Guard, ...]) -> tuple[Guard, ...]:
            if not before:
                return ()
            if id(before) not in guards:
                guards[id(before)] = tuple(Guard(new[one.value], one.expected) for one in before)
            return guards[id(before)]

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
                    Carried(name, new[before], new[phi], new[after])
                    for name, before, phi, after in loop.carried
                    if phi in kept
                ),
                loop.place,
                loop.attrs,
                guard(loop.guards),
                loop.calls,
            )
            for loop in self.loops
        )
        self.renumbered = new
        return Body(ops, loops, tuple(dict.fromkeys(self.mentions)), tuple(dict.fromkeys(self.unresolved)))

    def _mark_used_atomics(self) -> None:
        """Says of each atomic whether anything reads what it returns."""
        atomics = [value for value, draft in enumerate(self.ops) if draft.kind is Kind.ATOMIC]
        if atomics:
            used = {arg for draft in self.ops for arg in draft.args}
            used |= {guard.value for draft in self.ops for guard in draft.guards}
            for value in atomics:
                draft = self.ops[value]
                draft.attrs = {**draft.attrs, "returns": value in used}

    def _numbering(self) -> tuple[list[int], list[int]]:
        """New number of each operation, and the old numbers of those that stay."""
        same = list(range(len(self.ops)))
        for loop in self.loops:
            for _, before, phi, _ in loop.carried:
                if before >= 0:
                    same[phi] = before

        def behind(value: int) -> int:
            while value >= 0 and same[value] != value:
                value = same[value]
            return value

        # optimistic: every carried variable counts as unchanged until its next value proves otherwise
        changed = True
        phis = [entry for loop in self.loops for entry in loop.carried if entry[1] >= 0]
        while changed:
            changed = False
            for _, _, phi, after in phis:
                if same[phi] != phi and (after < 0 or behind(after) != behind(phi)):
                    same[phi] = phi
                    changed = True
        new = [0] * len(self.ops)
        survivors = [value for value in range(len(self.ops)) if same[value] == value]
        for position, old in enumerate(survivors):
            new[old] = position
        for value in range(len(self.ops)):
            if same[value] != value:
                new[value] = new[behind(value)]
        return new, survivors


def const_dtype(value: Constant) -> str | None:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "f32" if isinstance(value, float) else None


def _evaluate(
    kind: Kind,
    name: str,
    args: tuple[int, ...],
    attrs: Mapping[str, AttrValue],
    known: Sequence[Known] | Mapping[int, Known],
    constants: Mapping[str, Constant],
) -> Known:
    """The constant that an operation is, given those of its operands."""
    if kind is Kind.CONST:
        value = attrs.get("value", UNKNOWN)
        return UNKNOWN if isinstance(value, tuple) else value
    if kind is Kind.PARAM:
        return constants.get(name, UNKNOWN)
    if kind is Kind.ELEMENTWISE:
        values = []
        for arg in args:
            value = known[arg] if arg >= 0 else UNKNOWN
            if value is UNKNOWN:
                return UNKNOWN
            values.append(value)
        result = apply(name, tuple(values))
        return UNKNOWN if result is None else result
    if kind in (Kind.CAST, Kind.FULL) and name != "bitcast":
        return known[args[0]] if args and args[0] >= 0 else UNKNOWN
    return UNKNOWN


def refold(ops: Sequence[Draft], value: int, constants: Mapping[str, Constant], memo: dict[int, Known]) -> Known:
    """The constant that `value` is under other constants than those it was lowered with."""
    stack = [value]
    while stack:
        at = stack[-1]
        if at in memo:
            stack.pop()
            continue
        op = ops[at]
        folds = op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.FULL)
        missing = [arg for arg in op.args if arg >= 0 and arg not in memo] if folds else []
        if missing:
            stack.extend(missing)
            continue
        memo[at] = _evaluate(op.kind, op.name, op.args, op.attrs, memo, constants)
        stack.pop()
    return memo[value]
