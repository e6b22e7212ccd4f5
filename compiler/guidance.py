"""The items of a task's guidance, with checks held against the vocabulary and conditions against the task's axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import msgspec

from d2k.compiler import syntax
from d2k.compiler.checks import CheckScope, CheckTyping, hardware_allows
from d2k.compiler.guidance_rules import Outline, check_free, check_graph, without_inner
from d2k.compiler.modules import Module
from d2k.compiler.patterns import Entry, Expansion
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

ARCH, SMS = "arch", "sms"
"""In a `when`: the target architecture, and the number of its reference device's multiprocessors."""

RESERVED = {ARCH, SMS, *ARCHITECTURES}
HARDWARE_TYPES: Mapping[str, Type] = {
    ARCH: Type.ARCHITECTURE,
    SMS: Type.INT,
    **dict.fromkeys(ARCHITECTURES, Type.ARCHITECTURE),
}


class ResolvedItem(msgspec.Struct, frozen=True):
    """An item without `applies`, which needs the workloads."""

    item: Item
    when: Typed | None
    span: Span


class GuidanceResolver:
    """Resolves the guidance of one task, or of one pattern for itself."""

    def __init__(self, typing: Typing, vocabulary: Vocabulary, words: CheckScope, scope: Scope) -> None:
        self._typing = typing
        self._problems = typing.problems
        self._checks = CheckTyping(self._problems, vocabulary)
        self._words = words
        self._scope = scope

    def guidance(self, block: syntax.Guidance, module: Module) -> tuple[ResolvedItem, ...]:
        """The items of a task; what is wrong with one of them or with all together is reported."""
        expansion = Expansion(self._typing)
        expansion.guidance(block, module)
        items, outlines = self._items(expansion.entries)
        check_graph(outlines, self._problems)
        check_free(tuple((one.item, one.span) for one in items), self._problems)
        return items

    def check_pattern(self, pattern: syntax.Pattern, module: Module) -> None:
        """Report what is wrong with a pattern whatever its arguments are."""
        expansion = Expansion(self._typing)
        expansion.pattern(pattern, module)
        self._items(expansion.entries)

    def _items(self, entries: list[Entry]) -> tuple[tuple[ResolvedItem, ...], tuple[Outline, ...]]:
        unique = {entry.id: entry for entry in reversed(entries)}  # of two with one id the first one counts
        first = [entry for entry in entries if unique[entry.id] is entry]
        outlines: dict[str, Outline] = {}
        for entry in first:
            with self._trail(entry):
                outlines[entry.id] = self._outline(entry)
        outlines = {name: without_inner(one, outlines) for name, one in outlines.items()}
        items: list[ResolvedItem] = []
        for entry in first:
            with self._trail(entry):
                item = self._item(entry, tuple(outlines[entry.id].required))
            if item is not None:
                items.append(item)
        return tuple(items), tuple(outlines.values())

    @contextmanager
    def _trail(self, entry: Entry) -> Iterator[None]:
        """Diagnostics within say through which includes an item came in."""
        with ExitStack() as stack:
            for note in reversed(entry.trail):
                assert note.span is not None
                stack.enter_context(self._problems.context(note.text, note.span))
            yield

    def _item(self, entry: Entry, required: tuple[str, ...]) -> ResolvedItem | None:
        node, level = entry.node, Level(entry.node.level.name)
        before = self._problems.errors
        words = msgspec.structs.replace(self._words, constants=entry.constants)
        scope = self._scope.child(HARDWARE_TYPES, entry.constants)
        when_node = node.first(syntax.When)
        when = self._typing.expression(when_node.condition, scope, (Type.BOOL,), "`when`") if when_node else None
        check_node, given_node = node.first(syntax.Check), node.first(syntax.Given)
        check: Check | None = None
        if check_node is None:
            self._problems.report(
                "D2K0326", node.name.span, absent=("check",), owner="item", name=entry.id, statement="check"
            )
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
            requires=required,
            why=_text(node.first(syntax.Why)),
            hint=_text(node.first(syntax.Hint)),
            source=_text(node.first(syntax.SourceNote)),
            when=when.text if when else "",
            given=given,
            accept=tuple(accept),
            weight=weight,
            free=node.first(syntax.Free) is not None,
        )
        return ResolvedItem(item, when, node.name.span)

    def _outline(self, entry: Entry) -> Outline:
        """What an item requires, and where it says so."""
        node = entry.node.first(syntax.Requires)
        found: dict[str, Span] = {}
        known = True
        for name in node.items if node else ():
            if name.name not in entry.names.ids:
                self._problems.report_unknown("D2K0401", name.span, name.name, entry.names.ids)
                known = False
                continue
            for identifier in entry.names.ids[name.name]:
                if identifier == entry.id:
                    self._problems.report("D2K0402", name.span, item=entry.id, name=name.name, how="which is itself")
                elif identifier in found:
                    self._problems.report("D2K0402", name.span, item=entry.id, name=name.name, how="twice")
                else:
                    found[identifier] = name.span
        return Outline(entry.id, Level(entry.node.level.name), entry.node.name.span, found, known)

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
