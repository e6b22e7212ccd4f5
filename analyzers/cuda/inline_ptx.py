"""Inline PTX: operands bound to C++ expressions, each instruction an operation."""

from __future__ import annotations

from d2k.analyzers.core.ptx_text import instructions
from d2k.analyzers.cuda.cpp_types import CType
from d2k.analyzers.cuda.expressions import Expressions
from d2k.analyzers.cuda.syntax import Asm
from d2k.analyzers.cuda.values import Thing, Val
from d2k.spec.facts import NONE, AttrValue, Kind


class InlinePtx(Expressions):
    def _asm(self, node: Asm) -> Thing:
        outputs = [self.expression(operand) for _, operand in node.outputs]
        inputs = [self.val(self.expression(operand)).id for _, operand in node.inputs]
        last = NONE
        for one in instructions(node.text):
            attrs: dict[str, AttrValue] = {"modifiers": one.modifiers, "text": one.opcode}
            last = self.emit(Kind.ASM, one.mnemonic, inputs, attrs, None, None)
        for position, target in enumerate(outputs):
            type_ = self.static_type(target)
            item = self.emit(Kind.ITEM, "", (last,), {"index": position}, type_.dtype)
            self.write(target, Val(item, type_))
        return Val(NONE, CType(name="void"))
