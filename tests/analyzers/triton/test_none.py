"""`is None` of a computed value is decided; of an argument it is not."""

from __future__ import annotations

from d2k.analyzers.triton.frontend import read
from d2k.spec.facts import Kind

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def unflatten(number, X, Y=None):
    if Y is None:
        return number % X, number // X
    return number % X, (number // X) % Y, number // X // Y


@triton.jit
def kernel(P, n, m, q):
    a, b, c = unflatten(tl.program_id(0), tl.cdiv(n, 16), tl.cdiv(m, 16))
    tl.store(P + a * n + b, c)


def run(P, n, m, q):
    kernel[(8,)](P, n, m, q)
"""


def test_a_helper_with_an_optional_argument_is_followed() -> None:
    (kernel,) = read("kernel.py", SOURCE).kernels
    body = kernel.variants[0].body
    assert not body.unresolved
    (store,) = [op for op in body.ops if op.kind is Kind.STORE]
    seen, stack = set(), [store.args[1]]
    while stack:
        at = stack.pop()
        seen.add(body.ops[at].kind)
        stack.extend(body.ops[at].args)
    assert Kind.BLOCK_INDEX in seen and Kind.CALL not in seen


def test_an_unpacking_tells_which_tuple_a_helper_returned() -> None:
    source = SOURCE.replace("tl.cdiv(m, 16))", "m)")
    (kernel,) = read("kernel.py", source).kernels
    assert not [op for op in kernel.variants[0].body.ops if op.kind is Kind.CALL]
