"""Cache policy hints: at least half of what is moved of a tensor carries a hint on how long to keep it."""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.accesses import HALF, Access, accesses, by_tensor, share
from d2k.spec.finding import FoundValue, Reason, Status

POLICIES = {
    "evict_first": "evict_first",
    "evict_last": "evict_last",
    "no_allocate": "no_allocate",
    "read_only": "read_only",
    "nc": "read_only",
    "cg": "no_allocate",
    "lu": "evict_first",
}
"""Hints by the words that front ends give them, without the level they are for; `cg` keeps data out of L1."""

OUTWARD = ("store", "scatter", "reduce")

STREAMING = frozenset({"cs", "wt"})
"""Hints of streaming data: written past the caches, or read once and evicted first."""


def detect(kernel: KernelView) -> Detection:
    everything = by_tensor(accesses(kernel))
    matches: list[Match] = []
    weak: list[tuple[str, tuple[Access, ...], float]] = []
    for tensor, group in everything.items():
        hinted = tuple(one for one in group if _policies(kernel, one))
        if not hinted:
            continue
        part = share(hinted, group)
        if part >= HALF:
            matches.append(_match(kernel, hinted, tensor))
        else:
            weak.append((tensor, hinted, part))
    unnamed = tuple(one for one in accesses(kernel) if one.tensor is None and _policies(kernel, one))
    if unnamed:
        matches.append(_match(kernel, unnamed, None))
    if matches:
        return tuple(matches)
    if weak:
        tensor, hinted, part = weak[0]
        detail = f"hints stand on about {round(100 * part)} % of what is moved of {tensor}"
        return Miss(Reason.NOT_LOAD_BEARING, detail, _evidence(kernel, hinted))
    return Miss(detail="no access carries a hint")


def _policies(kernel: KernelView, access: Access) -> frozenset[str]:
    op = kernel.op(access.value)
    words = [
        word.removeprefix(".").rpartition("::")[2]
        for key in ("eviction", "cache")
        for word in str(op.attrs.get(key) or "").replace(",", " ").split()
    ]
    if any(word in STREAMING for word in words):
        return frozenset({"streaming_store" if access.direction in OUTWARD else "evict_first"})
    return frozenset(POLICIES[word] for word in words if word in POLICIES)


def _match(kernel: KernelView, hinted: tuple[Access, ...], tensor: str | None) -> Match:
    policies = tuple(sorted({policy for one in hinted for policy in _policies(kernel, one)}))
    attributes: dict[str, FoundValue] = {"policy": policies}
    if tensor is not None:
        attributes["tensor"] = tensor
    return Match(_evidence(kernel, hinted), attributes)


def _evidence(kernel: KernelView, hinted: tuple[Access, ...]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            kernel.place(one.value), f"{one.direction} of {one.tensor}: {', '.join(sorted(_policies(kernel, one)))}"
        )
        for one in hinted[:4]
    )


TRITON = """
@triton.jit
def scale(X, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < nHINT)
    tl.store(Y + i, x * 2, mask=i < n)

def run(X, Y):
    scale[(triton.cdiv(X.numel(), 1024),)](X, Y, X.numel(), BLOCK=1024)
"""

CUDA = r"""
__global__ void scale(const float4* x, float4* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float4 v = LOAD;
    v.x *= 2.f;
    STORE;
  }
}
void run(const float4* x, float4* y, int n) { scale<<<n / 256, 256>>>(x, y, n); }
"""

EXAMPLES = (
    Example(
        "streaming data evicted first",
        "triton",
        TRITON.replace("HINT", ', eviction_policy="evict_first"'),
        Status.PRESENT,
        {"policy": ("evict_first",), "tensor": "X"},
    ),
    Example(
        "cached in L2 only",
        "triton",
        TRITON.replace("HINT", ', cache_modifier=".cg"'),
        Status.PRESENT,
        {"policy": ("no_allocate",), "tensor": "X"},
    ),
    Example("no hint", "triton", TRITON.replace("HINT", ""), Status.ABSENT, trap="plain loads carry no hint"),
    Example(
        "empty hint",
        "triton",
        TRITON.replace("HINT", ', eviction_policy=""'),
        Status.ABSENT,
        trap="a parameter that says nothing",
    ),
    Example(
        "read-only load",
        "cuda",
        CUDA.replace("LOAD", "__ldg(x + i)").replace("STORE", "y[i] = v"),
        Status.PRESENT,
        {"policy": ("read_only",), "tensor": "x"},
    ),
    Example(
        "streaming store",
        "cuda",
        CUDA.replace("LOAD", "x[i]").replace("STORE", "__stcs(y + i, v)"),
        Status.PRESENT,
        {"policy": ("streaming_store",), "tensor": "y"},
    ),
    Example(
        "plain access",
        "cuda",
        CUDA.replace("LOAD", "x[i] /* __ldg(x + i) */").replace("STORE", "y[i] = v"),
        Status.ABSENT,
        trap="comment",
    ),
)
