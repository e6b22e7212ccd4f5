"""What string and block literals stand for."""

from __future__ import annotations

import re
from textwrap import dedent

import msgspec

_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|([\s\S]))")


class TextError(msgspec.Struct, frozen=True):
    """An escape that means nothing, as offsets into the literal."""

    start: int
    end: int


def string_value(literal: str) -> tuple[str, tuple[TextError, ...]]:
    """The text of `"…"`: escapes `\\n \\t \\" \\\\` and `\\u{1F600}`; an unknown escape stands for itself and is an
    error.
    """
    if "\\" not in literal:
        return literal[1:-1], ()
    errors = []

    def replace(match: re.Match[str]) -> str:
        code, letter = match.groups()
        if code is not None:
            point = int(code, 16)
            if point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF:
                return chr(point)
        elif letter in _ESCAPES:
            return _ESCAPES[letter]
        errors.append(TextError(match.start() + 1, match.end() + 1))
        return match.group()

    return _ESCAPE.sub(replace, literal[1:-1]), tuple(errors)


def quote(value: str) -> str:
    """The literal of a text: what `string_value` reads back."""
    for letter, character in (("\\", "\\"), ('"', '"'), ("n", "\n"), ("t", "\t")):
        value = value.replace(character, "\\" + letter)
    return f'"{value}"'


def block_value(literal: str) -> str:
    """The text of a block string, without escapes: common indentation, trailing blanks, first and last empty line
    removed.
    """
    lines = dedent_block(literal[3:-3])
    return "\n".join(lines)


def prose(text: str) -> str:
    """A text whose line breaks mean nothing: a paragraph becomes one line; indented lines and list points stay."""
    lines: list[str] = []
    for line in text.split("\n"):
        goes_on = bool(lines) and bool(lines[-1]) and bool(line) and not line.startswith((" ", "\t", "- ", "* "))
        if goes_on:
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return "\n".join(lines)


def dedent_block(inside: str) -> list[str]:
    """The lines of a block. Its first line stands right behind the quotes and has no indentation to share."""
    first, separator, rest = inside.partition("\n")
    lines = [line.rstrip() for line in dedent(rest).split("\n")] if separator else []
    lines.insert(0, first.strip())
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines
