"""JSON from outside is held against the committed schemas, which are those of the records."""

from __future__ import annotations

from importlib.resources import files

import msgspec
import pytest
from jsonschema import Draft202012Validator

from d2k.spec.make_schemas import RECORDS, make_schema
from d2k.spec.validate import KINDS, InvalidJson, find_problems, read_record, schema
from d2k.spec.vocabulary import Vocabulary, vocabulary


@pytest.mark.parametrize("kind", KINDS)
def test_committed_schemas_are_those_of_the_records(kind: str) -> None:
    committed = files("d2k.spec").joinpath("schemas", f"{kind}.json").read_bytes()
    assert committed == make_schema(kind), "run `python -m d2k.spec.make_schemas`"
    assert schema(kind)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema(kind))


def test_every_record_has_a_kind() -> None:
    assert set(KINDS) == set(RECORDS)


def test_a_valid_document_is_read() -> None:
    words = vocabulary()
    assert read_record(msgspec.json.encode(words), "vocabulary", Vocabulary) == words


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "this is no JSON"),
        (b"{", "this is no JSON"),
        (b"\xff\xfe", "this is no JSON"),
        (b"[" * 100_000, "this is no JSON"),
        (b"[]", "$: [] is not of type 'object'"),
        (b'{"schema": "s", "language_version": 1, "content_hash": ""}', "$: 'properties' is a required property"),
        (
            b'{"schema": "s", "language_version": "1", "content_hash": "", "properties": []}',
            "$.language_version: '1' is not of type 'integer'",
        ),
        (
            b'{"schema": "s", "language_version": 1, "content_hash": "", "properties": [{"id": 3}]}',
            "$.properties[0]",
        ),
        (
            b'{"schema": "s", "language_version": 1, "content_hash": "", "properties": [], "more": 1}',
            "$: Additional properties are not allowed ('more' was unexpected)",
        ),
    ],
)
def test_an_invalid_document_is_refused_with_its_place(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidJson) as error:
        read_record(data, "vocabulary", Vocabulary)
    assert any(one.startswith(problem) for one in error.value.problems)


def test_long_lists_of_problems_and_long_values_are_cut() -> None:
    document: list[object] = [{"id": "x" * 10_000}] * 1000
    problems = list(
        find_problems(
            {"schema": "s", "language_version": 1, "content_hash": "", "properties": document},  # type: ignore[dict-item]
            "vocabulary",
        )
    )
    assert 0 < len(problems) <= 20
    assert max(map(len, problems)) < 300
