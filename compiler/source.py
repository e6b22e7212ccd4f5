"""A source text and places in it.

Offsets count code points from 0; lines and columns count from 1, a tab is one column.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from functools import cached_property

import msgspec

MAX_BYTES = 1 << 20
"""Larger files are refused: the largest real one has a hundredth of this."""


class Fault(msgspec.Struct, frozen=True):
    """Why a file is no text that could be parsed: a diagnostic's code and details, and where to point."""

    code: str
    offset: int = 0
    details: dict[str, str] = {}


class Source:
    """One file's text with its line table. Line ends are already `\\n`, and there is no byte-order mark.

    `fault` is set if the text should not be parsed; it may then be incomplete.
    """

    __slots__ = ("__dict__", "fault", "path", "text")

    def __init__(self, path: str, text: str, fault: Fault | None = None) -> None:
        self.path = path
        self.text = text
        self.fault = fault

    @classmethod
    def from_text(cls, path: str, text: str) -> Source:
        """A source of any text: a byte-order mark is dropped, every kind of line end becomes `\\n`."""
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = text.removeprefix("\ufeff")
        if len(text) > MAX_BYTES:
            return cls(path, "", _too_large())
        null = text.find("\0")
        return cls(path, text, Fault("D2K0103", null) if null >= 0 else None)

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


def read(path: str, data: bytes) -> Source:
    """The source in a file's bytes. Never raises: bytes that are no UTF-8 text give a source with a fault."""
    if len(data) > MAX_BYTES:
        return Source(path, "", _too_large())
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Source(path, "", Fault("D2K0101", 0, {"problem": "it is UTF-16", "label": "byte-order mark of UTF-16"}))
    try:
        return Source.from_text(path, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        # the text before the byte, so that its line can be shown; an old Mac's line ends do not matter here
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
        rest = data[error.start : error.start + 200].decode("utf-8", "replace").split("\n")[0].rstrip("\r")
        if "\0" in before:
            return Source(path, before, Fault("D2K0103", before.index("\0")))
        details = {"problem": f"byte 0x{data[error.start]:02X}", "label": "not valid here"}
        return Source(path, before + rest, Fault("D2K0101", len(before), details))


def _too_large() -> Fault:
    return Fault("D2K0102", 0, {"limit": str(MAX_BYTES >> 20)})
