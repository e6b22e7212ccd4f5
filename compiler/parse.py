"""Text to syntax tree: a table-driven LALR(1) parser.

It runs on the tables that lark computed (`tables.py`) with stacks of its own, because that gives every node an exact
span, bounds the depth of the tree whatever the input, and lets `recover` repair the stacks after an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from d2k.compiler.automaton import automaton
from d2k.compiler.build import Builder
from d2k.compiler.diagnostics import Diagnostic, diagnostic
from d2k.compiler.lexer import tokenize
from d2k.compiler.recover import Recovery
from d2k.compiler.source import Source, Span, read
from d2k.compiler.structure import structure_errors
from d2k.compiler.syntax import Comment, File
from d2k.compiler.tables import tables
from d2k.compiler.workbench import Stacks

MAX_DEPTH = 100
"""Deepest nesting of an expression or a check. What walks the tree recursively relies on it."""


MAX_STACK = 500
"""Longest stack of the parser. Brackets and prefix operators that are not closed yet pile up there."""


class Parsed(msgspec.Struct, frozen=True):
    """A file as it was read.

    `tree` holds every statement that could be read; it is whole if `diagnostics` has no error. `lost` are the words of
    the statements that could not be read: a name among them may be declared there, so that it should not be called
    unknown.
    """

    source: Source
    tree: File
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[Comment, ...]
    lost: frozenset[str]


_EXPRESSION = ("expr", "disjunct", "conjunct", "negated", "comparison", "sum", "product", "unary", "power", "postfix")
_ARGUMENTS = ("atom", "call_arguments", "arguments", "argument", "expressions")
_CHECK = ("check", "conjunction", "guard", "term", "filters", "filter", "filter_values", "filter_value")
_NESTING = frozenset((*_EXPRESSION, *_ARGUMENTS, *_CHECK))
"""Nonterminals whose nodes may contain each other."""


class _Action(msgspec.Struct, frozen=True):
    """A rule, prepared for the loop. `kind` is one of the numbers below; `nests` says whether its node counts for the
    depth.
    """

    kind: int
    length: int
    origin: int
    name: str
    only: int
    plan: tuple[int | None, ...]
    nests: bool


_PASS, _GATHER, _BUILD = range(3)


@cache
def _actions() -> tuple[_Action, ...]:
    actions = []
    names = tables().symbols
    for rule in automaton().rules:
        kind = _PASS if rule.action == "" else _GATHER if rule.action.startswith("_") else _BUILD
        only = rule.plan[0] if kind == _PASS else None
        nests = names[rule.origin] in _NESTING
        actions.append(_Action(kind, rule.length, rule.origin, rule.action, only or 0, rule.plan, nests))
    return tuple(actions)


def parse(text: str, path: str) -> Parsed:
    """Parse a whole file. Never raises; every mistake is a diagnostic, in the order of the text."""
    return parse_source(Source.from_text(path, text))


def parse_bytes(data: bytes, path: str) -> Parsed:
    """Parse what a file contains, text or not."""
    return parse_source(read(path, data))


def parse_source(source: Source) -> Parsed:
    if source.fault is not None:
        fault = source.fault
        refusal = diagnostic(fault.code, Span(fault.offset, fault.offset + 1, source), **fault.details)
        return Parsed(source, File(Span(0, 0, source), ()), (refusal,), (), frozenset())
    tokens = tokenize(source.text)
    builder = Builder(source, tokens)
    stacks = Stacks.empty(automaton().start)
    recovery = Recovery(source, tokens, stacks, builder.diagnostics)
    tree = _run(builder, stacks, recovery)
    comments = tuple(Comment(Span(start, end, source)) for start, end in tokens.comments)
    if not recovery.gave_up:
        builder.diagnostics.extend(structure_errors(tree, empty=len(tokens.kinds) == 1))
    diagnostics = sorted(builder.diagnostics, key=lambda one: one.span.start)
    return Parsed(source, tree, tuple(diagnostics), comments, frozenset(recovery.lost))


def _run(builder: Builder, stacks: Stacks, recovery: Recovery) -> File:
    """The loop: shift, reduce, or have the error repaired. Runs in linear time and without recursion."""
    machine, tokens = automaton(), builder.tokens
    moves, end_state, end_kind = machine.moves, machine.end, machine.end_kind
    actions = _actions()
    methods: list[Callable[..., Any] | None] = [
        getattr(builder, action.name) if action.kind == _BUILD else None for action in actions
    ]
    kinds, token_starts, token_ends = tokens.kinds, tokens.starts, tokens.ends
    states, values, starts, ends, depths = stacks.states, stacks.values, stacks.starts, stacks.ends, stacks.depths
    source = builder.source
    index = 0
    while True:
        move = moves[states[-1]].get(kinds[index])
        if move is None:
            index = recovery.repair(index)
            if recovery.gave_up:
                return builder.start(Span(0, 0, source), stacks.finished_statements())
            continue
        if move >= 0:
            if len(states) > MAX_STACK:
                index = recovery.too_deep(index)
                continue
            states.append(move)
            values.append(index)
            starts.append(token_starts[index])
            ends.append(token_ends[index])
            depths.append(1)
            index += 1
            continue
        action = actions[~move]
        kind, length = action.kind, action.length
        if length == 1:
            # the stacks of places keep their tops
            if kind == _GATHER:
                values[-1] = [values[-1]]
            elif kind == _BUILD:
                span = Span(starts[-1], ends[-1], source)
                method = methods[~move]
                assert method is not None
                if action.plan == (0,):
                    values[-1] = method(span, values[-1])
                else:
                    values[-1] = method(span, *_arguments(action.plan, values[-1:]))
            states[-1] = moves[states[-2]][action.origin]
        else:
            if length:
                start, end = starts[-length], ends[-1]
                parts = values[-length:]
                depth = max(depths[-length:])
                del states[-length:], values[-length:], starts[-length:], ends[-length:], depths[-length:]
            else:
                start = end = token_starts[index]
                parts = []
                depth = 0
            if kind == _PASS:
                value = parts[action.only]
            elif kind == _GATHER:
                value = _gather(action.plan, parts)
            else:
                if action.nests:
                    depth += len(parts[1]) // 2 if action.name == "chain_left" else 1
                else:
                    depth = 0
                method = methods[~move]
                assert method is not None
                value = method(Span(start, end, source), *_arguments(action.plan, parts))
                if depth > MAX_DEPTH:
                    index = recovery.too_deep(index)
                    continue
            states.append(moves[states[-1]][action.origin])
            values.append(value)
            starts.append(start)
            ends.append(end)
            depths.append(depth)
        if states[-1] == end_state and kinds[index] == end_kind:
            tree = values[-1]
            assert isinstance(tree, File)
            return tree


def _gather(plan: tuple[int | None, ...], parts: list[Any]) -> list[Any]:
    """A repetition: the list so far, which is extended in place so that long lists take linear time, and what
    follows.
    """
    gathered: list[Any] = []
    for place in plan:
        assert place is not None
        if place < 0:
            gathered = parts[~place]
        else:
            gathered.append(parts[place])
    return gathered


def _arguments(plan: tuple[int | None, ...], parts: list[Any]) -> list[Any]:
    return [None if place is None else parts[place if place >= 0 else ~place] for place in plan]
