"""`d2kc graph TASK`."""

from __future__ import annotations

import click

from d2k.cli.options import out_option


@click.command(short_help="Draw the guidance of a task.")
@click.argument("task", metavar="TASK")
@click.option(
    "--format", "form", type=click.Choice(["svg", "dot", "mermaid"]), default="svg", show_default=True, help="Form."
)
@click.option("--svg", "form", flag_value="svg", hidden=True)
@click.option("--dot", "form", flag_value="dot", hidden=True)
@click.option("--mermaid", "form", flag_value="mermaid", hidden=True)
@out_option
def command(task: str, form: str, out: str | None) -> None:
    """Draw the guidance of a task: what each item requires, level by level.

    \b
    d2kc graph attn_prefill_gqa -o graph.svg
    d2kc graph task.d2k --format mermaid
    """
    from d2k.cli.outputs import emit
    from d2k.cli.tasks import load
    from d2k.report.graph import render

    emit(render(load(task).guidance, form), out)
