"""Settings of every test."""

from __future__ import annotations

import pytest

from d2k.analyzers.engine import STRICT


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a detector fails the test; users get `unknown` and a warning instead."""
    monkeypatch.setenv(STRICT, "1")
