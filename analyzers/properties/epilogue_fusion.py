"""Epilogue fusion: what follows a contraction (bias, activation, residual, gating, scaling) is applied to its
accumulators while they are on chip, between the end of the sum and the only store of the result.

A conversion of the result alone is part of any store. Work on products that feed another product is no epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.activation import activations, inner_arithmetic
from d2k.analyzers.patterns.addresses import indices
from d2k.analyzers.patterns.contraction import Contraction, Epilogue, contractions, epilogue
from d2k.analyzers.patterns.dataflow import flow
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Status

TEXTS = {
    "bias": "adds a vector",
    "residual": "adds a tile",
    "mul": "multiplies by a tile",
    "scale": "scales",
    "gelu": "GELU",
    "silu": "SiLU",
    "gate": "gates by a sigmoid",
    "lse": "log of the sum of exponentials",
    "softmax_grad": "subtracts from the probabilities",
    "cast": "converts",
}


@dataclass(frozen=True, slots=True)
class _Work:
    """An operation on an accumulator: its word in the vocabulary, "" if it has none, and the value that it makes."""

    word: str
    value: int


def detect(kernel: KernelView) -> Detection:
    done: list[tuple[Contraction, tuple[_Work, ...]]] = []
    bare = NONE
    for one in contractions(kernel):
        if one.score:
            continue
        after = epilogue(kernel, one)
        work = (*_work(kernel, after), *_statistics(kernel, one))
        if any(each.word != "cast" for each in work):
            done.append((one, work))
        elif after.work:
            bare = one.value
    if done:
        return (_match(kernel, done),)
    if bare != NONE:
        evidence = (Evidence(kernel.place(bare), "product"),)
        return Miss(detail="the accumulators are stored as they are", evidence=evidence)
    if contractions(kernel):
        return Miss(detail="the products feed other products only")
    return Miss(detail="no matrix product")


def _work(kernel: KernelView, after: Epilogue) -> Iterator[_Work]:
    applied = [each for each in activations(kernel) if each.value in after.work]
    for each in applied:
        yield _Work(each.name, each.value)
    # the arithmetic inside an activation is no bias or scale of its own
    own = frozenset(at for each in applied for at in inner_arithmetic(kernel, each))
    for value in sorted(after.work - own):
        word = _word(kernel, value, after.live)
        if word is not None:
            yield _Work(word, value)


def _word(kernel: KernelView, value: int, live: frozenset[int]) -> str | None:
    """What an operation of the epilogue does with the accumulator; None if it only moves or selects it."""
    op = kernel.op(value)
    if op.kind is Kind.CAST:
        return "cast" if op.name == "cast" and _is_narrow(op.dtype) else None
    if op.kind is not Kind.ELEMENTWISE:
        return None
    others = [arg for arg in op.args if arg not in live and arg != NONE]
    match op.name:
        case "add" | "sub" | "fma":
            addends = [arg for arg in (op.args[2:] if op.name == "fma" else op.args) if arg in others]
            addends = [arg for arg in addends if not _is_product(kernel, arg)]
            kinds = [_operand(kernel, arg, value, live) for arg in addends]
            if "tile" in kinds:
                return "residual"
            if "vector" in kinds:
                return "bias"
            if op.name == "fma" and any(arg in others for arg in op.args[:2]):
                return "scale"
            return None
        case "mul" | "div" | "rcp":
            if not others:
                return "mul" if len({kernel.strip(arg) for arg in op.args}) == 2 else ""
            if all(kernel.fold(arg) == 1 for arg in others):
                return None
            return (
                "mul"
                if any(_operand(kernel, arg, value, live) == "tile" or _is_product(kernel, arg) for arg in others)
                else "scale"
            )
        case "max" | "min" | "clamp" | "exp" | "exp2" | "log" | "sqrt" | "rsqrt" | "tanh" | "erf" | "sigmoid":
            return ""
    return None


def _is_product(kernel: KernelView, value: int) -> bool:
    """Another accumulator, not a statistic of one."""
    data = flow(kernel)
    return any(kernel.op(at).kind is Kind.MMA for at in data.back((value,), _keeps_elements))


def _keeps_elements(op: Op) -> bool:
    return op.kind is not Kind.REDUCE and not (op.kind is Kind.ELEMENTWISE and op.name in ("exp", "exp2"))


def _operand(kernel: KernelView, value: int, result: int, live: frozenset[int]) -> str:
    """tile, vector or scalar: how many of the axes of the result an operand varies along."""
    data = flow(kernel)
    fetched = data.fetches(value, lambda op: op.kind not in (Kind.MMA, Kind.REDUCE))
    if not fetched:
        return "scalar"
    whole = _rank(kernel, result)
    if whole:
        own = max(_rank(kernel, fetch) or 0 for fetch in fetched)
        return "scalar" if own == 0 else ("tile" if own >= whole else "vector")
    moving = frozenset(at for fetch in fetched for at in indices(kernel, fetch))
    stored = [indices(kernel, store) for store in data.outputs() if store in live]
    if not moving:
        return "scalar"
    return "vector" if all(moving < place for place in stored) else "tile"


def _rank(kernel: KernelView, value: int) -> int | None:
    dims = kernel.dims(value)
    return None if dims is None else sum(dim != 1 for dim in dims)


def _is_narrow(dtype: str | None) -> bool:
    return dtype is None or dtype not in ("f32", "f64", "i32", "i64", "bool")


def _statistics(kernel: KernelView, one: Contraction) -> Iterator[_Work]:
    """log(sum(exp(product))) that is stored."""
    if not one.matrix or not kernel.values(Kind.ELEMENTWISE, name=("log", "log2")):
        return
    data = flow(kernel)
    made = frozenset(data.forward(one.sums, lambda op: op.kind is not Kind.MMA))
    for store in data.outputs():
        if store not in made:
            continue
        behind = frozenset(data.back((store,), lambda op: op.kind is not Kind.MMA)) & made
        names = {kernel.op(at).name for at in behind if kernel.op(at).kind is Kind.ELEMENTWISE}
        if names & {"log", "log2"} and names & {"exp", "exp2"}:
            logs = [at for at in behind if kernel.op(at).name in ("log", "log2")]
            yield _Work("lse", min(logs))
            return


def _match(kernel: KernelView, done: list[tuple[Contraction, tuple[_Work, ...]]]) -> Match:
    """One match for the kernel: what all its accumulators go through before they are stored."""
    words = tuple(sorted({each.word for _, work in done for each in work} - {""}))
    first = {each.word: each for _, work in reversed(done) for each in reversed(work) if each.word != "cast"}
    evidence = (
        Evidence(kernel.place(done[0][0].value), "product"),
        *(
            Evidence(kernel.place(each.value), f"{TEXTS.get(word, 'works on')} (accumulator)")
            for word, each in first.items()
        ),
    )
    return Match(evidence[:4], {"ops": words})


_TRITON = """
@triton.jit
def gemm(A, W, bias, Y, M, N, K, BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(A + rows[:, None] * K + (k + ks)[None, :])
        w = tl.load(W + (k + ks)[:, None] * N + cols[None, :])
        acc = tl.dot(a, w, acc)
    if BIAS:
        acc += tl.load(bias + cols).to(tl.float32)[None, :]
    y = acc
    tl.store(Y + rows[:, None] * N + cols[None, :], y.to(tl.bfloat16))


def run(a, w, bias, y):
    (M, K), N = a.shape, w.shape[1]
    gemm[(M // 128, N // 128)](a, w, bias, y, M, N, K, BIAS=True, BM=128, BN=128, BK=64)
"""

_GATED = """
@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def gated(X, G, U, Y, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    x_ptrs = X + rows[:, None] * K + tl.arange(0, BK)[None, :]
    g_ptrs = G + tl.arange(0, BK)[:, None] * N + cols[None, :]
    u_ptrs = U + tl.arange(0, BK)[:, None] * N + cols[None, :]
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(x_ptrs)
        gate += tl.dot(x, tl.load(g_ptrs))
        up += tl.dot(x, tl.load(u_ptrs))
        x_ptrs += BK
        g_ptrs += BK * N
        u_ptrs += BK * N
    tl.store(Y + rows[:, None] * N + cols[None, :], (silu(gate) * up).to(tl.bfloat16))


def run(x, g, u, y):
    (M, K), N = x.shape, g.shape[1]
    gated[(M // 64, N // 64)](x, g, u, y, N, K, BM=64, BN=64, BK=64)
"""

_GEMV = """
@triton.jit
def gemv(W, x, residual, y, K, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        w = tl.load(W + rows[:, None] * K + cols[None, :]).to(tl.float32)
        acc += w * tl.load(x + cols).to(tl.float32)[None, :]
    tl.store(y + rows, tl.sum(acc, 1) + tl.load(residual + rows))


def run(w, x, residual, y):
    gemv[(w.shape[0] // 4,)](w, x, residual, y, w.shape[1], ROWS=4, BLOCK=512)
"""

_TWO_KERNELS = (
    _TRITON.replace("BIAS=True", "BIAS=False")
    + """

@triton.jit
def add_bias(Y, bias, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(Y + i) + tl.load(bias + i % N))


def run_both(a, w, bias, y):
    run(a, w, bias, y)
    add_bias[(y.numel() // 1024,)](y, bias, y.shape[1], BLOCK=1024)
"""
)

_IN_LOOP = _TRITON.replace("acc = tl.dot(a, w, acc)", "acc += tl.dot(a, w) * tl.load(bias + k)").replace(
    "BIAS=True", "BIAS=False"
)

_CUDA = """
template <int BM, int BN, int BK, bool RELU>
__global__ void gemm(const float* a, const float* w, const float* bias, float* y, int M, int N, int K) {
    __shared__ float as[BM][BK], ws[BK][BN];
    int row = blockIdx.y * BM + threadIdx.y, col = blockIdx.x * BN + threadIdx.x;
    float acc = 0.f;
    for (int k0 = 0; k0 < K; k0 += BK) {
        as[threadIdx.y][threadIdx.x] = a[row * K + k0 + threadIdx.x];
        ws[threadIdx.y][threadIdx.x] = w[(k0 + threadIdx.y) * N + col];
        __syncthreads();
        for (int k = 0; k < BK; ++k) acc += as[threadIdx.y][k] * ws[k][threadIdx.x];
        __syncthreads();
    }
    acc += bias[col];
    y[row * N + col] = RELU ? fmaxf(acc, 0.f) : acc;
}

void run(const float* a, const float* w, const float* bias, float* y, int M, int N, int K) {
    gemm<16, 16, 16, true><<<dim3(N / 16, M / 16), dim3(16, 16)>>>(a, w, bias, y, M, N, K);
}
"""

_CUDA_GEMV = """
__global__ void gemv(const float* w, const float* x, const float* residual, float* y, int K) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    float acc = 0.f;
    for (int k = lane; k < K; k += 32) acc = fmaf(w[(size_t)row * K + k], x[k], acc);
    for (int o = 16; o > 0; o >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, o);
    if (lane == 0) y[row] = acc + residual[row];
}

void run(const float* w, const float* x, const float* r, float* y, int N, int K) {
    gemv<<<N / 4, 128>>>(w, x, r, y, K);
}
"""

EXAMPLES = (
    Example("bias on the accumulators", "triton", _TRITON, Status.PRESENT, {"ops": ("bias", "cast")}),
    Example("two accumulators joined by SwiGLU", "triton", _GATED, Status.PRESENT, {"ops": ("cast", "mul", "silu")}),
    Example("residual where a dot product ends", "triton", _GEMV, Status.PRESENT, {"ops": ("residual",)}),
    Example(
        "bias switched off", "triton", _TRITON.replace("BIAS=True", "BIAS=False"), Status.ABSENT, trap="constexpr off"
    ),
    Example("second kernel adds the bias", "triton", _TWO_KERNELS, Status.ABSENT, trap="work in a kernel of its own"),
    Example("scales inside the reduction", "triton", _IN_LOOP, Status.ABSENT, trap="look-alike: part of the reduction"),
    Example(
        "helper that nothing calls",
        "triton",
        _GATED.replace("(silu(gate) * up)", "gate").replace("        up += tl.dot(x, tl.load(u_ptrs))\n", ""),
        Status.ABSENT,
        trap="helper that nothing calls",
    ),
    Example("bias and ReLU", "cuda", _CUDA, Status.PRESENT, {"ops": ("bias",)}),
    Example("residual after a warp's dot product", "cuda", _CUDA_GEMV, Status.PRESENT, {"ops": ("residual",)}),
    Example(
        "nothing left of it",
        "cuda",
        _CUDA.replace("    acc += bias[col];\n", "#if 0\n    acc += bias[col];\n#endif\n").replace(
            "RELU ? fmaxf(acc, 0.f) : acc", "acc"
        ),
        Status.ABSENT,
        trap="#if 0",
    ),
    Example(
        "template switched off",
        "cuda",
        _CUDA.replace("    acc += bias[col];\n", "").replace("16, true>", "16, false>"),
        Status.ABSENT,
        trap="constexpr off",
    ),
)
