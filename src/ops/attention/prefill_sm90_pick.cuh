// Describes a kernel of one shape. Internal to src/ops/attention.
#pragma once

#include "ops/attention/prefill_sm90_kernels.h"
#include "ops/attention/prefill_sm90_shared.cuh"

namespace octet {

template <typename Config>
PrefillKernel describe_kernel(void (*function)(PrefillParameters)) {
  // Dynamic shared memory begins at a multiple of 16 only, and the swizzle wants one of 1024.
  constexpr std::size_t shared_bytes = sizeof(PrefillShared<Config>) + 1024;
  static_assert(shared_bytes <= 227 * 1024, "more than a block can have on Hopper");
  return {function, shared_bytes, Config::threads};
}

}  // namespace octet
