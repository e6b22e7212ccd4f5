"""`d2kc prompt TASK`."""

from __future__ import annotations

import click

from d2k.cli.options import out_option


@click.command(short_help="Print the brief that an agent is given.")
@click.argument("task", metavar="TASK")
@click.option(
    "--guidance",
    type=click.Choice(["none", "L1", "L1+L2", "full"]),
    default="full",
    show_default=True,
    help="How much of the expert's guidance to include.",
)
@out_option
def command(task: str, guidance: str, out: str | None) -> None:
    """Print the brief that an agent is given: all that somebody needs who has nothing else.

    Two briefs of one task are equal byte for byte outside the guidance section. Checks and held-out workloads
    never appear.

    \b
    d2kc prompt attn_prefill_gqa --guidance none
    d2kc prompt task.d2k --guidance L1+L2 -o prompt.md
    """
    from d2k.cli.outputs import emit
    from d2k.cli.tasks import load
    from d2k.compiler.prompt import prompt

    emit(prompt(load(task), guidance), out)
