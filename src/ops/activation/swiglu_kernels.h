#pragma once

#include <cstdint>

namespace octet {

// y[i] = silu(gate[i]) * up[i]; y may be gate or up. An element's bits do not depend on its
// position.
using SwigluRange = void(const float* gate, const float* up, float* y, std::int64_t count);

SwigluRange swiglu_range_portable;
SwigluRange swiglu_range_avx2;  // x86-64 builds alone (ops/cpu/dispatch.h)

}  // namespace octet
