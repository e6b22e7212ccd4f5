"""Library vocabulary: calls that were not given are what the tables say, and nothing where a table does not apply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cuda_facts import body_of, kernel, only, ops, program, view

from d2k.analyzers.core.view import KernelView
from d2k.analyzers.cuda.frontend import read
from d2k.analyzers.cuda.library import USER_FILE, Table, tables
from d2k.spec.facts import Kind, Reach

CG = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"


def with_includes(includes: str, statements: str, params: str = "float* x, float* y, int n") -> KernelView:
    return view(f"{includes}\n__global__ void k({params}) {{\n{statements}\n}}")


def test_cooperative_groups() -> None:
    k = with_includes(
        CG,
        "auto block = cg::this_thread_block(); auto warp = cg::tiled_partition<32>(block);"
        "float v = x[block.thread_rank()]; v += warp.shfl_xor(v, 1); v = cg::reduce(warp, v, cg::greater<float>());"
        "if (warp.thread_rank() == 0) y[warp.meta_group_rank()] = v; block.sync(); cg::this_grid().sync();",
    )
    assert only(k, Kind.SHUFFLE).name == "xor"
    assert only(k, Kind.REDUX).name == "max"
    assert {op.name for op in ops(k, Kind.BARRIER)} == {"syncthreads", "grid"}
    assert len(ops(k, Kind.LANE)) == len(ops(k, Kind.WARP)) == 1
    assert k.body.unresolved == ()


def test_distributed_shared_memory() -> None:
    k = with_includes(
        CG,
        "__shared__ float s[32]; auto cluster = cg::this_cluster(); float* other = cluster.map_shared_rank(s, 1);"
        " y[0] = other[n]; cluster.sync();",
    )
    load = only(k, Kind.LOAD)
    assert load.attrs["space"] == "shared"
    assert any(k.op(v).attrs.get("cluster") for v in k.slice(load.args[0]))


def test_barriers_pipelines_and_atomics_of_libcudacxx() -> None:
    k = with_includes(
        "#include <cuda/barrier>\n#include <cuda/atomic>",
        "__shared__ cuda::barrier<cuda::thread_scope_block> bar; __shared__ float s[64];"
        "if (threadIdx.x == 0) init(&bar, blockDim.x);"
        "cuda::memcpy_async(s, x, cuda::aligned_size_t<16>(256), bar); bar.arrive_and_wait();"
        "cuda::atomic_ref<float, cuda::thread_scope_device> r(y[0]); r.fetch_add(s[n], cuda::memory_order_release);",
    )
    copy = only(k, Kind.COPY)
    assert (copy.name, copy.attrs["bytes"], k.op(copy.args[0]).name, k.pointer(copy.args[1])) == ("bulk", 256, "s", "x")
    assert {op.name for op in ops(k, Kind.BARRIER)} == {"mbarrier_init", "mbarrier_arrive", "mbarrier_wait"}
    atomic = only(k, Kind.ATOMIC)
    assert (atomic.name, atomic.attrs["sem"], k.pointer(atomic.args[0])) == ("add", "release", "y")


def test_wmma_fragments_carry_their_types() -> None:
    k = with_includes(
        "#include <mma.h>\nusing namespace nvcuda;",
        "wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;"
        "wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;"
        "wmma::fragment<wmma::accumulator, 16, 16, 16, float> c; wmma::fill_fragment(c, 0.f);"
        "for (int i = 0; i < n; i += 16) { wmma::load_matrix_sync(a, h + i, 64); wmma::load_matrix_sync(b, h, 64);"
        " wmma::mma_sync(c, a, b, c); } wmma::store_matrix_sync(y, c, 64, wmma::mem_row_major);",
        "const half* h, float* y, int n",
    )
    mma = only(k, Kind.MMA)
    assert {key: mma.attrs[key] for key in ("instr", "m", "n", "k", "a_dtype", "acc_dtype")} == {
        "instr": "wmma",
        "m": 16,
        "n": 16,
        "k": 16,
        "a_dtype": "f16",
        "acc_dtype": "f32",
    }
    assert any(one.phi == mma.args[2] for one in k.loop(0).carried)
    assert k.op(only(k, Kind.STORE).args[0]).name == "y"


def test_cub_collectives() -> None:
    k = with_includes(
        "#include <cub/cub.cuh>",
        "using Reduce = cub::BlockReduce<float, 128>; __shared__ typename Reduce::TempStorage t;"
        "float v = Reduce(t).Sum(x[n]); using Warp = cub::WarpReduce<float>; __shared__ typename Warp::TempStorage w;"
        "y[0] = Warp(w).Reduce(v, cub::Max());",
    )
    assert (only(k, Kind.REDUCE).name, only(k, Kind.REDUCE).attrs["scope"]) == ("sum", "block")
    assert only(k, Kind.REDUX).name == "max"


def test_packed_intrinsics_are_packed_and_plain_ones_are_not() -> None:
    k = body_of("__half2 a = p[0]; p[1] = __hfma2(a, a, p[2]); y[0] = fmaf(y[1], y[2], y[3]);", "__half2* p, float* y")
    assert [op.attrs.get("packed") for op in ops(k, Kind.ELEMENTWISE, name="fma")] == [2, None]


def test_fast_functions_are_those_asked_for_by_name() -> None:
    k = body_of("y[0] = __expf(x[0]); y[1] = expf(x[1]); y[2] = __fdividef(x[2], x[3]); y[3] = x[4] / x[5];")
    assert [op.attrs.get("fast") for op in ops(k, Kind.ELEMENTWISE, name="exp")] == [True, None]
    assert [op.attrs.get("fast") for op in ops(k, Kind.ELEMENTWISE, name="div")] == [True, None]


@pytest.mark.parametrize("source", ["copy(x, y);", "gemm(x, y, x, y);", "clear(x);"])
def test_common_names_mean_nothing_without_their_library(source: str) -> None:
    assert [op.kind for op in ops(body_of(source), Kind.CALL, Kind.COPY, Kind.MMA, Kind.LOAD)] == [Kind.CALL]


def test_a_function_that_the_file_defines_is_what_it_defines() -> None:
    k = view("#include <cute/tensor.hpp>\n__device__ float copy(float a) { return a + 1; }\n"
             "__global__ void k(float* x) { x[0] = copy(x[1]); }")  # fmt: skip
    assert len(ops(k, Kind.ELEMENTWISE, name="add")) >= 1 and not ops(k, Kind.CALL)


CUTE = """
#include <cute/tensor.hpp>
using namespace cute;
template <class Copy, class Mma>
__global__ void k(const half_t* a, float* d, Copy copy_a, Mma mma, int n) {
  extern __shared__ char raw[];
  Tensor gA = make_tensor(make_gmem_ptr(a), make_shape(64, 64));
  auto layout = tile_to_shape(LAYOUT<half_t>{}, make_shape(64, 64));
  Tensor sA = make_tensor(make_smem_ptr(reinterpret_cast<half_t*>(raw)), layout);
  Tensor acc = partition_fragment_C(mma, make_shape(64, 64));
  clear(acc);
  for (int i = 0; i < n; ++i) {
    copy(copy_a, gA(_, i), sA(_, i));
    cp_async_fence(); cp_async_wait<1>();
    gemm(mma, sA, sA, acc);
  }
  axpby(1.f, acc, 0.f, make_tensor(make_gmem_ptr(d), make_shape(64, 64)));
}
void run(half_t* a, float* d) {
  auto copy_a = make_tiled_copy(Copy_Atom<COPY, half_t>{}, make_layout(128));
  TiledMMA mma = make_tiled_mma(MMA{});
  k<<<1, 128>>>(a, d, copy_a, mma, 8);
}
"""


def cute(copy: str, mma: str, layout: str = "GMMA::Layout_K_SW128_Atom") -> KernelView:
    return view(CUTE.replace("COPY", copy).replace("MMA{}", mma + "{}").replace("LAYOUT", layout))


@pytest.mark.parametrize(
    ("atom", "name", "attrs"),
    [
        ("SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>", "cp_async", {"direction": "load", "cache": "cg", "bytes": 16}),
        ("SM90_TMA_LOAD", "tma", {"direction": "load", "tensor": True}),
        ("SM90_TMA_LOAD_MULTICAST", "tma", {"direction": "load", "tensor": True, "multicast": True}),
        ("SM100_TMA_2SM_LOAD", "tma", {"direction": "load", "tensor": True, "cta_group": 2}),
    ],
)
def test_copy_atoms(atom: str, name: str, attrs: dict[str, object]) -> None:
    k = cute(atom, "SM80_16x8x16_F32F16F16F32_TN")
    copy = only(k, Kind.COPY)
    assert (copy.name, {key: copy.attrs[key] for key in attrs}) == (name, attrs)
    assert k.pointer(copy.args[1]) == "a"
    assert k.op(k.roots(copy.args[0])[0]).name == "raw"


@pytest.mark.parametrize(
    ("atom", "attrs"),
    [
        ("SM80_16x8x16_F32BF16BF16F32_TN", {"instr": "mma_sync", "m": 16, "n": 8, "k": 16, "a_dtype": "bf16"}),
        (
            "SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>",
            {"instr": "wgmma", "n": 128, "acc_dtype": "f32"},
        ),
        ("SM90_64x256x32_F32E4M3E4M3_SS_TN<>", {"instr": "wgmma", "a_dtype": "f8e4m3", "k": 32}),
        ("SM100_MMA_F16BF16_SS<half_t, half_t, float, 128, 256>", {"instr": "tcgen05"}),
        ("SM100_MMA_F16BF16_2x1SM_SS<half_t, half_t, float, 256, 256>", {"instr": "tcgen05", "cta_group": 2}),
        ("SM100_MMA_MXF8F6F4_SS<a, b, c, d, 128, 128>", {"instr": "tcgen05", "scaled": "mxfp8"}),
    ],
)
def test_matrix_atoms(atom: str, attrs: dict[str, object]) -> None:
    k = cute("SM90_TMA_LOAD", atom)
    mma = only(k, Kind.MMA)
    assert {key: mma.attrs.get(key) for key in attrs} == attrs
    assert any(one.next == k.values(Kind.MMA)[0] for one in k.loop(0).carried)
    assert only(k, Kind.WAIT).attrs["outstanding"] == 1


def test_swizzled_layouts_mark_their_allocation() -> None:
    alloc = next(
        op for op in ops(cute("SM90_TMA_LOAD", "SM80_16x8x16_F32F16F16F32_TN"), Kind.ALLOC) if op.name == "raw"
    )
    assert (alloc.attrs["layout"], alloc.attrs["swizzle"]) == ("swizzle", "128")


ADAPTER = """
#include <cutlass/cutlass.h>
using namespace cute;
using ElementA = A_TYPE;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::ARCH, cutlass::arch::OpClassTensorOp,
    Shape<_128, _256, _64>, Shape<_2, _1, _1>, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    cutlass::half_t, cutlass::layout::RowMajor, 8, cutlass::half_t, cutlass::layout::RowMajor, 8,
    cutlass::epilogue::collective::EpilogueScheduleAuto>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::ARCH, cutlass::arch::OpClassTensorOp,
    ElementA, cutlass::layout::RowMajor, 8, ElementA, cutlass::layout::ColumnMajor, 8, float,
    Shape<_128, _256, _64>, Shape<_2, _1, _1>, STAGES, cutlass::gemm::SCHEDULE>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
void run(typename Gemm::Arguments args, void* ws, cudaStream_t s) {
  Gemm gemm;
  gemm.initialize(args, ws, s);
  gemm.run(s);
}
"""


def adapter(
    arch: str, schedule: str, stages: str = "cutlass::gemm::collective::StageCount<4>", a: str = "cutlass::half_t"
) -> str:
    return ADAPTER.replace("ARCH", arch).replace("SCHEDULE", schedule).replace("STAGES", stages).replace("A_TYPE", a)


def test_an_adapter_is_the_kernel_that_its_collective_lowers_to() -> None:
    source = adapter("Sm90", "KernelTmaWarpSpecializedPingpong")
    found = kernel(source, "GemmUniversalAdapter")
    assert found.reach is Reach.LAUNCHED
    assert found.attrs["library"] == "cutlass"
    assert found.place.line == 1 + source[: source.index("gemm.run")].count("\n")
    body = found.variants[0].body
    mmas = ops(body, Kind.MMA)
    assert {(op.attrs["instr"], op.attrs["a_dtype"], op.attrs["acc_dtype"]) for op in mmas} == {("wgmma", "f16", "f32")}
    assert len({op.partition for op in mmas}) == 2  # two consumer groups
    loads = [op for op in ops(body, Kind.COPY) if op.attrs["direction"] == "load"]
    assert all(op.attrs["multicast"] and op.partition == "group == 0" for op in loads) and len(loads) == 2
    assert found.variants[0].constants["STAGES"] == 4
    assert found.variants[0].launch.cluster == (2, 1, 1)


def test_cooperative_consumers_share_one_tile_and_have_one_region() -> None:
    body = kernel(adapter("Sm90", "KernelTmaWarpSpecializedCooperative"), "GemmUniversalAdapter").variants[0].body
    assert len(ops(body, Kind.MMA)) == 1
    assert {op.name for op in ops(body, Kind.CONTROL)} == {"setmaxnreg_dec", "setmaxnreg_inc"}


@pytest.mark.parametrize(
    ("schedule", "group"), [("KernelTmaWarpSpecialized2SmSm100", 2), ("KernelTmaWarpSpecialized1SmSm100", 1)]
)
def test_blackwell_collectives_accumulate_in_tensor_memory(schedule: str, group: int) -> None:
    body = kernel(adapter("Sm100", schedule), "GemmUniversalAdapter").variants[0].body
    mma = only(body, Kind.MMA)
    assert (mma.attrs["instr"], mma.attrs["cta_group"]) == ("tcgen05", group)
    assert any(op.attrs["space"] == "tmem" for op in ops(body, Kind.ALLOC))


def test_stages_that_the_builder_chooses_are_not_known() -> None:
    source = adapter("Sm90", "KernelTmaWarpSpecialized", "cutlass::gemm::collective::StageCountAuto")
    found = kernel(source, "GemmUniversalAdapter")
    assert "STAGES" not in found.variants[0].constants
    assert not ops(found.variants[0].body, Kind.CONTROL)


def test_block_scaled_operands_name_their_format() -> None:
    source = adapter("Sm100", "KernelScheduleAuto", a="cutlass::nv_float4_t<cutlass::float_e2m1_t>")
    mma = only(kernel(source, "GemmUniversalAdapter").variants[0].body, Kind.MMA)
    assert (mma.attrs["scaled"], mma.attrs["a_dtype"]) == ("nvfp4", "f4e2m1")


def test_a_schedule_that_is_not_written_down_stays_a_call() -> None:
    found = program(adapter("Sm90", "KernelCpAsyncWarpSpecialized"))
    assert found.kernels == ()
    assert "cutlass.gemm.device.GemmUniversalAdapter.run" in {op.name for op in found.functions[0].body.ops}


def test_a_users_table_extends_the_vocabulary(tmp_path: Path) -> None:
    table = {
        "library": "ours",
        "functions": [{"names": ["our_load"], "access": "load", "args": [0], "attrs": {"cache": "cs"}}],
    }
    (tmp_path / USER_FILE).write_text(json.dumps(table))
    source = "__global__ void k(float* x) { x[0] = our_load(x + 1); }"
    found = read(str(tmp_path / "a.cu"), source).kernels[0].variants[0].body
    assert only(found, Kind.LOAD).attrs["cache"] == "cs"


def test_a_users_table_with_a_mistake_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / USER_FILE).write_text('{"library": "ours", "functions": [{"nmaes": ["f"]}]}')
    found = read(str(tmp_path / "a.cu"), "__global__ void k(float* x) { x[0] = 1; }")
    assert "nmaes" in found.problems[0].text
    assert len(found.kernels) == 1


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.library)
def test_a_table_holds_no_name_twice(table: Table) -> None:
    for entries in (table.functions, table.methods):
        names = [name for entry in entries for name in entry.names]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.library)
def test_kinds_of_a_table_exist(table: Table) -> None:
    for entry in (*table.functions, *table.methods):
        for one in entry.ops or (entry,):
            assert one.access or one.atoms_of or one.kind == "none" or Kind(one.kind)


def test_thunderkittens() -> None:
    k = with_includes(
        '#include "kittens.cuh"\nusing namespace kittens;',
        "extern __shared__ int raw[]; shared_allocator al((int*)&raw[0]);"
        "st_bf<64, 128> (&tiles)[3] = al.allocate<st_bf<64, 128>, 3>(); __shared__ semaphore bar;"
        "rt_fl<16, 128> acc; warp::zero(acc);"
        "if (warpgroup::groupid() == 0) { tma::load_async(tiles[n % 3], g, {0, n}, bar); }"
        "for (int i = 0; i < n; ++i) { wait(bar, i & 1); warpgroup::mma_AB(acc, tiles[i % 3], tiles[i % 3]); }"
        "warpgroup::mma_async_wait<0>();",
        "int n, float* g",
    )
    tile = next(v for v in k.values(Kind.ALLOC) if k.op(v).name == "st_bf")
    assert (k.dims(tile), k.op(tile).dtype, k.op(tile).attrs["layout"]) == ((3, 64, 128), "bf16", "swizzle")
    copy, mma = only(k, Kind.COPY), only(k, Kind.MMA)
    assert copy.attrs["direction"] == "load" and tile in k.roots(copy.args[0])
    assert mma.attrs["instr"] == "wgmma" and tile in k.roots(mma.args[0])
    assert any(one.phi == mma.args[2] for one in k.loop(0).carried)
