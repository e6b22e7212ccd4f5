"""Which statements belong in which block, read off the parse tables."""

from __future__ import annotations

from functools import cache, lru_cache

import msgspec

from d2k.compiler.automaton import automaton
from d2k.compiler.diagnostics import nearest
from d2k.compiler.lexer import lexicon


class Blocks(msgspec.Struct, frozen=True):
    """Which words begin a statement in which kind of block, as the tables have it."""

    statements: dict[str, frozenset[int]]
    anywhere: frozenset[int]
    """Words that begin a statement in some block."""
    heads: dict[int, str]
    """Words that open a block, and the name of that block."""


@cache
def blocks() -> Blocks:
    machine, number = automaton(), lexicon().number
    words = {*lexicon().words.values(), number["LEVEL"]}
    task = ("TASK", "NAME", "LBRACE")
    guidance = (*task, "GUIDANCE", "LBRACE")
    prefixes = {
        "file": (),
        "task": task,
        "property": ("PROPERTY", "NAME", "LEVEL", "LBRACE"),
        "pattern": ("PATTERN", "NAME", "LPAR", "RPAR", "LBRACE"),
        "guidance": guidance,
        "item": (*guidance, "LEVEL", "NAME", "STRING", "LBRACE"),
        "cost": (*task, "COST", "LBRACE"),
    }
    statements = {}
    for name, prefix in prefixes.items():
        states = [machine.start]
        for kind in prefix:
            machine.feed(states, number[kind])
        statements[name] = frozenset(words & machine.moves[states[-1]].keys())
    heads = {number[one.upper()]: one for one in ("task", "property", "pattern", "guidance", "cost")}
    heads |= {number["LEVEL"]: "item", number["WORKLOAD"]: "workload", number["TOLERANCE"]: "tolerance"}
    return Blocks(statements, frozenset().union(*statements.values()), heads)


@cache
def statement_words(block: str) -> tuple[str, ...]:
    numbers = blocks().statements.get(block, frozenset())
    return tuple(word for word, number in lexicon().words.items() if number in numbers)


@lru_cache(maxsize=4096)
def nearest_statement(word: str, block: str) -> str | None:
    return nearest(word, statement_words(block)) if len(word) <= 20 else None


WITH_ARTICLE = {
    "file": "a file",
    "task": "a task",
    "property": "a property",
    "pattern": "a pattern",
    "guidance": "`guidance`",
    "item": "an item",
    "cost": "`cost`",
    "workload": "a workload",
    "tolerance": "`tolerance`",
}
