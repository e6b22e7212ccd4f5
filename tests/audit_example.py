"""The audit that the design sketches, as a task, a kernel and what an analysis finds in it."""

from __future__ import annotations

import msgspec
from submissions import absent, evidence, joined, kernel, present, report, task, unknown

from d2k.analyzers.audit import audit
from d2k.spec.audit import Audit
from d2k.spec.check import And, Check, Filter, Op, Term
from d2k.spec.finding import FileReport, GuardFinding, Reason, Why
from d2k.spec.guidance import Item
from d2k.spec.task import Task
from d2k.spec.vocabulary import Level

SOURCE = """\
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64}, num_stages=1, num_warps=4),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128}, num_stages=1, num_warps=8),
    ],
    key=["S"],
)
@triton.jit
def _attn_fwd(q_ptr, k_ptr, v_ptr, o_ptr, S, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    start = tl.program_id(0)
    q = tl.load(q_ptr + start)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    for n in range(0, (start + 1) * BLOCK_M, BLOCK_N):
        k = tl.load(k_ptr + n)
        s = tl.dot(q, k) * scale
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new)
        m = m_new
    tl.store(o_ptr + start, m)


def run(q, k, v, o):
    _attn_fwd[(1,)](q, k, v, o, q.shape[0], 0.125)
"""


def item(
    level: Level, identifier: str, title: str, check: Check, *requires: str, when: str = "", why: str = ""
) -> Item:
    applies = {"sm100": ("small", "large"), "sm90": ()} if when else {}
    return Item(identifier, level, title, check, requires, when=when, applies=applies, why=why)


GUIDANCE = (
    item(Level.L1, "online", "Walk the keys in blocks with a running maximum and sum", Term("online_softmax")),
    item(
        Level.L1,
        "stop_at_diagonal",
        "Under a causal mask end the key loop at the diagonal",
        Term("block_sparsity_skip", (Filter("pattern", Op.HAS, ("causal",)),)),
    ),
    item(
        Level.L2,
        "query_tile",
        "A tile of 128 query rows against blocks of 64 keys",
        Term("output_tiling", (Filter("block_m", Op.GE, (128,)), Filter("block_n", Op.GE, (64,)))),
        "online",
    ),
    item(
        Level.L2,
        "pipeline",
        "Keep at least two key blocks in flight",
        Term("multistage_pipeline", (Filter("stages", Op.GE, (2,)),)),
        "query_tile",
        why="The latency of a load is several blocks long; with one buffer the matrix units idle at every step.",
    ),
    item(
        Level.L2,
        "peel",
        "Mask only the diagonal and boundary blocks",
        Term("mask_peeling", (Filter("edges", Op.HAS, ("diagonal", "boundary")),)),
        "stop_at_diagonal",
    ),
    item(Level.L3, "bulk", "Stream K and V by bulk tensor copies", Term("tma_bulk_copy"), "pipeline"),
    item(
        Level.L3,
        "fold_scale",
        "Fold log2(e) into the score scale",
        And((Term("exp2_scaled_softmax"), Term("fp32_accumulate"))),
        "query_tile",
    ),
    item(Level.L3, "lazy_rescale", "Rescale only when the maximum has grown", Term("lazy_rescale"), "query_tile"),
    item(
        Level.L3, "tmem", "Accumulate in tensor memory", Term("tmem_accumulator"), "query_tile", when="arch has tcgen05"
    ),
)

CONFIGS = ("BLOCK_N=64", "BLOCK_N=128")


def example_task() -> Task:
    return task(*GUIDANCE)


def example_report() -> FileReport:
    def in_both(identifier: str, first: dict[str, int], second: dict[str, int], lines: tuple[int, int]):  # type: ignore[no-untyped-def]
        return joined(
            present(identifier, first, kernel="_attn_fwd", config=CONFIGS[0], line=lines[0]),
            present(identifier, second, kernel="_attn_fwd", config=CONFIGS[1], line=lines[1]),
        )

    def alike(identifier: str, line: int, text: str, **attributes: object):  # type: ignore[no-untyped-def]
        one = [
            present(identifier, attributes, kernel="_attn_fwd", config=config, line=line, text=text)  # type: ignore[arg-type]
            for config in CONFIGS
        ]
        return joined(*one)

    return report(
        alike("online_softmax", 20, "running max and sum over key blocks"),
        alike("block_sparsity_skip", 17, "loop ends at the diagonal", pattern=("causal",)),
        in_both("output_tiling", {"block_m": 128, "block_n": 64}, {"block_m": 128, "block_n": 128}, (7, 8)),
        absent("multistage_pipeline", Reason.WRONG_PARAMETER, "num_stages=1 in every config", 7),
        alike("mask_peeling", 17, "boundary peeled", edges=("boundary",)),
        absent("tma_bulk_copy", detail="pointer loads", line=18),
        absent("exp2_scaled_softmax", detail="exp is called; no log2(e) folded into the scale", line=21),
        alike("fp32_accumulate", 16, "m is float32"),
        unknown("lazy_rescale", "helper `rescale` is imported from a module that was not given"),
        kernels=(kernel("_attn_fwd", CONFIGS, line=13), kernel("_bwd_old", launched=False, line=140)),
        guards=(
            GuardFinding(
                "library_delegation", "suspected", "torch.matmul on the timed path", (evidence(26, "matmul"),)
            ),
            GuardFinding("output_cache", "absent"),
        ),
    )


def example_audit(target: str = "sm_100a") -> Audit:
    return audit(example_task(), (example_report(),), (), target)


def hostile_audit(text: str) -> Audit:
    """The example with a stranger's text wherever one can stand."""
    example = example_audit()
    places = (evidence(1, text, text),)
    items = tuple(
        msgspec.structs.replace(
            one,
            id=f"{one.id}{text}",
            title=text,
            check=text,
            fact=text,
            requires=(),
            evidence=places,
            reasons=(Why(Reason.NO_TRACE, text, places),),
        )
        for one in example.items
    )
    return msgspec.structs.replace(
        example, items=items, files=(text,), task=text, tool=text, problems=(Why(Reason.NO_TRACE, text, places),)
    )
