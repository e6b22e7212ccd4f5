// gemm_bias_gelu, the obvious way in CUDA: 64x64 tiles through shared memory, fp32 multiply-adds, no tensor cores.
//
// Entry: int run(A, W, bias, Y, M, N, K, stream): the tensors as device pointers in the order of the task, then its axes
// as int64_t, then the stream. Returns a cudaError_t; 0 is success.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kTile = 64;   // rows and columns of Y per block
constexpr int kDepth = 16;  // columns of A and W per step
constexpr int kSide = 4;    // rows and columns of Y per thread

__global__ void gemm_bias_gelu_kernel(const __nv_bfloat16* A, const __nv_bfloat16* W, const __nv_bfloat16* bias,
                                      __nv_bfloat16* Y, int M, int N, int K) {
  __shared__ float a_tile[kDepth][kTile + 1], w_tile[kDepth][kTile + 1];
  const int row0 = blockIdx.y * kTile, col0 = blockIdx.x * kTile;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[kSide][kSide] = {};
  for (int k0 = 0; k0 < K; k0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += blockDim.x) {
      const int r = i / kDepth, k = i % kDepth;
      const bool deep = k0 + k < K;
      a_tile[k][r] = deep && row0 + r < M ? __bfloat162float(A[int64_t(row0 + r) * K + k0 + k]) : 0.0f;
      w_tile[k][r] = deep && col0 + r < N ? __bfloat162float(W[int64_t(col0 + r) * K + k0 + k]) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      for (int i = 0; i < kSide; ++i) {
        for (int j = 0; j < kSide; ++j) acc[i][j] += a_tile[k][ty + 16 * i] * w_tile[k][tx + 16 * j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      const int row = row0 + ty + 16 * i, col = col0 + tx + 16 * j;
      if (row >= M || col >= N) continue;
      const float z = acc[i][j] + __bfloat162float(bias[col]);
      const float y = 0.5f * z * (1.0f + tanhf(0.7978845608f * (z + 0.044715f * z * z * z)));
      Y[int64_t(row) * N + col] = __float2bfloat16(y);
    }
  }
}

}  // namespace

extern "C" int run(const __nv_bfloat16* A, const __nv_bfloat16* W, const __nv_bfloat16* bias, __nv_bfloat16* Y,
                   int64_t M, int64_t N, int64_t K, cudaStream_t stream) {
  const dim3 grid((N + kTile - 1) / kTile, (M + kTile - 1) / kTile);
  gemm_bias_gelu_kernel<<<grid, 256, 0, stream>>>(A, W, bias, Y, int(M), int(N), int(K));
  return cudaGetLastError();
}
