"""The reference implementation passes the conformance suite; see README.md there."""

from __future__ import annotations

from pathlib import Path

import pytest

from d2k.compiler.format import format_parsed, format_text
from d2k.compiler.parse import Parsed, parse, parse_bytes
from d2k.compiler.syntax import without_spans

HERE = Path(__file__).parent
VALID = sorted((HERE / "valid").glob("*.d2k"))
INVALID = sorted((HERE / "invalid").glob("*.d2k"))


def read(path: Path) -> Parsed:
    return parse_bytes(path.read_bytes(), path.name)


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_valid_file_has_its_canonical_form(path: Path) -> None:
    parsed = read(path)
    canonical = path.with_suffix(".canonical").read_text(encoding="utf-8")
    assert parsed.diagnostics == ()
    assert format_parsed(parsed) == canonical
    assert format_text(canonical) == canonical
    assert without_spans(parse(canonical, "").tree) == without_spans(parsed.tree)


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_an_invalid_file_has_exactly_its_diagnostics(path: Path) -> None:
    found = [f"{one.code} {one.span.line}" for one in read(path).diagnostics]
    assert found == path.with_suffix(".expected").read_text(encoding="utf-8").splitlines()
