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
            if made & operands:
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
            fetched = data.fetches(word, lambda inner: inner.kind is not Kind.REDUCE)
            if fetched:
                yield _Codes(value, fetched[0], bits)
                break
    for value in kernel.values(Kind.ASM, name=("lop3", "prmt", "bfe")):
        fetched = data.fetches(value)
        if fetched:
            yield _Codes(value, fetched[0], 4)


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
        looked_up = [user for user in kernel.flows_to(at, _is_index) if kernel.op(user).kind in (Kind.LOAD, Kind.SHAPE)]
        for user in (*data.consumers(at), *looked_up):
            if user not in seen:
                seen.add(user)
                pending.append(user)


def _is_index(op: object) -> bool:
    return getattr(op, "kind", None) in (Kind.ELEMENTWISE, Kind.CAST)


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


EXAMPLES: tuple[Example, ...] = ()
_ = Status
