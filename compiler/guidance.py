"""The items of a task's guidance: patterns expanded, references resolved, rules of the graph held."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise

import msgspec

from d2k.compiler import syntax
from d2k.compiler.checks import CheckScope, CheckTyping, hardware_allows
from d2k.compiler.diagnostics import Note, diagnostic
from d2k.compiler.guidance_graph import (
    GuidanceGraph,
    cycle,
    downward_edges,
    redundant_edges,
    without_insight,
    without_realisation,
)
from d2k.compiler.modules import DEPTH_LIMIT, Module
from d2k.compiler.source import Span
from d2k.compiler.text import prose
from d2k.compiler.types import Scope, Typed, Typing
from d2k.compiler.workloads import workload_values
from d2k.spec.check import Check
from d2k.spec.evaluator import Evaluated
from d2k.spec.expression import Type
from d2k.spec.guidance import Accepted, Item
from d2k.spec.hardware import ARCHITECTURES
from d2k.spec.task import Workload
from d2k.spec.vocabulary import Level, Vocabulary

ITEM_LIMIT = 1000
FREE_SHARE = 0.30
ARCH, SMS = "arch", "sms"
"""In a `when`: the target architecture, and the number of its reference device's multiprocessors."""

RESERVED = {ARCH, SMS, *ARCHITECTURES}
HARDWARE_TYPES: Mapping[str, Type] = {
    ARCH: Type.ARCHITECTURE,
    SMS: Type.INT,
    **dict.fromkeys(ARCHITECTURES, Type.ARCHITECTURE),
}


class ResolvedItem(msgspec.Struct, frozen=True):
    """An item without `applies`, which needs the workloads. `required` are the places of its requirements."""

    item: Item
    when: Typed | None
    span: Span
    required: Mapping[str, Span]
    trail: tuple[Note, ...]


class _Names:
    """What an id means inside one block: its own items, its includes (all their items), a pattern's item parameters."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {}
        self.spans: dict[str, Span] = {}


class _Entry(msgspec.Struct, frozen=True):
    """An item where it was written, with what it sees there."""

    id: str
    node: syntax.Item
    names: _Names
    constants: Mapping[str, int]
    trail: tuple[Note, ...]


class GuidanceResolver:
    """Resolves the guidance of one task, or of one pattern for itself."""

    def __init__(self, typing: Typing, vocabulary: Vocabulary, words: CheckScope, scope: Scope) -> None:
        self._typing = typing
        self._problems = typing.problems
        self._checks = CheckTyping(self._problems, vocabulary)
        self._words = words
        self._scope = scope
        self._entries: list[_Entry] = []

    def guidance(self, block: syntax.Guidance, module: Module) -> tuple[ResolvedItem, ...]:
        self._expand(block, module, "", _Names(), {}, (), ())
        return self._finish()

    def pattern(self, pattern: syntax.Pattern, module: Module) -> tuple[ResolvedItem, ...]:
        """The items of a pattern that nobody includes: its parameters stand for themselves."""
        names = _Names()
        constants: dict[str, int] = {}
        for parameter in pattern.parameters:
            if parameter.type.name == "item":
                names.ids[parameter.name.name] = []
            else:
                constants[parameter.name.name] = self._default(parameter, module) or 2
        self._expand(pattern, module, "", names, constants, (), (pattern.name.name,))
        return self._finish()

    def _default(self, parameter: syntax.Parameter, module: Module) -> int | None:
        if parameter.type.name not in ("item", "int"):
            self._problems.report_unknown(
                "D2K0508", parameter.type.span, parameter.type.name, ("item", "int"), kind="parameter"
            )
            return None
        return None if parameter.default is None else self._constant(parameter.default, {})

    # ---- expansion ---------------------------------------------------------------------------------------------------

    def _expand(
        self,
        block: syntax.Block,
        module: Module,
        prefix: str,
        names: _Names,
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
            if len(self._entries) >= ITEM_LIMIT:
                self._problems.report("D2K0319", node.span, problem=f"more than {ITEM_LIMIT} items of guidance")
                break
            if isinstance(node, syntax.Item):
                self._entries.append(_Entry(prefix + node.name.name, node, names, constants, trail))
                found.append(prefix + node.name.name)
            elif isinstance(node, syntax.Include):
                name, ids = pending[id(node)]
                ids.extend(self._include(node, f"{prefix}{name.name}.", module, names, constants, trail, stack))
                found.extend(ids)
        return found

    def _declare(self, names: _Names, name: syntax.Ident, ids: list[str]) -> None:
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
        names: _Names,
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
        inner = _Names()
        arguments = self._arguments(node, pattern, home, names, inner, constants)
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
        home: Module,
        outer: _Names,
        inner: _Names,
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
                number = self._constant(value, constants) if value is not None else self._default(parameter, home)
                if number is not None:
                    values[name] = number
        return values if self._problems.errors == before else None

    def _item_argument(self, value: syntax.Expression, name: str, outer: _Names, inner: _Names) -> None:
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

    # ---- items -------------------------------------------------------------------------------------------------------

    def _finish(self) -> tuple[ResolvedItem, ...]:
        found = []
        seen: set[str] = set()
        for entry in self._entries:
            if entry.id in seen:
                continue
            seen.add(entry.id)
            with ExitStack() as stack:
                for note in reversed(entry.trail):
                    assert note.span is not None
                    stack.enter_context(self._problems.context(note.text, note.span))
                item = self._item(entry)
            if item is not None:
                found.append(item)
        return tuple(found)

    def _item(self, entry: _Entry) -> ResolvedItem | None:
        node, level = entry.node, Level(entry.node.level.name)
        before = self._problems.errors
        words = msgspec.structs.replace(self._words, constants=entry.constants)
        required = self._required(entry)
        scope = self._scope.child(HARDWARE_TYPES, entry.constants)
        when_node = node.first(syntax.When)
        when = self._typing.expression(when_node.condition, scope, (Type.BOOL,), "`when`") if when_node else None
        check_node, given_node = node.first(syntax.Check), node.first(syntax.Given)
        check: Check | None = None
        if check_node is None:
            self._problems.report("D2K0326", node.name.span, owner="item", name=entry.id, statement="check")
        else:
            check = self._checks.wanted(check_node.check, words, level)
        given = self._checks.condition(given_node.check, words) if given_node else None
        accept = []
        for one in node.every(syntax.Accept):
            accepted = self._checks.wanted(one.check, words, None)
            if accepted is not None:
                accept.append(Accepted(accepted, one.because.value))
        weight = self._weight(node, entry.constants)
        if check is None or self._problems.errors > before:
            return None
        item = Item(
            id=entry.id,
            level=level,
            title=node.title.value,
            check=check,
            requires=tuple(required),
            why=_text(node.first(syntax.Why)),
            hint=_text(node.first(syntax.Hint)),
            source=_text(node.first(syntax.SourceNote)),
            when=when.text if when else "",
            given=given,
            accept=tuple(accept),
            weight=weight,
            free=node.first(syntax.Free) is not None,
        )
        return ResolvedItem(item, when, node.name.span, required, entry.trail)

    def _required(self, entry: _Entry) -> dict[str, Span]:
        """The ids that an item requires with their places."""
        node = entry.node.first(syntax.Requires)
        found: dict[str, Span] = {}
        for name in node.items if node else ():
            if name.name not in entry.names.ids:
                self._problems.report_unknown("D2K0401", name.span, name.name, entry.names.ids)
                continue
            for identifier in entry.names.ids[name.name]:
                if identifier == entry.id:
                    self._problems.report("D2K0402", name.span, item=entry.id, name=name.name, how="which is itself")
                elif identifier in found:
                    self._problems.report("D2K0402", name.span, item=entry.id, name=name.name, how="twice")
                else:
                    found[identifier] = name.span
        return found

    def _weight(self, node: syntax.Item, constants: Mapping[str, int]) -> float:
        weight = node.first(syntax.Weight)
        if weight is None:
            return 1.0
        typed = self._typing.expression(weight.value, Scope({}, constants), (Type.FLOAT,), "a weight")
        value = None if typed is None else self._typing.evaluated(typed, {}, "")
        if isinstance(value, int | float) and value <= 0:
            self._problems.report("D2K0404", weight.value.span)
        return float(value) if isinstance(value, int | float) else 1.0


def _text(node: syntax.Why | syntax.Hint | syntax.SourceNote | None) -> str:
    return prose(node.text.value) if node else ""


# ---- rules of the graph ----------------------------------------------------------------------------------------------


def check_graph(items: tuple[ResolvedItem, ...], typing: Typing) -> None:
    """Report what is wrong with the requirements as a whole."""
    problems, by_id = typing.problems, {one.item.id: one for one in items}
    # A requirement on an item that was itself wrong is passed over.
    requires = {name: tuple(other for other in one.item.requires if other in by_id) for name, one in by_id.items()}
    graph = GuidanceGraph({name: one.item.level for name, one in by_id.items()}, requires)
    circle = cycle(graph)
    if circle is not None:
        first = by_id[circle[0]]
        notes = [Note(f"`{one}` requires `{other}`", by_id[one].required[other]) for one, other in pairwise(circle)]
        told = diagnostic("D2K0407", first.span, path=" -> ".join(circle))
        problems.add(msgspec.structs.replace(told, notes=tuple(notes)))
        return
    for name, other in downward_edges(graph):
        one, lower = by_id[name], by_id[other]
        problems.report(
            "D2K0406", one.required[other], item=name, level=one.item.level, name=other, lower=lower.item.level
        )
    for name in without_insight(graph):
        one = by_id[name]
        if all(other in by_id for other in one.item.requires):
            problems.report("D2K0403", one.span, item=name, level=one.item.level)
    for name in without_realisation(graph):
        problems.report("D2K0409", by_id[name].span, item=name)
    for edge in redundant_edges(graph):
        span = by_id[edge.item].required[edge.required]
        problems.report("D2K0408", span, name=edge.required, through=edge.through)
    for level in Level:
        _check_free(level, [one for one in items if one.item.level is level], typing)


def _check_free(level: Level, items: list[ResolvedItem], typing: Typing) -> None:
    free = [one for one in items if one.item.free]
    share = sum(one.item.weight for one in free) / sum(one.item.weight for one in items) if free else 0.0
    if share > FREE_SHARE + 1e-9:
        names = ", ".join(one.item.id for one in free)
        typing.problems.report("D2K0411", free[0].span, share=f"{share:.0%}", level=level, items=names)


# ---- where items apply -----------------------------------------------------------------------------------------------


def with_applies(
    items: tuple[ResolvedItem, ...],
    target: tuple[str, ...],
    workloads: tuple[Workload, ...],
    typing: Typing,
    vocabulary: Vocabulary,
) -> tuple[Item, ...]:
    """The items with `applies` filled in for each target: workloads on which the hardware allows the check or an
    accepted design, and `when` holds."""
    found = []
    for one in items:
        applies = {arch: _applies(one, arch, workloads, typing, vocabulary) for arch in target}
        if workloads and not any(applies.values()):
            typing.problems.report("D2K0410", one.span, item=one.item.id)
        found.append(msgspec.structs.replace(one.item, applies=applies))
    return tuple(found)


def _applies(
    one: ResolvedItem, arch: str, workloads: tuple[Workload, ...], typing: Typing, vocabulary: Vocabulary
) -> tuple[str, ...]:
    designs = (one.item.check, *(accepted.check for accepted in one.item.accept))
    if not any(hardware_allows(check, arch, vocabulary) for check in designs):
        return ()
    if one.when is None:
        return tuple(workload.name for workload in workloads)
    known: dict[str, Evaluated] = {**ARCHITECTURES, ARCH: ARCHITECTURES[arch], SMS: ARCHITECTURES[arch].sms}
    return tuple(
        workload.name
        for workload in workloads
        if typing.evaluated(one.when, {**workload_values(workload), **known}, workload.name) is True
    )
