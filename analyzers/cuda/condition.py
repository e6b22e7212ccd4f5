"""`#if` with three values: True, False, and None where a macro is not known.

An unknown macro keeps its branch: build systems set macros that no source shows, and taking them for 0 deletes code.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Known = int | None

_TOKEN = re.compile(
    r"\s*(defined\b|[A-Za-z_]\w*|(?:0[xX][0-9a-fA-F']+|\d[\d']*)(?:[uUlLzZ]*)|&&|\|\||[=!<>]=|<<|>>|[-+*/%<>!~&|^?:(),])"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
MAX_DEPTH = 60


class _Reader:
    """Recursive descent over the tokens of one condition. `is_defined` answers True, False or None (not known)."""

    def __init__(self, text: str, is_defined: Callable[[str], bool | None]) -> None:
        self.tokens = _TOKEN.findall(text)
        self.at = 0
        self.depth = 0
        self.is_defined = is_defined

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def ternary(self) -> Known:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take()
        yes = self.ternary()
        if self.peek() == ":":
            self.take()
        no = self.ternary()
        return None if condition is None else (yes if condition else no)

    def binary(self, level: int) -> Known:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            left = _combine(self.take(), left, self.binary(level + 1))
        return left

    def unary(self) -> Known:
        self.depth += 1
        try:
            return self._unary() if self.depth < MAX_DEPTH else None
        finally:
            self.depth -= 1

    def _unary(self) -> Known:
        token = self.take()
        if token == "!":
            value = self.unary()
            return None if value is None else int(not value)
        if token in ("-", "+", "~"):
            value = self.unary()
            return None if value is None else {"-": -value, "+": value, "~": ~value}[token]
        if token == "(":
            value = self.ternary()
            if self.peek() == ")":
                self.take()
            return value
        if token == "defined":
            name = self.take()
            if name == "(":
                name = self.take()
                self.take()
            known = self.is_defined(name)
            return None if known is None else int(known)
        if token[:1].isdigit():
            digits = token.replace("'", "").rstrip("uUlLzZ")
            try:
                return int(digits, 8 if re.fullmatch(r"0[0-7]+", digits) else 0)
            except ValueError:
                return None
        if self.peek() == "(":  # __has_include(…) and function-like macros that nobody defined
            self._skip_parentheses()
            return None
        return {"true": 1, "false": 0}.get(token)

    def _skip_parentheses(self) -> None:
        depth = 0
        while self.at < len(self.tokens):
            token = self.take()
            depth += (token == "(") - (token == ")")
            if depth == 0:
                return


def _combine(op: str, left: Known, right: Known) -> Known:
    if op == "&&":
        if left == 0 or right == 0:
            return 0
        return None if left is None or right is None else 1
    if op == "||":
        if left or right:
            return 1
        return None if left is None or right is None else 0
    if left is None or right is None:
        return None
    if op in ("/", "%"):
        return None if right == 0 else (left // right if op == "/" else left % right)
    if op in ("<<", ">>"):
        return None if not 0 <= right < 64 else (left << right if op == "<<" else left >> right)
    return int(_ARITHMETIC[op](left, right))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def evaluate(text: str, is_defined: Callable[[str], bool | None]) -> bool | None:
    """The truth of an expanded condition. Never fails: what cannot be read is not known."""
    if not text.strip():
        return None
    value = _Reader(text, is_defined).ternary()
    return None if value is None else value != 0
