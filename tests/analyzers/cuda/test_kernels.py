"""Kernels without inline assembly: arithmetic, memory, branches, loops, threads."""

from __future__ import annotations

import pytest
from cuda_facts import body_of, kernel, only, ops, program, view

from d2k.analyzers.core.view import KernelView
from d2k.spec.facts import NONE, Kind, Reach


def test_parameters_say_what_the_signature_says() -> None:
    found = kernel(
        "__global__ void k(const float* __restrict__ x, __half* y, int n, const __grid_constant__ CUtensorMap m) {}"
    )
    assert [(p.name, p.pointer, p.dtype) for p in found.params] == [
        ("x", True, "f32"),
        ("y", True, "f16"),
        ("n", False, "i32"),
        ("m", False, None),
    ]
    x = next(op for op in found.variants[0].body.ops if op.name == "x")
    assert x.attrs["const"] is True and x.attrs["restrict"] is True


def test_launch_bounds_and_cluster_are_attributes_of_the_kernel() -> None:
    found = kernel(
        "constexpr int T = 64;\n__global__ void __launch_bounds__(T * 2, 3) __cluster_dims__(2, 1, 1) k(float* x) {}"
    )
    assert found.attrs["launch_bounds_threads"] == 128
    assert found.attrs["launch_bounds_blocks"] == 3
    assert found.attrs["cluster_dims"] == (2, 1, 1)


def test_a_pointer_index_is_an_address_and_a_load() -> None:
    k = body_of("y[n] = x[blockIdx.x * 128 + threadIdx.x];")
    load = only(k, Kind.LOAD)
    assert load.attrs == {"space": "global", "via": "pointer", "bits": 32}
    assert load.dtype == "f32"
    assert k.pointer(load.args[0]) == "x"
    store = only(k, Kind.STORE)
    assert k.pointer(store.args[0]) == "y"
    assert k.op(store.args[1]).kind is Kind.LOAD


def test_vector_casts_load_wide_and_their_parts_are_elements() -> None:
    k = body_of("float4 v = reinterpret_cast<const float4*>(x)[n]; y[0] = v.x + v.w;")
    load = only(k, Kind.LOAD)
    assert load.attrs["via"] == "vector" and load.attrs["bits"] == 128 and load.dtype == "f32"
    address = k.op(load.args[0])
    scaled = k.op(address.args[1])
    assert address.name == "add" and scaled.name == "mul" and k.fold(scaled.args[1]) == 4  # elements, not vectors
    assert [k.fold(op.args[1]) for op in ops(k, Kind.SHAPE, name="index")] == [0, 3]


def test_a_cast_to_another_width_says_how_offsets_count_behind_it() -> None:
    k = body_of("uint4 v = *(uint4*)(h + 8 * n); y[0] = v.x;", "const __half* h, float* y, int n")
    cast = only(k, Kind.CAST, name="bitcast")
    assert (cast.attrs["from_bits"], cast.attrs["to_bits"]) == (16, 32)
    assert only(k, Kind.LOAD).attrs["bits"] == 128


def test_loads_and_stores_with_cache_operators() -> None:
    k = body_of("float a = __ldg(&x[n]); float b = __ldcs(x + 1); __stcs(y, a + b);")
    assert [op.attrs["cache"] for op in ops(k, Kind.LOAD)] == ["read_only", "cs"]
    assert only(k, Kind.STORE).attrs["eviction"] == "evict_first"


def test_shared_arrays_have_their_extents() -> None:
    k = body_of("__shared__ __half s[3][16][40 + 8]; s[n][1][2] = __float2half(x[0]); y[0] = __half2float(s[0][0][n]);")
    alloc = only(k, Kind.ALLOC)
    assert alloc.attrs == {"space": "shared"}
    assert k.dims(k.values(Kind.ALLOC)[0]) == (3, 16, 48)
    load = next(op for op in ops(k, Kind.LOAD) if op.attrs["space"] == "shared")
    assert load.attrs["via"] == "array" and len(load.args) == 5 and load.args[1] == NONE


def test_dynamic_shared_memory_is_carved_by_pointers() -> None:
    k = body_of("extern __shared__ __align__(16) char raw[]; float* a = (float*)raw; float* b = a + 64; b[n] = 1.f;")
    assert only(k, Kind.ALLOC).attrs["dynamic"] is True
    store = only(k, Kind.STORE)
    assert store.attrs["space"] == "shared"
    assert k.values(Kind.ALLOC)[0] in k.roots(store.args[0])


def test_members_of_a_struct_in_shared_memory_are_allocations_inside_it() -> None:
    k = view(
        "struct Storage { float a[32]; uint64_t full[4]; };\n"
        "__global__ void k(float* y) { extern __shared__ char raw[]; Storage& s = *reinterpret_cast<Storage*>(raw);\n"
        " s.a[threadIdx.x] = 1.f; s.full[2] = 0; }"
    )
    found = {op.name: op for op in ops(k, Kind.ALLOC)}
    assert found["a"].attrs["member"] is True and found["a"].dtype == "f32"
    assert {tuple(k.dims(v) or ()) for v in k.values(Kind.ALLOC) if k.op(v).name in ("a", "full")} == {(32,), (4,)}


def test_a_register_array_is_carried_by_the_loop_that_updates_it() -> None:
    k = body_of("float acc[4] = {0.f}; for (int i = 0; i < n; ++i) { acc[i & 3] += x[i]; } y[0] = acc[0];")
    loop = k.loop(0)
    carried = next(one for one in loop.carried if one.variable == "acc")
    assert k.op(carried.before).kind is Kind.FULL
    insert = k.op(carried.next)
    assert (insert.kind, insert.name) == (Kind.SHAPE, "insert") and insert.args[0] == carried.phi
    assert k.op(insert.args[1]).name == "add"
    assert not [op for op in ops(k, Kind.LOAD, Kind.STORE) if op.attrs["space"] == "local"]


@pytest.mark.parametrize(
    ("head", "start", "stop", "step"),
    [
        ("for (int i = 2; i < 10; ++i)", 2, 10, 1),
        ("for (int i = 2; i <= 10; i += 3)", 2, 11, 3),
        ("for (int i = 9; i >= 0; i--)", 9, -1, -1),
        ("for (int i = 9; i > 0; i -= 2)", 9, 0, -2),
        ("for (int i = 0; 10 > i; i = i + 2)", 0, 10, 2),
        ("int i = 4; while (i != 8)", 4, 8, 1),
    ],
)
def test_bounds_of_counted_loops(head: str, start: int, stop: int, step: int) -> None:
    tail = " ++i;" if head.endswith("8)") else ""
    k = body_of(f"{head} {{ y[i] = x[i];{tail} }}")
    loop = k.loop(0)
    assert k.op(loop.variable).name == "loop"
    assert [k.fold(value) for value in (loop.start, loop.stop, loop.step)] == [start, stop, step]
    assert loop.carried == ()


def test_a_halving_loop_has_no_step_but_a_condition() -> None:
    k = body_of("float v = x[0]; for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffff, v, o); y[0] = v;")
    loop = k.loop(0)
    assert loop.variable == loop.step == NONE
    assert k.op(loop.condition).name == "gt"
    assert {one.variable for one in loop.carried} == {"o", "v"}
    shuffle = only(k, Kind.SHUFFLE)
    assert shuffle.name == "xor"
    assert [k.op(arg).variable for arg in shuffle.args] == ["v", "o"]


def test_a_grid_stride_loop_steps_by_the_grid() -> None:
    k = body_of("for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];")
    assert Kind.GRID_SIZE in {k.op(value).kind for value in k.slice(k.loop(0).step)}


def test_a_persistent_while_loop_is_counted_too() -> None:
    k = body_of("int t = blockIdx.x; while (true) { if (t >= n) break; y[t] = x[t]; t += gridDim.x; }")
    loop = k.loop(0)
    assert loop.form == "while"
    assert k.op(loop.step).kind is Kind.GRID_SIZE
    store = only(k, Kind.STORE)
    assert [(k.op(g.value).name, g.expected) for g in store.guards] == [("ge", False)]


def test_full_unrolling_with_known_bounds_is_static() -> None:
    k = body_of(
        "#pragma unroll\nfor (int i = 0; i < 4; ++i) y[i] = x[i];\n"
        "#pragma unroll 2\nfor (int i = 0; i < n; ++i) y[i] = 0;"
    )
    assert [(loop.form, dict(loop.attrs)) for loop in k.body.loops] == [
        ("static", {"unroll": True}),
        ("for", {"unroll": 2}),
    ]


def test_variables_that_a_loop_only_reads_are_not_carried() -> None:
    k = body_of("int base = n * 2; float s = 0; for (int i = 0; i < 8; ++i) s += x[base + i]; y[0] = s;")
    assert [one.variable for one in k.loop(0).carried] == ["s"]


def test_branches_guard_their_statements_and_merge_variables() -> None:
    k = body_of("float v = 1.f; if (n > 3) { v = x[0]; } else { v = x[1]; } y[0] = v;")
    loads = ops(k, Kind.LOAD)
    assert [[g.expected for g in op.guards] for op in loads] == [[True], [False]]
    phi = k.op(only(k, Kind.STORE).args[1])
    assert (phi.kind, phi.name) == (Kind.PHI, "if")
    assert [k.op(arg).kind for arg in phi.args[1:]] == [Kind.LOAD, Kind.LOAD]


def test_an_early_return_guards_the_rest() -> None:
    k = body_of("int i = threadIdx.x; if (i >= n) return; y[i] = x[i];")
    assert [g.expected for g in only(k, Kind.STORE).guards] == [False]


def test_a_variable_keeps_its_value_when_the_other_branch_returns() -> None:
    k = body_of("int v = 1; if (n > 3) { v = 2; return; } y[v] = 0.f;")
    assert not ops(k, Kind.PHI)


def test_a_constant_branch_is_not_lowered_but_mentioned() -> None:
    k = body_of("if constexpr (false) { y[0] = __expf(x[0]); } else { y[1] = x[1]; }")
    assert not ops(k, Kind.ELEMENTWISE, name="exp")
    assert [(one.name, one.reason) for one in k.body.mentions] == [("__expf", "disabled_branch")]


def test_a_switch_on_a_constant_takes_its_case_and_on_a_value_guards_each() -> None:
    source = "switch ({}) {{ case 0: y[0] = 0; break; case 1: y[1] = 1; break; default: y[2] = 2; }}"
    assert len(ops(body_of(source.format("1")), Kind.STORE)) == 1
    k = body_of(source.format("n"))
    assert [[g.expected for g in op.guards] for op in ops(k, Kind.STORE)] == [[True], [False, True], [False, False]]


@pytest.mark.parametrize(
    "expression",
    [
        "threadIdx.x / 32",
        "threadIdx.x >> 5",
        "(int)threadIdx.x / warpSize",
        "__shfl_sync(0xffffffff, threadIdx.x / 32, 0)",
        "(threadIdx.y * blockDim.x + threadIdx.x) / 32",
        "cutlass::canonical_warp_idx_sync()",
    ],
)
def test_the_warp_is_recognised_however_it_is_computed(expression: str) -> None:
    k = body_of(f"int w = {expression}; y[w] = 0;")
    store = only(k, Kind.STORE)
    assert k.op(k.op(store.args[0]).args[1]).kind is Kind.WARP


@pytest.mark.parametrize("expression", ["threadIdx.x % 32", "threadIdx.x & 31", "threadIdx.x & (warpSize - 1)"])
def test_the_lane_is_recognised(expression: str) -> None:
    k = body_of(f"y[{expression}] = 0;")
    assert k.op(k.op(only(k, Kind.STORE).args[0]).args[1]).kind is Kind.LANE


def test_a_warp_group_is_no_warp() -> None:
    k = body_of("y[threadIdx.x / 128] = 0;")
    assert only(k, Kind.WARP).attrs["group"] is True


def test_division_by_something_else_is_a_division() -> None:
    k = body_of("y[threadIdx.x / 24] = x[n / 32];")
    assert not ops(k, Kind.WARP)


@pytest.mark.parametrize(
    ("statements", "partitions"),
    [
        ("int w = threadIdx.x / 32; if (w == 0) { y[0] = 1; } else { y[1] = 2; }", ["w == 0", "not (w == 0)"]),
        ("if (threadIdx.x < 128) y[0] = 1; else y[1] = 2;", ["threadIdx.x < 128", "not (threadIdx.x < 128)"]),
        ("int w = threadIdx.x / 32; if (w == 0) { y[0] = 1; return; } y[1] = 2;", ["w == 0", "not (w == 0)"]),
        ("int g = threadIdx.x / 128; switch (g) { case 0: y[0] = 1; break; case 1: y[1] = 2; }", ["case 0", "case 1"]),
        ("if (threadIdx.x == 0) { y[0] = 1; } y[1] = 2;", ["", ""]),
        ("int row = blockIdx.x * 4 + threadIdx.x / 32; if (row < n) { y[0] = 1; } y[1] = 2;", ["", ""]),
    ],
)
def test_branches_on_the_warp_are_role_regions(statements: str, partitions: list[str]) -> None:
    assert [op.partition for op in ops(body_of(statements), Kind.STORE)] == partitions


def test_integer_division_rounds_down_and_float_division_does_not() -> None:
    k = body_of("y[n / 3] = x[0] / 3.f; y[7 / 2] = -7 / 2;")
    assert {op.name for op in ops(k, Kind.ELEMENTWISE)} >= {"floordiv", "div"}
    assert -3 in [op.attrs["value"] for op in ops(k, Kind.CONST)]  # toward zero


def test_atomics_name_their_memory() -> None:
    k = body_of("__shared__ int h[256]; atomicAdd(&h[n], 1); atomicMax((int*)x, n); int t = atomicAdd(c, 1); y[t] = 0;",
                "float* x, float* y, int* c, int n")  # fmt: skip
    assert [(op.name, op.attrs["space"]) for op in ops(k, Kind.ATOMIC)] == [
        ("add", "shared"),
        ("max", "global"),
        ("add", "global"),
    ]


def test_helpers_are_inlined_with_their_call_sites() -> None:
    k = view(
        "template <typename T> __device__ T square(T a) { return a * a; }\n"
        "__device__ float twice(float a) { return square(a) + square(a); }\n"
        "__global__ void k(float* x) {\n  x[0] = twice(x[1]);\n}"
    )
    products = ops(k, Kind.ELEMENTWISE, name="mul")
    assert [op.place.line for op in products] == [1, 1]
    assert [[place.line for place in op.calls] for op in products] == [[4, 2], [4, 2]]


def test_arguments_by_reference_are_the_callers_variables() -> None:
    k = view(
        "__device__ void add(float (&acc)[2], float v) { acc[0] += v; }\n"
        "__global__ void k(float* x, int n) { float acc[2] = {}; for (int i = 0; i < n; ++i) add(acc, x[i]);"
        " x[0] = acc[0]; }"
    )
    assert [one.variable for one in k.loop(0).carried] == ["acc"]


def test_overloads_are_chosen_by_number_and_type_of_arguments() -> None:
    k = view(
        "__device__ float f(float a) { return a + 1.f; }\n__device__ float f(int a) { return a - 1; }\n"
        "__device__ float f(float a, float b) { return a * b; }\n"
        "__global__ void k(float* x, int n) { x[0] = f(n); x[1] = f(x[2]); x[3] = f(x[4], x[5]); }"
    )
    stores = ops(k, Kind.STORE)
    assert [k.op(k.strip(op.args[1])).name for op in stores] == ["sub", "add", "mul"]


def test_lambdas_see_and_change_what_they_capture() -> None:
    k = body_of("float s = 0; auto add = [&](float v) { s += v; }; for (int i = 0; i < n; ++i) add(x[i]); y[0] = s;")
    assert [one.variable for one in k.loop(0).carried] == ["s"]


def test_functors_and_members_work_on_their_fields() -> None:
    k = view(
        "struct Scale { float f; __device__ Scale(float g) : f(g) {}\n"
        " __device__ float operator()(float v) const { return v * f; } };\n"
        "__global__ void k(float* x, float a) { Scale s(a); x[0] = s(x[1]); }"
    )
    product = only(k, Kind.ELEMENTWISE, name="mul")
    assert [k.op(arg).kind for arg in product.args] == [Kind.LOAD, Kind.PARAM]


def test_members_of_struct_parameters_are_parameters() -> None:
    k = view(
        "struct P { const float* q; float scale; };\n__global__ void k(P p, float* y) { y[0] = p.q[1] * p.scale; }"
    )
    load = only(k, Kind.LOAD)
    assert k.op(k.roots(load.args[0])[0]).name == "p.q" and load.dtype == "f32"
    assert {op.name for op in ops(k, Kind.PARAM)} >= {"p.q", "p.scale"}


def test_class_templates_carry_constants_and_types() -> None:
    k = view(
        "template <int M, typename T> struct Traits { static constexpr int kRows = M * 2; using Element = T; };\n"
        "template <typename Tr> __global__ void k(float* x) {\n __shared__ typename Tr::Element s[Tr::kRows];"
        " s[0] = x[0]; }\n"
        "void run(float* x) { k<Traits<8, __half>><<<1, 32>>>(x); }"
    )
    assert k.dims(k.values(Kind.ALLOC)[0]) == (16,)
    assert only(k, Kind.ALLOC).dtype == "f16"


def test_a_call_that_was_not_given_is_said_to_be_unknown() -> None:
    k = body_of("y[0] = mystery(x[0]);")
    assert only(k, Kind.CALL).name == "mystery"
    assert [one.name for one in k.body.unresolved] == ["mystery"]


def test_what_an_unknown_call_may_write_is_unknown() -> None:
    k = body_of("float v[2] = {}; mystery(v); y[0] = v[1];")
    value = k.op(only(k, Kind.STORE).args[1])
    assert k.op(value.args[0]).kind is Kind.ITEM


def test_code_for_other_architectures_is_mentioned() -> None:
    found = program("__global__ void k(float* x) {\n#if __CUDA_ARCH__ < 700\n x[0] = __expf(x[1]);\n#endif\n}")
    assert [(m.name, m.reason, m.place.line) for m in found.mentions] == [("__expf", "disabled_branch", 3)]
    assert not ops(found.kernels[0].variants[0].body, Kind.ELEMENTWISE)


def test_places_lead_to_the_lines_of_the_source() -> None:
    found = program("#define LOAD(i) x[i]\n\n__global__ void k(float* x, float* y) {\n  y[0] =\n    LOAD(3);\n}")
    load = only(found.kernels[0].variants[0].body, Kind.LOAD)
    assert load.place.line == 5
    assert (found.kernels[0].place.line, found.kernels[0].place.end_line) == (3, 6)


def test_lines_are_mapped_when_the_source_stands_in_another_file() -> None:
    from d2k.analyzers.cuda.frontend import read

    source = "__global__ void k(float* x) {\n  x[0] = 1;\n}\n"
    found = read("kernel.py", source, line_map=(11, 12, 13, 14))
    assert (found.kernels[0].place.line, found.kernels[0].place.end_line) == (11, 13)


def test_bytes_that_cannot_be_parsed_are_counted_for_their_kernel() -> None:
    found = program("__global__ void good(float* x) { x[0] = 1; }\n__global__ void bad(float* x) { x[0] = = 2 @@ ; }")
    good, bad = found.kernels
    assert "error_bytes" not in good.attrs
    assert isinstance(bad.attrs["error_bytes"], int) and bad.attrs["error_bytes"] > 0
    assert found.problems[0].kernels == ("bad",)


def test_a_kernel_without_a_launch_is_exported_and_beside_others_dead() -> None:
    assert kernel("__global__ void k() {}").reach is Reach.EXPORTED
    found = program("__global__ void a() {}\n__global__ void k() {}\nvoid run() { a<<<1, 1>>>(); }")
    assert {one.name: one.reach for one in found.kernels} == {"a": Reach.LAUNCHED, "k": Reach.DEAD}


def uniform(k: KernelView) -> bool:
    return all(arg < value for value, op in enumerate(k.body.ops) for arg in op.args if op.kind is not Kind.PHI)


def test_operands_come_before_their_users() -> None:
    k = body_of(
        "float m = -INFINITY, l = 0; for (int j = 0; j < n; ++j) { float s = x[j]; float o = m; m = fmaxf(m, s);"
        " l = l * expf(o - m) + expf(s - m); } y[0] = l;"
    )
    assert uniform(k)


def test_helpers_that_nobody_calls_and_dead_kernels_are_mentioned() -> None:
    found = program(
        "__device__ float used(float a) { return __expf(a); }\n"
        "__device__ float inner(float a) { return __logf(a); }\n"
        "__device__ float unused(float a) { return inner(a) + rsqrtf(a); }\n"
        "__global__ void k(float* x) { x[0] = used(x[1]); }\n"
        "__global__ void dead(float* x) { x[0] = __sinf(x[1]); }\n"
        "void run(float* x) { k<<<1, 1>>>(x); }"
    )
    assert {(m.name, m.reason, m.detail) for m in found.mentions} == {
        ("__logf", "helper_not_called", "inner"),
        ("rsqrtf", "helper_not_called", "unused"),
        ("__sinf", "dead_code", "dead"),
    }


def test_vectors_in_a_register_array_are_read_element_by_element() -> None:
    k = body_of(
        "uint4 v[2]; v[n] = p[0]; const __half2* h = reinterpret_cast<const __half2*>(&v[n]); y[0] = h[3].x;",
        "const uint4* p, float* y, int n",
    )
    element = next(op for op in ops(k, Kind.SHAPE, name="index") if len(op.args) == 3)
    assert k.op(element.args[0]).name == "insert" and k.fold(element.args[2]) == 3


def test_members_of_a_union_are_one_variable() -> None:
    k = body_of(
        "union { uint4 whole; __half part[8]; } u; u.whole = p[n]; y[0] = __half2float(u.part[5]);",
        "const uint4* p, float* y, int n",
    )
    element = k.op(k.strip(only(k, Kind.STORE).args[1]))
    assert (element.name, k.op(element.args[0]).kind, k.fold(element.args[1])) == ("index", Kind.LOAD, 5)


def test_members_of_an_unnamed_union_belong_to_the_struct() -> None:
    k = view(
        "struct V { int n; union { float4 f; float e[4]; }; };\n"
        "__global__ void k(const float4* x, float* y) { V v; v.f = x[0]; y[0] = v.e[2]; }"
    )
    element = k.op(only(k, Kind.STORE).args[1])
    assert (element.name, k.op(element.args[0]).kind) == ("index", Kind.LOAD)


def test_rows_of_a_block_that_is_a_warp_wide_are_warps() -> None:
    source = "__global__ void k(float* x) { x[threadIdx.y] = 1; }\nvoid run(float* x) { k<<<1, dim3(WIDTH, 4)>>>(x); }"
    assert len(ops(view(source.replace("WIDTH", "32")), Kind.WARP)) == 1
    assert not ops(view(source.replace("WIDTH", "16")), Kind.WARP)


def test_c_linkage_exports() -> None:
    found = program(
        'extern "C" { __global__ void k(float* x) { x[0] = 1; } }\n'
        "__global__ void other(float* x) { x[0] = 1; }\nstatic void run(float* x) { other<<<1, 1>>>(x); }"
    )
    assert {one.name: one.reach for one in found.kernels} == {"k": Reach.EXPORTED, "other": Reach.LAUNCHED}


def test_recursion_is_followed_where_constants_end_it_and_a_few_times_elsewhere() -> None:
    k = view(
        "template <int N> __device__ float f(float a) { if constexpr (N > 0) return f<N - 1>(a * 2.f); return a; }\n"
        "__device__ int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }\n"
        "__global__ void k(float* x, int n) { x[gcd(n, 12)] = f<9>(x[0]); }"
    )
    assert len(ops(k, Kind.ELEMENTWISE, name="mul")) == 9
    assert only(k, Kind.CALL).attrs["recursive"] is True
    assert k.body.unresolved == ()


def test_lambda_templates_packs_and_deduced_classes() -> None:
    k = view(
        "template <typename F> struct Ring { F func; __device__ explicit Ring(F&& f) : func(f) {}\n"
        " __device__ auto operator[](int i) { return func(i); } };\n"
        "template <int... I, typename F> __device__ void each(std::integer_sequence<int, I...>, F&& f) {\n"
        " (f.template operator()<I>(), ...); }\n"
        "__global__ void k(float* x) { auto ring = Ring([&](int i) { return x + i * 8; });\n"
        " each(std::make_integer_sequence<int, 3>{}, [&]<int I>() { ring[I][I] = 1.f; }); }"
    )
    assert len(ops(k, Kind.STORE)) == 3
    assert {k.pointer(op.args[0]) for op in ops(k, Kind.STORE)} == {"x"}


def test_pointers_to_arrays_step_by_rows() -> None:
    k = body_of("extern __shared__ float s[]; float (*t)[33] = reinterpret_cast<float (*)[33]>(s); t[n][1] = x[0];")
    store = only(k, Kind.STORE)
    assert store.attrs["space"] == "shared"
    assert 33 in [k.fold(v) for v in k.slice(store.args[0])] and k.fold(store.args[3]) == 1


def test_aligned_vectors_have_the_element_type_of_their_array() -> None:
    k = view(
        "template <typename T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };\n"
        "__global__ void k(const __half* x, __half* y) { using V = Vec<__half, 8>;\n"
        " V a = *reinterpret_cast<const V*>(x + 8); *reinterpret_cast<V*>(y) = a; }"
    )
    for op in (only(k, Kind.LOAD), only(k, Kind.STORE)):
        assert (op.attrs["via"], op.attrs["bits"], op.dtype) == ("vector", 128, "f16")


def test_template_template_parameters_are_the_templates_they_are_bound_to() -> None:
    k = view(
        "template <typename T> struct Max { __device__ T operator()(T a, T b) const { return a > b ? a : b; } };\n"
        "template <template <typename> class Op, typename T> __device__ T apply(T a, T b) { return Op<T>()(a, b); }\n"
        "__global__ void k(float* x) { x[0] = apply<Max, float>(x[1], x[2]); }"
    )
    assert k.op(only(k, Kind.STORE).args[1]).name == "where"


def test_wide_accesses_fill_and_read_register_arrays() -> None:
    k = body_of(
        "__half v[8]; *(uint4*)v = *(const uint4*)(x + n); float4 w; float f[8];"
        " reinterpret_cast<float4*>(f)[1] = q[n]; y[0] = __half2float(v[n]) + f[5];",
        "const __half* x, const float4* q, float* y, int n",
    )
    total = k.op(only(k, Kind.STORE).args[1])
    first, second = (k.op(k.strip(arg)) for arg in total.args)
    # the whole of v is what was loaded; elements 4 to 7 of f were replaced
    assert k.op(first.args[0]).kind is Kind.LOAD
    insert = k.op(second.args[0])
    assert (insert.name, k.fold(insert.args[2]), insert.attrs["lanes"]) == ("insert", 4, 4)
    assert k.op(insert.args[1]).kind is Kind.LOAD
