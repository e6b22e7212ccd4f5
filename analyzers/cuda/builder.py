"""Collects the operations and loops of one body while a function is lowered."""

from __future__ import annotations

from collections.abc import Mapping

from d2k.analyzers.core.drafts import NO_ATTRS, Draft, Drafts, LoopDraft, TooLarge, const_dtype
from d2k.analyzers.core.fold import apply
from d2k.spec.facts import NONE, AttrValue, Constant, Kind, Place

MAX_OPS = 24_000
"""Operations of one body; hostile or generated code stops here and is reported."""

_FOLDABLE = (Kind.ELEMENTWISE, Kind.CAST)


class Builder(Drafts):
    """`constants` are the compile-time constants of the variant that is lowered, by parameter name."""

    def __init__(self, constants: Mapping[str, Constant], max_ops: int = MAX_OPS) -> None:
        super().__init__()
        self.constants = constants
        self.max_ops = max_ops
        self.known: list[Constant] = []
        """For each operation the constant that it is, None where that is not known."""
        self._constants: dict[tuple[str, Constant, str | None], int] = {}

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
        self.enter_loop(draft)
        return draft


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
