"""What expressions mean while they are lowered: values, places in memory, objects, functions and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from d2k.analyzers.cuda.cpp_types import UNKNOWN_TYPE, CType

if TYPE_CHECKING:
    from d2k.analyzers.cuda.frames import Frame
    from d2k.analyzers.cuda.scope import ClassInstance, FunctionRef
    from d2k.analyzers.cuda.syntax import Lambda


class Val(msgspec.Struct, frozen=True):
    """A computed value: the operation that defines it."""

    id: int
    type: CType = UNKNOWN_TYPE


class Pointer(msgspec.Struct, frozen=True):
    """An address in memory. `elem` is what it points to, `space` where."""

    id: int
    elem: CType
    space: str


class SlotRef(msgspec.Struct, frozen=True):
    """A variable, or with `path` an element of a local array (indices of every dimension that is bound so far)."""

    slot: int
    type: CType
    path: tuple[int, ...] = ()


class MemRef(msgspec.Struct, frozen=True):
    """What stands at an address. `wide`: it was reached through a cast to a wider type."""

    address: int
    type: CType
    space: str


class ArrayRef(msgspec.Struct, frozen=True):
    """An array in shared or global memory with the indices that are bound so far; `type` is that of the rest."""

    base: int
    indices: tuple[int, ...]
    type: CType
    space: str
    dims: tuple[int, ...] = ()
    """Values of all extents of the whole array, for addresses of its elements."""


class LaneRef(msgspec.Struct, frozen=True):
    """One component of a vector that is itself a place or a value."""

    base: Thing
    index: int
    type: CType


class LocalPointer(msgspec.Struct, frozen=True):
    """The address of a local variable; `elem` is the type it is read as."""

    target: SlotRef
    elem: CType


class ParamRef(msgspec.Struct, frozen=True):
    """A by-value struct parameter of a kernel, or a member of one: `path` is its dotted name."""

    path: str
    type: CType


class Obj(msgspec.Struct, frozen=True, eq=False):
    """A local object of a known class, its fields kept as places of their own."""

    instance: ClassInstance
    fields: dict[str, Thing]


class Tuple(msgspec.Struct, frozen=True, eq=False):
    """Several values: a braced list, a structured return."""

    items: tuple[Thing, ...]
    type: CType = UNKNOWN_TYPE


class Closure(msgspec.Struct, frozen=True, eq=False):
    node: Lambda
    frame: Frame
    targs: tuple[Thing, ...] = ()


class Functions(msgspec.Struct, frozen=True, eq=False):
    """Functions of one name. `targs` are explicit template arguments; `this` the object for methods."""

    name: str
    refs: tuple[FunctionRef, ...]
    targs: tuple[Thing, ...] | None = None
    this: Obj | None = None
    instance: ClassInstance | None = None


class Choice(msgspec.Struct, frozen=True, eq=False):
    """One of several functions: a run-time condition says which."""

    items: tuple[Functions, ...]


class Method(msgspec.Struct, frozen=True, eq=False):
    """A member of something whose class is not known."""

    base: Thing
    name: str
    targs: tuple[Thing, ...] = ()


class External(msgspec.Struct, frozen=True):
    """A name that no file declares."""

    name: str
    targs: tuple[Thing, ...] = ()


Thing: TypeAlias = (
    Val
    | Pointer
    | SlotRef
    | MemRef
    | ArrayRef
    | LaneRef
    | LocalPointer
    | ParamRef
    | Obj
    | Tuple
    | Closure
    | Functions
    | Choice
    | Method
    | External
    | CType
)
