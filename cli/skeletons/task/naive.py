"""The obvious kernel, without the guidance: correct, and what the expert's design is compared with."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(X, s, Y, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(X + row * N + column, mask=inside).to(tl.float32)
        scale = tl.load(s + column, mask=inside)
        tl.store(Y + row * N + column, (x * scale).to(tl.bfloat16), mask=inside)


def run(X: torch.Tensor, s: torch.Tensor, Y: torch.Tensor) -> None:
    M, N = X.shape
    scale_kernel[(M,)](X, s, Y, N, BLOCK=1024)
