"""Histogram private to a block: counters that data choose (bins, digits, experts) are counted up in shared memory or
registers of the block before anything is added to global memory.

Counting straight into global memory, a single counter, and a one-hot product that picks values instead of counting
are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import where
from d2k.analyzers.patterns.mentions import mentioned
from d2k.analyzers.patterns.numbering import numbering
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Reason, Status

NAMES = ("histogram", "atomicAdd", "atomicAdd_block")


@dataclass(frozen=True, slots=True)
class _Count:
    value: int
    bins: int | None
    how: str


def detect(kernel: KernelView) -> Detection:
    found = (*_histograms(kernel), *_one_hot(kernel), *_counters(kernel))
    private = [one for one in found if one.bins != 1]
    if private:
        return (_match(kernel, max(private, key=lambda one: one.bins or 0)),)
    if found:
        one = found[0]
        return Miss(Reason.WRONG_PARAMETER, "one counter for all", (Evidence(kernel.place(one.value), "bins = 1"),))
    return _miss(kernel)


def _match(kernel: KernelView, one: _Count) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if one.bins is None:
        undecided["bins"] = "the number of counters is chosen at launch"
    else:
        attributes["bins"] = one.bins
    return Match((Evidence(kernel.place(one.value), one.how),), attributes, undecided)


def _histograms(kernel: KernelView) -> Iterator[_Count]:
    for value in kernel.values(Kind.HISTOGRAM):
        if kernel.users(value):
            dims = kernel.dims(value)
            bins = kernel.op(value).attrs.get("bins")
            known = dims[0] if dims else bins if isinstance(bins, int) else None
            yield _Count(value, known, "histogram of the block's tile")


# comparisons with every bin


def _one_hot(kernel: KernelView) -> Iterator[_Count]:
    """Sums, over the items, of comparisons with a range of bins."""
    data = flow(kernel)
    for value in kernel.values(Kind.REDUCE, name="sum"):
        op = kernel.op(value)
        comparison = _counted(kernel, op.args[0])
        if comparison == NONE:
            continue
        for bins, items in (kernel.op(comparison).args, kernel.op(comparison).args[::-1]):
            axis, extent = _range(kernel, bins)
            if axis is not None and op.attrs.get("axis") == 1 - axis and data.fetches(items):
                yield _Count(value, extent, "counts the items equal to each bin")


def _counted(kernel: KernelView, value: int) -> int:
    """The comparison whose truth is summed as 0 and 1; NONE if something else is summed."""
    value = kernel.strip(value)
    op = kernel.op(value)
    if (
        op.kind is Kind.ELEMENTWISE
        and op.name == "where"
        and (kernel.fold(op.args[1]), kernel.fold(op.args[2]))
        in (
            (1, 0),
            (1.0, 0.0),
        )
    ):
        value = kernel.strip(op.args[0])
        op = kernel.op(value)
    if op.kind is Kind.ELEMENTWISE and op.name == "and":
        # items beyond the end do not count
        sides = [kernel.strip(arg) for arg in op.args]
        value = next((at for at in sides if kernel.op(at).name == "eq"), NONE)
        op = kernel.op(value) if value != NONE else op
    return value if op.kind is Kind.ELEMENTWISE and op.name == "eq" and len(op.args) == 2 else NONE


def _range(kernel: KernelView, value: int) -> tuple[int | None, int | None]:
    """The axis, of two, along which a range varies, and its extent."""
    for at in kernel.walk(value, lambda op: op.kind in (Kind.CAST, Kind.SHAPE)):
        op = kernel.op(at)
        if op.kind is Kind.SHAPE and op.name == "expand_dims":
            axes = op.attrs.get("axes")
            inner = kernel.strip(at)
            if isinstance(axes, tuple) and len(axes) == 1 and kernel.op(inner).kind is Kind.ARANGE:
                dims = kernel.dims(inner)
                return 1 - int(axes[0] or 0), dims[0] if dims else None
    return None, None


# counters in an array


def _counters(kernel: KernelView) -> Iterator[_Count]:
    data = flow(kernel)
    for value in kernel.values(Kind.ATOMIC, Kind.STORE):
        op = kernel.op(value)
        arrays = [at for at in data.arrays(op.args[0]) if kernel.op(at).attrs.get("space") == "shared"]
        if not arrays or not _counts_up(kernel, value):
            continue
        chosen = [place for place in where(kernel, value) if place != NONE and _is_data(kernel, place)]
        if not chosen or not any(array in data.loads for array in arrays):
            continue
        yield _Count(value, _bins(kernel, arrays[0], value), "counts in shared memory")
    for value in kernel.values(Kind.SHAPE, name="insert"):
        op = kernel.op(value)
        if len(op.args) >= 3 and _is_data(kernel, op.args[2]) and _one_more(kernel, op.args[1], op.args[0]):
            dims = kernel.dims(value)
            yield _Count(value, dims[-1] if dims else None, "counts in registers")


def _counts_up(kernel: KernelView, value: int) -> bool:
    """Adds a constant or a number of lanes, atomically or to what was loaded from the very place."""
    op = kernel.op(value)
    if len(op.args) < 2:
        return False
    if op.kind is Kind.ATOMIC:
        return op.name in ("add", "inc") and _is_count(kernel, op.args[1])
    added = kernel.op(kernel.strip(op.args[1]))
    if added.kind is not Kind.ELEMENTWISE or added.name != "add":
        return False
    for old, more in (added.args, added.args[::-1]):
        loaded = kernel.op(kernel.strip(old))
        if loaded.kind is Kind.LOAD and _is_count(kernel, more) and _same_place(kernel, kernel.strip(old), value):
            return True
    return False


def _one_more(kernel: KernelView, value: int, array: int) -> bool:
    op = kernel.op(kernel.strip(value))
    if op.kind is not Kind.ELEMENTWISE or op.name != "add":
        return False
    for old, more in (op.args, op.args[::-1]):
        read = kernel.op(old)
        if read.kind is Kind.SHAPE and read.name == "index" and read.args[0] == array and _is_count(kernel, more):
            return True
    return False


def _same_place(kernel: KernelView, load: int, store: int) -> bool:
    numbers = numbering(kernel)
    places = [[numbers.number(at) for at in where(kernel, access) if at != NONE] for access in (load, store)]
    return places[0] == places[1]


def _is_count(kernel: KernelView, value: int) -> bool:
    value = kernel.strip(value)
    constant = kernel.fold(value)
    if isinstance(constant, int) and not isinstance(constant, bool):
        return constant != 0
    return constant is None and kernel.op(value).name in ("popc", "popcll", "match", "ballot")


def _is_data(kernel: KernelView, place: int) -> bool:
    """The place depends on fetched data."""
    return bool(flow(kernel).fetches(place)) and kernel.fold(place) is None


def _bins(kernel: KernelView, array: int, access: int) -> int | None:
    """Counters that data can choose: the extents along the axes that data index."""
    dims = kernel.dims(array)
    if not dims or None in dims:
        return None
    indices = kernel.op(access).args[3:]
    if len(indices) == len(dims):
        chosen = [dim for dim, index in zip(dims, indices, strict=True) if _is_data(kernel, index)]
        return prod(dim for dim in chosen if dim is not None) if chosen else None
    # a pointer into the array: its last axis, since what stands before it are copies
    return dims[-1]


def _miss(kernel: KernelView) -> Miss:
    data = flow(kernel)
    for value in kernel.values(Kind.ATOMIC, name=("add", "inc")):
        op = kernel.op(value)
        shared_by_all = data.is_output(value) and _is_count(kernel, op.args[1])
        if shared_by_all and any(place != NONE and _is_data(kernel, place) for place in where(kernel, value)):
            evidence = (Evidence(kernel.place(value), "atomic add in global memory"),)
            return Miss(Reason.NOT_LOAD_BEARING, "every item adds to a counter in global memory", evidence)
    return mentioned(kernel, NAMES) or Miss(detail="no counters that data choose")


TRITON = """
@triton.jit
def count(X, Counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.arange(0, BINS)
    x = tl.load(X + at, mask=at < n, other=-1)
BODY

def run(X, Counts):
    count[(triton.cdiv(X.numel(), 1024),)](X, Counts, X.numel(), BLOCK=1024, BINS=NUMBER)
"""
BUILT_IN = """
    tl.atomic_add(Counts + bins, tl.histogram(x, BINS))
"""
COMPARED = """
    found = tl.sum((x[:, None] == bins[None, :]).to(tl.int32), 0)
    tl.atomic_add(Counts + bins, found)
"""
GLOBAL = """
    tl.atomic_add(Counts + x, 1, mask=at < n)
"""
PICKED = """
    row = tl.sum(tl.where(x[:, None] == bins[None, :], at[:, None], 0), 0)
    tl.store(Counts + tl.program_id(0) * BINS + bins, row)
"""
CUDA = """
__global__ void count(const unsigned* x, unsigned* counts, int n) {
  __shared__ unsigned mine[NUMBER];
  for (int i = threadIdx.x; i < NUMBER; i += blockDim.x) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned digit = INDEX;
    BODY
  }
  __syncthreads();
  for (int i = threadIdx.x; i < NUMBER; i += blockDim.x) atomicAdd(&counts[i], mine[i]);
}
void run(const unsigned* x, unsigned* counts, int n) { count<<<128, 256>>>(x, counts, n); }
"""
DIGIT = CUDA.replace("INDEX", "x[i] >> 24")

EXAMPLES = (
    Example(
        "built-in histogram",
        "triton",
        TRITON.replace("BODY", BUILT_IN).replace("NUMBER", "256"),
        Status.PRESENT,
        {"bins": 256},
    ),
    Example(
        "comparisons with every bin",
        "triton",
        TRITON.replace("BODY", COMPARED).replace("NUMBER", "128"),
        Status.PRESENT,
        {"bins": 128},
    ),
    Example(
        "straight into global memory",
        "triton",
        TRITON.replace("BODY", GLOBAL).replace("NUMBER", "256"),
        Status.ABSENT,
        trap="look-alike: counters that no block owns",
    ),
    Example(
        "one-hot selection",
        "triton",
        TRITON.replace("BODY", PICKED).replace("NUMBER", "256"),
        Status.ABSENT,
        trap="look-alike: a comparison with every bin that picks a value and counts nothing",
    ),
    Example(
        "one bin",
        "triton",
        TRITON.replace("BODY", BUILT_IN).replace("NUMBER", "1"),
        Status.ABSENT,
        trap="parameter of size one",
    ),
    Example(
        "digits in shared memory",
        "cuda",
        DIGIT.replace("BODY", "atomicAdd(&mine[digit], 1u);").replace("NUMBER", "256"),
        Status.PRESENT,
        {"bins": 256},
    ),
    Example(
        "copy for each warp",
        "cuda",
        DIGIT.replace("mine[NUMBER]", "mine[8][NUMBER]")
        .replace("mine[i] = 0", "mine[threadIdx.x % 8][i] = 0")
        .replace("mine[i])", "mine[0][i] + mine[1][i])")
        .replace("BODY", "mine[threadIdx.x / 32][digit] += 1;")
        .replace("NUMBER", "128"),
        Status.PRESENT,
        {"bins": 128},
    ),
    Example(
        "one counter",
        "cuda",
        CUDA.replace("INDEX", "x[i] > 7u")
        .replace("BODY", "if (digit) atomicAdd(&mine[0], 1u);")
        .replace("NUMBER", "256"),
        Status.ABSENT,
        trap="look-alike: a single counter is no histogram",
    ),
    Example(
        "straight into global counters",
        "cuda",
        DIGIT.replace("BODY", "atomicAdd(&counts[digit], 1u);").replace("NUMBER", "256"),
        Status.ABSENT,
        trap="the array in shared memory is declared and unused",
    ),
    Example(
        "in a comment",
        "cuda",
        DIGIT.replace("BODY", "// atomicAdd(&mine[digit], 1u);").replace("NUMBER", "256"),
        Status.ABSENT,
        trap="comment",
    ),
)
