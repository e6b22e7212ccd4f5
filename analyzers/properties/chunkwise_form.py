"""Chunkwise form: a recurrence over tokens is computed as dense products inside chunks of tokens (scores
masked to a triangle,
multiplied with values) plus one state that goes from chunk to chunk.

Causal attention masks scores to a triangle too, but turns them into probabilities and carries no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView, ProgramView
from d2k.analyzers.patterns.dataflow import flow
from d2k.analyzers.patterns.matmul import products
from d2k.analyzers.patterns.states import states
from d2k.analyzers.patterns.triangles import triangles
from d2k.spec.facts import Kind
from d2k.spec.finding import FoundValue, Status


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the chunkwise form: the masked products of a chunk, or the state between chunks."""

    kernel: KernelView
    value: int
    text: str
    tokens: int | None


def detect_program(program: ProgramView) -> Detection:
    inside: list[_Part] = []
    between: list[_Part] = []
    for kernel in program.kernels:
        inside.extend(_masked_products(kernel))
        between.extend(_states(kernel))
    if not inside and not between:
        return Miss(detail="no products of a chunk masked to a triangle, and no state from chunk to chunk")
    parts = [*inside[:1], *between[:1]]
    chunk = next((part.tokens for part in (*inside, *between) if part.tokens is not None), None)
    attributes: dict[str, FoundValue] = {} if chunk is None else {"chunk": chunk}
    undecided = {} if chunk is not None else {"chunk": "the number of tokens in a chunk is not known here"}
    return (Match(tuple(Evidence(one.kernel.place(one.value), one.text) for one in parts), attributes, undecided),)


def _masked_products(kernel: KernelView) -> Iterator[_Part]:
    """Products of a chunk's tokens with each other, masked to a triangle and multiplied on, not turned into
    probabilities."""
    data = flow(kernel)
    made = {one.value: one for one in products(kernel)}
    if len(made) < 2:
        return
    for one in triangles(kernel):
        scores = [at for at in data.back((one.source,), lambda op: op.kind in ELEMENTS) if at in made]
        if not scores:
            continue
        after = frozenset(data.forward((one.value,), lambda op: op.kind in ELEMENTS))
        if any(kernel.op(at).kind is Kind.ELEMENTWISE and kernel.op(at).name in ("exp", "exp2") for at in after):
            continue
        multiplied = next((each for each in made.values() if {each.a, each.b} & after), None)
        if multiplied is not None:
            yield _Part(
                kernel, one.value, "scores of a chunk masked to a triangle, then multiplied", _side(kernel, one.value)
            )


ELEMENTS = frozenset({Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.PHI, Kind.LOAD, Kind.ITEM})


def _side(kernel: KernelView, value: int) -> int | None:
    dims = kernel.dims(value)
    return dims[-1] if dims and len(dims) >= 2 and dims[-1] == dims[-2] else None


def _states(kernel: KernelView) -> Iterator[_Part]:
    for one in states(kernel):
        text = f"state {one.variable} updated by one product for each chunk".replace("  ", " ")
        yield _Part(kernel, one.update.value, text, one.update.k)


EXAMPLES: tuple[Example, ...] = ()
_ = Status
