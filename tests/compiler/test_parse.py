"""What the parser makes of each construct, and that it survives everything."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import UnexpectedInput
from lark.lexer import PatternStr

from d2k.compiler import syntax as s
from d2k.compiler.parse import MAX_DEPTH, Parsed, parse
from d2k.compiler.source import Source, Span
from d2k.compiler.tables import build_tables, grammar_text, tables

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from hypothesis.extra.lark import from_lark

NOWHERE = Span(0, 0, Source("", ""))


def clean(text: str) -> s.File:
    parsed = parse(text, "test.d2k")
    assert parsed.diagnostics == ()
    return parsed.tree


def statement(text: str) -> s.Node:
    """The only statement of a task."""
    (task,) = clean(f"task t {{ {text} }}").every(s.Task)
    (only,) = task.statements
    return only


def item_statement(text: str) -> s.Node:
    guidance = statement(f'guidance {{ L1 a "x" {{ {text} }} }}')
    assert isinstance(guidance, s.Guidance)
    (only,) = guidance.every(s.Item)[0].statements
    return only


def expression(text: str) -> s.Expression:
    let = statement(f"let x = {text}")
    assert isinstance(let, s.Let)
    return let.value


def check(text: str) -> s.CheckNode:
    found = item_statement(f"check {text}")
    assert isinstance(found, s.Check)
    return found.check


def shape(node: object) -> str:
    """An expression or a check with every bracket written out, so that a test can say what belongs together."""
    match node:
        case s.Name(name=name) | s.Ident(name=name):
            return name
        case s.Integer(value=value) | s.Real(value=value):
            return str(value)
        case s.Percent(value=value):
            return f"{value}%"
        case s.Quantity(value=value, unit=unit):
            return f"{value}{unit}"
        case s.Boolean(value=truth):
            return str(truth).lower()
        case s.String(value=text):
            return repr(text)
        case s.Unary(operator=operator, operand=operand):
            return f"({operator} {shape(operand)})"
        case s.Binary(operator=operator, left=left, right=right):
            return f"({shape(left)} {operator} {shape(right)})"
        case s.Conditional(condition=condition, consequence=one, alternative=other):
            return f"(if {shape(condition)} {shape(one)} {shape(other)})"
        case s.Membership(element=element, members=members):
            return f"({shape(element)} in {' '.join(map(shape, members))})"
        case s.Has(container=container, members=members):
            return f"({shape(container)} has {' '.join(map(shape, members))})"
        case s.ListOf(elements=elements):
            return f"[{' '.join(map(shape, elements))}]"
        case s.Comprehension(element=element, variable=variable, iterable=iterable):
            return f"({shape(element)} for {shape(variable)} {shape(iterable)})"
        case s.Call(function=function, arguments=arguments):
            inner = [(f"{one.name.name}:" if one.name else "") + shape(one.value) for one in arguments]
            return f"{function.name}({' '.join(inner)})"
        case s.Index(base=base, index=index):
            return f"{shape(base)}[{shape(index)}]"
        case s.FileSymbol(file=file, symbol=symbol):
            return f"{file.value}::{symbol.name}"
        case s.Term(property=name, filters=filters):
            return name.name + "".join(f"<{shape(one)}>" for one in filters)
        case s.Filter(attribute=attribute, operator=operator, values=values):
            return f"{attribute.name} {operator} {' '.join(map(shape, values))}"
        case s.AllOf(parts=parts):
            return f"({' and '.join(map(shape, parts))})"
        case s.AnyOf(parts=parts):
            return f"({' or '.join(map(shape, parts))})"
        case s.Negation(part=part):
            return f"(not {shape(part)})"
        case s.Quantified(quantifier=quantifier, part=part):
            return f"{quantifier.name}:{shape(part)}"
    raise AssertionError(f"no shape for {node!r}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("1 - 2 - 3", "((1 - 2) - 3)"),
        ("a // b % c * d / e", "((((a // b) % c) * d) / e)"),
        ("2 ** 3 ** 4", "(2 ** (3 ** 4))"),
        ("-2 ** 2", "(- (2 ** 2))"),
        ("2 ** -1", "(2 ** (- 1))"),
        ("(1 + 2) * 3", "((1 + 2) * 3)"),
        ("K//128", "(K // 128)"),
        ("8192 % K", "(8192 % K)"),
        ("a or b and not c == d", "(a or (b and (not (c == d))))"),
        ("not a and b", "((not a) and b)"),
        ("a + 1 <= b * 2", "((a + 1) <= (b * 2))"),
        ("if a then b else if c then d else e", "(if a b (if c d e))"),
        ("if n <= w then tri(n) else 0", "(if (n <= w) tri(n) 0)"),
        ("x in {1, 2,}", "(x in 1 2)"),
        ("arch has tcgen05", "(arch has tcgen05)"),
        ("arch has {tma, wgmma}", "(arch has tma wgmma)"),
        ("arch >= sm90 and B < 64", "((arch >= sm90) and (B < 64))"),
        ("[65536] + rep(1024, 31)", "([65536] + rep(1024 31))"),
        ("[]", "[]"),
        ("[n * 2 for n in lens]", "((n * 2) for n lens)"),
        ("sum(cdiv(n, p) for n in lens)", "sum((cdiv(n p) for n lens))"),
        ("pages(lens, unused = -1)", "pages(lens unused:(- 1))"),
        ("f()", "f()"),
        ("lens[0][1]", "lens[0][1]"),
        ('"data.py" :: make', "data.py::make"),
        ("true", "true"),
        ("weight + source", "(weight + source)"),
    ],
)
def test_expressions_group_as_written(text: str, expected: str) -> None:
    assert shape(expression(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", s.Integer(NOWHERE, 0)),
        ("1_024", s.Integer(NOWHERE, 1024)),
        ("007", s.Integer(NOWHERE, 7)),
        ("9223372036854775807", s.Integer(NOWHERE, 2**63 - 1)),
        ("1.5", s.Real(NOWHERE, 1.5)),
        ("1e-3", s.Real(NOWHERE, 0.001)),
        ("1.25E+2", s.Real(NOWHERE, 125.0)),
        ("99.9%", s.Percent(NOWHERE, 99.9)),
        ("5%", s.Percent(NOWHERE, 5.0)),
        ("64KiB", s.Quantity(NOWHERE, 64, "KiB")),
        ("2.5us", s.Quantity(NOWHERE, 2.5, "us")),
        ("3ms", s.Quantity(NOWHERE, 3, "ms")),
        (r'"a\"b\\c\n\t\u{e9}"', s.String(NOWHERE, 'a"b\\c\n\té')),
    ],
)
def test_literals_have_their_values(text: str, expected: s.Node) -> None:
    assert s.without_spans(expression(text)) == s.without_spans(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p", "p"),
        ("p(a >= 3, b != x)", "p<a >= 3><b != x>"),
        ("p(source in {offsets, counts})", "p<source in offsets counts>"),
        ("p(ops has bias, fn has {tanh, exp})", "p<ops has bias><fn has tanh exp>"),
        ("p(stages >= (2 * n))", "p<stages >= (2 * n)>"),
        ('p(offset = -1, ahead = true, name = "x")', "p<offset = (- 1)><ahead = true><name = 'x'>"),
        ("a and b or c", "((a and b) or c)"),
        ("a and (b or c)", "(a and (b or c))"),
        ("a and not b and c", "(a and (not b) and c)"),
        ("all_kernels:(a and b)", "all_kernels:(a and b)"),
        ("p(weight = check)", "p<weight = check>"),
    ],
)
def test_checks_group_as_written(text: str, expected: str) -> None:
    assert shape(check(text)) == expected


def test_a_tensor_has_all_its_parts_in_any_order() -> None:
    tensor = statement('inout kv : f4e2m1[B, 2 * I] packed u8 moves 3 * B constant as cache ~ "d.py" :: f')
    assert isinstance(tensor, s.Tensor)
    assert (tensor.kind.name, tensor.name.name, tensor.constant) == ("inout", "kv", True)
    assert tensor.role is not None and tensor.role.name == "cache"
    assert shape(tensor.moves) == "(3 * B)"
    assert shape(tensor.distribution) == "d.py::f"
    assert tensor.type.element.name == "f4e2m1"
    assert tensor.type.shape is not None and [shape(one) for one in tensor.type.shape] == ["B", "(2 * I)"]
    assert tensor.type.container is not None and tensor.type.container.name == "u8"


def test_a_scalar_has_no_shape() -> None:
    tensor = statement("input eps : f32")
    assert isinstance(tensor, s.Tensor)
    assert tensor.type.shape is None


def test_axes_have_types_and_roles() -> None:
    axes = statement("axes M, lens : ints, causal : bool as mask, V as vocab")
    assert isinstance(axes, s.Axes)
    found = [(one.name.name, one.type and one.type.name, one.role and one.role.name) for one in axes.axes]
    assert found == [("M", None, None), ("lens", "ints", None), ("causal", "bool", "mask"), ("V", None, "vocab")]


def test_a_workload_has_tags_settings_and_origin() -> None:
    workload = statement('workload w [edge, held_out] { M = 3, u ~ zeros() N = [1] } from "a model"')
    assert isinstance(workload, s.Workload)
    assert [tag.name for tag in workload.tags] == ["edge", "held_out"]
    assert [type(one) for one in workload.settings] == [s.Setting, s.Override, s.Setting]
    assert workload.origin is not None and workload.origin.value == "a model"


def test_cost_lines_keep_kind_and_engine() -> None:
    cost = statement("cost { flops = 2 on tensor.bf16 bytes = 3 flops_min = 4 bytes_min = 5 }")
    assert isinstance(cost, s.Cost)
    kinds = [(one.kind.name, one.engine and one.engine.name) for one in cost.lines]
    assert kinds == [("flops", "tensor.bf16"), ("bytes", None), ("flops_min", None), ("bytes_min", None)]


TASK_STATEMENTS: list[tuple[str, type[s.Node]]] = [
    ('title "x"', s.Title),
    ('summary """x"""', s.Summary),
    ("target sm100, sm90", s.Target),
    ("let B = len(lens)", s.Let),
    ("where K % 128 == 0", s.Where),
    ("intermediate pre : f32[M]", s.Tensor),
    ('draw gu, gs ~ "data.py" :: make', s.Draw),
    ("entry run", s.Entry),
    ('reference "reference.py" :: run', s.Reference),
    ('baseline eager "baseline.py" :: eager', s.Baseline),
    ('tolerance Y { atol = 1e-2, matched = 99.9% } because "x"', s.Tolerance),
    ('compare sf, codes with "reference.py" :: accept', s.Compare),
    ("forbid torch.matmul, torch.nn.functional.linear", s.Forbid),
]

ITEM_STATEMENTS: list[tuple[str, type[s.Node]]] = [
    ('why "x"', s.Why),
    ('hint """x"""', s.Hint),
    ('source "x"', s.SourceNote),
    ("requires a, b", s.Requires),
    ("when arch has pdl", s.When),
    ("given p(a = 1)", s.Given),
    ('accept p(fn has exp) because "x"', s.Accept),
    ("weight 0.5", s.Weight),
    ("free", s.Free),
]


@pytest.mark.parametrize(("text", "kind"), TASK_STATEMENTS, ids=[kind.__name__ for _, kind in TASK_STATEMENTS])
def test_every_statement_of_a_task(text: str, kind: type[s.Node]) -> None:
    found = statement(text)
    assert type(found) is kind
    assert found.span.text == text


@pytest.mark.parametrize(("text", "kind"), ITEM_STATEMENTS, ids=[kind.__name__ for _, kind in ITEM_STATEMENTS])
def test_every_statement_of_an_item(text: str, kind: type[s.Node]) -> None:
    found = item_statement(text)
    assert type(found) is kind
    assert found.span.text == text


def test_a_property_declaration() -> None:
    (found,) = clean(
        """property cta_cluster L2 {
             title "Cluster" definition "blocks that share" scope kernel needs cluster, tma
             settled by source, launch
             attr size : int "blocks"  attr use : enum{multicast, reduce}  attr operand : role
             implies tma_bulk_copy(multicast = true)  excludes swap_ab
             alias "cluster", "block cluster"
             evidence triton "num_ctas"  evidence cuda "cluster_dims"
           }"""
    ).every(s.Property)
    assert (found.name.name, found.level.name) == ("cta_cluster", "L2")
    attributes = [(one.name.name, one.type.kind.name, one.definition is not None) for one in found.every(s.Attribute)]
    assert attributes == [("size", "int", True), ("use", "enum", False), ("operand", "role", False)]
    members = found.every(s.Attribute)[1].type.members
    assert members is not None and [one.name for one in members] == ["multicast", "reduce"]
    assert found.every(s.Attribute)[2].type.members is None
    assert [one.language.name for one in found.every(s.Evidence)] == ["triton", "cuda"]
    implies = found.first(s.Implies)
    assert implies is not None and shape(implies.term) == "tma_bulk_copy<multicast = true>"


def test_patterns_and_includes() -> None:
    tree = clean(
        """use guidance.mma as pm
           use std
           pattern overlap(after : item, stages : int = 2) { L2 o "x" { requires after check p(stages >= stages) } }
           task t { guidance { include pm.overlap(after = fuse) as ov } }"""
    )
    assert [(one.module.name, one.alias and one.alias.name) for one in tree.every(s.Use)] == [
        ("guidance.mma", "pm"),
        ("std", None),
    ]
    (pattern,) = tree.every(s.Pattern)
    parameters = [(one.name.name, one.type.name, one.default is not None) for one in pattern.parameters]
    assert parameters == [("after", "item", False), ("stages", "int", True)]
    guidance = tree.every(s.Task)[0].first(s.Guidance)
    assert guidance is not None
    (include,) = guidance.every(s.Include)
    assert include.pattern.name == "pm.overlap"
    assert include.alias is not None and include.alias.name == "ov"


def test_a_function_may_have_no_parameters() -> None:
    one, two = clean("fn zero() = 0 fn tri(n) = n * (n + 1) // 2").every(s.Function)
    assert one.parameters == ()
    assert [parameter.name for parameter in two.parameters] == ["n"]


def test_block_strings_lose_their_indentation() -> None:
    summary = statement('summary """\n    first\n      second\n\n    third\n  """')
    assert isinstance(summary, s.Summary)
    assert summary.text.value == "first\n  second\n\nthird"


def test_every_node_of_a_check_has_its_own_span() -> None:
    text = "tensor_core_mma(instr = tcgen05) and (tmem(buffers >= 2) or not swap)"
    found = check(text)
    assert isinstance(found, s.AllOf)
    assert found.span.text == text
    first, second = found.parts
    assert isinstance(first, s.Term) and isinstance(second, s.AnyOf)
    assert first.filters[0].span.text == "instr = tcgen05"
    assert first.filters[0].values[0].span.text == "tcgen05"
    assert [one.span.text for one in second.parts] == ["tmem(buffers >= 2)", "not swap"]


def test_spans_of_operands_in_parentheses() -> None:
    found = expression("(a + (b)) * (c) - d")
    assert isinstance(found, s.Binary) and isinstance(found.left, s.Binary)
    assert found.span.text == "(a + (b)) * (c) - d"
    assert found.left.span.text == "(a + (b)) * (c)"
    assert found.left.left.span.text == "a + (b)"


def test_walk_visits_parents_first_in_order() -> None:
    tree = clean("task t { let x = 1 + 2 }")
    kinds = [type(node).__name__ for node in s.walk(tree)]
    assert kinds == ["File", "Task", "Let", "Ident", "Binary", "Integer", "Integer", "Ident"]


# ---- the grammar and its committed tables ----------------------------------------------------------------------------


def test_the_committed_tables_are_those_of_the_grammar() -> None:
    """After a change of grammar.lark: `python -m d2k.compiler.tables`. Strict: no conflict, no colliding terminals."""
    assert build_tables(grammar_text(), strict=True) == tables()


@cache
def lark() -> Lark:
    return Lark(grammar_text(), parser="lalr", lexer="basic", maybe_placeholders=False)


def accepted_by_lark(text: str) -> bool:
    try:
        lark().parse(text)
    except UnexpectedInput:
        return False
    return True


# Everything about syntax that lark's reading of the grammar does not say.
BEYOND_THE_GRAMMAR = ("D2K0105", "D2K0108", "D2K0109", "D2K0110", "D2K0210", "D2K0215", "D2K0216", "D2K0217")


def accepted(parsed: Parsed) -> bool:
    return all(one.code in BEYOND_THE_GRAMMAR for one in parsed.diagnostics)


def sentences() -> st.SearchStrategy[str]:
    """Random sentences of the grammar."""
    explicit: dict[str, st.SearchStrategy[str]] = {
        "NAME": st.sampled_from(["a", "M", "x_y", "tensor"]),
        "LEVEL": st.sampled_from(["L1", "L3"]),
        "STRING": st.sampled_from(['""', '"x"', '"a \\" b"', '"# no"', '"{"']),
        "BLOCK": st.sampled_from(['""""""', '"""x"""', '"""\n   a\n     b\n\n  c\n"""']),
        "INT": st.sampled_from(["0", "1_000"]),
        "NUMBER": st.sampled_from(["1.5", "1e-3"]),
        "PERCENT": st.just("99.9%"),
        "QUANTITY": st.just("64KiB"),
        "COMPARISON": st.sampled_from(["==", "<"]),
        "PRODUCT_OP": st.sampled_from(["*", "//", "%"]),
        "COMMENT": st.just("# c\n"),
        "__IGNORE_1": st.sampled_from([" ", "\n", "\n\n\n"]),
    }
    for terminal in lark().terminals:
        if isinstance(terminal.pattern, PatternStr):
            explicit[terminal.name] = st.just(terminal.pattern.value)
    spaced = {name: texts.map(lambda text: text + " ") for name, texts in explicit.items()}
    return from_lark(lark(), start="start", explicit=spaced)


FAST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@FAST
@given(sentences())
def test_what_the_grammar_generates_is_accepted(text: str) -> None:
    assert accepted(parse(text, "test.d2k"))


TOKENS = [*tables().words, "a", "1", "2.5", '"x"', '"""y"""', "L1", *"{}()[],:=~.+-*/%<", "**", "//", "==", "::"]


@FAST
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
def test_lark_and_the_parser_accept_the_same_texts(text: str) -> None:
    assert accepted(parse(text, "test.d2k")) == accepted_by_lark(text)


# ---- hostile input ---------------------------------------------------------------------------------------------------

SAMPLE = """d2k 1
task t {
  axes M, N  # a comment
  let A = [n // 2 for n in [1, 2]]
  input X : bf16[M, N] ~ normal() / sqrt(N) as kv moves 2 * M
  workload w [edge] { M = 3, N = if true then 4 else 5 } from "x"
  guidance { L1 a "t" { check p(a >= 1) and not q(b has {x, y}) why \"\"\"
    text
  \"\"\" } }
}
"""


def sane(text: str) -> Parsed:
    parsed = parse(text, "test.d2k")
    source = parsed.source
    for one in parsed.diagnostics:
        assert 0 <= one.span.start <= one.span.end <= len(source.text) + 1
        assert one.message
    assert len(parsed.diagnostics) <= 110
    for node in s.walk(parsed.tree):
        assert 0 <= node.span.start <= node.span.end <= len(source.text)
    return parsed


@FAST
@given(st.text(max_size=200))
def test_any_text_is_parsed_without_an_exception(text: str) -> None:
    sane(text)


@FAST
@given(st.text(alphabet="ab1 \n\"{}()[]=~,.:#'%-L\\é\0;&", max_size=200))
def test_any_soup_of_signs_is_parsed_without_an_exception(text: str) -> None:
    sane(text)


@FAST
@given(st.data())
def test_a_damaged_file_is_parsed_without_an_exception(data: st.DataObject) -> None:
    text = SAMPLE
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 8)))
        text = text[:start] + data.draw(st.text(alphabet='aL4 \n"{}()[]=~,é@1.', max_size=3)) + text[end:]
    sane(text)


def nested(opening: str, closing: str, middle: str) -> Callable[[int], str]:
    return lambda depth: opening * depth + middle + closing * depth


@pytest.mark.parametrize(
    "hostile",
    [
        nested("(", "", ""),
        nested("(", ")", "1"),
        nested("[", "", ""),
        nested("[", "]", "1"),
        nested("{", "", ""),
        nested("{", "}", "1"),
        nested("not ", "", "a"),
        nested("-", "", "1"),
        nested("f(", ")", "1"),
        nested("if ", "", "a"),
        nested("if a then b else ", "", "c"),
        nested("a[", "]", "0"),
        lambda depth: "a" + "[0]" * depth,
        lambda depth: "2" + "**2" * depth,
        lambda depth: " + ".join(["a"] * depth),
        lambda depth: " or ".join(["a"] * depth),
        lambda depth: "9" * depth,
        lambda depth: "1." * depth,
        lambda depth: '"' * depth,
        lambda depth: '"\n' * depth,
        lambda depth: '"""\n' * depth + '"""',
        lambda depth: "@ " * depth,
        lambda depth: "}" * depth,
        lambda depth: "let x = let " * (depth // 4),
        lambda depth: "}\n{\n" * depth,
    ],
)
@pytest.mark.parametrize(
    "around", ["task t {{ let x = {} }}", 'task t {{ guidance {{ L1 a "x" {{ check {} }} }} }}', "{}"]
)
def test_ten_thousand_levels_are_bounded(hostile: Callable[[int], str], around: str) -> None:
    sane(around.format(hostile(10_000)))


def test_depth_counts_expressions_not_parentheses() -> None:
    clean(f"task t {{ let x = {'-' * (MAX_DEPTH - 1)}1 let y = {'(' * 200}1{')' * 200} }}")
    clean(f"task t {{ let x = {' + '.join(['a'] * MAX_DEPTH)} }}")
    clean(f'task t {{ guidance {{ L1 a "x" {{ check {"not " * (MAX_DEPTH - 1)}p }} }} }}')
    for deep in ("-" * MAX_DEPTH + "1", " + ".join(["a"] * (MAX_DEPTH + 1)), "a" + "[0]" * MAX_DEPTH):
        assert [one.code for one in parse(f"task t {{ let x = {deep} }}", "").diagnostics] == ["D2K0217"]


def test_long_lists_and_files_are_no_nesting() -> None:
    elements = ", ".join(["1"] * 20_000)
    found = expression(f"[{elements}]")
    assert isinstance(found, s.ListOf) and len(found.elements) == 20_000
