"""Decoupled look-back: in one launch each block publishes what its tile adds up to and learns what lies before it by
polling the words that earlier tiles published, the one before it or several in turn.

Told by the addresses: the polled word lies a constant distance before the word that the block itself publishes, on the
same path, and what is read goes into the block's results. Waiting at a lock or a barrier that all blocks share, and one
block that gathers the parts of others, are no look-back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.entry import entry_place
from d2k.analyzers.patterns.loops import where
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.numbering import difference, numbering
from d2k.analyzers.patterns.tiles import differs_within
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import Reason, Status

NAMES = ("atomic_poll", "atomic_load", "atomic_cas", "atomic_xchg", "atomicExch", "ld.acquire", "__nanosleep")


@dataclass(frozen=True, slots=True)
class _LookBack:
    publish: int
    poll: int


def detect(kernel: KernelView) -> Detection:
    polls = tuple(_polls(kernel))
    if not polls:
        return mentioned(kernel, NAMES) or Miss(detail="no block waits for another")
    found = next(_look_backs(kernel, polls), None)
    if found is None:
        evidence = tuple(Evidence(kernel.place(poll), "polled") for poll in polls[:2])
        return Miss(Reason.NO_TRACE, "blocks wait, but not for what the tiles before them publish", evidence)
    return (_match(kernel, found),)


def _match(kernel: KernelView, one: _LookBack) -> Match:
    ticket = _ticket(kernel, one.publish)
    evidence = [
        Evidence(kernel.place(one.publish), "publishes the tile's word"),
        Evidence(kernel.place(one.poll), "polls words of tiles before it"),
    ]
    if ticket != NONE:
        evidence.append(Evidence(kernel.place(ticket), "tile number by ticket"))
    return Match(tuple(evidence), {"ordering": "block_id" if ticket == NONE else "ticket"})


def _ticket(kernel: KernelView, publish: int) -> int:
    """The atomic addition that hands out tile numbers, NONE if block indices are tile numbers."""
    for place in where(kernel, publish):
        for at in flow(kernel).back((place,)) if place != NONE else ():
            op = kernel.op(at)
            if op.kind is Kind.ATOMIC and op.name in ("add", "inc") and at != publish:
                return at
    return NONE


def _polls(kernel: KernelView) -> Iterator[int]:
    """Reads of global memory that other blocks may change, on which the end of a loop around them depends."""
    data = flow(kernel)
    for value in kernel.values(Kind.LOAD, Kind.ATOMIC):
        op = kernel.op(value)
        outside = data.is_fetch(value) if op.kind is Kind.LOAD else data.is_output(value)
        if not outside or not _sees_others(kernel, value):
            continue
        loops = (kernel.loop(loop) for loop in kernel.loops_of(value))
        if any(loop.condition != NONE and value in kernel.slice(loop.condition) for loop in loops):
            yield value


def _sees_others(kernel: KernelView, value: int) -> bool:
    op = kernel.op(value)
    return op.kind is Kind.ATOMIC or bool(
        op.attrs.get("sem") or op.attrs.get("volatile") or op.attrs.get("cache") in ("cv", "cg", "volatile")
    )


def _look_backs(kernel: KernelView, polls: tuple[int, ...]) -> Iterator[_LookBack]:
    data = flow(kernel)
    for poll in polls:
        roots = data.memory(kernel.op(poll).args[0])
        for publish in data.outputs():
            if publish == poll or data.memory(kernel.op(publish).args[0]) != roots or not roots:
                continue
            related = _is_before(kernel, poll, publish) and _same_path(kernel, poll, publish)
            if related and _is_numbered(kernel, publish) and _is_used(kernel, poll, publish):
                yield _LookBack(publish, poll)


def _is_numbered(kernel: KernelView, publish: int) -> bool:
    """The published word is the tile's own: its place comes from a block index or a ticket."""
    return _ticket(kernel, publish) != NONE or any(
        kernel.op(at).kind is Kind.BLOCK_INDEX
        for place in where(kernel, publish)
        if place != NONE
        for at in flow(kernel).back((place,))
    )


def _is_before(kernel: KernelView, poll: int, publish: int) -> bool:
    """The polled place lies before the published one by a constant, give or take a lane's own number."""
    left, right = (
        [entry_place(kernel, place) for place in where(kernel, access) if place != NONE] for access in (poll, publish)
    )
    if len(left) != len(right):
        return False
    numbers = numbering(kernel)
    distance = 0
    for a, b in zip(left, right, strict=True):
        for monomial, times in difference(a, b).items():
            if not monomial:
                distance += times
            elif not all(differs_within(kernel, numbers.example(factor)) for factor in monomial):
                return False
            elif times < 0:
                distance -= 1  # a lane looks as far back as its number
    return distance < 0


def _same_path(kernel: KernelView, poll: int, publish: int) -> bool:
    """Not one block publishes and another polls: no condition splits the two."""
    guards = {guard.value: guard.expected for guard in kernel.op(publish).guards}
    return all(guards.get(guard.value, guard.expected) == guard.expected for guard in kernel.op(poll).guards)


def _is_used(kernel: KernelView, poll: int, publish: int) -> bool:
    """What is read from before the tile reaches other results: the polled word, or one read once that word is there."""
    data = flow(kernel)
    published = frozenset(data.memory(kernel.op(publish).args[0]))
    read = [poll]
    for value in kernel.values(Kind.LOAD, Kind.ATOMIC):
        reads = data.is_fetch(value) if kernel.op(value).kind is Kind.LOAD else value in data.outputs()
        if value > poll and reads and _is_written(kernel, value) and _reads_before(kernel, value):
            read.append(value)
    reached = frozenset(data.forward(read))
    return any(
        output in reached and published.isdisjoint(data.memory(kernel.op(output).args[0])) for output in data.outputs()
    ) or _steers(kernel, reached)


def _is_written(kernel: KernelView, value: int) -> bool:
    data = flow(kernel)
    roots = data.memory(kernel.op(value).args[0])
    return any(data.memory(kernel.op(output).args[0]) == roots for output in data.outputs() if output != value)


def _reads_before(kernel: KernelView, value: int) -> bool:
    data = flow(kernel)
    roots = data.memory(kernel.op(value).args[0])
    return any(
        _is_before(kernel, value, output)
        for output in data.outputs()
        if output != value and data.memory(kernel.op(output).args[0]) == roots
    )


def _steers(kernel: KernelView, reached: frozenset[int]) -> bool:
    """The prefix says where results go, as in a compaction."""
    data = flow(kernel)
    for output in data.outputs():
        for place in where(kernel, output):
            if place != NONE and any(at in reached for at in data.back((place,))):
                return True
    return False


TRITON = """
@triton.jit
def scan(X, Y, State, Ticket, n, BLOCK: tl.constexpr):
    tile = NUMBER
    at = tile * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at, mask=at < n, other=0)
    total = tl.sum(x, 0)
    prefix = 0
BODY
    tl.store(Y + at, tl.cumsum(x, 0) + prefix, mask=at < n)

def run(X, Y, State, Ticket):
    scan[(triton.cdiv(X.numel(), 1024),)](X, Y, State, Ticket, X.numel(), BLOCK=1024)
"""
WALK = """
    tl.atomic_xchg(State + tile, (total.to(tl.int64) << 2) | 1)
    look = tile - 1
    while look >= 0:
        word = tl.atomic_add(State + look, 0)
        status = word & 3
        if status != 0:
            prefix += (word >> 2).to(tl.int32)
            look = tl.where(status == 2, -1, look - 1)
    tl.atomic_xchg(State + tile, ((prefix + total).to(tl.int64) << 2) | 2)
"""
CHAIN = """
    if tile > 0:
        while tl.atomic_cas(Ticket + tile - 1, 0, 0) == 0:
            pass
        prefix = tl.load(State + tile - 1, volatile=True)
    tl.store(State + tile, prefix + total)
    tl.debug_barrier()
    tl.atomic_xchg(Ticket + tile, 1)
"""
LOCK = """
    while tl.atomic_cas(Ticket, 0, 1) == 1:
        pass
    prefix = tl.load(State)
    tl.store(State, prefix + total)
    tl.atomic_xchg(Ticket, 0)
"""
SEPARATE = """
    prefix = tl.load(State + tile)
"""
TAKEN = "tl.atomic_add(Ticket, 1)"
CUDA = """
__device__ __forceinline__ unsigned long long peek(const unsigned long long* p) {
  unsigned long long v;
  asm volatile("ld.global.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
__global__ void scan(const unsigned* x, unsigned* y, unsigned long long* state, unsigned* ticket, int n) {
  __shared__ unsigned tile_s, prefix_s, part[256];
  if (threadIdx.x == 0) tile_s = NUMBER;
  __syncthreads();
  unsigned tile = tile_s;
  int at = tile * 256 + threadIdx.x;
  unsigned v = at < n ? x[at] : 0u;
  part[threadIdx.x] = v;
  __syncthreads();
  for (int o = 1; o < 256; o <<= 1) {
    unsigned add = threadIdx.x >= o ? part[threadIdx.x - o] : 0u;
    __syncthreads();
    part[threadIdx.x] += add;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    unsigned total = part[255], prefix = 0;
    BODY
    prefix_s = prefix;
  }
  __syncthreads();
  if (at < n) y[at] = part[threadIdx.x] + prefix_s;
}
void run(const unsigned* x, unsigned* y, unsigned long long* state, unsigned* ticket, int n) {
  scan<<<(n + 255) / 256, 256>>>(x, y, state, ticket, n);
}
"""
BACKWARD = """
    atomicExch(&state[tile], (1ull << 62) | total);
    for (int look = (int)tile - 1; look >= 0; --look) {
      unsigned long long word;
      do { word = peek(&state[look]); } while (word == 0);
      prefix += (unsigned)word;
      if (word >> 63) break;
    }
    atomicExch(&state[tile], (1ull << 63) | (prefix + total));
"""
BARRIER = """
    state[tile] = total;
    __threadfence();
    atomicAdd(ticket, 1u);
    while (atomicAdd(ticket, 0u) < gridDim.x) {}
    for (int look = 0; look < (int)tile; ++look) prefix += (unsigned)state[look];
"""

EXAMPLES = (
    Example(
        "walk towards lower tiles",
        "triton",
        TRITON.replace("BODY", WALK).replace("NUMBER", TAKEN),
        Status.PRESENT,
        {"ordering": "ticket"},
    ),
    Example(
        "chain of prefixes",
        "triton",
        TRITON.replace("BODY", CHAIN).replace("NUMBER", "tl.program_id(0)"),
        Status.PRESENT,
        {"ordering": "block_id"},
    ),
    Example(
        "lock",
        "triton",
        TRITON.replace("BODY", LOCK).replace("NUMBER", "tl.program_id(0)"),
        Status.ABSENT,
        trap="look-alike: a lock that all blocks share orders nothing",
    ),
    Example(
        "prefixes of another launch",
        "triton",
        TRITON.replace("BODY", SEPARATE).replace("NUMBER", "tl.program_id(0)"),
        Status.ABSENT,
        trap="the prefixes come from elsewhere: no block waits",
    ),
    Example(
        "packed words",
        "cuda",
        CUDA.replace("BODY", BACKWARD).replace("NUMBER", "atomicAdd(ticket, 1u)"),
        Status.PRESENT,
        {"ordering": "ticket"},
    ),
    Example(
        "tiles by block index",
        "cuda",
        CUDA.replace("BODY", BACKWARD).replace("NUMBER", "blockIdx.x"),
        Status.PRESENT,
        {"ordering": "block_id"},
    ),
    Example(
        "barrier of the grid",
        "cuda",
        CUDA.replace("BODY", BARRIER).replace("NUMBER", "blockIdx.x"),
        Status.ABSENT,
        trap="look-alike: all blocks wait for all, then read what they need",
    ),
    Example(
        "under #if 0",
        "cuda",
        CUDA.replace("BODY", f"\n#if 0\n{BACKWARD}\n#endif\n").replace("NUMBER", "blockIdx.x"),
        Status.ABSENT,
        trap="code of another build",
    ),
)
