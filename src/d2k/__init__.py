"""D2K-Bench: how much of an expert's design ends up in a GPU kernel, and what it was worth."""

__version__ = "0.1.0"
