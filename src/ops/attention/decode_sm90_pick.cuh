// Picks a kernel among those of one format and head_dim. Internal to src/ops/attention.
#pragma once

#include "ops/attention/decode_sm90_kernel.cuh"
#include "ops/attention/decode_sm90_kernels.h"

namespace octet {

template <typename Config>
DecodeKernel decode_kernel_of() {
  // Dynamic shared memory begins at a multiple of 16 only, and the swizzle wants one of 1024.
  constexpr std::size_t shared_bytes = sizeof(DecodeShared<Config>) + 1024;
  static_assert(shared_bytes <= 227 * 1024, "more than a block can have on Hopper");
  return {decode_kernel<Config>, shared_bytes,    Config::threads,           Config::warpgroups,
          Config::turn_pages,    Config::queries, sizeof(SharedPart<Config>)};
}

// The first, in ascending order of their queries, that has enough; else the last, which then takes
// a KV head's queries in several shares.
template <typename First, typename... Others>
DecodeKernel smallest_decode_kernel(int queries) {
  if constexpr (sizeof...(Others) == 0) {
    return decode_kernel_of<First>();
  } else {
    static_assert(((First::queries < Others::queries) && ...));
    return queries <= First::queries ? decode_kernel_of<First>()
                                     : smallest_decode_kernel<Others...>(queries);
  }
}

}  // namespace octet
