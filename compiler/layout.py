"""How a run of tokens is written: canonical spaces, and lists that are too long broken into lines.

A layout depends on the tokens alone, never on the spaces and line ends that were there, so formatting is idempotent.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

WIDTH = 120
INDENT = 2

_OPEN = {"(": ")", "[": "]", "{": "}"}
_HARD = {"and", "or", "not", "in", "has", "if", "then", "else", "for"}
_BINARY = {"+", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "=", "::", "~"}


class Group(msgspec.Struct):
    """A bracket with its elements, which commas separate."""

    opener: str
    elements: list[list[str | Group]]

    @property
    def closer(self) -> str:
        return _OPEN[self.opener]


def nest(tokens: Sequence[str]) -> list[str | Group]:
    """Brackets as groups; a comma behind a last element is dropped. Brackets must match."""
    open_groups: list[Group] = [Group("(", [[]])]
    for token in tokens:
        if token in _OPEN:
            open_groups.append(Group(token, [[]]))
        elif token in (")", "]", "}"):
            group = open_groups.pop()
            if not group.elements[-1]:
                group.elements.pop()
            open_groups[-1].elements[-1].append(group)
        elif token == "," and len(open_groups) > 1:
            open_groups[-1].elements.append([])
        else:
            open_groups[-1].elements[-1].append(token)
    return open_groups[0].elements[0]


def flat(items: Sequence[str | Group]) -> str:
    """One line."""
    pieces: list[str] = []
    for position, item in enumerate(items):
        if _space_before(items, position):
            pieces.append(" ")
        if isinstance(item, str):
            pieces.append(item)
        else:
            pieces += [item.opener, ", ".join(flat(element) for element in item.elements), item.closer]
    return "".join(pieces)


def laid_out(items: Sequence[str | Group], column: int, indent: int, after: int = 0) -> str:
    """The text of items that begin at a column of a line with an indentation; lists that do not fit are broken.

    `after` columns are left for what follows on the last line, such as a closing bracket.

    Continuation lines carry their indentation. `and` and `or` outside brackets are where a line is broken first. A
    bracket with one element is not broken, only what is in it.
    """
    connective = next((word for word in ("or", "and") if word in items), None)
    if connective and "if" not in items and "for" not in items and column + len(flat(items)) > WIDTH:
        return _conditions(items, connective, column, indent + INDENT)
    pieces: list[str] = []
    for position, item in enumerate(items):
        if _space_before(items, position):
            pieces.append(" ")
            column += 1
        room = after if position == len(items) - 1 else 0
        piece = item if isinstance(item, str) else _group(item, column, indent, room)
        pieces.append(piece)
        column = _end_column(piece, column)
    return "".join(pieces)


def _conditions(items: Sequence[str | Group], connective: str, column: int, indent: int) -> str:
    parts: list[list[str | Group]] = [[]]
    for item in items:
        if item == connective:
            parts.append([])
        else:
            parts[-1].append(item)
    lines = [laid_out(parts[0], column, indent)]
    lines += [f"{' ' * indent}{connective} {laid_out(one, indent + len(connective) + 1, indent)}" for one in parts[1:]]
    return "\n".join(lines)


def filled(elements: Sequence[str], column: int, hanging: int) -> str:
    """`a, b, c` from a column on, broken behind a comma where the next element would not fit."""
    pieces: list[str] = []
    for position, element in enumerate(elements):
        last = position == len(elements) - 1
        need = len(element.partition("\n")[0]) + (0 if last else 1)
        if pieces:
            if column + 1 + need > WIDTH:
                pieces.append("\n" + " " * hanging)
                column = hanging
            else:
                pieces.append(" ")
                column += 1
        piece = element if last else f"{element},"
        pieces.append(piece)
        column = _end_column(piece, column)
    return "".join(pieces)


def _end_column(piece: str, column: int) -> int:
    newline = piece.rfind("\n")
    return column + len(piece) if newline < 0 else len(piece) - newline - 1


def _group(group: Group, column: int, indent: int, after: int) -> str:
    whole = flat([group])
    if column + len(whole) + after <= WIDTH:
        return whole
    if len(group.elements) < 2:
        inner = [laid_out(element, column + 1, indent, after + 1) for element in group.elements]
        return f"{group.opener}{''.join(inner)}{group.closer}"
    deeper = indent + INDENT
    elements = [laid_out(element, deeper, deeper, 1) for element in group.elements]
    body = filled(elements, deeper, deeper)
    return f"{group.opener}\n{' ' * deeper}{body}\n{' ' * indent}{group.closer}"


def _space_before(items: Sequence[str | Group], position: int) -> bool:
    if position == 0:
        return False
    item, before = items[position], items[position - 1]
    if _unary_minus(items, position - 1) or before in (".", ":") or item in (".", ":", ","):
        return False
    if isinstance(item, Group):
        if item.opener == "{":
            return True
        # a call, an index or a type: the bracket touches what it belongs to
        return isinstance(before, str) and (before in _HARD or before in _BINARY or before in ("-", ","))
    return True


def _unary_minus(items: Sequence[str | Group], position: int) -> bool:
    if items[position] != "-":
        return False
    before = items[position - 1] if position else ","
    return isinstance(before, str) and (before in _HARD or before in _BINARY or before in ("-", ","))
