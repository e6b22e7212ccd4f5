"""A detector with a bug takes nothing but its own property down."""

from __future__ import annotations

import pytest

from d2k.analyzers.analyze import Options, read
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.engine import STRICT, findings
from d2k.analyzers.properties import tma_bulk_copy
from d2k.spec.finding import Status
from tests.cli.conftest import KERNEL


def test_a_bug_in_one_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(tma_bulk_copy, "detect", broken)
    view = ProgramView(read("kernel.py", KERNEL, Options()), "sm_100a")
    with pytest.raises(IndexError):
        findings(view)
    monkeypatch.delenv(STRICT)
    found = {one.id: one for one in findings(view)}
    assert found["tma_bulk_copy"].status is Status.UNKNOWN
    assert found["tma_bulk_copy"].why is not None and "internal error" in found["tma_bulk_copy"].why.detail
    assert found["cache_policy_hint"].status is Status.PRESENT
