"""Writes `spec/schemas/*.json` from the records. Run `python -m d2k.spec.make_schemas` after changing a record."""

from __future__ import annotations

from pathlib import Path

import msgspec

from d2k.spec.audit import Audit
from d2k.spec.finding import Report
from d2k.spec.task import Task
from d2k.spec.vocabulary import Vocabulary

RECORDS: dict[str, type[msgspec.Struct]] = {"task": Task, "vocabulary": Vocabulary, "report": Report, "audit": Audit}


def make_schema(kind: str) -> bytes:
    """The JSON Schema of a kind, as it stands in its file."""
    body = msgspec.json.schema(RECORDS[kind])
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:d2k:{kind}:1"}
    return msgspec.json.format(msgspec.json.encode(head | body), indent=2) + b"\n"


def main() -> None:
    folder = Path(__file__).parent / "schemas"
    folder.mkdir(exist_ok=True)
    for kind in RECORDS:
        (folder / f"{kind}.json").write_bytes(make_schema(kind))


if __name__ == "__main__":
    main()
