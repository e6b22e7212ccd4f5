"""Skeletons that `d2kc new` writes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from d2k.cli.failure import InputError
from d2k.cli.outputs import write

SKELETONS = files("d2k.cli") / "skeletons"


def make_task(name: str, parent: Path) -> tuple[Path, ...]:
    """Write the files of a new task into `parent / name`; nothing that exists is touched. Raises InputError."""
    _check_name(name)
    folder = parent / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise InputError(f"`{folder}` exists already. Choose another name, or remove it.") from error
    except OSError as error:
        raise InputError(f"cannot make the folder `{folder}`: {error.strerror}.") from error
    written: list[Path] = []
    for skeleton in sorted((SKELETONS / "task").iterdir(), key=lambda one: one.name):
        if skeleton.is_file():
            text = skeleton.read_text(encoding="utf-8").replace("task NAME {", f"task {name} {{")
            write(folder / skeleton.name, text)
            written.append(folder / skeleton.name)
    return tuple(written)


def property_text(name: str, level: str) -> str:
    """The declaration and the detector of a new property. Raises InputError."""
    _check_name(name)
    text = (SKELETONS / "property.txt").read_text(encoding="utf-8")
    return text.replace("NAME LEVEL", f"{name} {level}").replace("NAME", name).replace("TITLE", name.replace("_", " "))


def _check_name(name: str) -> None:
    if not name.isidentifier() or not name.isascii():
        raise InputError(f"`{name}` is no name: letters, digits and `_`, beginning with a letter.")
