    $MORE_REGISTERS
    int step = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += $TILE_STEP) {
      float acc[$ACC] = {};
      $ORDER_IN
      for (int k = 0; k < depth; ++k) {
        const int stage = step % STAGES, phase = (step / STAGES) & 1;
        uint32_t ok;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok) : "r"((uint32_t)__cvta_generic_to_shared(&full[stage])), "r"(phase));
        asm volatile("wgmma.fence.sync.aligned;");
        d2k_collective_mma(acc, &smem_a[stage][0][0], &smem_b[stage][0][0]);
        asm volatile("wgmma.commit_group.sync.aligned;");
        asm volatile("wgmma.wait_group.sync.aligned 0;");
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(&empty[stage])));
        ++step;
      }
      $ORDER_OUT
      $EPILOGUE
    }
