"""Validation of JSON from outside against the schemas in `spec/schemas`.

jsonschema is imported only here and only when asked for: it takes longer to load than a task takes to compile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

RecordT = TypeVar("RecordT", bound=msgspec.Struct)

KINDS = ("task", "vocabulary", "report", "audit")
"""The schemas that exist: a compiled task, the vocabulary, an analysis report, an audit."""

_MOST_PROBLEMS = 20


class InvalidJson(Exception):
    """JSON that is not what its reader was told; `problems` are sentences, each with its place in the document."""

    def __init__(self, kind: str, problems: tuple[str, ...]) -> None:
        super().__init__(f"not a valid {kind}: {problems[0]}")
        self.kind = kind
        self.problems = problems


def read_record(data: bytes, kind: str, record: type[RecordT]) -> RecordT:
    """The record that `data` holds, after validation against the schema `kind`; raises `InvalidJson`."""
    try:
        document: Json = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidJson(kind, (f"this is no JSON: {error}",)) from None
    problems = tuple(find_problems(document, kind))
    if problems:
        raise InvalidJson(kind, problems)
    try:
        return msgspec.convert(document, record)
    except msgspec.ValidationError as error:
        raise InvalidJson(kind, (str(error),)) from None


def find_problems(document: Json, kind: str) -> Iterator[str]:
    """What is wrong with a decoded document, at most twenty sentences; nothing if it is valid."""
    errors = sorted(_validator(kind).iter_errors(document), key=lambda error: [str(step) for step in error.path])
    for error in errors[:_MOST_PROBLEMS]:
        place = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
        yield f"{place}: {_shorten(error.message)}"


def schema(kind: str) -> dict[str, object]:
    """The JSON Schema (draft 2020-12) of one kind."""
    return msgspec.json.decode(
        files("d2k.spec").joinpath("schemas", f"{kind}.json").read_bytes(), type=dict[str, object]
    )


@cache
def _validator(kind: str) -> Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema(kind))


def _shorten(message: str) -> str:
    return message if len(message) <= 200 else message[:120] + " … " + message[-70:]
