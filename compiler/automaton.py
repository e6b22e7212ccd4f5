"""The LALR(1) automaton in the form that the parser's loop wants, and what-if questions about it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from d2k.compiler.lexer import lexicon
from d2k.compiler.tables import Rule, tables


class Automaton:
    """`moves[state][symbol]` is the next state, or `~rule` to reduce by."""

    def __init__(self) -> None:
        raw = tables()
        rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in raw.rows]
        self.moves: list[dict[int, int]] = [rows[row] for row in raw.row_of]
        self.rules: tuple[Rule, ...] = raw.rules
        self.start, self.end = raw.start, raw.end
        self.end_kind = lexicon().number["$END"]
        words = {~rule for rule, one in enumerate(self.rules) if one.action == "word"}
        self._name_states = {state for state, row in enumerate(self.moves) if row and set(row.values()) <= words}
        """States right behind a word that stands as a name."""

    def feed(self, states: list[int], kind: int) -> bool:
        """Advance a stack of states by one token, in place; False, and a spoilt stack, if the token does not fit."""
        while True:
            move = self.moves[states[-1]].get(kind)
            if move is None:
                return False
            if move >= 0:
                states.append(move)
                return True
            rule = self.rules[~move]
            if rule.length:
                del states[-rule.length :]
            states.append(self.moves[states[-1]][rule.origin])
            if kind == self.end_kind and states[-1] == self.end:
                return True

    def accepts(self, states: list[int], kinds: Iterable[int], keyword: int | None = None) -> bool:
        """Whether these tokens may follow, the one at position `keyword` as a keyword and not as a name.

        Nothing is asked of what comes behind `$END`.
        """
        trial = states.copy()
        for position, kind in enumerate(kinds):
            if not self.feed(trial, kind) or (position == keyword and trial[-1] in self._name_states):
                return False
            if kind == self.end_kind:
                break
        return True


@cache
def automaton() -> Automaton:
    return Automaton()
