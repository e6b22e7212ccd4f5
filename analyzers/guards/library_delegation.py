"""Work that is handed to a library instead of being done by kernels of one's own."""

from __future__ import annotations

from d2k.analyzers.core.detector import Example
from d2k.analyzers.core.view import ProgramView
from d2k.analyzers.guards.run import Suspicion
from d2k.analyzers.patterns.contraction import contractions
from d2k.analyzers.patterns.host_calls import evidence, kernel_paths
from d2k.analyzers.patterns.libraries import LibraryCall, library_calls
from d2k.spec.facts import Kind
from d2k.spec.finding import Status

DEFINITION = (
    "Host code on the path of the kernels calls a library for heavy work: matrix products, convolutions, attention, "
    "whole operators, sorting and scanning; the answer says which share that is."
)


def suspect(program: ProgramView) -> Suspicion | None:
    paths = kernel_paths(program)
    found = [one for one in library_calls(program) if one.call.host in paths and one.call.host != "prepare"]
    delegated = [one for one in found if one.work != "template"]
    if not delegated:
        return None
    detail = f"{_share(program, delegated)}: {_names(delegated)}"
    templates = [one for one in found if one.work == "template"]
    if templates:
        detail += f"; apart from that an instance of a template library, which is authored design: {_names(templates)}"
    return Suspicion(detail, evidence(one.call for one in (*delegated, *templates)))


def _share(program: ProgramView, delegated: list[LibraryCall]) -> str:
    works = {one.work for one in delegated}
    if not program.kernels:
        return "no kernel of its own: libraries do all of the computation"
    if "compiled" in works:
        return "a compiler generates the code of a part"
    if "contraction" in works and not any(_contracts(program, index) for index in range(len(program.kernels))):
        return "libraries do the contraction, kernels of its own only the element-wise work around it"
    if "contraction" in works:
        return "libraries do a part of the contractions"
    return "libraries do whole operators beside kernels of its own"


def _contracts(program: ProgramView, index: int) -> bool:
    kernel = program.kernels[index]
    return bool(kernel.values(Kind.MMA)) or bool(contractions(kernel))


def _names(calls: list[LibraryCall]) -> str:
    names = dict.fromkeys(one.call.name.removeprefix(".") for one in calls)
    shown = list(names)[:4]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


SCALE = """
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def run(X, W, Y):
    BODY
    scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
    return Y
"""
NONE_OWN = """
def run(X, W, Y):
    Y.copy_(torch.nn.functional.gelu(X @ W))
    return Y
"""
PREPARED = """
@triton.jit
def scale(X, S, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * tl.load(S), mask=i < n)

def prepare(W):
    return (W @ W.t()).contiguous()

def run(state, X, Y):
    total = X.reshape(-1).sum()
    scale[(triton.cdiv(Y.numel(), 1024),)](X, state, Y, Y.numel(), B=1024)
    return Y
"""
REFERENCE = """
@triton.jit
def scale(X, Y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + i, tl.load(X + i, mask=i < n) * 2, mask=i < n)

def reference(X, W):
    return torch.matmul(X, W)

def run(X, W, Y):
    # torch.matmul(X, W)
    scale[(triton.cdiv(Y.numel(), 1024),)](X, Y, Y.numel(), B=1024)
    return Y
"""
INLINE = '''
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <torch/extension.h>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
  auto c = CALL;
  scale<<<4, 256>>>(c.data_ptr<float>(), c.numel());
  return c;
}
"""
module = load_inline(name="m", cpp_sources="torch::Tensor forward(torch::Tensor a, torch::Tensor b);",
                     cuda_sources=SOURCE, functions=["forward"])

def run(a, b):
    return module.forward(a, b)
'''
CUDA = """
#include <cublas_v2.h>
__global__ void scale(float* x, int n) { int i = blockIdx.x * 256 + threadIdx.x; if (i < n) x[i] *= 2.f; }
void run(cublasHandle_t handle, const float* a, const float* b, float* c, int n) {
  float one = 1.f, zero = 0.f;
  BODY
  scale<<<n * n / 256, 256>>>(c, n * n);
}
"""
GEMM = "cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &zero, c, n);"

EXAMPLES = (
    Example("no kernel", "triton", NONE_OWN, Status.PRESENT),
    Example("element-wise fig leaf", "triton", SCALE.replace("BODY", "X = torch.matmul(X, W)"), Status.PRESENT),
    Example(
        "attention",
        "triton",
        SCALE.replace("BODY", "X = torch.nn.functional.scaled_dot_product_attention(X, W, W)"),
        Status.PRESENT,
    ),
    Example("sorting", "triton", SCALE.replace("BODY", "X = torch.sort(X).values"), Status.PRESENT),
    Example("extension source", "triton", INLINE.replace("CALL", "at::matmul(a, b)"), Status.PRESENT),
    Example(
        "extension source of its own",
        "triton",
        INLINE.replace("CALL", "at::empty_like(a)"),
        Status.ABSENT,
        trap="library of tensors, not of computations: allocation",
    ),
    Example(
        "preparation of constants",
        "triton",
        PREPARED,
        Status.ABSENT,
        trap="what `prepare` does with constants is timed apart",
    ),
    Example(
        "reference beside the entry",
        "triton",
        REFERENCE,
        Status.ABSENT,
        trap="reference code that the kernels' path never reaches; comment",
    ),
    Example("cublas", "cuda", CUDA.replace("BODY", GEMM), Status.PRESENT),
    Example("cublas in a comment", "cuda", CUDA.replace("BODY", f"// {GEMM}"), Status.ABSENT, trap="comment"),
)
