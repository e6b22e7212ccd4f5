"""`d2kc explain WHAT`."""

from __future__ import annotations

import click


@click.command(short_help="Explain a property, a diagnostic or a task.")
@click.argument("what", required=False)
def command(what: str | None) -> None:
    """Explain a property, a diagnostic or a task; without an argument, list what there is.

    \b
    d2kc explain tma_bulk_copy        definition, evidence, examples with their traps, tasks that ask for it
    d2kc explain D2K0312              what the message means, a wrong and a right example
    d2kc explain attn_prefill_gqa     the task and its guidance in short
    d2kc explain library_delegation   a guard
    d2kc explain gated                a word of an audit, or a reason such as wrong_parameter
    """
    from d2k.cli.explanations import explanation

    click.echo(explanation(what).rstrip())
