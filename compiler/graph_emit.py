"""The guidance of a task as text for other tools: DOT (Graphviz) and Mermaid.

Arrows point from an item to what it requires, as `requires` does in the language.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from d2k.spec.guidance import Item
from d2k.spec.vocabulary import Level


def dot(items: Sequence[Item]) -> str:
    """One cluster a level, one edge a requirement."""
    lines = [
        "digraph guidance {",
        "  rankdir = BT;",
        '  node [shape = box, style = rounded, fontname = "sans-serif"];',
        *_dot_levels(items),
        *(f"  {_quote(one.id)} -> {_quote(other)};" for one in items for other in one.requires),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _dot_levels(items: Sequence[Item]) -> Iterator[str]:
    for level in Level:
        members = [one for one in items if one.level is level]
        if members:
            yield f"  subgraph cluster_{level} {{"
            yield f"    label = {_quote(level)};"
            for one in members:
                yield f"    {_quote(one.id)} [label = {_quote(one.id)}, tooltip = {_quote(one.title)}];"
            yield "  }"


def mermaid(items: Sequence[Item]) -> str:
    """A flowchart with one subgraph a level. Nodes are numbered: an id of ours may be a word of Mermaid."""
    numbers = {one.id: f"n{index}" for index, one in enumerate(items)}
    lines = ["flowchart BT"]
    for level in Level:
        members = [one for one in items if one.level is level]
        if members:
            lines.append(f"  subgraph {level}")
            lines += [f'    {numbers[one.id]}["{_escape(one.id)}<br/>{_escape(one.title)}"]' for one in members]
            lines.append("  end")
    lines += [f"  {numbers[one.id]} --> {numbers[other]}" for one in items for other in one.requires]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    """A DOT string: only quotes and backslashes are special in it, and a line end must not end up in one."""
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _escape(text: str) -> str:
    """Text inside a Mermaid label; entities are written with `#`, so that sign goes first."""
    special = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\\": "#92;"}
    return "".join(special.get(char, char) for char in " ".join(text.split()))
