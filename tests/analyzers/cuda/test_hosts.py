"""Host code: launches with their options and template arguments, what is exported, tensors and libraries."""

from __future__ import annotations

import pytest
from cuda_facts import kernel, only, ops, program

from d2k.spec.facts import Function, Kind, Launch, Program, Reach

KERNEL = "__global__ void k(const float* x, float* y, int n) { y[0] = x[n]; }\n"


def host(found: Program, name: str = "run") -> Function:
    return next(one for one in found.functions if one.name == name)


def launch(source: str, name: str = "k") -> Launch:
    return kernel(source, name).variants[0].launch


def test_a_launch_has_grid_arguments_and_the_parameters_they_belong_to() -> None:
    found = program(KERNEL + "void run(float* a, float* b, int m) { k<<<dim3(m / 4, 2), 128, 0>>>(a, b, m); }")
    body = host(found).body
    op = only(body, Kind.LAUNCH)
    assert (op.name, op.attrs["grid"], op.attrs["params"]) == ("k", 2, ("x", "y", "n"))
    grid, arguments = op.args[:2], op.args[2:5]
    assert body.ops[grid[0]].name == "floordiv"
    assert [body.ops[arg].name for arg in arguments] == ["a", "b", "m"]
    variant = found.kernels[0].variants[0]
    assert variant.sites == (("run", body.ops.index(op)),)
    assert variant.launch.threads == 128


def test_block_extents_multiply_to_threads() -> None:
    found = launch(
        KERNEL + "void run(float* a) { constexpr int W = 4; dim3 block(32, W); k<<<1, block, 1024>>>(a, a, 1); }"
    )
    assert found.threads == 128
    assert found.options == {"block": (32, 4), "shared_bytes": 1024}


def test_members_of_dim3_can_be_set() -> None:
    assert launch(KERNEL + "void run(float* a) { dim3 b; b.x = 64; b.y = 3; k<<<1, b>>>(a, a, 1); }").threads == 192


def test_each_instantiation_is_a_variant_with_its_constants() -> None:
    found = kernel(
        "template <typename T, int B, bool C = false> __global__ void k(T* x) { __shared__ T s[B]; s[0] = x[0]; }\n"
        "void run(float* a, double* b, bool f) { if (f) k<float, 128><<<1, 128>>>(a);"
        " else k<double, 64, true><<<1, 64>>>(b); }"
    )
    assert [dict(one.constants) for one in found.variants] == [
        {"T": "f32", "B": 128, "C": False},
        {"T": "f64", "B": 64, "C": True},
    ]
    assert [one.launch.threads for one in found.variants] == [128, 64]
    assert [only(one.body, Kind.ALLOC).dtype for one in found.variants] == ["f32", "f64"]
    assert found.variants[0].chosen_by == "template"


def test_template_arguments_are_deduced_from_arguments() -> None:
    found = kernel(
        "template <typename T> __global__ void k(T* x) { x[0] = 0; }\nvoid run(__half* a) { k<<<1, 1>>>(a); }"
    )
    assert dict(found.variants[0].constants) == {"T": "f16"}


def test_constants_travel_through_launchers_switches_and_lambdas() -> None:
    found = kernel(
        "template <int D> __global__ void k(float* x) { x[0] = D; }\n"
        "template <int D> void launch(float* x) { k<D><<<D, 32>>>(x); }\n"
        "#define SWITCH(n, NAME, ...) switch (n) { case 64: { constexpr int NAME = 64; __VA_ARGS__; break; } "
        "case 128: { constexpr int NAME = 128; __VA_ARGS__; break; } }\n"
        "void run(float* x, int d) { SWITCH(d, D, { launch<D>(x); }) auto f = [&] { launch<256>(x); }; f(); }"
    )
    assert sorted(str(one.constants["D"]) for one in found.variants) == ["128", "256", "64"]


def test_kernels_are_launched_through_function_pointers() -> None:
    found = kernel(
        "template <int D> __global__ void k(float* x) { x[0] = D; }\n"
        "void run(float* x, bool wide) { auto f = wide ? &k<8> : &k<4>; f<<<1, 32>>>(x); }"
    )
    assert {one.constants["D"] for one in found.variants} == {4, 8}


LAUNCH_EX = """
void run(float* a, cudaStream_t s) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = 256;
  cudaLaunchAttribute attrs[2];
  attrs[0].id = cudaLaunchAttributeClusterDimension;
  attrs[0].val.clusterDim.x = 2;
  attrs[0].val.clusterDim.y = 1;
  attrs[0].val.clusterDim.z = 1;
  attrs[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attrs[1].val.programmaticStreamSerializationAllowed = ALLOWED;
  config.attrs = attrs;
  config.numAttrs = COUNT;
  cudaLaunchKernelEx(&config, k, a, a, 3);
}
"""


@pytest.mark.parametrize(
    ("count", "allowed", "cluster", "pdl"),
    [("2", "1", (2, 1, 1), True), ("2", "0", (2, 1, 1), False), ("1", "1", (2, 1, 1), None), ("0", "1", None, None)],
)
def test_launch_attributes_count_up_to_their_number(
    count: str, allowed: str, cluster: tuple[int, ...] | None, pdl: bool | None
) -> None:
    found = launch(KERNEL + LAUNCH_EX.replace("COUNT", count).replace("ALLOWED", allowed))
    assert (found.threads, found.cluster, found.pdl) == (256, cluster, pdl)


def test_cooperative_launches() -> None:
    source = KERNEL + (
        "void run(float* a) { int n = 1; void* args[] = {&a, &a, &n};"
        " cudaLaunchCooperativeKernel((void*)k, dim3(4), dim3(64), args, 0, 0); }"
    )
    found = program(source)
    assert found.kernels[0].variants[0].launch.cooperative is True
    op = only(host(found).body, Kind.LAUNCH)
    assert [host(found).body.ops[arg].name for arg in op.args[1:3]] == ["a", "a"]


def test_exported_functions_reach_their_launches_and_others_do_not() -> None:
    found = program(
        KERNEL + "__global__ void old(float* x) { x[0] = 1; }\n"
        "void forgotten(float* x) { old<<<1, 1>>>(x); }\n"
        "void helper(float* x) { k<<<1, 1>>>(x, x, 1); }\n"
        "void run(float* x) { helper(x); }\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &run); }'
    )
    assert {one.name: one.reach for one in found.kernels} == {"k": Reach.LAUNCHED, "old": Reach.DEAD}
    assert {one.name: one.reachable for one in found.functions} == {"run": True, "forgotten": False}


def test_the_entry_is_found_by_its_exported_name() -> None:
    source = (
        KERNEL + "__global__ void other(float* x) { x[0] = 1; }\n"
        "void run_impl(float* x) { k<<<1, 1>>>(x, x, 1); }\nvoid second(float* x) { other<<<1, 1>>>(x); }\n"
        'PYBIND11_MODULE(e, m) { m.def("run", &run_impl); m.def("second", &second); }'
    )
    found = program(source, entry="run")
    assert {one.name: one.reach for one in found.kernels} == {"k": Reach.LAUNCHED, "other": Reach.DEAD}


def test_torch_library_registrations_export() -> None:
    found = program(
        KERNEL + "void run(float* x) { k<<<1, 1>>>(x, x, 1); }\nvoid unused(float* x) {}\n"
        'TORCH_LIBRARY_IMPL(ops, CUDA, m) { m.impl("run", &run); }'
    )
    assert {one.name: one.reachable for one in found.functions} == {"run": True, "unused": False}


def test_host_functions_of_one_name_are_told_apart() -> None:
    found = program(
        KERNEL + "void run(float* x) { k<<<1, 32>>>(x, x, 1); }\nvoid run(float* x, int n) { k<<<1, 64>>>(x, x, n); }"
    )
    names = [one.name for one in found.functions]
    assert len(set(names)) == 2
    assert {name for name, _ in found.kernels[0].variants[0].sites} == set(names)


def test_tensors_allocations_and_library_calls() -> None:
    found = program(
        "torch::Tensor run(torch::Tensor a, torch::Tensor b) {\n"
        "  int m = a.size(0); auto c = torch::empty({m, b.size(1)}, a.options());\n"
        "  at::matmul_out(c, a, b); return c;\n}"
    )
    body = host(found).body
    shapes = ops(body, Kind.ATTRIBUTE, name="shape")
    assert [body.ops[op.args[0]].name for op in shapes] == ["a", "b"]
    alloc = only(body, Kind.HOST_ALLOC)
    assert (alloc.name, alloc.attrs["callee"]) == ("empty", "torch.empty")
    assert "at.matmul_out" in {op.name for op in ops(body, Kind.HOST_CALL)}


def test_checked_runtime_calls_are_calls() -> None:
    found = program(
        "#define CHECK(call) do { cudaError_t e = call; if (e != cudaSuccess) exit(1); } while (0)\n"
        "void run(float** p, int n) { CHECK(cudaMalloc(p, n * sizeof(float))); cudaMemsetAsync(*p, 0, n); }"
    )
    body = host(found).body
    assert only(body, Kind.HOST_ALLOC).attrs["callee"] == "cudaMalloc"
    assert "cudaMemsetAsync" in {op.name for op in ops(body, Kind.HOST_CALL)}


def test_tensor_maps_are_descriptors_with_their_box() -> None:
    found = program(
        "__global__ void k(const __grid_constant__ CUtensorMap m) {}\n"
        "void run(__half* p, uint64_t rows, uint64_t cols) {\n  CUtensorMap map;\n"
        "  uint64_t dims[2] = {cols, rows}; uint64_t strides[1] = {cols * 2}; uint32_t box[2] = {64, 128};\n"
        "  uint32_t one[2] = {1, 1};\n"
        "  cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, p, dims, strides, box, one,\n"
        "    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,\n"
        "    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);\n"
        "  k<<<1, 128>>>(map);\n}"
    )
    body = host(found).body
    descriptor = only(body, Kind.DESCRIPTOR)
    assert descriptor.attrs["block"] == (64, 128)
    assert descriptor.attrs["swizzle"] == 128
    assert body.ops[descriptor.args[0]].name == "p"
    launched = only(body, Kind.LAUNCH)
    assert body.ops[launched.args[1]] == descriptor


def test_methods_that_launch_are_host_functions() -> None:
    found = program(
        KERNEL + "struct Runner { int n; void go(float* x) { k<<<n, 64>>>(x, x, n); } };\n"
        "void run(float* x) { Runner r{4}; r.go(x); }"
    )
    assert found.kernels[0].reach is Reach.LAUNCHED
    assert found.kernels[0].variants[0].launch.threads == 64


def test_functors_and_packs_travel_through_launches() -> None:
    found = kernel(
        "struct Scale { __device__ void operator()(float* x, float a, int n) { x[n] *= a; } };\n"
        "template <typename F, typename... A> __global__ void k(float* x, F f, A... rest) { f(x, rest...); }\n"
        "template <typename F, typename... A> void launch(float* x, F f, A... rest) { k<<<1, 1>>>(x, f, rest...); }\n"
        "void run(float* x, float a, int n) { launch(x, Scale(), a, n); }"
    )
    body = found.variants[0].body
    assert body.unresolved == ()
    assert only(body, Kind.STORE).attrs["space"] == "global"
    assert {op.dtype for op in ops(body, Kind.PARAM) if op.name.startswith("rest")} == {"f32", "i32"}


def test_what_is_kept_in_an_object_outside_of_the_function_is_said() -> None:
    found = program(
        "static std::unordered_map<int64_t, torch::Tensor> kept;\n"
        "torch::Tensor run(torch::Tensor x) { auto it = kept.find(1); auto y = at::relu(x); kept[1] = y; return y; }"
    )
    names = [op.name for op in ops(host(found).body, Kind.HOST_CALL)]
    assert names == ["kept.find", "at.relu", "set kept[]"]
