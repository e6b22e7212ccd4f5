"""`d2kc annotate FILE`."""

from __future__ import annotations

import sys

import click

from d2k.cli.options import entry_option, out_option, target_option


@click.command(short_help="Write findings into a kernel file as comments.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--remove", "removing", is_flag=True, help="Take the comments out again.")
@click.option("--stdout", is_flag=True, help="Print the result instead of changing the file.")
@target_option
@entry_option
@out_option
def command(files: tuple[str, ...], removing: bool, stdout: bool, target: str, entry: str, out: str | None) -> None:
    """Write findings into Python kernel files, as comments above the statements that are their evidence.

    Nothing else changes; --remove restores each file byte for byte.

    \b
    d2kc annotate kernel.py
    d2kc annotate kernel.py --stdout | less
    d2kc annotate kernel.py --remove
    """
    from d2k.cli import annotation
    from d2k.cli.failure import InputError
    from d2k.cli.inputs import STDIN, expand
    from d2k.cli.outputs import write_bytes

    paths = expand(files, (".py",))
    if out is not None and len(paths) > 1:
        raise InputError("--out takes one file; without it each file is changed in place.")
    for path in paths:
        before, after = annotation.annotated(path, removing, target, entry)
        if stdout or path == STDIN:
            sys.stdout.buffer.write(after)
        elif out is not None or before != after:
            write_bytes(out if out is not None else path, after)
