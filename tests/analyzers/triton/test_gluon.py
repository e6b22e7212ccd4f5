"""Gluon and TLX: what their calls name is what the kernel does."""

from __future__ import annotations

from triton_facts import find, form, one, program

from d2k.spec.facts import NONE, Body, Kernel, Kind, Reach

GLUON = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, fence_async_shared
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory
from triton.experimental.gluon.language.nvidia.blackwell import tcgen05_mma, tcgen05_commit, tcgen05_mma_scaled
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
"""

PIPELINE = """
@gluon.jit
def loader(desc, bufs, ready, empty, K, BK: gl.constexpr, STAGES: gl.constexpr):
    for k in range(0, K, BK):
        s = (k // BK) % STAGES
        mbarrier.wait(empty.index(s), 1)
        mbarrier.expect(ready.index(s), 16384)
        tma.async_copy_global_to_shared(desc, [0, k], ready.index(s), bufs.index(s), multicast=True)

@gluon.jit
def mma(bufs, acc, ready, empty, done, K, BK: gl.constexpr, STAGES: gl.constexpr):
    for k in range(0, K, BK):
        s = (k // BK) % STAGES
        mbarrier.wait(ready.index(s), 0)
        tcgen05_mma(bufs.index(s), bufs.index(s), acc, use_acc=k > 0, mbarriers=[empty.index(s)])
    tcgen05_commit(done)

@gluon.jit
def epilogue(desc, acc, done):
    mbarrier.wait(done, 0)
    out = gl.allocate_shared_memory(gl.float16, [128, 128], desc.layout)
    out.store(acc.load().to(gl.float16))
    fence_async_shared()
    tma.async_copy_shared_to_global(desc, [0, 0], out)
    tma.store_wait(0)

@gluon.jit
def k(a, c, K, BK: gl.constexpr, STAGES: gl.constexpr):
    bufs = gl.allocate_shared_memory(gl.float16, [STAGES, 128, BK], gl.NVMMASharedLayout(128, 16, 2))
    acc = allocate_tensor_memory(gl.float32, [128, 128], TensorMemoryLayout([128, 128], col_stride=1, two_ctas=True))
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = mbarrier.allocate_mbarrier()
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)
    gl.warp_specialize([
        (epilogue, (c, acc, done)),
        (loader, (a, bufs, ready, empty, K, BK, STAGES)),
        (mma, (bufs, acc, ready, empty, done, K, BK, STAGES)),
    ], [1, 4], [24, 192])

def run(a, c):
    layout = gl.NVMMASharedLayout.get_default_for([128, 64], gl.float16)
    k[(1,)](TensorDescriptor.from_tensor(a, [128, 64], layout), TensorDescriptor.from_tensor(c, [128, 128], layout),
            a.shape[1], 64, 3, num_warps=4)
"""


def gluon(code: str, name: str = "k") -> Kernel:
    found = program(code, header=GLUON)
    assert found.languages == ("gluon",)
    return next(one for one in found.kernels if one.name == name)


def lowered(code: str) -> Body:
    return gluon(code).variants[0].body


def test_partitions_name_their_operations() -> None:
    kernel = gluon(PIPELINE)
    assert (kernel.language, kernel.reach) == ("gluon", Reach.LAUNCHED)
    body = kernel.variants[0].body
    assert body.unresolved == ()
    by_kind = {op.kind: op.partition for op in body.ops if op.kind in (Kind.MMA, Kind.WAIT)}
    assert by_kind == {Kind.MMA: "mma", Kind.WAIT: "epilogue"}
    load, store = (body.ops[at] for at in sorted(find(body, Kind.COPY), key=lambda at: body.ops[at].attrs["direction"]))
    assert (load.partition, store.partition) == ("loader", "epilogue")
    partitions = [body.ops[at].attrs for at in find(body, Kind.CONTROL, "partition")]
    assert partitions == [
        {"default": True},
        {"default": False, "warps": 1, "registers": 24},
        {"default": False, "warps": 4, "registers": 192},
    ]
    assert all(op.partition == "" for op in body.ops if op.kind is Kind.ALLOC and op.variable != "out")


def test_copies_name_destination_source_and_barrier() -> None:
    body = lowered(PIPELINE)
    load = next(body.ops[at] for at in find(body, Kind.COPY) if body.ops[at].attrs["direction"] == "load")
    assert (load.name, load.attrs["tensor"], load.attrs["multicast"]) == ("tma", True, True)
    assert form(body, load.args[0]).startswith("index(shared(), mod(")
    assert form(body, load.args[1]) == "a"
    assert body.ops[body.ops[load.args[2]].args[0]].attrs["barrier"] is True
    assert [form(body, arg) for arg in load.args[3:]] == ["0", "phi:k"]


def test_tensor_memory_and_two_cta_products() -> None:
    body = lowered(PIPELINE)
    memory = next(body.ops[at] for at in find(body, Kind.ALLOC, "tmem"))
    assert memory.dtype == "f32"
    product = one(body, Kind.MMA)
    assert product.attrs["instr"] == "tcgen05"
    assert product.attrs["cta_group"] == 2
    assert (product.attrs["a_dtype"], product.attrs["acc_dtype"]) == ("f16", "f32")
    assert len(find(body, Kind.COMMIT, "tcgen05")) == 2  # the barrier of the product, and the one after the loop
    load = next(body.ops[at] for at in find(body, Kind.LOAD))
    assert load.attrs["space"] == "tmem"


def test_shared_memory_says_its_layout() -> None:
    body = lowered("""
    WIDE: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16)
    PAD: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[64, 4]], [64, 64], [1, 0])

    @gluon.jit
    def k(p):
        a = gl.allocate_shared_memory(gl.float16, [64, 64], WIDE)
        b = gl.allocate_shared_memory(gl.float16, [64, 64], gl.SwizzledSharedLayout(8, 1, 8, [1, 0]))
        c = gl.allocate_shared_memory(gl.float16, [64, 64], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
        d = gl.allocate_shared_memory(gl.float16, [64, 64], PAD)
        e = gl.allocate_shared_memory(gl.float16, [64, 64], gl.NVMMASharedLayout(0, 16))
        d.store(a.load(gl.AutoLayout()) + b.load(gl.AutoLayout()) + c.load(gl.AutoLayout()) + e.load(gl.AutoLayout()))
    """)
    layouts = {body.ops[at].variable: body.ops[at].attrs for at in find(body, Kind.ALLOC)}
    assert (layouts["a"]["layout"], layouts["a"]["swizzle"]) == ("swizzle", 64)
    assert [layouts[name]["layout"] for name in "bcde"] == ["xor", "none", "padding", "none"]
    assert len(find(body, Kind.LOAD)) == 4


def test_cp_async_groups_and_hopper_products() -> None:
    body = lowered("""
    @gluon.jit
    def k(p, q, n, layout: gl.constexpr):
        smem = gl.allocate_shared_memory(gl.bfloat16, [2, 64, 64], layout)
        offs = gl.arange(0, 64)[:, None] * 64 + gl.arange(0, 64)[None, :]
        acc = gl.zeros([64, 64], gl.float32, layout)
        for i in range(n):
            async_copy.async_copy_global_to_shared(smem.index(i % 2), p + offs, mask=offs < n)
            async_copy.commit_group()
            async_copy.wait_group(1)
            acc = warpgroup_mma(smem.index(0), smem.index(1), acc, is_async=True)
            acc = warpgroup_mma_wait(num_outstanding=0, deps=[acc])
        gl.store(q + offs, acc)
    """)
    copy = one(body, Kind.COPY)
    assert (copy.name, copy.attrs["direction"]) == ("cp_async", "load")
    assert form(body, copy.args[2]).startswith("lt(")
    assert one(body, Kind.COMMIT).name == "cp_async"
    waits = {body.ops[at].name: body.ops[at].attrs["outstanding"] for at in find(body, Kind.WAIT)}
    assert waits == {"cp_async": 1, "wgmma": 0}
    product = one(body, Kind.MMA)
    assert (product.attrs["instr"], product.attrs["a_dtype"]) == ("wgmma", "bf16")
    assert [carried.variable for carried in body.loops[0].carried] == ["acc"]
    assert body.unresolved == ()


def test_objects_with_fields_and_methods() -> None:
    body = lowered("""
    from triton.language.core import _aggregate as aggregate

    @aggregate
    class Counter:
        index: gl.tensor
        phase: gl.tensor
        depth: gl.constexpr

        @gluon.constexpr_function
        def __init__(self, index, phase, depth):
            self.index = index
            self.phase = phase
            self.depth = gl.constexpr(depth)

        @gluon.jit
        def next(self):
            wrapped = self.index + 1 == self.depth
            index = gl.where(wrapped, 0, self.index + 1)
            return Counter(index, self.phase ^ wrapped, self.depth)

    @gluon.jit
    def k(p, n):
        c = Counter(gl.to_tensor(0), gl.to_tensor(1), 3)
        for i in range(n):
            gl.store(p + c.index, c.phase)
            c = c.next()
    """)
    assert {one.variable for one in body.loops[0].carried} == {"c.index", "c.phase"}
    assert body.unresolved == ()


TLX = """
import torch
import triton
import triton.language as tl
import triton.language.extra.tlx as tlx
"""


def test_tlx_tasks_barriers_and_products() -> None:
    code = """
    @triton.jit
    def k(a_desc, b_desc, c, n, BM: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr):
        bufs = tlx.local_alloc((BM, BK), tl.float16, STAGES)
        acc = tlx.local_alloc((BM, BM), tl.float32, tl.constexpr(1), tlx.storage_kind.tmem)
        full = tlx.alloc_barriers(num_barriers=STAGES, arrive_count=1)
        with tlx.async_tasks():
            with tlx.async_task("default"):
                out = tlx.local_load(tlx.local_view(acc, 0))
                tl.store(c + tl.arange(0, BM)[:, None] + tl.arange(0, BM)[None, :], out)
            with tlx.async_task(num_warps=1, num_regs=24):
                for i in range(n):
                    tlx.barrier_expect_bytes(full[i % STAGES], 2 * BM * BK)
                    tlx.async_descriptor_load(a_desc, bufs[i % STAGES], [0, i * BK], full[i % STAGES])
            with tlx.async_task(num_warps=4):
                for i in range(n):
                    tlx.barrier_wait(full[i % STAGES], 0)
                    tlx.async_dot(bufs[i % STAGES], tlx.local_trans(bufs[i % STAGES]), acc[0])
    """
    found = program(code, header=TLX)
    assert found.languages == ("triton", "tlx")
    body = found.kernels[0].variants[0].body
    assert body.unresolved == ()
    copy, product = one(body, Kind.COPY), one(body, Kind.MMA)
    assert (copy.name, copy.attrs["direction"]) == ("tma", "load")
    assert product.attrs["instr"] == "tcgen05"
    assert len({copy.partition, product.partition, one(body, Kind.STORE).partition}) == 3
    assert one(body, Kind.STORE).partition == "default"
    assert {op.partition for op in body.ops if op.kind is Kind.ALLOC} == {""}


def test_tlx_groups() -> None:
    code = """
    @triton.jit
    def k(a, b, c, n, BM: tl.constexpr):
        bufs = tlx.local_alloc((BM, BM), tl.float16, 2)
        offs = tl.arange(0, BM)[:, None] * BM + tl.arange(0, BM)[None, :]
        acc = tl.zeros((BM, BM), tl.float32)
        for i in tl.range(0, n):
            token = tlx.async_load(a + offs, bufs[i % 2])
            tlx.async_load_commit_group([token])
            tlx.async_load_wait_group(1)
            acc = tlx.async_dot(bufs[0], bufs[1], acc)
            acc = tlx.async_dot_wait(0, acc)
        tl.store(c + offs, acc)
    """
    body = program(code, header=TLX).kernels[0].variants[0].body
    copy = one(body, Kind.COPY)
    assert copy.name == "cp_async"
    assert copy.args[2] == NONE
    assert one(body, Kind.MMA).attrs["instr"] == "wgmma"
    assert {one.variable for one in body.loops[0].carried} == {"acc"}
