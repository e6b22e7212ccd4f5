"""What an analysis found: kernels with their designs, and totals over many files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from d2k.report.layout import cells, clean, count, cut, pad, places, short_paths, wrap
from d2k.report.paint import Paint
from d2k.spec.finding import FileReport, Finding, FoundValue, Instance, KernelSummary, Reason, Report, Status

_MOST_DETAILED = 3
"""Files that are shown whole; of more there is a line each."""
_TITLE = 10
_MOST_NAMES = 12
"""Properties that are named where they are unknown for one reason."""


def render_report(report: Report, colour: bool, width: int, every: bool = False) -> str:
    """A few files with all their findings; of many a line each; and totals where there is more than one.

    Absent properties that left no trace are counted only, unless `every` one is wanted.
    """
    paint = Paint(colour)
    width = max(width, 40)
    lines: list[str] = []
    if len(report.files) <= _MOST_DETAILED:
        for file in report.files:
            lines += [*_file(file, report.target, paint, width, every), ""]
    else:
        lines += [*_table(report.files, paint, width), ""]
    if len(report.files) != 1:
        lines += [*_totals(report, paint, width)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _file(file: FileReport, target: str, paint: Paint, width: int, every: bool) -> Iterator[str]:
    launched = sum(one.launched for one in file.kernels)
    head = f"{file.language}  {count(len(file.kernels), 'kernel')}, {launched} launched"
    path = clean(file.path)
    tail = f"target {target}"
    gap = width - cells(path) - 2 - cells(head) - cells(tail)
    if gap >= 2:
        yield f"{paint.bold(path)}  {head}{' ' * gap}{paint.dim(tail)}"
    else:
        yield paint.bold(cut(path, width))
        yield from (f"  {line}" for line in wrap(f"{head}, {tail}", width - 2))
    names = short_paths([file.path])
    for problem in file.problems:
        where = places(problem.evidence, names)
        yield from _listing("problem", [clean(problem.detail) + (f" ({clean(where)})" if where else "")], paint, width)
    if not file.kernels and not file.problems:
        yield "  no kernel was found in this file"
    for kernel in file.kernels:
        yield from _kernel(file, kernel, paint, width, every)
    yield from _host_design(file, paint, width)
    for guard in file.guards:
        if guard.status == "suspected":
            where = places(guard.evidence, names)
            text = f"{clean(guard.id)} suspected: {clean(guard.detail)}" + (f" ({clean(where)})" if where else "")
            for index, line in enumerate(wrap(text, width - 11)):
                yield f"  {paint.warning('! guard')}  {line}" if index == 0 else " " * 11 + line


def _kernel(file: FileReport, kernel: KernelSummary, paint: Paint, width: int, every: bool) -> Iterator[str]:
    words = [f":{kernel.line}"]
    if len(kernel.configs) > 1:
        words.append(f"{len(kernel.configs)} configs")
    if kernel.launch:
        words.append(clean(kernel.launch))
    if not kernel.launched:
        words.append("no launch in this file" if kernel.reachable else "never launched")
    name = clean(kernel.name)
    text = "  ".join(words)
    if not kernel.reachable:
        yield "  " + paint.dim(cut(f"{name}  {text}", width - 2))
        return
    if cells(name) + 4 + cells(text) <= width:
        yield f"  {paint.bold(name)}  {text}"
    else:
        yield f"  {paint.bold(cut(name, width - 2))}"
        yield from (f"    {line}" for line in wrap(text, width - 4))
    by_status = _of_kernel(file, kernel.name, every)
    yield from _statuses(by_status, paint, width)


def _host_design(file: FileReport, paint: Paint, width: int) -> Iterator[str]:
    """Properties of host code and kernels together."""
    found = [one for one in file.properties if any(instance.kernel == "" for instance in one.instances)]
    if found:
        yield f"  {paint.bold('host code and all kernels')}"
        yield from _statuses(
            [(Status.PRESENT, [_present(one, one.instances, file.path) for one in found])], paint, width
        )


def _of_kernel(file: FileReport, kernel: str, every: bool) -> list[tuple[Status, list[str]]]:
    """Words for every property that was judged for one kernel, by status; of the absent ones the near misses, which
    have a reason of their own or a place in the file, or `every` one.
    """
    present: list[str] = []
    near: list[str] = []
    without = 0
    unknown: dict[str, list[str]] = {}
    for finding in file.properties:
        own = [one for one in finding.instances if one.kernel == kernel]
        if own:
            present.append(_present(finding, own, file.path))
            for name, reason in _undecided(own):
                unknown.setdefault(reason, []).append(f"{finding.id}.{name}")
            continue
        lack = next((one for one in finding.lacks if one.kernel == kernel), None)
        if lack is None and any(one.kernel == "" for one in finding.instances):
            continue
        status = lack.status if lack is not None else finding.status
        why = lack.why if lack is not None else finding.why
        detail = clean(why.detail) if why is not None else ""
        if status is Status.UNKNOWN:
            unknown.setdefault(detail, []).append(finding.id)
        elif why is not None and (why.evidence or why.reason is not Reason.NO_TRACE or (every and detail)):
            near.append(f"{finding.id} ({cut(detail or str(why.reason), 60)})")
        else:
            without += 1
    grouped = [_because(names, reason) for reason, names in unknown.items()]
    rest = (
        [f"{'and ' if near else ''}{without} without a trace{'' if every else ' (--all says why)'}"] if without else []
    )
    return [(Status.PRESENT, present), (Status.ABSENT, near + rest), (Status.UNKNOWN, grouped)]


def _because(names: list[str], reason: str) -> str:
    """Names that are unknown for one reason; of many only how many."""
    shown = ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} properties"
    return f"{shown} ({cut(reason, 90)})" if reason else shown


def _undecided(instances: Iterable[Instance]) -> Iterator[tuple[str, str]]:
    return iter({(name, clean(reason)): None for one in instances for name, reason in one.undecided.items()})


def _present(finding: Finding, instances: list[Instance] | tuple[Instance, ...], path: str) -> str:
    """`output_tiling(block_m 128, block_n {64, 128}):31`, with the first line of the file that shows it."""
    values: dict[str, dict[FoundValue, None]] = {}
    for one in instances:
        for name, value in one.attributes.items():
            values.setdefault(name, {}).setdefault(value)
    words = [f"{name} {_values(list(found))}" for name, found in values.items()]
    lines = [place.line for one in instances for place in one.evidence if place.path == path]
    where = f":{lines[0]}" if lines else ""
    return clean((f"{finding.id}({', '.join(words)})" if words else finding.id) + where)


def _values(found: list[FoundValue]) -> str:
    """The values of an attribute in all instances: `128`, `{64, 128}`; of sets the union."""
    if all(isinstance(one, tuple) for one in found):
        members = dict.fromkeys(word for one in found if isinstance(one, tuple) for word in one)
        return "{" + ", ".join(members) + "}"
    numbers = sorted(one for one in found if isinstance(one, int) and not isinstance(one, bool))
    texts = [str(one) for one in numbers] if len(numbers) == len(found) else [_value(one) for one in found]
    return texts[0] if len(texts) == 1 else "{" + ", ".join(texts) + "}"


def _value(value: FoundValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "{" + ", ".join(value) + "}" if isinstance(value, tuple) else str(value)


def _statuses(by_status: list[tuple[Status, list[str]]], paint: Paint, width: int) -> Iterator[str]:
    for status, words in by_status:
        if words:
            yield from _listing(status.value, words, paint, width, status)


def _listing(title: str, words: list[str], paint: Paint, width: int, status: Status | None = None) -> Iterator[str]:
    """Words after a title, two spaces apart, each kept whole where a line can hold it."""
    room = width - 4 - _TITLE
    lines: list[str] = []
    whole = False  # whether the last line holds nothing that was cut
    for word in words:
        pieces = [word] if cells(word) <= room else wrap(word, room)
        if whole and len(pieces) == 1 and cells(lines[-1]) + 2 + cells(word) <= room:
            lines[-1] += f"  {word}"
        else:
            lines += pieces
        whole = len(pieces) == 1
    for index, line in enumerate(lines):
        head = pad(title if index == 0 else "", _TITLE)
        shown = paint.status(status, line) if status is not None else line
        yield f"    {paint.dim(head)}{shown}"


def _table(files: Iterable[FileReport], paint: Paint, width: int) -> Iterator[str]:
    """One line for each file: kernels, present and unknown properties, problems and suspected guards."""
    for file in files:
        present = sum(one.status is Status.PRESENT for one in file.properties)
        unknown = sum(one.status is Status.UNKNOWN for one in file.properties)
        launched = sum(one.launched for one in file.kernels)
        suspected = sum(one.status == "suspected" for one in file.guards)
        kernels = f"{len(file.kernels):>3} kernels {launched:>3} launched"
        facts = f"{file.language:<9} {kernels} {present:>3} present {unknown:>3} unknown"
        room = width - cells(facts) - 2
        path = clean(file.path)
        shown = path if cells(path) <= room else "…" + path[-(room - 1) :] if room > 12 else ""
        yield f"{pad(shown, room)}  {facts}" if shown else path
        if not shown:
            yield f"  {cut(facts, width - 2)}"
        for problem in file.problems[:1]:
            yield "  " + paint.warning(cut(f"! {clean(problem.detail)}", width - 2))
        if suspected:
            yield "  " + paint.warning(f"! {count(suspected, 'guard')} suspected")


def _totals(report: Report, paint: Paint, width: int) -> Iterator[str]:
    files = report.files
    kernels = sum(len(one.kernels) for one in files)
    launched = sum(kernel.launched for one in files for kernel in one.kernels)
    problems = sum(bool(one.problems) for one in files)
    text = f"{count(len(files), 'file')}, {count(kernels, 'kernel')}, {launched} launched, target {report.target}"
    if problems:
        text += f"; {count(problems, 'file')} with problems"
    yield paint.bold(cut(text, width))
    tally = Counter(one.id for file in files for one in file.properties if one.status is Status.PRESENT)
    rows = [
        f"{identifier} {amount}" for identifier, amount in sorted(tally.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    yield from _listing("present", rows, paint, width, Status.PRESENT)
