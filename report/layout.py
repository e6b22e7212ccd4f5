"""Plain text in columns: widths of characters, wrapping, and text from a stranger's file made harmless."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath
from unicodedata import combining, east_asian_width
from urllib.parse import quote

from d2k.spec.finding import Evidence

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_LINE_END = re.compile(r"\r\n|\r|\n")


def clean(text: str) -> str:
    """Text on one line, without characters that move a terminal's cursor or turn the direction of writing."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.expandtabs(4)).encode("utf-8", "replace").decode("utf-8")


def source_lines(text: str) -> list[str]:
    """Lines as Python and C++ count them: ended by a line feed, a carriage return or both."""
    return _LINE_END.split(text)


def anchor(identifier: str) -> str:
    """The name of an item's place in a page."""
    return f"item-{clean(identifier)}"


def link_to(identifier: str) -> str:
    """An address of an item's place, inside its page."""
    return f"#{quote(anchor(identifier))}"


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def cut(text: str, width: int) -> str:
    """At most `width` columns, with an ellipsis where something is missing."""
    if cells(text) <= width:
        return text
    kept = ""
    for char in text:
        if cells(kept) + cells(char) > width - 1:
            break
        kept += char
    return kept.rstrip() + "…"


def wrap(text: str, width: int, most: int = 0) -> list[str]:
    """Lines of at most `width` columns, at most `most` of them (0: any number); longer words are cut into pieces."""
    lines: list[str] = []
    line = ""
    for word in _pieces(text, width):
        if line and cells(line) + 1 + cells(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    lines.append(line)
    if most and len(lines) > most:
        lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), width)]
    return lines


def _pieces(text: str, width: int) -> Iterator[str]:
    for word in text.split():
        while cells(word) > width:
            head = _head(word, width) or word[0]
            yield head
            word = word[len(head) :]
        if word:
            yield word


def _head(word: str, width: int) -> str:
    kept = ""
    for char in word:
        if cells(kept) + cells(char) > width:
            break
        kept += char
    return kept


def short_paths(paths: Collection[str]) -> dict[str, str]:
    """For each path its last part, or the whole path where two end alike."""
    names = [PurePath(path).name for path in dict.fromkeys(paths)]
    return {
        path: PurePath(path).name if names.count(PurePath(path).name) == 1 and PurePath(path).name else path
        for path in paths
    }


def place(one: Evidence, names: dict[str, str]) -> str:
    """`kernel.py:31-40`."""
    span = f"{one.line}-{one.end_line}" if one.end_line > one.line else str(one.line)
    return f"{names.get(one.path, one.path)}:{span}"


def places(evidence: Sequence[Evidence], names: dict[str, str]) -> str:
    """The first place and how many more lines there are: `kernel.py:31 +2`."""
    if not evidence:
        return ""
    more = len({(one.path, one.line) for one in evidence}) - 1
    return place(evidence[0], names) + (f" +{more}" if more else "")


def number(value: float) -> str:
    """A score or credit without a needless fraction: `52`, `66.7`, `0`."""
    return f"{round(value, 1):g}"


def points(score: float) -> str:
    """A score between 0 and 100 as a whole number; only all of it is 100 and only nothing is 0."""
    if 0 < score < 1:
        return "<1"
    return str(min(round(score), 99) if score < 100 else 100)


def count(amount: int, noun: str) -> str:
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"
