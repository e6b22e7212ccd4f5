"""Patterns put in the place of their `include`s, so that guidance is one list of items with ids of their own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from d2k.compiler import syntax
from d2k.compiler.diagnostics import Note
from d2k.compiler.modules import DEPTH_LIMIT, Module
from d2k.compiler.source import Span
from d2k.compiler.types import Scope, Typing
from d2k.spec.expression import Type

ITEM_LIMIT = 1000
PARAMETER_TYPES = ("item", "int")


class Names:
    """What an id means inside one block: its own items, its includes (all their items), a pattern's item parameters."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {}
        self.spans: dict[str, Span] = {}


class Entry(msgspec.Struct, frozen=True):
    """An item where it was written, with what it sees there. `trail` leads from the pattern to the task."""

    id: str
    node: syntax.Item
    names: Names
    constants: Mapping[str, int]
    trail: tuple[Note, ...]


class Expansion:
    """Gathers the items of guidance and of the patterns that it includes."""

    def __init__(self, typing: Typing) -> None:
        self.entries: list[Entry] = []
        self._typing = typing
        self._problems = typing.problems

    def guidance(self, block: syntax.Guidance, module: Module) -> None:
        """The items of a task."""
        self._expand(block, module, "", Names(), {}, (), ())

    def pattern(self, pattern: syntax.Pattern, module: Module) -> None:
        """The items of a pattern that nobody includes: integers without a default are 2, items stand for themselves."""
        names = Names()
        constants: dict[str, int] = {}
        for parameter in pattern.parameters:
            if parameter.type.name == "item":
                names.ids[parameter.name.name] = []
            else:
                constants[parameter.name.name] = self._default(parameter) or 2
        self._expand(pattern, module, "", names, constants, (), (f"{module.path}:{pattern.name.name}",))

    def _default(self, parameter: syntax.Parameter) -> int | None:
        if parameter.type.name not in PARAMETER_TYPES:
            name = parameter.type
            self._problems.report_unknown("D2K0508", name.span, name.name, PARAMETER_TYPES, kind="parameter")
            return None
        return None if parameter.default is None else self._constant(parameter.default, {})

    def _expand(
        self,
        block: syntax.Block,
        module: Module,
        prefix: str,
        names: Names,
        constants: Mapping[str, int],
        trail: tuple[Note, ...],
        stack: tuple[str, ...],
    ) -> list[str]:
        """Gather the items of a block and of what it includes; their ids in order."""
        includes = []
        for node in block.statements:
            if isinstance(node, syntax.Item):
                self._declare(names, node.name, [prefix + node.name.name])
            elif isinstance(node, syntax.Include):
                name = node.alias or node.pattern.parts[-1]
                ids: list[str] = []
                self._declare(names, name, ids)
                includes.append((node, name, ids))
        found: list[str] = []
        pending = {id(node): (name, ids) for node, name, ids in includes}
        for node in block.statements:
            if len(self.entries) >= ITEM_LIMIT:
                self._problems.report("D2K0319", node.span, problem=f"more than {ITEM_LIMIT} items of guidance")
                break
            if isinstance(node, syntax.Item):
                self.entries.append(Entry(prefix + node.name.name, node, names, constants, trail))
                found.append(prefix + node.name.name)
            elif isinstance(node, syntax.Include):
                name, ids = pending[id(node)]
                ids.extend(self._include(node, f"{prefix}{name.name}.", module, names, constants, trail, stack))
                found.extend(ids)
        return found

    def _declare(self, names: Names, name: syntax.Ident, ids: list[str]) -> None:
        if name.name in names.ids:
            first = names.spans.get(name.name)
            note = Note("declared here first", first) if first else None
            self._problems.report("D2K0301", name.span, name=name.name, note=note)
            return
        names.ids[name.name] = ids
        names.spans[name.name] = name.span

    def _include(
        self,
        node: syntax.Include,
        prefix: str,
        module: Module,
        names: Names,
        constants: Mapping[str, int],
        trail: tuple[Note, ...],
        stack: tuple[str, ...],
    ) -> list[str]:
        found = self._pattern_of(node, module)
        if found is None:
            return []
        pattern, home = found
        key = f"{home.path}:{pattern.name.name}"
        if key in stack or len(stack) >= DEPTH_LIMIT:
            path = " -> ".join(one.rpartition(":")[2] for one in (*stack, key))
            self._problems.report("D2K0320", node.pattern.span, path=path)
            return []
        inner = Names()
        arguments = self._arguments(node, pattern, names, inner, constants)
        if arguments is None:
            return []
        note = Note(f"pattern `{pattern.name.name}` is included here", node.span)
        return self._expand(pattern, home, prefix, inner, arguments, (note, *trail), (*stack, key))

    def _pattern_of(self, node: syntax.Include, module: Module) -> tuple[syntax.Pattern, Module] | None:
        *path, last = node.pattern.parts
        home = module
        for part in path:
            if part.name not in home.uses:
                self._problems.report_unknown("D2K0308", part.span, part.name, home.uses, tried="the modules of `use`")
                return None
            home = home.uses[part.name]
        if last.name not in home.patterns:
            self._problems.report_unknown("D2K0310", last.span, last.name, home.patterns)
            return None
        return home.patterns[last.name], home

    def _arguments(
        self,
        node: syntax.Include,
        pattern: syntax.Pattern,
        outer: Names,
        inner: Names,
        constants: Mapping[str, int],
    ) -> dict[str, int] | None:
        """Integer parameters with their values; items go into `inner` under the parameter's name."""
        parameters = {one.name.name: one for one in pattern.parameters}
        given: dict[str, syntax.Expression] = {}
        before = self._problems.errors
        for place, argument in enumerate(node.arguments):
            name = argument.name.name if argument.name else ""
            if not name and place < len(pattern.parameters):
                name = pattern.parameters[place].name.name
            if name not in parameters:
                problem = f"pattern `{pattern.name.name}` has no parameter `{name}`" if name else "too many arguments"
                self._problems.report("D2K0319", argument.span, problem=problem)
            elif name in given:
                self._problems.report("D2K0319", argument.span, problem=f"`{name}` is given twice")
            else:
                given[name] = argument.value
        values: dict[str, int] = {}
        for name, parameter in parameters.items():
            value = given.get(name)
            if value is None and parameter.default is None:
                problem = f"pattern `{pattern.name.name}` lacks its argument `{name}`"
                self._problems.report("D2K0319", node.span, problem=problem)
            elif parameter.type.name == "item":
                if value is not None:
                    self._item_argument(value, name, outer, inner)
            else:
                number = self._constant(value, constants) if value is not None else self._default(parameter)
                if number is not None:
                    values[name] = number
        return values if self._problems.errors == before else None

    def _item_argument(self, value: syntax.Expression, name: str, outer: Names, inner: Names) -> None:
        if not isinstance(value, syntax.Name):
            self._problems.report("D2K0319", value.span, problem=f"`{name}` must be the id of an item")
        elif value.name not in outer.ids:
            self._problems.report_unknown("D2K0401", value.span, value.name, outer.ids)
        else:
            # The list is shared, since an include's items are known only once it has been expanded.
            inner.ids[name] = outer.ids[value.name]

    def _constant(self, node: syntax.Expression, constants: Mapping[str, int]) -> int | None:
        typed = self._typing.expression(node, Scope({}, constants), (Type.INT,), "this argument")
        value = None if typed is None else self._typing.evaluated(typed, {}, "")
        return value if isinstance(value, int) else None
