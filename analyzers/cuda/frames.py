"""A function's activation while it is lowered: names in scope, template arguments, the object, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from d2k.spec.facts import Guard

if TYPE_CHECKING:
    from d2k.analyzers.cuda.scope import ClassInstance, Unit
    from d2k.analyzers.cuda.values import Obj, Thing


@dataclass(eq=False, slots=True)
class Frame:
    """`scopes` run from the function's template arguments to the innermost block. `parent` is where a lambda stands."""

    unit: Unit
    scopes: list[dict[str, Thing]]
    namespace: str = ""
    this: Obj | None = None
    instance: ClassInstance | None = None
    parent: Frame | None = None
    returns: list[tuple[tuple[Guard, ...], Thing]] = field(default_factory=list)
    guards: tuple[Guard, ...] = ()
    name: str = ""
