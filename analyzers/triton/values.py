"""What a name can stand for while Python code is lowered.

A value computed at run time, or a compile-time constant that has an operation of its own, is the `int` index of that
operation. Everything else is one of the classes here; `Lowering.ref` makes an operation of it where it is an operand.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from d2k.spec.facts import NONE, AttrValue, Constant

if TYPE_CHECKING:
    from d2k.analyzers.triton.module import Module


class Unknown(Enum):
    """Marks what is not known where None is a value of the source."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Known = Constant | Unknown


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of the source without an operation yet."""

    value: Constant


@dataclass(frozen=True, slots=True)
class Tup:
    """A tuple or list. `whole` is the operation whose items these are, if there is one."""

    items: tuple[Value, ...]
    whole: int = NONE


@dataclass(frozen=True, slots=True)
class Dict:
    """A dictionary with constant keys; `open` if it may hold more than its known items."""

    items: Mapping[Constant, Value]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """Something of another module, by its dotted name: `triton.language.float32`, `torch.matmul`."""

    dotted: str


@dataclass(frozen=True, slots=True)
class DType:
    """An element type; `of` is the value whose element type it is where the source asks for it by `.dtype`."""

    name: str | None
    of: int = NONE


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A function of the files at hand. `env` is the environment of the function that encloses it."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    module: Module
    qualname: str
    env: Mapping[str, object] = field(default_factory=dict)
    owner: Value | None = None
    """What the first parameter is bound to: the instance or class of a method."""
    evaluated: bool = False
    """Whether `env` holds plain Python values: the evaluator made the function, not the lowering."""


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """A function with some of its arguments given: `functools.partial`."""

    func: Value
    args: tuple[Value, ...]
    keywords: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Config:
    """One autotune configuration. Constants that are not known are missing from `kwargs`."""

    kwargs: Mapping[str, object]
    options: Mapping[str, object]

    def __hash__(self) -> int:
        return id(self)


@dataclass(slots=True, eq=False)
class KernelDef:
    """A kernel with its tuning. `configs` is None without autotuning, () if they could not be evaluated."""

    func: Func
    language: str
    configs: tuple[Config, ...] | None = None
    pruned: bool = False
    heuristics: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    decorators: tuple[str, ...] = ()
    pending: tuple[tuple[ast.Call, Mapping[str, object], Module], ...] = ()
    """Calls of `autotune` that are evaluated when the kernel's configurations are asked for."""

    @property
    def name(self) -> str:
        return self.func.qualname


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    """A class of the files at hand."""

    node: ast.ClassDef
    module: Module


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An object of such a class, with the fields that are known."""

    cls: Class
    fields: Mapping[str, Value]
    whole: int = NONE
    """The operation that stands for the object itself: `self` of a method."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An attribute of a value, most often a method: `x.to`."""

    owner: Value
    name: str


@dataclass(frozen=True, slots=True)
class Slice:
    start: Value | None
    stop: Value | None
    step: Value | None


@dataclass(frozen=True, slots=True, eq=False)
class Gridded:
    """`kernel[grid]` before it is called."""

    kernel: Value
    grid: Value


@dataclass(frozen=True, slots=True, eq=False)
class Meta:
    """The argument of a grid function: the launch's constants by name."""

    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Numbers that a loop runs over; bounds are operations, `form` is `for` or `static`."""

    form: str
    start: int
    stop: int
    step: int
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of two functions or kernels, by a condition that only a run can tell."""

    condition: int
    yes: Value
    no: Value


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How a tile is laid out over threads or in memory, by the name of its constructor."""

    name: str
    fields: Mapping[str, Value]


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """What `with` opens for one role of a warp-specialized kernel."""

    name: str
    attrs: Mapping[str, AttrValue]


@dataclass(frozen=True, slots=True)
class Element:
    """An item or region of an array that is not loaded yet: it may be read or written."""

    owner: int
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tiles:
    """Indices of all elements of a tile, one value an axis: what a parallel loop runs over."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that is no run-time value and that cannot be followed, in words.

    `tuples` are what it may be where branches leave tuples of different lengths: an assignment to several
    names tells which.
    """

    what: str
    tuples: tuple[Tup, ...] = ()


Value = (
    int
    | Literal
    | Tup
    | Dict
    | Named
    | DType
    | Func
    | Partial
    | KernelDef
    | Class
    | Instance
    | Bound
    | Slice
    | Gridded
    | Meta
    | Range
    | Choice
    | Layout
    | Region
    | Element
    | Tiles
    | Opaque
)

VALUES = Value.__args__
"""The classes of the union, for `isinstance`."""


DTYPE_NAMES: Mapping[str, str] = {
    "f64": "torch.float64",
    "f32": "torch.float32",
    "f16": "torch.float16",
    "bf16": "torch.bfloat16",
    "f8e4m3": "torch.float8_e4m3fn",
    "f8e5m2": "torch.float8_e5m2",
    "i8": "torch.int8",
    "i16": "torch.int16",
    "i32": "torch.int32",
    "i64": "torch.int64",
    "u8": "torch.uint8",
    "bool": "torch.bool",
}
"""A name for each element type by which the evaluator knows it."""


def as_python(value: Value) -> object:
    """The plain Python value of a compile-time constant; UNKNOWN for what only a run can tell."""
    match value:
        case Literal(constant):
            return constant
        case Named() | Func() | KernelDef() | Class():
            return value
        case DType(str() as name):
            return Named(DTYPE_NAMES.get(name, name))
        case Tup(items):
            inner = [as_python(one) for one in items]
            return UNKNOWN if UNKNOWN in inner else tuple(inner)
        case _:
            return UNKNOWN
