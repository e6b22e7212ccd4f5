"""`d2kc new task NAME`, `d2kc new property NAME`."""

from __future__ import annotations

from pathlib import Path

import click


@click.group(short_help="Start a task or a property from a skeleton.")
def command() -> None:
    """Start a task or a property from a skeleton that passes `d2kc check`.

    \b
    d2kc new task my_gemm
    d2kc new property my_trick --level L3
    """


@command.command("task")
@click.argument("name")
@click.option("--folder", default=".", metavar="DIR", show_default=True, help="Make the task's folder in DIR.")
def task(name: str, folder: str) -> None:
    """Make a folder NAME with task.d2k, reference.py, baseline.py and naive.py, all of which run as they are."""
    from d2k.cli.skeleton import make_task

    for path in make_task(name, Path(folder)):
        click.echo(f"wrote {path}")
    made = Path(folder) / name
    click.echo(f"\nNext: edit {made / 'task.d2k'}, then")
    click.echo(f"  d2kc check {made}")
    click.echo(f"  d2kc audit {made / 'naive.py'} --task {made}")


@command.command("property")
@click.argument("name")
@click.option("--level", type=click.Choice(["L1", "L2", "L3"]), default="L3", show_default=True)
def new_property(name: str, level: str) -> None:
    """Print a property's declaration and its detector file, to be put where CONTRIBUTING.md says."""
    from d2k.cli.skeleton import property_text

    click.echo(property_text(name, level), nl=False)
