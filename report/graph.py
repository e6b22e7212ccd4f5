"""The guidance of a task as a picture: `svg`, `dot` or `mermaid`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from d2k.compiler.graph_emit import dot, mermaid
from d2k.report.graph_svg import svg
from d2k.spec.guidance import Item


def render(items: Sequence[Item], form: str) -> str:
    """Raises KeyError for an unknown form."""
    forms: dict[str, Callable[[Sequence[Item]], str]] = {"svg": svg, "dot": dot, "mermaid": mermaid}
    return forms[form](items)
