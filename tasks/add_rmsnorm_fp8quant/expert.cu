// add_rmsnorm_fp8quant in one pass, for sm_90 and later.
//
// Entry: int run(x, r, w, h, q, s, T, H, stream): the tensors as device pointers in the order of the task, then its axes
// as int64_t, then the stream. Returns a cudaError_t; 0 is success. Needs H divisible by 128, contiguous tensors and
// 16-byte aligned pointers.
//
// A row is cut into chunks of 8 columns, one 16-byte load each. 16 neighbouring lanes hold one quantisation group of 128
// columns, so that its maximum needs four shuffles. With many rows one block owns a row; with few rows a cluster of
// four blocks shares it and adds up the sums of squares through distributed shared memory.

#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace cg = cooperative_groups;

namespace {

constexpr int kGroup = 128;            // columns that share a scale
constexpr int kChunk = 8;              // columns per 16-byte load
constexpr int kLanes = kGroup / kChunk;  // lanes that share a scale
constexpr float kE4m3Max = 448.0f;
constexpr float kMinAmax = 1e-10f;
constexpr float kEps = 1e-6f;

// Two bf16 in a 32-bit register, as floats.
__device__ float2 unpack(uint32_t pair) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
}

// Two bf16 sums in one instruction; rounds as an fp32 sum rounded to bf16 does.
__device__ uint32_t add(uint32_t left, uint32_t right) {
  const __nv_bfloat162 sum =
      __hadd2(reinterpret_cast<const __nv_bfloat162&>(left), reinterpret_cast<const __nv_bfloat162&>(right));
  return reinterpret_cast<const uint32_t&>(sum);
}

__device__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

__device__ float group_max(float value) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

// The sum over the block, and over the cluster when kCluster > 1; every thread gets it.
template <int kCluster>
__device__ float row_sum(float value) {
  __shared__ float warp_sums[32];
  __shared__ float block_sum;
  const int warps = blockDim.x / 32;
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < warps; ++i) total += warp_sums[i];  // the same order in every thread
  if constexpr (kCluster > 1) {
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) block_sum = total;
    cluster.sync();
    total = 0.0f;
#pragma unroll
    for (int rank = 0; rank < kCluster; ++rank) total += *cluster.map_shared_rank(&block_sum, rank);
    cluster.sync();  // no block may leave while another still reads its sum
  }
  return total;
}

// One row per cluster of kCluster blocks, kChunks chunks per thread.
template <int kCluster, int kChunks>
__global__ void add_rmsnorm_quant_kernel(const uint4* __restrict__ x, const uint4* __restrict__ r,
                                         const uint4* __restrict__ w, uint4* __restrict__ h, uint2* __restrict__ q,
                                         float* __restrict__ s, int chunks_per_row) {
  const int64_t row = blockIdx.x / kCluster;
  const int threads = blockDim.x * kCluster;
  const int first = blockIdx.x % kCluster * blockDim.x + threadIdx.x;
  x += row * chunks_per_row;
  r += row * chunks_per_row;
  h += row * chunks_per_row;
  q += row * chunks_per_row;
  s += row * (chunks_per_row / kLanes);

  // All loads leave before the first use. A chunk past the row's end is past it for all lanes of its group.
  uint4 x_chunk[kChunks], r_chunk[kChunks], w_chunk[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = first + i * threads;
    const bool inside = chunk < chunks_per_row;
    x_chunk[i] = inside ? __ldcs(x + chunk) : uint4{};
    r_chunk[i] = inside ? __ldcs(r + chunk) : uint4{};
    w_chunk[i] = inside ? __ldg(w + chunk) : uint4{};
  }

  float value[kChunks][kChunk];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = first + i * threads;
    const uint32_t* a = reinterpret_cast<const uint32_t*>(&x_chunk[i]);
    const uint32_t* b = reinterpret_cast<const uint32_t*>(&r_chunk[i]);
    uint32_t rounded[kChunk / 2];
#pragma unroll
    for (int j = 0; j < kChunk / 2; ++j) {
      rounded[j] = add(a[j], b[j]);
      const float2 seen = unpack(rounded[j]);  // statistics of what the consumer will read
      value[i][2 * j] = seen.x;
      value[i][2 * j + 1] = seen.y;
      squares = fmaf(seen.x, seen.x, fmaf(seen.y, seen.y, squares));
    }
    if (chunk < chunks_per_row) h[chunk] = make_uint4(rounded[0], rounded[1], rounded[2], rounded[3]);
  }

  const float rstd = rsqrtf(row_sum<kCluster>(squares) / static_cast<float>(chunks_per_row * kChunk) + kEps);

#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = first + i * threads;
    const uint32_t* weight = reinterpret_cast<const uint32_t*>(&w_chunk[i]);
    float amax = 0.0f;
#pragma unroll
    for (int j = 0; j < kChunk / 2; ++j) {
      const float2 scale = unpack(weight[j]);
      value[i][2 * j] *= rstd * scale.x;
      value[i][2 * j + 1] *= rstd * scale.y;
      amax = fmaxf(amax, fmaxf(fabsf(value[i][2 * j]), fabsf(value[i][2 * j + 1])));
    }
    amax = fmaxf(group_max(amax), kMinAmax);
    const float inverse = kE4m3Max / amax;
    uint32_t codes[kChunk / 4];
#pragma unroll
    for (int j = 0; j < kChunk / 4; ++j) {
      const float* v = &value[i][4 * j];
      const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(v[0] * inverse, v[1] * inverse), __NV_SATFINITE, __NV_E4M3);
      const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(v[2] * inverse, v[3] * inverse), __NV_SATFINITE, __NV_E4M3);
      codes[j] = low | high << 16;
    }
    if (chunk < chunks_per_row) {
      q[chunk] = make_uint2(codes[0], codes[1]);
      if (chunk % kLanes == 0) s[chunk / kLanes] = amax / kE4m3Max;
    }
  }
}

template <int kCluster, int kChunks>
cudaError_t launch(const void* x, const void* r, const void* w, void* h, void* q, float* s, int64_t T, int64_t H,
                   cudaStream_t stream) {
  const int chunks_per_row = static_cast<int>(H / kChunk);
  const int per_pass = kCluster * kChunks * 32;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(T * kCluster));
  config.blockDim = dim3(static_cast<unsigned>((chunks_per_row + per_pass - 1) / per_pass * 32));
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, add_rmsnorm_quant_kernel<kCluster, kChunks>, static_cast<const uint4*>(x),
                            static_cast<const uint4*>(r), static_cast<const uint4*>(w), static_cast<uint4*>(h),
                            static_cast<uint2*>(q), s, chunks_per_row);
}

}  // namespace

extern "C" int run(const void* x, const void* r, const void* w, void* h, void* q, float* s, int64_t T, int64_t H,
                   cudaStream_t stream) {
  if (H % kGroup != 0 || T <= 0 || H > 16384) return cudaErrorInvalidValue;
  int device = 0, sms = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  if (T < sms) return launch<4, 1>(x, r, w, h, q, s, T, H, stream);
  return launch<1, 2>(x, r, w, h, q, s, T, H, stream);
}
