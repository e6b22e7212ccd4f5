"""Splitting inline PTX; expected values follow from the PTX ISA's syntax."""

import time

from hypothesis import given
from hypothesis import strategies as st

from d2k.analyzers.core.ptx_text import Instruction, instructions


def test_opcode_is_split_at_dots_and_operands_at_outer_commas() -> None:
    (only,) = instructions("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1}, {%2,%3}, {%4}, {%0, %1};")
    assert only.mnemonic == "mma"
    assert only.modifiers[:3] == ("sync", "aligned", "m16n8k16")
    assert only.operands == ("{%0, %1}", "{%2,%3}", "{%4}", "{%0, %1}")


def test_state_space_qualifiers_stay_one_modifier() -> None:
    text = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
    (copy,) = instructions(text)
    assert copy.modifiers == (
        "async",
        "bulk",
        "tensor",
        "2d",
        "shared::cluster",
        "global",
        "mbarrier::complete_tx::bytes",
    )
    assert copy.operands == ("[%0]", "[%1, {%2, %3}]", "[%4]")


def test_blocks_directives_labels_and_predicates() -> None:
    text = """{
        .reg .pred p;
        WAIT:
        mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;
        @!p bra WAIT;
        @%%q bra.uni DONE;
        DONE:
    }"""
    wait, again, done = instructions(text)
    assert wait == Instruction("mbarrier", ("try_wait", "parity", "shared::cta", "b64"), ("p", "[%0]", "%1"), None, 4)
    assert (again.mnemonic, again.predicate, again.operands, again.line) == ("bra", "!p", ("WAIT",), 5)
    assert (done.opcode, done.predicate) == ("bra.uni", "%q")


def test_block_on_one_line() -> None:
    assert [one.opcode for one in instructions("{ .reg .b32 t; mov.b32 t, %1; ex2.approx.f32 %0, t; }")] == [
        "mov.b32",
        "ex2.approx.f32",
    ]


def test_comments_are_no_instructions() -> None:
    assert instructions("// cp.async.cg.shared.global [a], [b], 16;\n/* ex2.approx.f32 a, b; */") == ()


def test_undecoded_escapes_are_blanks() -> None:
    first, second = instructions(r"griddepcontrol.wait;\n\tfence.proxy.async;")
    assert first.opcode == "griddepcontrol.wait"
    assert second.opcode == "fence.proxy.async"
    (after,) = instructions(r"// a comment that ends at an escape\nmov.b32 %0, %1;")
    assert after.opcode == "mov.b32"


def test_last_semicolon_may_be_missing() -> None:
    assert instructions("tanh.approx.f32 $0, $1")[0].operands == ("$0", "$1")


@given(st.text(alphabet="{}[]();,@!%$.:/*\\\n abcm0", max_size=200))
def test_any_text_is_read(text: str) -> None:
    for one in instructions(text):
        assert one.mnemonic
        assert 1 <= one.line <= text.count("\n") + 1


def test_cost_is_linear() -> None:
    line = "fma.rn.f32 %0, %1, %2, %3;\n"

    def seconds(lines: int) -> float:
        start = time.process_time()
        instructions(line * lines)
        return time.process_time() - start

    seconds(500)
    # 32 times the text; quadratic cost would be 1,024 times, and a busy machine must not look like it
    assert seconds(32_000) < 200 * max(min(seconds(1_000) for _ in range(3)), 0.001)
