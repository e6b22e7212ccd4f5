"""Rules about statements that the grammar cannot say: which may stand only once in their block, and an empty file."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.compiler import syntax as s
from d2k.compiler.diagnostics import Diagnostic, diagnostic
from d2k.compiler.source import Span

_ONCE: dict[type[s.Block], tuple[type[s.Node], ...]] = {
    s.File: (s.Version,),
    s.Task: (s.Title, s.Summary, s.Target, s.Entry, s.Reference, s.Cost, s.Guidance),
    s.Item: (s.Why, s.Hint, s.SourceNote, s.Requires, s.When, s.Given, s.Check, s.Weight, s.Free),
    s.Property: (s.Title, s.Definition, s.Scope, s.Needs, s.SettledBy, s.Excludes),
}


def structure_errors(tree: s.File, empty: bool) -> Iterator[Diagnostic]:
    """`empty` says that the text has no token at all."""
    if empty:
        yield diagnostic("D2K0110", Span(0, 0, tree.span.source))
    pending: list[s.Block] = [tree]
    while pending:
        block = pending.pop()
        pending.extend(one for one in block.statements if isinstance(one, s.Block))
        yield from _repeated(block)


def _repeated(block: s.Block) -> Iterator[Diagnostic]:
    first: dict[type[s.Node], s.Node] = {}
    once = _ONCE.get(type(block), ())
    for statement in block.statements:
        kind = type(statement)
        if kind not in once:
            continue
        if kind in first:
            keyword = statement.span.text.split(maxsplit=1)[0]
            yield diagnostic("D2K0216", _head(statement), statement=keyword).with_note(
                "the first one is here", _head(first[kind])
            )
        else:
            first[kind] = statement


def _head(statement: s.Node) -> Span:
    """The first line of a statement."""
    span = statement.span
    newline = span.text.find("\n")
    return span if newline < 0 else Span(span.start, span.start + newline, span.source)
