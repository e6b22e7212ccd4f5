"""Inline PTX as text: split into instructions. What an instruction means is the front ends' business.

The text is what stands between the quotes of an `asm` statement or an `inline_asm_elementwise` call. Escapes that the
caller left undecoded (`\\n`, `\\t`) count as blanks; `%%` stands for `%`. Directives (`.reg`, `.loc`), labels and block
braces are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*?(?=\\n|\n|$)|/\*.*?(?:\*/|$)", re.DOTALL)
_LABEL = re.compile(r"[A-Za-z_$%][\w$%]*\s*:(?!:)")
_OPCODE = re.compile(r"[A-Za-z_][\w.:]*")
_PREDICATE = re.compile(r"@\s*(!?)\s*([\w$%{}]+)")
_OPENING = "([{"
_CLOSING = ")]}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """`mnemonic` is the opcode's first word and `modifiers` the rest: `cp` with `async`, `bulk`, `tensor`.

    `operands` keep their text without outer blanks. `predicate` has no `@`: `p` or `!p`. `line` is 1-based within
    the text.
    """

    mnemonic: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    predicate: str | None
    line: int

    @property
    def opcode(self) -> str:
        return ".".join((self.mnemonic, *self.modifiers))


def instructions(text: str) -> tuple[Instruction, ...]:
    """All instructions of `text` in order. Never fails: a statement that is no instruction is left out."""
    found: list[Instruction] = []
    for statement, line in _statements(_blank_comments(text)):
        instruction = _instruction(statement, line)
        if instruction is not None:
            found.append(instruction)
    return tuple(found)


def _blank_comments(text: str) -> str:
    """`text` with comments and undecoded escapes replaced by blanks; line breaks stay where they are."""
    bare = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return re.sub(r"\\[ntr]", "  ", bare).replace("%%", " %")


def _statements(text: str) -> list[tuple[str, int]]:
    """Statements and the lines they start on; a brace that opens a statement is a block's, not a vector's."""
    statements: list[tuple[str, int]] = []
    start, depth, line, first_line = 0, 0, 1, 1
    blank = True
    for at, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char.isspace():
            continue
        elif char == ";" or (char == "}" and depth == 0) or (char == "{" and blank):
            # the end of a block also ends a statement that lacks its semicolon
            statements.append((text[start:at], first_line))
            start, depth, blank = at + 1, 0, True
            continue
        elif char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth = max(0, depth - 1)
        if blank and char != "\n":
            first_line, blank = line, False
    statements.append((text[start:], first_line))
    return statements


def _instruction(statement: str, line: int) -> Instruction | None:
    rest = statement.strip()
    while label := _LABEL.match(rest):
        skipped = rest[label.end() :]
        line += rest[: label.end()].count("\n") + skipped[: len(skipped) - len(skipped.lstrip())].count("\n")
        rest = skipped.lstrip()
        if rest.startswith("{"):
            rest = rest[1:].lstrip()
    predicate = None
    if guard := _PREDICATE.match(rest):
        predicate = guard.group(1) + guard.group(2)
        rest = rest[guard.end() :].lstrip()
    opcode = _OPCODE.match(rest)
    if opcode is None:
        return None
    mnemonic, *modifiers = [word for word in opcode.group().split(".") if word]
    return Instruction(mnemonic, tuple(modifiers), _operands(rest[opcode.end() :]), predicate, line)


def _operands(text: str) -> tuple[str, ...]:
    parts: list[str] = []
    depth, start = 0, 0
    for at, char in enumerate(text):
        if char in _OPENING:
            depth += 1
        elif char in _CLOSING:
            depth -= 1
        elif char == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return tuple(" ".join(part.split()) for part in parts if part.strip())
