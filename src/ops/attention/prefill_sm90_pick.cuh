// Describes a kernel of one shape. Internal to src/ops/attention.
#pragma once

#include "ops/attention/prefill_sm90_kernel.cuh"
#include "ops/attention/prefill_sm90_kernels.h"

namespace octet {

template <typename Config>
PrefillKernel prefill_kernel_of() {
  // Dynamic shared memory begins at a multiple of 16 only, and the swizzle wants one of 1024.
  constexpr std::size_t shared_bytes = sizeof(PrefillShared<Config>) + 1024;
  static_assert(shared_bytes <= 227 * 1024, "more than a block can have on Hopper");
  return {prefill_kernel<Config>, shared_bytes, Config::threads};
}

}  // namespace octet
