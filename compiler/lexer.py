"""Text to tokens.

The lexer never fails: what no terminal matches becomes a token of a kind of its own (`BAD_…`), which the parser
reports.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from d2k.compiler.tables import Tables, tables

BAD_STRING = "BAD_STRING"
"""A string that does not end on its line."""
BAD_BLOCK = "BAD_BLOCK"
"""A block string that does not end in its file."""
BAD_QUOTES = "BAD_QUOTES"
"""A string in single or typographic quotes."""
BAD_NUMBER = "BAD_NUMBER"
"""A number glued to something that is no unit: `2x`, `1.`, `1.2.3`, `.5`."""
BAD_WORD = "BAD_WORD"
"""A word with letters outside ASCII."""
BAD_CHARACTER = "BAD_CHARACTER"
"""Anything else, a run of one repeated character at a time."""

# Tried after the grammar's terminals, in this order.
_BAD_PATTERNS = (
    (BAD_BLOCK, r'"""[\s\S]*'),
    (BAD_STRING, r'"[^\n]*'),
    (BAD_QUOTES, r"'[^'\n]*'|[\u201c\u201d][^\u201c\u201d\n]*[\u201c\u201d]"),
    (BAD_NUMBER, r"[0-9](?:[0-9A-Za-z_%]|\.(?=[0-9])|(?<=[eE])[+-])*\.?"),
    (BAD_WORD, r"[^\W\d]\w*"),
    (BAD_CHARACTER, r"(?P<same>[\s\S])(?P=same)*"),
)


class Tokens(msgspec.Struct):
    """Three parallel lists, the cheapest form in Python; the last token is `$END`. Kinds are `Lexicon` numbers."""

    kinds: list[int]
    starts: list[int]
    ends: list[int]
    comments: list[tuple[int, int]]


class Lexicon:
    """The kinds of tokens, numbered as in the tables; `BAD_…` kinds have the numbers behind."""

    def __init__(self, source: Tables) -> None:
        self.names: tuple[str, ...] = source.symbols + tuple(name for name, _ in _BAD_PATTERNS)
        self.number: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        self.words: dict[str, int] = {word: self.number[name] for word, name in source.words.items()}
        patterns = (*source.patterns, *_BAD_PATTERNS)
        self.pattern = re.compile("|".join(f"(?P<{name}>{regex})" for name, regex in patterns))
        self.kind_of_group: dict[int, int] = {
            self.pattern.groupindex[name]: self.number[name] for name, _ in patterns if not name.startswith("__IGNORE")
        }


@cache
def lexicon() -> Lexicon:
    return Lexicon(tables())


def tokenize(text: str) -> Tokens:
    """Split a text; time and memory are linear in its length."""
    known = lexicon()
    words, kind_of_group = known.words, known.kind_of_group
    name, comment, bad_word, end = (known.number[one] for one in ("NAME", "COMMENT", BAD_WORD, "$END"))
    kinds: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    comments: list[tuple[int, int]] = []
    for match in known.pattern.finditer(text):
        kind = kind_of_group.get(match.lastindex or 0)
        if kind is None:
            continue
        start, stop = match.span()
        if kind == name:
            kind = words.get(match.group(), name)
        elif kind == comment:
            comments.append((start, stop))
            continue
        elif kind == bad_word and ends and ends[-1] == start and text[starts[-1]].isidentifier():
            # `größe` begins like a name; report the whole word
            start = starts.pop()
            kinds.pop()
            ends.pop()
        kinds.append(kind)
        starts.append(start)
        ends.append(stop)
    kinds.append(end)
    starts.append(len(text))
    ends.append(len(text))
    return Tokens(kinds, starts, ends, comments)
