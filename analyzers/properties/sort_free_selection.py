"""Selection without a sort: the k greatest entries, or a nucleus, are found by moving a threshold according to
counts or
masses, by counting digits, or by taking the greatest entry k times; nothing sorts the whole row.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.patterns.hosts import short
from d2k.analyzers.patterns.selection import selections
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

SORTS = frozenset({"sort", "argsort", "topk", "SortPairs", "SortPairsDescending", "SortKeys", "sort_by_key", "msort"})


def detect_program(program: ProgramView) -> Detection:
    found = [(kernel, one) for kernel in program.kernels for one in selections(kernel)]
    if found:
        kernel, one = found[0]
        return (Match((Evidence(kernel.place(one.value), one.text),), {"method": one.method}),)
    for name, host in program.live_hosts.items():
        for value in host.values(Kind.HOST_CALL):
            if short(host.op(value).name) in SORTS:
                evidence = (Evidence(host.op(value).place, host.op(value).name),)
                return Miss(Reason.DELEGATED_TO_LIBRARY, f"`{name}` sorts by a library call", evidence)
    for kernel in program.kernels:
        sorts = kernel.values(Kind.SORT)
        if sorts:
            evidence = (Evidence(kernel.place(sorts[0]), "sorts the row"),)
            return Miss(detail="the row is sorted", evidence=evidence)
    return Miss(detail="no threshold search and no rounds of maxima")


EXAMPLES: tuple[Example, ...] = ()
_ = Status
