"""Lanes aggregated by vote: ballot or match tell which lanes have the same key or flag, and the mask yields a lane's
rank, the number of such lanes, or a compacted place, so that one lane issues the atomic for all. A vote that only
decides a branch aggregates nothing. In Triton, ranks within a tile by a prefix sum of matches stand in for votes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.loops import where
from d2k.analyzers.patterns.mentions import mentioned
from d2k.spec.facts import NONE, Kind, Op
from d2k.spec.finding import Reason, Status

VOTES = ("ballot", "match")
NAMES = ("__ballot_sync", "__match_any_sync", "vote.sync.ballot", "match.any")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass(frozen=True, slots=True)
class _Aggregate:
    source: int
    result: int
    use: str


def detect(kernel: KernelView) -> Detection:
    found = tuple({one.use: one for one in (*_by_vote(kernel), *_by_scan(kernel))}.values())
    if found:
        return tuple(_match(kernel, one) for one in found)
    missing = mentioned(kernel, NAMES)
    if missing is not None:
        return missing
    votes = kernel.values(Kind.VOTE)
    if votes:
        place = (Evidence(kernel.place(votes[0]), kernel.op(votes[0]).name),)
        return Miss(Reason.NOT_LOAD_BEARING, "votes decide branches; no lane acts for others", place)
    return Miss(detail="no lanes are combined by vote")


def _by_vote(kernel: KernelView) -> Iterator[_Aggregate]:
    for value in kernel.values(Kind.VOTE, name=VOTES):
        for at in kernel.flows_to(value, _on_masks):
            op = kernel.op(at)
            if op.kind is not Kind.ELEMENTWISE or op.name not in ("popc", "ffs", "clz", "bfind"):
                continue
            if op.name != "popc":
                # the leader: it matters only if it issues the atomic
                if any(kernel.op(user).kind is Kind.ATOMIC for user in _guarded_by(kernel, at)):
                    yield _Aggregate(value, at, "count")
                continue
            ranked = _is_cut_to_lower_lanes(kernel, op.args[0], value)
            yield _Aggregate(value, at, _rank(kernel, value, at) if ranked else "count")


def _on_masks(op: Op) -> bool:
    return (op.kind is Kind.ELEMENTWISE and op.name in ("and", "or", "xor", "not", "shl", "shr", "lop3")) or (
        op.kind in (Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.ITEM)
    )


def _guarded_by(kernel: KernelView, value: int) -> Iterator[int]:
    for at in kernel.values(Kind.ATOMIC):
        if any(kernel.depends(guard.value, value) for guard in kernel.op(at).guards):
            yield at


def _is_cut_to_lower_lanes(kernel: KernelView, mask: int, vote: int) -> bool:
    """The mask is and-ed with another that depends on the lane."""
    for at in kernel.walk(mask, _on_masks):
        op = kernel.op(at)
        if op.name in ("and", "lop3") and any(_depends_on_lane(kernel, arg, vote) for arg in op.args):
            return True
    return False


def _depends_on_lane(kernel: KernelView, value: int, vote: int) -> bool:
    if value == NONE or kernel.depends(value, vote):
        return False
    kinds = (Kind.LANE, Kind.THREAD_INDEX)
    return any(kernel.op(at).kind in kinds or "lanemask" in str(kernel.op(at).attrs) for at in kernel.slice(value))


def _rank(kernel: KernelView, vote: int, result: int) -> str:
    """A rank among equal keys, or the place of a lane whose flag is set."""
    if kernel.op(vote).name == "match":
        return "rank"
    return "compact" if _is_address(kernel, result) else "rank"


def _by_scan(kernel: KernelView) -> Iterator[_Aggregate]:
    """Prefix sums of comparisons of data, which place or rank the elements of a tile."""
    data = flow(kernel)
    for value in kernel.values(Kind.SCAN, name="sum"):
        source = kernel.op(value).args[0]
        compared = [at for at in data.back((source,), _selects) if kernel.op(at).name in COMPARISONS]
        if any(data.is_fetch(one) for at in compared for arg in kernel.op(at).args for one in data.back((arg,))):
            keyed = any(kernel.op(at).name == "eq" and len(kernel.op(at).shape or ()) > 1 for at in compared)
            yield _Aggregate(value, value, "rank" if keyed or not _is_address(kernel, value) else "compact")


def _selects(op: Op) -> bool:
    return op.kind in (Kind.CAST, Kind.SHAPE) or (op.kind is Kind.ELEMENTWISE and op.name in ("and", "where", "or"))


def _is_address(kernel: KernelView, value: int) -> bool:
    """It becomes part of the place where something is stored."""
    arithmetic = (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.SHUFFLE, Kind.REDUCE, Kind.ITEM)
    made = frozenset(kernel.flows_to(value, lambda op: op.kind in arithmetic))
    return any(arg in made for at in kernel.values(Kind.STORE) for arg in where(kernel, at) if arg != NONE)


def _match(kernel: KernelView, one: _Aggregate) -> Match:
    source = kernel.op(one.source)
    what = "prefix sum of matches in a tile" if source.kind is Kind.SCAN else source.name
    evidence = [Evidence(source.place, what)]
    if one.result != one.source:
        evidence.append(Evidence(kernel.place(one.result), f"{one.use} of lanes"))
    return Match(tuple(evidence), {"use": one.use})


CUDA = r"""
__global__ void place(const int* key, int* counter, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = threadIdx.x & 31;
  int k = key[i];
  CODE
}
void run(const int* key, int* counter, int* out, int n) { place<<<64, 256>>>(key, counter, out, n); }
"""
RANK = """unsigned same = __match_any_sync(0xffffffffu, k);
  int rank = __popc(same & ((1u << lane) - 1));
  int base = 0;
  if (rank == 0) base = atomicAdd(counter + k, __popc(same));
  base = __shfl_sync(0xffffffffu, base, __ffs(same) - 1);
  out[base + rank] = i;"""
COMPACT = """unsigned set = __ballot_sync(0xffffffffu, k > 0);
  if (k > 0) out[__popc(set & ((1u << lane) - 1))] = i;"""
BRANCH = """if (__any_sync(0xffffffffu, k > 0)) out[i] = k;"""
SINGLE = "out[atomicAdd(counter + k, 1)] = i;"
TRITON = """
@triton.jit
def place(K, O, B, E: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(K + i)
    CODE

def run(K, O, B):
    place[(K.numel() // 256,)](K, O, B, E=64, BLOCK=256)
"""
ONE_HOT = """hot = (key[:, None] == tl.arange(0, E)[None, :]).to(tl.int32)
    before = tl.cumsum(hot, 0) - hot
    rank = tl.sum(before * hot, 1)
    tl.store(O + tl.load(B + key) + rank, i)"""

EXAMPLES = (
    Example("rank within a tile", "triton", TRITON.replace("CODE", ONE_HOT), Status.PRESENT, {"use": "rank"}),
    Example(
        "flags compacted within a tile",
        "triton",
        TRITON.replace("CODE", "keep = key > 0\n    tl.store(O + tl.cumsum(keep.to(tl.int32), 0) - 1, i, mask=keep)"),
        Status.PRESENT,
        {"use": "compact"},
    ),
    Example(
        "prefix sum of values",
        "triton",
        TRITON.replace("CODE", "tl.store(O + i, tl.cumsum(key, 0))"),
        Status.ABSENT,
        trap="look-alike: a prefix sum of data combines no lanes with equal keys",
    ),
    Example("rank by match", "cuda", CUDA.replace("CODE", RANK), Status.PRESENT, {"use": "rank"}),
    Example("compaction by ballot", "cuda", CUDA.replace("CODE", COMPACT), Status.PRESENT, {"use": "compact"}),
    Example(
        "vote for a branch", "cuda", CUDA.replace("CODE", BRANCH), Status.ABSENT, trap="a vote that decides a branch"
    ),
    Example("an atomic for each lane", "cuda", CUDA.replace("CODE", SINGLE), Status.ABSENT, trap="no vote at all"),
    Example(
        "vote in a comment",
        "cuda",
        CUDA.replace("CODE", "// __match_any_sync(~0u, k)\n  " + SINGLE),
        Status.ABSENT,
        trap="comment",
    ),
)
