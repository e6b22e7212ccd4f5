"""`d2kc analyze FILE…`."""

from __future__ import annotations

import click

from d2k.cli.options import entry_option, include_option, json_option, out_option, target_option


@click.command(short_help="Say which design properties a kernel implements.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@target_option
@entry_option
@include_option
@click.option("--only", metavar="IDS", help="Show only these properties or levels: L3, tma_bulk_copy,…")
@click.option("--skip", metavar="IDS", help="Leave out these properties or levels.")
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
    """
    import msgspec

    from d2k.analyzers.analyze import Options
    from d2k.cli import analysis
    from d2k.cli.outputs import colour, emit, width
    from d2k.cli.selection import selected

    options = Options(analysis.target(target), entry, include)
    analysed = analysis.files(files, options)
    report = analysis.whole(analysed, options)
    if as_json or form == "json":
        # the contract has an entry for every property: a selection is for people
        emit(msgspec.json.format(msgspec.json.encode(report), indent=2).decode(), out)
        return
    report = selected(report, only, skip)
    if form == "human":
        from d2k.report.terminal import render_report

        emit(render_report(report, colour() and out is None, width()), out)
        return
    from d2k.report.findings import render

    emit(render(report, form), out)
