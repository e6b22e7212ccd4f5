"""CUDA in the strings of a Python file: found with the lines that it is written on."""

from __future__ import annotations

from d2k.analyzers.analyze import Options, read, report
from d2k.spec.finding import Status

FILE = '''import torch
from torch.utils.cpp_extension import load_inline

NOTE = "a prompt that says: write a __global__ kernel"

SOURCE = r"""
#include <cuda_runtime.h>
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.f * __ldg(x + i);
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""

module = load_inline(name="scale", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=SOURCE,
                     functions=["run"])


def run(x, y):
    y.copy_(module.run(x))
'''


def test_kernels_in_strings_stand_at_their_lines() -> None:
    program = read("kernel.py", FILE, Options())
    (kernel,) = program.kernels
    assert (kernel.name, kernel.language, kernel.place.path, kernel.place.line) == ("scale", "cuda", "kernel.py", 8)
    found = {one.id: one for one in report(program, FILE, Options()).properties}["cache_policy_hint"]
    assert found.status is Status.PRESENT
    assert found.instances[0].evidence[0].line == 10


def test_a_text_that_only_mentions_cuda_is_none() -> None:
    without = FILE.replace("cuda_sources=SOURCE", 'cuda_sources=""')
    assert read("kernel.py", without, Options()).kernels == ()
