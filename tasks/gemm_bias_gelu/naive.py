"""gemm_bias_gelu, the obvious way: a tiled product into an fp32 buffer, then a second kernel for bias and GELU."""

import torch
import triton
import triton.language as tl


@triton.jit
def gemm_kernel(A, W, Z, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Z[M, N] = A[M, K] @ W[N, K]^T, one 64x64 tile per program, tiles in row-major order."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(A + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(W + cols[None, :] * K + k[:, None], mask=(cols[None, :] < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(a, w)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(Z + rows[:, None].to(tl.int64) * N + cols[None, :], acc, mask=mask)


@triton.jit
def bias_gelu_kernel(Z, bias, Y, numel, N, BLOCK: tl.constexpr):
    """Y = gelu_tanh(Z + bias), element by element."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < numel
    z = tl.load(Z + i, mask=mask) + tl.load(bias + i % N, mask=mask).to(tl.float32)
    u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * u) + 1.0)
    y = 0.5 * z * (1.0 + tanh)
    tl.store(Y + i, y.to(Y.dtype.element_ty), mask=mask)


def run(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor, Y: torch.Tensor) -> None:
    """A [M, K], W [N, K], bias [N] -> Y [M, N], filled in place."""
    (M, K), N = A.shape, W.shape[0]
    Z = torch.empty(M, N, dtype=torch.float32, device=A.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    gemm_kernel[grid](A, W, Z, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_stages=1)
    bias_gelu_kernel[(triton.cdiv(M * N, 1024),)](Z, bias, Y, M * N, N, BLOCK=1024)
