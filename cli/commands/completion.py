"""`d2kc completion SHELL`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(d2kc completion bash)"                                     # in ~/.bashrc
    eval "$(d2kc completion zsh)"                                      # in ~/.zshrc
    d2kc completion fish > ~/.config/fish/completions/d2kc.fish
    """
    from d2k.cli.main import d2kc

    found = get_completion_class(shell)
    if found is not None:
        click.echo(found(d2kc, {}, "d2kc", "_D2KC_COMPLETE").source())
