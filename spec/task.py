"""A compiled task: what a kernel must compute, on which workloads, and how an expert would build it.

Expressions are kept as canonical text for people; what they evaluate to stands beside them in every workload, so that
a reader of the JSON needs no evaluator.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from d2k.spec.guidance import Item

TASK_SCHEMA = "d2k.task/1"

Value = bool | int | float | tuple[bool | int | float, ...]
"""What an axis, a `let` or an argument of a distribution evaluates to."""


class Direction(StrEnum):
    """`inout` tensors are restored before every call; `intermediate` ones must not exist in global memory."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"
    INTERMEDIATE = "intermediate"


class PythonFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function of a file that stands beside the task: `"reference.py" :: run`; `doc` is its docstring."""

    path: str
    name: str
    doc: str = ""


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A free variable of the task. `type` is `int`, `float`, `bool`, `ints`, `floats` or `bools`."""

    name: str
    type: str
    role: str = ""


class Let(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name for an expression over axes and earlier names."""

    name: str
    type: str
    expression: str
    role: str = ""


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor. `shape` counts elements of `dtype`; an input without a shape is a scalar, passed as a Python number.

    `packed` names the container type of sub-byte elements, packed along the last axis, first element lowest.
    `moves` is the number of elements that must cross global memory; "" means all of them (an `inout`: twice).
    """

    name: str
    direction: Direction
    dtype: str
    shape: tuple[str, ...]
    role: str = ""
    constant: bool = False
    packed: str = ""
    distribution: str = ""
    moves: str = ""


class Draw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tensors whose contents are made together by `function(axes, generator)`, in this order."""

    tensors: tuple[str, ...]
    function: PythonFunction


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    function: PythonFunction


class Tolerance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """|got - ref| <= atol + rtol * |ref| on at least `matched` (a fraction) of the elements.

    `max_ulp` bounds the distance in units of the output type's last place; `relative_rms` bounds
    rms(got - ref) / rms(ref) over each slab of `slab_rows` rows (0: the whole tensor).
    """

    output: str
    because: str
    atol: float = 0.0
    rtol: float = 0.0
    matched: float = 1.0
    max_ulp: int | None = None
    relative_rms: float | None = None
    slab_rows: int = 0


class Compare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outputs that are judged together by `function(inputs, got, reference)`."""

    outputs: tuple[str, ...]
    function: PythonFunction
    because: str = ""


class Flops(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operations (a multiply-add counts two) on one engine, such as `tensor.bf16`."""

    engine: str
    expression: str


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bytes` is "" where it is the sum of what the tensors move; `*_min` are "" where the bound is the floor too."""

    flops: tuple[Flops, ...]
    bytes: str = ""
    flops_min: str = ""
    bytes_min: str = ""


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where random contents come from: `scale * family(arguments) + shift`."""

    family: str
    arguments: dict[str, Value] = {}
    scale: float = 1.0
    shift: float = 0.0


class TensorInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor in one workload. `storage_*` is what is allocated; they differ from the tensor's own only if packed.

    `bytes` is the allocation, `moved_bytes` what must cross global memory. `distribution` is None for outputs and for
    tensors that a `draw` makes.
    """

    name: str
    shape: tuple[int, ...]
    storage_dtype: str
    storage_shape: tuple[int, ...]
    bytes: int
    moved_bytes: int
    distribution: Distribution | None = None


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One set of axis values with everything that follows from them.

    Tags: `edge` (odd shapes), `latency` (bound under 5 us), `held_out` (never shown to an agent).
    `flops` maps engines to operations; `bytes` = `bytes_read` + `bytes_written`; `*_min` equal them unless declared.
    """

    name: str
    tags: tuple[str, ...]
    origin: str
    axes: dict[str, Value]
    lets: dict[str, Value]
    tensors: tuple[TensorInstance, ...]
    flops: dict[str, int]
    bytes: int
    bytes_read: int
    bytes_written: int
    flops_min: int
    bytes_min: int

    @property
    def held_out(self) -> bool:
        return "held_out" in self.tags

    def tensor(self, name: str) -> TensorInstance:
        return next(one for one in self.tensors if one.name == name)


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The compiled task. `sources` maps each Python file that it names to the SHA-256 of its contents.

    `content_hash` covers everything but itself; it does not change with layout or comments. `prompts` maps each amount
    of guidance (`none`, `L1`, `L1+L2`, `full`) to the SHA-256 of the prompt that holds it.
    """

    schema: str
    language_version: int
    content_hash: str
    id: str
    title: str
    summary: str
    target: tuple[str, ...]
    axes: tuple[Axis, ...]
    lets: tuple[Let, ...]
    where: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    draws: tuple[Draw, ...]
    entry: str
    prepare: str
    reference: PythonFunction | None
    baselines: tuple[Baseline, ...]
    tolerances: tuple[Tolerance, ...]
    compares: tuple[Compare, ...]
    cost: Cost
    forbid: tuple[str, ...]
    workloads: tuple[Workload, ...]
    guidance: tuple[Item, ...]
    sources: dict[str, str]
    prompts: dict[str, str] = {}

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(one for one in self.tensors if one.direction is Direction.INPUT)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that the kernel writes: outputs and inouts, in declaration order."""
        return tuple(one for one in self.tensors if one.direction in (Direction.OUTPUT, Direction.INOUT))

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """The entry's parameters in calling order: inputs, then outputs and inouts."""
        return self.inputs + self.outputs

    @property
    def sizes(self) -> tuple[str, ...]:
        """Integers that a C entry gets after its arguments: axes and, where one is a list, those derived from it."""
        lists = any(one.type.endswith("s") for one in self.axes)
        axes = tuple(one.name for one in self.axes if one.type == "int")
        return axes + tuple(one.name for one in self.lets if lists and one.type == "int")

    def tensor(self, name: str) -> Tensor:
        return next(one for one in self.tensors if one.name == name)

    def item(self, identifier: str) -> Item:
        return next(one for one in self.guidance if one.id == identifier)
