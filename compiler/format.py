"""The canonical form of a `.d2k` file.

Statements keep their order, strings and comments their text, and one blank line stays where there were some. Spaces,
indentation, columns of neighbouring declarations, commas between settings and the breaking of long lists are the
formatter's. A comment within a statement moves to the line before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from d2k.compiler import syntax as s
from d2k.compiler.diagnostics import Severity
from d2k.compiler.layout import INDENT, WIDTH, filled, laid_out, nest
from d2k.compiler.lexer import Tokens, lexicon, tokenize
from d2k.compiler.parse import Parsed, parse
from d2k.compiler.text import dedent_block


def format_text(text: str) -> str:
    """The canonical form; a text with syntax errors comes back as it is."""
    return format_parsed(parse(text, "<text>"))


def format_parsed(parsed: Parsed) -> str:
    if any(one.severity is Severity.ERROR for one in parsed.diagnostics) and not _only_repetitions(parsed):
        return parsed.source.text
    return _Formatter(parsed).file()


def _only_repetitions(parsed: Parsed) -> bool:
    """Whether everything was read: repeated statements and a file of comments only are no trouble for the formatter."""
    return all(one.code in ("D2K0110", "D2K0216") for one in parsed.diagnostics)


class _Row(msgspec.Struct):
    """One statement or comment, as cells that line up with those of neighbouring rows of the same `columns`.

    `columns` is "" for a row that stands alone. A row with more than one line lines up with nothing.
    """

    indent: int
    cells: list[str]
    columns: str = ""
    trailing: str = ""
    blank_before: bool = False

    @property
    def alone(self) -> bool:
        return self.columns == "" or any("\n" in cell for cell in self.cells)


class _Formatter:
    def __init__(self, parsed: Parsed) -> None:
        self.source = parsed.source
        self.tree = parsed.tree
        self.tokens: Tokens = tokenize(parsed.source.text)
        self.comments = list(parsed.comments)
        self.next_comment = 0
        self.rows: list[_Row] = []
        self.in_property = False
        self.last_end = 0
        """Where the last thing written ended in the source."""

    def file(self) -> str:
        self._body(self.tree.statements, 0, len(self.source.text))
        lines: list[str] = []
        for number, row in enumerate(_aligned(self.rows)):
            if number and self.rows[number].blank_before:
                lines.append("")
            lines.append(row)
        return "\n".join(lines) + "\n" if lines else ""

    # ---- comments and blank lines ------------------------------------------------------------------------------------

    def _blank_since_last(self, start: int) -> bool:
        return bool(self.rows) and self.source.text.count("\n", self.last_end, start) > 1

    def _comments_before(self, limit: int, indent: int) -> None:
        """Write the comments that begin before an offset: behind the last row if they stand on its line."""
        while self.next_comment < len(self.comments) and self.comments[self.next_comment].span.start < limit:
            comment = self.comments[self.next_comment]
            self.next_comment += 1
            start = comment.span.start
            same_line = self.rows and "\n" not in self.source.text[self.last_end : start]
            if same_line and not self.rows[-1].trailing and not self._is_comment(self.rows[-1]):
                self.rows[-1].trailing = comment.text
            else:
                self._row(_Row(indent, [comment.text]), start)
            self.last_end = comment.span.end

    def _is_comment(self, row: _Row) -> bool:
        return row.cells[0].startswith("#")

    def _hoisted(self, start: int, end: int, indent: int) -> None:
        """Write the comments within a statement before it."""
        while self.next_comment < len(self.comments) and self.comments[self.next_comment].span.start < end:
            comment = self.comments[self.next_comment]
            self.next_comment += 1
            self._row(_Row(indent, [comment.text]), start)
            self.last_end = start

    def _row(self, row: _Row, start: int) -> None:
        row.blank_before = self._blank_since_last(start) and not self._opens_block()
        self.rows.append(row)

    def _opens_block(self) -> bool:
        last = self.rows[-1]
        return last.cells[-1].endswith("{") and not self._is_comment(last)

    # ---- blocks ------------------------------------------------------------------------------------------------------

    def _body(self, statements: Sequence[s.Node], indent: int, end: int) -> None:
        for number, statement in enumerate(statements):
            self._comments_before(statement.span.start, indent)
            first = len(self.rows)
            self._statement(statement, indent)
            if indent == 0 and number and (_is_block(statement) or _is_block(statements[number - 1])):
                self._separate(first)
        self._comments_before(end, indent)

    def _separate(self, first: int) -> None:
        """A blank line before a block of the file, above the comments that touch it."""
        while first and self._is_comment(self.rows[first - 1]) and not self.rows[first].blank_before:
            first -= 1
        if first:
            self.rows[first].blank_before = True

    def _statement(self, node: s.Node, indent: int) -> None:
        match node:
            case s.Task():
                self._block(node, ["task", node.name.name], node.statements, indent)
            case s.Property():
                self.in_property = True
                self._block(node, ["property", node.name.name, node.level.name], node.statements, indent)
                self.in_property = False
            case s.Pattern():
                parameters = ", ".join(self._parameter(one) for one in node.parameters)
                self._block(node, [f"pattern {node.name.name}({parameters})"], node.statements, indent)
            case s.Item():
                header = [node.level.name, node.name.name, self._text(node.title, indent)]
                self._block(node, header, node.statements, indent)
            case s.Guidance():
                self._block(node, ["guidance"], node.statements, indent)
            case s.Cost():
                self._block(node, ["cost"], node.lines, indent)
            case _:
                self._hoisted(node.span.start, node.span.end, indent)
                columns, cells = self._cells(node, indent)
                self._row(_Row(indent, cells, columns), node.span.start)
                self.last_end = node.span.end

    def _block(self, node: s.Node, header: list[str], statements: Sequence[s.Node], indent: int) -> None:
        brace = self._brace(node)
        self._hoisted(node.span.start, brace, indent)
        self._row(_Row(indent, [*header, "{"]), node.span.start)
        self.last_end = brace + 1
        opening = len(self.rows)
        self._body(statements, indent + INDENT, node.span.end - 1)
        if len(self.rows) == opening and not self.rows[-1].trailing:
            self.rows[-1].cells[-1] = "{}"
        else:
            self.rows.append(_Row(indent, ["}"]))
        self.last_end = node.span.end

    def _brace(self, node: s.Node) -> int:
        """Where the block of a node opens: its first `{`, since no header contains another."""
        first = bisect_left(self.tokens.starts, node.span.start)
        opener = lexicon().number["LBRACE"]
        return self.tokens.starts[self.tokens.kinds.index(opener, first)]

    # ---- pieces ------------------------------------------------------------------------------------------------------

    def _node(self, node: s.Node, indent: int, column: int, after: int = 0) -> str:
        """The tokens of a node and of parentheses around it; `column` is counted from the indentation.

        `after` columns are left for what follows, such as a comma.
        """
        kinds, number = self.tokens.kinds, lexicon().number
        first = bisect_left(self.tokens.starts, node.span.start)
        last = bisect_left(self.tokens.starts, node.span.end)
        while first and kinds[first - 1] == number["LPAR"] and kinds[last] == number["RPAR"]:
            first, last = first - 1, last + 1
        text, starts, ends = self.source.text, self.tokens.starts, self.tokens.ends
        words = [text[starts[one] : ends[one]] for one in range(first, last)]
        return laid_out(nest(words), indent + column, indent, after)

    def _text(self, text: s.Text, indent: int) -> str:
        literal = text.span.text
        if not literal.startswith('"""'):
            return literal
        lines = dedent_block(literal[3:-3])
        if not lines:
            return '""""""'
        margin = " " * (indent + INDENT)
        body = "\n".join(margin + line if line else "" for line in lines)
        return f'"""\n{body}\n{" " * indent}"""'

    def _list(self, nodes: Sequence[s.Node], indent: int, column: int) -> str:
        """Elements without brackets, such as `axes M, N`, hanging under the first one."""
        start = indent + column
        pieces = [
            self._text(node, indent) if isinstance(node, s.Text) else self._node(node, indent, column, 1)
            for node in nodes
        ]
        return filled(pieces, start, start)

    def _settings(self, nodes: Sequence[s.Node], indent: int, column: int) -> str:
        """`{ a = 1, b = 2 }`, one line if it fits."""
        if not nodes:
            return "{}"
        deeper = indent + INDENT
        elements = [self._node(node, deeper, 0, 1) for node in nodes]
        whole = f"{{ {', '.join(elements)} }}"
        if "\n" not in whole and indent + column + len(whole) <= WIDTH:
            return whole
        return f"{{\n{' ' * deeper}{filled(elements, deeper, deeper)}\n{' ' * indent}}}"

    # ---- statements --------------------------------------------------------------------------------------------------

    def _cells(self, node: s.Node, indent: int) -> tuple[str, list[str]]:
        """The name of the columns that a statement shares with its neighbours, and its cells."""

        def keyword(word: str, pad: int, rest: s.Node | Sequence[s.Node]) -> tuple[str, list[str]]:
            head = word.ljust(pad) + " "
            if isinstance(rest, s.Text):
                return "", [head + self._text(rest, indent)]
            if isinstance(rest, s.Node):
                return "", [head + self._node(rest, indent, len(head))]
            return "", [head + self._list(rest, indent, len(head))]

        match node:
            case s.Title():
                return keyword("title", _HEAD_OF_PROPERTY if self.in_property else _HEAD_OF_TASK, node.text)
            case s.Summary():
                return keyword("summary", _HEAD_OF_TASK, node.text)
            case s.Target():
                return keyword("target", _HEAD_OF_TASK, node.architectures)
            case s.Axes():
                head = "axes".ljust(_DOMAIN) + " "
                axes = [_axis(one) for one in node.axes]
                return "", [head + filled(axes, indent + len(head), indent + len(head))]
            case s.Let():
                name = "let".ljust(_DOMAIN) + f" {node.name.name}"
                return "let", [name, f"= {self._node(node.value, indent, len(name) + 3)}"]
            case s.Where():
                return keyword("where", _DOMAIN, node.condition)
            case s.Tensor():
                return self._tensor(node, indent)
            case s.Draw():
                names = ", ".join(one.name for one in node.tensors)
                return "", [f"draw {names} ~ {self._node(node.maker, indent, 0)}"]
            case s.Entry():
                return keyword("entry", _RUNNING, node.name)
            case s.Reference():
                return keyword("reference", _RUNNING, node.target)
            case s.Baseline():
                head = "baseline".ljust(_RUNNING) + f" {node.name.name}"
                return "baseline", [head, self._node(node.target, indent, 0)]
            case s.Tolerance():
                head = "tolerance".ljust(_RUNNING) + f" {node.output.name}"
                settings = self._settings(node.settings, indent, len(head) + 1)
                return "tolerance", [head, settings, self._tail("because", node.because, indent)]
            case s.Compare():
                names = ", ".join(one.name for one in node.outputs)
                head = "compare".ljust(_RUNNING) + f" {names} with {self._node(node.judge, indent, 0)}"
                return "", [head, self._tail("because", node.because, indent)]
            case s.CostLine():
                engine = f" on {node.engine.name}" if node.engine else ""
                column = len(node.kind.name) + 3
                return "cost", [node.kind.name, f"= {self._node(node.value, indent, column)}{engine}"]
            case s.Forbid():
                return keyword("forbid", 0, node.callees)
            case s.Workload():
                tags = f"[{', '.join(tag.name for tag in node.tags)}]" if node.tags else ""
                head = f"workload {node.name.name}"
                settings = self._settings(node.settings, indent, len(head) + len(tags) + 1)
                columns = "tagged workload" if node.tags else "workload"
                return columns, [head, tags, settings, self._tail("from", node.origin, indent)]
            case s.Why() | s.Hint() | s.SourceNote():
                word = {s.Why: "why", s.Hint: "hint", s.SourceNote: "source"}[type(node)]
                return keyword(word, _ITEM, node.text)
            case s.Requires():
                return keyword("requires", _ITEM, node.items)
            case s.When():
                return keyword("when", _ITEM, node.condition)
            case s.Given() | s.Check():
                return keyword("given" if isinstance(node, s.Given) else "check", _ITEM, node.check)
            case s.Accept():
                check = self._node(node.check, indent, len("accept "))
                return "", [f"accept {check}", self._tail("because", node.because, indent)]
            case s.Weight():
                return keyword("weight", _ITEM, node.value)
            case s.Definition():
                return keyword("definition", _HEAD_OF_PROPERTY, node.text)
            case s.Needs():
                return keyword("needs", 0, node.features)
            case s.SettledBy():
                return keyword("settled by", 0, node.tiers)
            case s.Attribute():
                return self._attribute(node, indent)
            case s.Excludes():
                return keyword("excludes", 0, node.properties)
            case s.Alias():
                return keyword("alias", 0, node.texts)
            case s.Evidence():
                return "", [f"evidence {node.language.name} {self._text(node.text, indent)}"]
            case _:
                # version, use, fn, include, scope, implies, free: words and expressions only
                return "", [self._node(node, indent, 0)]

    def _parameter(self, node: s.Parameter) -> str:
        default = f" = {self._node(node.default, 0, 0)}" if node.default else ""
        return f"{node.name.name} : {node.type.name}{default}"

    def _tail(self, word: str, text: s.Text | None, indent: int) -> str:
        return f"{word} {self._text(text, indent)}" if text else ""

    def _tensor(self, node: s.Tensor, indent: int) -> tuple[str, list[str]]:
        head = node.kind.name.ljust(len("output"))
        column = len(head) + len(node.name.name) + len("  : ")
        kind = f": {self._node(node.type, indent, column)}"
        contents = f"~ {self._node(node.distribution, indent, column)}" if node.distribution else ""
        rest = []
        if node.role:
            rest.append(f"as {node.role.name}")
        if node.moves:
            rest.append(f"moves {self._node(node.moves, indent, column)}")
        if node.constant:
            rest.append("constant")
        columns = "intermediate" if node.kind.name == "intermediate" else "tensor"
        return columns, [f"{head} {node.name.name}", kind, contents, " ".join(rest)]

    def _attribute(self, node: s.Attribute, indent: int) -> tuple[str, list[str]]:
        members = node.type.members
        kind = node.type.kind.name + ("" if members is None else f"{{{', '.join(one.name for one in members)}}}")
        text = f" {self._text(node.definition, indent)}" if node.definition else ""
        return "attribute", [f"attr {node.name.name}", f": {kind}{text}"]


_HEAD_OF_TASK = len("summary")
_HEAD_OF_PROPERTY = len("definition")
_DOMAIN = len("where")
_RUNNING = len("reference")
_ITEM = len("check")
"""Widths to which the keywords of related statements are padded."""


def _axis(axis: s.Axis) -> str:
    kind = f" : {axis.type.name}" if axis.type else ""
    return axis.name.name + kind + (f" as {axis.role.name}" if axis.role else "")


def _is_block(node: s.Node) -> bool:
    return isinstance(node, s.Block)


def _aligned(rows: Sequence[_Row]) -> list[str]:
    """The rows as text, neighbouring cells in columns."""
    lines: list[str] = []
    start = 0
    while start < len(rows):
        end = start + 1
        if not rows[start].alone:
            while end < len(rows) and _continues(rows[end], rows[start]):
                end += 1
        cells = [[cell for cell in row.cells if cell] for row in rows[start:end]]
        if end - start > 1:
            _pad(cells)
        for row, words in zip(rows[start:end], cells, strict=True):
            line = " " * row.indent + " ".join(words)
            lines.append(f"{line}  {row.trailing}" if row.trailing else line)
        start = end
    return lines


def _pad(rows: Sequence[list[str]]) -> None:
    """Pad every cell that another one follows to the widest of those directly above and below it."""
    for column in range(max(map(len, rows)) - 1):
        start = 0
        while start < len(rows):
            end = start
            while end < len(rows) and len(rows[end]) > column + 1:
                end += 1
            width = max((len(row[column]) for row in rows[start:end]), default=0)
            for row in rows[start:end]:
                row[column] = row[column].ljust(width)
            start = max(end, start + 1)


def _continues(row: _Row, first: _Row) -> bool:
    return not row.alone and row.columns == first.columns and row.indent == first.indent and not row.blank_before
