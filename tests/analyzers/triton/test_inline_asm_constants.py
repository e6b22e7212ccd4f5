"""Immediates of inline PTX are operands: integers, decimals and the bits of floats."""

from __future__ import annotations

import pytest

from d2k.analyzers.triton.inline_asm import _constant


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("16", 16),
        ("0x10", 16),
        ("-3", -3),
        ("20.0", 20.0),
        ("-.5", -0.5),
        ("0f3F800000", 1.0),
        ("0d3FF0000000000000", 1.0),
    ],
)
def test_immediates(text: str, value: float) -> None:
    assert _constant(text) == value


@pytest.mark.parametrize("text", ["%r1", "$0", "[%rd1]", "f", "0f12"])
def test_registers_are_none(text: str) -> None:
    assert _constant(text) is None
