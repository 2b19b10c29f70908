// How an op picks its kernels.
#pragma once

#include <string_view>

#include "core/instruction_set.h"

namespace octet {

// Whether this build holds the *_avx2.cc and *_avx512*.cc kernels: a condition for `if constexpr`,
// which leaves their symbols unreferenced where they do not exist.
#if defined(__x86_64__)
inline constexpr bool has_avx2_kernels = true;
#else
inline constexpr bool has_avx2_kernels = false;
#endif

// Throws Error{internal}: `op` has no kernels for `set` in this build.
[[noreturn]] void throw_no_kernel(std::string_view op, InstructionSet set);

}  // namespace octet
