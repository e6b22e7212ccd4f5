"""What `d2kc analyze` prints, in each form."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from d2k.analyzers.analyze import Options
from d2k.cli import analysis
from d2k.cli.failure import InputError
from d2k.cli.inputs import STDIN, expand
from d2k.cli.outputs import colour, width
from d2k.cli.selection import selected

SECONDS_BETWEEN_LOOKS = 0.3


@dataclass(frozen=True, slots=True)
class Rendering:
    """How to show a report: `form` is human, json, sarif or github; `only` and `skip` select properties.

    `every` absent property is shown with its reason, as are those that were asked for by `only`.
    """

    form: str
    only: str | None
    skip: str | None
    diff: bool
    out: str | None
    every: bool = False


def rendered(names: Sequence[str], options: Options, how: Rendering) -> str:
    """The report on the files that `names` stand for, as text. Raises InputError."""
    report = analysis.whole(analysis.files(names, options), options)
    if how.form == "json":
        import msgspec

        # the contract has an entry for every property: a selection is for people
        return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    report = selected(report, how.only, how.skip)
    paint = colour() and how.out is None
    if how.diff:
        from d2k.report.terminal import render_report_diff

        if len(report.files) != 2:
            raise InputError(f"--diff compares two files; {len(report.files)} were named.")
        return render_report_diff(report, paint, width())
    if how.form == "human":
        from d2k.report.terminal import render_report

        return render_report(report, paint, width(), how.every or how.only is not None)
    from d2k.report.findings import render

    return render(report, how.form)


def watched(names: Sequence[str], options: Options, how: Rendering) -> Iterator[str]:
    """The report now and after every change of a file; endless. Raises InputError if there is nothing to watch."""
    if STDIN in names:
        raise InputError("--watch looks at files; standard input is none.")
    seen: dict[str, float] = {}
    while True:
        now = {path: Path(path).stat().st_mtime for path in expand(names, analysis.SUFFIXES)}
        if now != seen:
            seen = now
            yield rendered(names, options, how)
        time.sleep(SECONDS_BETWEEN_LOOKS)
