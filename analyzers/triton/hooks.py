"""What a configuration's `pre_hook` sets before the launch: block shapes of descriptors."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from d2k.analyzers.triton.interp import Interp, NotConstant
from d2k.analyzers.triton.values import Func
from d2k.spec.facts import Constant

MAX_RANK = 5


def hooked_blocks(hook: Func, interp: Interp, constants: Mapping[str, Constant]) -> dict[str, tuple[int | str, ...]]:
    """Block shapes by parameter: `nargs["a_desc"].block_shape = [nargs["BLOCK_M"], BLOCK_K]`."""
    node = hook.node
    if isinstance(node, ast.Lambda) or not node.args.args:
        return {}
    reader = _Hook(hook, interp, constants, node.args.args[0].arg)
    for statement in node.body:
        reader.statement(statement)
    return reader.blocks


class _Hook:
    def __init__(self, hook: Func, interp: Interp, constants: Mapping[str, Constant], arguments: str) -> None:
        self.hook = hook
        self.interp = interp
        self.arguments = arguments
        self.env: dict[str, object] = {arguments: dict(constants)}
        self.names: dict[str, str] = {}
        """Local names that stand for one of the kernel's constants."""
        self.blocks: dict[str, tuple[int | str, ...]] = {}

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="block_shape", value=owner)], value=value):
                name = self._argument(owner)
                block = self._block(value)
                if name is not None and block is not None:
                    self.blocks[name] = block
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                argument = self._argument(value)
                if argument is not None:
                    self.names[name] = argument
                try:
                    self.env[name] = self.interp.eval(value, self.env, self.hook.module)
                except NotConstant:
                    self.env.pop(name, None)
            case ast.If():
                try:
                    branch = node.body if self.interp.eval(node.test, self.env, self.hook.module) else node.orelse
                except NotConstant:
                    return
                for one in branch:
                    self.statement(one)
            case _:
                pass

    def _argument(self, node: ast.expr) -> str | None:
        match node:
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str() as name)):
                return name if owner == self.arguments else None
            case ast.Name(id=name):
                return self.names.get(name)
            case _:
                return None

    def _block(self, node: ast.expr) -> tuple[int | str, ...] | None:
        if not isinstance(node, (ast.List, ast.Tuple)) or len(node.elts) > MAX_RANK:
            return None
        sizes: list[int | str] = []
        for one in node.elts:
            name = self._argument(one)
            if name is not None:
                sizes.append(name)
                continue
            try:
                size = self.interp.eval(one, self.env, self.hook.module)
            except NotConstant:
                return None
            if not isinstance(size, int):
                return None
            sizes.append(size)
        return tuple(sizes)
