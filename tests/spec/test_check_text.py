"""Checks as canonical text."""

from __future__ import annotations

import pytest

from d2k.spec.check import AllKernels, And, Check, Filter, Not, Op, Or, Term
from d2k.spec.check_text import render

A, B, C = Term("a"), Term("b"), Term("c")


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (A, "a"),
        (Term("a", (Filter("x", Op.GE, (3,)), Filter("y", Op.EQ, (True,)))), "a(x >= 3, y = true)"),
        (Term("a", (Filter("x", Op.IN, ("p",)),)), "a(x in {p})"),
        (Term("a", (Filter("x", Op.HAS, ("p",)),)), "a(x has p)"),
        (Term("a", (Filter("x", Op.HAS, ("p", "q")),)), "a(x has {p, q})"),
        (And((A, B, C)), "a and b and c"),
        (And((A, Or((B, C)))), "a and (b or c)"),
        (Or((And((A, B)), C)), "a and b or c"),
        (And((A, Not(B))), "a and not b"),
        (And((A, Not(Or((B, C))))), "a and not (b or c)"),
        (AllKernels(Or((A, B))), "all_kernels:(a or b)"),
    ],
)
def test_render(check: Check, text: str) -> None:
    assert render(check) == text
