"""Words of reports that are neither properties nor tasks: the parts of an audit, and the closed list of reasons."""

from __future__ import annotations

from types import MappingProxyType

TERMS = MappingProxyType(
    {
        "score": "The implementation score is 100 times the mean over the levels L1, L2 and L3 of the credit that the"
        " applicable items of a level earn, each by its weight. Where something is unknown, a range stands behind"
        " it in brackets.",
        "gated": "The implementation score with each item's credit multiplied by the least credit of what it requires:"
        " a trick whose insight is missing earns nothing.",
        "free": "The part of the implementation score that comes from items which the obvious kernel earns too;"
        " the task marks them `free`.",
        "root_causes": "Missing items under which others are missing, with the points that all of them are worth.",
        "next": "The missing items that would gain most, with the points of each.",
        "no_trace": "Reason: nothing in the file resembles the design.",
        "prerequisite_missing": "Reason: an item that this one requires is missing too.",
        "wrong_parameter": "Reason: the design is there, with a value that the check does not accept.",
        "dead_code": "Reason: the design stands in code that no launch reaches.",
        "disabled_branch": "Reason: the design stands in a branch that compile-time constants switch off.",
        "fallback_path": "Reason: the design is there, but only on a path that these inputs do not take.",
        "helper_not_called": "Reason: a helper function has the design, and nothing calls it.",
        "lost_in_compilation": "Reason: the source asks for the design, and the compiled code does not have it.",
        "compiler_only": "Reason: only compiled code can show whether the design is there.",
        "not_load_bearing": "Reason: the design is there, but carries too little of the work to matter.",
        "delegated_to_library": "Reason: a library call does the work that the kernel was to do.",
        "hardware_unsupported": "Reason: the target has no hardware for it.",
        "not_analyzable": "Reason: the source does not say enough, or in a way that is not understood.",
    }
)
