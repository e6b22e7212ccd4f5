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
from d2k.spec.facts import NONE, Kind
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
            kinds = [_operand(kernel, arg) for arg in addends]
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
                "mul" if any(_operand(kernel, arg) == "tile" or _is_product(kernel, arg) for arg in others) else "scale"
            )
        case "max" | "min" | "clamp" | "exp" | "exp2" | "log" | "sqrt" | "rsqrt" | "tanh" | "erf" | "sigmoid":
            return ""
    return None


def _is_product(kernel: KernelView, value: int) -> bool:
    """Another accumulator, not a statistic of one."""
    data = flow(kernel)
    return any(kernel.op(at).kind is Kind.MMA for at in data.back((value,), lambda op: op.kind is not Kind.REDUCE))


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


EXAMPLES: tuple[Example, ...] = ()
_ = Status
