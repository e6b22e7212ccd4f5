"""Runs every detector of the vocabulary on a program and combines what they say of its kernels and variants."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from d2k.analyzers.core import detector as d
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.spec.facts import Kernel, Reach
from d2k.spec.finding import Evidence, Finding, Instance, KernelSummary, Lack, Reason, Status, Why
from d2k.spec.vocabulary import Property, Tier, vocabulary

DetectKernel = Callable[[KernelView], d.Detection]
DetectProgram = Callable[[ProgramView], d.Detection]


def findings(view: ProgramView) -> tuple[Finding, ...]:
    """One finding for every property of the vocabulary, in its order."""
    return tuple(find(one, view) for one in vocabulary().properties)


def find(prop: Property, view: ProgramView) -> Finding:
    """What the property's detector says of the program; `unknown` where no detector covers it."""
    try:
        module = import_module(f"d2k.analyzers.properties.{prop.id}")
    except ModuleNotFoundError:
        return _unknown(prop, "no detector covers this property yet")
    try:
        if prop.scope == "program":
            return _program_finding(prop, view, cast(DetectProgram, module.detect_program))
        return _kernel_finding(prop, view, cast(DetectKernel, module.detect))
    except Exception as error:
        # one detector's bug is no reason to withhold what the others found
        if os.environ.get(STRICT):
            raise
        return _unknown(prop, f"{INTERNAL_ERROR} in its detector: {type(error).__name__}: {error}")


STRICT = "D2KC_STRICT"
"""Environment variable under which a bug in a detector is raised; the tests set it."""

INTERNAL_ERROR = "internal error"


@dataclass(frozen=True, slots=True)
class _Answer:
    kernel: KernelView
    detection: d.Detection


def _kernel_finding(prop: Property, view: ProgramView, detect: DetectKernel) -> Finding:
    answers = tuple(_answers(view.kernels, detect))
    instances = tuple(
        _instance(match, answer.kernel.kernel.name, answer.kernel.variant.label)
        for answer in answers
        if isinstance(answer.detection, tuple)
        for match in answer.detection
    )
    return _combine(prop, view, instances, tuple(answer.detection for answer in answers), _lacks(answers))


def _program_finding(prop: Property, view: ProgramView, detect: DetectProgram) -> Finding:
    detection = detect(view)
    if not view.kernels and not isinstance(detection, d.Undecided):
        # a design lives in kernels: host code alone implements none
        detection = d.Miss(detail="no kernel runs", certain=True)
    matches = detection if isinstance(detection, tuple) else ()
    return _combine(prop, view, tuple(_instance(match, "", "") for match in matches), (detection,))


def _answers(kernels: Iterable[KernelView], detect: DetectKernel) -> Iterable[_Answer]:
    """Detections in order. Variants that share a body and agree on every constant that was read share the answer."""
    known: dict[int, list[tuple[Mapping[str, object], d.Detection]]] = {}
    for kernel in kernels:
        asked = known.setdefault(id(kernel.body), [])
        for constants, detection in asked:
            if all(kernel.reading(name) == value for name, value in constants.items()):
                yield _Answer(kernel, detection)
                break
        else:
            kernel.reads.clear()
            detection = _normal(detect(kernel), kernel)
            asked.append(({name: kernel.reading(name) for name in kernel.reads}, detection))
            yield _Answer(kernel, detection)


def _normal(detection: d.Detection, kernel: KernelView) -> d.Detection:
    """No match is a miss; a miss in code that is only partly known is undecided."""
    if isinstance(detection, tuple):
        detection = detection or d.Miss()
    if isinstance(detection, d.Miss) and not detection.certain and detection.reason is Reason.NO_TRACE:
        unresolved = kernel.body.unresolved
        if unresolved:
            first = unresolved[0]
            detail = (
                f"`{first.name}` is not known here: {first.detail}" if first.detail else f"`{first.name}` is not known"
            )
            return d.Undecided(detail, (d.Evidence(first.place, first.name),))
    return detection


def _lacks(answers: Iterable[_Answer]) -> tuple[Lack, ...]:
    """What the variants without a match say, those of one kernel that say the same together."""
    configs: dict[tuple[str, Status, Why], list[str]] = {}
    for answer in answers:
        said = answer.detection
        if isinstance(said, tuple):
            continue
        status = Status.UNKNOWN if isinstance(said, d.Undecided) else Status.ABSENT
        why = _why(said.reason, said.detail, said.evidence)
        configs.setdefault((answer.kernel.kernel.name, status, why), []).append(answer.kernel.variant.label)
    return tuple(
        Lack(kernel, tuple(label for label in labels if label), status, why)
        for (kernel, status, why), labels in configs.items()
    )


def _combine(
    prop: Property,
    view: ProgramView,
    instances: tuple[Instance, ...],
    detections: tuple[d.Detection, ...],
    lacks: tuple[Lack, ...] = (),
) -> Finding:
    if instances:
        return Finding(prop.id, Status.PRESENT, Tier.SOURCE, instances, lacks=lacks)
    undecided = next((one for one in detections if isinstance(one, d.Undecided)), None)
    if undecided is not None:
        return Finding(
            prop.id,
            Status.UNKNOWN,
            Tier.SOURCE,
            why=_why(undecided.reason, undecided.detail, undecided.evidence),
            lacks=lacks,
        )
    problem = next((one for one in view.program.problems), None)
    if problem is not None and not view.kernels:
        return _unknown(prop, problem.text)
    misses = [one for one in detections if isinstance(one, d.Miss)]
    # the nearest miss says more than "no trace"
    miss = min(
        misses, key=lambda one: (one.reason is Reason.NO_TRACE, not one.detail, not one.evidence), default=d.Miss()
    )
    return Finding(prop.id, Status.ABSENT, Tier.SOURCE, why=_why(miss.reason, miss.detail, miss.evidence), lacks=lacks)


def _unknown(prop: Property, detail: str) -> Finding:
    return Finding(prop.id, Status.UNKNOWN, Tier.SOURCE, why=Why(Reason.NOT_ANALYZABLE, detail))


def _why(reason: Reason, detail: str, evidence: tuple[d.Evidence, ...]) -> Why:
    return Why(reason, detail, tuple(_evidence(one) for one in evidence))


def _instance(match: d.Match, kernel: str, config: str) -> Instance:
    return Instance(
        kernel, config, dict(match.attributes), dict(match.undecided), tuple(_evidence(one) for one in match.evidence)
    )


def _evidence(one: d.Evidence) -> Evidence:
    return Evidence(one.place.path, one.place.line, one.place.end_line, Tier.SOURCE, one.text)


def summary(kernel: Kernel) -> KernelSummary:
    """A kernel in a few words."""
    return KernelSummary(
        name=kernel.name,
        line=kernel.place.line,
        end_line=kernel.place.end_line,
        language=kernel.language,
        reachable=kernel.reach is not Reach.DEAD,
        launched=kernel.reach is Reach.LAUNCHED,
        configs=tuple(variant.label for variant in kernel.variants if variant.label),
        launch=_launch_words(kernel),
    )


def _launch_words(kernel: Kernel) -> str:
    words: list[str] = []
    for name in ("num_warps", "num_stages", "num_ctas", "threads"):
        values = {getattr(variant.launch, name) for variant in kernel.variants} - {None}
        if values:
            words.append(f"{name.removeprefix('num_')} {{{','.join(str(value) for value in sorted(values))}}}")
    return "  ".join(words)
