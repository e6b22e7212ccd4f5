"""The contract between a detector and the engine that runs it.

A property is one module of `d2k.analyzers.properties`, named by the property's id, which defines

    EXAMPLES: tuple[Example, ...]
    def detect(kernel: KernelView) -> Detection                    # scope kernel
    def detect_program(program: ProgramView) -> Detection          # scope program

`detect` answers for one variant of one live kernel; the engine calls it for each and combines the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from d2k.spec.facts import Place
from d2k.spec.finding import FoundValue, Reason, Status


@dataclass(frozen=True, slots=True)
class Evidence:
    """A place and what stands there, in a few words with its numbers."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Match:
    """The property is implemented. Attributes that cannot be decided stand in `undecided` with the reason in words."""

    evidence: tuple[Evidence, ...]
    attributes: Mapping[str, FoundValue] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Miss:
    """The property is not implemented; `evidence` is the nearest miss: a `num_stages=1`, an unused descriptor.

    `certain` says that code which was not given, such as an imported helper, cannot change the verdict.
    """

    reason: Reason = Reason.NO_TRACE
    detail: str = ""
    evidence: tuple[Evidence, ...] = ()
    certain: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """Cannot be told from the facts at hand; `detail` says why, in words for the user."""

    detail: str
    evidence: tuple[Evidence, ...] = ()
    reason: Reason = Reason.NOT_ANALYZABLE


Detection = tuple[Match, ...] | Miss | Undecided
"""One or more matches, a miss, or undecided. An empty tuple is a Miss with no trace."""

NEEDS_COMPILED = "needs compiled evidence"
"""Start of the detail of everything that only a compiler's output can settle."""


@dataclass(frozen=True, slots=True)
class Example:
    """A source with the verdict it must get; the tests and `d2kc explain PROPERTY` are made from these.

    `language` is `triton` or `cuda`. `attributes` must be among those found in some instance. A negative names
    the trap it
    stands for and differs from a positive in one thing. `code` may leave out `import torch, triton,
    triton.language as tl`
    (or the usual CUDA includes): the test supplies them. `status` is `present`, `absent` or `unknown`.
    """

    name: str
    language: str
    code: str
    status: Status
    attributes: Mapping[str, FoundValue] = field(default_factory=dict)
    trap: str = ""
