"""Operator chain fusion: several memory-bound operators (add, normalise, activate, quantise, rotate, select,
…) share a launch,
so that what passes between them never reaches global memory. `launches` counts what one call puts on the device.
"""

from __future__ import annotations

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.hosts import device_work, launchers
from d2k.analyzers.patterns.operators import fetches_once, operators
from d2k.spec.finding import FoundValue, Status
from d2k.spec.vocabulary import vocabulary

Found = dict[str, tuple[KernelView, dict[str, int]]]


def detect_program(program: ProgramView) -> Detection:
    found: Found = {}
    for kernel in program.kernels:
        ops = operators(kernel)
        if kernel.kernel.name not in found or len(ops) > len(found[kernel.kernel.name][1]):
            found[kernel.kernel.name] = (kernel, ops)
    chains = {name for name, (_, ops) in found.items() if len(ops) >= 2}
    fused = {name for name in chains if fetches_once(found[name][0])}
    if not fused:
        return _miss(found, chains)
    hosts = tuple(launchers(program, lambda name: name in fused))
    if not hosts:
        return tuple(_match(found, (name,), None, "no host code launches the kernel") for name in sorted(fused))
    return tuple(_call(program, found, host) for host in hosts)


def _call(program: ProgramView, found: Found, host: str) -> Match:
    names = tuple(name for name in found if host in set(launchers(program, name.__eq__)))
    launches = device_work(program, host)
    return _match(found, names, launches, "the number of launches depends on a loop")


def _match(found: Found, names: tuple[str, ...], launches: int | None, why: str) -> Match:
    known = _vocabulary()
    words = tuple(sorted({word for name in names for word in found[name][1]} & known))
    attributes: dict[str, FoundValue] = {"ops": words}
    undecided: dict[str, str] = {}
    if launches is None:
        undecided["launches"] = why
    else:
        attributes["launches"] = launches
    kernel, ops = max((found[name] for name in names), key=lambda one: len(one[1]))
    evidence = tuple(Evidence(kernel.place(value), word) for word, value in sorted(ops.items()))[:4]
    return Match(evidence, attributes, undecided)


def _vocabulary() -> frozenset[str]:
    prop = vocabulary().get("op_chain_fusion")
    attribute = prop.attribute("ops") if prop else None
    return frozenset(attribute.members) if attribute else frozenset()


def _miss(found: Found, chains: set[str]) -> Miss:
    if chains:
        kernel, ops = found[min(chains)]
        evidence = tuple(Evidence(kernel.place(value), word) for word, value in sorted(ops.items()))[:4]
        return Miss(detail="the operators share a launch, but data is fetched more than once", evidence=evidence)
    single = [(kernel, ops) for kernel, ops in found.values() if ops]
    if not single:
        return Miss(detail="no chain of memory-bound operators")
    evidence = tuple(Evidence(kernel.place(value), word) for kernel, ops in single for word, value in ops.items())[:4]
    return Miss(detail="each kernel does one operator", evidence=evidence)


_NORM = """
@triton.jit
def add_norm(X, R, W, Y, H, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < H
    x = tl.load(X + row * H + cols, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(R + row * H + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(R + row * H + cols, x, mask=mask)
    rstd = tl.rsqrt(tl.sum(x * x) / H + eps)
    tl.store(Y + row * H + cols, x * rstd * tl.load(W + cols, mask=mask), mask=mask)


def run(x, r, w, y):
    add_norm[(x.shape[0],)](x, r, w, y, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_GATED = """
@triton.jit
def swiglu(G, U, Y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(G + i, mask=i < n).to(tl.float32)
    tl.store(Y + i, g * tl.sigmoid(g) * tl.load(U + i, mask=i < n), mask=i < n)


def run(g, u, y):
    swiglu[(triton.cdiv(g.numel(), 1024),)](g, u, y, g.numel(), BLOCK=1024)
"""

_APART = """
@triton.jit
def add(X, R, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(R + i, tl.load(X + i, mask=i < n) + tl.load(R + i, mask=i < n), mask=i < n)


@triton.jit
def norm(X, W, Y, H, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + row * H + cols, mask=cols < H, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x) / H + eps) * tl.load(W + cols, mask=cols < H)
    tl.store(Y + row * H + cols, y, mask=cols < H)


def run(x, r, w, y):
    add[(x.numel() // 1024,)](x, r, x.numel(), BLOCK=1024)
    norm[(x.shape[0],)](r, w, y, x.shape[1], 1e-6, BLOCK=triton.next_power_of_2(x.shape[1]))
"""

_DISABLED = (
    _GATED.replace("BLOCK: tl.constexpr):", "GATE: tl.constexpr, BLOCK: tl.constexpr):")
    .replace(
        "    tl.store(Y + i, g * tl.sigmoid(g) * tl.load(U + i, mask=i < n), mask=i < n)",
        "    y = g * tl.load(U + i, mask=i < n)\n"
        "    if GATE:\n"
        "        y *= tl.sigmoid(g)\n"
        "    tl.store(Y + i, y, mask=i < n)",
    )
    .replace("g.numel(), BLOCK", "g.numel(), GATE=False, BLOCK")
)

_CUDA = """
__global__ void add_norm(const float* x, float* r, const float* w, float* y, int H, float eps) {
    extern __shared__ float row[];
    __shared__ float sums[32];
    size_t base = (size_t)blockIdx.x * H;
    float sum = 0.f;
    for (int i = threadIdx.x; i < H; i += blockDim.x) {
        float v = x[base + i] + r[base + i];
        r[base + i] = v;
        row[i] = v;
        sum += v * v;
    }
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0.f;
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (threadIdx.x == 0) sums[0] = rsqrtf(sum / H + eps);
    __syncthreads();
    for (int i = threadIdx.x; i < H; i += blockDim.x) y[base + i] = row[i] * sums[0] * w[i];
}

void run(const float* x, float* r, const float* w, float* y, int T, int H) {
    add_norm<<<T, 256, H * sizeof(float)>>>(x, r, w, y, H, 1e-6f);
}
"""

_CUDA_GATED = """
__device__ __forceinline__ float silu(float x) { return x / (1.f + __expf(-x)); }

__global__ void swiglu(const float* g, const float* u, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = silu(g[i]) * u[i];
}

void run(const float* g, const float* u, float* y, int n) { swiglu<<<(n + 255) / 256, 256>>>(g, u, y, n); }
"""

EXAMPLES = (
    Example("add and normalise", "triton", _NORM, Status.PRESENT, {"ops": ("add", "rmsnorm"), "launches": 1}),
    Example("SiLU and product", "triton", _GATED, Status.PRESENT, {"ops": ("mul", "silu"), "launches": 1}),
    Example("one kernel for each operator", "triton", _APART, Status.ABSENT, trap="operators in launches of their own"),
    Example("gate switched off", "triton", _DISABLED, Status.ABSENT, trap="constexpr off"),
    Example(
        "single operator",
        "triton",
        _GATED.replace("g * tl.sigmoid(g) * tl", "g * tl"),
        Status.ABSENT,
        trap="a chain of one",
    ),
    Example("add and normalise", "cuda", _CUDA, Status.PRESENT, {"ops": ("add", "rmsnorm"), "launches": 1}),
    Example("SiLU and product", "cuda", _CUDA_GATED, Status.PRESENT, {"ops": ("mul", "silu"), "launches": 1}),
    Example(
        "helper that nothing calls",
        "cuda",
        _CUDA_GATED.replace("silu(g[i]) * u[i]", "g[i] * u[i]"),
        Status.ABSENT,
        trap="helper that nothing calls",
    ),
)
