"""From the text of a kernel file to its facts and findings; chooses the front end."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import PurePath

from d2k.analyzers import engine
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.run import guards
from d2k.spec.facts import Program
from d2k.spec.finding import Evidence, FileReport, Reason, Why
from d2k.spec.vocabulary import Tier

CUDA_SUFFIXES = frozenset({".cu", ".cuh", ".h", ".hpp", ".hh", ".hxx", ".cpp", ".cc", ".cxx", ".c", ".inl", ".inc"})


@dataclass(frozen=True, slots=True)
class Options:
    """`target` is an architecture such as `sm_100a`; `entry` the entry function, "" for every exported one."""

    target: str = "sm_100a"
    entry: str = ""
    include_dirs: tuple[str, ...] = ()


def read(path: str, text: str, options: Options) -> Program:
    """The facts of one file; anything that is not C or C++ by its suffix is read as Python."""
    if PurePath(path).suffix in CUDA_SUFFIXES:
        from d2k.analyzers.cuda import frontend as cuda

        return cuda.read(path, text, options.entry, options.target, options.include_dirs)
    from d2k.analyzers import python

    return python.read(path, text, options)


def report(program: Program, text: str, options: Options) -> FileReport:
    """Every finding about a program that was read from `text`."""
    view = ProgramView(program, options.target)
    return FileReport(
        path=program.path,
        language=program.languages[0] if program.languages else "none",
        content_hash=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        kernels=tuple(engine.summary(kernel) for kernel in program.kernels),
        properties=engine.findings(view),
        guards=guards(view),
        problems=tuple(
            Why(
                Reason.NOT_ANALYZABLE,
                one.text,
                (Evidence(one.place.path, one.place.line, one.place.end_line, Tier.SOURCE, one.text),),
            )
            for one in program.problems
        ),
    )
