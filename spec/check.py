"""A check: the machine-readable half of a guidance item, in terms of design properties.

A check has no places in a source file; the compiler's syntax tree keeps those.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

AttributeValue = bool | int | str
"""A single value of an attribute: `true`, `128` or an enumeration word such as `causal`."""


class Op(StrEnum):
    """How a filter compares the found attribute with the wanted values."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    HAS = "has"


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`stages >= 3`, `policy in {a, b}`, `ops has {bias, gelu}`: one attribute against one or more values."""

    attribute: str
    op: Op
    values: tuple[AttributeValue, ...]


class Term(msgspec.Struct, frozen=True, tag="term", forbid_unknown_fields=True):
    """A property that must be present, with filters that must hold for one and the same finding."""

    property: str
    filters: tuple[Filter, ...] = ()


class And(msgspec.Struct, frozen=True, tag="and", forbid_unknown_fields=True):
    parts: tuple[Check, ...]


class Or(msgspec.Struct, frozen=True, tag="or", forbid_unknown_fields=True):
    parts: tuple[Check, ...]


class Not(msgspec.Struct, frozen=True, tag="not", forbid_unknown_fields=True):
    """A guard; stands only beside a positive conjunct at the top of a check."""

    part: Check


class AllKernels(msgspec.Struct, frozen=True, tag="all_kernels", forbid_unknown_fields=True):
    """`all_kernels:(…)`: must hold for every launched kernel, of which there is at least one."""

    part: Check


Check = Term | And | Or | Not | AllKernels


def terms(check: Check) -> tuple[Term, ...]:
    """Every term of a check in source order, those under `not` included."""
    match check:
        case Term():
            return (check,)
        case And(parts) | Or(parts):
            return tuple(term for part in parts for term in terms(part))
        case Not(part) | AllKernels(part):
            return terms(part)
