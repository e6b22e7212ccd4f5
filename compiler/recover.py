"""What happens after a syntax error: say what is wrong, and go on so that other mistakes are found and none is
invented.

A small mistake is repaired in the list of tokens (a sign inserted, a misspelt word replaced), after which the parser
reads on as if nothing had happened. Otherwise the parser skips to the next statement at the same depth of braces and
pops its stacks to the nearest state that accepts it. A broken statement is dropped; the blocks around it are kept.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from d2k.compiler import foreign
from d2k.compiler.automaton import automaton
from d2k.compiler.blocks import WITH_ARTICLE, blocks, nearest_statement
from d2k.compiler.diagnostics import Diagnostic, Edit, diagnostic, nearest
from d2k.compiler.lexer import (
    BAD_BLOCK,
    BAD_CHARACTER,
    BAD_NUMBER,
    BAD_QUOTES,
    BAD_STRING,
    BAD_WORD,
    lexicon,
)
from d2k.compiler.source import Span
from d2k.compiler.workbench import OPENERS, Block, Workbench

MAX_ERRORS = 50
"""After so many syntax errors of one file the rest is not worth reading."""

MAX_REPAIRS = 200
"""Repairs, silent ones included, before the parser gives up; bounds the time on rubbish."""

MAX_SCANS = 8
"""How often all tokens may be looked at in search of the next statement; keeps the time linear."""

_HARD_WORDS = ("and", "or", "not", "in", "has", "if", "then", "else", "for", "true", "false", "L1", "L2", "L3")

_SIGNS = {
    "RPAR": ")",
    "RSQB": "]",
    "EQUAL": "=",
    "COMMA": ",",
    "COLON": ":",
    "_DOUBLE_COLON": "::",
    "TILDE": "~",
    "LBRACE": "{",
    "LPAR": "(",
    "FROM": "from",
    "BECAUSE": "because",
    "WITH": "with",
    "BY": "by",
    "ON": "on",
    "THEN": "then",
    "ELSE": "else",
    "IN": "in",
    "RBRACE": "}",
}
"""What a repair may insert, in the order in which it is tried: none of these carries a value."""

_LINKS = ("FROM", "BECAUSE", "WITH", "ON", "BY")
"""Soft words in the midst of a statement."""


class Recovery(Workbench):
    # ---- entry points ------------------------------------------------------------------------------------------------

    def repair(self, index: int) -> int:
        """The token at `index` does not fit. Report it, change tokens or stacks, and return where to read on."""
        self._repairs += 1
        exhausted = self._scanned > MAX_SCANS * len(self.tokens.kinds)
        if self._errors >= MAX_ERRORS or self._repairs > MAX_REPAIRS or exhausted:
            self._stop(index)
            return index
        if self._kind(index).startswith("BAD_"):
            return self._bad_token(index)
        if self._unclosed_block_before(index):
            return index
        return self._wrong_token(self._swallowed_statement(index))

    def too_deep(self, index: int) -> int:
        """An expression or a check nests too deeply: drop its statement."""
        floor = self._floor()
        start = self.stacks.starts[floor] if floor < len(self.stacks.starts) else self._start(index)
        first = bisect_left(self.tokens.starts, start)
        self._report(diagnostic("D2K0217", self._token(first)), index)
        return self._drop_statement(index)

    def _stop(self, index: int) -> None:
        self.gave_up = True
        if self._errors >= MAX_ERRORS:
            self.diagnostics.append(diagnostic("D2K0224", self._token(index), count=MAX_ERRORS))
        self._lose(self.stacks.starts[0] if self.stacks.starts else 0, len(self.source.text))

    # ---- bad tokens --------------------------------------------------------------------------------------------------

    def _bad_token(self, index: int) -> int:
        span = self._token(index)
        text = self._text(index)
        match self._kind(index):
            case kind if kind == BAD_STRING:
                self._report(diagnostic("D2K0104", span), index)
                self._quiet_to_next_line(index)
                return self._become(index, "STRING")
            case kind if kind == BAD_BLOCK:
                self._report(diagnostic("D2K0106", self._span(span.start, span.start + 3)), index)
                self._quiet_before = len(self.source.text) + 1
                self.lost.update(re.findall(r"[A-Za-z_]\w*", text))  # statements that the block swallowed
                return self._become(index, "BLOCK")
            case kind if kind == BAD_QUOTES:
                plain = text[1:-1].replace('"', '\\"')
                message = diagnostic("D2K0113", span).with_fix("use double quotes", Edit(span, f'"{plain}"'))
                self._report(message, index)
                return self._retry(index, "STRING")
            case kind if kind == BAD_NUMBER:
                self._report(diagnostic("D2K0107", span, number=text), index)
                return self._retry(index, "INT")
            case kind if kind == BAD_WORD:
                self._report(diagnostic("D2K0112", span, word=text), index)
                return self._retry(index, "NAME")
            case kind:
                assert kind == BAD_CHARACTER
                return self._bad_character(index, span, text)

    def _bad_character(self, index: int, span: Span, text: str) -> int:
        if text in foreign.OPERATORS:
            word = foreign.OPERATORS[text]
            message = diagnostic("D2K0213", span, operator=text, word=word)
            self._report(message.with_fix(f"write `{word}`", Edit(span, f" {word} ")), index)
            return self._retry(index, word.upper())
        if text in foreign.LOOKALIKES:
            name, sign = foreign.LOOKALIKES[text]
            message = diagnostic("D2K0114", span, character=_name_character(text), sign=sign)
            self._report(message.with_fix(f"write `{sign}`", Edit(span, sign)), index)
            return self._retry(index, name)
        if text.isspace():
            message = diagnostic("D2K0114", span, character=_name_character(text), sign=" ")
            self._report(message.with_fix("write a space", Edit(span, " ")), index)
        elif text[0] == ";":
            self._report(diagnostic("D2K0214", span).with_fix("remove it", Edit(span, "")), index)
        else:
            self._report(diagnostic("D2K0111", span, character=_name_character(text)), index)
            self._quiet_before = self._start(index + 1) + 1
        return self._delete(index)

    def _retry(self, index: int, name: str) -> int:
        """Take the token for one of another kind. If that does not fit either, the error is the same one."""
        self._quiet_before = max(self._quiet_before, self._start(index) + 1)
        return self._become(index, name)

    def _unclosed_block_before(self, index: int) -> bool:
        """Is this token the text of a block string that was closed by the opening quotes of the next one? Then stop."""
        if index == 0 or self._kind(index - 1) != "BLOCK" or self._kind(len(self.tokens.kinds) - 2) != BAD_BLOCK:
            return False
        start = self._start(index - 1)
        self._report(diagnostic("D2K0106", self._span(start, start + 3)), index)
        self.gave_up = True
        self._lose(0, len(self.source.text))
        return True

    # ---- wrong tokens ------------------------------------------------------------------------------------------------

    def _swallowed_statement(self, index: int) -> int:
        """The token that the error is really about.

        In `let B =` before a line `input A : …`, `input` is taken for a name and the error shows up at `A`. If the
        token before the error begins a statement with it, the stacks go back to before that token.
        """
        before = index - 1
        if before < 0 or not self.stacks.values:
            return index
        if self.tokens.kinds[before] not in blocks().anywhere and self._kind(before) not in _LINKS:
            return index
        first = self._first_on_line(before)
        if self._inner_brackets() and not first:
            return index
        block = self._block()
        lowest = 0 if first or block is None else block.height + 1
        height = self._height_before(before)
        pair = self.tokens.kinds[before : index + 1]
        states = self.stacks.states[: height + 1]
        closed = [lexicon().number["RBRACE"], *pair]
        if automaton().accepts(states, closed, keyword=1) or any(
            automaton().accepts(states[: lower + 1], pair, keyword=0) for lower in range(height, lowest - 1, -1)
        ):
            self.stacks.cut(height)
            return before
        return index

    def _wrong_token(self, index: int) -> int:
        """Try the explanations from the most to the least specific."""
        kind = self._kind(index)
        if kind == "$END":
            return self._end_of_file(index)
        for explain in (
            self._unclosed_list,
            self._assignment_for_comparison,
            self._chained_comparison,
            self._conditional_of_python,
            self._reserved_word,
            self._percent_for_modulo,
            self._colon_for_brace,
            self._misspelt_word,
            self._missing_sign,
            self._missing_brace,
            self._foreign_comment,
            self._unknown_statement,
            self._misplaced_statement,
            self._stray_bracket,
        ):
            resumed = explain(index, kind)
            if resumed is not None:
                return resumed
        self._report(self._missing_or_unexpected(index), index)
        if kind == "COMMA" and self._goes_on_at(index + 1):
            return self._delete(index)
        return self._skip(index)

    def _unclosed_list(self, index: int, kind: str) -> int | None:
        """`lens = [1, 2, M = 3`: the list should have ended before the comma, where the next setting begins."""
        comma = index - 2
        owed = self._inner_brackets()
        if kind != "EQUAL" or not owed or not self._in_settings() or self._kind(comma) != "COMMA":
            return None
        height = self._height_before(comma)
        kinds = [lexicon().number[owed[-1]], *self.tokens.kinds[comma : index + 1]]
        if not automaton().accepts(self.stacks.states[: height + 1], kinds):
            return None
        self.stacks.cut(height)
        return self._missing_sign(comma, "COMMA")

    def _assignment_for_comparison(self, index: int, kind: str) -> int | None:
        if kind != "EQUAL" or not self._fits_then("COMPARISON", index + 1, 1):
            return None
        span = self._token(index)
        self._report(diagnostic("D2K0209", span).with_fix("write `==`", Edit(span, "==")), index)
        return self._become(index, "COMPARISON")

    def _chained_comparison(self, index: int, kind: str) -> int | None:
        if kind != "COMPARISON" or not self._fits("AND") or not self._fits_then("AND", index + 1, 1):
            return None
        self._report(diagnostic("D2K0211", self._token(index)), index)
        return self._drop_statement(index)

    def _conditional_of_python(self, index: int, kind: str) -> int | None:
        if kind != "IF" or not self._fits("PLUS"):
            return None
        self._report(diagnostic("D2K0212", self._token(index)), index)
        return self._skip(index)

    def _reserved_word(self, index: int, kind: str) -> int | None:
        if self._text(index) not in _HARD_WORDS or self._fits("INT") or not self._fits_then("NAME", index + 1, 1):
            return None
        self._report(diagnostic("D2K0218", self._token(index), word=self._text(index)), index)
        return self._become(index, "NAME")

    def _percent_for_modulo(self, index: int, kind: str) -> int | None:
        if index == 0 or self._kind(index - 1) != "PERCENT" or self._first_on_line(index):
            return None
        if kind not in ("NAME", "INT", "NUMBER", "LPAR"):
            return None
        before = self._token(index - 1)
        message = diagnostic("D2K0222", before, number=before.text)
        self._report(message.with_fix("put a space before `%`", Edit(before, f"{before.text[:-1]} % ")), index)
        return self._drop_statement(index)

    def _colon_for_brace(self, index: int, kind: str) -> int | None:
        if kind != "COLON" or not self._fits_then("LBRACE", index + 1, 2):
            return None
        span = self._token(index)
        self._report(diagnostic("D2K0223", span), index)
        self._indented = True
        return self._become(index, "LBRACE")

    def _misspelt_word(self, index: int, kind: str) -> int | None:
        """A word that, spelt as a keyword, fits with the tokens behind it."""
        if kind != "NAME":
            return None
        word = self._text(index)
        behind = 1 if self._first_on_line(index) else 2
        meant = _meant(word, [one for one in self._keywords() if self._fits_then(one.upper(), index + 1, behind)])
        if meant is None:
            return None
        self._report(self._suggest(index, meant), index)
        return self._become(index, meant.upper())

    def _keywords(self) -> list[str]:
        """The soft words that may stand here as keywords."""
        states = self.stacks.states
        words = lexicon().words.items()
        return [one for one, kind in words if one not in _HARD_WORDS and automaton().accepts(states, [kind], keyword=0)]

    def _suggest(self, index: int, meant: str) -> Diagnostic:
        block = self._block()
        message = diagnostic(
            "D2K0206", self._token(index), word=self._text(index), block=WITH_ARTICLE[block.kind if block else "file"]
        ).with_help(f"did you mean `{meant}`?")
        return message.with_fix(f"write `{meant}`", Edit(self._token(index), meant))

    def _missing_sign(self, index: int, kind: str) -> int | None:
        """Would one more sign or little word make sense of the next tokens?"""
        complete = self._fits("PLUS")
        for name, sign in _SIGNS.items():
            if name == "COMMA" and self._first_on_line(index) and not self._inner_brackets():
                continue
            if name == "RBRACE" and not self._inner_brackets() and not self._in_settings():
                continue
            if name == "LPAR" and complete:
                continue  # an operator may be missing as well
            if name == "TILDE" and lexicon().number["TILDE"] in self._statement_kinds(index):
                continue
            if not self._fits_then(name, index, 5 if name == "TILDE" else 3):
                continue
            place = self._behind(index)
            spaced = sign if name in ("RPAR", "RSQB", "COMMA", "COLON") else f" {sign}"
            before = f"`{self._text(index)}`"
            message = diagnostic("D2K0203", place, sign=sign, before=before)
            self._report(message.with_fix(f"insert `{sign}`", Edit(place, spaced)), index)
            return self._insert(index, name)
        return None

    def _statement_kinds(self, index: int) -> list[int]:
        """The tokens of the statement that is being read."""
        floor = self._floor()
        start = self.stacks.starts[floor] if floor < len(self.stacks.starts) else self._start(index)
        return self.tokens.kinds[bisect_left(self.tokens.starts, start) : index]

    def _in_settings(self) -> bool:
        block = self._block()
        return block is not None and block.kind in ("workload", "tolerance")

    def _missing_brace(self, index: int, kind: str) -> int | None:
        """A statement of an outer block, no deeper to the right than the open block: that block was not closed."""
        if self.tokens.kinds[index] not in blocks().anywhere:
            return None
        block = self._block()
        if block is None or not self._closing_braces(index):
            return None
        if self._first_on_line(index) and self._indent(index) > self._indent(block.brace):
            return None
        message = self._unclosed(block)
        if self._first_on_line(index):
            start = self._start(index) - self._indent(index)
            closing = " " * self._indent(block.brace) + "}\n"
            message = message.with_fix("close it", Edit(self._span(start, start), closing))
        self._report(message.with_note("it should end before this", self._token(index)), index)
        return self._insert(index, "RBRACE")

    def _closing_braces(self, index: int) -> int:
        """How many `}` would make the next tokens fit; 0 if no number would."""
        for count in range(1, 5):
            kinds = [lexicon().number["RBRACE"]] * count + self.tokens.kinds[index : index + 2]
            if automaton().accepts(self.stacks.states, kinds, keyword=count):
                return count
        return 0

    def _unclosed(self, block: Block) -> Diagnostic:
        head = self._span(self._start(block.head), self.tokens.ends[block.brace])
        if "\n" in head.text:
            head = self._token(block.brace)
        return diagnostic("D2K0204", head, block=block.kind)

    def _foreign_comment(self, index: int, kind: str) -> int | None:
        if self._text(index) not in ("//", "/") or not (self._first_on_line(index) or self._at_statement()):
            return None
        following = index + 1
        if self._text(index) == "/" and self._text(following) not in ("*", "**"):
            return None
        self._report(diagnostic("D2K0221", self._token(index)), index)
        while self._kind(following) != "$END" and not self._first_on_line(following):
            following += 1
        del self.tokens.kinds[index:following], self.tokens.starts[index:following], self.tokens.ends[index:following]
        return index

    def _unknown_statement(self, index: int, kind: str) -> int | None:
        if kind != "NAME" or not self._at_statement():
            return None
        word = self._text(index)
        block = self._block()
        where = block.kind if block else "file"
        level = re.fullmatch(r"[Ll]\d+", word)
        if level and self._fits("LEVEL"):
            self._report(diagnostic("D2K0208", self._token(index), word=word), index)
            if word.upper() in ("L1", "L2", "L3"):
                return self._become(index, "LEVEL")
            return self._skip(index, index + 1)
        meant = _meant(word, self._keywords())
        if meant is not None:
            self._report(self._suggest(index, meant), index)
        elif not self._first_on_line(index) and self._kind(index - 1) not in ("LBRACE", "RBRACE"):
            return None  # hardly meant as a statement
        else:
            message = diagnostic("D2K0206", self._token(index), word=word, block=WITH_ARTICLE[where])
            self._report(message.with_help(self._homes(index)), index)
        return self._skip(index, index + 1)

    def _homes(self, index: int) -> str:
        """In which blocks a misspelt word would be known."""
        for block in blocks().statements:
            meant = nearest_statement(self._text(index), block)
            if meant:
                return f"`{meant}` is a statement of {WITH_ARTICLE[block]}"
        return ""

    def _misplaced_statement(self, index: int, kind: str) -> int | None:
        number = self.tokens.kinds[index]
        if number not in blocks().anywhere or not self._at_statement():
            return None
        block = self._block()
        where = block.kind if block else "file"
        homes = [name for name, numbers in blocks().statements.items() if number in numbers]
        if where in homes:
            return None
        early = self._early_brace(index)
        if early is not None and not self._misplaced:
            self._report(self._closed_early(early), index)
        elif early is None and not self._misplaced & set(homes):
            self._report(
                diagnostic(
                    "D2K0207",
                    self._token(index),
                    word=self._text(index),
                    home=" or ".join(WITH_ARTICLE[home] for home in homes),
                    block=WITH_ARTICLE[where],
                ),
                index,
            )
        self._misplaced.update(homes)
        return self._skip(index, index + 1)

    def _stray_bracket(self, index: int, kind: str) -> int | None:
        if kind in OPENERS and self._goes_on_at(index + 1):
            message = diagnostic("D2K0201", self._token(index), found=self._found(index), expected="one too many")
            self._report(message.with_fix("remove it", Edit(self._token(index), "")), index)
            return self._delete(index)
        if kind not in OPENERS.values() or self._wants_value():
            return None
        if not self._at_statement() and not self._goes_on_at(index + 1):
            return None
        if not (kind == "RBRACE" and self._misplaced):
            early = self._early_brace(index) if kind == "RBRACE" else None
            span = self._token(index)
            message = diagnostic("D2K0205", span, bracket=self._text(index))
            message = message.with_fix("remove it", Edit(span, ""))
            self._report(message if early is None else self._closed_early(early), index)
        return self._delete(index)

    def _goes_on_at(self, index: int) -> bool:
        return automaton().accepts(self.stacks.states, self.tokens.kinds[index : index + 2])

    def _early_brace(self, index: int) -> tuple[int, int] | None:
        """Before `index`, a `}` at the start of its line that is indented unlike the line of its `{`, and that `{`."""
        opened: list[int] = []
        for place in range(index):
            name = self._kind(place)
            if name == "LBRACE":
                opened.append(place)
            elif name == "RBRACE" and opened:
                opener = opened.pop()
                if self._first_on_line(place) and self._indent(place) > self._indent(opener):
                    return place, opener
        return None

    def _closed_early(self, pair: tuple[int, int]) -> Diagnostic:
        closer, opener = pair
        message = diagnostic("D2K0205", self._token(closer), bracket="}")
        return message.with_note(
            "by its indentation it does not belong to this block, which it closes", self._token(opener)
        )

    def _missing_or_unexpected(self, index: int) -> Diagnostic:
        before = f" after `{self._text(index - 1)}`" if index and self._text(index - 1) else ""
        place = self._place(index)
        if self._wants_value():
            return diagnostic("D2K0202", place, before=before)
        if self._fits("STRING") and not self._fits("RBRACE"):
            return diagnostic("D2K0219", place, before=before)
        if self._fits("NAME") and not self._fits("RBRACE"):
            return diagnostic("D2K0220", place, before=before)
        return diagnostic("D2K0201", self._token(index), found=self._found(index), expected=self._expected())

    def _wants_value(self) -> bool:
        return self._fits("INT") and self._fits("LPAR")

    def _found(self, index: int) -> str:
        return "end of file" if self._kind(index) == "$END" else f"`{self._text(index)}`"

    def _expected(self) -> str:
        if self._fits("PLUS"):
            return "expected an operator or the next statement"
        if self._at_statement():
            block = self._block()
            return (
                "expected a statement"
                if block is None
                else f"expected a statement of {WITH_ARTICLE[block.kind]} or `}}`"
            )
        signs = [f"`{sign}`" for name, sign in _SIGNS.items() if self._fits(name)]
        return "expected " + " or ".join(signs) if signs else "not expected here"

    def _end_of_file(self, index: int) -> int:
        """The file ends inside something: name what is missing, then close every block."""
        block = self._block()
        early = self._late_brace()
        if block is not None and self._closing_braces(index):
            if not self._indented:
                self._report(self._unclosed(early or block), index)
        else:
            self._report(self._missing_or_unexpected(index), index)
        return self._close_all(index)


def _meant(word: str, known: list[str]) -> str | None:
    """The known word that stands behind a foreign, a shortened or a misspelt one."""
    translated = foreign.STATEMENTS.get(word)
    if translated in known:
        return translated
    longer = [one for one in known if len(word) >= 3 and one.startswith(word)]
    return longer[0] if len(longer) == 1 else nearest(word, known)


def _name_character(text: str) -> str:
    """A character for people: itself if it can be seen, else its number."""
    character = text[0]
    if character.isprintable() and not character.isspace():
        return f"`{character}`"
    return f"U+{ord(character):04X}"
