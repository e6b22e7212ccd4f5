"""The vocabulary of design properties, as compiled into `vocabulary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files

import msgspec

from d2k.spec.check import Term


class Level(StrEnum):
    """L1 algorithmic insight, L2 dataflow design, L3 low-level trick."""

    L1 = "L1"
    L2 = "L2"
    L3 = "L3"


class Tier(StrEnum):
    """Where a piece of evidence comes from; later members rest on more of the tool chain."""

    SOURCE = "source"
    LAUNCH = "launch"
    IR = "ir"
    PTX = "ptx"
    SASS = "sass"
    PROFILE = "profile"


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attribute of a property.

    `type` is one of `int bool str role enum set`; `members` lists the words of an `enum` or a `set`.
    A `role` names a tensor or an axis of a task; its `members` are the roles that guidance may use.
    """

    name: str
    type: str
    members: tuple[str, ...] = ()
    definition: str = ""


class Property(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One design property.

    `scope` is `kernel` or `program`; `needs` are hardware features (`tma`, `wgmma`, `tcgen05`, …);
    `settled_by` are the tiers that may overrule the others.
    """

    id: str
    level: Level
    title: str
    definition: str
    scope: str
    needs: tuple[str, ...]
    settled_by: tuple[Tier, ...]
    attributes: tuple[Attribute, ...] = ()
    aliases: tuple[str, ...] = ()
    implies: tuple[Term, ...] = ()
    excludes: tuple[str, ...] = ()
    evidence: Mapping[str, str] = {}
    """What shows the property, in a sentence for each language (`triton`, `cuda`)."""

    def attribute(self, name: str) -> Attribute | None:
        return next((one for one in self.attributes if one.name == name), None)


class Vocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    language_version: int
    content_hash: str
    properties: tuple[Property, ...]

    def get(self, identifier: str) -> Property | None:
        return next((one for one in self.properties if one.id == identifier), None)


@cache
def vocabulary() -> Vocabulary:
    """The committed vocabulary; decoding it takes a millisecond, compiling its source would take a second."""
    return msgspec.json.decode(files("d2k.spec").joinpath("vocabulary.json").read_bytes(), type=Vocabulary)
