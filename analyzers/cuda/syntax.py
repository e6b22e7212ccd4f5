"""The syntax tree that the CUDA front end lowers from: a small C++, free of the parser's nodes.

Positions `at` and `end` are offsets into the prepared text (`prepare.Prepared`), which maps them back to the source.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Name(msgspec.Struct, frozen=True, gc=False):
    """`scope::name<targs>`; a leading `::` is dropped."""

    at: int
    name: str
    targs: tuple[Node, ...] | None = None
    scope: Name | None = None

    @property
    def dotted(self) -> str:
        """The name with its scopes, without template arguments: `cute::copy`."""
        return f"{self.scope.dotted}::{self.name}" if self.scope is not None else self.name


class Literal(msgspec.Struct, frozen=True, gc=False):
    """`dtype` is an element type, `str`, or "" for nullptr."""

    at: int
    value: bool | int | float | str | None
    dtype: str


class Unary(msgspec.Struct, frozen=True, gc=False):
    """`op`: + - ! ~ * & ++ -- and, after the operand, p++ p--."""

    at: int
    op: str
    operand: Node


class Binary(msgspec.Struct, frozen=True, gc=False):
    at: int
    op: str
    left: Node
    right: Node


class Assign(msgspec.Struct, frozen=True, gc=False):
    """`op` is the operator that combines with the old value, "" for plain assignment."""

    at: int
    op: str
    target: Node
    value: Node


class Ternary(msgspec.Struct, frozen=True, gc=False):
    at: int
    condition: Node
    yes: Node
    no: Node


class Call(msgspec.Struct, frozen=True, gc=False):
    """`launch` holds the values between `<<<` and `>>>`, None for an ordinary call."""

    at: int
    end: int
    callee: Node
    args: tuple[Node, ...]
    launch: tuple[Node, ...] | None = None


class Index(msgspec.Struct, frozen=True, gc=False):
    at: int
    base: Node
    args: tuple[Node, ...]


class Member(msgspec.Struct, frozen=True, gc=False):
    at: int
    base: Node
    name: str
    arrow: bool
    targs: tuple[Node, ...] | None = None


class Cast(msgspec.Struct, frozen=True, gc=False):
    """`style`: static (any value conversion) reinterpret const."""

    at: int
    type: TypeName
    value: Node
    style: str


class Lambda(msgspec.Struct, frozen=True, gc=False):
    """`by_value`: the default capture is `=`, or there is none."""

    at: int
    end: int
    params: tuple[Param, ...]
    body: Node
    by_value: bool
    tparams: tuple[TemplateParam, ...] = ()


class Init(msgspec.Struct, frozen=True, gc=False):
    """`{items}` or `T{items}`; designated members stand in `names`."""

    at: int
    items: tuple[Node, ...]
    type: TypeName | None = None
    names: tuple[str, ...] = ()


class SizeOf(msgspec.Struct, frozen=True, gc=False):
    at: int
    operand: Node


class Fold(msgspec.Struct, frozen=True, gc=False):
    """`(operand op ...)`, once for every element of the packs that the operand names."""

    at: int
    op: str
    operand: Node


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """An expression that is not lowered, with its parts: `new`, `throw`, requires, fold expressions, errors."""

    at: int
    text: str
    parts: tuple[Node, ...] = ()


class TypeName(msgspec.Struct, frozen=True, gc=False):
    """A type as written. `base` is None for `auto` and for decltype, whose operand stands in `of`."""

    at: int
    base: Name | None
    pointer: int = 0
    reference: bool = False
    const: bool = False
    dims: tuple[Node | None, ...] = ()
    of: Node | None = None
    volatile: bool = False
    restrict: bool = False
    pack: bool = False
    end: int = 0
    to_array: bool = False
    """A pointer (or reference) to an array, `T (*p)[n]`; else `dims` with a pointer are an array of pointers."""


class Param(msgspec.Struct, frozen=True, gc=False):
    at: int
    name: str
    type: TypeName
    default: Node | None = None


class TemplateParam(msgspec.Struct, frozen=True, gc=False):
    """`type` is None for `typename T` and template templates."""

    name: str
    type: TypeName | None
    default: Node | None = None
    pack: bool = False


class Decl(msgspec.Struct, frozen=True, gc=False):
    """One declared variable or field. `style`: how it is initialised: "" = ( {. `names`: a structured binding."""

    at: int
    end: int
    type: TypeName
    name: str
    init: Node | None
    style: str
    storage: frozenset[str]
    args: tuple[Node, ...] = ()
    names: tuple[str, ...] = ()


class Using(msgspec.Struct, frozen=True, gc=False):
    at: int
    name: str
    type: TypeName
    tparams: tuple[TemplateParam, ...] = ()


class Block(msgspec.Struct, frozen=True, gc=False):
    at: int
    items: tuple[Node, ...]


class If(msgspec.Struct, frozen=True, gc=False):
    at: int
    condition: Node
    then: Node
    other: Node | None
    constexpr: bool
    init: Node | None = None


class For(msgspec.Struct, frozen=True, gc=False):
    at: int
    end: int
    init: Node | None
    condition: Node | None
    update: Node | None
    body: Node


class RangeFor(msgspec.Struct, frozen=True, gc=False):
    at: int
    end: int
    decl: Decl
    over: Node
    body: Node


class While(msgspec.Struct, frozen=True, gc=False):
    """`after`: the condition is tested after the body (`do`)."""

    at: int
    end: int
    condition: Node
    body: Node
    after: bool


class Case(msgspec.Struct, frozen=True, gc=False):
    """`value` is None for default."""

    at: int
    value: Node | None
    items: tuple[Node, ...]


class Switch(msgspec.Struct, frozen=True, gc=False):
    at: int
    condition: Node
    cases: tuple[Case, ...]


class Return(msgspec.Struct, frozen=True, gc=False):
    at: int
    value: Node | None


class Jump(msgspec.Struct, frozen=True, gc=False):
    """`word`: break continue goto."""

    at: int
    word: str


class Asm(msgspec.Struct, frozen=True, gc=False):
    """Inline PTX; operands are (constraint, expression)."""

    at: int
    end: int
    text: str
    outputs: tuple[tuple[str, Node], ...]
    inputs: tuple[tuple[str, Node], ...]
    volatile: bool


class Function(msgspec.Struct, frozen=True, gc=False):
    """`words`: global device host static inline extern constexpr virtual. `scope`: namespaces and classes around it.

    `body` is None for a declaration. `inits` are a constructor's member initialisers.
    """

    at: int
    end: int
    name: str
    scope: str
    tparams: tuple[TemplateParam, ...]
    params: tuple[Param, ...]
    returns: TypeName | None
    words: frozenset[str]
    body: Node | None
    inits: tuple[tuple[str, tuple[Node, ...]], ...] = ()
    owner: str = ""


class Class(msgspec.Struct, frozen=True, gc=False):
    """A struct, class or union. `specialised` are the arguments of a (partial) specialisation."""

    at: int
    end: int
    name: str
    scope: str
    tparams: tuple[TemplateParam, ...]
    specialised: tuple[Node, ...] | None
    bases: tuple[TypeName, ...]
    fields: tuple[Decl, ...]
    methods: tuple[Function, ...]
    aliases: tuple[Using, ...]
    enums: tuple[Enum, ...]
    classes: tuple[Class, ...]
    align: Node | None = None
    union: bool = False


class Enum(msgspec.Struct, frozen=True, gc=False):
    at: int
    name: str
    scope: str
    items: tuple[tuple[str, Node | None], ...]
    scoped: bool = False


Node: TypeAlias = (
    Name
    | Literal
    | Unary
    | Binary
    | Assign
    | Ternary
    | Call
    | Index
    | Member
    | Cast
    | Lambda
    | Init
    | SizeOf
    | Fold
    | Opaque
    | TypeName
    | Decl
    | Using
    | Block
    | If
    | For
    | RangeFor
    | While
    | Switch
    | Return
    | Jump
    | Asm
    | Class
    | Enum
)
