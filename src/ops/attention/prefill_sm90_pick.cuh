// Describes a kernel of one shape. Internal to src/ops/attention.
#pragma once

#include "ops/attention/prefill_sm90_bfloat16.cuh"
#include "ops/attention/prefill_sm90_kernel.cuh"
#include "ops/attention/prefill_sm90_kernels.h"
#include "ops/attention/prefill_sm90_roles.cuh"

namespace octet {

template <typename Config>
PrefillKernel prefill_kernel_of() {
  // Dynamic shared memory begins at a multiple of 16 only, and the swizzle wants one of 1024.
  constexpr std::size_t shared_bytes = sizeof(PrefillShared<Config>) + 1024;
  static_assert(shared_bytes <= 227 * 1024, "more than a block can have on Hopper");
  return {prefill_kernel<Config>, shared_bytes, Config::threads};
}

template <typename Config>
PrefillKernel prefill_bfloat16_kernel_of() {
  constexpr std::size_t shared_bytes = sizeof(PrefillShared<Config>) + 1024;
  static_assert(shared_bytes <= 227 * 1024, "more than a block can have on Hopper");
  return {prefill_bfloat16_kernel<Config>, shared_bytes, Config::threads};
}

template <typename Config>
PrefillKernel prefill_roles_kernel_of() {
  constexpr std::size_t shared_bytes = sizeof(PrefillShared<Config>) + 1024;
  static_assert(shared_bytes <= 227 * 1024, "more than a block can have on Hopper");
  return {prefill_roles_kernel<Config>, shared_bytes, Config::threads};
}

}  // namespace octet
