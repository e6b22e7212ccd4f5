"""Names of calls and instructions in code that does not run, as nearest misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from d2k.analyzers.core.detector import Evidence, Miss
from d2k.analyzers.core.view import KernelView
from d2k.spec.facts import Mention
from d2k.spec.finding import Reason


def mentioned(kernel: KernelView, names: Sequence[str]) -> Miss | None:
    """A miss for the first call of one of `names` that stands in code that does not run, None if there is none.

    A name matches the whole of a mention's dotted name or its beginning or end at a dot.
    """
    for mention in _mentions(kernel):
        if any(_same(mention.name, name) for name in names):
            detail = f"`{mention.name}` stands in code that does not run" + (
                f": {mention.detail}" if mention.detail else ""
            )
            return Miss(Reason(mention.reason), detail, (Evidence(mention.place, mention.name),))
    return None


def _mentions(kernel: KernelView) -> Iterator[Mention]:
    yield from kernel.body.mentions
    yield from kernel.program.program.mentions


def _same(found: str, name: str) -> bool:
    return found == name or found.startswith(f"{name}.") or found.endswith(f".{name}")
