"""Collects the operations and loops of one body while a function is lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from d2k.analyzers.core.drafts import NO_ATTRS, Draft, Drafts, LoopDraft, TooLarge, const_dtype
from d2k.analyzers.core.fold import apply
from d2k.analyzers.triton.values import UNKNOWN, Known
from d2k.spec.facts import NONE, AttrValue, Body, Constant, Kind, Place

MAX_OPS = 30_000
"""Operations of one body; hostile or generated code stops here and is reported."""

NO_CONSTANTS: Mapping[str, Constant] = {}


@dataclass(frozen=True, slots=True)
class Decision:
    """The lowering depended on what `value` is as a constant: on `read(value)` being `outcome`."""

    value: int
    read: Callable[[Known], object]
    outcome: object


class Builder(Drafts):
    """`constants` are the compile-time constants of the variant that is lowered, by parameter name."""

    def __init__(self, constants: Mapping[str, Constant] = NO_CONSTANTS, max_ops: int = MAX_OPS) -> None:
        super().__init__()
        self.constants = constants
        self.max_ops = max_ops
        self.known: list[Known] = []
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
        draft = LoopDraft(self.loop, form, place, self.guards, self.calls, NONE, start, stop, step)
        draft.attrs.update(attrs)
        return self.enter_loop(draft)

    def finished(self) -> Body:
        self._mark_used_atomics()
        return super().finished()

    def _mark_used_atomics(self) -> None:
        """Says of each atomic whether anything reads what it returns."""
        atomics = [value for value, draft in enumerate(self.ops) if draft.kind is Kind.ATOMIC]
        if atomics:
            used = {arg for draft in self.ops for arg in draft.args}
            used |= {guard.value for draft in self.ops for guard in draft.guards}
            for value in atomics:
                draft = self.ops[value]
                draft.attrs = {**draft.attrs, "returns": value in used}


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
