"""Walking syntax trees: `ast.walk` without its generators, in source order."""

from __future__ import annotations

import ast


def walk(root: ast.AST) -> list[ast.AST]:
    """All nodes of a tree, parents before their children, in source order."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = [root]
    while stack:
        node = stack.pop()
        found.append(node)
        children: list[ast.AST] = []
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                children.extend([one for one in value if isinstance(one, ast.AST)])
            elif isinstance(value, ast.AST):
                children.append(value)
        children.reverse()
        stack += children
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found.extend([one for one in value if isinstance(one, ast.AST)])
        elif isinstance(value, ast.AST):
            found.append(value)
    return found
