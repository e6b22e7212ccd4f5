"""gemm_bias_gelu for Hopper and later: a persistent product of TMA tiles with bias and GELU on the accumulators.

One or two programs per multiprocessor walk the output tiles in narrow panels, so that the tiles in flight share their
rows of A and W in the L2 cache. Both operands arrive by TMA in slices of 64 columns (one 128-byte swizzle row), several
slices ahead of the matrix unit, and rows past a ragged M read as zero and are not written. K and N are multiples of 8.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def grouped_tile(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Tile number -> (row, column) of the tile: panels of GROUP_M tile rows, walked column by column."""
    per_panel = GROUP_M * tiles_n
    first_row = tile // per_panel * GROUP_M
    rows = min(tiles_m - first_row, GROUP_M)
    return first_row + tile % per_panel % rows, tile % per_panel // rows


@triton.jit
def tanh(u, HW_TANH: tl.constexpr):
    """One special-function instruction with a relative error of 2**-11; Triton's interpreter has none."""
    if HW_TANH:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return 2.0 * tl.sigmoid(2.0 * u) - 1.0


@triton.jit
def bias_gelu(acc, bias, cols, N, HW_TANH: tl.constexpr):
    """gelu_tanh(acc + bias[cols]), five multiply-adds and one tanh per element."""
    z = acc + tl.load(bias + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
    u = z * (0.7978845608028654 + 0.035677408136300125 * z * z)
    half = 0.5 * z
    return half + half * tanh(u, HW_TANH)


def set_block_shapes(args: dict) -> None:
    """Give the descriptors the tile shapes of the configuration that is about to run."""
    args["A"].block_shape = [args["BLOCK_M"], args["BLOCK_K"]]
    args["W"].block_shape = [args["BLOCK_N"], args["BLOCK_K"]]
    args["Y"].block_shape = [args["BLOCK_M"], args["BLOCK_N"] // args["EPILOGUE_PARTS"]]


def config(block_m: int, block_n: int, stages: int, warps: int, parts: int, per_sm: int = 1) -> triton.Config:
    tiles = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_M": 8}
    return triton.Config(
        tiles | {"EPILOGUE_PARTS": parts, "PROGRAMS_PER_SM": per_sm},
        num_stages=stages,
        num_warps=warps,
        pre_hook=set_block_shapes,
    )


def usable(configs: list[triton.Config], args: dict, **_: object) -> list[triton.Config]:
    """Without a GPU (in Triton's interpreter) there is nothing to measure: the first configuration runs."""
    return configs if args["bias"].is_cuda else configs[:1]


@triton.autotune(
    configs=[
        config(128, 256, stages=4, warps=8, parts=2),
        # Two programs per multiprocessor: one multiplies while the other is in its epilogue.
        config(128, 128, stages=3, warps=4, parts=2, per_sm=2),
    ],
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": usable},
)
@triton.jit
def gemm_bias_gelu_kernel(
    A,
    W,
    bias,
    Y,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EPILOGUE_PARTS: tl.constexpr,
    PROGRAMS_PER_SM: tl.constexpr,
    HW_TANH: tl.constexpr,
):
    """A [M, K], W [N, K] and Y [M, N] are tensor descriptors, bias [N] a pointer."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    slices = tl.cdiv(K, BLOCK_K)
    # One flat loop over all slices of all tiles: the loads for the next tile start during the epilogue of this one.
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        tile_m, tile_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        row = tile_m * BLOCK_M
        col = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(slices):
            a = A.load([row, k * BLOCK_K])
            w = W.load([col, k * BLOCK_K])
            acc = tl.dot(a, w.T, acc)

        # In two halves the staging buffer of the store is half as large, which pays for one more pipeline stage.
        if EPILOGUE_PARTS == 2:
            HALF: tl.constexpr = BLOCK_N // 2
            left, right = acc.reshape((BLOCK_M, 2, HALF)).permute((0, 2, 1)).split()
            cols = col + tl.arange(0, HALF)
            Y.store([row, col], bias_gelu(left, bias, cols, N, HW_TANH).to(Y.dtype))
            Y.store([row, col + HALF], bias_gelu(right, bias, cols + HALF, N, HW_TANH).to(Y.dtype))
        else:
            cols = col + tl.arange(0, BLOCK_N)
            Y.store([row, col], bias_gelu(acc, bias, cols, N, HW_TANH).to(Y.dtype))


def run(A: torch.Tensor, W: torch.Tensor, bias: torch.Tensor, Y: torch.Tensor) -> None:
    """A [M, K], W [N, K], bias [N] -> Y [M, N], filled in place."""
    (M, K), N = A.shape, W.shape[0]
    sms = torch.cuda.get_device_properties(A.device).multi_processor_count if A.is_cuda else 4
    any_block = [1, 1]  # replaced by the configuration's

    def grid(meta: dict) -> tuple[int]:
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (min(tiles, sms * meta["PROGRAMS_PER_SM"]),)

    gemm_bias_gelu_kernel[grid](
        TensorDescriptor.from_tensor(A, any_block),
        TensorDescriptor.from_tensor(W, any_block),
        bias,
        TensorDescriptor.from_tensor(Y, any_block),
        M,
        N,
        K,
        HW_TANH=A.is_cuda,
    )
