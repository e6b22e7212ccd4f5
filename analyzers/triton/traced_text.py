"""Text that remembers which line of which file each of its pieces was written on."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from d2k.analyzers.triton.module import Module

MAX_TEXT = 2_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one line: `text` has at most one line break, at its end."""

    text: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Traced:
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    def __add__(self, other: Traced) -> Traced:
        return Traced(self.pieces + other.pieces)

    def cut(self, start: int, stop: int) -> Traced:
        """The characters from `start` to `stop`."""
        found: list[Piece] = []
        at = 0
        for piece in self.pieces:
            end = at + len(piece.text)
            if end > start and at < stop:
                found.append(Piece(piece.text[max(0, start - at) : stop - at], piece.path, piece.line))
            at = end
        return Traced(tuple(found))

    def lines(self) -> tuple[int, ...]:
        """The source line of each line of the text: that of its first characters."""
        found: list[int] = []
        current = 0
        for piece in self.pieces:
            if not piece.text:
                continue
            current = current or piece.line
            if piece.text.endswith("\n"):
                found.append(current)
                current = 0
        last = self.pieces[-1].line if self.pieces else 1
        return (*found, current or last)

    def replaced(self, old: str, new: Traced) -> Traced:
        """`str.replace`."""
        if not old:
            return self
        text = self.text
        parts: list[Traced] = []
        start = 0
        while (at := text.find(old, start)) >= 0:
            parts += [self.cut(start, at), new]
            start = at + len(old)
        parts.append(self.cut(start, len(text)))
        return joined(parts)

    def stripped(self) -> Traced:
        text = self.text
        start = len(text) - len(text.lstrip())
        return self.cut(start, len(text.rstrip())) if text.strip() else Traced(())

    def dedented(self) -> Traced:
        """`textwrap.dedent`: the blanks that all lines start with removed."""
        text = self.text
        margins = [len(line) - len(line.lstrip(" \t")) for line in text.split("\n") if line.strip()]
        margin = min(margins, default=0)
        parts: list[Traced] = []
        at = 0
        for line in text.split("\n"):
            end = at + len(line)
            if line.strip():
                parts.append(self.cut(at + margin, end + 1))
            else:
                parts.append(self.cut(end, end + 1))
            at = end + 1
        return joined(parts)


def joined(parts: Sequence[Traced]) -> Traced:
    return Traced(tuple(piece for part in parts for piece in part.pieces))


def plain(text: str, path: str, line: int) -> Traced:
    """Text that stands on one line of the source, whatever breaks it holds."""
    return Traced(tuple(Piece(part, path, line) for part in text.splitlines(keepends=True)))


Fill = Callable[[ast.FormattedValue], Traced]


def literal(node: ast.Constant | ast.JoinedStr, module: Module, fill: Fill) -> Traced:
    """The text of a string as it is written, adjacent literals included; `fill` gives the values in f-strings."""
    values = node.values if isinstance(node, ast.JoinedStr) else []
    fields = (one for one in values if isinstance(one, ast.FormattedValue))
    parts: list[Traced] = []
    for token, line in _tokens(node, module):
        prefix = token[: re.match(r"[A-Za-z]*", token).end()].lower()  # type: ignore[union-attr]  # always matches
        quote = token[len(prefix) : len(prefix) + 3]
        size = 3 if quote in ('"""', "'''") else 1
        inner = token[len(prefix) + size : -size]
        parts.append(_decoded(inner, "r" in prefix, "f" in prefix, line, module.path, fields, fill))
    return joined(parts)


def _tokens(node: ast.expr, module: Module) -> Iterator[tuple[str, int]]:
    """The literal tokens of a string expression with the lines they start on."""
    lines = module.source_lines
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    taken = [line.encode() for line in lines[first : last + 1]]
    end = node.end_col_offset or len(taken[-1])
    if first == last:
        taken[0] = taken[0][node.col_offset : end]
    else:
        taken[0], taken[-1] = taken[0][node.col_offset :], taken[-1][:end]
    # parentheses make line breaks between adjacent literals plain blanks
    source = "(" + b"".join(taken).decode(errors="replace") + "\n)"
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.STRING:
                yield token.string, first + token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return


_ESCAPE = re.compile(r"\\(\r?\n|[\\'\"abfnrtv]|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\})")


def _decoded(
    inner: str, raw: bool, formatted: bool, line: int, path: str, fields: Iterator[ast.FormattedValue], fill: Fill
) -> Traced:
    """The characters of one literal; a line break in the source ends a piece, and so does an escaped one."""
    parts: list[Traced] = []
    run: list[str] = []
    run_line = line

    def flush() -> None:
        if run:
            parts.append(Traced((Piece("".join(run), path, run_line),)))
            run.clear()

    at = 0
    while at < len(inner):
        char = inner[at]
        if not run:
            run_line = line
        if char == "\n":
            run.append(char)
            flush()
            line += 1
            at += 1
        elif char == "\\" and not raw and (escape := _ESCAPE.match(inner, at)):
            if escape.group(1).endswith("\n"):
                line += 1
                flush()
            else:
                decoded = _escape(escape.group())
                run.append(decoded)
                if decoded == "\n":
                    flush()
            at = escape.end()
        elif formatted and char in "{}":
            if inner[at : at + 2] == char * 2:
                run.append(char)
                at += 2
            elif char == "{":
                flush()
                end = _field_end(inner, at)
                field = next(fields, None)
                if field is not None:
                    parts.append(fill(field))
                line += inner.count("\n", at, end)
                at = end
            else:
                at += 1
        else:
            run.append(char)
            at += 1
    flush()
    parts.append(Traced((Piece("", path, line),)))  # where the literal ends, for a last line without characters
    return joined(parts)


def _escape(text: str) -> str:
    try:
        value = ast.literal_eval(f'"{text}"')
    except (SyntaxError, ValueError):
        return text
    return value if isinstance(value, str) else text


def _field_end(text: str, start: int) -> int:
    """The position after a replacement field, nested braces and quotes skipped."""
    depth, at = 0, start
    quote = ""
    while at < len(text):
        char = text[at]
        if quote:
            if char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return len(text)
