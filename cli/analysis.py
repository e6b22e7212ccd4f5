"""Reading and analysing the kernel files named on a command line; shared by several commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from d2k import __version__
from d2k.analyzers import analyze
from d2k.analyzers.engine import INTERNAL_ERROR
from d2k.cli.failure import InputError
from d2k.cli.inputs import Text, expand, read_kernel
from d2k.cli.outputs import Progress
from d2k.spec.facts import Program
from d2k.spec.finding import FileReport, Report
from d2k.spec.hardware import ARCHITECTURES, compile_target, normalise_architecture
from d2k.spec.vocabulary import Tier

SUFFIXES = (".py", *sorted(analyze.CUDA_SUFFIXES - {".c", ".cc", ".cpp", ".cxx"}))


@dataclass(frozen=True, slots=True)
class Analysed:
    """One file with everything that was made of it."""

    text: Text
    program: Program
    report: FileReport


def files(names: Sequence[str], options: analyze.Options, usual_entry: str = "") -> tuple[Analysed, ...]:
    """Analyse the files that `names` (files, directories, globs, `-`) stand for. Raises InputError.

    `usual_entry` is the entry of each file that has a function of that name; `options.entry` must be in one of them.
    """
    for folder in options.include_dirs:
        if not Path(folder).is_dir():
            raise InputError(f"there is no folder `{folder}` to search headers in.")
    paths = expand(names, SUFFIXES)
    progress = Progress("analysed", len(paths))
    done: list[Analysed] = []
    for path in paths:
        try:
            text = read_kernel(path)
        except InputError as error:
            if path in names:
                raise
            # one that a directory or a glob brought along: the others go on
            click.echo(f"warning: left out: {error}", err=True)
            continue
        program = analyze.read(text.path, text.text, replace(options, entry=options.entry or usual_entry))
        if not options.entry and usual_entry and all(one.name != usual_entry for one in program.functions):
            program = analyze.read(text.path, text.text, options)
        done.append(Analysed(text, program, analyze.report(program, text.text, options)))
        progress.step()
    if not done:
        raise InputError(f"no file can be read in {', '.join(f'`{one}`' for one in names)}.")
    _check_entry(done, options.entry)
    _tell_bugs(done)
    return tuple(done)


def _tell_bugs(done: Sequence[Analysed]) -> None:
    """Say on standard error where a detector failed; its property is unknown, the others are not affected."""
    for one in done:
        for finding in one.report.properties:
            if finding.why is not None and finding.why.detail.startswith(INTERNAL_ERROR):
                click.echo(
                    f"warning: {one.text.path}: {finding.id}: {finding.why.detail}. This is a bug:"
                    f" please report it with the file and the version ({__version__}).",
                    err=True,
                )


def _check_entry(done: Sequence[Analysed], entry: str) -> None:
    if not entry:
        return
    known = [function.name for one in done for function in one.program.functions]
    known += [kernel.name for one in done for kernel in one.program.kernels]
    if entry not in known:
        from difflib import get_close_matches

        near = get_close_matches(entry, known, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else f" Known: {', '.join(known[:8]) or 'none'}."
        raise InputError(f"no function `{entry}` in {', '.join(one.text.path for one in done)}.{hint}")


def target(name: str) -> str:
    """The architecture in its usual spelling (`sm_100a`). Raises InputError."""
    architecture = normalise_architecture(name)
    if architecture is None:
        known = ", ".join(compile_target(one) for one in ARCHITECTURES)
        raise InputError(f"there is no target `{name}`. Known: {known}.")
    return compile_target(architecture)


def whole(analysed: Sequence[Analysed], options: analyze.Options) -> Report:
    """The record that `d2kc analyze --json` prints."""
    return Report(
        schema="urn:d2k:report:1",
        target=options.target,
        tool=f"d2kc {__version__}",
        tiers=(Tier.SOURCE,),
        files=tuple(one.report for one in analysed),
    )
