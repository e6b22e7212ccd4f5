"""What the Python functions of a task say of themselves, for people who see the task without its files."""

from __future__ import annotations

import ast


def docstring(text: str, function: str) -> str:
    """The docstring of a top-level function, without indentation; "" if it has none or `text` does not parse."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    return ""
