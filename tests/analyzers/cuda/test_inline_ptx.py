"""Inline PTX: each instruction becomes the operation that it is, with operands bound to C++ values."""

from __future__ import annotations

import pytest
from cuda_facts import body_of, only, ops, view

from d2k.spec.facts import NONE, Kind

SMEM = "uint32_t s = __cvta_generic_to_shared(buf); "
BUFFER = "__shared__ __align__(128) char buf[1024]; "


@pytest.mark.parametrize(
    ("instruction", "kind", "name", "attrs"),
    [
        ("cp.async.commit_group;", Kind.COMMIT, "cp_async", {}),
        ("cp.async.wait_group 2;", Kind.WAIT, "cp_async", {"outstanding": 2}),
        ("cp.async.wait_all;", Kind.WAIT, "cp_async", {"outstanding": 0}),
        ("cp.async.bulk.commit_group;", Kind.COMMIT, "bulk", {}),
        ("cp.async.bulk.wait_group.read 1;", Kind.WAIT, "bulk", {"outstanding": 1, "read": True}),
        ("wgmma.fence.sync.aligned;", Kind.FENCE, "fence", {"proxy": "wgmma"}),
        ("wgmma.commit_group.sync.aligned;", Kind.COMMIT, "wgmma", {}),
        ("wgmma.wait_group.sync.aligned 0;", Kind.WAIT, "wgmma", {"outstanding": 0}),
        ("setmaxnreg.inc.sync.aligned.u32 240;", Kind.CONTROL, "setmaxnreg_inc", {"registers": 240}),
        ("setmaxnreg.dec.sync.aligned.u32 40;", Kind.CONTROL, "setmaxnreg_dec", {"registers": 40}),
        ("griddepcontrol.wait;", Kind.CONTROL, "pdl_wait", {}),
        ("griddepcontrol.launch_dependents;", Kind.CONTROL, "pdl_launch", {}),
        ("bar.sync 0;", Kind.BARRIER, "syncthreads", {}),
        ("bar.sync 1, 128;", Kind.BARRIER, "named", {}),
        ("bar.arrive 2, 256;", Kind.BARRIER, "named", {"arrive": True}),
        ("barrier.cluster.arrive.aligned;", Kind.BARRIER, "cluster", {"wait": False}),
        ("barrier.cluster.wait.aligned;", Kind.BARRIER, "cluster", {"wait": True}),
        ("fence.proxy.async.shared::cta;", Kind.FENCE, "fence", {"proxy": "async"}),
        ("fence.acq_rel.gpu;", Kind.FENCE, "fence", {"sem": "acq_rel", "scope": "gpu"}),
        ("membar.gl;", Kind.FENCE, "fence", {"scope": "gpu", "sem": "sc"}),
        ("tcgen05.wait::ld.sync.aligned;", Kind.WAIT, "tcgen05", {"what": "ld"}),
        ("tcgen05.fence::after_thread_sync;", Kind.FENCE, "fence", {"proxy": "tcgen05"}),
        ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", Kind.CONTROL, "tmem_relinquish", {}),
        ("nanosleep.u32 20;", Kind.CONTROL, "nanosleep", {}),
    ],
)
def test_instructions_without_cpp_operands(instruction: str, kind: Kind, name: str, attrs: dict[str, object]) -> None:
    op = only(body_of(f'asm volatile("{instruction}");'), kind)
    assert (op.name, dict(op.attrs)) == (name, attrs)


def test_cp_async_copies_from_global_to_shared() -> None:
    k = body_of(
        BUFFER + SMEM + 'asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(s), "l"(x + n));'
    )
    copy = only(k, Kind.COPY)
    assert copy.name == "cp_async"
    assert dict(copy.attrs) == {"direction": "load", "cache": "cg", "bytes": 16}
    assert k.op(k.roots(copy.args[0])[0]).name == "buf"
    assert k.pointer(copy.args[1]) == "x"


def test_text_joined_from_strings_and_macros_is_one_statement() -> None:
    k = view(
        '#define OP "cp.async.wait_group"\n#define N 3\n#define STR(x) #x\n#define XSTR(x) STR(x)\n'
        '__global__ void k() { asm volatile(OP " " XSTR(N) ";" ::); }'
    )
    assert only(k, Kind.WAIT).attrs["outstanding"] == 3


def test_immediate_operands_take_template_constants() -> None:
    k = view(
        'template <int N> __device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N)); }\n'
        "__global__ void k() { wait<2>(); }"
    )
    assert only(k, Kind.WAIT).attrs["outstanding"] == 2


def test_tma_load_and_store_name_map_coordinates_and_barrier() -> None:
    k = body_of(
        BUFFER
        + "__shared__ uint64_t bar; "
        + SMEM
        + "uint32_t b = __cvta_generic_to_shared(&bar); "
        + 'asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes'
        '.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" :: "r"(s), "l"(&map), "r"(n), "r"(0), "r"(b), "h"(mask));'
        'asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"'
        ' :: "l"(&map), "r"(n), "r"(0), "r"(s));',
        "const __grid_constant__ CUtensorMap map, int n, uint16_t mask",
    )
    load, store = ops(k, Kind.COPY)
    assert (load.name, load.attrs["direction"], load.attrs["multicast"], load.attrs["rank"]) == ("tma", "load", True, 2)
    assert [k.op(arg).name for arg in load.args[:2]] == ["buf", "map"]
    assert (store.attrs["direction"], [k.op(arg).name for arg in store.args[:2]]) == ("store", ["map", "buf"])


def test_bulk_copies_and_reductions() -> None:
    k = body_of(
        BUFFER + SMEM + 'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes'
        ' [%0], [%1], 512, [%2];" :: "r"(s), "l"(x), "r"(s));'
        'asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 256;" :: "l"(y), "r"(s));'
    )
    load, reduce = ops(k, Kind.COPY)
    assert (load.name, load.attrs["direction"], load.attrs["bytes"]) == ("bulk", "load", 512)
    assert (reduce.attrs["direction"], k.pointer(reduce.args[0])) == ("reduce", "y")


def test_mbarriers() -> None:
    k = body_of(
        "__shared__ uint64_t bar[4]; uint32_t b = __cvta_generic_to_shared(&bar[n]); uint32_t ok; "
        'asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(1));'
        'asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(b), "r"(2048));'
        'asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b));'
        'asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"'
        ' : "=r"(ok) : "r"(b), "r"(n & 1)); if (ok) y[0] = 1;'
    )
    found = {op.name: op for op in ops(k, Kind.BARRIER)}
    assert set(found) == {"mbarrier_init", "mbarrier_expect", "mbarrier_arrive", "mbarrier_wait"}
    assert found["mbarrier_init"].attrs["count"] == 1
    assert found["mbarrier_expect"].attrs["bytes"] == 2048
    assert all("bar" in {k.op(root).name for root in k.roots(op.args[0])} for op in found.values())
    guard = only(k, Kind.STORE).guards[0]
    assert any(k.op(value).name == "mbarrier_wait" for value in k.slice(guard.value))


def test_mma_sync_reads_and_writes_its_accumulator_array() -> None:
    k = body_of(
        "float d[4] = {}; uint32_t a[4], b[2]; for (int i = 0; i < n; ++i) "
        'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9},'
        ' {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])'
        ' : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); y[0] = d[0];'
    )
    mma = only(k, Kind.MMA)
    assert {key: mma.attrs[key] for key in ("instr", "m", "n", "k", "a_dtype", "b_dtype", "acc_dtype")} == {
        "instr": "mma_sync",
        "m": 16,
        "n": 8,
        "k": 16,
        "a_dtype": "bf16",
        "b_dtype": "bf16",
        "acc_dtype": "f32",
    }
    carried = next(one for one in k.loop(0).carried if one.variable == "d")
    assert mma.args[2] == carried.phi and k.op(carried.next) == mma


def test_scalar_accumulators_are_items_of_the_instruction() -> None:
    k = body_of(
        "float d0 = 0, d1 = 0; uint32_t a = n, b = n;"
        'asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"'
        ' : "+f"(d0), "+f"(d1) : "r"(a), "r"(b)); y[0] = d1;'
    )
    value = k.op(k.strip(only(k, Kind.STORE).args[1]))
    assert (value.kind, value.attrs["index"], k.op(value.args[0]).kind) == (Kind.ITEM, 1, Kind.MMA)


@pytest.mark.parametrize(("scale", "accumulates"), [("1", True), ("0", False)])
def test_wgmma_with_descriptors(scale: str, accumulates: bool) -> None:
    registers = ", ".join(f"%{i}" for i in range(4))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(4))
    k = body_of(
        f'float d[4] = {{}}; asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{{registers}}},'
        f' %4, %5, {scale}, 1, 1, 0, 0;" : {outputs} : "l"(da), "l"(db)); y[0] = d[0];',
        "float* y, uint64_t da, uint64_t db",
    )
    mma = only(k, Kind.MMA)
    assert (mma.attrs["instr"], mma.attrs["m"], mma.attrs["n"], mma.attrs["a_dtype"]) == ("wgmma", 64, 8, "f16")
    assert [k.op(arg).name for arg in mma.args[:2]] == ["da", "db"]
    assert (mma.args[2] != NONE) is accumulates


def test_tcgen05_allocates_multiplies_and_loads_tensor_memory() -> None:
    k = body_of(
        "__shared__ uint32_t base; uint32_t r;"
        'asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 256;"'
        ' :: "r"((uint32_t)__cvta_generic_to_shared(&base)));'
        'asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }"'
        ' :: "r"(base), "l"(da), "l"(db), "r"(0x8200490), "r"(n));'
        'asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(r) : "r"(base + 16)); y[0] = r;',
        "float* y, uint64_t da, uint64_t db, int n",
    )
    alloc = next(v for v in k.values(Kind.ALLOC) if k.op(v).attrs["space"] == "tmem")
    assert k.op(alloc).attrs["columns"] == 256
    mma = only(k, Kind.MMA)
    # the descriptor 0x8200490 says: fp32 accumulators, bf16 operands, N = 128, M = 128
    expected = {"instr": "tcgen05", "cta_group": 2, "a_dtype": "bf16", "b_dtype": "bf16", "m": 128, "n": 128, "k": 16}
    assert {key: mma.attrs[key] for key in expected} == expected
    assert mma.args[2] == alloc
    load = next(op for op in ops(k, Kind.LOAD) if op.attrs["space"] == "tmem")
    assert alloc in k.slice(load.args[0])


@pytest.mark.parametrize(
    ("kind", "scaled"),
    [
        ("kind::mxf8f6f4.block_scale.scale_vec::1X", "mxfp8"),
        ("kind::mxf4.block_scale.scale_vec::2X", "mxfp4"),
        ("kind::mxf4nvf4.block_scale.scale_vec::4X", "nvfp4"),
        ("kind::mxf4nvf4.block_scale.scale_vec::2X", "mxfp4"),
        ("kind::f8f6f4", None),
    ],
)
def test_block_scaled_matrix_instructions(kind: str, scaled: str | None) -> None:
    k = body_of(
        f'asm volatile("tcgen05.mma.cta_group::1.{kind} [%0], %1, %2, %3, 1;" :: "r"(n), "l"(x), "l"(y), "r"(n));'
    )
    assert only(k, Kind.MMA).attrs.get("scaled") == scaled


@pytest.mark.parametrize(
    ("instruction", "attrs"),
    [
        (
            "ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];",
            {"space": "global", "via": "vector", "bits": 128, "cache": "read_only", "eviction": "no_allocate"},
        ),
        ("ld.global.cs.v2.f32 {%0, %1}, [%4];", {"space": "global", "via": "vector", "bits": 64, "cache": "cs"}),
        ("ld.acquire.gpu.global.f32 %0, [%4];", {"sem": "acquire", "scope": "gpu", "bits": 32, "via": "pointer"}),
        ("ld.volatile.global.f32 %0, [%4];", {"volatile": True}),
        ("ld.global.L1::evict_last.f32 %0, [%4];", {"eviction": "evict_last"}),
        ("ld.shared::cluster.f32 %0, [%4];", {"space": "shared", "cluster": True}),
    ],
)
def test_loads(instruction: str, attrs: dict[str, object]) -> None:
    k = body_of(
        f'float4 v; asm volatile("{instruction}" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(x)); y[0] = v.x;'
    )
    load = only(k, Kind.LOAD)
    assert {key: load.attrs.get(key) for key in attrs} == attrs
    assert k.pointer(load.args[0]) == "x"


def test_a_cache_hint_is_the_policy_that_was_created() -> None:
    k = body_of(
        "uint64_t policy; float v;"
        'asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));'
        'asm("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(v) : "l"(x), "l"(policy)); y[0] = v;'
    )
    assert only(k, Kind.LOAD).attrs["eviction"] == "evict_first"


def test_stores_and_vector_reductions_put_the_value_second() -> None:
    k = body_of(
        'asm volatile("st.global.cs.f32 [%0], %1;" :: "l"(y), "f"(x[0]));'
        'asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" :: "l"(y), "f"(x[1]), "f"(x[2]));'
    )
    store, red = only(k, Kind.STORE), only(k, Kind.ATOMIC)
    assert k.op(store.args[1]).kind is Kind.LOAD and store.attrs["cache"] == "cs"
    assert (red.name, red.attrs["width"], red.attrs["returns"]) == ("add", 2, False)


@pytest.mark.parametrize(
    ("instruction", "kind", "name"),
    [
        ("shfl.sync.bfly.b32 %0, %1, 16, 0x1f, 0xffffffff;", Kind.SHUFFLE, "xor"),
        ("shfl.sync.down.b32 %0, %1, 1, 0x1f, -1;", Kind.SHUFFLE, "down"),
        ("redux.sync.max.s32 %0, %1, 0xffffffff;", Kind.REDUX, "max"),
        ("ex2.approx.ftz.f32 %0, %1;", Kind.ELEMENTWISE, "exp2"),
        ("rcp.approx.f32 %0, %1;", Kind.ELEMENTWISE, "rcp"),
        ("rsqrt.approx.f32 %0, %1;", Kind.ELEMENTWISE, "rsqrt"),
        ("tanh.approx.f32 %0, %1;", Kind.ELEMENTWISE, "tanh"),
        ("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;", Kind.CAST, "cast"),
        ("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;", Kind.ELEMENTWISE, "lop3"),
    ],
)
def test_register_instructions(instruction: str, kind: Kind, name: str) -> None:
    k = body_of(f'float v = x[0], r; asm("{instruction}" : "=f"(r) : "f"(v)); y[0] = r;')
    op = next(op for op in ops(k, kind) if op.name == name)
    assert k.op(op.args[0]).kind in (Kind.LOAD, Kind.SHAPE)
    assert any(k.op(value) == op for value in k.slice(only(k, Kind.STORE).args[1]))


def test_packed_and_fast_arithmetic_say_so() -> None:
    k = body_of(
        'uint64_t r; asm("fma.rn.f32x2 %0, %1, %1, %1;" : "=l"(r) : "l"(n)); float e; asm("ex2.approx.f32 %0, %1;"'
        ' : "=f"(e) : "f"(x[0])); y[0] = e + r;'
    )
    assert only(k, Kind.ELEMENTWISE, name="fma").attrs["packed"] == 2
    assert only(k, Kind.ELEMENTWISE, name="exp2").attrs["fast"] is True
    # what is not asked for by name is not fast
    assert "fast" not in only(body_of("y[0] = exp2f(x[0]);"), Kind.ELEMENTWISE, name="exp2").attrs


def test_elect_sync_is_a_vote_and_guards() -> None:
    k = body_of(
        'uint32_t e; asm("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(e));'
        " if (e) y[0] = 1;"
    )
    assert any(k.op(v).name == "elect" for v in k.slice(only(k, Kind.STORE).guards[0].value))


def test_predicated_instructions_are_guarded() -> None:
    k = body_of(
        'asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p st.global.f32 [%0], %1; @!p trap; }"'
        ' :: "l"(y), "f"(x[0]), "r"(n));'
    )
    guard = only(k, Kind.STORE).guards[0]
    assert (k.op(guard.value).name, guard.expected) == ("ne", True)


def test_special_registers() -> None:
    k = body_of(
        'uint32_t l, c; asm("mov.u32 %0, %%laneid;" : "=r"(l));'
        ' asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(c)); y[l + c] = 0;'
    )
    assert len(ops(k, Kind.LANE)) == len(ops(k, Kind.CLUSTER_RANK)) == 1


def test_ldmatrix_fills_a_row_of_a_register_array() -> None:
    k = body_of(
        BUFFER + SMEM + "uint32_t a[2][4]; for (int i = 0; i < 2; ++i) "
        'asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"'
        ' : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3]) : "r"(s + i * 512)); y[0] = a[1][0];'
    )
    load = only(k, Kind.LOAD)
    assert (load.attrs["space"], load.attrs["via"], load.attrs["bits"]) == ("shared", "matrix", 128)
    insert = only(k, Kind.SHAPE, name="insert")
    assert k.op(insert.args[1]) == load and len(insert.args) == 3


def test_an_instruction_that_no_table_knows_stays_as_assembly() -> None:
    k = body_of('float r; asm("frobnicate.f32 %0, %1;" : "=f"(r) : "f"(x[0])); y[0] = r;')
    op = only(k, Kind.ASM)
    assert (op.name, op.attrs["modifiers"]) == ("frobnicate", ("f32",))
    assert k.op(op.args[0]).kind is Kind.LOAD


def test_an_empty_statement_changes_nothing() -> None:
    k = body_of('float v = x[0]; asm volatile("" : "+f"(v) :: "memory"); y[0] = v;')
    assert k.op(only(k, Kind.STORE).args[1]).kind is Kind.LOAD
