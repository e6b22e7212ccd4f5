"""Preparation: what the parser gets to read, and that every offset of it leads back to the source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2k.analyzers.cuda.condition import evaluate
from d2k.analyzers.cuda.prepare import Prepared, ascii_only, prepare

WORDS = ["int", "float", "FOO", "BAR", "x", "(", ")", "{", "}", ";", ",", "\n", " ", '"', "'", "/*", "*/", "//", "#",
         "\\", "#define FOO(a) a\n", "#if FOO\n", "#else\n", "#endif\n", "##", "é"]  # fmt: skip


def words(text: str) -> list[str]:
    return text.split()


def prepared(source: str, target: str = "sm_100a") -> Prepared:
    return prepare(ascii_only(source), target)


def test_attributes_between_a_kernels_words_are_taken_out_and_kept_as_marks() -> None:
    found = prepared("__global__ void __launch_bounds__(256, 2) k();")
    assert words(found.text) == ["__global__", "void", "k();"]
    assert [(mark.name, mark.text) for mark in found.marks] == [("__launch_bounds__", "256, 2")]


def test_the_arguments_of_an_attribute_are_expanded() -> None:
    found = prepared("#define THREADS 128\n__global__ void __launch_bounds__(THREADS) k();")
    assert [mark.text.strip() for mark in found.marks] == ["128"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("CUTLASS_DEVICE void f();", "__device__ __forceinline__ void f();"),
        ("MY_OWN_INLINE\nvoid f();", "void f();"),
        ("MY_OWN_INLINE static int f();", "static int f();"),
        ("struct __align__(16) S { int a; };", "struct S { int a; };"),
        ("[[nodiscard]] int f();", "int f();"),
        ("int TYPE_NAME = FIRST + SECOND;", "int TYPE_NAME = FIRST + SECOND;"),
    ],
)
def test_attribute_macros_vanish_and_other_capitals_stay(source: str, expected: str) -> None:
    assert words(prepared(source).text) == words(expected)


def test_an_object_macro_is_replaced_and_its_place_is_that_of_its_use() -> None:
    source = "#define BM 128\nint a[BM];"
    found = prepared(source)
    at = found.text.index("128")
    assert found.origin(at) == source.index("BM]")
    assert found.origin(found.text.index("]")) == source.index("]")


def test_arguments_of_a_macro_keep_their_own_places() -> None:
    source = "#define CHECK(e) do { e; } while (0)\nvoid f() {\n  CHECK(\n    launch(7)\n  );\n}"
    found = prepared(source)
    assert found.origin(found.text.index("launch")) == source.index("launch(7)")
    assert found.origin(found.text.index("while")) == source.index("CHECK(\n")


@pytest.mark.parametrize(
    ("macros", "use", "expected"),
    [
        ("#define ADD(a, b) ((a) + (b))", "ADD(1, f(2, 3))", "((1) + (f(2, 3)))"),
        ("#define STR(x) #x", "STR(a  + b)", '"a + b"'),
        ("#define CAT(a, b) a##b", "CAT(load_, f32)", "load_f32"),
        ("#define LOG(f, ...) g(f, __VA_ARGS__)", "LOG(1, 2, 3)", "g(1, 2, 3)"),
        ("#define F(x) F(x + 1)", "F(2)", "F(2 + 1)"),
        ("#define A B\n#define B A", "A", "A"),
        ("#define G(x) x", "G;", "G;"),
        ("#define TWO 2\n#undef TWO", "int a = TWO;", "int a = TWO;"),
        ("#define LONG(a) \\\n  (a + \\\n   1)", "LONG(x)", "(x + 1)"),
    ],
)
def test_macros_expand_as_in_c(macros: str, use: str, expected: str) -> None:
    text = prepared(f"{macros}\n{use}").text
    assert "".join(words(text)) == "".join(words(expected))


def test_a_block_as_an_argument_of_an_unknown_macro_becomes_a_lambda() -> None:
    found = prepared("DISPATCH_SIZE(n, SIZE, { k<SIZE><<<1, 2>>>(); });")
    assert "[&]{ k<SIZE>" in found.text


def test_comments_and_strings_are_no_code() -> None:
    found = prepared('#define X 1\n// X\n/* X */ const char* s = "X // X"; int a = X;')
    assert words(found.text) == words('const char* s = "X // X"; int a = 1 ;')


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        ("#if 0\na\n#else\nb\n#endif", "sm_100a", "b"),
        ("#if __CUDA_ARCH__ >= 900\na\n#else\nb\n#endif", "sm_100a", "a"),
        ("#if __CUDA_ARCH__ >= 900\na\n#else\nb\n#endif", "sm_80", "b"),
        ("#if defined(__CUDA_ARCH_FEAT_SM100_ALL)\na\n#else\nb\n#endif", "sm_100a", "a"),
        ("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\na\n#else\nb\n#endif", "sm_100a", "b"),
        ("#ifdef USE_ROCM\na\n#else\nb\n#endif", "sm_100a", "b"),
        ("#ifdef SOME_SWITCH\na\n#else\nb\n#endif", "sm_100a", "a"),
        ("#ifndef GUARD_H\n#define GUARD_H\na\n#endif", "sm_100a", "a"),
        ("#define N 3\n#if N == 2\na\n#elif N == 3\nb\n#else\nc\n#endif", "sm_100a", "b"),
        ("#if 0\n#if 1\na\n#endif\nb\n#elif 1\nc\n#endif", "sm_100a", "c"),
        ("#if UNKNOWN > 2\na\n#elif 1\nb\n#endif\nc", "sm_100a", "a c"),
        ("#if 1\na\n#elif 1\nb\n#else\nc\n#endif\nd", "sm_100a", "a d"),
    ],
)
def test_conditions_are_decided_for_the_target_and_unknown_macros_keep_their_branch(
    source: str, target: str, kept: str
) -> None:
    assert words(prepared(source, target).text) == words(kept)


def test_a_branch_that_is_off_is_remembered_with_its_condition() -> None:
    source = "#if __CUDA_ARCH__ < 800\nold();\n#endif\n"
    region = prepared(source).inactive[0]
    assert source[region.start : region.end].strip() == "old();"
    assert region.condition == "#if __CUDA_ARCH__ < 800"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 && UNKNOWN", None),
        ("0 && UNKNOWN", False),
        ("1 || UNKNOWN", True),
        ("!UNKNOWN", None),
        ("(2 + 3) * 4 == 20", True),
        ("0x10 == 16 && 010 == 8", True),
        ("1 ? 0 : 1", False),
        ("7 / 0", None),
        ("__has_include(<a/b.h>)", None),
        ("defined(KNOWN) && !defined ABSENT", True),
        ("10'000UL > 9999", True),
        ("((((", None),
        ("", None),
    ],
)
def test_three_valued_conditions(text: str, value: bool | None) -> None:
    assert evaluate(text, lambda name: {"KNOWN": True, "ABSENT": False}.get(name)) is value


def test_unroll_pragmas_are_marks_with_their_factors() -> None:
    found = prepared(
        '#define U 4\n#pragma unroll\n;\n#pragma unroll U\n;\n_Pragma("unroll 2");\n#pragma nounroll\nCUTE_UNROLL\n'
    )
    assert [(mark.name, mark.text) for mark in found.marks] == [
        ("unroll", ""),
        ("unroll", "4"),
        ("unroll", "2"),
        ("no_unroll", ""),
        ("unroll", ""),
    ]


def test_macros_that_multiply_stop_at_a_bound() -> None:
    doubling = "\n".join(f"#define A{i} A{i - 1} A{i - 1}" for i in range(1, 30))
    found = prepared(f"#define A0 x\n{doubling}\nA29 A29 A29")
    assert len(found.text) < 4_000_000


@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_text_is_prepared_and_every_offset_leads_into_the_source(parts: list[str]) -> None:
    source = ascii_only(" ".join(parts))
    found = prepare(source, "sm_100a")
    assert found.text.isascii()
    for at in range(0, len(found.text), 7):
        assert 0 <= found.origin(at) <= len(source)
