"""What an analysis claims about a kernel file, with evidence. `Report` is what `d2kc analyze --json` prints."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from d2k.spec.vocabulary import Tier

FoundValue = bool | int | str | tuple[str, ...]
"""What was found for an attribute; a tuple for attributes of type `set`."""


class Status(StrEnum):
    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Reason(StrEnum):
    """Why a property is absent or unknown, or an item missing; a closed list."""

    NO_TRACE = "no_trace"
    PREREQUISITE_MISSING = "prerequisite_missing"
    WRONG_PARAMETER = "wrong_parameter"
    DEAD_CODE = "dead_code"
    DISABLED_BRANCH = "disabled_branch"
    FALLBACK_PATH = "fallback_path"
    HELPER_NOT_CALLED = "helper_not_called"
    LOST_IN_COMPILATION = "lost_in_compilation"
    COMPILER_ONLY = "compiler_only"
    NOT_LOAD_BEARING = "not_load_bearing"
    DELEGATED_TO_LIBRARY = "delegated_to_library"
    HARDWARE_UNSUPPORTED = "hardware_unsupported"
    NOT_ANALYZABLE = "not_analyzable"


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place that supports a claim: 1-based first and last line, and what stands there in a few words."""

    path: str
    line: int
    end_line: int
    tier: Tier
    text: str


class Why(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reason with its particulars in plain words, and the nearest miss where there is one."""

    reason: Reason
    detail: str = ""
    evidence: tuple[Evidence, ...] = ()


class Instance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The property in one variant of one kernel: `config` is "" where there is only one.

    An attribute that could not be decided is left out of `attributes` and stands in `undecided` with the reason.
    Properties of scope `program` have `kernel` "".
    """

    kernel: str
    config: str
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    evidence: tuple[Evidence, ...] = ()


class Lack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configurations of one kernel in which the property is `absent` or `unknown`, and why; () means its only one."""

    kernel: str
    configs: tuple[str, ...]
    status: Status
    why: Why


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One property in one file. `why` explains an absent or unknown status.

    A property of scope `kernel` has, for each variant of each live kernel, an instance or a place in `lacks`.
    """

    id: str
    status: Status
    tier: Tier
    instances: tuple[Instance, ...] = ()
    why: Why | None = None
    lacks: tuple[Lack, ...] = ()


class GuardFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that is no design, such as a computation delegated to a library: `suspected` or `absent`."""

    id: str
    status: str
    detail: str = ""
    evidence: tuple[Evidence, ...] = ()


class KernelSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kernel of the file. `configs` are the labels of its variants; `launch` is a sentence for people."""

    name: str
    line: int
    end_line: int
    language: str
    reachable: bool
    launched: bool
    configs: tuple[str, ...] = ()
    launch: str = ""


class FileReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything found in one file: one finding for every property of the vocabulary, in its order."""

    path: str
    language: str
    content_hash: str
    kernels: tuple[KernelSummary, ...]
    properties: tuple[Finding, ...]
    guards: tuple[GuardFinding, ...]
    problems: tuple[Why, ...] = ()
    """What could not be read, such as a syntax error; findings that depend on it are unknown."""


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    target: str
    tool: str
    tiers: tuple[Tier, ...]
    files: tuple[FileReport, ...]
