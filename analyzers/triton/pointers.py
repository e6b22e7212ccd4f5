"""Which parameters are pointers: those that the address of an access starts from."""

from __future__ import annotations

from collections.abc import Iterable

from d2k.spec.facts import NONE, Body, Kind, Op

ARITHMETIC = frozenset(
    {"mul", "mod", "div", "floordiv", "and", "or", "xor", "shl", "shr", "min", "max", "neg", "exp", "exp2"}
)
ADDRESSED = (Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.COPY)


def pointer_params(bodies: Iterable[Body]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the parameters that are pointers or descriptors, and of those that cannot be."""
    pointers: set[str] = set()
    numbers: set[str] = set()
    for body in bodies:
        _scan(body, pointers, numbers)
    return frozenset(pointers), frozenset(numbers - pointers)


def _scan(body: Body, pointers: set[str], numbers: set[str]) -> None:
    ops = body.ops
    for op in ops:
        if op.kind is Kind.ELEMENTWISE and op.name in ARITHMETIC:
            for arg in op.args:
                if arg != NONE and ops[arg].kind is Kind.PARAM:
                    numbers.add(ops[arg].name)
    for loop in body.loops:
        for value in (loop.start, loop.stop, loop.step):
            if value != NONE and ops[value].kind is Kind.PARAM:
                numbers.add(ops[value].name)
    for op in ops:
        if op.kind in ADDRESSED and op.args and op.attrs.get("space", "global") == "global":
            # an asynchronous copy has global memory on either side
            for address in op.args[:2] if op.kind is Kind.COPY else op.args[:1]:
                pointers.update(_bases(ops, address, numbers))


def _bases(ops: tuple[Op, ...], address: int, numbers: set[str]) -> set[str]:
    found: set[str] = set()
    seen: set[int] = set()
    stack = [address]
    while stack:
        at = stack.pop()
        if at == NONE or at in seen:
            continue
        seen.add(at)
        op = ops[at]
        match op.kind:
            case Kind.PARAM:
                if not op.attrs.get("constexpr") and op.name not in numbers:
                    found.add(op.name)
            case Kind.ELEMENTWISE if op.name in ("add", "sub") and len(op.args) == 2:
                left, right = op.args
                stack.append(left if _may_point(ops, left, numbers) else right)
            case Kind.ELEMENTWISE if op.name == "where":
                stack.extend(op.args[1:])
            case Kind.PHI:
                stack.extend(op.args[1:] if op.name == "if" else op.args)
            case Kind.SHAPE if op.name == "join":
                stack.extend(op.args)
            case Kind.SHAPE if op.name == "index":
                stack.extend(op.args[:-1])
            case Kind.CAST | Kind.SHAPE | Kind.DESCRIPTOR | Kind.ITEM | Kind.CONTROL:
                stack.extend(op.args[:1])
            case _:
                pass
    return found


def _may_point(ops: tuple[Op, ...], value: int, numbers: set[str]) -> bool:
    """Whether a value could be an address: arithmetic other than sums, indices and constants cannot."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        at = stack.pop()
        if at == NONE or at in seen:
            continue
        seen.add(at)
        op = ops[at]
        match op.kind:
            case Kind.PARAM:
                if not op.attrs.get("constexpr") and op.name not in numbers:
                    return True
            case Kind.ELEMENTWISE if op.name in ("add", "sub", "where"):
                stack.extend(op.args)
            case Kind.PHI:
                stack.extend(op.args[1:] if op.name == "if" else op.args)
            case Kind.CAST if op.dtype is not None and op.dtype.startswith(("i", "u")) and op.name == "cast":
                if ops[op.args[0]].kind is Kind.LOAD:
                    return False
                stack.extend(op.args[:1])
            case Kind.CAST | Kind.SHAPE | Kind.DESCRIPTOR | Kind.ITEM | Kind.CONTROL:
                stack.extend(op.args[:1])
            case _:
                pass
    return False
