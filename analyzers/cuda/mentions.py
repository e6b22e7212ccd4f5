"""Library calls and instructions named in code that does not run: raw material of nearest misses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from d2k.analyzers.cuda.library import Library
from d2k.analyzers.cuda.scope import Unit
from d2k.analyzers.cuda.syntax import Asm, Call, Member, Name, Node
from d2k.spec.facts import Mention

MAX_MENTIONS = 40
"""Mentions that one region may add."""

_CALL = re.compile(r"\b([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?:<[^<>;(){}]*>)?\s*\(")
_INSTRUCTION = re.compile(
    r"\b(?:cp\.async|cp\.reduce|mbarrier|mma\.sync|wgmma|tcgen05|ldmatrix|stmatrix|setmaxnreg|griddepcontrol|elect\.sync"
    r"|barrier\.cluster|bar\.sync|ld\.global|st\.global|red\.|atom\.|ex2\.|rcp\.|rsqrt\.|tanh\.|lop3|cvt\.|fence|prefetch"
    r"|multimem|redux|mapa|clusterlaunchcontrol)[\w.:]*"
)


def mentions_in(node: Node, unit: Unit, reason: str, detail: str, library: Library) -> list[Mention]:
    """Known calls and instructions below a node."""
    found: list[Mention] = []
    stack: list[object] = [node]
    while stack and len(found) < MAX_MENTIONS:
        one = stack.pop()
        if isinstance(one, Call):
            name = ""
            if isinstance(one.callee, Name):
                name = one.callee.dotted
            elif isinstance(one.callee, Member):
                name = one.callee.name
            if name and (library.function(name) is not None or library.method("", name) is not None):
                found.append(Mention(name, reason, detail, unit.place(one.at, one.end)))
        elif isinstance(one, Asm):
            place = unit.place(one.at, one.end)
            found.extend(Mention(m.group(), reason, detail, place) for m in _INSTRUCTION.finditer(one.text))
        if isinstance(one, msgspec.Struct):
            stack.extend(getattr(one, field) for field in reversed(one.__struct_fields__))
        elif isinstance(one, tuple):
            stack.extend(reversed(one))
    return found


def mentions_in_text(
    text: str, start: int, end: int, unit: Unit, reason: str, detail: str, library: Library
) -> Iterator[Mention]:
    """The same for a span of a source that was not parsed."""
    count = 0
    for match in _CALL.finditer(text, start, end):
        if count >= MAX_MENTIONS:
            return
        name = match.group(1)
        if library.function(name) is not None:
            count += 1
            yield Mention(name, reason, detail, unit.source_place(match.start(), match.end()))
    for match in _INSTRUCTION.finditer(text, start, end):
        if count >= MAX_MENTIONS:
            return
        count += 1
        yield Mention(match.group(), reason, detail, unit.source_place(match.start(), match.end()))
