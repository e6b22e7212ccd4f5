"""Annotations that GitHub shows beside the lines of a change: one workflow command a message."""

from __future__ import annotations

from collections.abc import Mapping


def annotation(command: str, path: str, line: int, end_line: int, title: str, message: str) -> str:
    """`command` is `error`, `warning` or `notice`; lines count from 1."""
    properties = {"file": path, "line": str(line), "endLine": str(end_line), "title": title}
    return workflow_command(command, properties, message)


def workflow_command(command: str, properties: Mapping[str, str], message: str) -> str:
    pairs = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {pairs}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
