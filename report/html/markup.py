"""HTML elements whose text and attributes are escaped by construction."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from string import Template

_UNSAFE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(plain: str) -> Markup:
    """Plain text as HTML. Characters that HTML forbids, or that turn the direction of writing, are replaced."""
    return Markup(escape(_UNSAFE.sub("\N{REPLACEMENT CHARACTER}", plain)))


def element(name: str, *children: str, **attributes: str | bool | None) -> Markup:
    """`<name attributes>children</name>`; children that are no Markup are escaped, attributes that are None left out.

    An attribute is written with a trailing underscore where its name is a word of Python, with underscores for dashes.
    """
    words = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(attribute)
        elif isinstance(value, str):
            words.append(f'{attribute}="{text(value)}"')
    return Markup(f"<{' '.join(words)}>{join(*children)}</{name}>")


def join(*children: str) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else text(child) for child in children))


def prose(words: str) -> Markup:
    """Words with what stands between backticks as code."""
    pieces = words.split("`")
    if len(pieces) % 2 == 0:
        return text(words)
    return join(*(element("code", piece) if index % 2 else piece for index, piece in enumerate(pieces)))


def template(name: str, **parts: Markup) -> Markup:
    """A template of this package with its `$places` filled."""
    return Markup(Template(resource(name)).substitute(parts))


def resource(name: str) -> str:
    return files("d2k.report.html").joinpath(name).read_text("utf-8")
