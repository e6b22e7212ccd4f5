"""Included files: their macros count from the line on that includes them, their functions are inlined, circles end."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_facts import only, ops

from d2k.analyzers.cuda.frontend import read
from d2k.spec.facts import Kind, Program, Reach


def project(folder: Path, files: dict[str, str], main: str = "main.cu", include_dirs: tuple[str, ...] = ()) -> Program:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return read(str(folder / main), files[main], include_dirs=include_dirs)


def test_helpers_of_a_header_are_inlined_and_stand_at_their_own_lines(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        {
            "math.cuh": "#pragma once\n\n__device__ float twice(float a) {\n  return a * 2.f;\n}\n",
            "main.cu": '#include "math.cuh"\n__global__ void k(float* x) { x[0] = twice(x[1]); }',
        },
    )
    product = only(found.kernels[0].variants[0].body, Kind.ELEMENTWISE, name="mul")
    assert (Path(product.place.path).name, product.place.line) == ("math.cuh", 4)
    assert [(Path(place.path).name, place.line) for place in product.calls] == [("main.cu", 2)]


def test_headers_are_found_in_include_directories_and_through_other_headers(tmp_path: Path) -> None:
    files = {
        "include/a/outer.h": '#include "inner.h"\n__device__ float outer(float v) { return inner(v); }\n',
        "include/a/inner.h": "__device__ float inner(float v) { return __expf(v); }\n",
        "src/main.cu": "#include <a/outer.h>\n__global__ void k(float* x) { x[0] = outer(x[0]); }",
    }
    found = project(tmp_path, files, "src/main.cu", (str(tmp_path / "include"),))
    assert only(found.kernels[0].variants[0].body, Kind.ELEMENTWISE, name="exp")
    alone = read(str(tmp_path / "src/main.cu"), files["src/main.cu"])
    assert [one.name for one in alone.kernels[0].variants[0].body.unresolved] == ["outer"]


@pytest.mark.parametrize(("before", "stored"), [(True, 7), (False, 1)])
def test_macros_count_from_their_include_on(tmp_path: Path, before: bool, stored: int) -> None:
    kernel = "__device__ const int VALUE_ = 1;\n__global__ void k(int* x) { x[0] = NAME; }\n"
    include = '#include "macros.h"\n'
    main = "constexpr int NAME2 = 1;\n" + (include + kernel if before else kernel.replace("NAME", "NAME2") + include)
    found = project(tmp_path, {"macros.h": "#define NAME 7\n#define NAME2 9\n", "main.cu": main})
    body = found.kernels[0].variants[0].body
    assert body.ops[only(body, Kind.STORE).args[1]].attrs["value"] == stored


def test_macros_of_an_inner_header_are_known_in_the_outer_one(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        {
            "config.h": "#define NAMESPACE mine\n",
            "helper.h": '#include "config.h"\nnamespace NAMESPACE { __device__ float f(float a) { return a * a; } }\n',
            "main.cu": '#include "helper.h"\n__global__ void k(float* x) { x[0] = mine::f(x[1]); }',
        },
    )
    assert found.kernels[0].variants[0].body.unresolved == ()


def test_circles_end(tmp_path: Path) -> None:
    found = project(
        tmp_path,
        {
            "a.h": '#include "b.h"\n__device__ float fa(float v) { return v + 1.f; }\n',
            "b.h": '#include "a.h"\n#include "b.h"\n__device__ float fb(float v) { return v * 2.f; }\n',
            "main.cu": '#include "a.h"\n__global__ void k(float* x) { x[0] = fa(fb(x[0])); }',
        },
    )
    assert found.kernels[0].variants[0].body.unresolved == ()


def test_a_kernel_of_a_header_comes_in_through_its_launch(tmp_path: Path) -> None:
    header = "template <int N> __global__ void k(float* x) { x[0] = N; }\n__global__ void other(float* x) {}\n"
    main = '#include "k.cuh"\nvoid run(float* x) { k<3><<<1, 32>>>(x); }'
    found = project(tmp_path, {"k.cuh": header, "main.cu": main})
    assert {one.name: one.reach for one in found.kernels} == {"k": Reach.LAUNCHED}
    assert found.kernels[0].variants[0].constants["N"] == 3
    assert Path(found.kernels[0].place.path).name == "k.cuh"


def test_headers_of_known_libraries_are_left_to_the_tables(tmp_path: Path) -> None:
    files = {
        "include/cute/tensor.hpp": 'namespace cute { __device__ void cp_async_fence() { asm("nonsense;"); } }\n',
        "main.cu": "#include <cute/tensor.hpp>\n__global__ void k() { cute::cp_async_fence(); }",
    }
    body = project(tmp_path, files, "main.cu", (str(tmp_path / "include"),)).kernels[0].variants[0].body
    assert only(body, Kind.COMMIT).name == "cp_async" and not ops(body, Kind.ASM)


def test_a_missing_or_broken_header_changes_nothing(tmp_path: Path) -> None:
    files = {
        "broken.h": "\"'/* {{{ @@",
        "main.cu": '#include "broken.h"\n#include "missing.h"\n#include <../..>\n'
        "__global__ void k(float* x) { x[0] = 1; }",
    }
    assert len(ops(project(tmp_path, files).kernels[0].variants[0].body, Kind.STORE)) == 1
