"""Whatever the text, reading it ends in bounded time with facts that hold together."""

from __future__ import annotations

import re
import time

import pytest
from cuda_facts import program
from hypothesis import given, settings
from hypothesis import strategies as st

from d2k.analyzers.cuda.program import INTERNAL
from d2k.spec.facts import NONE, Body, Kind, Program

SAMPLE = r"""
#include <cuda_fp16.h>
#define TILE 16
#define WAIT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n))
namespace ops {
template <typename T, int N> struct Vec { T v[N]; __device__ T& operator[](int i) { return v[i]; } };
enum class Mode { Sum = 1, Max };
template <int N> __device__ __forceinline__ float reduce(float v) {
#pragma unroll
  for (int o = N / 2; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o);
  return v;
}
template <typename T, bool Causal = true>
__global__ void __launch_bounds__(256) k(const T* __restrict__ q, float* out, int n, float scale) {
  __shared__ __align__(16) T s[2][TILE][TILE + 1];
  Vec<float, 4> acc{};
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  auto load = [&](int b, int i) { s[b][warp][lane % TILE] = q[i * TILE + lane]; };
  if (warp == 0) { load(0, 0); WAIT(0); } else if (lane == 3) { return; }
  float m = -INFINITY, l = 0.f;
  for (int i = 1; i < n; ++i) {
    load(i & 1, i); __syncthreads();
    float x = float(s[(i - 1) & 1][warp][lane % TILE]) * scale, old = m;
    m = fmaxf(m, x); l = l * exp2f(old - m) + exp2f(x - m);
    if constexpr (Causal) { if (i > warp) break; }
    switch (i % 3) { case 0: acc[0] += x; break; case 1: acc[1] -= x; default: acc[2] = x; }
  }
  out[blockIdx.x] = reduce<32>(l) + acc[0] ? m : l;
}
}  // namespace ops
void run(__half* q, float* out, int n) {
  dim3 grid((n + 15) / 16, 2);
  if (n > 4) ops::k<__half><<<grid, 256, 0>>>(q, out, n, 1.4427f);
  else ops::k<__half, false><<<grid, 64>>>(q, out, n, 1.f);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
TOKENS = re.findall(r"\w+|\s+|[^\w\s]", SAMPLE)


def check(body: Body) -> None:
    """Every reference of a body leads to something that is there."""
    count = len(body.ops)
    for value, op in enumerate(body.ops):
        assert all(NONE <= arg < count for arg in op.args)
        assert all(arg < value for arg in op.args if op.kind is not Kind.PHI)
        assert all(0 <= guard.value < count for guard in op.guards)
        assert NONE <= op.loop < len(body.loops)
        assert op.shape is None or all(0 <= extent < count for extent in op.shape)
        assert op.place.line >= 1 and op.place.end_line >= op.place.line
    for number, loop in enumerate(body.loops):
        assert NONE <= loop.parent < number or loop.parent == NONE
        for value in (loop.variable, loop.start, loop.stop, loop.step, loop.condition):
            assert NONE <= value < count
        for one in loop.carried:
            assert 0 <= one.phi < count and NONE <= one.next < count and NONE <= one.before < count


def check_program(found: Program) -> None:
    assert not [one.text for one in found.problems if INTERNAL in one.text]
    for kernel in found.kernels:
        for variant in kernel.variants:
            check(variant.body)
            for name, value in variant.sites:
                function = next(one for one in found.functions if one.name == name)
                assert function.body.ops[value].kind is Kind.LAUNCH
    for function in found.functions:
        check(function.body)


def test_the_sample_itself_is_read_whole() -> None:
    found = program(SAMPLE)
    assert found.problems == ()
    assert [len(one.variants) for one in found.kernels] == [2]
    check_program(found)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(SAMPLE)))
def test_truncated_sources(length: int) -> None:
    check_program(program(SAMPLE[:length]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sources_with_tokens_removed_doubled_and_exchanged(data: st.DataObject) -> None:
    tokens = list(TOKENS)
    for _ in range(data.draw(st.integers(1, 6))):
        first = data.draw(st.integers(0, len(tokens) - 1))
        second = data.draw(st.integers(0, len(tokens) - 1))
        match data.draw(st.sampled_from(("drop", "double", "swap", "bracket"))):
            case "drop":
                del tokens[first]
            case "double":
                tokens.insert(first, tokens[second])
            case "swap":
                tokens[first], tokens[second] = tokens[second], tokens[first]
            case _:
                tokens.insert(first, data.draw(st.sampled_from("(){}[]<>;\"'")))
    check_program(program("".join(tokens)))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_arbitrary_text(text: str) -> None:
    check_program(program(text))


BODY = "__global__ void k(float* x, int n) {{ {} }}"
HOSTILE = {
    "parentheses": BODY.format("x[0] = " + "(" * 50_000 + "1" + ")" * 50_000 + ";"),
    "open parentheses": BODY.format("x[0] = " + "(" * 50_000),
    "braces": BODY.format("{" * 30_000 + "x[0] = 1;" + "}" * 30_000),
    "branches": BODY.format("if (n) {" * 3_000 + "x[0] = 1;" + "}" * 3_000),
    "loops": BODY.format("for (int i = 0; i < n; ++i) {" * 2_000 + "x[0] = 1;" + "}" * 2_000),
    "else": BODY.format(" else ".join(f"if (n == {i}) x[{i}] = 1;" for i in range(3_000))),
    "conditions": BODY.format("x[0] = " + "n ? 1 : " * 10_000 + "2;"),
    "calls": BODY.format("x[0] = " + "f(" * 10_000 + "1" + ")" * 10_000 + ";"),
    "quotes": '"' * 50_001,
    "comments": "/*" * 50_000,
    "raw strings": 'R"(' * 30_000,
    "templates": "A<" * 10_000 + ">" * 10_000 + " x;",
    "namespaces": "namespace a {" * 10_000 + "}" * 10_000,
    "conditionals": "#if X\n" * 20_000,
    "macros": "#define A(x) B(x) B(x)\n#define B(x) C(x) C(x)\n#define C(x) A(x)\n" + "A(A(A(1)))\n" * 50,
    "macros that double, called often": (
        "#define A0 x\n"
        + "".join(f"#define A{n} A{n - 1} A{n - 1}\n" for n in range(1, 60))
        + "".join(f"A{n}\n" for n in range(20, 60)) * 10
    ),
    "recursion": "__device__ float f(float a) { return f(a) + f(a + 1); }\n" + BODY.format("x[0] = f(x[1]);"),
    "doubling templates": (
        "template <int N> __device__ float f(float a) { if constexpr (N > 0) return f<N - 1>(a) + f<N - 1>(a + 1);\n"
        " return a; }\n" + BODY.format("x[0] = f<20>(x[1]);")
    ),
    "recursive templates": (
        "template <int N> struct S { using T = typename S<N + 1>::T; static constexpr int V = S<N + 1>::V; };\n"
        + BODY.format("x[0] = S<0>::V;")
    ),
    "constants that need each other": "constexpr int A = B;\nconstexpr int B = A;\n" + BODY.format("x[0] = A;"),
    "aliases that need each other": "using A = B;\nusing B = A;\n" + BODY.format("A a; x[0] = sizeof(A);"),
    "bases that need each other": "struct A : B {};\nstruct B : A { int f() { return 1; } };\n"
    + BODY.format("A a; x[0] = a.q;"),
    "a lambda that calls itself": BODY.format("auto f = [&](auto g) { return g(g); }; x[0] = f(f);"),
    "no text": "",
    "zero bytes": "\0" * 1_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources_end_soon(name: str) -> None:
    start = time.process_time()
    check_program(program(HOSTILE[name]))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("name", "text"),
    [("else", "nested deeper than"), ("doubling templates", "more than"), ("branches", "nested deeper than")],
)
def test_what_was_cut_is_a_problem_of_its_kernel(name: str, text: str) -> None:
    problem = program(HOSTILE[name]).problems[0]
    assert text in problem.text and problem.kernels == ("k",)


def test_time_grows_with_size_and_not_faster() -> None:
    unit = SAMPLE.replace("PYBIND11_MODULE", "MODULE")

    def seconds(copies: int) -> float:
        text = "".join(re.sub(r"\b(k|run|reduce|Vec)\b", rf"\g<1>_{i}", unit) for i in range(copies))
        start = time.process_time()
        assert len(program(text).kernels) == copies
        return time.process_time() - start

    seconds(2)
    # 8 times the text; quadratic cost would be 64 times, and a busy machine must not look like it
    assert seconds(40) < 32 * min(seconds(5) for _ in range(3))
