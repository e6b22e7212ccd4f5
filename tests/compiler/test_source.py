"""Reading bytes as text, and places in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2k.compiler.source import MAX_BYTES, Source, Span, read


@pytest.mark.parametrize(
    "data",
    [
        b"a\nb\n",
        b"a\r\nb\r\n",
        b"a\rb\r",
        b"\xef\xbb\xbfa\nb\n",
        b"\xef\xbb\xbfa\r\nb\n",
    ],
    ids=["unix", "dos", "old mac", "byte-order mark", "mark and mixed ends"],
)
def test_every_form_of_line_end_reads_as_the_same_text(data: bytes) -> None:
    source = read("x.d2k", data)
    assert source.text == "a\nb\n"
    assert source.fault is None


def test_a_byte_that_is_no_utf8_is_found_where_it_stands() -> None:
    # two lines of text, then a Latin-1 e with acute after two characters
    source = read("x.d2k", "ä\nä\n".encode() + b"ab\xe9cd\n")
    assert source.fault is not None
    assert source.fault.code == "D2K0101"
    assert source.place(source.fault.offset) == (3, 3)
    assert source.fault.details["problem"] == "byte 0xE9"


def test_a_byte_behind_dos_line_ends_is_found_on_its_line() -> None:
    source = read("x.d2k", b"a\r\nb\r\n\xff")
    assert source.fault is not None
    assert source.place(source.fault.offset) == (3, 1)


@pytest.mark.parametrize("mark", ["utf-16-le", "utf-16-be"])
def test_utf16_is_named(mark: str) -> None:
    source = read("x.d2k", "\ufeffd2k 1".encode(mark))
    assert source.fault is not None
    assert "UTF-16" in source.fault.details["problem"]


@pytest.mark.parametrize("data", [b"d2k 1\n\0", b"d2k 1\n\0\xff"], ids=["text", "no text"])
def test_a_null_character_means_binary(data: bytes) -> None:
    source = read("x.d2k", data)
    assert source.fault is not None
    assert source.fault.code == "D2K0103"
    assert source.place(source.fault.offset) == (2, 1)


def test_a_large_file_is_refused_unread() -> None:
    assert read("x.d2k", b" " * MAX_BYTES).fault is None
    source = read("x.d2k", b" " * (MAX_BYTES + 1))
    assert source.fault is not None
    assert source.fault.code == "D2K0102"
    assert source.text == ""


def test_places_count_from_one_and_tabs_as_one_column() -> None:
    source = Source("x", "ab\n\n\tc")
    assert source.place(0) == (1, 1)
    assert source.place(2) == (1, 3)  # the line end belongs to its line
    assert source.place(3) == (2, 1)
    assert source.place(5) == (3, 2)
    assert source.place(99) == (3, 3)
    assert [source.line(number) for number in (0, 1, 2, 3, 4)] == ["", "ab", "", "\tc", ""]


def test_an_empty_text_has_one_empty_line() -> None:
    source = Source("x", "")
    assert source.place(0) == (1, 1)
    assert source.line(1) == ""


def test_a_span_knows_its_text_and_both_ends() -> None:
    span = Span(1, 4, Source("x", "ab\ncd"))
    assert span.text == "b\nc"
    assert (span.line, span.column) == (1, 2)
    assert span.end_place == (2, 2)


@given(st.text(alphabet="ab\n\t", max_size=60), st.integers(0, 60))
def test_line_and_column_lead_back_to_the_offset(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    line, column = Source("x", text).place(offset)
    lines = text.split("\n")
    assert sum(len(one) + 1 for one in lines[: line - 1]) + column - 1 == offset
    assert column <= len(lines[line - 1]) + 1


@given(st.binary(max_size=200))
def test_reading_never_raises(data: bytes) -> None:
    source = read("x.d2k", data)
    assert "\r" not in source.text or source.fault is not None
