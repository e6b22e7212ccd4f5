"""`d2kc`: the command table, exit codes, and what happens when something goes wrong."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import click

from d2k import __version__
from d2k.cli.failure import InputError

COMMANDS = {
    "check": "Find mistakes in .d2k files.",
    "fmt": "Write .d2k files in canonical form.",
    "compile": "Compile a task to validated JSON.",
    "prompt": "Print the brief that an agent is given.",
    "graph": "Draw the guidance of a task.",
    "explain": "Explain a property, a diagnostic or a task.",
    "analyze": "Say which design properties a kernel implements.",
    "audit": "Score a kernel against the guidance of a task.",
    "annotate": "Write findings into a kernel file as comments.",
    "new": "Start a task or a property from a skeleton.",
    "completion": "Print the completion script of a shell.",
}

FINE, FINDINGS, USAGE, INTERNAL = 0, 1, 2, 3


class Commands(click.Group):
    """Commands are imported when they are called, so that each starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"d2k.cli.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean `{near[0]}`?" if near else " `d2kc --help` lists the commands."
            raise click.UsageError(f"there is no command `{args[0]}`.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # the table above, so that --help imports no command
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 fine, 1 findings, 2 usage or input error, 3 internal error.",
)
@click.version_option(__version__, prog_name="d2kc")
def d2kc() -> None:
    """How much of an expert's design ends up in a GPU kernel?

    \b
    d2kc analyze kernel.py                       which designs does it implement?
    d2kc audit kernel.py --task attn_prefill_gqa which of the expert's, and why not the others?
    d2kc check task.d2k                          is my task right?
    d2kc explain tma_bulk_copy                   what does that mean?
    """


def main() -> None:
    """Run `d2kc` and exit with its code; a bug ends in a message that says how to report it."""
    for name in ("stdout", "stderr"):
        # a process that was started with a closed stream has None there
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (for the whole run)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Exit code of `d2kc ARGUMENTS`."""
    try:
        result = d2kc.main(arguments, prog_name="d2kc", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else FINE
    except InputError as error:
        click.echo(f"error: {error}", err=True)
        return USAGE
    except click.ClickException as error:
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        # the reader has gone (`d2kc … | head`): nothing is left to say, not even by the interpreter at its exit
        _silence()
        return FINE
    except OSError as error:
        # a full disk behind standard output, a folder that vanished: the surroundings are at fault, not d2kc
        _silence()
        click.echo(f"error: {error.filename or 'standard output'}: {error.strerror or error}.", err=True)
        return USAGE
    except Exception as error:
        return _internal(error, arguments)


def _silence() -> None:
    """Let what is still buffered for standard output go nowhere, so that the exit of the interpreter does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal(error: Exception, arguments: list[str]) -> int:
    import traceback

    if os.environ.get("D2KC_TRACEBACK"):
        traceback.print_exc()
    last = traceback.extract_tb(error.__traceback__)[-1]
    click.echo(
        f"internal error: {type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})\n"
        f"This is a bug in d2kc {__version__}. Please report it with the command\n"
        f"`d2kc {' '.join(arguments)}`, its input, and what it prints with D2KC_TRACEBACK=1 set.",
        err=True,
    )
    return INTERNAL
