"""Indirect tile loads: the place of a tile or row is computed from an index that the kernel reads first: a page table,
a list of blocks, row numbers, or slots of a cache.

Where a sequence starts is no index, a single element looked up is no tile, and a table that says which tile a block
works on moves the work, not the loads. `ahead`: the index is read before the loop that uses it, or an iteration early,
or at the start of straight code with other reads between.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import NEEDS_COMPILED, Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.indirection import Indirect, indirect_accesses, is_segment, is_work_item
from d2k.analyzers.patterns.loops import LESS, arithmetic, where
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.pipelines import pipelined
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Status

WIDEST = 16
"""Elements of the widest vector that a thread reads at once."""


def detect(kernel: KernelView) -> Detection:
    every = tuple(indirect_accesses(kernel))
    found = [one for one in every if _is_index(kernel, one, every)]
    by_kind: dict[str, list[Indirect]] = {}
    for one in found:
        by_kind.setdefault(_kind(kernel, one, found), []).append(one)
    if by_kind:
        return tuple(_match(kernel, kind, group) for kind, group in by_kind.items())
    return _miss(kernel)


def _is_index(kernel: KernelView, one: Indirect, every: tuple[Indirect, ...]) -> bool:
    if kernel.op(one.access).kind is Kind.ATOMIC:
        return False  # where something is added is no tile that is loaded
    return not (is_segment(kernel, one, every) or is_work_item(kernel, one) or _is_matrix(kernel, one))


def _match(kernel: KernelView, kind: str, group: list[Indirect]) -> Match:
    # index and data of the busiest access: the one deepest in loops
    one = max(group, key=lambda found: len(kernel.loops_of(found.access)))
    attributes: dict[str, FoundValue] = {"index": kind}
    undecided: dict[str, str] = {}
    ahead = _ahead(kernel, one)
    if ahead is None:
        undecided["ahead"] = (
            f"{NEEDS_COMPILED}: whether the compiler's pipeline fetches the index earlier than its data"
        )
    else:
        attributes["ahead"] = ahead
    evidence = (
        Evidence(kernel.place(one.index), f"index of {kernel.pointer(_address(kernel, one.index)) or 'memory'}"),
        Evidence(kernel.place(one.access), f"{'read' if _is_read(kernel, one) else 'written'} where the index says"),
    )
    return Match(evidence, attributes, undecided)


def _address(kernel: KernelView, fetch: int) -> int:
    return flow(kernel).source_address(fetch)


def _is_read(kernel: KernelView, one: Indirect) -> bool:
    return flow(kernel).is_fetch(one.access)


def _is_matrix(kernel: KernelView, one: Indirect) -> bool:
    """An index read once that chooses a whole matrix to multiply with, such as the weights of a group."""
    if kernel.op(one.index).loop != NONE or differs_within(kernel, one.term.index):
        return False
    return any(
        one.access in (*product.a_fetches, *product.b_fetches) and product.reduction != NONE
        for product in products(kernel)
    )


# which index


def _kind(kernel: KernelView, one: Indirect, others: list[Indirect]) -> str:
    if not _is_read(kernel, one):
        return "slot_map"
    if not differs_within(kernel, one.term.index):
        memory = flow(kernel).memory
        written = {memory(_address(kernel, other.index)) for other in others if not _is_read(kernel, other)}
        if memory(_address(kernel, one.index)) in written:
            return "slot_map"  # a state that is read and written back
        if _is_position(kernel, one):
            return "block_list"
    return "block_table" if _has_rows(one) else "row_ids"


def _has_rows(one: Indirect) -> bool:
    """Ranges run over rows inside the block besides the elements of one row, which a thread reads in vectors."""
    steps = {(term.stride, term.scale) for term in one.inner}
    rows = {(stride, scale) for stride, scale in steps if stride or abs(scale) > WIDEST}
    return len(rows) >= 2 or (bool(rows) and rows != steps)


def _is_position(kernel: KernelView, one: Indirect) -> bool:
    """The index is a position too: it is compared with others, as in a mask."""
    loops = kernel.loops_of(one.access)
    made = frozenset(kernel.flows_to(one.index, arithmetic))
    return any(
        any(arg in made for arg in kernel.op(value).args)
        for value in kernel.values(Kind.ELEMENTWISE, name=LESS)
        if set(loops) & set(kernel.loops_of(value)) and _compares_positions(kernel, value)
    )


def _compares_positions(kernel: KernelView, value: int) -> bool:
    """A range stands on some side: validity of the index itself (`index >= 0`) is no position."""
    return any(differs_within(kernel, arg) for arg in kernel.op(value).args[:2])


# how early


def _ahead(kernel: KernelView, one: Indirect) -> bool | None:
    inner = {kernel.op(kernel.strip(term.index)).loop for term in one.inner if _counts(kernel, term.index)}
    loops = [loop for loop in kernel.loops_of(one.access) if loop not in inner]
    around = kernel.loops_of(one.index)
    if not loops:
        return _waits_for_others(kernel, one)
    if loops[0] not in around:
        return True
    if one.index > one.access:
        return True  # read for the next iteration
    for loop in pipelined(kernel):
        if loop.loop == loops[0] and (loop.stages is None or loop.stages >= 2):
            return None
    return False


def _counts(kernel: KernelView, value: int) -> bool:
    """A loop's counter: a loop over the elements of one row is no loop over rows."""
    op = kernel.op(kernel.strip(value))
    return op.kind is Kind.PHI and op.loop != NONE and kernel.loop(op.loop).variable == kernel.strip(value)


def _waits_for_others(kernel: KernelView, one: Indirect) -> bool:
    """Something else is read between the index and the access."""
    data = flow(kernel)
    return any(
        one.index < value < one.access and data.is_fetch(value) and one.index not in kernel.slice(value)
        for value in kernel.values(Kind.LOAD, Kind.COPY)
    )


def _miss(kernel: KernelView) -> Miss:
    data = flow(kernel)
    for access in (*kernel.values(Kind.LOAD), *data.outputs()):
        for place in where(kernel, access):
            if place == NONE:
                continue
            for at in kernel.walk(place, arithmetic):
                if kernel.op(at).kind is Kind.LOAD and at != access and data.is_fetch(at):
                    evidence = (Evidence(kernel.place(at), "looked up"), Evidence(kernel.place(access), "accessed"))
                    return Miss(
                        detail="what is looked up is an origin, a work item or a single element", evidence=evidence
                    )
    return Miss(detail="no place is looked up in memory")


PAGED = """
@triton.jit
def decode(Q, K, Table, Lens, S, pages, sk_page, sk_row, D: tl.constexpr, PAGE: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, D)
    row = tl.arange(0, PAGE)
    q = tl.load(Q + b * D + d)
    best = tl.full((PAGE,), -float("inf"), tl.float32)
BODY
    tl.store(S + b * PAGE + row, best)

def run(Q, K, Table, Lens, S):
    decode[(Q.shape[0],)](Q, K, Table, Lens, S, Table.shape[1], K.stride(0), K.stride(1), D=128, PAGE=64)
"""
EACH_PAGE = """
    for n in range(0, tl.cdiv(tl.load(Lens + b), PAGE)):
        page = tl.load(Table + b * pages + n)
        k = tl.load(K + page * sk_page + row[:, None] * sk_row + d[None, :])
        best = tl.maximum(best, tl.sum(k * q[None, :], 1))
"""
NEXT_PAGE = """
    page = tl.load(Table + b * pages)
    for n in range(0, tl.cdiv(tl.load(Lens + b), PAGE)):
        k = tl.load(K + page * sk_page + row[:, None] * sk_row + d[None, :])
        page = tl.load(Table + b * pages + n + 1)
        best = tl.maximum(best, tl.sum(k * q[None, :], 1))
"""
IN_ORDER = """
    for n in range(0, tl.cdiv(tl.load(Lens + b), PAGE)):
        page = b * pages + n
        k = tl.load(K + page * sk_page + row[:, None] * sk_row + d[None, :])
        best = tl.maximum(best, tl.sum(k * q[None, :], 1))
"""
OFFSETS = """
    first = tl.load(Table + b)
    for n in range(first, tl.load(Table + b + 1), PAGE):
        k = tl.load(K + (n + row)[:, None] * sk_row + d[None, :])
        best = tl.maximum(best, tl.sum(k * q[None, :], 1))
"""
BLOCKS = """
    for n in range(0, pages):
        block = tl.load(Table + b * pages + n)
        at = block * PAGE + row
        k = tl.load(K + at[:, None] * sk_row + d[None, :])
        best = tl.where(at < tl.load(Lens + b), tl.maximum(best, tl.sum(k * q[None, :], 1)), best)
"""
GATHERED = """
@triton.jit
def rows(X, Ids, Y, D: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    ids = tl.load(Ids + i)
    tl.store(Y + i[:, None] * D + d[None, :], tl.load(X + PLACE))

def run(X, Ids, Y):
    rows[(Ids.numel() // 32,)](X, Ids, Y, D=128, B=32)
"""
BAG = """
constexpr int D = 128;
__global__ void bag(const float* table, const int* ids, const int* offsets, float* y) {
  int b = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  int begin = offsets[b], end = offsets[b + 1];
  float sum[4] = {0.f, 0.f, 0.f, 0.f};
BODY
#pragma unroll
  for (int i = 0; i < 4; ++i) y[(size_t)b * D + lane * 4 + i] = sum[i];
}
void run(const float* table, const int* ids, const int* offsets, float* y, int bags) {
  bag<<<bags / 8, 256>>>(table, ids, offsets, y);
}
"""
BATCHED = """
  for (int base = begin; base < end; base += 32) {
    int mine = base + lane < end ? ids[base + lane] : 0;
    for (int j = 0; j < 32; ++j) {
      if (base + j >= end) break;
      int row = __shfl_sync(0xffffffffu, mine, j);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += table[(size_t)row * D + lane * 4 + i];
    }
  }
"""
ONE_BY_ONE = """
  for (int j = begin; j < end; ++j) {
    int row = ids[j];
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += table[(size_t)row * D + lane * 4 + i];
  }
"""
NO_IDS = """
  for (int j = begin; j < end; ++j) {
    int row = j;  // ids[j]
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += table[(size_t)row * D + lane * 4 + i];
  }
"""
SLOTS = """
__global__ void write(const float* x, const long long* slots, const float* g, float* cache, int d) {
  long long slot = slots[blockIdx.x];
  float scale = g[threadIdx.x];
  float v = x[(size_t)blockIdx.x * d + threadIdx.x];
  cache[WHERE * d + threadIdx.x] = v * scale;
}
void run(const float* x, const long long* slots, const float* g, float* cache, int tokens, int d) {
  write<<<tokens, 256>>>(x, slots, g, cache, d);
}
"""

EXAMPLES = (
    Example(
        "page of each iteration",
        "triton",
        PAGED.replace("BODY", EACH_PAGE),
        Status.PRESENT,
        {"index": "block_table", "ahead": False},
    ),
    Example(
        "page read an iteration early",
        "triton",
        PAGED.replace("BODY", NEXT_PAGE),
        Status.PRESENT,
        {"index": "block_table", "ahead": True},
    ),
    Example("list of blocks", "triton", PAGED.replace("BODY", BLOCKS), Status.PRESENT, {"index": "block_list"}),
    Example(
        "gathered rows",
        "triton",
        GATHERED.replace("PLACE", "ids[:, None] * D + d[None, :]"),
        Status.PRESENT,
        {"index": "row_ids"},
    ),
    Example(
        "single elements",
        "triton",
        GATHERED.replace("PLACE", "i[:, None] * D + ids[:, None] + d[None, :] * 0"),
        Status.ABSENT,
        trap="look-alike: one element looked up is no tile",
    ),
    Example(
        "pages in order",
        "triton",
        PAGED.replace("BODY", IN_ORDER),
        Status.ABSENT,
        trap="declared but unused: the table is an argument that nothing reads",
    ),
    Example(
        "offsets of sequences",
        "triton",
        PAGED.replace("BODY", OFFSETS),
        Status.ABSENT,
        trap="look-alike: where a sequence starts is no index of tiles",
    ),
    Example(
        "indices handed round the warp",
        "cuda",
        BAG.replace("BODY", BATCHED),
        Status.PRESENT,
        {"index": "row_ids", "ahead": True},
    ),
    Example(
        "index of each row",
        "cuda",
        BAG.replace("BODY", ONE_BY_ONE),
        Status.PRESENT,
        {"index": "row_ids", "ahead": False},
    ),
    Example("rows in order", "cuda", BAG.replace("BODY", NO_IDS), Status.ABSENT, trap="comment"),
    Example(
        "slot of a cache",
        "cuda",
        SLOTS.replace("WHERE", "slot"),
        Status.PRESENT,
        {"index": "slot_map", "ahead": True},
    ),
    Example(
        "slot read and not used",
        "cuda",
        SLOTS.replace("WHERE", "blockIdx.x"),
        Status.ABSENT,
        trap="read but unused: the slot addresses nothing",
    ),
)
