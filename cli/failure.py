"""The one exception for bad input: its message says what, where and what to do; the exit code is 2."""

from __future__ import annotations


class InputError(Exception):
    """Input that cannot be read or makes no sense; `str(error)` is a whole message for the user."""
