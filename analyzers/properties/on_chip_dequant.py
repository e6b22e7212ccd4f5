"""On-chip dequantisation: weights stay packed in memory; the kernel that multiplies them cuts the codes out of
the packed
words, converts and scales them in registers or shared memory.

A kernel that writes the expanded weights back to memory dequantises, but not on chip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import index_cone, where
from d2k.spec.facts import NONE, Kind
from d2k.spec.finding import FoundValue, Status


@dataclass(frozen=True, slots=True)
class _Codes:
    """`cut` takes codes of `bits` bits (None if the mask is not known) out of the words that `fetch` reads."""

    cut: int
    fetch: int
    bits: int | None


def detect(kernel: KernelView) -> Detection:
    codes = tuple(_codes(kernel))
    if not codes:
        return Miss(detail="no packed codes are cut out of fetched words")
    data = flow(kernel)
    for one in codes:
        made = frozenset(_expanded(kernel, one.cut))
        for product in contractions(kernel):
            op = kernel.op(product.value)
            operands = frozenset(data.back(op.args[:2]))
            if made & operands and any(_becomes_number(kernel, at) for at in made & operands):
                return (_match(kernel, one, product.value, made & operands),)
    evidence = (Evidence(kernel.place(codes[0].cut), f"cuts out {codes[0].bits} bits"),)
    return Miss(detail="the expanded codes feed no product of this kernel", evidence=evidence)


def _codes(kernel: KernelView) -> Iterator[_Codes]:
    data = flow(kernel)
    for value in kernel.values(Kind.ELEMENTWISE, name=("and", "mod")):
        op = kernel.op(value)
        for word, mask in (op.args[:2], op.args[1::-1]):
            bits = _bits(kernel.fold_int(mask), op.name)
            if op.name == "mod" and (bits is None or mask != op.args[1]):
                continue
            if bits is None and not (_is_symbol(kernel, mask) and _is_shifted(kernel, word)):
                continue
            if bits in (1, 2, 3, 6) and not _is_shifted(kernel, word):
                continue
            fetched = data.fetches(word, lambda inner: inner.kind is not Kind.REDUCE)
            if fetched:
                yield _Codes(value, fetched[0], bits)
                break
    for value in kernel.values(Kind.ASM, name=("lop3", "prmt", "bfe")):
        fetched = data.fetches(value)
        if fetched:
            yield _Codes(value, fetched[0], 4)


def _becomes_number(kernel: KernelView, value: int) -> bool:
    """A code turns into a value: it is converted, looked up, or put into the bits of a float."""
    op = kernel.op(value)
    if op.kind is Kind.CAST:
        return op.name == "bitcast" or op.dtype is None or _is_float(op.dtype)
    if op.kind is Kind.ELEMENTWISE and op.name in ("mul", "fma", "sub", "add"):
        # the language converts an integer operand by itself
        operands = {kernel.op(arg).dtype for arg in op.args}
        return _is_float(op.dtype) and any(dtype is not None and not _is_float(dtype) for dtype in operands)
    return op.kind is Kind.LOAD or (op.kind is Kind.SHAPE and op.name in ("gather", "index")) or op.kind is Kind.ASM


def _is_float(dtype: str | None) -> bool:
    return dtype is not None and dtype.startswith(("f", "bf", "tf"))


def _is_symbol(kernel: KernelView, mask: int) -> bool:
    """A compile-time parameter whose value is not known here."""
    return bool(kernel.op(mask).attrs.get("constexpr")) and kernel.fold(mask) is None


def _is_shifted(kernel: KernelView, word: int) -> bool:
    op = kernel.op(kernel.strip(word))
    return op.kind is Kind.ELEMENTWISE and op.name == "shr"


def _bits(mask: int | None, name: str) -> int | None:
    """Width of the codes that a mask of ones keeps, from the bottom of the word or in every nibble or byte of it."""
    if mask is None:
        return None
    if name == "mod":
        return mask.bit_length() - 1 if mask in (4, 8, 16) else None
    mask &= 0xFFFFFFFF
    widths = {
        0x1: 1,
        0x3: 2,
        0x7: 3,
        0xF: 4,
        0x3F: 6,
        0xF0: 4,
        0x0F0F0F0F: 4,
        0x000F000F: 4,
        0x00F000F0: 4,
        0xF0F0F0F0: 4,
    }
    return widths.get(mask)


def _expanded(kernel: KernelView, cut: int) -> Iterator[int]:
    """What is made of the codes, by arithmetic or by looking them up in a table."""
    data = flow(kernel)
    pending = [cut]
    seen = {cut}
    while pending:
        at = pending.pop()
        yield at
        for user in (*data.consumers(at), *_looked_up(kernel, at)):
            if user not in seen:
                seen.add(user)
                pending.append(user)


def _looked_up(kernel: KernelView, code: int) -> Iterator[int]:
    """Loads at `table + code` and elements `table[code]`: the code alone is the place."""
    for value in kernel.flows_to(code, lambda op: op.kind is Kind.CAST):
        for user in kernel.users(value):
            op = kernel.op(user)
            if op.kind in (Kind.LOAD, Kind.SHAPE) and value in op.args[1:]:
                yield user
            if op.kind is Kind.ELEMENTWISE and op.name == "add":
                other = next((arg for arg in op.args if arg != value), NONE)
                if other != NONE and kernel.op(other).kind in (Kind.PARAM, Kind.ALLOC):
                    yield from (one for one in kernel.users(user) if kernel.op(one).kind is Kind.LOAD)


def _match(kernel: KernelView, one: _Codes, product: int, path: frozenset[int]) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if one.bits is None:
        undecided["bits"] = "the mask of a code is a parameter that is not known here"
    else:
        attributes["bits"] = one.bits
    group = _group(kernel, path)
    if group is None:
        undecided["group"] = "the number of elements that share a scale is not known here"
    else:
        attributes["group"] = group
    evidence = (
        Evidence(kernel.place(one.fetch), "fetch of packed words"),
        Evidence(kernel.place(one.cut), f"cuts out codes of {one.bits or 'some'} bits"),
        Evidence(kernel.place(product), "multiplies the expanded values"),
    )
    return Match(evidence, attributes, undecided)


def _group(kernel: KernelView, path: frozenset[int]) -> int | None:
    """The divisor in the address of a factor of the expanded values: `k // group`."""
    data = flow(kernel)
    for value in sorted(path):
        op = kernel.op(value)
        if op.kind is not Kind.ELEMENTWISE or op.name not in ("mul", "fma", "sub"):
            continue
        for arg in op.args:
            if arg in path:
                continue
            for fetch in data.fetches(arg, lambda inner: inner.kind is not Kind.MMA):
                for place in where(kernel, fetch):
                    group = _divisor(kernel, place)
                    if group is not None:
                        return group
    return None


def _divisor(kernel: KernelView, place: int) -> int | None:
    if place == NONE:
        return None
    for at in index_cone(kernel, place):
        op = kernel.op(at)
        if op.kind is Kind.ELEMENTWISE and op.name == "floordiv":
            size = kernel.fold_int(op.args[1])
            if size is not None and size >= 16:
                return size
    return None


_GEMM = """
@triton.jit
def gemm(X, P, S, Y, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        words = tl.load(P + (ks[:, None] // 8) * N + cols[None, :])
        codes = (words >> ((ks[:, None] % 8) * 4)) & 0xF
        scale = tl.load(S + (ks[:, None] // GROUP) * N + cols[None, :])
        w = (codes.to(tl.float32) - 8.0) * scale
        acc = tl.dot(tl.load(X + rows[:, None] * K + ks[None, :]), w.to(tl.bfloat16), acc)
    tl.store(Y + rows[:, None] * N + cols[None, :], acc)


def run(x, packed, scales, y):
    (M, K), N = x.shape, packed.shape[1]
    gemm[(triton.cdiv(M, 16), N // 64)](x, packed, scales, y, N, K, GROUP=128, BM=16, BN=64, BK=64)
"""

_GEMV = """
@triton.jit
def gemv(P, x, scales, y, K, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, K // 2, BLOCK):
        at = k + tl.arange(0, BLOCK)
        packed = tl.load(P + row * (K // 2) + at)
        scale = tl.load(scales + row * (K // GROUP) + at // (GROUP // 2))
        low = ((packed & 0xF).to(tl.float32) - 8.0) * scale
        high = ((packed >> 4).to(tl.float32) - 8.0) * scale
        acc += low * tl.load(x + 2 * at) + high * tl.load(x + 2 * at + 1)
    tl.store(y + row, tl.sum(acc))


def run(packed, x, scales, y):
    gemv[(packed.shape[0],)](packed, x, scales, y, 2 * packed.shape[1], GROUP=64, BLOCK=512)
"""

_TO_MEMORY = """
@triton.jit
def expand(P, S, W, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    codes = (tl.load(P + at // 8) >> ((at % 8) * 4)) & 0xF
    tl.store(W + at, (codes.to(tl.float32) - 8.0) * tl.load(S + at // GROUP))


def run(packed, scales, w):
    expand[(w.numel() // 1024,)](packed, scales, w, GROUP=128, BLOCK=1024)
    return torch.matmul(w, w.T)
"""

_PLAIN = _GEMM.replace("codes = (words >> ((ks[:, None] % 8) * 4)) & 0xF", "codes = words")

_CUDA = """
__global__ void gemv(const uint32_t* packed, const float* scales, const float* x, float* y, int K) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float acc = 0.f;
    for (int word = lane; word < K / 8; word += 32) {
        uint32_t codes = packed[row * (K / 8) + word];
        float scale = scales[row * (K / 128) + word * 8 / 128];
        for (int i = 0; i < 8; ++i) {
            float w = ((int)((codes >> (4 * i)) & 0xF) - 8) * scale;
            acc += w * x[word * 8 + i];
        }
    }
    for (int o = 16; o > 0; o >>= 1) acc += __shfl_xor_sync(0xffffffff, acc, o);
    if (lane == 0) y[row] = acc;
}

void run(const uint32_t* p, const float* s, const float* x, float* y, int N, int K) {
    gemv<<<N / 4, 128>>>(p, s, x, y, K);
}
"""

_CUDA_TO_MEMORY = """
__global__ void expand(const uint32_t* packed, const float* scales, float* w, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] = ((int)((packed[i / 8] >> (4 * (i % 8))) & 0xF) - 8) * scales[i / 128];
}

void run(const uint32_t* p, const float* s, float* w, int n) { expand<<<(n + 255) / 256, 256>>>(p, s, w, n); }
"""

EXAMPLES = (
    Example("before the product", "triton", _GEMM, Status.PRESENT, {"bits": 4, "group": 128}),
    Example("two codes a byte", "triton", _GEMV, Status.PRESENT, {"bits": 4}),
    Example("expanded to memory", "triton", _TO_MEMORY, Status.ABSENT, trap="a dequantisation kernel of its own"),
    Example("no packed codes", "triton", _PLAIN, Status.ABSENT, trap="look-alike: a scaled operand"),
    Example("in registers", "cuda", _CUDA, Status.PRESENT, {"bits": 4}),
    Example("expanded to memory", "cuda", _CUDA_TO_MEMORY, Status.ABSENT, trap="a dequantisation kernel of its own"),
)
