"""`d2kc fmt FILE…`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Write .d2k files in canonical form.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit code 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Print what would change instead of changing it.")
def command(files: tuple[str, ...], only_check: bool, diff: bool) -> int:
    """Write .d2k files in canonical form; comments stay. With - it formats standard input to standard output.

    \b
    d2kc fmt task.d2k
    d2kc fmt tasks/ --check
    """
    from d2k.cli.formatting import changes
    from d2k.cli.inputs import STDIN
    from d2k.cli.outputs import write

    code = 0
    for one in changes(files):
        if one.problem:
            click.echo(one.problem, err=True)
            code = 1
        elif one.path == STDIN and not only_check and not diff:
            click.echo(one.after, nl=False)
        elif one.before != one.after:
            code = max(code, 1 if only_check else 0)
            if diff:
                click.echo(one.diff(), nl=False)
            elif only_check:
                click.echo(f"would change {one.path}")
            else:
                write(Path(one.path), one.after)
                click.echo(f"formatted {one.path}", err=True)
    return code
