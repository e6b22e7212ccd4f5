"""Text to syntax tree: a table-driven LALR(1) parser.

It runs on the tables that lark computed (`tables.py`) with stacks of its own, because that gives every node an exact span,
bounds the depth of the tree whatever the input, and lets `recover` repair the stacks after an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from d2k.compiler.build import Builder
from d2k.compiler.diagnostics import Diagnostic, diagnostic
from d2k.compiler.lexer import lexicon, tokenize
from d2k.compiler.source import Source, Span
from d2k.compiler.syntax import Comment, File
from d2k.compiler.tables import Rule, tables


class Parsed(msgspec.Struct, frozen=True):
    """`tree` holds every statement that could be read; it is whole if `diagnostics` has no error."""

    source: Source
    tree: File
    diagnostics: tuple[Diagnostic, ...]
    comments: tuple[Comment, ...]


class Automaton:
    """The tables in the form that the inner loop wants: one dictionary a state."""

    def __init__(self) -> None:
        raw = tables()
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in raw.rows]
        self.moves: list[dict[int, int]] = [rows[row] for row in raw.row_of]
        self.rules: tuple[Rule, ...] = raw.rules
        self.start, self.end = raw.start, raw.end


@cache
def automaton() -> Automaton:
    return Automaton()


def parse(text: str, path: str) -> Parsed:
    """Parse a whole file. Never raises; every mistake is a diagnostic."""
    source = Source(path, text)
    tokens = tokenize(text)
    builder = Builder(source, tokens)
    machine = automaton()
    moves, rules = machine.moves, machine.rules
    actions: list[Callable[..., Any] | None] = [
        None if rule.action == "" or rule.action.startswith("_") else getattr(builder, rule.action) for rule in rules
    ]
    kinds, starts, ends = tokens.kinds, tokens.starts, tokens.ends
    states: list[int] = [machine.start]
    values: list[Any] = []
    froms: list[int] = []
    tos: list[int] = []
    index, kind, last = 0, kinds[0], len(kinds) - 1
    while True:
        move = moves[states[-1]].get(kind)
        if move is None:
            span = Span(starts[index], ends[index], source)
            builder.diagnostics.append(
                diagnostic(
                    "D2K0201",
                    span,
                    found=lexicon().names[kind],
                    expected=", ".join(lexicon().names[k] for k in moves[states[-1]]),
                )
            )
            break
        if move >= 0:
            states.append(move)
            values.append(index)
            froms.append(starts[index])
            tos.append(ends[index])
            index += 1
            kind = kinds[index]
            continue
        rule = rules[~move]
        length = rule.length
        if length:
            begin, finish = froms[-length], tos[-1]
            parts = values[-length:]
            del states[-length:], values[-length:], froms[-length:], tos[-length:]
        else:
            begin = finish = starts[index]
            parts = []
        action = rule.action
        if action == "":
            value = parts[rule.plan[0]]
        else:
            arguments: list[Any] = []
            for place in rule.plan:
                if place is None:
                    arguments.append(None)
                elif action[0] == "_":
                    if place < 0:
                        arguments = parts[~place]
                    else:
                        arguments.append(parts[place])
                else:
                    arguments.append(parts[place if place >= 0 else ~place])
            value = arguments if action[0] == "_" else actions[~move](Span(begin, finish, source), *arguments)
        states.append(moves[states[-1]][rule.origin])
        values.append(value)
        froms.append(begin)
        tos.append(finish)
        if index == last and states[-1] == machine.end:
            break
    tree = values[-1] if values and isinstance(values[-1], File) else File(Span(0, len(text), source), ())
    comments = tuple(Comment(Span(a, b, source)) for a, b in tokens.comments)
    return Parsed(source, tree, tuple(builder.diagnostics), comments)
