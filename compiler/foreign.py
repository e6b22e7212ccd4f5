"""What people write who know other languages, and what it stands for here."""

from __future__ import annotations

STATEMENTS = {
    "assert": "where",
    "class": "task",
    "const": "constant",
    "constraint": "where",
    "def": "fn",
    "depends": "requires",
    "desc": "summary",
    "description": "summary",
    "func": "fn",
    "function": "fn",
    "import": "use",
    "inputs": "input",
    "kernel": "task",
    "outputs": "output",
    "reason": "because",
    "rationale": "why",
    "shape": "axes",
    "var": "let",
}
"""What newcomers write, where the spelling does not lead to our word."""

OPERATORS = {"&&": "and", "&": "and", "||": "or", "|": "or", "!": "not"}

LOOKALIKES = {
    "\u2212": ("MINUS", "-"),
    "\u2013": ("MINUS", "-"),
    "\u2014": ("MINUS", "-"),
    "\u00d7": ("PRODUCT_OP", "*"),
    "\u00f7": ("PRODUCT_OP", "/"),
    "\u2264": ("COMPARISON", "<="),
    "\u2265": ("COMPARISON", ">="),
    "\u2260": ("COMPARISON", "!="),
}
"""Signs that a word processor puts in place of ours."""

LOOKALIKE_TEXT = {sign: text for sign, (_, text) in LOOKALIKES.items()}
