"""How state moves between chunks of a sequence: carried, on chip, by a block that walks the chunks and updates the
state with one product for each; or staged, through a buffer of chunk states that a pass of its own adds up with decays.

A state that changes with every token, and an accumulator that is only read when its loop is over, are neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns import stationary
from d2k.analyzers.patterns.arguments import element_type
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import EXPONENTIALS
from d2k.analyzers.patterns.loops import walked
from d2k.analyzers.patterns.states import states
from d2k.spec.facts import NONE, Carried, Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status

WORDS = {"f32": "fp32", "bf16": "bf16"}


@dataclass(frozen=True, slots=True)
class _Flow:
    mode: str
    dtype: str | None
    evidence: tuple[Evidence, ...]


def detect_program(program: ProgramView) -> Detection:
    found: dict[tuple[str, str], _Flow] = {}
    for kernel in program.kernels:
        for one in (*_carried(kernel), *_decayed(kernel), *_passed(kernel)):
            found.setdefault((kernel.kernel.name, one.mode), one)
    if found:
        return tuple(_match(one) for one in found.values())
    for kernel in program.kernels:
        for state in stationary.states(kernel):
            evidence = (Evidence(kernel.place(state.use), "state of every token"),)
            return Miss(Reason.NO_TRACE, "a state is carried from token to token, not from chunk to chunk", evidence)
    return Miss(detail="no state goes from chunk to chunk")


def _match(one: _Flow) -> Match:
    attributes: dict[str, FoundValue] = {"mode": one.mode}
    undecided: dict[str, str] = {}
    if one.dtype in WORDS:
        attributes["state_dtype"] = WORDS[one.dtype]
    else:
        undecided["state_dtype"] = "the state's element type is not known here"
    return Match(one.evidence, attributes, undecided)


def _carried(kernel: KernelView) -> Iterator[_Flow]:
    for one in states(kernel):
        update = kernel.op(one.update.value)
        held = next((cell for cell in kernel.loop(one.loop).carried if cell.variable == one.variable), None)
        dtype = update.attrs.get("acc_dtype") if held is None else _type(kernel, held) or update.attrs.get("acc_dtype")
        yield _Flow(
            "carried",
            dtype if isinstance(dtype, str) else None,
            (
                Evidence(kernel.place(one.update.value), "updates the state, once for each chunk"),
                Evidence(kernel.place(one.use), "uses the state of the chunks before"),
            ),
        )


def _type(kernel: KernelView, held: Carried) -> str | None:
    return kernel.op(held.phi).dtype or kernel.op(held.before).dtype


def _decayed(kernel: KernelView) -> Iterator[_Flow]:
    """A sum of products that a decay, read for each chunk, multiplies before the next is added: the state of a part of
    the sequence, which is handed on when the part is over."""
    data = flow(kernel)
    for loop in range(len(kernel.body.loops)):
        fetched = frozenset(walked(kernel, loop))
        for held in kernel.loop(loop).carried if fetched and kernel.values(Kind.MMA) else ():
            behind = tuple(data.back((held.next,), _updates))
            update = next((at for at in behind if kernel.op(at).kind is Kind.MMA), NONE)
            decay = next((at for at in behind if _scales(kernel, at, held, fetched)), NONE)
            if update != NONE and decay != NONE and held.phi in behind:
                evidence = (
                    Evidence(kernel.place(update), "updates the state, once for each chunk"),
                    Evidence(kernel.place(decay), "decays the state of the chunks before"),
                )
                dtype = _type(kernel, held) or kernel.op(update).attrs.get("acc_dtype")
                yield _Flow("carried", dtype if isinstance(dtype, str) else None, evidence)


def _updates(op: Op) -> bool:
    return op.kind in (Kind.PHI, Kind.CAST, Kind.SHAPE, Kind.ITEM, Kind.MMA) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "mul", "fma", "where")
    )


def _scales(kernel: KernelView, value: int, held: Carried, fetched: frozenset[int]) -> bool:
    """The old state times the exponential of numbers that are read as they are, not found from scores."""
    op = kernel.op(value)
    if op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma"):
        return False
    data = flow(kernel)
    for old, decay in (op.args[:2], op.args[1::-1]):
        inner = kernel.op(kernel.strip(decay))
        if inner.kind is Kind.ELEMENTWISE and inner.name in EXPONENTIALS and held.phi in data.back((old,), _updates):
            behind = frozenset(data.back((kernel.strip(decay),)))
            reduced = any(kernel.op(at).kind in (Kind.MMA, Kind.REDUCE) for at in behind)
            if behind & fetched and not reduced:
                return True
    return False


# staged


def _passed(kernel: KernelView) -> Iterator[_Flow]:
    """`state = state * decay + chunk's state`, where both lie in memory and the decay is one number for each chunk."""
    data = flow(kernel)
    for loop in range(len(kernel.body.loops)):
        fetched = frozenset(walked(kernel, loop))
        stores = [at for at in data.outputs() if loop in kernel.loops_of(at)]
        if not fetched or not stores or kernel.values(Kind.MMA):
            continue
        for held in kernel.loop(loop).carried:
            if held.next in (held.phi, NONE) or not (kernel.op(held.phi).shape or kernel.op(held.next).shape):
                continue
            added = _added(kernel, held, fetched)
            kept = next((at for at in stores if held.phi in data.back((at,), _is_copy)), None)
            kept = kept or next((at for at in stores if held.next in data.back((at,), _is_copy)), None)
            if added is None or kept is None:
                continue
            name = kernel.pointer(kernel.op(kept).args[0])
            dtype = kernel.op(kernel.op(kept).args[1]).dtype or (element_type(kernel, name) if name else None)
            yield _Flow(
                "staged",
                dtype,
                (
                    Evidence(kernel.place(added), "adds the state of one chunk to the decayed state"),
                    Evidence(kernel.place(kept), "stores the state for the chunk's own stage"),
                ),
            )


def _is_copy(op: object) -> bool:
    return (
        getattr(op, "kind", None) in (Kind.CAST, Kind.SHAPE, Kind.STORE, Kind.PHI) and getattr(op, "name", "") != "loop"
    )


def _added(kernel: KernelView, held: Carried, fetched: frozenset[int]) -> int | None:
    """The fetched tile that is added to the state times a decay that is read for each chunk."""
    op = kernel.op(kernel.strip(held.next))
    match op.kind, op.name, op.args:
        case Kind.ELEMENTWISE, "add", (a, b):
            pairs = ((a, b), (b, a))
        case Kind.ELEMENTWISE, "fma", (a, b, c):
            if held.phi in (kernel.strip(a), kernel.strip(b)):
                decay = b if kernel.strip(a) == held.phi else a
                return _tile(kernel, c, fetched) if _is_decay(kernel, decay, fetched) else None
            return None
        case _:
            return None
    for scaled, tile in pairs:
        product = kernel.op(kernel.strip(scaled))
        if product.kind is not Kind.ELEMENTWISE or product.name != "mul":
            continue
        for old, decay in (product.args, product.args[::-1]):
            if kernel.strip(old) == held.phi and _is_decay(kernel, decay, fetched):
                return _tile(kernel, tile, fetched)
    return None


def _tile(kernel: KernelView, value: int, fetched: frozenset[int]) -> int | None:
    inner = kernel.strip(value)
    return inner if inner in fetched else None


def _is_decay(kernel: KernelView, value: int, fetched: frozenset[int]) -> bool:
    """One number, the exponential of something read for each chunk."""
    inner = kernel.strip(value)
    op = kernel.op(inner)
    choices = flow(kernel).back((inner,), lambda at: at.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI) or at.name == "where")
    exponentials = [
        at for at in choices if kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in EXPONENTIALS
    ]
    scalar = op.shape in ((), None) or all(dim == 1 for dim in kernel.dims(inner) or (None,))
    return scalar and any(frozenset(flow(kernel).fetches(at)) & fetched for at in exponentials)


TRITON = """
@triton.jit
def chunks(Q, K, V, O, T, C: tl.constexpr, D: tl.constexpr):
    d = tl.arange(0, D)
    c = tl.arange(0, C)
    state = tl.zeros((D, D), tl.TYPE)
    for start in range(0, T, C):
        at = start + c
        q = tl.load(Q + at[:, None] * D + d[None, :])
        k = tl.load(K + at[:, None] * D + d[None, :])
        v = tl.load(V + at[:, None] * D + d[None, :])
        scores = tl.where(c[:, None] >= c[None, :], tl.dot(q, tl.trans(k)), 0.0)
        USE
        state += tl.dot(tl.trans(k), v)
    LAST

def run(Q, K, V, O):
    chunks[(1,)](Q, K, V, O, Q.shape[0], C=64, D=64)
"""
WITH_STATE = "tl.store(O + at[:, None] * D + d[None, :], tl.dot(scores.to(v.dtype), v) + tl.dot(q, state.to(q.dtype)))"
WITHOUT = "tl.store(O + at[:, None] * D + d[None, :], tl.dot(scores.to(v.dtype), v))"
STAGED = """
@triton.jit
def pass_states(States, Decay, Out, chunks, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    state = tl.zeros((SIZE,), tl.float32)
    for n in range(0, chunks):
        tl.store(Out + n * 4096 + i, state)
        now = tl.load(States + n * 4096 + i).to(tl.float32)
        state = DECAY * state + now

def run(States, Decay):
    Out = torch.empty(States.shape[0], 4096, dtype=torch.float32, device=States.device)
    pass_states[(16,)](States, Decay, Out, States.shape[0], SIZE=256)
    return Out
"""
TOKENS = """
@triton.jit
def recurrent(Q, K, V, O, T, D: tl.constexpr):
    d = tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    for t in range(0, T):
        k = tl.load(K + t * D + d)
        v = tl.load(V + t * D + d)
        state += k[:, None] * v[None, :]
        q = tl.load(Q + t * D + d)
        tl.store(O + t * D + d, tl.sum(q[:, None] * state, 0))

def run(Q, K, V, O):
    recurrent[(1,)](Q, K, V, O, Q.shape[0], D=64)
"""
CUDA = """
#include <mma.h>
using namespace nvcuda;
__global__ void chunks(const half* q, const half* k, const half* v, float* o, int t) {
  __shared__ half held[256];
  __shared__ float raw[256];
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> state, out;
  wmma::fill_fragment(state, 0.f);
  for (int start = 0; start < t; start += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> qa;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::col_major> ka;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> vb, sb;
    USE
    wmma::load_matrix_sync(ka, k + start * 16, 16);
    wmma::load_matrix_sync(vb, v + start * 16, 16);
    wmma::mma_sync(state, ka, vb, state);
  }
  wmma::store_matrix_sync(raw, state, 16, wmma::mem_row_major);
  o[t * 16 + threadIdx.x] = raw[threadIdx.x];
}
void run(const half* q, const half* k, const half* v, float* o, int t) { chunks<<<1, 32>>>(q, k, v, o, t); }
"""
FROM_STATE = """
    wmma::store_matrix_sync(raw, state, 16, wmma::mem_row_major);
    for (int i = threadIdx.x; i < 256; i += 32) held[i] = __float2half(raw[i]);
    __syncwarp();
    wmma::load_matrix_sync(sb, held, 16);
    wmma::load_matrix_sync(qa, q + start * 16, 16);
    wmma::fill_fragment(out, 0.f);
    wmma::mma_sync(out, qa, sb, out);
    wmma::store_matrix_sync(o + start * 16, out, 16, wmma::mem_row_major);
"""
DECAY = "tl.exp(tl.load(Decay + n))"

EXAMPLES = (
    Example(
        "carried on chip",
        "triton",
        TRITON.replace("USE", WITH_STATE).replace("LAST", "pass").replace("TYPE", "float32"),
        Status.PRESENT,
        {"mode": "carried", "state_dtype": "fp32"},
    ),
    Example(
        "passed through memory",
        "triton",
        STAGED.replace("DECAY", DECAY),
        Status.PRESENT,
        {"mode": "staged", "state_dtype": "fp32"},
    ),
    Example(
        "accumulator",
        "triton",
        TRITON.replace("USE", WITHOUT)
        .replace("LAST", "tl.store(O + T * D + d[:, None] * D + d[None, :], state)")
        .replace("TYPE", "float32"),
        Status.ABSENT,
        trap="look-alike: a sum of products that is read when the loop is over",
    ),
    Example("state of every token", "triton", TOKENS, Status.ABSENT, trap="look-alike: a recurrence over tokens"),
    Example("carried in fragments", "cuda", CUDA.replace("USE", FROM_STATE), Status.PRESENT, {"mode": "carried"}),
    Example(
        "use in a comment",
        "cuda",
        CUDA.replace("USE", "/*" + FROM_STATE + "*/"),
        Status.ABSENT,
        trap="comment",
    ),
)
