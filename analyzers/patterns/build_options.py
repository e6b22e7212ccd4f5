"""Options that host code hands to the CUDA compiler, such as `--use_fast_math`."""

from __future__ import annotations

from d2k.analyzers.core.view import ProgramView
from d2k.spec.facts import Kind, Place


def build_option(program: ProgramView, word: str) -> Place | None:
    """Where a constant names the option and some call is given it; None if there is no such place."""
    for host in program.hosts.values():
        for value in host.values(Kind.CONST):
            given = host.op(value).attrs.get("value")
            if isinstance(given, str) and given.startswith("-") and word in given and host.users(value):
                return host.op(value).place
    return None
