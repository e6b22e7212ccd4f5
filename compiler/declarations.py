"""What a task declares, resolved and typed, before any workload gives values."""

from __future__ import annotations

import msgspec

from d2k.compiler.contents import Contents
from d2k.compiler.source import Span
from d2k.compiler.types import Scope, Typed
from d2k.spec.expression import Type
from d2k.spec.task import Direction, Draw, Tensor


class AxisDeclaration(msgspec.Struct, frozen=True):
    """`type` is None after a diagnostic; such an axis takes any value."""

    name: str
    type: Type | None
    role: str
    span: Span


class LetDeclaration(msgspec.Struct, frozen=True):
    name: str
    value: Typed
    span: Span


class TensorDeclaration(msgspec.Struct, frozen=True):
    """`contents` is None for outputs, intermediates and tensors that a `draw` makes; `moves` None means everything."""

    name: str
    direction: Direction
    dtype: str
    container: str
    shape: tuple[Typed, ...]
    role: str
    constant: bool
    contents: Contents | None
    moves: Typed | None
    span: Span
    type_span: Span

    @property
    def record(self) -> Tensor:
        return Tensor(
            self.name,
            self.direction,
            self.dtype,
            tuple(extent.text for extent in self.shape),
            self.role,
            self.constant,
            self.container,
            self.contents.text if self.contents else "",
            self.moves.text if self.moves else "",
        )


class CostDeclaration(msgspec.Struct, frozen=True):
    flops: tuple[tuple[str, Typed], ...]
    bytes: Typed | None
    flops_min: Typed | None
    bytes_min: Typed | None


class Declarations(msgspec.Struct, frozen=True):
    axes: tuple[AxisDeclaration, ...]
    lets: tuple[LetDeclaration, ...]
    where: tuple[Typed, ...]
    tensors: tuple[TensorDeclaration, ...]
    draws: tuple[Draw, ...]
    cost: CostDeclaration
    scope: Scope
    """Axes and lets with their types."""

    @property
    def roles(self) -> frozenset[str]:
        return frozenset([one.role for one in self.axes] + [one.role for one in self.tensors]) - {""}
