"""Measures the detectors against hand-made labels of real kernels: `python tests/corpus/accuracy.py [SET…]`.

Labels lie in `labels/<set>/*.json`, one file a kernel, each property present, absent or skipped (ambiguous, or
a compiler's to tell). A third of the kernels, chosen by the file's name, is the untouched part: nobody looks at it
while tuning.
A second, independent labelling lies in `labels/<set>-second/`; agreement is stated as Cohen's kappa.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path

import msgspec

from d2k.analyzers.analyze import Options, read
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.engine import findings
from d2k.spec.facts import Kernel, Program
from d2k.spec.finding import Finding, Status

HERE = Path(__file__).parent
CORPUS = HERE.parents[1] / ".corpus"
MACRO_LEAST = 5
"""Properties with fewer positive labels stay out of macro averages: one kernel would decide them."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a person found in one kernel: verdicts by property, `present` or `absent`; skipped ones are left out."""

    package: str
    path: str
    kernel: str
    verdicts: Mapping[str, str]

    @property
    def untouched(self) -> bool:
        return zlib.crc32(Path(self.path).name.encode()) % 3 == 0


@dataclass(frozen=True, slots=True)
class Case:
    label: Label
    property: str
    wanted: str
    found: Status


def labels(folder: Path) -> tuple[Label, ...]:
    """The labels of one set, in the order of their files."""
    return tuple(_label(json.loads(path.read_text())) for path in sorted(folder.glob("*.json")))


def _label(record: dict[str, object]) -> Label:
    verdicts = {
        name: verdict
        for verdict in ("present", "absent")
        for name in record[verdict]
        if isinstance(name, str)  # type: ignore[attr-defined]
    }
    return Label(str(record["package"]), str(record["path"]), str(record["kernel"]), verdicts)


@cache
def program(package: str, path: str) -> Program:
    file = CORPUS / package / path
    return read(str(file), file.read_text(errors="replace").replace("\r\n", "\n"), Options())


@cache
def analysed(package: str, path: str, kernel: str) -> tuple[Finding, ...]:
    """The findings on a file, or on that part of it which serves `kernel`: a file of a library is many programs."""
    whole = program(package, path)
    return findings(ProgramView(_part(whole, kernel), "sm_100a"))


def _part(whole: Program, kernel: str) -> Program:
    """The host functions that launch `kernel` with all that they launch; the whole file if nobody does."""
    hosts = _launchers(one for one in whole.kernels if _is_of(one.name, kernel))
    if not hosts:
        return whole
    return msgspec.structs.replace(
        whole,
        kernels=tuple(one for one in whole.kernels if hosts & _launchers((one,))),
        functions=tuple(one for one in whole.functions if one.name in hosts),
    )


def _launchers(kernels: Iterable[Kernel]) -> frozenset[str]:
    return frozenset(host for one in kernels for variant in one.variants for host, _ in variant.sites)


def status(finding: Finding, kernel: str) -> Status:
    """The finding's status for one kernel; properties of the whole program have one for all."""
    if any(_is_of(one.kernel, kernel) for one in finding.instances):
        return Status.PRESENT
    own = [one.status for one in finding.lacks if _is_of(one.kernel, kernel)]
    if own:
        return Status.UNKNOWN if Status.UNKNOWN in own else Status.ABSENT
    return Status.ABSENT if finding.status is Status.PRESENT else finding.status


def _is_of(found: str, kernel: str) -> bool:
    """A finding on the whole program, or on the kernel; one made inside a function is named after both."""
    return found in ("", kernel) or found.endswith(f".{kernel}")


def cases(found: Iterable[Label]) -> Iterator[Case]:
    for label in found:
        for finding in analysed(label.package, label.path, label.kernel):
            wanted = label.verdicts.get(finding.id)
            if wanted is not None:
                yield Case(label, finding.id, wanted, status(finding, label.kernel))


@dataclass(frozen=True, slots=True)
class Rates:
    """Counts over labelled cases; unknown ones are neither right nor wrong."""

    right: int
    false: int
    missed: int
    refused: int
    unknown: int

    @property
    def positives(self) -> int:
        return self.right + self.missed

    @property
    def precision(self) -> float | None:
        claimed = self.right + self.false
        return self.right / claimed if claimed else None

    @property
    def recall(self) -> float | None:
        return self.right / self.positives if self.positives else None

    @property
    def unknown_share(self) -> float:
        total = self.right + self.false + self.missed + self.refused + self.unknown
        return self.unknown / total if total else 0.0


def rates(found: Iterable[Case]) -> Rates:
    count = Counter((one.wanted, one.found) for one in found)
    return Rates(
        right=count["present", Status.PRESENT],
        false=count["absent", Status.PRESENT],
        missed=count["present", Status.ABSENT],
        refused=count["absent", Status.ABSENT],
        unknown=count["present", Status.UNKNOWN] + count["absent", Status.UNKNOWN],
    )


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion (Wilson 1927)."""
    if total == 0:
        return 0.0, 1.0
    share = right / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return middle - half, middle + half


def kappa(first: Iterable[Label], second: Iterable[Label]) -> tuple[float, int]:
    """Cohen's kappa over properties that both labelled of the same kernels, and their number."""
    others = {(one.package, one.path, one.kernel): one.verdicts for one in second}
    pairs = [
        (verdict, other[name])
        for one in first
        if (other := others.get((one.package, one.path, one.kernel))) is not None
        for name, verdict in one.verdicts.items()
        if name in other
    ]
    if not pairs:
        return 0.0, 0
    agreed = sum(a == b for a, b in pairs) / len(pairs)
    chance = sum(
        (sum(a == word for a, _ in pairs) / len(pairs)) * (sum(b == word for _, b in pairs) / len(pairs))
        for word in ("present", "absent")
    )
    return (agreed - chance) / (1 - chance) if chance < 1 else 1.0, len(pairs)


def table(found: list[Case]) -> Iterator[str]:
    """Rates by property as a Markdown table, then all together."""
    yield "| property | positives | precision | recall | unknown |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name in sorted({one.property for one in found}):
        own = rates(one for one in found if one.property == name)
        numbers = f"{_share(own.precision)} | {_share(own.recall)} | {own.unknown_share:.0%}"
        yield f"| `{name}` | {own.positives} | {numbers} |"


def summary(found: list[Case]) -> Iterator[str]:
    whole = rates(found)
    low, high = wilson(whole.right, whole.right + whole.false)
    each = [rates(one for one in found if one.property == name) for name in sorted({one.property for one in found})]
    common = [one for one in each if one.positives >= MACRO_LEAST]
    macro = [one.precision for one in common if one.precision is not None]
    kernels = len({(one.label.package, one.label.path, one.label.kernel) for one in found})
    yield f"- kernels {kernels}, labelled cases {len(found)}, positive {whole.positives}"
    yield f"- precision micro {_share(whole.precision)} (95 % interval {low:.3f} to {high:.3f})"
    if macro:
        mean = sum(macro) / len(macro)
        yield f"- precision macro {mean:.3f} over {len(macro)} properties with >= {MACRO_LEAST} positives"
    yield f"- recall over decided {_share(whole.recall)}, unknown {whole.unknown_share:.1%}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def report(name: str, parts: Iterable[str]) -> Iterator[str]:
    """The Markdown report on one set of labels."""
    own = labels(HERE / "labels" / name)
    found = list(cases(own))
    second = HERE / "labels" / f"{name}-second"
    yield f"## {name}\n"
    for part in parts:
        yield f"### {part}\n"
        chosen = [one for one in found if one.label.untouched is (part == "untouched third")]
        yield from summary(chosen)
        yield ""
        yield from table(chosen)
        yield ""
    if second.is_dir():
        agreement, count = kappa(own, labels(second))
        yield f"Labelled twice: {count} cases, Cohen's kappa {agreement:.3f}. Both sets follow the settled rules, which"
        yield "makes them agree more than two free labellings would; the labels' README says what it was before.\n"


def wrong(name: str, untouched: bool = False) -> Iterator[str]:
    """Every disagreement, for those who tune: one line each."""
    for one in cases(labels(HERE / "labels" / name)):
        if one.label.untouched is untouched and one.found is not Status.UNKNOWN and one.found != one.wanted:
            yield f"{one.property}: wanted {one.wanted} in {one.label.package}/{one.label.path} {one.label.kernel}"


PREAMBLE = """# Accuracy on real kernels

Generated by `make accuracy`; do not edit. Kernels of published packages were labelled by hand from their source
([how](../tests/corpus/labels/README.md)), for all properties, before any detector ran on them. The detectors
were tuned on two thirds; the *untouched third*, chosen by a hash of the file's name, was first run to write this page.

Precision: of the verdicts `present`, the share that the label confirms. Recall: of the labels `present`, the share
found, among those decided. `unknown` is neither right nor wrong and is counted apart. Evidence is source only.
"""


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--wrong"]:
        print("\n".join(wrong(arguments[1])))
        return
    if "--page" in arguments:
        print(PREAMBLE)
    parts = ["tuned two thirds"] if "--tuning" in arguments else ["untouched third", "tuned two thirds"]
    sets = [one for one in arguments if not one.startswith("-")] or ["triton", "cuda"]
    print("\n".join(line for name in sets for line in report(name, parts)))


if __name__ == "__main__":
    main(sys.argv[1:])
