"""Reading and checking the `.d2k` files named on a command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from d2k.cli.inputs import STDIN, expand, read_bytes, shown
from d2k.compiler.compile import check_parsed
from d2k.compiler.diagnostics import Diagnostic, Severity
from d2k.compiler.fixes import apply
from d2k.compiler.parse import Parsed, parse_bytes

SUFFIXES = (".d2k",)


@dataclass(frozen=True, slots=True)
class Checked:
    """One file and what there is to say about it."""

    path: str
    parsed: Parsed
    diagnostics: tuple[Diagnostic, ...]


def read(path: str) -> Parsed:
    """The parsed file. Raises InputError if it cannot be read."""
    return parse_bytes(read_bytes(path), shown(path))


def check(names: Sequence[str]) -> tuple[Checked, ...]:
    """Check the files that `names` stand for."""
    return tuple(_check(path) for path in expand(names, SUFFIXES))


def _check(path: str) -> Checked:
    parsed = read(path)
    folder = Path() if path == STDIN else Path(path).parent
    return Checked(path, parsed, check_parsed(parsed, folder))


def fixed(names: Sequence[str]) -> tuple[Checked, ...]:
    """Apply the proposed fixes to the files, and check what became of them."""
    from d2k.cli.failure import InputError
    from d2k.cli.outputs import write

    if STDIN in names:
        raise InputError("--fix changes files; standard input is none.")
    for one in check(names):
        text, count = apply(one.parsed.source.text, one.diagnostics)
        if count:
            write(Path(one.path), text)
    return check(names)


def failed(diagnostics: Iterable[Diagnostic], strict: bool) -> bool:
    """Whether the diagnostics make a check fail."""
    fatal = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    return any(one.severity in fatal for one in diagnostics)
