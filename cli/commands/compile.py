"""`d2kc compile TASK`."""

from __future__ import annotations

import click

from d2k.cli.options import out_option


@click.command(short_help="Compile a task to validated JSON.")
@click.argument("task", metavar="TASK")
@out_option
def command(task: str, out: str | None) -> None:
    """Compile a task to JSON: everything evaluated for every workload, with the language version and a content hash.

    TASK is a .d2k file, its folder, or the id of a task that comes with d2kc.

    \b
    d2kc compile gemm_bias_gelu | jq '.workloads[].flops'
    d2kc compile task.d2k -o task.json
    """
    from d2k.cli.outputs import emit
    from d2k.cli.tasks import load
    from d2k.compiler.compile import to_json

    emit(to_json(load(task)).decode(), out)
