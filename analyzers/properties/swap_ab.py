"""Swapped operands: the wide dimension of the result, which lies contiguously in memory, fills the M side of the matrix
product, and the few rows (tokens) sit on the narrow N side; the result is stored across.

Told by the store: the element next in memory belongs to the next row of the accumulator, or the accumulator is
transposed before an ordinary store. A tile that is narrow in N without that is only a small tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.contiguity import access_steps
from d2k.analyzers.patterns.contraction import Contraction, contractions
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.matmul import Product, products
from d2k.analyzers.patterns.reuse import kept_in
from d2k.analyzers.patterns.terms import terms
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import FoundValue, Reason, Status

MAX_TOKENS = 64
"""More columns than this are no few tokens."""


@dataclass(frozen=True, slots=True)
class _Across:
    """A product whose result is stored with the M side contiguous; extents of its tile, None where not known."""

    value: int
    store: int
    m: int | None
    n: int | None


def detect(kernel: KernelView) -> Detection:
    if not products(kernel):
        return Miss(detail="no matrix product")
    found = tuple(_across(kernel))
    swapped = [one for one in found if _is_narrow(kernel, one)]
    if swapped:
        return (_match(kernel, min(swapped, key=lambda one: one.n or MAX_TOKENS)),)
    if found:
        one = found[0]
        evidence = (Evidence(kernel.place(one.value), f"tile {one.m} x {one.n}"),)
        return Miss(Reason.WRONG_PARAMETER, "the N side of the tile is not the narrow one", evidence, certain=True)
    return Miss(detail="results are stored along the N side of their products")


def _is_narrow(kernel: KernelView, one: _Across) -> bool:
    if one.n is None:
        # only in CUDA is the block's tile anything else than a number of its variant
        return kernel.kernel.language == "cuda"
    return one.n <= MAX_TOKENS and (one.m is None or one.m > one.n)


def _match(kernel: KernelView, one: _Across) -> Match:
    attributes: dict[str, FoundValue] = {}
    undecided: dict[str, str] = {}
    if one.n is None:
        undecided["n_tile"] = "the extent of the block's tile is not known here"
    else:
        attributes["n_tile"] = one.n
    evidence = (
        Evidence(kernel.place(one.value), f"product of {one.m or '?'} x {one.n or '?'}"),
        Evidence(kernel.place(one.store), "stored with its M side contiguous"),
    )
    return Match(evidence, attributes, undecided)


def _across(kernel: KernelView) -> Iterator[_Across]:
    by_value = {one.value: one for one in products(kernel)}
    data = flow(kernel)
    for one in contractions(kernel):
        product = by_value.get(one.value)
        if product is None or product.reduction == NONE or not (product.a_fetches and product.b_fetches):
            continue
        reached = frozenset(data.spread(one.sums, lambda value, user: _goes_on(kernel, value, user)))
        for store in data.outputs():
            if store not in reached:
                continue
            if kernel.kernel.language == "cuda":
                across, (m, n) = _fragment_across(kernel, one, store), _block_tile(kernel, product)
            else:
                across, n, m = _tile_across(kernel, one, store), product.n, product.m
            if across:
                yield _Across(one.value, store, m, n)


def _goes_on(kernel: KernelView, value: int, user: int) -> bool:
    """The result stays itself, or is the accumulator of further products."""
    op = kernel.op(user)
    return _elementwise(op) or (op.kind is Kind.MMA and value in op.args[2:3])


def _elementwise(op: Op) -> bool:
    """What leaves an element of the result where it is, or only lays out the tile anew."""
    return op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.PHI, Kind.SHAPE, Kind.ITEM, Kind.STORE, Kind.ATOMIC, Kind.COPY)


# tiles


def _tile_across(kernel: KernelView, one: Contraction, store: int) -> bool:
    """The stored tile's rows are the accumulator's and lie contiguously, or its columns are after a transposition."""
    transposed = _is_transposed(kernel, one, store)
    if transposed is None:
        return False
    steps = access_steps(kernel, store)
    if steps is None:
        # a tensor map writes tiles whose last axis is contiguous
        return transposed and kernel.op(store).attrs.get("via") == "descriptor"
    if len(steps) != 2:
        return False
    along_m, along_n = steps[::-1] if transposed else steps
    return along_m is not None and along_m.how == "unit" and (along_n is None or along_n.how != "unit")


def _is_transposed(kernel: KernelView, one: Contraction, store: int) -> bool | None:
    """Whether the stored tile is the accumulator transposed; None if its layout is changed in another way."""
    value = kernel.op(store).args[1] if len(kernel.op(store).args) > 1 else NONE
    odd = False
    while value != NONE and value not in one.sums:
        op = kernel.op(value)
        if op.kind is Kind.SHAPE and op.name in ("trans", "permute"):
            odd = not odd
        elif op.kind is Kind.SHAPE and op.name not in ("expand_dims", "broadcast"):
            return None
        reached = [arg for arg in flow(kernel).operands(value) if _comes_from(kernel, arg, one)]
        value = reached[0] if reached else NONE
    return odd if value != NONE else None


def _comes_from(kernel: KernelView, value: int, one: Contraction) -> bool:
    return any(at in one.sums for at in flow(kernel).back((value,), _elementwise))


# fragments


def _fragment_across(kernel: KernelView, one: Contraction, store: int) -> bool:
    """A fragment's row, a quarter of the lanes' number, moves the address by one, its columns by more.

    In tensor memory each lane has a row of its own.
    """
    if kernel.op(store).kind is Kind.COPY:
        return False
    instruction = kernel.op(one.value).attrs.get("instr")
    rows: list[int] = []
    columns: list[bool] = []
    for term in terms(kernel, store):
        part = _part(kernel, term.index)
        if instruction == "tcgen05":
            if part == "lane":
                rows.append(term.scale if not term.stride else 0)
        elif part == "row":
            rows.append(term.scale if not term.stride else 0)
        elif part == "column":
            columns.append(bool(term.stride) or abs(term.scale) > 2)
    return rows == [1] and (instruction == "tcgen05" or (bool(columns) and all(columns)))


def _part(kernel: KernelView, value: int) -> str:
    """row (lane / 4) or column (lane % 4) of a fragment; lane for the whole."""
    value = kernel.strip(value)
    op = kernel.op(value)
    if op.kind is Kind.LANE or (op.kind is Kind.THREAD_INDEX and op.attrs.get("axis") == 0):
        return "lane"
    if op.kind is not Kind.ELEMENTWISE or len(op.args) != 2 or _part(kernel, op.args[0]) != "lane":
        return ""
    constant = kernel.fold_int(op.args[1])
    match op.name, constant:
        case ("floordiv" | "div", 4) | ("shr", 2):
            return "row"
        case ("mod", 4) | ("and", 3):
            return "column"
    return ""


def _block_tile(kernel: KernelView, product: Product) -> tuple[int | None, int | None]:
    """(m, n) of the block: the shared arrays' rows, or what one warp group's instruction covers in N."""
    dims = [kept_in(kernel, operand) for operand in (product.a, product.b)]
    m, n = (one[0] if one is not None and len(one) == 2 else None for one in dims)
    if n is None and kernel.op(product.value).attrs.get("instr") in ("wgmma", "tcgen05"):
        n = product.n
    return m, n


TRITON = """
@triton.jit
def skinny(W, X, Y, M, N, K, BN: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    ks = tl.arange(0, BK)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k in range(0, K, BK):
        w = tl.load(W + n[:, None] * K + (k + ks)[None, :])
        x = tl.load(X + t[:, None] * K + (k + ks)[None, :])
        total += PRODUCT
    STORE

def run(W, X, Y):
    N, K = W.shape
    skinny[(N // 128, triton.cdiv(X.shape[0], 16))](W, X, Y, X.shape[0], N, K, BN=WIDE, BT=16, BK=64)
"""
WEIGHTS_FIRST = TRITON.replace("ROWS, COLUMNS", "BN, BT").replace("PRODUCT", "tl.dot(w, tl.trans(x))")
ACROSS = WEIGHTS_FIRST.replace("STORE", "tl.store(Y + t[None, :] * N + n[:, None], total)")
TRANSPOSED = WEIGHTS_FIRST.replace(
    "STORE", "tl.store(Y + t[:, None] * N + n[None, :], tl.trans(total).to(tl.bfloat16))"
)
OTHER_LAYOUT = WEIGHTS_FIRST.replace("STORE", "tl.store(Y + n[:, None] * M + t[None, :], total)")
TOKENS_FIRST = (
    TRITON.replace("ROWS, COLUMNS", "BT, BN")
    .replace("PRODUCT", "tl.dot(x, tl.trans(w))")
    .replace("STORE", "tl.store(Y + t[:, None] * N + n[None, :], total)")
)
CUDA = r"""
__global__ void skinny(const half* w, const half* x, float* y, int n, int k) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const half *rows = FIRST + (size_t)(blockIdx.x * 64 + warp * 16) * k, *columns = SECOND;
  float c[4] = {0.f, 0.f, 0.f, 0.f};
  for (int k0 = 0; k0 < k; k0 += 16) {
    const uint32_t* a = reinterpret_cast<const uint32_t*>(rows + (size_t)(lane / 4) * k + k0 + lane % 4 * 2);
    const uint32_t* b = reinterpret_cast<const uint32_t*>(columns + (size_t)(lane / 4) * k + k0 + lane % 4 * 2);
    uint32_t a0 = a[0], a1 = a[4 * k], a2 = a[4], a3 = a[4 * k + 4], b0 = b[0], b1 = b[4];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  int row = blockIdx.x * 64 + warp * 16 + lane / 4, column = lane % 4 * 2;
  STORE
}
void run(const half* w, const half* x, float* y, int n, int k) { skinny<<<n / 64, 128>>>(w, x, y, n, k); }
"""
FRAGMENT_ACROSS = (
    CUDA.replace("FIRST", "w")
    .replace("SECOND", "x")
    .replace("STORE", "y[column * n + row] = c[0]; y[(column + 1) * n + row] = c[1];")
)
FRAGMENT_ALONG = (
    CUDA.replace("FIRST", "x")
    .replace("SECOND", "w")
    .replace("STORE", "y[row * n + column] = c[0]; y[row * n + column + 1] = c[1];")
)

EXAMPLES = (
    Example("stored across", "triton", ACROSS.replace("WIDE", "128"), Status.PRESENT, {"n_tile": 16}),
    Example("transposed before the store", "triton", TRANSPOSED.replace("WIDE", "128"), Status.PRESENT, {"n_tile": 16}),
    Example(
        "tokens first",
        "triton",
        TOKENS_FIRST.replace("WIDE", "128"),
        Status.ABSENT,
        trap="look-alike: few tokens on the M side",
    ),
    Example(
        "column-major result",
        "triton",
        OTHER_LAYOUT.replace("WIDE", "128"),
        Status.ABSENT,
        trap="look-alike: an ordinary product of a narrow tile",
    ),
    Example(
        "as narrow in M",
        "triton",
        ACROSS.replace("WIDE", "16"),
        Status.ABSENT,
        trap="parameter: the M side is not the wide one",
    ),
    Example("fragments stored across", "cuda", FRAGMENT_ACROSS, Status.PRESENT),
    Example(
        "fragments stored along",
        "cuda",
        FRAGMENT_ALONG,
        Status.ABSENT,
        trap="look-alike: few tokens on the M side",
    ),
)
