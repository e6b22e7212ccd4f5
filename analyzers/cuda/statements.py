"""Statements: declarations, branches with their guards and merges, loops with what they carry, role regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from d2k.analyzers.core.drafts import LoopDraft
from d2k.analyzers.cuda.assigned import Assigned, assigned
from d2k.analyzers.cuda.calls import Calls
from d2k.analyzers.cuda.core import Context
from d2k.analyzers.cuda.cpp_types import BOOL, INT, UNKNOWN_TYPE, CType
from d2k.analyzers.cuda.expressions import either
from d2k.analyzers.cuda.frames import Frame
from d2k.analyzers.cuda.scope import ClassRef
from d2k.analyzers.cuda.syntax import (
    Asm,
    Assign,
    Binary,
    Block,
    Case,
    Class,
    Decl,
    Enum,
    For,
    If,
    Init,
    Jump,
    Name,
    Node,
    RangeFor,
    Return,
    Switch,
    Unary,
    Using,
    While,
)
from d2k.analyzers.cuda.values import (
    ArrayRef,
    Choice,
    Closure,
    External,
    Functions,
    LocalPointer,
    MemRef,
    Obj,
    ParamRef,
    Pointer,
    SlotRef,
    Thing,
    Tuple,
    Val,
)
from d2k.spec.facts import NONE, Constant, Guard, Kind

T = TypeVar("T")
P = ParamSpec("P")

NEXT = "next"
RETURN = "return"
JUMP = "jump"
"""How a statement ends on every path: it goes on, it leaves the function, it leaves the loop's body."""


@dataclass(slots=True)
class _Carry:
    name: str
    slot: int
    before: Thing
    phi: int


class Statements(Calls):
    def __init__(self, context: Context, constants: Mapping[str, Constant], host: bool) -> None:
        super().__init__(context, constants, host)
        self.loop_frames: list[LoopDraft] = []

    def in_frame(self, frame: Frame, action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        saved = getattr(self, "frame", None), getattr(self, "unit", None), self.at
        self.frame, self.unit = frame, frame.unit
        try:
            return action(*args, **kwargs)
        finally:
            old_frame, old_unit, self.at = saved
            if old_frame is not None and old_unit is not None:
                self.frame, self.unit = old_frame, old_unit

    def run_statement(self, node: Node) -> None:
        self.statement(node)

    def statement(self, node: Node) -> str:
        """Lowers a statement and says how it ends."""
        at = getattr(node, "at", -1)
        if at >= 0:
            self.at = at
        handler = _STATEMENTS.get(type(node))
        if handler is not None:
            return handler(self, node)
        self.expression(node)
        return NEXT

    def _block_statement(self, node: Block) -> str:
        scoped = node.at >= 0
        if scoped:
            self.frame.scopes.append({})
        try:
            return self.sequence(node.items)
        finally:
            if scoped:
                self.frame.scopes.pop()

    def sequence(self, items: tuple[Node, ...]) -> str:
        for item in items:
            end = self.statement(item)
            if end != NEXT:
                return end
        return NEXT

    def _block(self, node: Block) -> Thing:
        self._block_statement(node)
        return Val(NONE, CType(name="void"))

    def other(self, node: Node) -> Thing:
        """A statement where an expression is expected: a block as a macro's argument."""
        self.statement(node)
        return Val(NONE, CType(name="void"))

    # declarations

    def _declaration(self, node: Decl) -> str:
        if node.names:
            self._binding(node)
            return NEXT
        if not node.name:
            return NEXT
        if "shared" in node.storage or ("extern" in node.storage and not self.host):
            if "shared" in node.storage:
                self.bind(node.name, self._shared(node))
            return NEXT
        type_ = self.resolve(node.type)
        if (type_.name == "auto" and type_.dtype is None) or (node.type.base is None and node.type.of is None):
            self._auto(node, type_)
            return NEXT
        if type_.reference and node.init is not None:
            self.bind(node.name, self._reference(node.init, type_))
            return NEXT
        self.bind(node.name, self._variable(node, type_))
        return NEXT

    def _shared(self, node: Decl) -> Thing:
        """A shared variable of a function; each place of the source is one, however often it is inlined."""
        key = (self.unit.path, node.end)
        known = self.globals.get(key)
        if known is None:
            known = self.memory_variable(node)
            self.globals[key] = known
        return known

    def _auto(self, node: Decl, type_: CType) -> None:
        if node.init is None and not node.args:
            self.bind(node.name, SlotRef(self.new_slot(None), UNKNOWN_TYPE))
            return
        init = node.init if node.init is not None else node.args[0]
        if type_.pointer:
            value = self.read(self.initial(init, UNKNOWN_TYPE))
        elif type_.reference:
            self.bind(node.name, self.expression(init))
            return
        else:
            value = self.expression(init) if not isinstance(init, Init) else self.initial(init, UNKNOWN_TYPE)
            if not (isinstance(value, SlotRef) and value.type.dims):
                value = self.read(value)
        self.at = node.at
        self._bind_value(node.name, value, replace(type_, name="") if type_.name == "auto" else type_)

    def _bind_value(self, name: str, value: Thing, type_: CType) -> None:
        """A new variable that holds a value."""
        if isinstance(value, Obj):
            self.bind(name, value)
            return
        if isinstance(value, (Functions, Choice)):
            self.bind(name, SlotRef(self.new_slot(value), type_))
            return
        if isinstance(value, (Closure, External, CType, MemRef)):
            self.bind(name, value)
            return
        if isinstance(value, ArrayRef):
            value = self.decay(value)
        if isinstance(value, SlotRef):
            zero = self.const(0)
            value = LocalPointer(SlotRef(value.slot, value.type.element(), (*value.path, zero)), value.type.element())
        if isinstance(value, Val):
            self.named(value.id, name)
            self.bind(name, SlotRef(self.new_slot(value), value.type))
        elif isinstance(value, Pointer):
            self.named(value.id, name)
            self.bind(name, SlotRef(self.new_slot(value), value.elem.pointer_to()))
        else:
            self.bind(name, SlotRef(self.new_slot(value), type_))

    def _reference(self, init: Node, type_: CType) -> Thing:
        thing = self.initial(init, replace(type_, reference=False))
        if isinstance(thing, MemRef) and (type_.dtype is not None or type_.instance is not None):
            return replace(thing, type=replace(type_, reference=False))
        return thing

    def _variable(self, node: Decl, type_: CType) -> Thing:
        init: Thing | None = None
        if node.init is not None:
            init = self.initial(node.init, type_)
        elif node.style == "(":
            if type_.instance is not None and not type_.pointer:
                return self.construct_object(type_, self.arguments(node.args))
            init = self.construct(type_, self.arguments(node.args))
        elif type_.instance is not None and not type_.pointer and not type_.dims:
            return self.construct_object(type_, [])
        self.at = node.at
        if type_.dims:
            slot = self.new_slot(None)
            value = self.read(init) if init is not None else None
            if isinstance(value, (Val, Tuple)):
                self.set_slot(slot, replace(value, type=type_) if isinstance(value, Val) else value)
                if isinstance(value, Val):
                    self.named(value.id, node.name)
            else:
                self.set_slot(slot, Val(self.local_array(type_, node.name), type_))
            return SlotRef(slot, type_)
        if init is None:
            if type_.name == "dim3":
                return SlotRef(self.new_slot(self.dim3([])), type_)
            if type_.dtype is None and not type_.pointer and type_.lanes == 1 and type_.name not in ("", "auto"):
                value = self.external_object(type_, [])
                return SlotRef(self.new_slot(value), type_)
            return SlotRef(self.new_slot(None), type_)
        value = self.read(init)
        if isinstance(value, Obj):
            return self.copy_of(value) if isinstance(init, SlotRef) else value
        if isinstance(value, (Functions, Choice)):
            return SlotRef(self.new_slot(value), type_)
        if isinstance(value, (Closure, External, CType)):
            return value
        if type_.name == "dim3":
            value = self.dim3([value])
        held = self.simple(value, type_)
        if isinstance(held, (Val, Pointer)):
            self.named(held.id, node.name)
        if type_.dtype is None and not type_.pointer and isinstance(held, Val):
            type_ = held.type if held.type.dtype is not None or held.type.atoms else type_
        return SlotRef(self.new_slot(held), replace(type_, const=False))

    def _binding(self, node: Decl) -> None:
        """`auto [a, b] = value`."""
        value = self.evaluate(node.init) if node.init is not None else None
        for position, name in enumerate(node.names):
            part: Thing
            if isinstance(value, Tuple) and position < len(value.items):
                part = value.items[position]
            elif isinstance(value, Obj) and position < len(value.fields):
                part = list(value.fields.values())[position]
            elif isinstance(value, (Val, Pointer)):
                part = Val(self.emit(Kind.ITEM, "", (value.id,), {"index": position}, None, None))
            else:
                part = Val(self.emit(Kind.CALL, name, (), {"value": True}, None, None))
            self._bind_value(name, self.read(part), UNKNOWN_TYPE)

    def _using(self, node: Using) -> str:
        if not node.tparams:
            self.bind(node.name, self.resolve(node.type))
        return NEXT

    def _local_class(self, node: Class) -> str:
        if not node.tparams:
            self.frame.scopes[-1].pop(node.name, None)
            instance = self.instantiate(ClassRef(node, self.unit), ())
            if instance is not None:
                instance.args.update(
                    {k: v for scope in self.frame.scopes for k, v in scope.items() if isinstance(v, (CType, Val))}
                )
                self.bind(node.name, CType(name=node.name, instance=instance))
        return NEXT

    def _local_enum(self, node: Enum) -> str:
        for position, (name, _) in enumerate(node.items):
            self.bind(name, self.enumerator(node.items[: position + 1], self.unit))
        return NEXT

    # branches

    def _if(self, node: If) -> str:
        self.frame.scopes.append({})
        try:
            if node.init is not None:
                self.statement(node.init)
            self.at = node.at
            condition = self.truth(self.evaluate(node.condition))
            known = self.known(condition.id)
            if known is not None:
                taken, dropped = (node.then, node.other) if known else (node.other, node.then)
                if dropped is not None:
                    self.dropped(dropped, condition.id)
                return self.statement(taken) if taken is not None else NEXT
            return self._branch(condition, node)
        finally:
            self.frame.scopes.pop()

    def dropped(self, node: Node, condition: int) -> None:
        """A branch that a compile-time constant turns off."""
        raise NotImplementedError

    def _branch(self, condition: Val, node: If) -> str:
        b = self.b
        before, partition = b.guards, b.partition
        role = self.is_role(condition.id)
        text = self.condition_text(node.condition) if role else ""
        mark = len(self.journal)
        b.guards = (*before, Guard(condition.id, True))
        if role:
            b.partition = _inside(partition, text)
        then_end = self.statement(node.then)
        then = self.take_back(mark)
        b.guards = (*before, Guard(condition.id, False))
        b.partition = _inside(partition, f"not ({text})") if role and node.other is not None else partition
        else_end = self.statement(node.other) if node.other is not None else NEXT
        b.guards, b.partition = before, partition
        if then_end != NEXT and else_end != NEXT:
            return RETURN if then_end == else_end == RETURN else JUMP
        if then_end != NEXT:
            b.guards = (*before, Guard(condition.id, False))
            if role and then_end == RETURN:
                b.partition = _inside(partition, f"not ({text})")
            return NEXT
        if else_end != NEXT:
            self.take_back(mark)
            for slot, value in then.items():
                self.set_slot(slot, value)
            b.guards = (*before, Guard(condition.id, True))
            return NEXT
        self._merge(condition, then, mark)
        return NEXT

    def _merge(self, condition: Val, then: dict[int, Thing | None], mark: int) -> None:
        """Joins the variables of two branches: `then` holds those that one changed, the other's stand since `mark`."""
        old: dict[int, Thing | None] = {}
        for slot, value in self.journal[mark:]:
            old.setdefault(slot, value)
        for slot in dict.fromkeys((*then, *old)):
            no = self.slots.get(slot)
            yes = then[slot] if slot in then else old.get(slot)
            if no is None or yes is None:
                if no is None and yes is not None:
                    self.set_slot(slot, yes)
                continue
            if yes is no or yes == no:
                continue
            if isinstance(yes, (Functions, Choice)) and isinstance(no, (Functions, Choice)):
                self.set_slot(slot, either(yes, no))
                continue
            a, c = _id(yes), _id(no)
            if a is None or c is None:
                if isinstance(yes, (Functions, Choice)):
                    self.set_slot(slot, yes)
                if a is not None:
                    self.set_slot(slot, yes)
                continue
            draft = self.b.ops[a]
            phi = self.emit(Kind.PHI, "if", (condition.id, a, c), {}, draft.dtype or self.b.ops[c].dtype, draft.shape)
            self.b.ops[phi].variable = draft.variable or self.b.ops[c].variable
            if isinstance(yes, Pointer):
                space = yes.space if not isinstance(no, Pointer) or no.space == yes.space else "unknown"
                self.set_slot(slot, replace(yes, id=phi, space=space))
            else:
                assert isinstance(yes, Val)
                self.set_slot(slot, replace(yes, id=phi))

    def condition_text(self, node: Node) -> str:
        start = _first(node)
        text = self.unit.prepared.text
        end = start
        depth = 0
        while end < len(text) and end - start < 80:
            char = text[end]
            depth += (char in "([") - (char in ")]")
            if depth < 0 or char in "{;":
                break
            end += 1
        return " ".join(text[start:end].split())

    def is_role(self, condition: int) -> bool:
        """Whether a condition chooses warps: made from the warp's number and constants only."""
        draft = self.b.ops[condition]
        if draft.kind is Kind.ELEMENTWISE and draft.name in ("and", "or", "not"):
            return any(self.is_role(arg) for arg in draft.args)
        found = False
        stack = [condition]
        seen: set[int] = set()
        while stack:
            value = stack.pop()
            if value in seen or value < 0:
                continue
            seen.add(value)
            one = self.b.ops[value]
            if one.kind is Kind.WARP:
                found = True
            elif (
                one.kind is Kind.CONST
                or (one.kind is Kind.PARAM and one.attrs.get("constexpr"))
                or one.kind in (Kind.LANE, Kind.VOTE, Kind.BLOCK_SIZE)
            ):
                continue
            elif one.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.PHI):
                if self._splits_warps(one.name, one.args):
                    found = True
                    continue
                if value in self.linear:
                    return False
                stack.extend(one.args)
            else:
                return False
        return found

    def _splits_warps(self, name: str, args: tuple[int, ...]) -> bool:
        """A thread's number compared with a multiple of the warp's size."""
        if name not in ("lt", "ge", "le", "gt") or len(args) != 2 or not self._is_linear(args[0]):
            return False
        bound = self.known_int(args[1])
        if bound is None:
            return False
        if name in ("le", "gt"):
            bound += 1
        return bound > 0 and bound % 32 == 0

    def _switch(self, node: Switch) -> str:
        value = self.evaluate(node.condition)
        subject = self.val(value)
        known = self.known(subject.id)
        if known is not None:
            return self._known_case(node, known)
        groups = list(_groups(node.cases))
        return self._cases(subject, groups, 0)

    def _known_case(self, node: Switch, known: Constant) -> str:
        chosen: int | None = None
        default: int | None = None
        for position, case in enumerate(node.cases):
            if case.value is None:
                default = position
            elif chosen is None and self.known(self.value(case.value).id) == known:
                chosen = position
        start = chosen if chosen is not None else default
        if start is None:
            return NEXT
        for case in node.cases[start:]:
            end = self._case_items(case.items)
            if end != NEXT:
                return NEXT if end == "break" else end
        return NEXT

    def _case_items(self, items: tuple[Node, ...]) -> str:
        """Items of a case up to its break."""
        self.frame.scopes.append({})
        try:
            for item in items:
                if isinstance(item, Jump) and item.word == "break":
                    return "break"
                last = item.items[-1] if isinstance(item, Block) and item.items else None
                if isinstance(item, Block) and isinstance(last, Jump) and last.word == "break":
                    end = self._block_statement(Block(item.at, item.items[:-1]))
                    return "break" if end == NEXT else end
                end = self.statement(item)
                if end != NEXT:
                    return end
            return NEXT
        finally:
            self.frame.scopes.pop()

    def _cases(self, subject: Val, groups: list[tuple[tuple[Case, ...], tuple[Node, ...]]], position: int) -> str:
        """Cases one after the other, each under the condition that it is chosen."""
        all_leave = True
        results: list[tuple[Val | None, dict[int, Thing | None], str]] = []
        b = self.b
        before, partition = b.guards, b.partition
        mark = len(self.journal)
        excluded: tuple[Guard, ...] = ()
        for labels, items in groups[position:]:
            condition: Val | None = None
            for case in labels:
                if case.value is None:
                    condition = None
                    break
                one = self.binary("==", subject, self.evaluate(case.value))
                one_val = self.val(one)
                condition = (
                    one_val
                    if condition is None
                    else Val(self.emit(Kind.ELEMENTWISE, "or", (condition.id, one_val.id), {}, "bool"), BOOL)
                )
            if condition is not None:
                b.guards = (*before, *excluded, Guard(condition.id, True))
                if self.is_role(condition.id):
                    names = " or ".join(self.condition_text(c.value) for c in labels if c.value is not None)
                    b.partition = _inside(partition, f"case {names.split(':')[0]}")
            else:
                b.guards = (*before, *excluded)
            end = self._case_items(items)
            b.guards, b.partition = before, partition
            end = NEXT if end == "break" else end
            results.append((condition, self.take_back(mark), end))
            all_leave = all_leave and end != NEXT
            if condition is not None:
                excluded = (*excluded, Guard(condition.id, False))
        has_default = any(condition is None for condition, _, _ in results)
        for condition, changed, end in reversed(results):
            if end != NEXT:
                continue
            if condition is None:
                for slot, value in changed.items():
                    self.set_slot(slot, value)
            else:
                self._merge(condition, changed, mark)
        return RETURN if all_leave and has_default and results else NEXT

    # loops

    def _for(self, node: For) -> str:
        self.frame.scopes.append({})
        try:
            if node.init is not None:
                self.statement(node.init)
            self._loop(node, node.condition, node.body, node.update, "for", False)
        finally:
            self.frame.scopes.pop()
        return NEXT

    def _while(self, node: While) -> str:
        if node.after and self.known_false(node.condition):
            # do { … } while (0): a macro's block
            self.statement(node.body)
            return NEXT
        self._loop(node, node.condition, node.body, None, "while", node.after)
        return NEXT

    def known_false(self, node: Node) -> bool:
        from d2k.analyzers.cuda.syntax import Literal

        return isinstance(node, Literal) and not node.value

    def _range_for(self, node: RangeFor) -> str:
        over = self.expression(node.over)
        items = self.read(over)
        self.frame.scopes.append({})
        try:
            if isinstance(items, Tuple) and len(items.items) <= 16:
                for item in items.items:
                    self._bind_element(node.decl, item)
                    self.statement(node.body)
                return NEXT
            draft = self.b.open_loop("for", self.unit.place(node.at, node.end))
            self.loop_frames.append(draft)
            carries = self._open_carries([node.body])
            before = self.b.guards
            value = self.val(items)
            element = value.type.element() if value.type.dims else UNKNOWN_TYPE
            phi = self.emit(Kind.PHI, "loop", (NONE, NONE), {}, "i32")
            if isinstance(over, SlotRef) and over.type.dims:
                self._bind_element(node.decl, SlotRef(over.slot, over.type.element(), (*over.path, phi)))
                draft.start, draft.stop = self.const(0), self.const(over.type.dims[0])
                draft.variable, draft.step = phi, self.const(1)
                self.b.ops[phi].args = (draft.start, NONE)
            else:
                self._bind_element(
                    node.decl, Val(self.emit(Kind.ITEM, "", (value.id,), {}, element.dtype, None), element)
                )
            self.statement(node.body)
            self.b.guards = before
            self._close_carries(draft, carries)
            self.loop_frames.pop()
            self.b.close_loop()
            return NEXT
        finally:
            self.frame.scopes.pop()

    def _bind_element(self, decl: Decl, item: Thing) -> None:
        if decl.name:
            if decl.type.reference:
                self.bind(decl.name, item)
            else:
                self._bind_value(decl.name, self.read(item), UNKNOWN_TYPE)
        for position, name in enumerate(decl.names):
            held = self.read(item)
            part = (
                held.items[position]
                if isinstance(held, Tuple) and position < len(held.items)
                else Val(self.emit(Kind.ITEM, "", (self.val(held).id,), {"index": position}, None, None))
            )
            self._bind_value(name, part, UNKNOWN_TYPE)

    def _loop(
        self, node: For | While, condition: Node | None, body: Node, update: Node | None, form: str, after: bool
    ) -> None:
        b = self.b
        draft = b.open_loop(form, self.unit.place(node.at, node.end))
        unroll = self.unit.unroll_at(node.at)
        if unroll is not None:
            draft.attrs["unroll"] = self._unroll_factor(unroll)
        before, partition = b.guards, b.partition
        carries = self._open_carries([one for one in (condition, body, update) if one is not None])
        self.loop_frames.append(draft)
        test: Val | None = None
        if condition is not None and not after:
            self.at = node.at
            test = self.truth(self.evaluate(condition))
            if self.known(test.id) is not None and self.b.ops[test.id].kind is Kind.CONST:
                test = None
        self.statement(body)
        b.guards, b.partition = before, partition
        if update is not None:
            self.at = getattr(update, "at", node.at)
            self.expression(update)
        if condition is not None and after:
            test = self.truth(self.evaluate(condition))
            if self.b.ops[test.id].kind is Kind.CONST:
                test = None
        self.loop_frames.pop()
        if test is not None:
            draft.condition = test.id
        nexts = self._close_carries(draft, carries, after)
        self._induction(draft, carries, nexts)
        b.close_loop()

    def _unroll_factor(self, text: str) -> bool | int:
        """`#pragma unroll`'s factor; True for all iterations."""
        if not text:
            return True
        plain = text.strip().strip("()").strip()
        if plain.isdigit():
            return int(plain)
        thing = self.find(plain) if plain.isidentifier() else None
        known = self.known_int(self.val(thing).id) if thing is not None else None
        return known if known is not None else True

    def _open_carries(self, parts: list[Node]) -> list[_Carry]:
        """Gives every variable that the loop may change a value of its own inside the loop."""
        names = self._assigned_names(parts)
        carries: list[_Carry] = []
        seen: set[int] = set()
        for name in sorted(names):
            thing = self._find_local(name)
            if thing is not None:
                for label, slot in self._slots_of(name, thing, 0):
                    if slot in seen:
                        continue
                    seen.add(slot)
                    held = self.slots.get(slot)
                    if held is None:
                        continue
                    value = _id(held)
                    if value is None:
                        if isinstance(held, Tuple):
                            held = self.val(held)
                            value = held.id
                        else:
                            continue
                    draft = self.b.ops[value]
                    phi = self.emit(Kind.PHI, "loop", (value, NONE), {}, draft.dtype, draft.shape)
                    self.b.ops[phi].variable = label
                    carries.append(_Carry(label, slot, held, phi))
                    if isinstance(held, (Val, Pointer)):
                        self.set_slot(slot, replace(held, id=phi))
        return carries

    def _assigned_names(self, parts: list[Node]) -> set[str]:
        names: set[str] = set()
        called: set[str] = set()
        stack = list(parts)
        seen: set[int] = set()
        while stack:
            found = self._assigned(stack.pop())
            names |= found.names
            for name in found.called:
                if name in called:
                    continue
                called.add(name)
                thing = self._find_local(name)
                held = self.slots.get(thing.slot) if isinstance(thing, SlotRef) else thing
                if isinstance(held, Closure) and id(held.node) not in seen:
                    seen.add(id(held.node))
                    stack.append(held.node.body)
                elif isinstance(held, Obj):
                    names.add(name)
        frame = self.frame
        if frame.this is not None and any(
            name in called for name in (m.name for m in frame.this.instance.ref.cls.methods)
        ):
            names |= set(frame.this.fields)
        return names

    def _assigned(self, node: Node) -> Assigned:
        known = self.context.assigned.get(id(node))
        if known is None:
            known = self.context.assigned[id(node)] = (node, assigned(node))
        return known[1]

    def _find_local(self, name: str) -> Thing | None:
        frame: Frame | None = self.frame
        while frame is not None:
            for scope in reversed(frame.scopes):
                if name in scope:
                    return scope[name]
            if frame.this is not None and name in frame.this.fields:
                return frame.this.fields[name]
            frame = frame.parent
        if name == "this" and self.frame.this is not None:
            return self.frame.this
        return None

    def _slots_of(self, name: str, thing: Thing, depth: int) -> Iterator[tuple[str, int]]:
        """The variables behind a name: its own, those of its fields, those that it points to."""
        if depth > 6:
            return
        if isinstance(thing, SlotRef):
            held = self.slots.get(thing.slot)
            if isinstance(held, LocalPointer):
                yield from self._slots_of(name, held.target, depth + 1)
            elif isinstance(held, Obj):
                yield from self._slots_of(name, held, depth + 1)
            elif isinstance(held, Tuple):
                for item in held.items:
                    yield from self._slots_of(name, item, depth + 1)
            yield name, thing.slot
        elif isinstance(thing, LocalPointer):
            yield from self._slots_of(name, thing.target, depth + 1)
        elif isinstance(thing, Obj):
            for field_name, field in thing.fields.items():
                yield from self._slots_of(f"{name}.{field_name}", field, depth + 1)
        elif isinstance(thing, Tuple):
            for item in thing.items:
                yield from self._slots_of(name, item, depth + 1)
        elif isinstance(thing, Closure):
            return

    def _close_carries(self, draft: LoopDraft, carries: list[_Carry], after: bool = False) -> dict[int, int]:
        """Completes the loop's variables; behind the loop they have the value that they had at its last test."""
        nexts: dict[int, int] = {}
        for carry in carries:
            held = self.slots.get(carry.slot)
            following = _id(held) if held is not None else None
            before = _id(carry.before)
            nexts[carry.phi] = following if following is not None else NONE
            phi = self.b.ops[carry.phi]
            phi.args = (phi.args[0], nexts[carry.phi])
            draft.carried.append((carry.name, before if before is not None else NONE, carry.phi, nexts[carry.phi]))
            if held is not None and following is not None and not after:
                assert isinstance(held, (Val, Pointer))
                self.set_slot(carry.slot, replace(held, id=carry.phi))
        return nexts

    def _induction(self, draft: LoopDraft, carries: list[_Carry], nexts: dict[int, int]) -> None:
        """Recognises `for (i = a; i < b; i += c)`, in whatever form it is written."""
        ops = self.b.ops
        if draft.condition == NONE:
            return
        test = ops[draft.condition]
        while test.kind is Kind.ELEMENTWISE and test.name == "and":
            test = ops[test.args[0]]
        negated = test.kind is Kind.ELEMENTWISE and test.name == "not"
        if negated:
            test = ops[test.args[0]]
        if test.kind is not Kind.ELEMENTWISE or len(test.args) != 2 or test.name not in _OPPOSITE:
            return
        phis = {carry.phi: carry for carry in carries}
        name, (left, right) = (_OPPOSITE[test.name] if negated else test.name), test.args
        if name not in _MIRROR:
            return
        left, right = self._uncast(left), self._uncast(right)
        if left not in phis and right in phis:
            name, left, right = _MIRROR[name], right, left
        if left not in phis:
            return
        carry = phis[left]
        following = nexts.get(left, NONE)
        if following == NONE:
            return
        step = self._step_of(left, following)
        if step is None:
            return
        value, down = step
        draft.variable, draft.start = left, ops[left].args[0]
        draft.step = (
            self.b.const(-1 * known, self.place()) if down and (known := self.known_int(value)) is not None else value
        )
        if down and self.known_int(value) is None:
            draft.step = self.emit(Kind.ELEMENTWISE, "neg", (value,), {}, "i32")
        if name in ("lt", "ne", "gt"):
            draft.stop = right
        elif name == "le":
            draft.stop = self.val(self.binary("+", Val(right, INT), self.int_val(1))).id
        else:
            draft.stop = self.val(self.binary("-", Val(right, INT), self.int_val(1))).id
        ops[left].variable = carry.name
        if draft.form == "for" and draft.attrs.get("unroll") is True:
            bounds = (draft.start, draft.stop, draft.step)
            if all(self.known_int(bound) is not None for bound in bounds):
                draft.form = "static"

    def _uncast(self, value: int) -> int:
        while self.b.ops[value].kind is Kind.CAST:
            value = self.b.ops[value].args[0]
        return value

    def _step_of(self, phi: int, following: int) -> tuple[int, bool] | None:
        """The value that is added to (or, with True, subtracted from) a variable in every iteration."""
        op = self.b.ops[self._uncast(following)]
        if op.kind is not Kind.ELEMENTWISE or op.name not in ("add", "sub") or len(op.args) != 2:
            return None
        left, right = (self._uncast(arg) for arg in op.args)
        if left == phi:
            return op.args[1], op.name == "sub"
        if right == phi and op.name == "add":
            return op.args[0], False
        return None

    # leaving

    def _return(self, node: Return) -> str:
        if node.value is not None:
            thing = self.expression(node.value)
            if isinstance(node.value, Init):
                pass
            returned = thing if isinstance(thing, (MemRef, ArrayRef, Obj, SlotRef, ParamRef)) else self.read(thing)
            if isinstance(returned, SlotRef):
                held = self.slots.get(returned.slot)
                if not (self._returns_reference() or returned.type.dims) or held is None:
                    returned = self.read(returned)
            elif isinstance(returned, (MemRef, ArrayRef, ParamRef)) and not self._returns_reference():
                returned = self.read(returned)
            self.frame.returns.append((self.b.guards, returned))
        return RETURN

    def _returns_reference(self) -> bool:
        return False

    def _jump(self, node: Jump) -> str:
        if node.word == "break" and self.loop_frames:
            draft = self.loop_frames[-1]
            if draft.condition == NONE and self.b.guards[len(draft.guards) :]:
                guards = self.b.guards[len(draft.guards) :]
                if len(guards) == 1:
                    last = guards[-1]
                    draft.condition = (
                        self.emit(Kind.ELEMENTWISE, "not", (last.value,), {}, "bool") if last.expected else last.value
                    )
        return JUMP

    def _asm_statement(self, node: Asm) -> str:
        self._asm(node)
        return NEXT


_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "ne": "eq", "eq": "ne"}
_MIRROR = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne"}


def _id(thing: Thing | None) -> int | None:
    return thing.id if isinstance(thing, (Val, Pointer)) else None


def _inside(outer: str, inner: str) -> str:
    return f"{outer}/{inner}" if outer else inner


def _first(node: Node) -> int:
    """The offset where an expression begins."""
    steps = 0
    while steps < 64:
        steps += 1
        if isinstance(node, Binary):
            node = node.left
        elif isinstance(node, Assign):
            node = node.target
        elif isinstance(node, Name) and node.scope is not None:
            node = node.scope
        elif isinstance(node, Unary) and node.op.startswith("p"):
            node = node.operand
        else:
            break
    return int(getattr(node, "at", 0))


def _groups(cases: tuple[Case, ...]) -> Iterator[tuple[tuple[Case, ...], tuple[Node, ...]]]:
    """Labels that share a body."""
    labels: list[Case] = []
    for case in cases:
        labels.append(case)
        if case.items:
            yield tuple(labels), case.items
            labels = []


_STATEMENTS: dict[type, Callable[[Statements, Node], str]] = {
    Block: Statements._block_statement,  # type: ignore[dict-item]  # each handler takes the node type that it stands under
    Decl: Statements._declaration,  # type: ignore[dict-item]
    Using: Statements._using,  # type: ignore[dict-item]
    Class: Statements._local_class,  # type: ignore[dict-item]
    Enum: Statements._local_enum,  # type: ignore[dict-item]
    If: Statements._if,  # type: ignore[dict-item]
    Switch: Statements._switch,  # type: ignore[dict-item]
    For: Statements._for,  # type: ignore[dict-item]
    While: Statements._while,  # type: ignore[dict-item]
    RangeFor: Statements._range_for,  # type: ignore[dict-item]
    Return: Statements._return,  # type: ignore[dict-item]
    Jump: Statements._jump,  # type: ignore[dict-item]
    Asm: Statements._asm_statement,  # type: ignore[dict-item]
}
