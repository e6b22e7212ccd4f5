"""No full-size intermediate in global memory: scores, logits, their gradients or gathered rows exist only on
chip, a block at a
time. Without a task to name the intermediate, the kernels' own show: what one product makes and the next consumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.carried import gatherings
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import difference, exponentials
from d2k.analyzers.patterns.gradients import jacobians, probabilities
from d2k.analyzers.patterns.loops import index_cone, moves, where
from d2k.analyzers.patterns.softmax import running_softmaxes
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Status


@dataclass(frozen=True, slots=True)
class _Kept:
    """`value`, the intermediate called `tensor`, is consumed by `use` on chip."""

    tensor: str
    value: int
    use: int
    stored: int | None


def detect_program(program: ProgramView) -> Detection:
    found: dict[str, tuple[KernelView, _Kept]] = {}
    written: list[tuple[KernelView, _Kept]] = []
    for kernel in program.kernels:
        for one in (*_scores(kernel), *_log_probabilities(kernel), *_reduced(kernel), *_gathered(kernel)):
            if one.stored is None:
                found.setdefault(one.tensor, (kernel, one))
            else:
                written.append((kernel, one))
    if found:
        return tuple(_match(kernel, one) for kernel, one in found.values())
    if written:
        kernel, one = written[0]
        evidence = (
            Evidence(kernel.place(one.stored if one.stored is not None else one.value), f"stores {one.tensor}"),
        )
        return Miss(detail=f"{one.tensor} are written to global memory", evidence=evidence)
    return Miss(detail="no intermediate is made and consumed on chip by one kernel")


def _match(kernel: KernelView, one: _Kept) -> Match:
    evidence = (
        Evidence(kernel.place(one.value), f"makes {one.tensor} of one block"),
        Evidence(kernel.place(one.use), "consumes them on chip"),
    )
    return Match(evidence, {"tensor": one.tensor, "max_fraction": 0})


def _scores(kernel: KernelView) -> Iterator[_Kept]:
    """Products that become exponentials: scores if the exponentials are multiplied on, logits if they are summed."""
    data = flow(kernel)
    for one in probabilities(kernel):
        if not one.scores:
            continue
        value = one.scores[0]
        after = frozenset(data.forward((one.value,), _pointwise))
        multiplied = _operand_use(kernel, after)
        stored = _stored(kernel, value)
        yield _Kept("scores" if multiplied is not None else "logits", value, multiplied or one.value, stored)
        for gradient in jacobians(kernel, one):
            made = frozenset(data.forward((gradient,), _pointwise))
            use = _operand_use(kernel, made)
            if use is not None:
                yield _Kept("dS", gradient, use, _stored(kernel, gradient))


def _log_probabilities(kernel: KernelView) -> Iterator[_Kept]:
    """A running softmax over fetched logits that keeps numbers of the row alone."""
    for one in running_softmaxes(kernel):
        if one.sums and not one.accumulators and one.weights:
            stored = _stored(kernel, one.weights[0])
            yield _Kept("log_probs", one.weights[0], one.sums[0].product, stored)


def _reduced(kernel: KernelView) -> Iterator[_Kept]:
    """A product that is only reduced: its elements are never stored."""
    data = flow(kernel)
    for product in contractions(kernel):
        if not product.matrix or _stored(kernel, product.value) is not None:
            continue
        made = frozenset(data.forward(product.sums, _pointwise))
        reduced = [user for at in made for user in kernel.users(at) if kernel.op(user).kind is Kind.REDUCE]
        leaves = any(set(kernel.op(at).args[:2]) & made for at in kernel.values(Kind.MMA)) or made & set(data.outputs())
        if reduced and not leaves and not _is_state(kernel):
            yield _Kept("product", product.value, reduced[0], None)


def _is_state(kernel: KernelView) -> bool:
    """Exponentials of differences weigh the product: a part of a recurrence, whose states are buffers of their own."""
    return any(
        one.plus and one.minus for one in (difference(kernel, kernel.op(at).args[0]) for at in exponentials(kernel))
    )


def _pointwise(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD) or (
        op.kind is Kind.ELEMENTWISE and op.name not in ("exp", "exp2", "log", "log2")
    )


def _operand_use(kernel: KernelView, values: frozenset[int]) -> int | None:
    """A product that multiplies one of the values."""
    for product in contractions(kernel):
        if values & set(kernel.op(product.value).args[:2]) and not (product.value in values and product.matrix):
            return product.value
    for value in kernel.values(Kind.ELEMENTWISE, name=("mul", "fma")):
        operands = kernel.op(value).args[:2]
        others = [arg for arg in operands if arg not in values]
        if len(others) == 1 and flow(kernel).fetches(others[0], _pointwise) and value in values:
            return value
    return None


def _stored(kernel: KernelView, value: int) -> int | None:
    """A store of every element of the intermediate, or of what is made of it element by element."""
    data = flow(kernel)
    ends = (Kind.REDUCE, Kind.MMA, Kind.SCAN, Kind.SHUFFLE)
    gathered = gatherings(kernel)
    made = data.spread((value,), lambda at, user: kernel.op(user).kind not in ends and user not in gathered)
    dims = kernel.dims(value)
    for at in made:
        if data.is_output(at) and kernel.op(at).kind is Kind.STORE:
            stored = kernel.dims(kernel.op(at).args[1])
            if dims is not None and stored is not None and sorted(map(str, stored)) == sorted(map(str, dims)):
                return at
    return None


def _gathered(kernel: KernelView) -> Iterator[_Kept]:
    """Rows fetched by an index that is read from memory and summed up at once."""
    data = flow(kernel)
    for fetch in kernel.values(Kind.LOAD, Kind.COPY):
        loops = kernel.loops_of(fetch)
        if not data.is_fetch(fetch) or not loops or kernel.values(Kind.MMA):
            continue
        places = where(kernel, fetch)
        if not any(_is_read(kernel, place, loops[0]) and differs_within(kernel, place) for place in places):
            continue
        for carried in kernel.loop(loops[0]).carried:
            added = set(data.back((carried.next,), _is_added))
            if fetch in added and carried.phi in added and not _scales_data(kernel, fetch, added):
                yield _Kept("gathered_rows", fetch, carried.next, None)
                return


def _scales_data(kernel: KernelView, fetch: int, added: set[int]) -> bool:
    """What is looked up is multiplied element by element with other data: it is a scale, no row that is pooled."""
    data = flow(kernel)
    made = frozenset(data.forward((fetch,), _is_added)) & added
    for at in made:
        op = kernel.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma"):
            others = [one for arg in op.args[:2] if arg not in made for one in data.fetches(arg, _pointwise)]
            if any(_extents(kernel, one) >= _extents(kernel, fetch) > 0 for one in others):
                return True
    return False


def _extents(kernel: KernelView, value: int) -> int:
    """Axes of a tile that have more than one element."""
    return sum(dim != 1 for dim in kernel.dims(value) or ())


def _is_added(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.REDUCE) or (
        op.kind is Kind.ELEMENTWISE and op.name in ("add", "mul", "fma", "where")
    )


def _is_read(kernel: KernelView, place: int, loop: int) -> bool:
    """A row number in the address comes from a list of row numbers that the loop goes through.

    A list that is the same for all blocks gives an order of terms, no rows of one's own.
    """
    if place == NONE:
        return False
    kinds = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.CONTROL)
    return any(
        kernel.op(at).kind is Kind.LOAD
        and loop in kernel.loops_of(at)
        and moves(kernel, kernel.op(at).args[0], loop)
        and _is_of_block(kernel, kernel.op(at).args[0], loop)
        for at in kernel.walk(place, lambda op: op.kind in kinds)
    )


def _is_of_block(kernel: KernelView, place: int, loop: int) -> bool:
    """The place, or where the loop begins, depends on which block it is, or on what it reads."""
    kinds = (Kind.BLOCK_INDEX, Kind.LOAD, Kind.THREAD_INDEX)
    one = kernel.loop(loop)
    cones = (index_cone(kernel, at) for at in (place, one.start) if at != NONE)
    return any(kernel.op(at).kind in kinds for cone in cones for at in cone)


_ATTENTION = """
@triton.jit
def attention(Q, K, V, P, O, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q = tl.load(Q + rows[:, None] * D + dims[None, :])
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, S, BN):
        cols = start + tl.arange(0, BN)
        s = tl.dot(q, tl.load(K + cols[None, :] * D + dims[:, None]))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        total = total * tl.exp(top - new) + tl.sum(p, 1)
        acc = acc * tl.exp(top - new)[:, None]
        acc = tl.dot(p.to(tl.bfloat16), tl.load(V + cols[:, None] * D + dims[None, :]), acc)
        top = new
    tl.store(O + rows[:, None] * D + dims[None, :], acc / total[:, None])


def run(q, k, v, p, o):
    S, D = q.shape
    attention[(S // 64,)](q, k, v, p, o, S, D=D, BM=64, BN=64)
"""

_BAGS = """
@triton.jit
def pool(table, ids, offsets, out, D: tl.constexpr):
    bag = tl.program_id(0)
    cols = tl.arange(0, D)
    total = tl.zeros((D,), tl.float32)
    for i in range(tl.load(offsets + bag), tl.load(offsets + bag + 1)):
        total += tl.load(table + tl.load(ids + i) * D + cols)
    tl.store(out + bag * D + cols, total)


def run(table, ids, offsets, out):
    pool[(offsets.numel() - 1,)](table, ids, offsets, out, D=table.shape[1])
"""

_STORED = _ATTENTION.replace(
    "        top = new\n", "        top = new\n        tl.store(P + rows[:, None] * S + cols[None, :], p)\n"
)

_GATHERED = """
@triton.jit
def gather(table, ids, rows, D: tl.constexpr):
    i = tl.program_id(0)
    cols = tl.arange(0, D)
    tl.store(rows + i * D + cols, tl.load(table + tl.load(ids + i) * D + cols))


def run(table, ids, rows):
    gather[(ids.numel(),)](table, ids, rows, D=table.shape[1])
    return rows.view(-1, 8, table.shape[1]).sum(1)
"""

_CUDA = """
__global__ void pool(const float* table, const int* ids, const int* offsets, float* out, int D) {
    float total = 0.f;
    for (int i = offsets[blockIdx.x]; i < offsets[blockIdx.x + 1]; ++i)
        total += table[(size_t)ids[i] * D + threadIdx.x];
    out[(size_t)blockIdx.x * D + threadIdx.x] = total;
}

void run(const float* t, const int* ids, const int* offsets, float* out, int bags, int D) {
    pool<<<bags, D>>>(t, ids, offsets, out, D);
}
"""

_CUDA_GATHERED = """
__global__ void gather(const float* table, const int* ids, float* rows, int D) {
    rows[(size_t)blockIdx.x * D + threadIdx.x] = table[(size_t)ids[blockIdx.x] * D + threadIdx.x];
}

void run(const float* t, const int* ids, float* rows, int n, int D) { gather<<<n, D>>>(t, ids, rows, D); }
"""

_ORDERS = """
@triton.jit
def sums(X, orders, Y, D, TERMS: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for term in range(TERMS):
        row = tl.load(orders + term)
        total += tl.load(X + (tl.program_id(0) * TERMS + row) * D + cols, mask=cols < D, other=0.0)
    tl.store(Y + tl.program_id(0) * D + cols, total, mask=cols < D)


def run(x, orders, y):
    sums[(y.shape[0], y.shape[1] // 256)](x, orders, y, y.shape[1], TERMS=8, BLOCK=256)
"""

EXAMPLES = (
    Example("terms in a given order", "triton", _ORDERS, Status.ABSENT, trap="look-alike: no rows of one's own"),
    Example("scores stay on chip", "triton", _ATTENTION, Status.PRESENT, {"tensor": "scores", "max_fraction": 0}),
    Example("rows pooled while they are gathered", "triton", _BAGS, Status.PRESENT, {"tensor": "gathered_rows"}),
    Example("probabilities stored", "triton", _STORED, Status.ABSENT, trap="the intermediate is written after all"),
    Example("rows gathered to memory", "triton", _GATHERED, Status.ABSENT, trap="pooled in a second pass"),
    Example("rows pooled while they are gathered", "cuda", _CUDA, Status.PRESENT, {"tensor": "gathered_rows"}),
    Example("rows gathered to memory", "cuda", _CUDA_GATHERED, Status.ABSENT, trap="pooled in a second pass"),
)
