"""Chunkwise form: a recurrence over tokens is computed as dense products inside chunks of tokens (scores
masked to a triangle,
multiplied with values) plus one state that goes from chunk to chunk.

Causal attention masks scores to a triangle too, but turns them into probabilities and carries no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import difference
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.states import states
from d2k.analyzers.patterns.triangles import triangles
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Status


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the chunkwise form: the masked products of a chunk, or the state between chunks."""

    kernel: KernelView
    value: int
    text: str
    tokens: int | None


def detect_program(program: ProgramView) -> Detection:
    inside: list[_Part] = []
    between: list[_Part] = []
    for kernel in program.kernels:
        inside.extend(_masked_products(kernel))
        between.extend(_states(kernel))
    if not inside and not between:
        return Miss(detail="no products of a chunk masked to a triangle, and no state from chunk to chunk")
    parts = [*inside[:1], *between[:1]]
    chunk = next((part.tokens for part in (*inside, *between) if part.tokens is not None), None)
    attributes: dict[str, FoundValue] = {} if chunk is None else {"chunk": chunk}
    undecided = {} if chunk is not None else {"chunk": "the number of tokens in a chunk is not known here"}
    return (Match(tuple(Evidence(one.kernel.place(one.value), one.text) for one in parts), attributes, undecided),)


def _masked_products(kernel: KernelView) -> Iterator[_Part]:
    """Products of a chunk's tokens with each other, masked to a triangle and multiplied on, not turned into
    probabilities."""
    data = flow(kernel)
    made = {one.value: one for one in products(kernel)}
    for one in triangles(kernel):
        behind = tuple(data.back((one.source,), lambda op: op.kind in ELEMENTS))
        decayed = any(data.is_fetch(at) for at in behind) and any(_is_decay(kernel, at) for at in behind)
        if not decayed and not any(at in made for at in behind):
            continue
        if any(_is_probability(kernel, at) for at in behind):
            continue
        after = frozenset(data.forward((one.value,), lambda op: op.kind in ELEMENTS))
        if any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("exp", "exp2") for at in after):
            continue
        operands = {side for at in behind if at in made for side in (made[at].a, made[at].b) if side != NONE}
        if _is_weighed(kernel, operands) and any(set(data.operands(at)) & after for at in data.outputs()):
            text = "decayed scores of a chunk masked to a triangle, then stored"
            yield _Part(kernel, one.value, text, _side(kernel, one.value))
            continue
        if len(made) < 2 and not decayed:
            continue  # a chunk's output has a part from inside and one from the state
        multiplied = next((each for each in made.values() if {each.a, each.b} & after), None)
        if multiplied is not None:
            yield _Part(
                kernel, one.value, "scores of a chunk masked to a triangle, then multiplied", _side(kernel, one.value)
            )


def _is_decay(kernel: KernelView, value: int) -> bool:
    """exp(c_i - c_j): the scores of a chunk, read from memory, are weighed by the decay between their tokens."""
    op = kernel.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name not in ("exp", "exp2"):
        return False
    terms = difference(kernel, op.args[0])
    return bool(terms.plus) and bool(terms.minus)


def _is_probability(kernel: KernelView, value: int) -> bool:
    """The exponential of a product: of scores, less their log-sum-exp."""
    op = kernel.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name not in ("exp", "exp2"):
        return False
    return any(kernel.op(at).kind is Kind.MMA for at in flow(kernel).back(op.args, lambda one: one.kind in ELEMENTS))


def _is_weighed(kernel: KernelView, operands: set[int]) -> bool:
    """Both sides of a product are scaled by exponentials of fetched sums of log decays."""
    data = flow(kernel)
    scaled = 0
    for side in operands:
        for at in data.back((side,), lambda op: op.kind in ELEMENTS):
            op = kernel.op(at)
            if op.kind is Kind.ELEMENTWISE and op.name in ("exp", "exp2") and data.fetches(at):
                scaled += 1
                break
    return scaled >= 2


ELEMENTS = frozenset({Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.ITEM})


def _side(kernel: KernelView, value: int) -> int | None:
    dims = kernel.dims(value)
    return dims[-1] if dims and len(dims) >= 2 and dims[-1] == dims[-2] else None


def _states(kernel: KernelView) -> Iterator[_Part]:
    for one in states(kernel):
        text = f"state {one.variable} updated by one product for each chunk".replace("  ", " ")
        yield _Part(kernel, one.update.value, text, one.update.k)


_CARRIED = """
@triton.jit
def chunks(Q, K, V, O, T, C: tl.constexpr, D: tl.constexpr):
    dims = tl.arange(0, D)
    at = tl.arange(0, C)
    state = tl.zeros((D, D), tl.float32)
    for start in range(0, T, C):
        place = (start + at)[:, None] * D + dims[None, :]
        q = tl.load(Q + place)
        k = tl.load(K + place)
        v = tl.load(V + place)
        a = tl.where(at[:, None] >= at[None, :], tl.dot(q, tl.trans(k)), 0.0)
        o = tl.dot(q, state.to(q.dtype)) + tl.dot(a.to(v.dtype), v)
        tl.store(O + place, o)
        state += tl.dot(tl.trans(k), v)


def run(q, k, v, o):
    T, D = q.shape
    chunks[(1,)](q, k, v, o, T, C=64, D=D)
"""

_STAGED = """
@triton.jit
def outputs(Q, K, V, States, O, C: tl.constexpr, D: tl.constexpr):
    chunk = tl.program_id(0)
    dims = tl.arange(0, D)
    at = tl.arange(0, C)
    place = (chunk * C + at)[:, None] * D + dims[None, :]
    q = tl.load(Q + place)
    v = tl.load(V + place)
    a = tl.dot(q, tl.trans(tl.load(K + place)))
    a = tl.where(at[:, None] >= at[None, :], a, 0.0)
    state = tl.load(States + (chunk * D + dims[:, None]) * D + dims[None, :])
    tl.store(O + place, tl.dot(q, state) + tl.dot(a.to(v.dtype), v))


@triton.jit
def states(K, V, States, T, C: tl.constexpr, D: tl.constexpr):
    dims = tl.arange(0, D)
    at = tl.arange(0, C)
    state = tl.zeros((D, D), tl.float32)
    for chunk in range(T // C):
        tl.store(States + (chunk * D + dims[:, None]) * D + dims[None, :], state)
        k = tl.load(K + (chunk * C + at)[None, :] * D + dims[:, None])
        state += tl.dot(k, tl.load(V + (chunk * C + at)[:, None] * D + dims[None, :]))


def run(q, k, v, buffer, o):
    T, D = q.shape
    states[(1,)](k, v, buffer, T, C=64, D=D)
    outputs[(T // 64,)](q, k, v, buffer, o, C=64, D=D)
"""

_TOKENS = """
@triton.jit
def recurrent(Q, K, V, O, T, D: tl.constexpr):
    dims = tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for t in range(T):
        k = tl.load(K + t * D + dims)
        state += k[:, None] * tl.load(V + t * D + dims)[None, :]
        tl.store(O + t * D + dims, tl.sum(state * tl.load(Q + t * D + dims)[:, None], 0))


def run(q, k, v, o):
    T, D = q.shape
    recurrent[(1,)](q, k, v, o, T, D=D)
"""

_SOFTMAX = """
@triton.jit
def attention(Q, K, V, O, C: tl.constexpr, D: tl.constexpr):
    dims = tl.arange(0, D)
    at = tl.arange(0, C)
    place = (tl.program_id(0) * C + at)[:, None] * D + dims[None, :]
    s = tl.dot(tl.load(Q + place), tl.trans(tl.load(K + place)))
    s = tl.where(at[:, None] >= at[None, :], s, -1e30)
    p = tl.exp(s - tl.max(s, 1)[:, None])
    v = tl.load(V + place)
    tl.store(O + place, tl.dot(p.to(v.dtype), v) / tl.sum(p, 1)[:, None])


def run(q, k, v, o):
    T, D = q.shape
    attention[(T // 64,)](q, k, v, o, C=64, D=D)
"""

_GEMM = """
@triton.jit
def gemm(A, B, Y, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        a = tl.load(A + rows[:, None] * K + ks[None, :])
        acc += tl.dot(a, tl.load(B + ks[:, None] * N + cols[None, :]))
    tl.store(Y + rows[:, None] * N + cols[None, :], acc)


def run(a, b, y):
    (M, K), N = a.shape, b.shape[1]
    gemm[(M // 64, N // 64)](a, b, y, N, K, BM=64, BN=64, BK=64)
"""

_BACKWARD = """
@triton.jit
def backward(Q, K, LSE, DO, V, DK, C: tl.constexpr, D: tl.constexpr):
    dims = tl.arange(0, D)
    at = tl.arange(0, C)
    rows = tl.program_id(0) * C + at
    place = rows[:, None] * D + dims[None, :]
    q = tl.load(Q + place)
    p = tl.exp(tl.dot(q, tl.trans(tl.load(K + place))) - tl.load(LSE + rows)[:, None])
    p = tl.where(at[:, None] >= at[None, :], p, 0.0)
    ds = p * tl.dot(tl.load(DO + place), tl.trans(tl.load(V + place)))
    tl.store(DK + place, tl.dot(tl.trans(ds).to(q.dtype), q))


def run(q, k, lse, do, v, dk):
    T, D = q.shape
    backward[(T // 64,)](q, k, lse, do, v, dk, C=64, D=D)
"""

_SCORES = """
@triton.jit
def scores(Q, K, G, A, C: tl.constexpr, D: tl.constexpr):
    dims = tl.arange(0, D)
    at = tl.arange(0, C)
    place = (tl.program_id(0) * C + at)[:, None] * D + dims[None, :]
    g = tl.load(G + place)
    a = tl.dot(tl.load(Q + place) * tl.exp(g), tl.trans(tl.load(K + place) * tl.exp(-g)))
    a = tl.where(at[:, None] >= at[None, :], a, 0.0)
    tl.store(A + (tl.program_id(0) * C + at)[:, None] * C + at[None, :], a)


def run(q, k, g, a):
    T, D = q.shape
    scores[(T // 64,)](q, k, g, a, C=64, D=D)
"""

EXAMPLES = (
    Example("decayed scores of a chunk", "triton", _SCORES, Status.PRESENT, {"chunk": 64}),
    Example("causal softmax, backward", "triton", _BACKWARD, Status.ABSENT, trap="look-alike: masked probabilities"),
    Example("state carried by the loop", "triton", _CARRIED, Status.PRESENT, {"chunk": 64}),
    Example("states in a kernel of their own", "triton", _STAGED, Status.PRESENT, {"chunk": 64}),
    Example("token by token", "triton", _TOKENS, Status.ABSENT, trap="a serial recurrence"),
    Example("causal softmax", "triton", _SOFTMAX, Status.ABSENT, trap="look-alike: a triangle of probabilities"),
    Example("plain product", "triton", _GEMM, Status.ABSENT, trap="look-alike: an accumulator is no state"),
)
