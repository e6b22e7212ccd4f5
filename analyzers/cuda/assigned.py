"""Which names a piece of code may assign: what a loop has to carry."""

from __future__ import annotations

import msgspec

from d2k.analyzers.cuda.syntax import (
    Asm,
    Assign,
    Call,
    Cast,
    Class,
    Decl,
    Index,
    Member,
    Name,
    Node,
    Opaque,
    RangeFor,
    Ternary,
    TypeName,
    Unary,
)

PURE = frozenset(
    {
        "min", "max", "fminf", "fmaxf", "fmaf", "__fmaf_rn", "expf", "__expf", "exp2f", "logf", "sqrtf", "rsqrtf",
        "__ldg", "__shfl_xor_sync",
        "__shfl_down_sync", "__shfl_up_sync", "__shfl_sync", "fabsf", "static_cast", "float", "int",
        "__float2half", "__half2float", "__float2bfloat16", "__bfloat162float", "make_float4", "make_float2", "sizeof",
        "__syncthreads", "__syncwarp", "ceil_div", "cdiv", "abs", "floorf",
    }
)  # fmt: skip


class Assigned:
    """`names` may be assigned; `called` are plain names that are called and may be lambdas."""

    __slots__ = ("called", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.called: set[str] = set()


def assigned(root: Node) -> Assigned:
    found = Assigned()
    stack: list[object] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Name):
            continue
        if isinstance(node, Assign):
            _target(node.target, found)
        elif isinstance(node, Unary) and node.op in ("++", "--", "p++", "p--", "&"):
            _target(node.operand, found)
        elif isinstance(node, Call):
            callee = node.callee
            pure = isinstance(callee, Name) and callee.scope is None and callee.name in PURE
            if isinstance(callee, Name):
                found.called.add(callee.name)
            elif isinstance(callee, Member):
                _target(callee.base, found)
                found.called.add(callee.name)
            if not pure:
                for arg in node.args:
                    _target(arg, found)
        elif isinstance(node, Asm):
            for constraint, target in node.outputs:
                if constraint:
                    _target(target, found)
        elif isinstance(node, RangeFor):
            _target(node.over, found)
        elif isinstance(node, Decl) and node.type.reference and node.init is not None:
            _target(node.init, found)
        elif isinstance(node, (TypeName, Class)):
            continue
        if isinstance(node, msgspec.Struct):
            for field in node.__struct_fields__:
                value = getattr(node, field)
                if isinstance(value, (msgspec.Struct, tuple)):
                    stack.append(value)
        elif isinstance(node, tuple):
            stack.extend(one for one in node if isinstance(one, (msgspec.Struct, tuple)))
    return found


def _target(node: Node, found: Assigned) -> None:
    """The variable that a place belongs to."""
    steps = 0
    while steps < 64:
        steps += 1
        if isinstance(node, Name):
            if node.scope is None:
                found.names.add(node.name)
            return
        if isinstance(node, (Member, Index)):
            node = node.base
        elif isinstance(node, Unary):
            node = node.operand
        elif isinstance(node, Cast):
            node = node.value
        elif isinstance(node, Ternary):
            _target(node.yes, found)
            node = node.no
        elif isinstance(node, Opaque) and len(node.parts) == 1:
            node = node.parts[0]
        else:
            return
