// Picks a kernel of one head_dim. Internal to src/ops/attention.
#pragma once

#include "ops/attention/decode_sm90_kernel.cuh"
#include "ops/attention/decode_sm90_kernels.h"

namespace octet {

template <typename Config>
DecodeKernel decode_kernel_of() {
  // Dynamic shared memory begins at a multiple of 16 only, and the swizzle wants one of 1024.
  return {decode_kernel<Config>, sizeof(DecodeShared<Config>) + 1024, Config::turn_pages,
          Config::part_floats};
}

template <int head_dim, int stages, int turn_pages, int blocks_per_sm>
DecodeKernel pick_decode_kernel(int queries, bool scaled) {
  if (queries > 8) return {};
  if (queries > 4) {
    return scaled ? decode_kernel_of<
                        DecodeConfig<head_dim, 2, stages, turn_pages, blocks_per_sm, true>>()
                  : decode_kernel_of<
                        DecodeConfig<head_dim, 2, stages, turn_pages, blocks_per_sm, false>>();
  }
  return scaled ? decode_kernel_of<
                      DecodeConfig<head_dim, 1, stages, turn_pages, blocks_per_sm, true>>()
                : decode_kernel_of<
                      DecodeConfig<head_dim, 1, stages, turn_pages, blocks_per_sm, false>>();
}

}  // namespace octet
