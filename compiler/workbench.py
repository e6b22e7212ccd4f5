"""The tools of error recovery: the parser's stacks, changes to the list of tokens, open blocks, and skipping.

What is wrong, and which tool to take, is decided in `recover`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from d2k.compiler.automaton import automaton
from d2k.compiler.blocks import blocks, nearest_statement
from d2k.compiler.diagnostics import Diagnostic
from d2k.compiler.lexer import Tokens, lexicon
from d2k.compiler.source import Source, Span
from d2k.compiler.syntax import Node

OPENERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}


class Stacks(msgspec.Struct):
    """The parser's stacks. `states` has one element more than the others; a value that is an `int` is a token's
    index.
    """

    states: list[int]
    values: list[Any]
    starts: list[int]
    ends: list[int]
    depths: list[int]

    @classmethod
    def empty(cls, start: int) -> Stacks:
        return cls([start], [], [], [], [])

    def cut(self, height: int) -> None:
        """Keep the lowest `height` values."""
        del self.states[height + 1 :], self.values[height:], self.starts[height:], self.ends[height:]
        del self.depths[height:]

    def finished_statements(self) -> list[Node]:
        """The statements of the file that are complete, for a parse that stops halfway."""
        return [one for one in self.values[0] if isinstance(one, Node)] if self._has_statements() else []

    def _has_statements(self) -> bool:
        return bool(self.values) and isinstance(self.values[0], list)


class Block(msgspec.Struct, frozen=True):
    """The innermost open block: its kind, the index of its `{` on the value stack and where its statement begins."""

    kind: str
    height: int
    brace: int
    head: int


class Workbench:
    def __init__(self, source: Source, tokens: Tokens, stacks: Stacks, diagnostics: list[Diagnostic]) -> None:
        self.source = source
        self.tokens = tokens
        self.stacks = stacks
        self.diagnostics = diagnostics
        self.lost: set[str] = set()
        self.gave_up = False
        self._errors = 0
        self._repairs = 0
        self._scanned = 0
        self._quiet_before = 0
        """Errors at tokens that begin before this offset follow from one that was reported."""
        self._misplaced: set[str] = set()
        """Blocks whose statements were found outside them; the next ones are no news."""
        self._indented = False
        """The file marks blocks by `:` and indentation, so that no brace will ever close them."""

    # ---- shorthands --------------------------------------------------------------------------------------------------

    def _kind(self, index: int) -> str:
        return lexicon().names[self.tokens.kinds[index]]

    def _start(self, index: int) -> int:
        return self.tokens.starts[index]

    def _text(self, index: int) -> str:
        return self.source.text[self.tokens.starts[index] : self.tokens.ends[index]]

    def _span(self, start: int, end: int) -> Span:
        return Span(start, end, self.source)

    def _token(self, index: int) -> Span:
        return self._span(self.tokens.starts[index], self.tokens.ends[index])

    def _behind(self, index: int) -> Span:
        """The empty place just behind the token before `index`."""
        end = self.tokens.ends[index - 1] if index else 0
        return self._span(end, end)

    def _place(self, index: int) -> Span:
        """Where something is missing: at the token found, or at the end of the line before if that is where it
        belongs.
        """
        return self._behind(index) if self._first_on_line(index) or self._kind(index) == "$END" else self._token(index)

    def _first_on_line(self, index: int) -> bool:
        return index == 0 or "\n" in self.source.text[self.tokens.ends[index - 1] : self.tokens.starts[index]]

    def _indent(self, index: int) -> int:
        """Column of the first character of the token's line, from 0."""
        line = self.source.line(self._token(index).line)
        return len(line) - len(line.lstrip())

    def _numbers(self, names: Iterable[str]) -> list[int]:
        return [lexicon().number[name] for name in names]

    def _fits(self, *names: str) -> bool:
        return automaton().accepts(self.stacks.states, self._numbers(names))

    def _fits_then(self, name: str, index: int, count: int) -> bool:
        """Whether the parser could go on with a sign or keyword `name` and then `count` tokens from `index`."""
        kinds = [lexicon().number[name], *self.tokens.kinds[index : index + count]]
        return automaton().accepts(self.stacks.states, kinds, keyword=None if name == "NAME" else 0)

    def _report(self, message: Diagnostic, index: int) -> None:
        """Add a message, unless the token at `index` lies where errors only follow from an earlier one."""
        if self._start(index) >= self._quiet_before:
            self.diagnostics.append(message)
            self._errors += 1

    def _quiet_to_next_line(self, index: int) -> None:
        """The rest of the token's last line was swallowed by it: nothing there, nor right after, is an error of its
        own.
        """
        tokens, text = self.tokens, self.source.text
        line_end = text.find("\n", tokens.ends[index])
        following = index + 1
        while following < len(tokens.kinds) - 1 and tokens.starts[following] < line_end:
            following += 1
        self._quiet_before = self._start(min(following, len(tokens.kinds) - 1)) + 1

    def _become(self, index: int, name: str) -> int:
        self.tokens.kinds[index] = lexicon().number[name]
        return index

    def _insert(self, index: int, name: str) -> int:
        end = self.tokens.ends[index - 1] if index else 0
        self.tokens.kinds.insert(index, lexicon().number[name])
        self.tokens.starts.insert(index, end)
        self.tokens.ends.insert(index, end)
        return index

    def _delete(self, index: int) -> int:
        del self.tokens.kinds[index], self.tokens.starts[index], self.tokens.ends[index]
        return index

    def _lose(self, start: int, end: int) -> None:
        """The words between these offsets belong to no statement of the tree."""
        first, last = bisect_left(self.tokens.starts, start), bisect_left(self.tokens.starts, end)
        texts = map(self._text, range(first, last))
        self.lost.update(text for text in texts if text.isidentifier())

    def _at_statement(self) -> bool:
        """Whether a new statement may begin here."""
        block = self._block()
        kinds = blocks().statements.get(block.kind if block else "file", frozenset())
        return any(automaton().accepts(self.stacks.states, [kind], keyword=0) for kind in kinds)

    # ---- the open blocks ---------------------------------------------------------------------------------------------

    def _block(self) -> Block | None:
        """The innermost block that is open; None at the top of the file."""
        values, kinds, heads = self.stacks.values, self.tokens.kinds, blocks().heads
        brace, close = lexicon().number["LBRACE"], lexicon().number["RBRACE"]
        closed = 0  # a block that is complete may still wait to be reduced
        for height in range(len(values) - 1, -1, -1):
            value = values[height]
            if not isinstance(value, int) or kinds[value] not in (brace, close):
                continue
            if kinds[value] == close or closed:
                closed += 1 if kinds[value] == close else -1
                continue
            if close not in automaton().moves[self.stacks.states[height + 1]]:
                continue  # a set: it may not be empty
            for lower in range(height - 1, -1, -1):
                head = values[lower]
                if isinstance(head, int) and kinds[head] in heads:
                    return Block(heads[kinds[head]], height, value, head)
        return None

    def _inner_brackets(self) -> list[str]:
        """The closing brackets that the statement being read still owes, the innermost last."""
        block = self._block()
        owed: list[str] = []
        for value in self.stacks.values[block.height + 1 if block else 0 :]:
            if isinstance(value, int):
                kind = self._kind(value)
                if kind in OPENERS:
                    owed.append(OPENERS[kind])
                elif owed and kind == owed[-1]:
                    owed.pop()
        return owed

    # ---- skipping ----------------------------------------------------------------------------------------------------

    def _late_brace(self) -> Block | None:
        """The innermost block whose `}`, judged by indentation, was taken by a block inside it."""
        opened: list[int] = []
        for place in range(len(self.tokens.kinds) - 1):
            name = self._kind(place)
            if name == "LBRACE":
                opened.append(place)
            elif name == "RBRACE" and opened:
                opener = opened.pop()
                if self._first_on_line(place) and self._indent(place) < self._indent(opener):
                    return self._block_of_brace(opener)
        return None

    def _block_of_brace(self, brace: int) -> Block | None:
        heads = blocks().heads
        for place in range(brace - 1, -1, -1):
            if self.tokens.kinds[place] in heads:
                return Block(heads[self.tokens.kinds[place]], 0, brace, place)
        return None

    def _floor(self) -> int:
        """The height of the stacks at which the unfinished statement of the innermost block begins."""
        block, values = self._block(), self.stacks.values
        height = 0 if block is None else block.height + 1
        return height + 1 if height < len(values) and isinstance(values[height], list) else height

    def _close_all(self, index: int) -> int:
        """Drop what is unfinished in the innermost block and insert the `}` that are missing before the end of the
        file.
        """
        block = self._block()
        floor = self._floor()
        if floor < len(self.stacks.values) and not self._fits("RBRACE"):
            self._lose(self.stacks.starts[floor], len(self.source.text))
            self.stacks.cut(floor)
        self._quiet_before = len(self.source.text) + 1
        if block is not None and self._fits("RBRACE"):
            return self._insert(index, "RBRACE")
        if not self._fits("$END"):
            self._lose(0, len(self.source.text))
            self.stacks.cut(0)
        return index

    def _height_before(self, index: int) -> int:
        """The height of the stacks that holds only what ends before a token."""
        height = len(self.stacks.values)
        while height and self.stacks.ends[height - 1] > self._start(index):
            height -= 1
        return height

    def _drop_statement(self, index: int) -> int:
        """Give up the statement that is being read, even if it would be complete without what is wrong in it."""
        floor = self._floor()
        if floor < len(self.stacks.starts):
            self._lose(self.stacks.starts[floor], self._start(index))
            self.stacks.cut(floor)
        return self._skip(index)

    def _skip(self, index: int, start: int | None = None) -> int:
        """Skip tokens from `start` on to the next statement and cut the stacks to a state that accepts it."""
        start = index if start is None else start
        for strict in (False, True):
            found = self._next_statement(start, strict)
            if found is not None:
                place, height = found
                dropped = self.stacks.starts[height] if height < len(self.stacks.starts) else self._start(index)
                self._lose(min(dropped, self._start(index)), self._start(place))
                self.stacks.cut(height)
                return place
        end = len(self.tokens.kinds) - 1
        self._lose(self._start(index), len(self.source.text))
        return self._close_all(end)

    def _closes_on_line(self, index: int, closer: str) -> bool:
        """Whether a bracket that is still open closes on this line, so that a `}` before it is only a stray one."""
        while self._kind(index) not in (closer, "$END") and not self._first_on_line(index):
            index += 1
        return self._kind(index) == closer and not self._first_on_line(index)

    def _misspelt(self, index: int, block: str) -> bool:
        """Whether a line begins here with nearly the word of a statement; the parser will then stumble over it."""
        return self._first_on_line(index) and nearest_statement(self._text(index), block) is not None

    def _next_statement(self, start: int, strict: bool) -> tuple[int, int] | None:
        """Where the next statement begins, and the height of the stacks that accepts it.

        Statements inside braces that were opened on the way are passed over; `strict` looks into them too, for a file
        in which the closing brace is missing. A word in the midst of a line, or within brackets that are still open,
        counts only if the token behind it fits as well.
        """
        kinds, known = self.tokens.kinds, blocks()
        rbrace = lexicon().number["RBRACE"]
        owed = self._inner_brackets()
        counts = Counter(owed)
        inner = len(owed)
        braces = 0  # opened on the way
        heights: dict[tuple[int, ...], int] = {}
        floor = self._floor()
        block = self._block()
        where = block.kind if block else "file"

        def height_for(*sequence: int) -> int:
            """The whole stacks if the statement read last is complete, else below what is unfinished."""
            if sequence not in heights:
                states = self.stacks.states
                candidates = (len(states) - 1, *range(min(floor, len(states) - 1), -1, -1))
                heights[sequence] = next(
                    (one for one in candidates if automaton().accepts(states[: one + 1], sequence, keyword=0)), -1
                )
            return heights[sequence]

        for place in range(start, len(kinds) - 1):
            kind = kinds[place]
            name = self._kind(place)
            self._scanned += 1
            if name in OPENERS:
                owed.append(OPENERS[name])
                counts[OPENERS[name]] += 1
                braces += name == "LBRACE"
            elif name in OPENERS.values():
                if counts[name]:
                    closed = ""
                    while closed != name:
                        closed = owed.pop()
                        counts[closed] -= 1
                        braces -= closed == "RBRACE" and len(owed) >= inner
                    inner = min(inner, len(owed))
                elif kind == rbrace and not (owed and self._closes_on_line(place + 1, owed[-1])):
                    height = height_for(rbrace)
                    if height >= 0:
                        return place, height
            elif kind in known.anywhere:
                first = self._first_on_line(place)
                outermost = first and self._indent(place) == 0 and kind in known.statements["file"]
                if braces and not strict and not outermost:
                    continue
                sure = first and not owed and not strict
                height = height_for(kind) if sure else height_for(kind, kinds[place + 1])
                if height >= 0:
                    return place, height
            elif name == "NAME" and place > start and not owed and not strict and self._misspelt(place, where):
                return place, floor
        return None
