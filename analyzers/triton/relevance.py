"""Which host functions are worth lowering in place of their calls: those that lead to a launch, and short ones."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from d2k.analyzers.triton.module import Module
from d2k.analyzers.triton.nodes import walk

SHORT = 110
"""Nodes of a function's syntax tree up to which it is inlined whatever it does: queries, arithmetic, small wrappers."""


class Relevance:
    """Answers by function node; each file is looked through once."""

    def __init__(self, kernels: Iterable[str]) -> None:
        self._kernels = frozenset(name.rpartition(".")[2] for name in kernels)
        self._leading: dict[str, frozenset[int]] = {}
        self._short: dict[int, bool] = {}

    def inlines(self, node: ast.AST, module: Module) -> bool:
        return isinstance(node, ast.Lambda) or self.leads(node, module) or self.is_short(node)

    def is_short(self, node: ast.AST) -> bool:
        if id(node) not in self._short:
            count = 0
            for count, _ in enumerate(walk(node)):  # the count is what the loop is for
                if count > SHORT:
                    break
            self._short[id(node)] = count <= SHORT
        return self._short[id(node)]

    def leads(self, node: ast.AST, module: Module) -> bool:
        """Whether the function launches, allocates or makes a descriptor, itself or through functions of its file."""
        if module.path not in self._leading:
            self._leading[module.path] = self._of(module)
        return id(node) in self._leading[module.path]

    def _of(self, module: Module) -> frozenset[int]:
        uses = {id(node): _identifiers(node) for _, node, _ in module.functions}
        names = {id(node): node.name for _, node, _ in module.functions}
        wanted = set(self._kernels)
        found: set[int] = set()
        grew = True
        while grew:
            grew = False
            for key, used in uses.items():
                if key not in found and (used & wanted or "<launch>" in used):
                    found.add(key)
                    wanted.add(names[key])
                    grew = True
        return frozenset(found)


def _identifiers(node: ast.AST) -> frozenset[str]:
    """Names and attributes that a function uses; `<launch>` for a call of a subscript."""
    found: set[str] = set()
    for one in walk(node):
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Subscript):
            found.add("<launch>")
    return frozenset(found)
