"""`d2kc analyze FILE…`."""

from __future__ import annotations

import click

from d2k.cli.options import entry_option, include_option, json_option, out_option, target_option


@click.command(short_help="Say which design properties a kernel implements.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@target_option
@entry_option
@include_option
@click.option(
    "--only", metavar="IDS", help="Show only these properties or levels: L3, tma_bulk_copy,… JSON always has all."
)
@click.option("--skip", metavar="IDS", help="Leave out these properties or levels.")
@click.option("--all", "every", is_flag=True, help="Say of every absent property why it is absent.")
@click.option("--diff", is_flag=True, help="Compare the designs of two files.")
@click.option("--watch", is_flag=True, help="Analyse again whenever a file is saved; stop with Ctrl-C.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["human", "json", "sarif", "github"]),
    default="human",
    help="Form of the output.",
)
@json_option
@out_option
def command(
    files: tuple[str, ...],
    target: str,
    entry: str,
    include: tuple[str, ...],
    only: str | None,
    skip: str | None,
    every: bool,
    diff: bool,
    watch: bool,
    form: str,
    as_json: bool,
    out: str | None,
) -> None:
    """Say which design properties a kernel implements, with evidence.

    FILE is a Python or CUDA file, a directory, a glob, or - for standard input.

    \b
    d2kc analyze kernel.py
    d2kc analyze src/ '*.cu' --only L3
    d2kc analyze kernel.py --target sm_90a --json | jq '.files[0].properties'
    cat kernel.py | d2kc analyze -
    d2kc analyze --diff before.py after.py
    """
    from d2k.analyzers.analyze import Options
    from d2k.cli.analysis import target as known_target
    from d2k.cli.outputs import emit
    from d2k.cli.reports import Rendering, rendered, watched

    options = Options(known_target(target), entry, include)
    rendering = Rendering("json" if as_json else form, only, skip, diff, out, every)
    for text in watched(files, options, rendering) if watch else (rendered(files, options, rendering),):
        emit(text, out)
