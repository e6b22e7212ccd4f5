"""Epilogue fusion: what follows a contraction (bias, activation, residual, gating, scaling) is applied to its
accumulators while they are on chip, between the end of the sum and the only store of the result.

A conversion of the result alone is part of any store. Work on products that feed another product is no epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from d2k.analyzers.core.detector import Detection, Evidence, Example, Match, Miss
from d2k.analyzers.core.view import KernelView
from d2k.analyzers.patterns.activation import activations
from d2k.analyzers.patterns.addresses import indices
from d2k.analyzers.patterns.contraction import Contraction, contractions, region
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
    found: list[Match] = []
    bare = NONE
    for one in contractions(kernel):
        inside = region(kernel, one)
        work = tuple(_work(kernel, one, inside)) if inside else tuple(_statistics(kernel, one))
        if any(each.word != "cast" for each in work):
            found.append(_match(kernel, one, work))
        elif inside:
            bare = one.value
    if found:
        return _merged(found)
    if bare != NONE:
        evidence = (Evidence(kernel.place(bare), "product"),)
        return Miss(detail="the accumulators are stored as they are", evidence=evidence)
    if contractions(kernel):
        return Miss(detail="the products feed other products only")
    return Miss(detail="no matrix product")


def _work(kernel: KernelView, one: Contraction, inside: frozenset[int]) -> Iterator[_Work]:
    applied = [each for each in activations(kernel) if each.value in inside]
    for each in applied:
        yield _Work(each.name, each.value)
    # the arithmetic inside an activation is no bias or scale of its own
    own = frozenset(at for each in applied for at in _between(kernel, each.argument, each.value))
    for value in sorted(inside - own):
        word = _word(kernel, value, inside | one.sums, inside)
        if word is not None:
            yield _Work(word, value)
    yield from _statistics(kernel, one)


def _between(kernel: KernelView, argument: int, value: int) -> frozenset[int]:
    data = flow(kernel)
    smooth = frozenset(data.back((value,), lambda op: op.kind in (Kind.ELEMENTWISE, Kind.CAST, Kind.SHAPE, Kind.ASM)))
    base = frozenset(
        data.back((argument,), lambda op: op.kind in (Kind.CAST, Kind.SHAPE) or _by_constant(kernel, op))
    )
    start = frozenset(data.forward(base, lambda op: op.kind is not Kind.MMA))
    return (smooth & start) | {value}


def _by_constant(kernel: KernelView, op: Op) -> bool:
    return op.kind is Kind.ELEMENTWISE and any(isinstance(kernel.fold(arg), (int, float)) for arg in op.args)


def _word(kernel: KernelView, value: int, live: frozenset[int], inside: frozenset[int]) -> str | None:
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
            kinds = [_operand(kernel, arg) for arg in addends]
            if "tile" in kinds:
                return "residual"
            if "vector" in kinds:
                return "bias"
            if op.name == "fma" and any(arg in others for arg in op.args[:2]):
                return "scale"
            return "" if kinds and op.name != "fma" else None
        case "mul" | "div" | "rcp":
            if not others:
                return "mul" if len({kernel.strip(arg) for arg in op.args}) == 2 else ""
            if all(kernel.fold(arg) == 1 for arg in others):
                return None
            return "mul" if any(_operand(kernel, arg) == "tile" for arg in others) else "scale"
        case "max" | "min" | "clamp" | "exp" | "exp2" | "log" | "sqrt" | "rsqrt" | "tanh" | "erf" | "sigmoid":
            return ""
    return None


def _operand(kernel: KernelView, value: int) -> str:
    """tile, vector or scalar: how many axes of the result an operand varies along."""
    data = flow(kernel)
    fetched = data.fetches(value, lambda op: op.kind not in (Kind.MMA, Kind.REDUCE))
    if not fetched:
        return "scalar"
    ranks = []
    for fetch in fetched:
        dims = kernel.dims(fetch)
        if dims is not None:
            ranks.append(sum(dim != 1 for dim in dims))
            continue
        ranks.append(min(len(indices(kernel, fetch)), 2))
    return ("scalar", "vector", "tile")[min(max(ranks), 2)]


def _is_narrow(dtype: str | None) -> bool:
    return dtype is None or dtype not in ("f32", "f64", "i32", "i64", "bool")


def _statistics(kernel: KernelView, one: Contraction) -> Iterator[_Work]:
    """log(sum(exp(product))) that is stored."""
    if not one.matrix:
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


def _match(kernel: KernelView, one: Contraction, work: tuple[_Work, ...]) -> Match:
    words = tuple(sorted({each.word for each in work} - {""}))
    shown = [each for each in work if each.word != "cast"][:3]
    evidence = (
        Evidence(kernel.place(one.value), "product"),
        *(Evidence(kernel.place(each.value), f"{TEXTS.get(each.word, 'works on')} (accumulator)") for each in shown),
    )
    return Match(evidence, {"ops": words})


def _merged(found: Iterable[Match]) -> tuple[Match, ...]:
    """One match for each set of operations."""
    kept: dict[object, Match] = {}
    for one in found:
        kept.setdefault(one.attributes["ops"], one)
    return tuple(kept.values())


EXAMPLES: tuple[Example, ...] = ()
_ = Status
