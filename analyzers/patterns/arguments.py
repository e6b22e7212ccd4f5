"""What host code hands to a kernel: the argument behind a parameter, its element type, and how it lies in memory."""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.view import BodyView, KernelView
from d2k.analyzers.patterns.hosts import launches, short
from d2k.spec.facts import NONE, Kind, Op

MAX_STEPS = 32
SAME_LAYOUT = frozenset({"view", "detach", "requires_grad_", "data_ptr", "contiguous", "clone", "flatten", "ravel"})
SAME_TYPE = SAME_LAYOUT | {
    "reshape",
    "transpose",
    "permute",
    "t",
    "unsqueeze",
    "squeeze",
    "expand",
    "narrow",
    "new_empty",
    "new_zeros",
    "from_tensor",
    "TensorDescriptor",
}
MAKES_CONTIGUOUS = frozenset({"contiguous", "flatten", "ravel"})


def arguments(kernel: KernelView, name: str) -> Iterator[tuple[BodyView, int]]:
    """For each launch of the variant, the host body and the value passed for parameter `name`."""
    for host, value in launches(kernel):
        op = host.op(value)
        names = op.attrs.get("params")
        first = op.attrs.get("grid", 0)
        if not isinstance(names, tuple) or not isinstance(first, int) or op.name != kernel.kernel.name:
            continue
        if name in names and first + names.index(name) < len(op.args):
            yield host, op.args[first + names.index(name)]


def element_type(kernel: KernelView, name: str) -> str | None:
    """The element type of the tensor behind a parameter, None if the source does not say or launches differ."""
    declared = next((param.dtype for param in kernel.kernel.params if param.name == name), None)
    if declared is not None:
        return declared
    found = {_element_type(host, value) for host, value in arguments(kernel, name)}
    return found.pop() if len(found) == 1 else None


def _element_type(host: BodyView, value: int) -> str | None:
    for _ in range(MAX_STEPS):
        if value == NONE:
            return None
        op = host.op(value)
        if op.dtype is not None:
            return op.dtype if op.kind in (Kind.HOST_ALLOC, Kind.HOST_CALL, Kind.CAST) else None
        same = (op.kind is Kind.HOST_ALLOC and op.name.endswith("_like")) or (
            op.kind in (Kind.HOST_CALL, Kind.DESCRIPTOR, Kind.ATTRIBUTE) and _callee(op) in SAME_TYPE
        )
        if not same or not op.args:
            return None
        value = op.args[0]
    return None


def _callee(op: Op) -> str:
    return short(str(op.attrs.get("callee", op.name))) if op.kind is not Kind.DESCRIPTOR else "TensorDescriptor"


def is_contiguous(host: BodyView, value: int) -> bool | None:
    """Whether a host tensor is stored densely in the order of its axes; None if the source does not say."""
    for _ in range(MAX_STEPS):
        if value == NONE:
            return None
        op = host.op(value)
        if op.kind is Kind.HOST_ALLOC:
            return True if not op.name.endswith("_like") else is_contiguous(host, op.args[0]) if op.args else None
        if op.kind is Kind.PHI and op.name == "if":
            found = {is_contiguous(host, arg) for arg in op.args[1:]}
            return found.pop() if len(found) == 1 else None
        if op.kind is not Kind.HOST_CALL or not op.args:
            return None
        callee = _callee(op)
        if callee in MAKES_CONTIGUOUS:
            return True
        if callee not in SAME_LAYOUT:
            return None
        value = op.args[0]
    return None


def is_last_stride(host: BodyView, value: int) -> bool | None:
    """`value` is the stride of a dense tensor's last axis, that is 1; None if the source does not say."""
    op = host.op(value)
    if op.kind is Kind.CONST:
        return op.attrs.get("value") == 1
    if op.kind is not Kind.ITEM or host.op(op.args[0]).name != "stride":
        return None
    tensor = host.op(op.args[0]).args[0]
    rank = rank_of(host, tensor)
    index = op.attrs.get("index")
    if not isinstance(index, int) or is_contiguous(host, tensor) is not True:
        return None
    if index < 0:
        return index == -1
    return None if rank is None else index == rank - 1


def rank_of(host: BodyView, tensor: int) -> int | None:
    """The number of a host tensor's axes: from its allocation, its view, or how its shape is unpacked."""
    op = host.op(tensor)
    if op.kind is Kind.HOST_ALLOC and not op.name.endswith("_like"):
        return len(op.args) if len(op.args) > 1 else None
    if op.kind is Kind.HOST_ALLOC and op.args:
        return rank_of(host, op.args[0])
    if op.kind is Kind.HOST_CALL and short(op.name) in ("view", "reshape") and len(op.args) > 2:
        return len(op.args) - 1
    unpacked = [
        index
        for user in host.users(tensor)
        if host.op(user).name == "shape"
        for item in host.users(user)
        if isinstance(index := host.op(item).attrs.get("index"), int) and index >= 0
    ]
    if unpacked and set(unpacked) == set(range(max(unpacked) + 1)) and len(unpacked) > 1:
        return max(unpacked) + 1
    if op.kind is Kind.HOST_CALL and short(op.name) in SAME_LAYOUT - {"view", "flatten", "ravel"} and op.args:
        return rank_of(host, op.args[0])
    return None
