"""From a source text to one that the parser reads: comments and attributes blanked, `#if` decided, macros expanded.

The prepared text is ASCII, and a map leads every offset of it back to the source: characters that were copied map to
themselves, those that a macro produced to its call, and those of a macro's arguments to where they stand.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from d2k.analyzers.cuda import macro_table as table
from d2k.analyzers.cuda.condition import evaluate

MAX_EXPANSION = 400_000
"""Characters that macros may produce in one file; further ones stay as calls."""
MAX_WORK = 150_000
"""Tokens that the expansion of one file's macros may go through."""
MAX_BOMBS = 4
"""Macros that may turn out to expand to too much before no further macro of the file is expanded."""
MAX_NESTING = 40
MAX_ARGUMENTS = 60_000
"""Characters that the arguments of one macro call may span."""

_SCAN = re.compile(
    r"""//(?:[^\\\n]|\\[\s\S])*|/\*[\s\S]*?(?:\*/|\Z)"""
    r"""|(?:u8|[uUL])?R"(?P<delim>[^()\\\s"]{0,16})\([\s\S]*?(?:\)(?P=delim)\"|\Z)"""
    r"""|"(?:[^"\\\n]|\\[\s\S])*"?"""
    r"""|'(?:[^'\\\n]|\\.)+'?"""
    r"""|^[ \t]*\#(?:[^\\\n]|\\\r?\n|\\.)*"""
    r"""|[A-Za-z_]\w*"""
    r"""|\.?\d(?:[eEpP][+-]|[\w.]|'(?=\w))*"""
    r"""|\[\[[^\[\]]*\]\]""",
    re.MULTILINE,
)
_PIECE = re.compile(
    r"""//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\.)+'?|[A-Za-z_]\w*"""
    r"""|\.?\d(?:[eEpP][+-]|[\w.]|'(?=\w))*|\s+|\#\#|[\s\S]"""
)
_DIRECTIVE = re.compile(r"[ \t]*#\s*([a-z]+)?[ \t]*([\s\S]*)")
_CONDITIONAL = re.compile(r"^[ \t]*#[ \t]*(ifdef|ifndef|if|elifdef|elifndef|elif|else|endif)\b", re.MULTILINE)
_DEFINE = re.compile(r"([A-Za-z_]\w*)(?:(\()([^)]*)\))?[ \t]*([\s\S]*)")
_INCLUDE = re.compile(r'[<"]([^>"\n]+)[>"]')
_COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")
_SPLICE = re.compile(r"\\\r?\n")
_TYPENAME_CALL = re.compile(
    r"typename\s+(?:\w+(?:<[^<>;(){}]*>)?\s*::\s*)+(?:template\s+)?\w+(?:<[^<>;(){}]*>)?\s*[({](?!\s*\*)"
)
"""`typename A::B(args)` as an expression, which the parser reads only without the word."""
_UNROLL_PRAGMA = re.compile(r"(no)?unroll\b\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Macro:
    """`params` is None for an object-like macro. `body` has no comments and no line splices."""

    name: str
    params: tuple[str, ...] | None
    body: str
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An attribute that was taken out of the text: where it stood in the prepared text, and its arguments."""

    at: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Inactive:
    """A region of the source that the preprocessor removes. `condition` is the one that fails."""

    start: int
    end: int
    condition: str


@dataclass(slots=True)
class Prepared:
    source: str
    text: str = ""
    starts: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    copied: list[bool] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    inactive: list[Inactive] = field(default_factory=list)
    macros: dict[str, Macro] = field(default_factory=dict)
    exhausted: bool = False
    """Macro expansion was cut off."""

    def origin(self, at: int) -> int:
        """The offset in the source that offset `at` of the prepared text comes from."""
        piece = bisect_right(self.starts, at) - 1
        if piece < 0:
            return 0
        return self.origins[piece] + (at - self.starts[piece] if self.copied[piece] else 0)


Include = Callable[[str], Mapping[str, Macro]]
Token = tuple[str, int]
"""A piece of text and its offset in the source, -1 for text that comes from a macro's body."""


def ascii_only(text: str) -> str:
    """`text` with every other character replaced by one blank or underscore, so that bytes and characters agree."""
    text = text.replace("\r\n", " \n").replace("\r", "\n").replace("\x00", " ")
    return text if text.isascii() else re.sub(r"[^\x00-\x7f]", "_", text)


_EMPTY_DEFAULT = re.compile(r"=(\s*)\{\s*\}(?=\s*[,)])")
_DECLTYPE_VALUE = re.compile(r"\bdecltype\((\w+)\)\s*\{\s*\}")


def _adjust(text: str) -> str:
    """Forms that the parser does not know, in others of the same length: a parameter `T t = {}`, `decltype(x){}`."""
    text = _EMPTY_DEFAULT.sub(lambda m: ("=" + m.group(1) + "0").ljust(len(m.group())), text)
    return _DECLTYPE_VALUE.sub(lambda m: m.group(1).ljust(len(m.group())), text)


class _TooMuch(Exception):
    """A macro expands to more than can be analysed in bounded time."""


class _Preparer:
    def __init__(self, source: str, target: str, include: Include) -> None:
        self.source = source
        self.out = Prepared(source)
        self.parts: list[str] = []
        self.length = 0
        self.predefined = table.predefined(target)
        self.macros: dict[str, Macro] = {name: Macro(name, None, value) for name, value in self.predefined.items()}
        for line in table.FUNCTION_MACROS:
            self._define(line)
        self.include = include
        self.undefined: set[str] = set()
        self.branches: list[tuple[bool | None, str]] = []
        """For each open `#if`: whether a branch was taken (None: taken because its condition is unknown), its text."""
        self.produced = 0
        self.work = 0
        """Tokens handled by macro expansion in this file."""
        self.bombs: set[str] = set()
        """Macros that expand to too much, which is found out once for each."""
        self.depth = 0

    # output

    def copy(self, start: int, end: int) -> None:
        if start < end:
            self._piece(self.source[start:end], start, True)

    def put(self, text: str, origin: int) -> None:
        if text:
            self._piece(text, origin, False)

    def _piece(self, text: str, origin: int, copied: bool) -> None:
        out = self.out
        out.starts.append(self.length)
        out.origins.append(origin)
        out.copied.append(copied)
        self.parts.append(text)
        self.length += len(text)

    def put_tokens(self, tokens: list[Token], call: int) -> None:
        """Tokens of an expansion, neighbours of the source joined."""
        at = 0
        while at < len(tokens):
            text, origin = tokens[at]
            words = [text]
            follows = origin + len(text) if origin >= 0 else -1
            at += 1
            while at < len(tokens) and tokens[at][1] == follows:
                words.append(tokens[at][0])
                follows = follows + len(tokens[at][0]) if follows >= 0 else -1
                at += 1
            self._piece("".join(words), origin if origin >= 0 else call, origin >= 0)

    # the scan

    def run(self) -> Prepared:
        source = self.source
        at = copied = 0
        search = _SCAN.search
        while match := search(source, at):
            start, end = match.span()
            first = source[start]
            at = end
            if first.isalpha() or first == "_":
                if source[end - 1] in "\"'":
                    continue
                resume = self._word(match.group(), start, end, copied)
                if resume is not None:
                    at = copied = resume
            elif first == "/":
                self.copy(copied, start)
                self.put("\n" if "\n" in match.group() else " ", start)
                copied = end
            elif first == "[":
                self.copy(copied, start)
                copied = end
            elif first in "# \t":
                self.copy(copied, start)
                at = copied = self._directive(match.group(), start, end)
        self.copy(copied, len(source))
        self.out.text = _adjust("".join(self.parts))
        self.out.macros = self.macros
        return self.out

    def _word(self, word: str, start: int, end: int, copied: int) -> int | None:
        """Handles a word of the program; returns where to go on if it was replaced, else None."""
        macro = self.macros.get(word)
        if word in ("__device__", "__host__") and self.source[max(0, start - 80) : start].rstrip()[-1:] in ("]", "_"):
            # `[] __device__ (int i) { … }`: the parser knows no attributes of lambdas
            before = self.source[max(0, start - 80) : start].replace("__host__", "").replace("__device__", "").rstrip()
            if before.endswith("]"):
                self.copy(copied, start)
                return end
        if word in table.KEYWORD_MACROS:
            self.copy(copied, start)
            self.put(table.KEYWORD_MACROS[word], start)
            if word == "noexcept" and (span := self._arguments(end)) is not None:
                return span[1]
            return end
        if word in table.PRAGMA_MACROS:
            self.copy(copied, start)
            self.out.marks.append(Mark(self.length, table.PRAGMA_MACROS[word], ""))
            return end
        if word == "typename" and _TYPENAME_CALL.match(self.source, start):
            self.copy(copied, start)
            return end
        if word in table.ATTRIBUTES_WITH_ARGUMENTS or word == "_Pragma":
            return self._attribute(word, start, end, copied)
        if macro is not None:
            return self._call(macro, start, end, copied)
        if len(word) > 2 and word.isupper() and table.ATTRIBUTE_SHAPE.match(word):
            return self._shape(word, start, end, copied)
        return None

    def _attribute(self, word: str, start: int, end: int, copied: int) -> int | None:
        span = self._arguments(end)
        if span is None:
            return None
        self.copy(copied, start)
        inner = self.source[span[0] + 1 : span[1] - 1]
        if word == "_Pragma":
            self._pragma(inner.strip().strip('"'))
        else:
            self.out.marks.append(Mark(self.length, word, self.expand_text(inner)))
        self.put(" ", start)
        return span[1]

    def _pragma(self, text: str) -> None:
        if unroll := _UNROLL_PRAGMA.match(text.strip()):
            name = table.NO_UNROLL if unroll.group(1) else table.UNROLL
            factor = self.expand_text(_COMMENT.sub(" ", unroll.group(2))).strip()
            self.out.marks.append(Mark(self.length, name, factor))

    def _call(self, macro: Macro, start: int, end: int, copied: int) -> int | None:
        span: tuple[int, int] | None = None
        if macro.params is not None:
            span = self._arguments(end)
            if span is None:
                return None
        finish = span[1] if span is not None else end
        if self.produced > MAX_EXPANSION or macro.name in self.bombs or len(self.bombs) >= MAX_BOMBS:
            self.out.exhausted = True
            return None
        tokens = _tokens(self.source[start:finish], start)
        before = self.work
        try:
            expanded = self.expand(tokens, frozenset())
        except _TooMuch:
            # the call stays a call; the work is taken back so that smaller macros still expand
            self.out.exhausted = True
            self.work = before
            self.bombs.add(macro.name)
            return None
        self.produced += sum(len(text) for text, _ in expanded)
        self.copy(copied, start)
        self.put_tokens(self._take_pragmas(expanded), start)
        return finish

    def _take_pragmas(self, tokens: list[Token]) -> list[Token]:
        """Replaces the `_Pragma("unroll")` and attributes in an expansion; marks stand where the piece will begin."""
        names = {text for text, _ in tokens}
        special = (table.KEYWORD_MACROS, table.PRAGMA_MACROS, table.ATTRIBUTES_WITH_ARGUMENTS, ("_Pragma",))
        if all(names.isdisjoint(one) for one in special):
            return tokens
        kept: list[Token] = []
        length = self.length
        at = 0
        while at < len(tokens):
            text, origin = tokens[at]
            at += 1
            if text in table.PRAGMA_MACROS:
                self.out.marks.append(Mark(length, table.PRAGMA_MACROS[text], ""))
                continue
            if text in table.KEYWORD_MACROS:
                text, origin = table.KEYWORD_MACROS[text], -1
            elif text == "_Pragma" or text in table.ATTRIBUTES_WITH_ARGUMENTS:
                close = _closing(tokens, at)
                if close is not None:
                    inner = "".join(one for one, _ in tokens[at:close]).strip()[1:]
                    before = self.length
                    self.length = length
                    if text == "_Pragma":
                        self._pragma(inner.strip().strip('"'))
                    else:
                        self.out.marks.append(Mark(length, text, inner))
                    self.length = before
                    at = close + 1
                    continue
            kept.append((text, origin))
            length += len(text)
        return kept

    def _shape(self, word: str, start: int, end: int, copied: int) -> int | None:
        """Macros that nobody defined, by how they stand: attributes before a declaration, blocks as arguments."""
        source = self.source
        line_start = source.rfind("\n", 0, start) + 1
        line_end = source.find("\n", end)
        line_end = len(source) if line_end < 0 else line_end
        alone = not source[line_start:start].strip() and not source[end:line_end].strip()
        if alone and self._starts_statement(line_start):
            self.copy(copied, start)
            if "UNROLL" in word:
                self.out.marks.append(Mark(self.length, table.NO_UNROLL if "NO_" in word else table.UNROLL, ""))
            return end
        if table.DECLARATION_FOLLOWS.match(source, end) and self._starts_statement(start):
            self.copy(copied, start)
            return end
        if source.startswith("(", end) and (opening := self._block_argument(end)) is not None:
            self.copy(copied, opening)
            self.put("[&]", opening)
            return opening
        return None

    def _starts_statement(self, at: int) -> bool:
        before = self.source[max(0, at - 400) : at]
        before = _COMMENT.sub(" ", before).rstrip()
        return not before or before[-1] in ";{}>):" or before.rsplit("\n", 1)[-1].lstrip().startswith("#")

    def _block_argument(self, opening: int) -> int | None:
        """Where an argument that is a brace block begins, in `MACRO(a, b, { … })`."""
        span = self._arguments(opening)
        if span is None:
            return None
        depth = 0
        comma = True
        for match in _PIECE.finditer(self.source, opening, span[1]):
            text = match.group()
            if text in "([":
                depth += 1
                comma = depth == 1
            elif text in ")]":
                depth -= 1
            elif text == "," and depth == 1:
                comma = True
            elif text == "{" and depth == 1 and comma:
                inside = self.source[match.end() : span[1]]
                return match.start() if ";" in inside else None
            elif text == "{":
                depth += 1
            elif text == "}":
                depth -= 1
            elif not text.isspace() and not text.startswith(("//", "/*")):
                comma = False
        return None

    def _arguments(self, at: int) -> tuple[int, int] | None:
        """The span of a parenthesised list that follows offset `at`, blanks skipped."""
        source = self.source
        length = len(source)
        while at < length and source[at] in " \t\n\r\\":
            at += 1
        if at >= length or source[at] != "(":
            return None
        depth = 0
        for match in _PIECE.finditer(source, at, min(length, at + MAX_ARGUMENTS)):
            text = match.group()
            if text == "(":
                depth += 1
            elif text == ")":
                depth -= 1
                if depth == 0:
                    return at, match.end()
        return None

    # directives

    def _directive(self, text: str, start: int, end: int) -> int:
        """Handles one directive and returns where to go on: after it, or after the branch that it turns off."""
        if "/*" in text and "*/" not in text[text.rindex("/*") :]:
            close = self.source.find("*/", end)
            end = len(self.source) if close < 0 else close + 2
        match = _DIRECTIVE.match(text)
        word = match.group(1) if match else None
        rest = _COMMENT.sub(" ", _SPLICE.sub(" ", match.group(2))).strip() if match else ""
        self.put("\n", start)
        if word == "define":
            self._define(rest)
        elif word == "undef":
            name = rest.split()[0] if rest else ""
            self.macros.pop(name, None)
            self.undefined.add(name)
        elif word == "include":
            if include := _INCLUDE.match(self.expand_text(rest) if rest[:1].isalpha() else rest):
                self.macros.update(self.include(include.group(1)))
        elif word == "pragma":
            self._pragma(rest)
        elif word in ("if", "ifdef", "ifndef"):
            return self._branch(self._test(word, rest), f"#{word} {rest}", end)
        elif word in ("elif", "else", "elifdef", "elifndef"):
            # reached only at the end of a branch that was taken: the other ones are off
            condition = self.branches.pop()[1] if self.branches else ""
            self.branches.append((True, condition))
            return self._skip(end, f"#else of {condition}", to_endif=True)
        elif word == "endif" and self.branches:
            self.branches.pop()
        return end

    def _branch(self, taken: bool | None, condition: str, end: int) -> int:
        if taken is not False:
            self.branches.append((taken, condition))
            return end
        return self._skip(end, condition, to_endif=False)

    def _skip(self, start: int, condition: str, to_endif: bool) -> int:
        """Skips a branch that is off; stops behind the directive that turns code on again."""
        depth = 0
        at = start
        while match := _CONDITIONAL.search(self.source, at):
            word = match.group(1)
            at = self._line_end(match.end())
            if word in ("if", "ifdef", "ifndef"):
                depth += 1
            elif word == "endif":
                if depth == 0:
                    self._off(start, match.start(), condition)
                    if to_endif and self.branches:
                        self.branches.pop()
                    return at
                depth -= 1
            elif depth == 0 and not to_endif:
                self._off(start, match.start(), condition)
                rest = _COMMENT.sub(" ", _SPLICE.sub(" ", self.source[match.end() : at])).strip()
                if word == "else":
                    self.branches.append((True, f"#else of {condition}"))
                    return at
                test = {"elif": "if", "elifdef": "ifdef", "elifndef": "ifndef"}[word]
                taken = self._test(test, rest)
                if taken is not False:
                    self.branches.append((taken, f"#{test} {rest}"))
                    return at
                start, condition = at, f"#elif {rest}"
        self._off(start, len(self.source), condition)
        return len(self.source)

    def _off(self, start: int, end: int, condition: str) -> None:
        if end > start:
            self.out.inactive.append(Inactive(start, end, " ".join(condition.split())[:200]))

    def _line_end(self, at: int) -> int:
        """The end of the directive's line, splices followed."""
        while True:
            end = self.source.find("\n", at)
            if end < 0:
                return len(self.source)
            if (
                self.source[:end].rstrip(" \r")[-1:] != "\\"
                if end - at < 4
                else self.source[at:end].rstrip()[-1:] != "\\"
            ):
                return end
            at = end + 1

    def _test(self, word: str, rest: str) -> bool | None:
        if word in ("ifdef", "ifndef"):
            name = re.match(r"[A-Za-z_]\w*", rest)
            known = self.is_defined(name.group()) if name else None
            return known if word == "ifdef" or known is None else not known
        return evaluate(self._expand_condition(rest), self.is_defined)

    def is_defined(self, name: str) -> bool | None:
        if name in self.macros:
            return True
        if name in table.FALSE_MACROS or name in self.undefined:
            return False
        if name.startswith("__CUDA_ARCH_FEAT_SM") or name in (
            "__CUDA_ARCH_SPECIFIC__",
            "__CUDA_ARCH_FAMILY_SPECIFIC__",
        ):
            return False
        return None

    def _expand_condition(self, text: str) -> str:
        """Macros expanded, except behind `defined`; macros known to be off become 0."""
        pieces: list[str] = []
        at = 0
        for match in re.finditer(r"\bdefined\s*(?:\(\s*\w+\s*\)|\w+)", text):
            pieces.append(self._expand_for_if(text[at : match.start()]))
            pieces.append(match.group())
            at = match.end()
        pieces.append(self._expand_for_if(text[at:]))
        return "".join(pieces)

    def _expand_for_if(self, text: str) -> str:
        expanded = self.expand_text(text)
        return re.sub(r"[A-Za-z_]\w*", lambda m: "0" if m.group() in table.FALSE_MACROS else m.group(), expanded)

    def _define(self, rest: str) -> None:
        match = _DEFINE.match(rest)
        if match is None:
            return
        name, function, params, body = match.groups()
        names: tuple[str, ...] | None = None
        variadic = False
        if function is not None:
            words = [word.strip() for word in params.split(",") if word.strip()]
            if words and words[-1].endswith("..."):
                variadic = True
                words[-1] = words[-1][:-3].strip() or "__VA_ARGS__"
            names = tuple(words)
        self.macros[name] = Macro(name, names, body.strip(), variadic)

    # expansion

    def expand_text(self, text: str) -> str:
        try:
            return "".join(one for one, _ in self.expand([(t, -1) for t, _ in _tokens(text, 0)], frozenset()))
        except _TooMuch:
            self.out.exhausted = True
            return text

    def expand(self, tokens: list[Token], hidden: frozenset[str]) -> list[Token]:
        """Macro expansion; a macro is not expanded inside its own expansion."""
        if self.depth > MAX_NESTING:
            return tokens
        self.depth += 1
        try:
            return self._expand(tokens, hidden)
        finally:
            self.depth -= 1

    def _expand(self, tokens: list[Token], hidden: frozenset[str]) -> list[Token]:
        found: list[Token] = []
        at = 0
        while at < len(tokens):
            token = tokens[at]
            at += 1
            macro = self.macros.get(token[0]) if token[0] not in hidden else None
            if macro is None:
                found.append(token)
                continue
            if macro.params is None:
                body: list[Token] = [(text, -1) for text, _ in _tokens(macro.body, 0)]
                body = _paste(body)
            else:
                close = _closing(tokens, at)
                if close is None:
                    found.append(token)
                    continue
                arguments = _split(tokens[at:close])
                at = close + 1
                body = self._substitute(macro, arguments, hidden)
            self.work += len(body)
            if self.work > MAX_WORK:
                raise _TooMuch
            expanded = self.expand(body, hidden | {macro.name})
            found.append((" ", -1))
            found.extend(expanded)
            found.append((" ", -1))
        return found

    def _substitute(self, macro: Macro, arguments: list[list[Token]], hidden: frozenset[str]) -> list[Token]:
        params = macro.params or ()
        if macro.variadic and len(arguments) >= len(params):
            joined: list[Token] = []
            for number, rest in enumerate(arguments[len(params) - 1 :]):
                if number:
                    joined.append((",", -1))
                joined.extend(rest)
            arguments = [*arguments[: len(params) - 1], joined]
        bound = {name: arguments[i] if i < len(arguments) else [] for i, name in enumerate(params)}
        expanded: dict[str, list[Token]] = {}
        body = _tokens(macro.body, 0)
        out: list[Token] = []
        for at, (text, _) in enumerate(body):
            if text == "__VA_OPT__":
                continue
            if text not in bound:
                out.append((text, -1))
                continue
            previous, following = _neighbour(body, at, -1), _neighbour(body, at, 1)
            if previous == "#":
                while out and out[-1][0].isspace():
                    out.pop()
                out.pop()
                out.append((_stringize(bound[text]), -1))
            elif "##" in (previous, following):
                out.extend(bound[text])
            else:
                if text not in expanded:
                    expanded[text] = self.expand(bound[text], hidden)
                out.extend(expanded[text])
        return _paste(out)


def _tokens(text: str, origin: int) -> list[Token]:
    """Pieces of `text`, comments left out."""
    return [
        (match.group(), origin + match.start())
        for match in _PIECE.finditer(text)
        if not match.group().startswith(("//", "/*"))
    ]


def _neighbour(tokens: list[Token], at: int, step: int) -> str:
    at += step
    while 0 <= at < len(tokens) and tokens[at][0].isspace():
        at += step
    return tokens[at][0] if 0 <= at < len(tokens) else ""


def _closing(tokens: list[Token], at: int) -> int | None:
    """Index of the `)` of the argument list that starts at or after index `at`, None if there is none."""
    while at < len(tokens) and tokens[at][0].isspace():
        at += 1
    if at >= len(tokens) or tokens[at][0] != "(":
        return None
    depth = 0
    for index in range(at, len(tokens)):
        text = tokens[index][0]
        if text == "(":
            depth += 1
        elif text == ")":
            depth -= 1
            if depth == 0:
                return index
    return None


def _split(tokens: list[Token]) -> list[list[Token]]:
    """Arguments of a macro call; `tokens` runs from before the `(` up to, without, the `)`."""
    start = next(i for i, token in enumerate(tokens) if token[0] == "(")
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[start + 1 :]:
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
        if token[0] == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return [_strip(argument) for argument in arguments]


def _strip(tokens: list[Token]) -> list[Token]:
    start, end = 0, len(tokens)
    while start < end and tokens[start][0].isspace():
        start += 1
    while end > start and tokens[end - 1][0].isspace():
        end -= 1
    return tokens[start:end]


def _stringize(tokens: list[Token]) -> str:
    text = " ".join("".join(one for one, _ in tokens).split())
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _paste(tokens: list[Token]) -> list[Token]:
    """`a ## b` joined."""
    if all(text != "##" for text, _ in tokens):
        return tokens
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        if tokens[at][0] == "##":
            while out and out[-1][0].isspace():
                out.pop()
            at += 1
            while at < len(tokens) and tokens[at][0].isspace():
                at += 1
            if at < len(tokens) and out and tokens[at][0] != "##":
                out[-1] = (out[-1][0] + tokens[at][0], -1)
                at += 1
            continue
        out.append(tokens[at])
        at += 1
    return out


def nothing_included(name: str) -> Mapping[str, Macro]:
    return {}


def prepare(source: str, target: str, include: Include = nothing_included) -> Prepared:
    """Prepares a text that `ascii_only` made. `include` gives the macros that an included file defines."""
    return _Preparer(source, target, include).run()
