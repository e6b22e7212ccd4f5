"""`d2kc audit FILE… --task T`."""

from __future__ import annotations

import click

from d2k.cli.options import include_option, json_option, out_option


@click.command(short_help="Score a kernel against the guidance of a task.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--task", "task_name", required=True, metavar="TASK", help="Task id, .d2k file, folder or compiled JSON.")
@click.option("--target", metavar="ARCH", help="Architecture; by default the first of the task's targets.")
@click.option("--workload", metavar="NAME", help="Judge on this workload only.")
@click.option("--entry", default=None, metavar="NAME", help="Entry function; by default the task's, where it exists.")
@include_option
@click.option("--why", metavar="ITEM", help="Unfold one guidance item: its check term by term, and its evidence.")
@click.option("--fail-under", type=click.FloatRange(0, 100), metavar="N", help="Exit code 1 if the score is below N.")
@click.option("--diff", is_flag=True, help="Judge two files as two submissions and show what differs.")
@click.option("--html", "html", metavar="FILE", help="Write a self-contained page as well.")
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
    task_name: str,
    target: str | None,
    workload: str | None,
    entry: str | None,
    include: tuple[str, ...],
    why: str | None,
    fail_under: float | None,
    diff: bool,
    html: str | None,
    form: str,
    as_json: bool,
    out: str | None,
) -> int:
    """Score a kernel against the guidance of a task: what is implemented, and why the rest is not.

    Several FILEs are one submission. Nothing is executed.

    \b
    d2kc audit kernel.py --task attn_prefill_gqa
    d2kc audit kernel.py --task task.d2k --why pipeline
    d2kc audit kernel.cu --task gemm_bias_gelu --target sm_90a --json
    d2kc audit kernel.py --task attn_prefill_gqa --html audit.html --fail-under 60
    d2kc audit before.py after.py --task attn_prefill_gqa --diff
    """
    from d2k.cli.audits import judge, page
    from d2k.cli.outputs import colour, emit, width

    if diff:
        from d2k.cli.failure import InputError
        from d2k.report.terminal import render_audit_diff

        if len(files) != 2:
            raise InputError(f"--diff compares two files; {len(files)} were named.")
        first, second = (judge((file,), task_name, target, workload, entry, include).audit for file in files)
        emit(render_audit_diff(first, second, colour() and out is None, width()), out)
        return 0
    judged = judge(files, task_name, target, workload, entry, include)
    if html is not None:
        emit(page(judged), html)
    if as_json or form == "json":
        import msgspec

        emit(msgspec.json.format(msgspec.json.encode(judged.audit), indent=2).decode(), out)
    elif form == "human":
        from d2k.report.terminal import render_audit

        judged.check_item(why)
        paint = colour() and out is None
        emit(render_audit(judged.audit, judged.sources, paint, width(), why=why, task=judged.task), out)
    else:
        from d2k.report.findings import render_audit_findings

        emit(render_audit_findings(judged.audit, form), out)
    score = judged.audit.score.combined
    # nan is in every range of numbers and below none
    return 1 if fail_under is not None and not (score is not None and score >= fail_under) else 0
