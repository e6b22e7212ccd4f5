"""The syntax tree of a `.d2k` file: what was written and where, before any name is looked up.

Every node has a span. Statements keep their order; a block's statements are reached by kind with `first` and `every`.
Parentheses leave no node and lie outside the span of what they hold, though inside those of the nodes around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from d2k.compiler.source import Source, Span


class Node(msgspec.Struct, frozen=True):
    span: Span


NodeT = TypeVar("NodeT", bound=Node)


# ---- names and texts -------------------------------------------------------------------------------------------------


class Ident(Node, frozen=True):
    """A name that is declared or referred to."""

    name: str


class Dotted(Node, frozen=True):
    """`torch.nn.functional.linear`, `tensor.bf16`, `pm.epilogue_overlap`."""

    parts: tuple[Ident, ...]

    @property
    def name(self) -> str:
        return ".".join(part.name for part in self.parts)


class Text(Node, frozen=True):
    """A string or block string; `value` has escapes resolved, a block its common indentation removed."""

    value: str


class FileSymbol(Node, frozen=True):
    """`"reference.py" :: run`: a symbol of a Python file beside the `.d2k` file. Also an expression (a
    distribution).
    """

    file: Text
    symbol: Ident


# ---- expressions -----------------------------------------------------------------------------------------------------


class Name(Node, frozen=True):
    """A name used as a value."""

    name: str


class Integer(Node, frozen=True):
    value: int


class Real(Node, frozen=True):
    value: float


class Percent(Node, frozen=True):
    """`99.9%`; `value` is what is written before the sign (99.9)."""

    value: float


class Quantity(Node, frozen=True):
    """`64KiB`, `2.5us`; `value` is in `unit`, one of KiB MiB GiB us ms."""

    value: int | float
    unit: str


class Boolean(Node, frozen=True):
    value: bool


class String(Node, frozen=True):
    value: str


class ListOf(Node, frozen=True):
    """`[a, b]`."""

    elements: tuple[Expression, ...]


class Comprehension(Node, frozen=True):
    """`element for variable in iterable`, in brackets or as a call's only argument."""

    element: Expression
    variable: Ident
    iterable: Expression


class Argument(Node, frozen=True):
    """`name = value` or a positional `value` (then `name` is None)."""

    name: Ident | None
    value: Expression


class Call(Node, frozen=True):
    function: Ident
    arguments: tuple[Argument, ...]


class Index(Node, frozen=True):
    """`base[index]`."""

    base: Expression
    index: Expression


class Unary(Node, frozen=True):
    """`operator` is `-` or `not`."""

    operator: str
    operand: Expression


class Binary(Node, frozen=True):
    """`operator` is one of `+ - * / // % ** == != < <= > >= and or`."""

    operator: str
    left: Expression
    right: Expression


class Membership(Node, frozen=True):
    """`element in {a, b}`."""

    element: Expression
    members: tuple[Expression, ...]


class Has(Node, frozen=True):
    """`arch has tcgen05` or `arch has {tma, tcgen05}` (all of them)."""

    container: Expression
    members: tuple[Expression, ...]


class Conditional(Node, frozen=True):
    """`if condition then consequence else alternative`."""

    condition: Expression
    consequence: Expression
    alternative: Expression


Expression = (
    Name
    | Integer
    | Real
    | Percent
    | Quantity
    | Boolean
    | String
    | ListOf
    | Comprehension
    | Call
    | Index
    | Unary
    | Binary
    | Membership
    | Has
    | Conditional
    | FileSymbol
)


# ---- checks ----------------------------------------------------------------------------------------------------------


class Filter(Node, frozen=True):
    """`stages >= 3`, `policy in {a, b}`, `ops has {bias, gelu}`.

    `operator` is one of `= != < <= > >= in has`. A word among `values` is a `Name`: a member of an enumeration, a role
    or a pattern's parameter. `= != < …` have exactly one value; `has x` and `has {x}` are the same.
    """

    attribute: Ident
    operator: str
    values: tuple[Expression, ...]


class Term(Node, frozen=True):
    property: Ident
    filters: tuple[Filter, ...]


class AllOf(Node, frozen=True):
    """`a and b`, at least two parts."""

    parts: tuple[CheckNode, ...]


class AnyOf(Node, frozen=True):
    """`a or b`, at least two parts."""

    parts: tuple[CheckNode, ...]


class Negation(Node, frozen=True):
    """`not a`."""

    part: CheckNode


class Quantified(Node, frozen=True):
    """`all_kernels:(…)`."""

    quantifier: Ident
    part: CheckNode


CheckNode = Term | AllOf | AnyOf | Negation | Quantified


# ---- the file --------------------------------------------------------------------------------------------------------


class Version(Node, frozen=True):
    """`d2k 1`."""

    number: Integer


class Use(Node, frozen=True):
    """`use guidance.pipelined_mma as pm`; without `as` the last part is the name."""

    module: Dotted
    alias: Ident | None


class Function(Node, frozen=True):
    """`fn tri(n) = n * (n + 1) // 2`."""

    name: Ident
    parameters: tuple[Ident, ...]
    body: Expression


class Title(Node, frozen=True):
    text: Text


# ---- vocabulary ------------------------------------------------------------------------------------------------------


class Definition(Node, frozen=True):
    text: Text


class Scope(Node, frozen=True):
    """`scope kernel` or `scope program`."""

    scope: Ident


class Needs(Node, frozen=True):
    """`needs tma, tcgen05`: hardware features."""

    features: tuple[Ident, ...]


class SettledBy(Node, frozen=True):
    """`settled by source, ptx`: tiers of evidence."""

    tiers: tuple[Ident, ...]


class AttributeType(Node, frozen=True):
    """`int bool str role{…} enum{…} set{…}`; `members` is None without braces."""

    kind: Ident
    members: tuple[Ident, ...] | None


class Attribute(Node, frozen=True):
    """`attr stages : int "buffers in flight"`."""

    name: Ident
    type: AttributeType
    definition: Text | None


class Implies(Node, frozen=True):
    term: Term


class Excludes(Node, frozen=True):
    properties: tuple[Ident, ...]


class Alias(Node, frozen=True):
    texts: tuple[Text, ...]


class Evidence(Node, frozen=True):
    """`evidence triton "…"`: what shows the property in one language."""

    language: Ident
    text: Text


PropertyStatement = Title | Definition | Scope | Needs | SettledBy | Attribute | Implies | Excludes | Alias | Evidence


class Block(Node, frozen=True):
    """A node with statements between braces."""

    statements: tuple[Node, ...]

    def every(self, kind: type[NodeT]) -> tuple[NodeT, ...]:
        """The statements of one kind, in order."""
        return tuple(statement for statement in self.statements if isinstance(statement, kind))

    def first(self, kind: type[NodeT]) -> NodeT | None:
        """The first statement of a kind. Where a kind may stand only once, the parser reports the others."""
        return next((statement for statement in self.statements if isinstance(statement, kind)), None)


class Property(Block, frozen=True):
    """`property NAME LEVEL { … }`; statements are `PropertyStatement`s; `level` is `L1`, `L2` or `L3`."""

    name: Ident
    level: Ident


# ---- guidance --------------------------------------------------------------------------------------------------------


class Why(Node, frozen=True):
    text: Text


class Hint(Node, frozen=True):
    text: Text


class SourceNote(Node, frozen=True):
    """`source "…"`: where the advice comes from."""

    text: Text


class Requires(Node, frozen=True):
    items: tuple[Ident, ...]


class When(Node, frozen=True):
    """An expression over hardware (`arch has tcgen05`, `arch >= sm90`) and workload axes."""

    condition: Expression


class Given(Node, frozen=True):
    """The item applies only where this check does not fail."""

    check: CheckNode


class Check(Node, frozen=True):
    check: CheckNode


class Accept(Node, frozen=True):
    """Another design that earns full credit, and why it is equal."""

    check: CheckNode
    because: Text


class Weight(Node, frozen=True):
    value: Expression


class Free(Node, frozen=True):
    """The naive kernel earns this item."""


ItemStatement = Why | Hint | SourceNote | Requires | When | Given | Check | Accept | Weight | Free


class Item(Block, frozen=True):
    """`L2 tile "…" { … }`; statements are `ItemStatement`s; `level` is `L1`, `L2` or `L3`."""

    level: Ident
    name: Ident
    title: Text


class Include(Node, frozen=True):
    """`include pm.epilogue_overlap(after = fuse) as overlap`."""

    pattern: Dotted
    arguments: tuple[Argument, ...]
    alias: Ident | None


class Parameter(Node, frozen=True):
    """`after : item`, `stages : int = 2`."""

    name: Ident
    type: Ident
    default: Expression | None


class Pattern(Block, frozen=True):
    """`pattern NAME(param : item, stages : int = 2) { items }`; statements are `Item | Include`."""

    name: Ident
    parameters: tuple[Parameter, ...]


# ---- tasks -----------------------------------------------------------------------------------------------------------


class Summary(Node, frozen=True):
    text: Text


class Target(Node, frozen=True):
    architectures: tuple[Ident, ...]


class Axis(Node, frozen=True):
    """`M`, `lens : ints`, `V as vocab`; without a type an int."""

    name: Ident
    type: Ident | None
    role: Ident | None


class Axes(Node, frozen=True):
    axes: tuple[Axis, ...]


class Let(Node, frozen=True):
    name: Ident
    value: Expression


class Where(Node, frozen=True):
    condition: Expression


class TensorType(Node, frozen=True):
    """`bf16[M, K]`, `f32` (a scalar: `shape` is None), `f4e2m1[M, I] packed u8` (`container` is u8)."""

    element: Ident
    shape: tuple[Expression, ...] | None
    container: Ident | None


class Tensor(Node, frozen=True):
    """`input A : bf16[M, K] ~ normal() as activation moves M * K constant`.

    `kind` is input, output, inout or intermediate. `distribution` may be a `FileSymbol`.
    """

    kind: Ident
    name: Ident
    type: TensorType
    distribution: Expression | None
    role: Ident | None
    moves: Expression | None
    constant: bool


class Draw(Node, frozen=True):
    """`draw gu, gs ~ "data.py" :: make`: tensors drawn together."""

    tensors: tuple[Ident, ...]
    maker: FileSymbol


class Entry(Node, frozen=True):
    name: Ident


class Reference(Node, frozen=True):
    target: FileSymbol


class Baseline(Node, frozen=True):
    name: Ident
    target: FileSymbol


class Setting(Node, frozen=True):
    """`name = value` of a workload or a tolerance."""

    name: Ident
    value: Expression


class Override(Node, frozen=True):
    """`u ~ zeros()` of a workload: another distribution for one tensor."""

    tensor: Ident
    distribution: Expression


class Tolerance(Node, frozen=True):
    output: Ident
    settings: tuple[Setting, ...]
    because: Text | None


class Compare(Node, frozen=True):
    """`compare sf, codes with "reference.py" :: accept because "…"`."""

    outputs: tuple[Ident, ...]
    judge: FileSymbol
    because: Text | None


class CostLine(Node, frozen=True):
    """`kind` is flops, bytes, flops_min or bytes_min; `engine` follows `on`."""

    kind: Ident
    value: Expression
    engine: Dotted | None


class Cost(Node, frozen=True):
    lines: tuple[CostLine, ...]


class Forbid(Node, frozen=True):
    callees: tuple[Dotted, ...]


class Workload(Node, frozen=True):
    name: Ident
    tags: tuple[Ident, ...]
    settings: tuple[Setting | Override, ...]
    origin: Text | None


class Guidance(Block, frozen=True):
    """Statements are `Item | Include`."""


TaskStatement = (
    Title
    | Summary
    | Target
    | Axes
    | Let
    | Where
    | Tensor
    | Draw
    | Entry
    | Reference
    | Baseline
    | Tolerance
    | Compare
    | Cost
    | Forbid
    | Workload
    | Guidance
)


class Task(Block, frozen=True):
    """`task NAME { … }`; statements are `TaskStatement`s."""

    name: Ident


class File(Block, frozen=True):
    """A whole file; statements are `Version | Use | Function | Property | Pattern | Task`."""


# ---- walking ---------------------------------------------------------------------------------------------------------


class Comment(msgspec.Struct, frozen=True):
    """A `#` comment with its sign, up to the line's end."""

    span: Span

    @property
    def text(self) -> str:
        return self.span.text.rstrip()


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, in the order of the fields."""
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from value


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, parents first, in source order within a field; not recursive."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(tuple(children(current))))


_NOWHERE = Span(0, 0, Source("", ""))


def without_spans(node: NodeT) -> NodeT:
    """A copy whose spans are all equal, so that two trees compare by what they say."""
    changes: dict[str, object] = {"span": _NOWHERE}
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, Node):
            changes[name] = without_spans(value)
        elif isinstance(value, tuple):
            changes[name] = tuple(without_spans(one) for one in value)
    return msgspec.structs.replace(node, **changes)
