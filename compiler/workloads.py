"""Workloads: axis values put into everything that the task declares, with every rule held for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import msgspec

from d2k.compiler import syntax
from d2k.compiler.contents import Contents, as_integer, as_value, evaluate_contents, resolve_contents
from d2k.compiler.declarations import Declarations, TensorDeclaration
from d2k.compiler.diagnostics import Note
from d2k.compiler.problems import Problems
from d2k.compiler.source import Span
from d2k.compiler.types import Scope, Typed, Typing
from d2k.spec.dtypes import per_container, storage_bytes
from d2k.spec.evaluator import INTEGER_LIMIT, Evaluated
from d2k.spec.expression import Type, free_names
from d2k.spec.task import Direction, TensorInstance, Value, Workload

TAGS = ("edge", "latency", "held_out")

Values = dict[str, Evaluated]


class WorkloadEvaluation:
    """Evaluates the workloads of one task."""

    def __init__(self, declared: Declarations, typing: Typing) -> None:
        self._declared = declared
        self._typing = typing
        self._problems: Problems = typing.problems

    def all(self, nodes: tuple[syntax.Workload, ...]) -> tuple[Workload, ...]:
        """The workloads in order; those with mistakes are reported and left out."""
        found: list[tuple[Workload, syntax.Workload]] = []
        by_axes: dict[tuple[tuple[str, Value], ...], Workload] = {}
        names: dict[str, Span] = {}
        for node in nodes:
            if node.name.name in names:
                first = Note("declared here first", names[node.name.name])
                self._problems.report("D2K0301", node.name.span, name=node.name.name, note=first)
                continue
            names[node.name.name] = node.name.span
            one = self.workload(node)
            if one is None:
                continue
            twin = by_axes.setdefault(tuple(one.axes.items()), one)
            if twin is not one and twin.tensors == one.tensors:
                self._problems.report("D2K0615", node.name.span, workload=one.name, other=twin.name)
            found.append((one, node))
        if found and all(one.held_out for one, _ in found):
            self._problems.report("D2K0614", found[0][1].name.span)
        return tuple(one for one, _ in found)

    def workload(self, node: syntax.Workload) -> Workload | None:
        name, before = node.name.name, self._problems.errors
        tags = self._tags(node)
        axes = self._axis_values(node)
        overrides = self._overrides(node)
        if axes is None:
            return None
        values: Values = dict(axes)
        if not self._lets(values, name) or not self._conditions(values, node):
            return None
        tensors = [
            self._tensor(one, overrides.get(one.name, one.contents), values, node) for one in self._declared.tensors
        ]
        whole = tuple(one for one in tensors if one is not None)
        if len(whole) < len(tensors):
            return None
        cost = self._cost(whole, values, node)
        if cost is None or self._problems.errors > before:
            return None
        origin = node.origin.value if node.origin else ""
        axis_values = {key: as_value(value) for key, value in axes.items()}
        lets = {one.name: as_value(values[one.name]) for one in self._declared.lets}
        return Workload(name, tags, origin, axis_values, lets, whole, **msgspec.structs.asdict(cost))

    def _tags(self, node: syntax.Workload) -> tuple[str, ...]:
        tags: list[str] = []
        for tag in node.tags:
            if tag.name not in TAGS:
                self._problems.report_unknown("D2K0323", tag.span, tag.name, TAGS)
            elif tag.name in tags:
                self._problems.report("D2K0301", tag.span, name=tag.name)
            else:
                tags.append(tag.name)
        return tuple(sorted(tags, key=TAGS.index))

    def _axis_values(self, node: syntax.Workload) -> Values | None:
        """The values of all axes in the order of their declaration."""
        axes = {one.name: one for one in self._declared.axes}
        found: Values = {}
        complete = True
        for setting in node.settings:
            if not isinstance(setting, syntax.Setting):
                continue
            axis = axes.get(setting.name.name)
            if axis is None:
                self._problems.report_unknown("D2K0305", setting.name.span, setting.name.name, axes, kind="axis")
                continue
            if axis.name in found:
                self._problems.report("D2K0301", setting.name.span, name=axis.name)
                continue
            wanted = (axis.type,) if axis.type else tuple(AXIS_TYPES.values())
            typed = self._typing.expression(setting.value, Scope(), wanted, f"axis `{axis.name}`")
            value = None if typed is None else self._typing.evaluated(typed, {}, node.name.name)
            complete = complete and value is not None
            found[axis.name] = value if value is not None else 0
        missing = [name for name in axes if name not in found]
        if missing:
            words = ", ".join(f"`{name}`" for name in missing)
            self._problems.report("D2K0610", node.name.span, absent=missing, workload=node.name.name, axes=words)
        return {name: found[name] for name in axes} if complete and not missing else None

    def _overrides(self, node: syntax.Workload) -> dict[str, Contents]:
        inputs = {one.name for one in self._declared.tensors if one.direction in (Direction.INPUT, Direction.INOUT)}
        found: dict[str, Contents] = {}
        for setting in node.settings:
            if not isinstance(setting, syntax.Override):
                continue
            tensor = setting.tensor
            if tensor.name not in inputs:
                self._problems.report_unknown("D2K0305", tensor.span, tensor.name, sorted(inputs), kind="input")
            elif tensor.name in found:
                self._problems.report("D2K0511", tensor.span, name=tensor.name)
            else:
                contents = resolve_contents(setting.distribution, self._typing, self._declared.scope)
                if contents is not None:
                    found[tensor.name] = contents
        return found

    def _lets(self, values: Values, workload: str) -> bool:
        for one in self._declared.lets:
            value = self._typing.evaluated(one.value, values, workload)
            if value is None:
                return False
            values[one.name] = value
        return True

    def _conditions(self, values: Values, node: syntax.Workload) -> bool:
        before = self._problems.errors
        for condition in self._declared.where:
            value = self._typing.evaluated(condition, values, node.name.name)
            if value is False:
                names = [name for name in dict.fromkeys(free_names(condition.node)) if name in values]
                words = ", ".join(f"{name} = {_shown(values[name])}" for name in names)
                note = Note("the condition", condition.span)
                self._problems.report(
                    "D2K0607",
                    node.name.span,
                    note=note,
                    workload=node.name.name,
                    condition=condition.text,
                    values=words or "every workload",
                )
        return self._problems.errors == before

    def _tensor(
        self, one: TensorDeclaration, contents: Contents | None, values: Values, node: syntax.Workload
    ) -> TensorInstance | None:
        workload = node.name.name
        shape = self._shape(one, values, node)
        if shape is None:
            return None
        elements = prod(shape)
        if elements >= INTEGER_LIMIT:
            self._problems.report(
                "D2K0602", one.type_span, workload=workload, problem=f"`{one.name}` has {elements} elements"
            )
            return None
        moved = self._moved(one, elements, values, node)
        if moved is None:
            return None
        storage_dtype, storage_shape = one.dtype, shape
        if one.container:
            count = per_container(one.dtype, one.container)
            if not shape or shape[-1] % count:
                self._problems.report(
                    "D2K0612",
                    one.type_span,
                    note=Note("in this workload", node.name.span),
                    workload=workload,
                    extent=shape[-1] if shape else 1,
                    tensor=one.name,
                    container=f"whole {one.container} of {count} elements",
                )
                return None
            storage_dtype, storage_shape = one.container, (*shape[:-1], shape[-1] // count)
        distribution = None
        if contents is not None:
            distribution = evaluate_contents(contents, one.dtype, shape, values, self._typing, workload)
            if distribution is None:
                return None
        size = storage_bytes(one.dtype, elements)
        return TensorInstance(one.name, shape, storage_dtype, storage_shape, size, moved, distribution)

    def _shape(self, one: TensorDeclaration, values: Values, node: syntax.Workload) -> tuple[int, ...] | None:
        shape: list[int] = []
        for extent in one.shape:
            value = self._typing.evaluated(extent, values, node.name.name)
            if value is None:
                return None
            number = as_integer(value)
            if number < 1:
                note = Note("in this workload", node.name.span)
                self._problems.report(
                    "D2K0606", extent.span, note=note, workload=node.name.name, tensor=one.name, extent=number
                )
                return None
            shape.append(number)
        return tuple(shape)

    def _moved(self, one: TensorDeclaration, elements: int, values: Values, node: syntax.Workload) -> int | None:
        """Bytes that cross global memory: an `inout` is read and written unless it says what it moves; scalars none."""
        if one.direction is Direction.INTERMEDIATE or not one.shape:
            return 0
        if one.moves is None:
            return storage_bytes(one.dtype, elements * (2 if one.direction is Direction.INOUT else 1))
        count = self._integer(one.moves, f"`moves` of `{one.name}`", 0, values, node)
        return None if count is None else storage_bytes(one.dtype, count)

    def _integer(self, typed: Typed, what: str, least: int, values: Values, node: syntax.Workload) -> int | None:
        value = self._typing.evaluated(typed, values, node.name.name)
        if value is None:
            return None
        number = as_integer(value)
        if number < least:
            self._problems.report(
                "D2K0609",
                typed.span,
                note=Note("in this workload", node.name.span),
                workload=node.name.name,
                what=what,
                value=number,
                wanted="positive" if least else "zero or more",
            )
            return None
        return number

    def _cost(self, tensors: tuple[TensorInstance, ...], values: Values, node: syntax.Workload) -> _Cost | None:
        cost = self._declared.cost
        flops = {engine: self._integer(typed, f"`flops` on {engine}", 1, values, node) for engine, typed in cost.flops}
        counted = {engine: count for engine, count in flops.items() if count is not None}
        read, written = self._traffic(tensors)
        moved = read + written
        agrees = self._written_bytes(cost.bytes, moved, tensors, values, node)
        flops_min = self._floor(cost.flops_min, "flops_min", sum(counted.values()), values, node)
        bytes_min = self._floor(cost.bytes_min, "bytes_min", moved, values, node)
        if len(counted) < len(flops) or not agrees or flops_min is None or bytes_min is None:
            return None
        return _Cost(counted, moved, read, written, flops_min, bytes_min)

    def _written_bytes(
        self,
        typed: Typed | None,
        moved: int,
        tensors: tuple[TensorInstance, ...],
        values: Values,
        node: syntax.Workload,
    ) -> bool:
        """Whether `bytes`, where it is written, equals what the tensors move."""
        given = moved if typed is None else self._integer(typed, "`bytes`", 1, values, node)
        if typed is None or given == moved:
            return True
        if given is not None:
            parts = ", ".join(f"{one.name} {one.moved_bytes:,}" for one in tensors if one.moved_bytes)
            self._problems.report(
                "D2K0608",
                typed.span,
                absent=tuple(Direction),
                help="leave `bytes` out, or say with `moves` how many elements of a tensor are touched",
                note=Note(f"bytes by tensor: {parts}", node.name.span),
                workload=node.name.name,
                written=f"{given:,}",
                moved=f"{moved:,}",
            )
        return False

    def _traffic(self, tensors: tuple[TensorInstance, ...]) -> tuple[int, int]:
        """Bytes read and written. What an `inout` says that it moves counts as written: that floor is the lower one."""
        read = written = 0
        for declared, one in zip(self._declared.tensors, tensors, strict=True):
            if declared.direction is Direction.INPUT:
                read += one.moved_bytes
            elif declared.direction is Direction.INOUT and declared.moves is None:
                read += one.moved_bytes - one.moved_bytes // 2
                written += one.moved_bytes // 2
            else:
                written += one.moved_bytes
        return read, written

    def _floor(self, typed: Typed | None, what: str, bound: int, values: Values, node: syntax.Workload) -> int | None:
        if typed is None:
            return bound
        number = self._integer(typed, f"`{what}`", 0, values, node)
        if number is not None and number > bound:
            self._problems.report(
                "D2K0609",
                typed.span,
                note=Note("in this workload", node.name.span),
                workload=node.name.name,
                what=f"`{what}`",
                value=f"{number:,}",
                wanted=f"at most the reported {bound:,}",
            )
            return None
        return number


class _Cost(msgspec.Struct, frozen=True):
    """The fields of `Workload` that say what it costs."""

    flops: dict[str, int]
    bytes: int
    bytes_read: int
    bytes_written: int
    flops_min: int
    bytes_min: int


def workload_values(workload: Workload) -> Mapping[str, Value]:
    """Axes and lets of a workload together."""
    return {**workload.axes, **workload.lets}


def _shown(value: Evaluated) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(list(value)) if isinstance(value, tuple) else str(value)


AXIS_TYPES = {one.value: one for one in (Type.INT, Type.FLOAT, Type.BOOL, Type.INTS, Type.FLOATS, Type.BOOLS)}
