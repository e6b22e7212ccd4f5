"""An expert's guidance for a task: items on three levels and what each requires."""

from __future__ import annotations

import msgspec

from d2k.spec.check import Check
from d2k.spec.vocabulary import Level


class Accepted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An equal or better design that earns the item's full credit."""

    check: Check
    because: str


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One piece of guidance.

    `applies` is the item's `when`, already evaluated: for each target architecture (`sm90`, `sm100`) the workloads
    on which the item applies. `when` keeps its text for people. `given` makes the item not applicable when it
    does not hold.
    `free` marks an item that the naive kernel earns.
    """

    id: str
    level: Level
    title: str
    check: Check
    requires: tuple[str, ...] = ()
    why: str = ""
    hint: str = ""
    source: str = ""
    when: str = ""
    applies: dict[str, tuple[str, ...]] = {}
    given: Check | None = None
    accept: tuple[Accepted, ...] = ()
    weight: float = 1.0
    free: bool = False
