"""The body of a function while a front end lowers it: operations and loops whose operands may still change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from d2k.spec.facts import NONE, AttrValue, Body, Carried, Constant, Guard, Kind, Loop, Mention, Op, Place

NO_ATTRS: Mapping[str, AttrValue] = {}


class TooLarge(Exception):
    """The body has more operations than can be analysed in bounded time."""


@dataclass(slots=True)
class Draft:
    """An operation whose operands and attributes may still change."""

    kind: Kind
    name: str
    args: tuple[int, ...]
    place: Place
    attrs: Mapping[str, AttrValue]
    dtype: str | None
    shape: tuple[int, ...] | None
    loop: int
    guards: tuple[Guard, ...]
    calls: tuple[Place, ...]
    partition: str
    variable: str = ""


@dataclass(slots=True)
class LoopDraft:
    """A loop whose bounds are filled in as they become known; `carried` holds (variable, before, phi, next)."""

    parent: int
    form: str
    place: Place
    guards: tuple[Guard, ...]
    calls: tuple[Place, ...]
    variable: int = NONE
    start: int = NONE
    stop: int = NONE
    step: int = NONE
    condition: int = NONE
    carried: list[tuple[str, int, int, int]] = field(default_factory=list)
    attrs: dict[str, AttrValue] = field(default_factory=dict)


class Drafts:
    """What every front end's builder keeps: drafts, and where the next operation stands."""

    def __init__(self) -> None:
        self.ops: list[Draft] = []
        self.loops: list[LoopDraft] = []
        self.loop = NONE
        self.guards: tuple[Guard, ...] = ()
        self.calls: tuple[Place, ...] = ()
        self.partition = ""
        self.mentions: list[Mention] = []
        self.unresolved: list[Mention] = []
        self.same: dict[int, int] = {}
        """Values that are to be replaced by others."""
        self.renumbered: list[int] = []
        """For each draft the number of its value in the finished body, once there is one."""

    def enter_loop(self, draft: LoopDraft) -> int:
        """What is emitted from now on stands in this loop; its index."""
        self.loops.append(draft)
        self.loop = len(self.loops) - 1
        return self.loop

    def close_loop(self) -> None:
        self.loop = self.loops[self.loop].parent

    def finished(self) -> Body:
        """The body: loop variables that the loop never changes are replaced by their value before it."""
        new, survivors = self._numbering()
        self.renumbered = new

        def number(value: int) -> int:
            return new[value] if value >= 0 else value

        def numbers(values: Sequence[int]) -> tuple[int, ...]:
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
                numbers(draft.args),
                draft.place,
                draft.attrs,
                draft.dtype,
                None if draft.shape is None else numbers(draft.shape),
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
                number(loop.variable),
                number(loop.start),
                number(loop.stop),
                number(loop.step),
                number(loop.condition),
                tuple(
                    Carried(name, *numbers((before, phi, after)))
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
    """The element type that a literal has where nothing else says it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "f32" if isinstance(value, float) else None
