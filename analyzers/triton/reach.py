"""Which host functions run: those that the entry point reaches, or all public ones where no entry is named."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from d2k.analyzers.triton.module import Module

if TYPE_CHECKING:
    from d2k.analyzers.triton.frontend import Lowered


@dataclass(frozen=True, slots=True)
class Reached:
    """`functions` run; `inside` are those whose operations also stand in the bodies of reached callers."""

    functions: frozenset[str]
    inside: frozenset[str]
    entry: str = ""
    problem: str = ""


def reach(module: Module, functions: Sequence[Lowered], entry: str, top: Lowered) -> Reached:
    """What runs, from the entry or from every root; `top` is the module's own code, which runs on import."""
    by_node = {id(one.func.node): one for one in functions}
    aliases = _aliases(module, functions)
    if entry:
        named = (
            aliases.get(entry)
            or [one for one in functions if one.name == entry]
            or [one for one in functions if one.name.rpartition(".")[2] == entry]
            or [one for one in functions if one.name in (f"{entry}.forward", f"{entry}.__call__", f"{entry}.__init__")]
        )
        if not named:
            public = sorted(one.name for one in functions if is_public(one.name))
            known = ", ".join(public[:8]) or "none"
            text = f"no function `{entry}` in this file; it has: {known}"
            return Reached(frozenset(), frozenset(), entry, text)
        roots = named
    else:
        roots = _roots(functions, [one for found in aliases.values() for one in found])
    reached: set[str] = set()
    apart = {one.name for one in roots}
    inside: set[str] = set()
    stack = list(roots)
    if not entry:
        stack += [by_node[node] for node in top.host.called if node in by_node]
        apart |= {one.name for one in stack}
    while stack:
        one = stack.pop()
        if one.name in reached:
            continue
        reached.add(one.name)
        for node in (*one.host.inlined, *one.host.called):
            other = by_node.get(node)
            if other is None or other is one:
                continue
            # a body that was cut short may lack what it inlined
            if node in one.host.called or one.problem or other.name.rpartition(".")[2] == "backward":
                apart.add(other.name)
                stack.append(other)
            else:
                inside.add(other.name)
    return Reached(frozenset(reached | inside), frozenset(inside - apart), entry)


def _aliases(module: Module, functions: Sequence[Lowered]) -> dict[str, list[Lowered]]:
    """Public names of the module that stand for a function: `attention = _Attention.apply`, `norm = _norm`."""
    by_name = {one.name: one for one in functions}
    found: dict[str, list[Lowered]] = {}
    for name, bound in module.bindings.items():
        target = ""
        match bound:
            case ast.Attribute(value=ast.Name(id=owner), attr="apply"):
                target = f"{owner}.forward"
            case ast.Attribute(value=ast.Name(id=owner), attr=member):
                target = f"{owner}.{member}"
            case ast.Name(id=other):
                target = other
            case _:
                pass
        if target in by_name and is_public(name):
            found[name] = [by_name[target]]
            backward = target.rpartition(".")[0] + ".backward"
            if target.endswith(".forward") and backward in by_name:
                found[name].append(by_name[backward])
    return found


def _roots(functions: Sequence[Lowered], named: Sequence[Lowered]) -> list[Lowered]:
    """Public functions that no other public one calls; without any, all functions that no other one calls."""
    public = [one for one in functions if is_public(one.name) and not _is_secondary(one.func.node)]
    public += [one for one in named if one not in public]
    for candidates in (public, functions):
        inside = {
            node for one in candidates for node in (*one.host.inlined, *one.host.called) if node != id(one.func.node)
        }
        free = [one for one in candidates if id(one.func.node) not in inside]
        if free:
            return free
    return list(functions)


def is_public(name: str) -> bool:
    """Neither private, nor a test or a reference implementation."""
    parts = name.split(".")
    if any(part.startswith("_") and not part.startswith("__") for part in parts):
        return False
    last = parts[-1]
    return not (
        last.startswith(("test_", "ref_", "reference_", "bench_", "benchmark"))
        or last.endswith(("_ref", "_reference", "_test", "_benchmark"))
        or last in ("test", "main", "reference", "ref")
    )


def _is_secondary(node: ast.AST) -> bool:
    """Functions that only describe another one: shape functions of torch operators."""
    decorators = getattr(node, "decorator_list", [])
    return any(
        isinstance(one, ast.Attribute) and one.attr in ("register_fake", "register_kernel", "register_vmap", "abstract")
        for one in decorators
    )
