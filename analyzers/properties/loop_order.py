"""Loop order: which axis a block owns and which one its loop streams: query blocks over KV blocks or the other way
round, output tiles over blocks of the contraction, tokens over tiles of the vocabulary, bags over lookups, chunks over
heads.

Told by what moves: in attention the statistic of a query row (a running maximum, or a saved one) stays with the block
or moves with the loop. A loop over the elements of one row, and one over the rows that a block owns anyway, order
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns import loops
from d2k.analyzers.patterns.addresses import indices
from d2k.analyzers.patterns.carried import cells
from d2k.analyzers.patterns.contraction import Contraction, contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.exponent import difference, exponentials
from d2k.analyzers.patterns.head_packing import packed, scores
from d2k.analyzers.patterns.indirection import indirect_accesses
from d2k.analyzers.patterns.loops import fetch_moves, index_cone, trip_count, walked, where
from d2k.analyzers.patterns.matmul import Product, products
from d2k.analyzers.patterns.numbering import numbering
from d2k.analyzers.patterns.origins import moves
from d2k.analyzers.patterns.skipping import skips
from d2k.analyzers.patterns.softmax import running_softmaxes
from d2k.analyzers.patterns.states import states
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Status

MAX_PAIRS = 16


@dataclass(frozen=True, slots=True)
class _Order:
    outer: str
    inner: str
    loop: int
    value: int


def detect(kernel: KernelView) -> Detection:
    found: dict[tuple[str, str], _Order] = {}
    for one in _orders(kernel):
        found.setdefault((one.outer, one.inner), one)
    if found:
        return tuple(_match(kernel, one) for one in found.values())
    if not kernel.body.loops:
        return Miss(detail="no loop")
    place = kernel.body.loops[0].place
    return Miss(detail="no loop streams one of the named axes", evidence=(Evidence(place, "loop"),))


def _match(kernel: KernelView, one: _Order) -> Match:
    evidence = (
        Evidence(kernel.loop(one.loop).place, f"walks {one.inner.replace('_', ' ')}s"),
        Evidence(kernel.place(one.value), f"a block owns a {one.outer.replace('_', ' ')}"),
    )
    return Match(evidence, {"outer": one.outer, "inner": one.inner})


def _orders(kernel: KernelView) -> Iterator[_Order]:
    attention = tuple(_attention(kernel))
    yield from attention
    vocabulary = tuple(_vocabulary(kernel))
    yield from vocabulary
    yield from _bags(kernel)
    yield from _heads(kernel)
    yield from _contracted(kernel, {one.loop for one in attention}, bool(vocabulary))


# attention


def _attention(kernel: KernelView) -> Iterator[_Order]:
    """Loops that move one operand of the scores and hold the other."""
    softmaxes = {one.loop for one in running_softmaxes(kernel)}
    made = {one.value: one for one in products(kernel)}
    done: set[int] = set()
    for score, held, moved in tuple(dict.fromkeys(scores(kernel)))[:MAX_PAIRS]:
        loop = _streams_one(kernel, score, held, moved)
        if loop == NONE or loop in done or not _sums_weights(kernel, score, loop):
            continue
        product = made.get(score)
        if product is not None and product.reduction not in (NONE, loop) and not _weighs(kernel, score):
            continue  # the scores themselves are summed over blocks: logits of a vocabulary
        side = "query" if loop in softmaxes else _statistic(kernel, score, loop)
        if side == "query":
            done.add(loop)
            listed = any(one.pattern == "block_list" for one in skips(kernel))
            yield _Order(_owner(kernel, score, held, moved), "selected_block" if listed else "kv_block", loop, held)
        elif side == "key":
            done.add(loop)
            yield _Order("kv_block", "query_block", loop, held)


def _streams_one(kernel: KernelView, score: int, held: int, moved: int) -> int:
    """The innermost loop that moves an operand of the scores, if it moves `moved` alone."""
    for loop in kernel.loops_of(score):
        moving = (fetch_moves(kernel, held, loop), fetch_moves(kernel, moved, loop))
        if any(moving):
            return loop if moving == (False, True) else NONE
    return NONE


def _sums_weights(kernel: KernelView, score: int, loop: int) -> bool:
    """Exponentials of the scores are added up over the loop, alone or as weights: no gate of single elements."""
    data = flow(kernel)
    reached = frozenset(data.forward((score,), lambda op: op.kind not in (Kind.MMA, Kind.STORE)))
    weights = [value for value in exponentials(kernel) if value in reached]
    summed = frozenset(data.forward(weights, lambda op: op.kind not in (Kind.STORE, Kind.CALL)))
    return any(new in summed for around in (loop, *kernel.ancestors(loop)) for new in _carried_news(kernel, around))


def _carried_news(kernel: KernelView, loop: int) -> Iterator[int]:
    for cell in cells(kernel, loop):
        yield from cell.news


def _weighs(kernel: KernelView, score: int) -> bool:
    """Exponentials of the scores are an operand of another product."""
    data = flow(kernel)
    made = frozenset(data.forward((score,), lambda op: op.kind not in (Kind.MMA, Kind.REDUCE)))
    return any(set(kernel.op(value).args[:2]) & made for value in kernel.values(Kind.MMA) if value != score)


def _statistic(kernel: KernelView, score: int, loop: int) -> str:
    """Which side of the scores the statistic belongs to that their exponent subtracts: it moves with the loop, or not.

    The operand that the loop holds is the query if the statistic stays, and the key if it moves.
    """
    data = flow(kernel)
    reached = frozenset(data.forward((score,), lambda op: op.kind not in (Kind.MMA, Kind.REDUCE, Kind.STORE)))
    for value in exponentials(kernel):
        if value not in reached:
            continue
        exponent = difference(kernel, kernel.op(value).args[0])
        if not any(term in reached for term in exponent.plus):
            continue
        for term in exponent.minus:
            for fetch in data.fetches(term, lambda op: op.kind not in (Kind.MMA, Kind.REDUCE)):
                if term not in reached:
                    return "key" if fetch_moves(kernel, fetch, loop) else "query"
    return ""


def _owner(kernel: KernelView, score: int, query: int, key: int) -> str:
    """A block of queries, or one token whose heads, if any, are the rows."""
    for one in packed(kernel, score, query, key):
        return "query_block" if one.decoded else "query_token"
    own = moves(kernel, query)
    shared = {(one.index, one.stride, one.scale) for one in moves(kernel, key)}
    rows = [
        one
        for one in own
        if one.within and (one.stride or one.scale != 1) and (one.index, one.stride, one.scale) not in shared
    ]
    dims = kernel.dims(query)
    tile = dims is not None and len([dim for dim in dims if dim != 1]) >= 2
    return "query_block" if rows or tile else "query_token"


# vocabularies


def _vocabulary(kernel: KernelView) -> Iterator[_Order]:
    """Loops over the classes of a token: their logits are read in tiles, or multiplied out block by block.

    Classes are told from other elements of a row by a label that is read: its own logit is looked up, or columns are
    compared with it.
    """
    labels = _labels(kernel)
    made = {one.value: one for one in products(kernel)}
    for loop in range(len(kernel.body.loops)):
        if trip_count(kernel, loop) in (0, 1):
            continue
        value = _multiplied_out(kernel, loop, made)
        if value == NONE and not made and labels:
            arrays = {flow(kernel).memory(kernel.op(label).args[0]) for label in labels if _looks_up(kernel, label)}
            tiles = [at for at in walked(kernel, loop) if kernel.op(at).kind is Kind.LOAD and _is_tile(kernel, at)]
            compared = any(loop in kernel.loops_of(label) for label in labels)
            found = [at for at in tiles if compared or flow(kernel).memory(kernel.op(at).args[0]) in arrays]
            value = found[0] if found else NONE
        if value != NONE:
            yield _Order("token_chunk", "vocab_tile", loop, value)


def _labels(kernel: KernelView) -> tuple[int, ...]:
    """Uses of a label: reads of a single element that it chooses, comparisons of a range with it."""
    data = flow(kernel)
    found: list[int] = []
    for value in kernel.values(Kind.LOAD):
        place = where(kernel, value)
        scalar = data.is_fetch(value) and bool(place) and not differs_within(kernel, place[0])
        if scalar and exponentials(kernel) and _reads_label(kernel, place[0]):
            found.append(value)
    for value in kernel.values(Kind.ELEMENTWISE, name=("eq", "ne")):
        sides = kernel.op(value).args[:2]
        for columns, label in (sides, sides[::-1]):
            ranged = any(kernel.op(at).kind is Kind.ARANGE for at in index_cone(kernel, columns))
            if (
                ranged
                and not differs_within(kernel, label)
                and _reads_label(kernel, label)
                and _corrects(kernel, value)
            ):
                found.append(value)
    return tuple(found)


def _corrects(kernel: KernelView, comparison: int) -> bool:
    """Where the column is the label, another value is taken: the loss or gradient of the target."""
    if exponentials(kernel):
        return True
    for user in kernel.users(comparison):
        op = kernel.op(user)
        if op.kind is Kind.ELEMENTWISE and op.name == "where" and op.args[0] == comparison:
            return any(flow(kernel).fetches(arg) for arg in op.args[1:])
    return False


def _looks_up(kernel: KernelView, use: int) -> bool:
    return kernel.op(use).kind is Kind.LOAD


def _reads_label(kernel: KernelView, value: int) -> bool:
    """A number that is read for the token and used as it is, or less where the block's part of the classes starts."""
    terms = numbering(kernel).index(value)
    examples = [
        kernel.strip(numbering(kernel).example(monomial[0]))
        for monomial, times in terms.items()
        if len(monomial) == 1 and times == 1
    ]
    return any(kernel.op(at).kind is Kind.LOAD and flow(kernel).is_fetch(at) for at in examples)


def _multiplied_out(kernel: KernelView, loop: int, made: dict[int, Product]) -> int:
    """Logits that a loop inside this one sums up, of which exponentials are taken; NONE if there are none."""
    data = flow(kernel)
    for value in exponentials(kernel):
        if loop in kernel.loops_of(value):
            for at in data.back(kernel.op(value).args[:1], lambda op: op.kind is not Kind.REDUCE):
                summed = at in made and made[at].reduction not in (NONE, loop) and loop in kernel.loops_of(at)
                if summed and not _weighs(kernel, at):
                    return at
    return NONE


def _is_tile(kernel: KernelView, fetch: int) -> bool:
    return any(differs_within(kernel, place) for place in where(kernel, fetch) if place != NONE)


# bags, heads, contractions


def _bags(kernel: KernelView) -> Iterator[_Order]:
    """Rows that indices choose are added up between two offsets."""
    data = flow(kernel)
    for one in indirect_accesses(kernel):
        if not data.is_fetch(one.access) or kernel.values(Kind.MMA):
            continue
        for loop in kernel.loops_of(one.access):
            bounds = (kernel.loop(loop).start, kernel.loop(loop).stop)
            offsets = [
                at
                for bound in bounds
                if bound != NONE
                for at in index_cone(kernel, bound)
                if kernel.op(at).kind is Kind.LOAD
            ]
            summed = any(one.access in data.back(cell.news, _is_known) for cell in cells(kernel, loop))
            weighted = any(loop in kernel.loops_of(value) for value in exponentials(kernel))
            if offsets and summed and not weighted:
                yield _Order("bag", "lookup", loop, offsets[0])
                return


def _is_known(op: Op) -> bool:
    return op.kind not in (Kind.CALL, Kind.ASM, Kind.MMA)


def _heads(kernel: KernelView) -> Iterator[_Order]:
    """A product made before the loop is used in each of its iterations, for the outputs of one head."""
    data = flow(kernel)
    for loop in range(len(kernel.body.loops)):
        outputs = [at for at in data.outputs() if loop in kernel.loops_of(at) and _moves_output(kernel, at, loop)]
        if not outputs or not walked(kernel, loop):
            continue
        for one in products(kernel):
            if loop in kernel.loops_of(one.value):
                continue
            reached = frozenset(data.forward((one.value,), _same_iteration))
            used = [
                other
                for other in products(kernel)
                if loop in kernel.loops_of(other.value) and {other.a, other.b} & reached
            ]
            written = used and any(at in data.forward((used[0].value,)) for at in outputs)
            if written and _has_numbers(kernel, loop):
                yield _Order("token_chunk", "head", loop, one.value)
                break


def _has_numbers(kernel: KernelView, loop: int) -> bool:
    """Each iteration reads numbers of its own for the tokens, such as a head's time steps; a loop over the columns of
    one head reads tiles only."""
    for fetch in walked(kernel, loop):
        dims = kernel.dims(fetch)
        ranges = [dim for dim in dims or () if dim != 1]
        if dims is None or len(ranges) > 1:
            continue
        own = [one for one in moves(kernel, fetch) if one.index != NONE]
        counters = [
            one for one in own if not one.within and kernel.loop(loop).variable in index_cone(kernel, one.index)
        ]
        columns = [one for one in own if one.within]
        if counters and not any((one.stride, one.scale) == ((), 1) for one in columns):
            return True
    return False


def _same_iteration(op: Op) -> bool:
    return not (op.kind is Kind.PHI and op.name == "loop")


def _moves_output(kernel: KernelView, output: int, loop: int) -> bool:
    return any(place != NONE and loops.moves(kernel, place, loop) for place in where(kernel, output))


def _contracted(kernel: KernelView, taken: set[int], vocabulary: bool) -> Iterator[_Order]:
    """A block owns a tile of the result and its loop walks both operands along the contracted axis."""
    kept = {one.loop for one in states(kernel)}
    for one in contractions(kernel):
        loop = _walks_both(kernel, one)
        if loop == NONE or loop in taken or loop in kept or trip_count(kernel, loop) in (0, 1):
            continue
        if _decays(kernel, one):
            continue  # a state that walks the sequence
        yield _Order("token_chunk" if vocabulary or len(products(kernel)) > 1 else "n_tile", "k_block", loop, one.value)


def _decays(kernel: KernelView, one: Contraction) -> bool:
    """The sum is multiplied by an exponential on its way from one addition to the next."""
    for value in one.sums:
        op = kernel.op(value)
        if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma") and set(op.args[:2]) & one.sums:
            factors = [kernel.op(kernel.strip(arg)) for arg in op.args[:2] if arg not in one.sums]
            if any(factor.kind is Kind.ELEMENTWISE and factor.name in ("exp", "exp2") for factor in factors):
                return True
    return False


def _walks_both(kernel: KernelView, one: Contraction) -> int:
    data = flow(kernel)
    a, b = kernel.op(one.value).args[:2]
    for loop in kernel.loops_of(one.value):
        carried = {value for held in kernel.loop(loop).carried for value in (held.phi, held.next)}
        arrays = data.accumulator_arrays(one.value) if one.matrix else ()
        if not (one.sums & carried or arrays):
            continue
        streams = frozenset(walked(kernel, loop))
        left, right = (streams & set(data.fetches(side, _operand)) for side in (a, b))
        shared = _shared_ranges(kernel, left, right)
        if left and right and (one.matrix or (shared and not _normalises(kernel, one, shared))):
            return loop
    return NONE


def _shared_ranges(kernel: KernelView, left: Collection[int], right: Collection[int]) -> frozenset[int]:
    """Ranges that both operands run over: a block of the contracted axis, not one number fetched for each step."""
    numbers = numbering(kernel)
    ranges = [
        {at for fetch in side for at in indices(kernel, fetch) if differs_within(kernel, numbers.example(at))}
        for side in (left, right)
    ]
    return frozenset(ranges[0] & ranges[1])


def _normalises(kernel: KernelView, one: Contraction, shared: frozenset[int]) -> bool:
    """The sum meets, element by element, the very data that it was taken of: a statistic, no contraction."""
    data = flow(kernel)
    rows = [fetch for fetch in one.fetches if _is_tile(kernel, fetch)]
    arrays = {data.memory(data.source_address(fetch)) for fetch in rows}
    for value in data.forward(one.sums, lambda op: op.kind not in (Kind.STORE, Kind.MMA)):
        op = kernel.op(value)
        if value in one.sums or op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma", "sub", "div"):
            continue
        if op.loop == kernel.op(one.value).loop:
            continue  # scales of the step's own block
        met = [fetch for arg in op.args for fetch in data.fetches(arg, _operand) if _is_tile(kernel, fetch)]
        if any(data.memory(data.source_address(fetch)) in arrays and indices(kernel, fetch) & shared for fetch in met):
            return True
    return False


def _operand(op: Op) -> bool:
    return op.kind not in (Kind.REDUCE, Kind.SCAN)


ATTENTION = """
@triton.jit
def attend(Q, K, V, LSE, O, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.arange(0, D)
    fixed = tl.program_id(0) * BM + tl.arange(0, BM)
    held = tl.load(Q + fixed[:, None] * D + d[None, :])
BEFORE
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        at = start + tl.arange(0, BN)
        moved = tl.load(K + at[:, None] * D + d[None, :])
        other = tl.load(V + at[:, None] * D + d[None, :])
        s = tl.dot(held, tl.trans(moved))
EACH
    tl.store(O + fixed[:, None] * D + d[None, :], total)

def run(Q, K, V, LSE, O):
    attend[(Q.shape[0] // 64,)](Q, K, V, LSE, O, K.shape[0], D=64, BM=64, BN=64)
"""
SAVED_STAYS = ATTENTION.replace("BEFORE", "    lse = tl.load(LSE + fixed)").replace(
    "EACH", "        total += tl.dot(tl.exp(s - lse[:, None]).to(other.dtype), other)"
)
SAVED_MOVES = ATTENTION.replace("BEFORE", "").replace(
    "EACH", "        total += tl.dot(tl.exp(s - tl.load(LSE + at)[None, :]).to(other.dtype), other)"
)
DECODE = """
@triton.jit
def attend(Q, K, Lists, O, M, n, GROUP: tl.constexpr, D: tl.constexpr, B: tl.constexpr):
    token = tl.program_id(0)
    kv = tl.program_id(1)
    d = tl.arange(0, D)
    heads = kv * GROUP + tl.arange(0, GROUP)
    q = tl.load(Q + token * 4096 + heads[:, None] * D + d[None, :])
    m = tl.full((GROUP,), -float("inf"), tl.float32)
    total = tl.zeros((GROUP, D), tl.float32)
    for i in range(0, n):
        block = tl.load(Lists + token * n + i)
        at = block * B + tl.arange(0, B)
        k = tl.load(K + kv * D + at[:, None] * 512 + d[None, :])
        s = tl.where(at[None, :] <= token, tl.dot(q, tl.trans(k)), -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        total = total * tl.exp(m - new)[:, None] + tl.dot(tl.exp(s - new[:, None]).to(k.dtype), k)
        m = new
    tl.store(O + token * 4096 + heads[:, None] * D + d[None, :], total)

def run(Q, K, Lists, O, M):
    attend[(Q.shape[0], 4)](Q, K, Lists, O, M, 16, GROUP=16, D=64, B=64)
"""
MATMUL = """
@triton.jit
def matmul(A, B, C, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, STOP, BK):
        a = tl.load(A + rows[:, None] * K + (k + ks)[None, :])
        total = tl.dot(a, tl.load(B + (k + ks)[:, None] * N + cols[None, :]), total)
    tl.store(C + rows[:, None] * N + cols[None, :], total)

def run(A, B, C):
    matmul[(8, 8)](A, B, C, B.shape[1], A.shape[1], BM=64, BN=64, BK=32)
"""
LOSS = """
@triton.jit
def loss(X, Labels, Y, V, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(Labels + row)
    m = -float("inf")
    l = 0.0
    for start in range(0, V, B):
        at = start + tl.arange(0, B)
        x = tl.load(X + row * V + at, mask=at < V, other=-float("inf"))
        new = tl.maximum(m, tl.max(x, 0))
        l = l * tl.exp(m - new) + tl.sum(tl.exp(x - new), 0)
        m = new
    tl.store(Y + row, m + tl.log(l) - tl.load(X + row * V + label))

def run(X, Labels, Y):
    loss[(X.shape[0],)](X, Labels, Y, X.shape[1], B=4096)
"""
NORM = """
@triton.jit
def norm(X, Y, N, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, N, B):
        at = start + tl.arange(0, B)
        x = tl.load(X + row * N + at, mask=at < N, other=0.0)
        total += tl.sum(x * x, 0)
    tl.store(Y + row, total)

def run(X, Y):
    norm[(X.shape[0],)](X, Y, X.shape[1], B=4096)
"""
HEADS = """
@triton.jit
def scan(B, C, X, DT, Y, H, T: tl.constexpr, N: tl.constexpr, P: tl.constexpr):
    t = tl.program_id(0) * T + tl.arange(0, T)
    n = tl.arange(0, N)
    p = tl.arange(0, P)
    b = tl.load(B + t[:, None] * N + n[None, :])
    c = tl.load(C + t[:, None] * N + n[None, :])
    scores = tl.dot(c, tl.trans(b))
    for h in range(0, H):
        dt = tl.load(DT + t * H + h)
        x = tl.load(X + (t[:, None] * H + h) * P + p[None, :])
        y = tl.dot((scores * dt[None, :]).to(x.dtype), x)
        tl.store(Y + (t[:, None] * H + h) * P + p[None, :], y)

def run(B, C, X, DT, Y):
    scan[(B.shape[0] // 64,)](B, C, X, DT, Y, X.shape[1], T=64, N=64, P=64)
"""
BAG = """
__global__ void bag(const float* table, const int* ids, const int* offsets, float* y, int d) {
  int b = blockIdx.x;
  float sum = 0.f;
  for (int j = offsets[b]; j < offsets[b + 1]; ++j) {
    BODY
  }
  y[(size_t)b * d + threadIdx.x] = sum;
}
void run(const float* table, const int* ids, const int* offsets, float* y, int bags, int d) {
  bag<<<bags, 128>>>(table, ids, offsets, y, d);
}
"""

EXAMPLES = (
    Example(
        "queries outside",
        "triton",
        SAVED_STAYS,
        Status.PRESENT,
        {"outer": "query_block", "inner": "kv_block"},
    ),
    Example("keys outside", "triton", SAVED_MOVES, Status.PRESENT, {"outer": "kv_block", "inner": "query_block"}),
    Example(
        "selected blocks of a token",
        "triton",
        DECODE,
        Status.PRESENT,
        {"outer": "query_token", "inner": "selected_block"},
    ),
    Example(
        "contraction inside",
        "triton",
        MATMUL.replace("STOP", "K"),
        Status.PRESENT,
        {"outer": "n_tile", "inner": "k_block"},
    ),
    Example("vocabulary inside", "triton", LOSS, Status.PRESENT, {"outer": "token_chunk", "inner": "vocab_tile"}),
    Example("heads inside", "triton", HEADS, Status.PRESENT, {"outer": "token_chunk", "inner": "head"}),
    Example(
        "contraction of one block",
        "triton",
        MATMUL.replace("STOP", "32"),
        Status.ABSENT,
        trap="parameter of size one: the loop runs once",
    ),
    Example(
        "elements of a row",
        "triton",
        NORM,
        Status.ABSENT,
        trap="look-alike: a loop over the elements of one row orders nothing",
    ),
    Example(
        "lookups of a bag",
        "cuda",
        BAG.replace("BODY", "sum += table[(size_t)ids[j] * d + threadIdx.x];"),
        Status.PRESENT,
        {"outer": "bag", "inner": "lookup"},
    ),
    Example(
        "no lookup",
        "cuda",
        BAG.replace("BODY", "// sum += table[(size_t)ids[j] * d + threadIdx.x];\n    sum += 1.f;"),
        Status.ABSENT,
        trap="comment",
    ),
)
