"""`--only` and `--skip`: properties by id or by level."""

from __future__ import annotations

from d2k.cli.failure import InputError
from d2k.spec.finding import Report
from d2k.spec.vocabulary import Level, vocabulary


def selected(report: Report, only: str | None, skip: str | None) -> Report:
    """`report` with the findings that are wanted. Raises InputError for a name that is neither property nor level."""
    if only is None and skip is None:
        return report
    import msgspec

    wanted = _ids(only) if only is not None else {one.id for one in vocabulary().properties}
    wanted -= _ids(skip or "")
    return msgspec.structs.replace(
        report,
        files=tuple(
            msgspec.structs.replace(one, properties=tuple(found for found in one.properties if found.id in wanted))
            for one in report.files
        ),
    )


def _ids(names: str) -> set[str]:
    known = {one.id: one for one in vocabulary().properties}
    chosen: set[str] = set()
    for name in (one.strip() for one in names.split(",") if one.strip()):
        if name in known:
            chosen.add(name)
        elif name.upper() in Level.__members__:
            chosen |= {one.id for one in known.values() if one.level == name.upper()}
        else:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean `{near[0]}`?" if near else " `d2kc explain` lists them."
            raise InputError(f"there is no property or level `{name}`.{hint}")
    return chosen
