"""Findings written into a Python kernel file as comments beside their evidence, and taken out again.

    # d2k| present multistage_pipeline(stages=3): num_stages=3 in the launch

Lossless (libcst): `remove(annotate(module, report)) == module`, byte for byte, whatever the layout of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from d2k.spec.finding import Evidence, FileReport, FoundValue, Status

MARK = "# d2k| "
LONGEST = 160


class SyntaxFailure(Exception):
    """The file is no Python that libcst can parse; `str(error)` says where."""


def parse(source: bytes) -> cst.Module:
    """The module. Raises SyntaxFailure."""
    try:
        return cst.parse_module(source)
    except (cst.ParserSyntaxError, UnicodeDecodeError, SyntaxError, RecursionError) as error:
        raise SyntaxFailure(str(error).split("\n", 1)[0]) from error


def annotate(module: cst.Module, report: FileReport) -> cst.Module:
    """`module`, free of annotations and analysed as `report`, with a comment above each statement that is evidence."""
    comments: dict[int, list[str]] = {}
    for line, text in _comments(report):
        own = comments.setdefault(line, [])
        if text not in own:
            own.append(text)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    targets: dict[cst.CSTNode, list[str]] = {}
    for line in sorted(comments):
        statement = _statement(positions, line)
        if statement is not None:
            targets.setdefault(statement, []).extend(comments[line])
    return wrapper.module.visit(_Insert(targets))


def remove(module: cst.Module) -> cst.Module:
    """`module` without the comments that `annotate` wrote."""
    return module.visit(_Remove())


def _comments(report: FileReport) -> Iterator[tuple[int, str]]:
    for finding in report.properties:
        if finding.status is Status.PRESENT:
            for instance in finding.instances:
                for one in instance.evidence:
                    yield _line(f"present {finding.id}{_attributes(instance.attributes)}", one, report)
        elif finding.why is not None:
            for one in finding.why.evidence:
                yield _line(f"{finding.status} {finding.id} ({finding.why.reason})", one, report)
    for guard in report.guards:
        for one in guard.evidence:
            yield _line(f"suspected {guard.id}", one, report)


def _line(head: str, evidence: Evidence, report: FileReport) -> tuple[int, str]:
    text = " ".join(f"{MARK}{head}: {evidence.text}".split())
    return (evidence.line if evidence.path == report.path else 1), text[:LONGEST]


def _attributes(attributes: Mapping[str, FoundValue]) -> str:
    if not attributes:
        return ""
    words = (f"{key}={_value(value)}" for key, value in sorted(attributes.items()))
    return f"({', '.join(words)})"


def _value(value: FoundValue) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(value) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _statement(positions: Mapping[cst.CSTNode, object], line: int) -> cst.CSTNode | None:
    """The innermost statement around `line`: of those that begin at or before it, the one that begins last."""
    best: tuple[int, cst.CSTNode] | None = None
    for node, place in positions.items():
        if not isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            continue
        start, end = place.start.line, place.end.line  # type: ignore[attr-defined]  # PositionProvider gives CodeRange
        if isinstance(node, cst.FunctionDef | cst.ClassDef) and node.decorators:
            start = min(start, positions[node.decorators[0]].start.line)  # type: ignore[attr-defined]
        if start <= line <= end and (best is None or start >= best[0]):
            best = (start, node)
    return best[1] if best else None


class _Insert(cst.CSTTransformer):
    def __init__(self, targets: Mapping[cst.CSTNode, list[str]]) -> None:
        super().__init__()
        self._targets = targets

    def on_leave(  # type: ignore[override]  # one body for every kind of statement
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
        comments = self._targets.get(original_node)
        if comments is None:
            return super().on_leave(original_node, updated_node)
        lines = tuple(cst.EmptyLine(comment=cst.Comment(text)) for text in comments)
        if isinstance(updated_node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            return updated_node.with_changes(leading_lines=(*updated_node.leading_lines, *lines))
        return updated_node


class _Remove(cst.CSTTransformer):
    def leave_EmptyLine(
        self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine
    ) -> cst.EmptyLine | cst.RemovalSentinel:
        comment = updated_node.comment
        return cst.RemoveFromParent() if comment is not None and comment.value.startswith(MARK) else updated_node
