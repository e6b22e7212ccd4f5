"""The parse tables: lark's LALR(1) automaton of `spec/grammar.lark`, as data.

Building them takes lark half a second, reading them a few milliseconds, so the built form is committed as
`spec/grammar.json`. After a change of the grammar run `python -m d2k.compiler.tables`; a test proves that both agree.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """One production.

    `action` names the builder's method; "" hands the only child through, and a name that starts with `_` gathers a
    list. `plan` says which of the `length` symbols become arguments: an index, `~index` for a list that is spliced in,
    or None for an optional part that is absent.
    """

    origin: int
    length: int
    action: str
    plan: tuple[int | None, ...]


class Tables(msgspec.Struct, frozen=True):
    """`symbols` numbers terminals and nonterminals. `rows[row_of[state]]` lists symbol, move, symbol, move, …

    A move >= 0 goes to that state (shift or goto), a move < 0 reduces by rule `~move`.
    `patterns` are the terminals' regular expressions in the order in which they are to be tried; `words` are the hard
    and soft words, which look like names.
    """

    grammar_hash: str
    symbols: tuple[str, ...]
    patterns: tuple[tuple[str, str], ...]
    words: dict[str, str]
    ignored: tuple[str, ...]
    rules: tuple[Rule, ...]
    row_of: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]
    start: int
    end: int


@cache
def tables() -> Tables:
    return msgspec.json.decode(files("d2k.spec").joinpath("grammar.json").read_bytes(), type=Tables)


def grammar_text() -> str:
    return files("d2k.spec").joinpath("grammar.lark").read_text(encoding="utf-8")


def build_tables(grammar: str, strict: bool = False) -> Tables:
    """Let lark build the automaton. `strict` also refuses colliding terminals (it needs the package `interegular`)."""
    import hashlib

    from lark import Lark
    from lark.grammar import NonTerminal, Terminal
    from lark.grammar import Rule as LarkRule
    from lark.lexer import PatternStr, TerminalDef
    from lark.parsers.lalr_analysis import Shift

    lark = Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=True, strict=strict)
    table = lark.parser.parser._parse_table

    terminals = sorted(lark.terminals, key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
    symbols = [str(terminal.name) for terminal in terminals] + ["$END"]
    symbols += sorted({str(rule.origin.name) for rule in lark.rules} | {"$root_start"})
    number = {name: i for i, name in enumerate(symbols)}

    def is_word(terminal: TerminalDef) -> bool:
        return isinstance(terminal.pattern, PatternStr) and terminal.pattern.value[0].isalpha()

    def plan(rule: LarkRule) -> tuple[int | None, ...]:
        options = rule.options
        empty = options.empty_indices or [False] * len(rule.expansion)
        wanted: list[int | None] = []
        position = 0
        for absent in empty:
            if absent:
                wanted.append(None)
                continue
            symbol = rule.expansion[position]
            if isinstance(symbol, NonTerminal):
                wanted.append(~position if symbol.name.startswith("_") else position)
            elif isinstance(symbol, Terminal) and (options.keep_all_tokens or not symbol.filter_out):
                wanted.append(position)
            position += 1
        return tuple(wanted)

    def convert(rule: LarkRule) -> Rule:
        wanted = plan(rule)
        action = str(rule.alias or rule.origin.name)
        if rule.options.expand1 and not rule.alias and len(wanted) == 1:
            action = ""
        return Rule(number[rule.origin.name], len(rule.expansion), action, wanted)

    lark_rules = sorted(lark.rules, key=lambda rule: (rule.origin.name, rule.order, str(rule)))
    rule_number = {rule: i for i, rule in enumerate(lark_rules)}
    moves = {
        state: {
            number[symbol]: (kind is Shift, target if kind is Shift else ~rule_number[target])
            for symbol, (kind, target) in row.items()
        }
        for state, row in table.states.items()
    }
    new_number = _breadth_first(moves, table.start_states["start"])
    rows: dict[tuple[int, ...], int] = {}
    row_of = []
    for state in new_number:
        targets = {symbol: new_number[to] if shift else to for symbol, (shift, to) in moves[state].items()}
        row = tuple(value for move in sorted(targets.items()) for value in move)
        row_of.append(rows.setdefault(row, len(rows)))
    return Tables(
        grammar_hash=hashlib.sha256(grammar.encode()).hexdigest(),
        symbols=tuple(symbols),
        patterns=tuple((str(t.name), str(t.pattern.to_regexp())) for t in terminals if not is_word(t)),
        words={str(t.pattern.value): str(t.name) for t in terminals if is_word(t)},
        ignored=tuple(str(name) for name in lark.ignore_tokens),
        rules=tuple(convert(rule) for rule in lark_rules),
        row_of=tuple(row_of),
        rows=tuple(rows),
        start=new_number[table.start_states["start"]],
        end=new_number[table.end_states["start"]],
    )


def _breadth_first(moves: dict[int, dict[int, tuple[bool, int]]], start: int) -> dict[int, int]:
    """The states numbered in the order in which a walk finds them: lark's own order changes from run to run."""
    found = [start]
    seen = {start}
    for state in found:  # grows on the way
        for _, (shift, target) in sorted(moves[state].items()):
            if shift and target not in seen:
                seen.add(target)
                found.append(target)
    return {state: position for position, state in enumerate(found)}


def main() -> None:
    from pathlib import Path

    target = Path(str(files("d2k.spec").joinpath("grammar.json")))
    target.write_bytes(msgspec.json.encode(build_tables(grammar_text())) + b"\n")


if __name__ == "__main__":
    main()
