"""How many values an index takes inside one block: ranges, thread numbers, loops of known length."""

from __future__ import annotations

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.loops import trip_count
from d2k.spec.facts import NONE, Kind, Op

WARP_SIZE = 32
MAX_SHIFT = 32
MAX_VALUES = 200
"""An index that is computed from more values than this has no known bound."""


def threads(kernel: KernelView) -> int | None:
    """Threads of a block, from the launch or from launch bounds."""
    known = kernel.launch.threads
    if known is not None:
        return known
    if kernel.launch.num_warps is not None:
        return kernel.launch.num_warps * WARP_SIZE
    bound = kernel.kernel.attrs.get("launch_bounds_threads")
    return bound if isinstance(bound, int) and not isinstance(bound, bool) else None


def block_extent(kernel: KernelView, axis: object) -> int | None:
    """Threads along one axis of the block, None if the launch does not say."""
    block = kernel.launch.options.get("block")
    if isinstance(block, tuple) and isinstance(axis, int):
        extent = block[axis] if axis < len(block) else 1
        return extent if isinstance(extent, int) and not isinstance(extent, bool) else None
    if (axis == 0 and not kernel.values(Kind.THREAD_INDEX)) or (axis == 0 and _is_flat(kernel)):
        return threads(kernel)
    return None


def _is_flat(kernel: KernelView) -> bool:
    return all(kernel.op(value).attrs.get("axis") == 0 for value in kernel.values(Kind.THREAD_INDEX))


def span(kernel: KernelView, value: int) -> int | None:
    """One more than the largest value of an index that starts at 0 in each block; None if it has no known bound."""
    return _Spans(kernel).of(value)


class _Spans:
    """Bounds found for one question; each value is looked at once."""

    def __init__(self, kernel: KernelView) -> None:
        self.kernel = kernel
        self.known: dict[int, int | None] = {}

    def of(self, value: int) -> int | None:
        if value == NONE:
            return 1
        if value not in self.known and len(self.known) > MAX_VALUES:
            return None
        if value not in self.known:
            self.known[value] = None  # a cycle through a loop has no bound of its own
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: int) -> int | None:
        constant = self.kernel.fold_int(value)
        if constant is not None:
            return constant + 1 if constant >= 0 else None
        op = self.kernel.op(value)
        match op.kind:
            case Kind.THREAD_INDEX:
                return block_extent(self.kernel, op.attrs.get("axis"))
            case Kind.LANE:
                return WARP_SIZE
            case Kind.WARP:
                count = threads(self.kernel)
                return None if count is None else max(1, count // WARP_SIZE)
            case Kind.ARANGE:
                return self.kernel.fold_int(op.args[1])
            case Kind.CAST | Kind.CONTROL | Kind.SHAPE if op.args:
                return self.of(op.args[0])
            case Kind.PHI if op.name == "loop":
                return self._counter(value)
            case Kind.ELEMENTWISE if len(op.args) == 2:
                return self._arithmetic(op)
        return None

    def _counter(self, value: int) -> int | None:
        """A loop variable: its last value and one more."""
        loop = self.kernel.op(value).loop
        if loop == NONE or self.kernel.loop(loop).variable != value:
            return None
        one = self.kernel.loop(loop)
        stop = self.kernel.fold_int(one.stop)
        if stop is not None:
            return stop
        trips, start, step = trip_count(self.kernel, loop), self.of(one.start), self.kernel.fold_int(one.step)
        if trips is None or start is None or step is None:
            return None
        return start + (trips - 1) * step

    def _arithmetic(self, op: Op) -> int | None:
        left, right = op.args
        a, b = self.of(left), self.kernel.fold_int(right)
        match op.name:
            case "mod" if b:
                return b if a is None else min(a, b)
            case "and":
                masks = [mask + 1 for mask in (self.kernel.fold_int(left), b) if mask is not None and mask >= 0]
                return min(masks, default=None)
            case "floordiv" | "div" if a is not None and b:
                return -(-a // b)
            case "shr" if a is not None and b is not None and 0 <= b < MAX_SHIFT:
                return -(-a // (1 << b))
            case "shl" if a is not None and b is not None and 0 <= b < MAX_SHIFT:
                return ((a - 1) << b) + 1
            case "mul":
                other = self.of(right)
                return None if a is None or other is None else (a - 1) * (other - 1) + 1
            case "add":
                other = self.of(right)
                return None if a is None or other is None else a + other - 1
            case "min":
                bounds = [one for one in (a, self.of(right)) if one is not None]
                return min(bounds, default=None)
        return None
