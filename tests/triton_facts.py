"""Short ways to read facts in the tests of the Python front end."""

from __future__ import annotations

import textwrap

from d2k.analyzers.core.fold import fold
from d2k.analyzers.triton.frontend import read
from d2k.spec.facts import Body, Function, Kernel, Kind, Op, Program

HEADER = "import torch\nimport triton\nimport triton.language as tl\n"


def program(code: str, entry: str = "", header: str = HEADER) -> Program:
    return read("kernel.py", header + textwrap.dedent(code), entry)


def kernel(code: str, name: str = "", entry: str = "") -> Kernel:
    found = program(code, entry).kernels
    return next(one for one in found if one.name == name) if name else found[0]


def body(code: str, name: str = "") -> Body:
    """The body of the first variant of a kernel."""
    return kernel(code, name).variants[0].body


def function(code: str, name: str, entry: str = "") -> Function:
    return next(one for one in program(code, entry).functions if one.name == name)


def find(body: Body, kind: Kind, name: str | None = None) -> list[int]:
    return [at for at, op in enumerate(body.ops) if op.kind is kind and name in (None, op.name)]


def one(body: Body, kind: Kind, name: str | None = None) -> Op:
    """The only operation of a kind."""
    found = find(body, kind, name)
    assert len(found) == 1, [body.ops[at] for at in found]
    return body.ops[found[0]]


def form(body: Body, value: int, depth: int = 12) -> str:
    """An expression as text: `add(x, mul(pid, BLOCK))`."""
    if value < 0:
        return "-"
    op = body.ops[value]
    if op.kind is Kind.PARAM:
        return op.name
    if op.kind is Kind.CONST:
        return repr(op.attrs.get("value"))
    if op.kind is Kind.BLOCK_INDEX:
        return f"pid{op.attrs['axis']}"
    if depth == 0:
        return "…"
    if op.kind is Kind.PHI and op.name == "loop":
        return f"phi:{op.variable}"
    name = op.name or op.kind.value
    if op.kind is Kind.ITEM:
        name = f"item{op.attrs.get('index', '')}"
    return f"{name}({', '.join(form(body, arg, depth - 1) for arg in op.args)})"


def dims(body: Body, value: int, constants: dict[str, object] | None = None) -> tuple[object, ...] | None:
    shape = body.ops[value].shape
    return None if shape is None else tuple(fold(body, dim, constants or {}) for dim in shape)  # type: ignore[arg-type]
