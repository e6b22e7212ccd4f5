"""What the combine function of a reduction or scan computes, in a word."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from d2k.analyzers.core.drafts import TooLarge
from d2k.analyzers.triton.builder import Builder
from d2k.analyzers.triton.lowering import Call
from d2k.analyzers.triton.values import Func, KernelDef, Tup, Value
from d2k.spec.facts import Kind

if TYPE_CHECKING:
    from d2k.analyzers.triton.device import Device

COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})
MAX_OPERANDS = 6

WORDS: Mapping[tuple[str, ...], str] = {
    ("add(0,1)",): "sum",
    ("mul(0,1)",): "prod",
    ("max(0,1)",): "max",
    ("min(0,1)",): "min",
    ("where(gt(0,1),0,1)",): "max",
    ("where(lt(0,1),0,1)",): "min",
    ("and(0,1)",): "and",
    ("or(0,1)",): "or",
    ("xor(0,1)",): "xor",
    ("mul(0,2)", "add(3,mul(1,2))"): "linear_recurrence",
    ("add(0,2)", "add(1,3)"): "sum",
    ("max(0,2)", "add(mul(1,exp(sub(0,max(0,2)))),mul(3,exp(sub(2,max(0,2)))))"): "softmax",
    ("max(0,2)", "add(mul(1,exp2(sub(0,max(0,2)))),mul(3,exp2(sub(2,max(0,2)))))"): "softmax",
    ("or(0,2)", "where(2,3,add(1,3))"): "segmented_sum",
    ("max(0,2)", "where(2,3,add(1,3))"): "segmented_sum",
    ("add(0,2)", "where(2,3,add(1,3))"): "segmented_sum",
    ("add(0,2)", "add(3,mul(1,exp(2)))"): "log_linear_recurrence",
    ("add(0,2)", "add(3,mul(1,exp2(2)))"): "log_linear_recurrence",
}
"""Canonical forms by their word; parameters are numbered, left operand first: (a1, x1, a2, x2) are 0 1 2 3."""


def combine_name(device: Device, function: Value | None, operands: int, node: ast.AST) -> str:
    """A word for what `function` makes of two operands of `operands` values each, "" if none is known."""
    func = function.func if isinstance(function, KernelDef) else function
    if not isinstance(func, Func) or not 0 < operands <= MAX_OPERANDS:
        return ""
    from d2k.analyzers.triton.device import Device as DeviceLowering

    builder = Builder(max_ops=500)
    scratch = DeviceLowering(device.module, builder, device.interp)
    place = device.place(node)
    params = tuple(builder.emit(Kind.PARAM, str(at), (), place, {}, None, ()) for at in range(2 * operands))
    call = Call(ast.Call(func=ast.Name(id="combine", ctx=ast.Load()), args=[], keywords=[]), params, {})
    try:
        result = scratch.inline(func, call, node)
    except (TooLarge, RecursionError):
        return ""
    results = result.items if isinstance(result, Tup) else (result,)
    forms = tuple(_form(builder, one) for one in results if isinstance(one, int))
    return WORDS.get(forms, "") if len(forms) == len(results) else ""


def _form(builder: Builder, value: int, depth: int = 0) -> str:
    """An expression as text, operands of commutative operations in one order."""
    draft = builder.ops[value]
    if draft.kind is Kind.PARAM:
        return draft.name
    if depth > 12:
        return "?"
    if draft.kind is Kind.CAST and draft.args:
        return _form(builder, draft.args[0], depth + 1)
    if draft.kind is not Kind.ELEMENTWISE and not (draft.kind is Kind.PHI and draft.name == "if"):
        return f"{draft.kind.value}?"
    parts = [_form(builder, one, depth + 1) for one in draft.args]
    name = "where" if draft.kind is Kind.PHI else draft.name
    if name in COMMUTATIVE:
        parts.sort(key=lambda part: (len(part), part))
    return f"{name}({','.join(parts)})"
