"""`d2kc check FILE…`."""

from __future__ import annotations

import click

from d2k.cli.options import out_option


@click.command(short_help="Find mistakes in .d2k files.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--fix", is_flag=True, help="Apply the fixes that messages propose.")
@click.option("--strict", is_flag=True, help="Warnings fail as errors do.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["human", "json", "sarif", "github"]),
    default="human",
    help="Form of the messages.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@out_option
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    fix: bool,
    strict: bool,
    form: str,
    as_json: bool,
    out: str | None,
) -> int:
    """Find mistakes in .d2k files: all that are independent of each other, not the first only.

    FILE is a file, a directory, a glob, or - for standard input. Exit code 1 if there is an error.

    \b
    d2kc check task.d2k
    d2kc check tasks/ --format github
    d2kc check task.d2k --fix
    """
    from d2k.cli.outputs import colour, emit
    from d2k.cli.specs import check, failed, fixed
    from d2k.report.diagnostics import render

    results = fixed(files) if fix else check(files)
    diagnostics = tuple(one for result in results for one in result.diagnostics)
    form = "json" if as_json else form
    text = render(diagnostics, form, colour() and out is None, files=len(results))
    if not diagnostics and form == "human":
        text = f"{len(results)} file{'s' if len(results) != 1 else ''}: nothing to report"
    emit(text, out)
    return 1 if failed(diagnostics, strict) else 0
