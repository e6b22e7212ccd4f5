"""A layered layout of the guidance graph: insights on top, each item below everything that it requires.

The classic steps for layered drawings: layers, points where long edges pass a layer, few crossings (by barycentres),
and positions as near to the neighbours as the order allows. No step depends on anything but the items and their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from d2k.spec.vocabulary import Level

NODE_WIDTH, NODE_HEIGHT = 196.0, 62.0
GAP_X, GAP_Y = 22.0, 46.0
BAND_GAP = 26.0
MARGIN_X, MARGIN_Y = 46.0, 18.0
_PASS_WIDTH = 10.0
_SWEEPS = 12
_MOST_ORDERED = 1500
"""Slots up to which crossings are counted, which takes the square of their number."""


class Node(Protocol):
    """What the layout needs of an item; items of guidance and of audits have it."""

    @property
    def id(self) -> str: ...
    @property
    def level(self) -> Level: ...
    @property
    def title(self) -> str: ...
    @property
    def requires(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Box:
    """Where a node stands: its left upper corner."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Edge:
    """From the bottom of what is required to the top of what requires it, through `points`."""

    lower: str
    upper: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    boxes: dict[str, Box]
    edges: tuple[Edge, ...]
    bands: tuple[tuple[Level, float, float], ...]
    """Each level with the upper and lower end of its part of the picture."""
    width: float
    height: float


@dataclass(slots=True)
class _Slot:
    """A node, or a point where an edge passes a layer (`node` is None)."""

    node: str | None
    above: list[_Slot]
    below: list[_Slot]
    x: float = 0.0

    @property
    def width(self) -> float:
        return _PASS_WIDTH if self.node is None else NODE_WIDTH


def layout(nodes: Sequence[Node]) -> Layout:
    """Positions of all nodes and edges. Requirements that name no node of `nodes` are left out."""
    layer_of = _layers(nodes)
    layers, chains = _slots(nodes, layer_of)
    _order(layers)
    _place(layers)
    tops, bands = _heights(nodes, layer_of, len(layers))
    leftmost = min((slot.x - slot.width / 2 for layer in layers for slot in layer), default=0.0)
    shift = MARGIN_X - leftmost
    boxes = {
        slot.node: Box(slot.x - NODE_WIDTH / 2 + shift, tops[index])
        for index, layer in enumerate(layers)
        for slot in layer
        if slot.node is not None
    }
    edges = tuple(_edge(upper, lower, chain, layer_of, tops, shift) for upper, lower, chain in chains)
    rightmost = max((slot.x + slot.width / 2 for layer in layers for slot in layer), default=0.0)
    height = (tops[-1] + NODE_HEIGHT if tops else 0.0) + MARGIN_Y
    return Layout(boxes, edges, bands, rightmost + shift + MARGIN_Y, height)


def _layers(nodes: Sequence[Node]) -> dict[str, int]:
    """A layer for each node: levels one below the other, and within a level each node below what it requires."""
    found: dict[str, int] = {}
    for level in Level:
        depth = _depths([node for node in nodes if node.level is level])
        used = sorted(set(depth.values()))
        first = max(found.values(), default=-1) + 1
        found.update({identifier: first + used.index(own) for identifier, own in depth.items()})
    return found


def _depths(members: Sequence[Node]) -> dict[str, int]:
    """The longest way to each node among `members`. A checked task has no cycle; in any other the count just ends."""
    depth = {node.id: 0 for node in members}
    for _ in members:
        grown = {
            node.id: max((depth[other] + 1 for other in node.requires if other in depth), default=0) for node in members
        }
        if grown == depth:
            break
        depth = grown
    return depth


_Chain = tuple[str, str, list[_Slot]]


def _slots(nodes: Sequence[Node], layer_of: dict[str, int]) -> tuple[list[list[_Slot]], list[_Chain]]:
    """Slots by layer, and for each edge (required, requiring, the slots that it goes through)."""
    layers: list[list[_Slot]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    slots: dict[str, _Slot] = {}
    for node in nodes:
        slots[node.id] = _Slot(node.id, [], [])
        layers[layer_of[node.id]].append(slots[node.id])
    chains: list[_Chain] = []
    for node in nodes:
        for other in node.requires:
            if other not in slots or layer_of[other] >= layer_of[node.id]:
                continue
            chain = [slots[other]]
            for layer in range(layer_of[other] + 1, layer_of[node.id]):
                chain.append(_Slot(None, [], []))
                layers[layer].append(chain[-1])
            chain.append(slots[node.id])
            for upper, lower in itertools.pairwise(chain):
                upper.below.append(lower)
                lower.above.append(upper)
            chains.append((other, node.id, chain))
    return layers, chains


def _order(layers: list[list[_Slot]]) -> None:
    """Orders each layer by the mean place of its neighbours, down and up, and keeps the order with fewest crossings."""
    if sum(len(layer) for layer in layers) > _MOST_ORDERED:
        return
    best = [list(layer) for layer in layers]
    fewest = _crossings(layers)
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for index in range(1, len(layers)) if downward else range(len(layers) - 2, -1, -1):
            fixed = layers[index - 1 if downward else index + 1]
            place = {id(slot): at for at, slot in enumerate(fixed)}
            own = {id(slot): at for at, slot in enumerate(layers[index])}
            layers[index].sort(
                key=lambda slot: (
                    _mean([place[id(one)] for one in (slot.above if downward else slot.below)], own[id(slot)]),
                    own[id(slot)],
                )
            )
        crossings = _crossings(layers)
        if crossings < fewest:
            fewest, best = crossings, [list(layer) for layer in layers]
    layers[:] = best


def _crossings(layers: list[list[_Slot]]) -> int:
    total = 0
    for upper, lower in itertools.pairwise(layers):
        place = {id(slot): at for at, slot in enumerate(lower)}
        edges = [(at, place[id(below)]) for at, slot in enumerate(upper) for below in slot.below]
        total += sum((a - c) * (b - d) < 0 for index, (a, b) in enumerate(edges) for c, d in edges[index + 1 :])
    return total


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _place(layers: list[list[_Slot]]) -> None:
    """Moves slots toward their neighbours as far as order and gaps allow."""
    for layer in layers:
        x = 0.0
        for slot in layer:
            slot.x = x + slot.width / 2
            x += slot.width + GAP_X
        for slot in layer:
            slot.x -= (x - GAP_X) / 2
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [_mean([one.x for one in (*slot.above, *slot.below)], slot.x) for slot in layer]
            for slot, x in zip(layer, _spread(layer, wanted), strict=True):
                slot.x = x


def _spread(layer: Sequence[_Slot], wanted: Sequence[float]) -> list[float]:
    """Places nearest to the wanted ones (least squares) that keep the order and the gaps: pool adjacent violators."""
    offsets = [0.0]
    for left, right in itertools.pairwise(layer):
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + GAP_X)
    pools: list[tuple[float, int]] = []
    for place, offset in zip(wanted, offsets, strict=True):
        total, size = place - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            before, count = pools.pop()
            total, size = total + before, size + count
        pools.append((total, size))
    means = [total / size for total, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _heights(
    nodes: Sequence[Node], layer_of: dict[str, int], layers: int
) -> tuple[list[float], tuple[tuple[Level, float, float], ...]]:
    """The upper end of each layer, and the band of each level."""
    level_of = {layer_of[node.id]: node.level for node in nodes}
    tops: list[float] = []
    y = MARGIN_Y
    for layer in range(layers):
        if layer and level_of[layer] is not level_of[layer - 1]:
            y += BAND_GAP
        tops.append(y)
        y += NODE_HEIGHT + GAP_Y
    bands = []
    for level in Level:
        own = [tops[layer] for layer in range(layers) if level_of[layer] is level]
        if own:
            bands.append((level, own[0] - MARGIN_Y / 2, own[-1] + NODE_HEIGHT + MARGIN_Y / 2))
    return tops, tuple(bands)


def _edge(
    upper: str, lower: str, chain: Sequence[_Slot], layer_of: dict[str, int], tops: Sequence[float], shift: float
) -> Edge:
    first = layer_of[upper]
    points = [(chain[0].x + shift, tops[first] + NODE_HEIGHT)]
    for index, slot in enumerate(chain[1:-1], first + 1):
        points += [(slot.x + shift, tops[index]), (slot.x + shift, tops[index] + NODE_HEIGHT)]
    points.append((chain[-1].x + shift, tops[layer_of[lower]]))
    return Edge(lower, upper, tuple(points))
