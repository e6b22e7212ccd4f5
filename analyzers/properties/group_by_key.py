"""Counting sort by key: items are counted for each key, the counts are summed to offsets, and each item goes to
offset[key] + its rank, so that every key owns a contiguous range.
"""

from __future__ import annotations

from collections.abc import Iterator

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.hosts import short
from d2k.analyzers.patterns.loops import arithmetic, where
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Reason, Status


def detect_program(program: ProgramView) -> Detection:
    scattered = [(kernel, store, rank) for kernel in program.kernels for store, rank in _scatters(kernel)]
    counted = [(kernel, value) for kernel in program.kernels for value in _counts(kernel)]
    summed = [(kernel, value) for kernel in program.kernels for value in kernel.values(Kind.SCAN, name="sum")]
    by_host = [
        (host, value)
        for host in program.live_hosts.values()
        for value in host.values(Kind.HOST_CALL)
        if short(host.op(value).name) in ("cumsum", "ExclusiveSum", "exclusive_scan", "bincount", "histc")
    ]
    if scattered and (counted or summed or by_host):
        kernel, store, rank = scattered[0]
        evidence = [
            Evidence(kernel.place(store), "stores to offset[key] + rank"),
            Evidence(kernel.place(rank), "rank among equal keys"),
        ]
        evidence += [Evidence(one.place(value), "counts the items of each key") for one, value in counted[:1]]
        evidence += [Evidence(one.place(value), "sums the counts") for one, value in summed[:1]]
        return (Match(tuple(evidence)),)
    if counted:
        kernel, value = counted[0]
        return Miss(
            Reason.PREREQUISITE_MISSING,
            "keys are counted, but no item goes to offset[key] + rank",
            (Evidence(kernel.place(value), "counts keys"),),
        )
    return Miss(detail="nothing is placed by key")


def _scatters(kernel: KernelView) -> Iterator[tuple[int, int]]:
    """Stores whose place is made of a rank: the old value of a counter that a key names, or a prefix sum of
    equal keys."""
    data = flow(kernel)
    for store in data.outputs():
        if kernel.op(store).kind is not Kind.STORE:
            continue
        for place in where(kernel, store):
            rank = _rank(kernel, place) if place != NONE else None
            if rank is not None:
                yield store, rank
                break


def _rank(kernel: KernelView, place: int) -> int | None:
    data = flow(kernel)
    loaded = False
    found: int | None = None
    for at in data.back((place,), _indexes):
        op = kernel.op(at)
        if op.kind is Kind.ATOMIC and op.name in ("add", "inc") and _names_key(kernel, at):
            return at
        if op.kind is Kind.SCAN and op.name == "sum":
            found = at
        if op.kind is Kind.LOAD and _names_key(kernel, at):
            loaded = True
    return found if loaded else None


def _indexes(op: Op) -> bool:
    return arithmetic(op) or op.kind in (Kind.SCAN, Kind.REDUCE, Kind.SHUFFLE, Kind.LOAD)


def _names_key(kernel: KernelView, access: int) -> bool:
    """The place of an access is read from memory: a key, not a position."""
    return any(
        kernel.op(at).kind is Kind.LOAD
        for place in where(kernel, access)
        if place != NONE
        for at in flow(kernel).back((place,), arithmetic)
    )


def _counts(kernel: KernelView) -> Iterator[int]:
    yield from kernel.values(Kind.HISTOGRAM)
    for value in kernel.values(Kind.ATOMIC, name=("add", "inc")):
        op = kernel.op(value)
        if len(op.args) > 1 and kernel.fold(op.args[1]) == 1 and _names_key(kernel, value):
            yield value


_PLACE = """
@triton.jit
def count(keys, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + i, mask=i < n, other=0)
    tl.atomic_add(counts + key, 1, mask=i < n)


@triton.jit
def place(keys, offsets, order, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + i, mask=i < n, other=0)
    at = tl.atomic_add(offsets + key, 1, mask=i < n)
    tl.store(order + at, i, mask=i < n)


def run(keys, counts, order):
    n = keys.numel()
    count[(triton.cdiv(n, 256),)](keys, counts, n, BLOCK=256)
    offsets = torch.cumsum(counts, 0) - counts
    place[(triton.cdiv(n, 256),)](keys, offsets, order, n, BLOCK=256)
"""

_RANKS = """
@triton.jit
def place(keys, base, order, n, KEYS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    key = tl.load(keys + i, mask=i < n, other=KEYS)
    equal = (key[:, None] == tl.arange(0, KEYS)[None, :]).to(tl.int32)
    rank = tl.sum(equal * (tl.cumsum(equal, 0) - 1), 1)
    first = tl.load(base + key, mask=i < n, other=0)
    tl.store(order + first + rank, i, mask=i < n)


def run(keys, base, order):
    place[(1,)](keys, base, order, keys.numel(), KEYS=64, BLOCK=1024)
"""

_COUNTS_ONLY = _PLACE.replace(
    "    at = tl.atomic_add(offsets + key, 1, mask=i < n)\n    tl.store(order + at, i, mask=i < n)",
    "    tl.store(order + i, key, mask=i < n)",
)

_APPENDED = """
@triton.jit
def keep(X, total, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0)
    wanted = (x > 0).to(tl.int32)
    first = tl.atomic_add(total, tl.sum(wanted))
    tl.store(out + first + tl.cumsum(wanted, 0) - 1, x, mask=wanted != 0)


def run(x, total, out):
    keep[(triton.cdiv(x.numel(), 256),)](x, total, out, x.numel(), BLOCK=256)
"""

_CUDA = """
__global__ void place(const int* keys, const int* offsets, int* order, int n) {
    __shared__ int next[256];
    next[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 256) {
        int key = keys[i];
        int rank = atomicAdd(&next[key], 1);
        order[offsets[key] + rank] = i;
    }
}

__global__ void sum_counts(const int* counts, int* offsets, int n) {
    int total = 0;
    for (int i = 0; i < n; ++i) { offsets[i] = total; total += counts[i]; }
}

__global__ void count(const int* keys, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[keys[i]], 1);
}

void run(const int* keys, int* counts, int* offsets, int* order, int n) {
    count<<<(n + 255) / 256, 256>>>(keys, counts, n);
    sum_counts<<<1, 1>>>(counts, offsets, 256);
    place<<<1, 256>>>(keys, offsets, order, n);
}
"""

_CUDA_COUNT = """
__global__ void count(const int* keys, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&counts[keys[i]], 1);
}

void run(const int* keys, int* counts, int n) { count<<<(n + 255) / 256, 256>>>(keys, counts, n); }
"""

EXAMPLES = (
    Example("counters name the places", "triton", _PLACE, Status.PRESENT),
    Example("ranks by prefix sums of equal keys", "triton", _RANKS, Status.PRESENT),
    Example("keys only counted", "triton", _COUNTS_ONLY, Status.ABSENT, trap="look-alike: a histogram"),
    Example("kept items appended", "triton", _APPENDED, Status.ABSENT, trap="look-alike: compaction without keys"),
    Example("count, sum and scatter", "cuda", _CUDA, Status.PRESENT),
    Example("keys only counted", "cuda", _CUDA_COUNT, Status.ABSENT, trap="look-alike: a histogram"),
)
