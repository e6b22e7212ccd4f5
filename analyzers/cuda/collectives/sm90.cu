// What a CUTLASS 3 collective for sm_90 lowers to: a producer warp group that loads tiles with TMA into a ring of stages,
// consumer warp groups that multiply them with wgmma, barriers between the two, and an epilogue out of registers.
template <int STAGES, typename TA, typename TB, typename TC, typename TD>
__global__ void __launch_bounds__($THREADS) $NAME(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
                                                  const TC* C, const __grid_constant__ CUtensorMap D, TD* D_ptr,
                                                  int M, int N, int K, float alpha, float beta) {
  __shared__ __align__(1024) TA smem_a[STAGES][$BM][$BK];
  __shared__ __align__(1024) TB smem_b[STAGES][$BN][$BK];
  __shared__ __align__(128) TD smem_d[$BM][$BN];
  __shared__ uint64_t full[STAGES];
  __shared__ uint64_t empty[STAGES];
  const int group = threadIdx.x / 128;
  const int tiles = ((M + $BM - 1) / $BM) * ((N + $BN - 1) / $BN);
  const int depth = (K + $BK - 1) / $BK;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(&full[i])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(&empty[i])), "n"($CONSUMERS));
    }
  }
  __syncthreads();
  if (group == 0) {
    $LESS_REGISTERS
    int step = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += $TILE_STEP) {
      for (int k = 0; k < depth; ++k) {
        const int stage = step % STAGES, phase = (step / STAGES) & 1;
        uint32_t bar = __cvta_generic_to_shared(&full[stage]), ok;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok) : "r"((uint32_t)__cvta_generic_to_shared(&empty[stage])), "r"(phase ^ 1));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"((int)(sizeof(TA) * $BM * $BK + sizeof(TB) * $BN * $BK)));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes$MULTICAST [%0], [%1, {%2, %3}], [%4];"
                     ::"r"((uint32_t)__cvta_generic_to_shared(&smem_a[stage][0][0])), "l"(&A), "r"(k * $BK), "r"(tile / ((N + $BN - 1) / $BN) * $BM), "r"(bar));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes$MULTICAST [%0], [%1, {%2, %3}], [%4];"
                     ::"r"((uint32_t)__cvta_generic_to_shared(&smem_b[stage][0][0])), "l"(&B), "r"(k * $BK), "r"(tile % ((N + $BN - 1) / $BN) * $BN), "r"(bar));
        ++step;
      }
    }
  } else$CONSUMER_TEST {
    $CONSUMER
  }$SECOND_CONSUMER
}
