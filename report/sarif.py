"""SARIF 2.1.0: a log of one run, from results that know their places."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from d2k import __version__

Json = dict[str, object]


def log(rules: Sequence[Json], results: Sequence[Json], properties: Json | None = None) -> str:
    """The text of a log. A result names its rule by `ruleId`."""
    numbers = {rule["id"]: index for index, rule in enumerate(rules)}
    run: Json = {
        "tool": {"driver": {"name": "d2kc", "version": __version__, "rules": list(rules)}},
        "columnKind": "unicodeCodePoints",
        "results": [{**one, "ruleIndex": numbers[one["ruleId"]]} for one in results],
    }
    if properties:
        run["properties"] = properties
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def location(path: str, line: int, end_line: int, message: str = "") -> Json:
    """Whole lines of a file, counted from 1."""
    region = {"startLine": line, "endLine": end_line}
    found: Json = {"physicalLocation": {"artifactLocation": {"uri": uri(path)}, "region": region}}
    if message:
        found["message"] = {"text": message}
    return found


def uri(path: str) -> str:
    """A relative reference, or a `file:` URI for an absolute path."""
    return Path(path).as_uri() if Path(path).is_absolute() else quote(path.replace("\\", "/"), errors="replace")
