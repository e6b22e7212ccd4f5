"""The task that a command line names: the id of one that comes with d2kc, a `.d2k` file, its folder, compiled JSON."""

from __future__ import annotations

import stat
from difflib import get_close_matches
from pathlib import Path

import click

import d2k
from d2k.cli.failure import InputError
from d2k.cli.inputs import read_bytes, shown
from d2k.spec.task import Task

ROOT = Path(d2k.__file__).parent / "tasks"
FILE = "task.d2k"


def known_tasks() -> tuple[str, ...]:
    """Ids of the tasks that come with d2kc."""
    return tuple(sorted(one.parent.name for one in ROOT.glob(f"*/{FILE}")))


def task_file(name: str) -> Path:
    """The file that `name` stands for. Raises InputError."""
    if not name:
        raise InputError("the name of the task is empty. Is a variable of the shell not set?")
    if _is_file(name):
        return Path(name)
    if _is_file(f"{name}/{FILE}"):
        return Path(name) / FILE
    if name in known_tasks():
        return ROOT / name / FILE
    near = get_close_matches(name, known_tasks(), n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"Known tasks: {', '.join(known_tasks())}."
    raise InputError(f"there is no task `{name}`, nor a file of that name. {hint}")


def _is_file(name: str) -> bool:
    """Whether there is something to read: a file, or a pipe that the shell made. Never a device or a folder."""
    try:
        mode = Path(name).stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def load(name: str) -> Task:
    """The compiled task. Its diagnostics go to standard error; an error among them raises InputError."""
    path = task_file(name)
    if path.suffix == ".json":
        return _from_json(path)
    from d2k.compiler.compile import compile_parsed
    from d2k.compiler.parse import parse_bytes

    compiled = compile_parsed(parse_bytes(read_bytes(str(path)), shown(str(path))), path.parent)
    if compiled.task is None:
        from d2k.report.diagnostics import render

        click.echo(render(compiled.diagnostics, "human", False), err=True)
        raise InputError(f"`{path}` has errors; `d2kc check {path}` shows them.")
    return compiled.task


def _from_json(path: Path) -> Task:
    from d2k.spec.validate import InvalidJson, read_record

    try:
        return read_record(read_bytes(str(path)), "task", Task)
    except InvalidJson as error:
        problems = "\n  ".join(error.problems)
        raise InputError(f"`{path}` is no compiled task:\n  {problems}") from error
