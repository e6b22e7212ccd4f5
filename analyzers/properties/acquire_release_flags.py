"""Flags with acquire and release: blocks signal each other by words in global memory, and data is ordered with the flag
by acquire and release semantics or fences, or travels in the same atomic word as the status. Atomics that only add up
results signal nothing; a relaxed flag beside data orders nothing.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.flags import Flag, acquires, flags, releases
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import Kind
from d2k.spec.finding import Reason, Status

NAMES = ("ld.acquire", "st.release", "__threadfence", "atomic_ref", "red.release")


def detect(kernel: KernelView) -> Detection:
    found = tuple(flags(kernel))
    ordered = [one for one in found if one.packed or _is_ordered(kernel, one)]
    if ordered:
        packed = [one for one in ordered if one.packed]
        return (_match(kernel, (packed or ordered)[0]),)
    if found:
        place = (Evidence(kernel.place(found[0].read), f"flag, {found[0].how}"),)
        return Miss(Reason.WRONG_PARAMETER, "blocks signal by a flag that orders no other data", place)
    missing = mentioned(kernel, NAMES)
    if missing is not None:
        return missing
    atomics = kernel.values(Kind.ATOMIC)
    if atomics:
        place = (Evidence(kernel.place(atomics[0]), f"atomic {kernel.op(atomics[0]).name}"),)
        return Miss(Reason.PREREQUISITE_MISSING, "atomics add up results; no block waits for another", place)
    return Miss(detail="no block signals another through memory")


def _is_ordered(kernel: KernelView, one: Flag) -> bool:
    if not acquires(kernel, one.read):
        return False
    # who sets the flag may stand in another kernel
    return not one.writes or any(releases(kernel, write) for write in one.writes)


def _match(kernel: KernelView, one: Flag) -> Match:
    what = "value and status in one word" if one.packed else f"flag of {one.tensor or 'a buffer'}, {one.how}"
    evidence = [Evidence(kernel.place(one.read), what)]
    evidence += [Evidence(kernel.place(write), "set here") for write in one.writes if write != one.read][:2]
    return Match(tuple(evidence), {"packed_word": one.packed})


TRITON = """
@triton.jit
def split(X, P, Y, FLAGS, N, BLOCK: tl.constexpr, SPLITS: tl.constexpr):
    tile = tl.program_id(0)
    part = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + (tile * SPLITS + part) * BLOCK + i)
    tl.store(P + (tile * SPLITS + part) * BLOCK + i, x)
    SIGNAL

def run(X, P, Y, FLAGS):
    split[(64, 4)](X, P, Y, FLAGS, X.shape[0], BLOCK=1024, SPLITS=4)
"""
LAST = """if tl.atomic_add(FLAGS + tile, 1, sem="SEM") == SPLITS - 1:
        total = tl.zeros((BLOCK,), tl.float32)
        for one in range(SPLITS):
            total += tl.load(P + (tile * SPLITS + one) * BLOCK + i)
        tl.store(Y + tile * BLOCK + i, total)"""
CHAIN = """if part > 0:
        while tl.atomic_add(FLAGS + tile * SPLITS + part - 1, 0, sem="acquire") == 0:
            pass
        x += tl.load(P + (tile * SPLITS + part - 1) * BLOCK + i)
    tl.store(Y + tile * BLOCK + i, x)
    tl.atomic_xchg(FLAGS + tile * SPLITS + part, 1, sem="release")"""
SUM = "tl.atomic_add(Y + tile * BLOCK + i, x)"
QUEUE = """next = tl.atomic_add(FLAGS, 1)
    tl.store(Y + next * BLOCK + i, x)"""
CUDA = r"""
__global__ void chain(const float* x, float* partial, float* y, int* flag, unsigned long long* word) {
  float v = x[blockIdx.x * 128 + threadIdx.x];
  SIGNAL
  y[blockIdx.x * 128 + threadIdx.x] = v;
}
void run(const float* x, float* partial, float* y, int* flag, unsigned long long* word) {
  chain<<<64, 128>>>(x, partial, y, flag, word);
}
"""
ACQUIRE = """int seen = 0;
  while (seen == 0) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag + blockIdx.x) : "memory");
  }
  v += partial[threadIdx.x];
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag + blockIdx.x + 1), "r"(1) : "memory");"""
FENCED = """volatile int* waiting = flag;
  while (waiting[blockIdx.x] == 0) {}
  __threadfence();
  v += partial[threadIdx.x];
  partial[128 + threadIdx.x] = v;
  __threadfence();
  if (threadIdx.x == 0) waiting[blockIdx.x + 1] = 1;"""
PACKED = """volatile unsigned long long* words = word;
  unsigned long long seen = 0;
  while ((seen >> 32) == 0) seen = words[blockIdx.x];
  v += __uint_as_float(static_cast<unsigned int>(seen));
  words[blockIdx.x + 1] = (1ull << 32) | __float_as_uint(v);"""

EXAMPLES = (
    Example(
        "last block by a counter",
        "triton",
        TRITON.replace("SIGNAL", LAST.replace("SEM", "acq_rel")),
        Status.PRESENT,
        {"packed_word": False},
    ),
    Example("chain of blocks", "triton", TRITON.replace("SIGNAL", CHAIN), Status.PRESENT, {"packed_word": False}),
    Example(
        "relaxed counter",
        "triton",
        TRITON.replace("SIGNAL", LAST.replace("SEM", "relaxed")),
        Status.ABSENT,
        trap="the order is switched off",
    ),
    Example(
        "sum by atomics", "triton", TRITON.replace("SIGNAL", SUM), Status.ABSENT, trap="look-alike: results, no flags"
    ),
    Example(
        "queue of work",
        "triton",
        TRITON.replace("SIGNAL", QUEUE),
        Status.ABSENT,
        trap="look-alike: a ticket orders no data",
    ),
    Example(
        "acquire and release in PTX", "cuda", CUDA.replace("SIGNAL", ACQUIRE), Status.PRESENT, {"packed_word": False}
    ),
    Example(
        "fences and a volatile flag", "cuda", CUDA.replace("SIGNAL", FENCED), Status.PRESENT, {"packed_word": False}
    ),
    Example("value and status together", "cuda", CUDA.replace("SIGNAL", PACKED), Status.PRESENT, {"packed_word": True}),
    Example(
        "volatile flag without fences",
        "cuda",
        CUDA.replace("SIGNAL", FENCED.replace("__threadfence();", "")),
        Status.ABSENT,
        trap="a flag that orders no data",
    ),
    Example(
        "sum by atomics",
        "cuda",
        CUDA.replace("SIGNAL", "atomicAdd(partial + threadIdx.x, v);"),
        Status.ABSENT,
        trap="look-alike: results, no flags",
    ),
)
