"""What cannot be a constant is told without following it, and never said of what is one."""

from __future__ import annotations

import pytest
from cuda_facts import body_of

from d2k.analyzers.core.fold import fold, foldable
from d2k.spec.facts import Kind


@pytest.mark.parametrize(
    ("expression", "constant"),
    [("3 * 4 + 1", 13), ("3 * n", None), ("(n + 1) * 0", None), ("x[0] + 1", None), ("7 > 3 ? 2 : 1", 2)],
)
def test_only_what_rests_on_constants_folds(expression: str, constant: int | None) -> None:
    view = body_of(f"y[0] = {expression};")
    store = view.values(Kind.STORE)[0]
    assert view.fold(view.op(store).args[1]) == constant


def test_whatever_folds_is_foldable() -> None:
    view = body_of("for (int i = 0; i < 4 * 8; ++i) y[i + (n == 3)] = x[i] * (2 + 3) - 0x10 / 4 + (n != 0 ? 1 : 2);")
    told = foldable(view.body)
    for value in range(len(view.body.ops)):
        for constants in ({}, {"n": 3}):
            assert told[value] or fold(view.body, value, constants) is None
