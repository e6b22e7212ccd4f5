"""A Python file whole: what the Python front end reads of it, and the CUDA that it compiles from strings."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from d2k.analyzers.triton import embedded, frontend
from d2k.spec.facts import Function, Kernel, Program, Variant

if TYPE_CHECKING:
    from d2k.analyzers.analyze import Options


def read(path: str, text: str, options: Options) -> Program:
    """The facts of a `.py` file. Lines of CUDA in strings are lines of the file."""
    program = frontend.read(path, text, options.entry, options.target)
    sources = embedded.read_sources(path, text, options.target)
    if not sources:
        return program
    from d2k.analyzers.cuda import frontend as cuda

    # the sources of one call are one program: a launcher in one, its kernel in another
    for _, group in groupby(sources, key=lambda one: (one.place, one.path)):
        parts = tuple(group)
        whole = "\n".join(one.text for one in parts)
        lines = tuple(line for one in parts for line in one.lines)
        program = _joined(
            program, cuda.read(parts[0].path, whole, "", options.target, options.include_dirs, line_map=lines)
        )
    return program


def _joined(python: Program, cuda: Program) -> Program:
    """Both as one program; functions of C++ that bear the name of a Python function are told apart."""
    taken = {one.name for one in python.functions}
    names = {one.name: f"{one.name} (C++)" if one.name in taken else one.name for one in cuda.functions}
    return msgspec.structs.replace(
        python,
        languages=tuple(dict.fromkeys((*python.languages, *cuda.languages))),
        kernels=python.kernels + tuple(_renamed(one, names) for one in cuda.kernels),
        functions=python.functions + tuple(_renamed_function(one, names) for one in cuda.functions),
        mentions=python.mentions + cuda.mentions,
        problems=python.problems + cuda.problems,
    )


def _renamed_function(function: Function, names: dict[str, str]) -> Function:
    return msgspec.structs.replace(function, name=names[function.name])


def _renamed(kernel: Kernel, names: dict[str, str]) -> Kernel:
    return msgspec.structs.replace(kernel, variants=tuple(_renamed_variant(one, names) for one in kernel.variants))


def _renamed_variant(variant: Variant, names: dict[str, str]) -> Variant:
    return msgspec.structs.replace(
        variant, sites=tuple((names.get(function, function), value) for function, value in variant.sites)
    )
