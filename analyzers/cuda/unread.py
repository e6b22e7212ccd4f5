"""A file that defines a kernel of which nothing could be read: silence would look like a file without kernels."""

from __future__ import annotations

import re

NO_CODE = re.compile(
    r"""/\*.*?(?:\*/|\Z)|//[^\n]*|"(?:[^"\\\n]|\\.)*"|^[ \t]*\#(?:[^\n\\]|\\.)*""", re.DOTALL | re.MULTILINE
)
DEFINITION = re.compile(r"\b__global__\b[^;{]*(?:\{|\Z)")


def unread_kernel(text: str) -> int | None:
    """The 1-based line of the first `__global__` that begins a definition, None if there is none.

    Comments, strings, directives and mere declarations do not count.
    """
    code = NO_CODE.sub(lambda found: "\n" * found.group().count("\n"), text)
    found = DEFINITION.search(code)
    return code.count("\n", 0, found.start()) + 1 if found else None
