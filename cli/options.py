"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def target_option(function: F) -> F:
    return click.option(
        "--target", default="sm_100a", show_default=True, metavar="ARCH", help="Architecture to analyse for."
    )(function)


def entry_option(function: F) -> F:
    return click.option("--entry", default="", metavar="NAME", help="Entry function; by default every public one.")(
        function
    )


def include_option(function: F) -> F:
    return click.option("-I", "--include", multiple=True, metavar="DIR", help="Search headers in DIR (CUDA).")(function)


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, as described by its schema.")(function)


def out_option(function: F) -> F:
    return click.option("-o", "--out", metavar="FILE", help="Write to FILE instead of standard output.")(function)
