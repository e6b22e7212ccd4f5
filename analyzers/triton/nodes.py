"""Walking syntax trees: what `ast.walk` does, several times as fast, in source order."""

from __future__ import annotations

import ast

_LEAVES = frozenset({ast.Load, ast.Store, ast.Del, int, str, type(None), float, bool, bytes})
"""What ends a branch and is never looked for: contexts, positions, names, constants."""


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one, expression contexts left out."""
    found: list[ast.AST] = []
    for value in node.__dict__.values():
        kind = value.__class__
        if kind in _LEAVES:
            continue
        if kind is list:
            found += [one for one in value if one.__class__ not in _LEAVES]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(root: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, parents before their children, in source order; expression contexts left out."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        found.append(node)
        below = children(node)
        if below:
            below.reverse()
            stack += below
    return found
