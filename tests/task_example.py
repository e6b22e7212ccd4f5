"""The task that the language's description shows, and a shorter one, for tests that need a whole task."""

FULL = '''d2k 1
use guidance.pipelined_mma as pm          # reusable guidance

task gemm_bias_gelu {
  title   "BF16 GEMM with fused bias and GELU"
  summary """
    Y = gelu(A @ W.T + bias), FP32 accumulation, one rounding to BF16.
    """
  target  sm100, sm90

  axes M, N, K
  input  A    : bf16[M, K] ~ normal()            as activation
  input  W    : bf16[N, K] ~ normal() / sqrt(K)  as weight  constant
  input  bias : bf16[N]    ~ 0.1 * normal()
  output Y    : bf16[M, N]
  intermediate pre : f32[M, N]                   # must never reach global memory

  entry     run
  reference "reference.py" :: run
  baseline  eager   "baseline.py" :: eager
  baseline  library "baseline.py" :: cublaslt
  tolerance Y { atol = 1e-2, rtol = 1.6e-2 } because "bf16 output; margin covers the order of the FP32 sums"
  cost {
    flops = 2 * M * N * K + 12 * M * N           on tensor.bf16
    bytes = 2 * (M * K + N * K + N + M * N)
  }
  forbid torch.matmul, torch.nn.functional.linear

  workload flux_image_ff { M = 4096, N = 12288, K = 3072 }  from "FLUX.1-dev feed-forward, 1024x1024 image"
  workload wan_14b_ff    { M = 32760, N = 13824, K = 5120 } from "Wan2.1-14B feed-forward, 480p (ragged M)"
  workload odd [edge, held_out] { M = 8191, N = 14344, K = 4104 }

  guidance {
    L1 reuse "Serve at least 128 rows with each fetched weight element" {
      why   "Below ~200 FLOP/B the tensor cores starve."
      check shared_operand_reuse(operand = weight, consumers >= 128)
    }
    L1 fuse "Apply bias and GELU before the accumulators leave the chip" {
      check epilogue_fusion(ops has {bias, gelu})
    }
    L2 tile "A 128x128 or larger output tile per block, K in slices of 64" {
      requires reuse
      check output_tiling(block_m >= 128, block_n >= 128, block_k >= 64)
    }
    L2 pipeline "Keep at least three K slices in flight" {
      requires tile
      check multistage_pipeline(stages >= 3)
    }
    L3 bulk "Tensor-map copies for both operands" {
      requires pipeline
      check  tma_bulk_copy(direction has load)
      weight 2
    }
    L3 tcgen05 "Fifth-generation MMA with the accumulator in tensor memory" {
      requires tile
      when   arch has tcgen05
      check  tensor_core_mma(instr = tcgen05) and tmem_accumulator(buffers >= 2)
    }
    L3 tanh "Evaluate tanh with the hardware approximation" {
      requires fuse
      check  fast_math_intrinsics(fn has tanh)
      accept fast_math_intrinsics(fn has exp) because "z*sigmoid(2u) is the same function at the same cost"
    }
    include pm.epilogue_overlap(after = fuse) as overlap
  }
}
'''

SHORT = """d2k 1

task short {
  title     "Scale"
  summary   "Y = 2 * A"
  target    sm100, sm90
  axes      M
  input     A : f32[M] ~ normal()
  output    Y : f32[M]
  entry     run
  reference "reference.py" :: run
  baseline  eager "baseline.py" :: eager
  tolerance Y { rtol = 1e-6 } because "one multiplication"
  cost      { flops = M on cuda.f32 }
  workload  one { M = 8 }
}
"""


def short(*statements: str, without: str = "") -> str:
    """`SHORT` with more statements; lines that contain `without` are left out."""
    lines = [line for line in SHORT.splitlines() if not without or without not in line]
    return "\n".join([*lines[:-1], *statements, "}", ""])
