"""Kernels that generators unrolled into thousands of operations are analysed in bounded time.

Each source made one detector quadratic in the number of statistics or products.
"""

from __future__ import annotations

import time

import pytest

from d2k.analyzers.analyze import Options, read, report

SHUFFLES = "".join(f"s += __shfl_xor_sync(0xffffffffu, s, {1 << step}); " for step in range(5))


def normalised_rows(count: int) -> str:
    """Each of `count` rows is summed over a warp and divided by the root of its sum, without a loop."""
    rows = "".join(
        f"{{ float v = x[{row} * n + threadIdx.x], s = v * v; {SHUFFLES}"
        f"y[{row} * n + threadIdx.x] = v * rsqrtf(s); }}\n"
        for row in range(count)
    )
    return f"__global__ void k(const float* x, float* y, int n) {{\n{rows}}}\n"


def segments(count: int) -> str:
    """`count` ends of segments, read one after the other."""
    read = "".join(f"for (int i = o[b + {2 * at}]; i < o[b + {2 * at + 1}]; ++i) s += x[i];\n" for at in range(count))
    body = f"int b = blockIdx.x; float s = 0.f;\n{read}y[b] = s;\n"
    return f"__global__ void k(const float* x, const int* o, float* y) {{\n{body}}}\n"


def exponentials(count: int) -> str:
    """A chain of `count` sums with an exponential of each."""
    chain = "".join(f"s = s * {at}.f + expf(s);\n" for at in range(count))
    return (
        f"__global__ void k(const float* x, float* y) {{\nfloat s = x[threadIdx.x];\n{chain}y[threadIdx.x] = s;\n}}\n"
    )


def products(count: int) -> str:
    """`count` products of tiles whose sums are all stored, inside one loop."""
    declared = "".join(f"float c{one}[4] = {{0, 0, 0, 0}};\n" for one in range(count))
    multiplied = "".join(
        'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},'
        f'{{%0,%1,%2,%3}};" : "+f"(c{one}[0]), "+f"(c{one}[1]), "+f"(c{one}[2]), "+f"(c{one}[3])'
        f' : "r"(a[k]), "r"(a[k + 1]), "r"(a[k + 2]), "r"(a[k + 3]), "r"(b[k + {one}]), "r"(b[k + {one + 1}]));\n'
        for one in range(count)
    )
    stored = "".join(f"y[{one}] = c{one}[0] + logf(c{one}[1]);\n" for one in range(count))
    loop = f"for (int k = 0; k < n; k += 4) {{\n{multiplied}}}\n"
    return f"__global__ void k(const unsigned* a, const unsigned* b, float* y, int n) {{\n{declared}{loop}{stored}}}\n"


@pytest.mark.parametrize(
    "source",
    [normalised_rows(150), products(60), segments(100), exponentials(800)],
    ids=["statistics", "products", "segments", "exponentials"],
)
def test_unrolled_kernels_take_bounded_time(source: str) -> None:
    begin = time.process_time()
    program = read("kernel.cu", source, Options())
    found = report(program, source, Options())
    assert time.process_time() - begin < 20
    assert [one.name for one in found.kernels] == ["k"]
