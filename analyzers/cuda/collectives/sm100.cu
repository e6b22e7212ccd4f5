// What a CUTLASS 3 collective for sm_100 lowers to: one warp loads tiles with TMA, one issues tcgen05 products into tensor
// memory, four store the accumulators; work comes from cluster launch control or a static persistent loop.
template <int STAGES, int ACC_STAGES, typename TA, typename TB, typename TC, typename TD>
__global__ void __launch_bounds__(256) $NAME(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
                                             const TC* C, const __grid_constant__ CUtensorMap D, TD* D_ptr,
                                             int M, int N, int K, float alpha, float beta) {
  __shared__ __align__(1024) TA smem_a[STAGES][$BM][$BK];
  __shared__ __align__(1024) TB smem_b[STAGES][$BN][$BK];
  __shared__ __align__(128) TD smem_d[$BM][$BN];
  __shared__ uint64_t full[STAGES], empty[STAGES], acc_full[ACC_STAGES], acc_empty[ACC_STAGES];
  __shared__ uint32_t tmem_base;
  const int warp = threadIdx.x / 32;
  const int tiles = ((M + $BM - 1) / $BM) * ((N + $BN - 1) / $BN);
  const int depth = (K + $BK - 1) / $BK;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(&full[i])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(&empty[i])));
    }
  }
  if (warp == 2) {
    asm volatile("tcgen05.alloc.cta_group::$CTAS.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"((uint32_t)__cvta_generic_to_shared(&tmem_base)));
  }
  __syncthreads();
  if (warp == 0) {
    int step = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      for (int k = 0; k < depth; ++k) {
        const int stage = step % STAGES, phase = (step / STAGES) & 1;
        uint32_t bar = __cvta_generic_to_shared(&full[stage]), ok;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok) : "r"((uint32_t)__cvta_generic_to_shared(&empty[stage])), "r"(phase ^ 1));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"((int)(sizeof(TA) * $BM * $BK + sizeof(TB) * $BN * $BK)));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes$MULTICAST$GROUP [%0], [%1, {%2, %3}], [%4];"
                     ::"r"((uint32_t)__cvta_generic_to_shared(&smem_a[stage][0][0])), "l"(&A), "r"(k * $BK), "r"(tile / ((N + $BN - 1) / $BN) * $BM), "r"(bar));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes$MULTICAST$GROUP [%0], [%1, {%2, %3}], [%4];"
                     ::"r"((uint32_t)__cvta_generic_to_shared(&smem_b[stage][0][0])), "l"(&B), "r"(k * $BK), "r"(tile % ((N + $BN - 1) / $BN) * $BN), "r"(bar));
        ++step;
      }
    }
  } else if (warp == 1) {
    int step = 0, round = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      uint32_t ok, acc = tmem_base + (round % ACC_STAGES) * $BN;
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(ok) : "r"((uint32_t)__cvta_generic_to_shared(&acc_empty[round % ACC_STAGES])), "r"((round / ACC_STAGES) & 1));
      for (int k = 0; k < depth; ++k) {
        const int stage = step % STAGES, phase = (step / STAGES) & 1;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok) : "r"((uint32_t)__cvta_generic_to_shared(&full[stage])), "r"(phase));
        d2k_collective_mma(acc, &smem_a[stage][0][0], &smem_b[stage][0][0]);
        asm volatile("tcgen05.commit.cta_group::$CTAS.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(&empty[stage])));
        ++step;
      }
      asm volatile("tcgen05.commit.cta_group::$CTAS.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(&acc_full[round % ACC_STAGES])));
      ++round;
    }
  } else if (warp >= 4) {
    int round = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      uint32_t ok, r;
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(ok) : "r"((uint32_t)__cvta_generic_to_shared(&acc_full[round % ACC_STAGES])), "r"((round / ACC_STAGES) & 1));
      asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(r) : "r"(tmem_base + (round % ACC_STAGES) * $BN));
      asm volatile("tcgen05.wait::ld.sync.aligned;");
      float acc[1] = {__uint_as_float(r)};
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(&acc_empty[round % ACC_STAGES])));
      $EPILOGUE
      ++round;
    }
  }
}
