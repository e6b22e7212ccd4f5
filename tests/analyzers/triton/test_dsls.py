"""cuTile, TileLang and the CuTe DSL: kernels and launches found, plain calls lowered, the rest said to be open."""

from __future__ import annotations

from triton_facts import dims, find, form, one, program

from d2k.spec.facts import Kind, Reach

CUTILE = """
import torch
import cuda.tile as ct
ConstInt = ct.Constant[int]

@ct.kernel
def mm(A, B, C, K, TM: ConstInt, TN: ConstInt, TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.full((TM, TN), 0.0, dtype=ct.float32)
    for k in range(ct.cdiv(K, TK)):
        a = ct.load(A, index=(i, k), shape=(TM, TK))
        b = ct.load(B, index=(k, j), shape=(TK, TN))
        acc = ct.mma(a, b, acc)
    ct.store(C, index=(i, j), tile=ct.astype(acc, ct.bfloat16))

def run(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    ct.launch(torch.cuda.current_stream(), (4, 4, 1), mm, (a, b, c, a.shape[1], 128, 256, 64))
    return c
"""


def test_cutile() -> None:
    found = program(CUTILE, header="")
    assert found.languages == ("cutile",)
    (kernel,) = found.kernels
    assert (kernel.name, kernel.language, kernel.reach) == ("mm", "cutile", Reach.LAUNCHED)
    assert {param.name for param in kernel.params if param.pointer} == {"A", "B", "C"}
    (variant,) = kernel.variants
    assert dict(variant.constants) == {"TM": 128, "TN": 256, "TK": 64}
    body = variant.body
    load = body.ops[find(body, Kind.LOAD)[0]]
    assert (load.attrs["via"], [form(body, arg) for arg in load.args[2:]]) == ("array", ["pid0", "phi:k"])
    product = find(body, Kind.MMA)[0]
    assert dims(body, product, dict(variant.constants)) == (128, 256)
    assert [carried.variable for carried in body.loops[0].carried] == ["acc"]
    assert one(body, Kind.CAST).dtype == "bf16"
    assert [mention.name for mention in body.unresolved] == ["cutile"]


TILELANG = """
import tilelang
import tilelang.language as T

@tilelang.jit(out_idx=[-1])
def matmul(M, N, K, BM, BN, BK, dtype="float16", accum="float"):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            a = T.alloc_shared((BM, BK), dtype)
            b = T.alloc_shared((BK, BN), dtype)
            c = T.alloc_fragment((BM, BN), accum)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(K, BK), num_stages=3):
                T.copy(A[by * BM, ko * BK], a)
                T.copy(B[ko * BK, bx * BN], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(BM, BN):
                c[i, j] = T.max(c[i, j], 0)
            T.copy(c, C[by * BM, bx * BN])
    return main

def run(a, b):
    kernel = matmul(1024, 2048, 512, 128, 64, 32)
    return kernel(a, b)
"""


def test_tilelang() -> None:
    found = program(TILELANG, header="")
    assert found.languages == ("tilelang",)
    (kernel,) = found.kernels
    assert (kernel.name, kernel.reach) == ("matmul.main", Reach.LAUNCHED)
    (variant,) = kernel.variants
    assert variant.constants["BN"] == 64
    body = variant.body
    (loop,) = body.loops  # the parallel loop is none
    assert loop.attrs["num_stages"] == 3
    product = one(body, Kind.MMA)
    assert (product.attrs["a_dtype"], product.attrs["acc_dtype"]) == ("f16", "f32")
    assert dims(body, find(body, Kind.MMA)[0], dict(variant.constants)) == (128, 64)
    spaces = [(body.ops[at].kind.value, body.ops[at].attrs["space"]) for at in find(body, Kind.LOAD)]
    assert spaces == [("load", "global"), ("load", "global"), ("load", "local"), ("load", "local")]
    stores = [body.ops[at] for at in find(body, Kind.STORE)]
    assert [op.attrs["space"] for op in stores] == ["local", "shared", "shared", "local", "global"]
    assert form(body, stores[-1].args[0]) == "C"
    assert form(body, stores[-1].args[3]) == "mul(pid1, BM)"


CUTE = """
import torch
import cutlass
import cutlass.cute as cute

class Add:
    def __init__(self):
        self.threads = 256

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, stream):
        self.kernel(a, b, 3).launch(grid=(4, 1, 1), block=(self.threads, 1, 1), cluster=(2, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, a: cute.Tensor, b: cute.Tensor, n: cutlass.Constexpr):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        cute.arch.setmaxregister_decrease(40)
        if cutlass.const_expr(n > 2):
            cute.arch.griddepcontrol_wait()
        x = cute.arch.shuffle_sync_bfly(a[tidx], 16)
        b[bidx * self.threads + tidx] = cute.arch.mul_packed_f32x2(x, x)

def run(a, b):
    compiled = cute.compile(Add(), a, b, None)
    compiled(a, b, None)
"""


def test_cute_dsl() -> None:
    found = program(CUTE, header="")
    assert found.languages == ("cute_dsl",)
    (kernel,) = found.kernels
    assert (kernel.name, kernel.reach) == ("Add.kernel", Reach.LAUNCHED)
    (variant,) = kernel.variants
    assert (variant.launch.threads, variant.launch.cluster) == (256, (2, 1, 1))
    assert variant.constants["n"] == 3
    body = variant.body
    names = [body.ops[at].name for at in find(body, Kind.CONTROL)]
    assert names == ["setmaxnreg_dec", "pdl_wait"]
    assert body.ops[find(body, Kind.CONTROL)[0]].attrs["registers"] == 40
    assert one(body, Kind.SHUFFLE).name == "xor"
    store = one(body, Kind.STORE)
    assert body.ops[store.args[1]].attrs["packed"] == 2
    assert form(body, store.args[3]) == "add(mul(pid0, 256), thread_index())"
    assert [mention.name for mention in body.unresolved] == ["cute_dsl"]
