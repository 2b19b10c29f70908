// Picks a kernel of one head_dim. Internal to src/ops/attention.
#pragma once

#include "ops/attention/decode_sm90_kernel.cuh"
#include "ops/attention/decode_sm90_kernels.h"

namespace octet {

template <typename Config>
DecodeKernel decode_kernel_of() {
  // Dynamic shared memory begins at a multiple of 16 only, and the swizzle wants one of 1024.
  constexpr std::size_t shared_bytes = sizeof(DecodeShared<Config>) + 1024;
  static_assert(shared_bytes <= 227 * 1024, "more than a block can have on Hopper");
  return {decode_kernel<Config>, shared_bytes,       Config::threads,
          Config::warpgroups,    Config::turn_pages, sizeof(DecodePart<Config>)};
}

// queries up to 4 * column_groups.
template <int head_dim, int column_groups, int warpgroups, int stages, int turn_pages>
DecodeKernel pick_decode_kernel(bool scaled) {
  return scaled
             ? decode_kernel_of<
                   DecodeConfig<head_dim, column_groups, warpgroups, stages, turn_pages, true>>()
             : decode_kernel_of<
                   DecodeConfig<head_dim, column_groups, warpgroups, stages, turn_pages, false>>();
}

}  // namespace octet
