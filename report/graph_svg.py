"""The guidance graph as SVG, coloured by verdict where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from d2k.report.graph_layout import NODE_HEIGHT, NODE_WIDTH, Box, Edge, Layout, Node, layout
from d2k.report.layout import clean, cut, link_to, wrap
from d2k.report.paint import MARKS
from d2k.spec.audit import Verdict

_ID_COLUMNS = 22
_TITLE_COLUMNS = 27


_ARROW = (
    '<defs><marker id="graph-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto-start-reverse"><path class="arrow" d="M0 0L8 4L0 8Z"/></marker></defs>'
)


def svg(nodes: Sequence[Node], verdicts: Mapping[str, Verdict] | None = None, standalone: bool = True) -> str:
    """One picture. `standalone` brings its own colours; inside a page the page's style sheet colours it.

    Each node is a link to `#item-ID` inside a page, so that it can be reached and followed by keyboard.
    """
    drawn = layout(nodes)
    size = f'viewBox="0 0 {_number(drawn.width)} {_number(drawn.height)}" width="{_number(drawn.width)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" {size} height="{_number(drawn.height)}"'
    lines = [
        f'{head} role="group" aria-label="Guidance: each item stands below what it requires">',
        *_styles(standalone),
        _ARROW,
        *_bands(drawn),
        *(_path(edge, verdicts or {}) for edge in drawn.edges),
        *(line for node in nodes for line in _node(node, drawn.boxes[node.id], verdicts, standalone)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _styles(standalone: bool) -> Iterator[str]:
    if standalone:
        yield f"<style>\n{files('d2k.report').joinpath('graph.css').read_text('utf-8').strip()}\n</style>"


def _bands(drawn: Layout) -> Iterator[str]:
    for level, top, bottom in drawn.bands:
        middle = _number((top + bottom) / 2)
        yield (
            f'<rect class="band" x="4" y="{_number(top)}" width="{_number(drawn.width - 8)}"'
            f' height="{_number(bottom - top)}" rx="8"/>'
        )
        yield f'<text class="level" x="24" y="{middle}" text-anchor="middle" dominant-baseline="middle">{level}</text>'


def _path(edge: Edge, verdicts: Mapping[str, Verdict]) -> str:
    """A smooth line that leaves and enters every point vertically."""
    (x, y), *rest = edge.points
    path = [f"M{_number(x)} {_number(y)}"]
    for next_x, next_y in rest:
        middle = _number((y + next_y) / 2)
        path.append(f"C{_number(x)} {middle} {_number(next_x)} {middle} {_number(next_x)} {_number(next_y)}")
        x, y = next_x, next_y
    blocked = verdicts.get(edge.upper) in (Verdict.MISSING, Verdict.CONTRADICTED)
    ends = f"data-from={_quoted(clean(edge.lower))} data-to={_quoted(clean(edge.upper))}"
    kind = "edge blocked" if blocked else "edge"
    return f'<path class="{kind}" {ends} marker-start="url(#graph-arrow)" d="{" ".join(path)}"/>'


def _node(node: Node, box: Box, verdicts: Mapping[str, Verdict] | None, standalone: bool) -> Iterator[str]:
    verdict = verdicts.get(node.id) if verdicts is not None else None
    name = clean(node.id)
    words = f"{node.level} {name}" + (f", {verdict.replace('_', ' ')}" if verdict is not None else "")
    words += f": {clean(node.title)}"
    mark = f"{MARKS[verdict]} " if verdict is not None else ""
    group = f"class={_quoted('node ' + (verdict or 'plain'))} data-item={_quoted(name)}"
    if standalone:
        yield f"<g {group}>"
    else:
        yield f"<a {group} href={_quoted(link_to(node.id))} aria-label={_quoted(words)}>"
    yield f"<title>{escape(words)}</title>"
    yield (
        f'<rect x="{_number(box.x)}" y="{_number(box.y)}" width="{_number(NODE_WIDTH)}"'
        f' height="{_number(NODE_HEIGHT)}" rx="7"/>'
    )
    x = _number(box.x + 10)
    yield f'<text class="name" x="{x}" y="{_number(box.y + 19)}">{escape(mark + cut(name, _ID_COLUMNS))}</text>'
    for index, line in enumerate(wrap(clean(node.title), _TITLE_COLUMNS, 2)):
        yield f'<text class="title" x="{x}" y="{_number(box.y + 36 + 14 * index)}">{escape(line)}</text>'
    yield "</g>" if standalone else "</a>"


def _quoted(text: str) -> str:
    return f'"{escape(text)}"'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
