"""What the files of a program declare, found by name: functions, classes, constants, aliases, enumerators."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from d2k.analyzers.cuda.parse import Converter, Items, error_spans, parse_tree
from d2k.analyzers.cuda.prepare import Include, Prepared, ascii_only, nothing_included, prepare
from d2k.analyzers.cuda.syntax import Class, Decl, Enum, Function, Node, Using
from d2k.spec.facts import Place

if TYPE_CHECKING:
    from d2k.analyzers.cuda.cpp_types import CType
    from d2k.analyzers.cuda.values import Thing


class Unit:
    """One file: its prepared text, its declarations, and the way from offsets back to places."""

    def __init__(
        self,
        path: str,
        text: str,
        target: str,
        include: Include = nothing_included,
        line_map: tuple[int, ...] | None = None,
    ) -> None:
        source = ascii_only(text)
        self.path = path
        self.includes: list[Unit] = []
        """The files that it includes, as far as they were given."""
        self.prepared: Prepared = prepare(source, target, include)
        tree = parse_tree(self.prepared.text)
        self.converter = Converter(self.prepared.text)
        self.items: Items = self.converter.unit(tree.root_node)
        self.errors: list[tuple[int, int]] = error_spans(tree.root_node) if tree.root_node.has_error else []
        self._tree = tree
        self._lines = [0]
        at = source.find("\n")
        while at >= 0:
            self._lines.append(at + 1)
            at = source.find("\n", at + 1)
        self._line_map = line_map
        self._places: dict[tuple[int, int], Place] = {}
        self._pragmas = sorted((m.at, m.name, m.text) for m in self.prepared.marks if m.name in ("unroll", "no_unroll"))
        self._pragma_starts = [at for at, _, _ in self._pragmas]

    def place(self, at: int, end: int = 0) -> Place:
        key = (at, end)
        place = self._places.get(key)
        if place is None:
            start = self.prepared.origin(max(at, 0))
            line = bisect_right(self._lines, start)
            column = start - self._lines[line - 1]
            last = line
            if end > at:
                last = max(line, bisect_right(self._lines, self.prepared.origin(end - 1)))
            place = self._places[key] = Place(self.path, self._line(line), self._line(last), column)
        return place

    def source_place(self, start: int, end: int) -> Place:
        """The place of a span of the source itself."""
        line = bisect_right(self._lines, start)
        last = max(line, bisect_right(self._lines, max(start, end - 1)))
        return Place(self.path, self._line(line), self._line(last), start - self._lines[line - 1])

    def _line(self, line: int) -> int:
        if self._line_map is None:
            return line
        return self._line_map[min(line, len(self._line_map)) - 1] if self._line_map else line

    def unroll_at(self, at: int) -> str | None:
        """The factor of the `#pragma unroll` right before offset `at`: "" is all, "1" none; None without a pragma."""
        index = bisect_right(self._pragma_starts, at) - 1
        if index < 0:
            return None
        start, name, factor = self._pragmas[index]
        if self.prepared.text[start:at].strip():
            return None
        return "1" if name == "no_unroll" else factor

    def marks(self, start: int, end: int) -> Iterator[tuple[str, str]]:
        """Attributes that were taken out of the text between two offsets, with their arguments."""
        for mark in self.prepared.marks:
            if start <= mark.at <= end:
                yield mark.name, mark.text

    def text(self, at: int, end: int) -> str:
        return self.prepared.text[at:end]


@dataclass(frozen=True, slots=True)
class FunctionRef:
    function: Function
    unit: Unit

    @property
    def key(self) -> tuple[str, int]:
        return self.unit.path, self.function.at


@dataclass(eq=False, slots=True)
class Members:
    """What a class declares, by name."""

    statics: dict[str, Decl] = field(default_factory=dict)
    aliases: dict[str, Using] = field(default_factory=dict)
    enumerators: dict[str, tuple[Enum, int]] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    methods: dict[str, list[Function]] = field(default_factory=dict)


class ClassRef:
    """A class of a file."""

    __slots__ = ("_members", "cls", "unit")

    def __init__(self, cls: Class, unit: Unit) -> None:
        self.cls = cls
        self.unit = unit
        self._members: Members | None = None

    @property
    def members(self) -> Members:
        if self._members is None:
            self._members = members = Members()
            cls = self.cls
            for decl in cls.fields:
                if "static" in decl.storage and decl.init is not None:
                    members.statics.setdefault(decl.name, decl)
            for using in cls.aliases:
                members.aliases.setdefault(using.name, using)
            for enum in cls.enums:
                for position, (label, _) in enumerate(enum.items):
                    members.enumerators.setdefault(label, (enum, position))
            for inner in cls.classes:
                if not inner.specialised:
                    members.classes.setdefault(inner.name, inner)
            for method in cls.methods:
                members.methods.setdefault(method.name, []).append(method)
        return self._members


@dataclass(eq=False, slots=True)
class ClassInstance:
    """A class with its template arguments. `size` is known only where every field's is."""

    ref: ClassRef
    args: dict[str, Thing]
    bases: tuple[ClassInstance, ...] = ()
    field_types: dict[str, CType] = field(default_factory=dict)
    statics: dict[str, Thing] = field(default_factory=dict)
    sized: int | None = None
    element: str | None = None
    """The element type, where all fields have the same: an aligned vector."""
    key: str = ""

    @property
    def name(self) -> str:
        return self.ref.cls.name

    @property
    def full_name(self) -> str:
        cls = self.ref.cls
        return f"{cls.scope}::{cls.name}" if cls.scope else cls.name

    def bits(self) -> int | None:
        return self.sized

    def methods(self, name: str) -> list[tuple[Function, ClassInstance]]:
        found = [(method, self) for method in self.ref.members.methods.get(name, ())]
        if found:
            return found
        for base in self.bases:
            found = base.methods(name)
            if found:
                return found
        return []


class Index:
    """Declarations of several files by their last name. Files are added in order; earlier ones win."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.functions: dict[str, list[FunctionRef]] = {}
        self.members: dict[tuple[str, str], list[FunctionRef]] = {}
        """Methods that are defined outside their class, by (class, method)."""
        self.classes: dict[str, list[ClassRef]] = {}
        self.variables: dict[str, list[tuple[str, Decl, Unit]]] = {}
        self.aliases: dict[str, list[tuple[str, Using, Unit]]] = {}
        self.enumerators: dict[str, list[tuple[Enum, int, Unit]]] = {}

    def add(self, unit: Unit) -> None:
        self.units.append(unit)
        items = unit.items
        for function in items.functions:
            ref = FunctionRef(function, unit)
            if function.owner:
                self.members.setdefault((function.owner.rsplit("::", 1)[-1], function.name), []).append(ref)
            self.functions.setdefault(function.name, []).append(ref)
        for cls in items.classes:
            self._class(cls, unit)
        for scope, decl in items.variables:
            if decl.name:
                self.variables.setdefault(decl.name, []).append((scope, decl, unit))
        for scope, using in items.aliases:
            self.aliases.setdefault(using.name, []).append((scope, using, unit))
        for enum in items.enums:
            self._enum(enum, unit)

    def _class(self, cls: Class, unit: Unit) -> None:
        self.classes.setdefault(cls.name.rsplit("::", 1)[-1], []).append(ClassRef(cls, unit))
        for enum in cls.enums:
            self._enum(enum, unit)
        for inner in cls.classes:
            self._class(inner, unit)

    def _enum(self, enum: Enum, unit: Unit) -> None:
        for position, (name, _) in enumerate(enum.items):
            self.enumerators.setdefault(name, []).append((enum, position, unit))

    def body(self, ref: FunctionRef) -> Node | None:
        return ref.unit.converter.body(ref.function)
