"""A source text and places in it.

Offsets count code points from 0; lines and columns count from 1, a tab is one column.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

import msgspec

MAX_CHARACTERS = 4 << 20
"""Larger files are refused: the largest real one has a few thousand lines."""


class Source:
    """One file's text with its line table. Line ends are already `\\n` (see `read_source`)."""

    __slots__ = ("__dict__", "path", "text")

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @classmethod
    def from_text(cls, path: str, text: str) -> Source:
        """A source of any text: a byte-order mark is dropped, every kind of line end becomes `\\n`."""
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return cls(path, text.removeprefix("\ufeff"))

    def __repr__(self) -> str:
        return f"Source({self.path!r})"

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Offset of the first character of each line; an empty text has one line."""
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return tuple(starts)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset; an offset beyond the text is its end."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Text of a line without its end; lines outside the file are empty."""
        if not 1 <= number <= len(self.line_starts):
            return ""
        start = self.line_starts[number - 1]
        end = self.line_starts[number] - 1 if number < len(self.line_starts) else len(self.text)
        return self.text[start:end]


class Span(msgspec.Struct, frozen=True, gc=False):
    """The half-open range `[start, end)` of a source's text."""

    start: int
    end: int
    source: Source

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def line(self) -> int:
        return self.source.place(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.place(self.start)[1]

    @property
    def end_place(self) -> tuple[int, int]:
        """Line and column just behind the last character."""
        return self.source.place(self.end)

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __repr__(self) -> str:
        line, column = self.source.place(self.start)
        return f"<{self.source.path}:{line}:{column}+{self.end - self.start}>"
