// What a CUTLASS 2 threadblock GEMM for tensor cores lowers to: cp.async into a ring of stages, ldmatrix, mma.sync.
template <typename TA, typename TB, typename TC, typename TD>
__global__ void $NAME(const TA* A, const TB* B, const TC* C, TD* D_ptr, int M, int N, int K, float alpha, float beta) {
  __shared__ __align__(128) TA smem_a[$STAGES][$BM][$BK];
  __shared__ __align__(128) TB smem_b[$STAGES][$BN][$BK];
  const int depth = (K + $BK - 1) / $BK;
  const int row = threadIdx.x * 8 / $BK, column = threadIdx.x * 8 % $BK;
  float acc[$ACC] = {};
  for (int s = 0; s < $STAGES - 1; ++s) {
    __pipeline_memcpy_async(&smem_a[s][row][column ^ (row & 7)], A + (blockIdx.x * $BM + row) * K + s * $BK + column, 16);
    __pipeline_memcpy_async(&smem_b[s][row][column ^ (row & 7)], B + (blockIdx.y * $BN + row) * K + s * $BK + column, 16);
    __pipeline_commit();
  }
  for (int k = 0; k < depth; ++k) {
    __pipeline_wait_prior($STAGES - 2);
    __syncthreads();
    const int next = (k + $STAGES - 1) % $STAGES, stage = k % $STAGES;
    __pipeline_memcpy_async(&smem_a[next][row][column ^ (row & 7)], A + (blockIdx.x * $BM + row) * K + (k + $STAGES - 1) * $BK + column, 16);
    __pipeline_memcpy_async(&smem_b[next][row][column ^ (row & 7)], B + (blockIdx.y * $BN + row) * K + (k + $STAGES - 1) * $BK + column, 16);
    __pipeline_commit();
    d2k_collective_mma(acc, &smem_a[stage][0][0], &smem_b[stage][0][0]);
  }
  $EPILOGUE
}
