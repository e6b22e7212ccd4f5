"""Selection without a sort: the k greatest entries, or a nucleus, are found by moving a threshold according to
counts or
masses, by counting digits, or by taking the greatest entry k times; nothing sorts the whole row.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.patterns.hosts import short
from d2k.analyzers.patterns.selection import selections
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

SORTS = frozenset({"sort", "argsort", "topk", "SortPairs", "SortPairsDescending", "SortKeys", "sort_by_key", "msort"})


def detect_program(program: ProgramView) -> Detection:
    found = [(kernel, one) for kernel in program.kernels for one in selections(kernel)]
    if found:
        kernel, one = found[0]
        return (Match((Evidence(kernel.place(one.value), one.text),), {"method": one.method}),)
    for name, host in program.live_hosts.items():
        for value in host.values(Kind.HOST_CALL):
            if short(host.op(value).name) in SORTS:
                evidence = (Evidence(host.op(value).place, host.op(value).name),)
                return Miss(Reason.DELEGATED_TO_LIBRARY, f"`{name}` sorts by a library call", evidence)
    for kernel in program.kernels:
        sorts = kernel.values(Kind.SORT)
        if sorts:
            evidence = (Evidence(kernel.place(sorts[0]), "sorts the row"),)
            return Miss(detail="the row is sorted", evidence=evidence)
    return Miss(detail="no threshold search and no rounds of maxima")


_PIVOT = """
@triton.jit
def kth_largest(X, Out, N, k, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + cols, mask=cols < N, other=-1e30)
    low = tl.min(tl.where(cols < N, x, 1e30))
    high = tl.max(x)
    for _ in range(ROUNDS):
        pivot = 0.5 * (low + high)
        above = tl.sum((x > pivot).to(tl.int32))
        low = tl.where(above >= k, pivot, low)
        high = tl.where(above >= k, high, pivot)
    tl.store(Out + row * N + cols, tl.where(x > low, x, 0.0), mask=cols < N)


def run(x, out, k):
    kth_largest[(x.shape[0],)](x, out, x.shape[1], k, ROUNDS=32, BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_ROUNDS = """
@triton.jit
def route(X, Ids, E: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, E)
    x = tl.load(X + row * E + cols).to(tl.float32)
    for i in range(K):
        best = tl.argmax(x, 0)
        tl.store(Ids + row * K + i, best)
        x = tl.where(cols == best, -float("inf"), x)


def run(x, ids):
    route[(x.shape[0],)](x, ids, E=x.shape[1], K=8)
"""

_SORTED = """
@triton.jit
def take(X, Out, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, N)
    x = tl.sort(tl.load(X + row * N + cols), descending=True)
    tl.store(Out + row * K + cols, x, mask=cols < K)


def run(x, out):
    take[(x.shape[0],)](x, out, N=1024, K=8)
"""

_LIBRARY = """
@triton.jit
def scale(X, Out, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + tl.program_id(0) * N + cols, mask=cols < N)
    tl.store(Out + tl.program_id(0) * N + cols, x * 0.5, mask=cols < N)


def run(x, out, k):
    scale[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return torch.topk(out, k)
"""

_SEARCH = """
@triton.jit
def owner(offsets, Out, N, ROUNDS: tl.constexpr):
    i = tl.program_id(0)
    low = 0
    high = N
    for _ in range(ROUNDS):
        mid = (low + high) // 2
        right = tl.load(offsets + mid) <= i
        low = tl.where(right, mid, low)
        high = tl.where(right, high, mid)
    tl.store(Out + i, low)


def run(offsets, out):
    owner[(out.numel(),)](offsets, out, offsets.numel(), ROUNDS=20)
"""

_CUDA = """
__global__ void digits(const float* x, unsigned* prefix, int n, int k) {
    __shared__ unsigned counts[256];
    __shared__ unsigned chosen;
    const float* row = x + (size_t)blockIdx.x * n;
    unsigned found = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += 256) {
            unsigned bits = __float_as_uint(row[i]);
            if ((bits & mask) == found) atomicAdd(&counts[(bits >> shift) & 0xFF], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int left = k, digit = 255;
            while (digit > 0 && (int)counts[digit] < left) left -= counts[digit--];
            chosen = digit;
        }
        __syncthreads();
        found |= chosen << shift;
        mask |= 0xFFu << shift;
    }
    if (threadIdx.x == 0) prefix[blockIdx.x] = found;
}

void run(const float* x, unsigned* prefix, int rows, int n, int k) { digits<<<rows, 256>>>(x, prefix, n, k); }
"""

_CUDA_COUNT = """
__global__ void count(const int* keys, unsigned* counts, int n) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&local[keys[i]], 1u);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

void run(const int* keys, unsigned* counts, int n) { count<<<64, 256>>>(keys, counts, n); }
"""

EXAMPLES = (
    Example("pivot moved by counts", "triton", _PIVOT, Status.PRESENT, {"method": "pivot"}),
    Example("rounds of maxima", "triton", _ROUNDS, Status.PRESENT, {"method": "partial_topk"}),
    Example("row sorted", "triton", _SORTED, Status.ABSENT, trap="a sort of the whole row"),
    Example("library call", "triton", _LIBRARY, Status.ABSENT, trap="selection by a library"),
    Example("binary search in offsets", "triton", _SEARCH, Status.ABSENT, trap="look-alike: a search, not a selection"),
    Example("radix digits", "cuda", _CUDA, Status.PRESENT, {"method": "radix"}),
    Example("counts of keys", "cuda", _CUDA_COUNT, Status.ABSENT, trap="look-alike: a histogram of keys, no digits"),
)
