// exp of one float in plain C++: the steps of vector_exp_avx2.h without fused operations, so the
// last bit may differ from it. For portable kernels; *_avx2.cc files must not include this (its
// inline code would be compiled for AVX2 there, and the linker could keep that copy).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace octet {

// e^x, in error by at most 1 unit in the last place (0.98 measured over every float) wherever the
// result is normal. The same special cases as vector_exp: exp(0) is 1, x < -87.33654 gives 0, x
// > 88.72283 gives +inf, NaN stays NaN. Branch-free selections, so that compilers can vectorise a
// loop of it.
inline float portable_exp(float x) {
  constexpr float shift = 12582912.0f;
  const float shifted = x * 0x1.715476p+0f + shift;
  const float n = shifted - shift;
  // ln 2 in two parts; the first has nine significant bits, so that n times it is exact.
  const float r = (x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f;
  float q = 0x1.6a23d0p-10f * r + 0x1.123a20p-7f;
  q = q * r + 0x1.5558f2p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  // r + r^2 q rather than Horner's last steps: without fused operations it keeps r exact.
  const float power = 1.0f + (r + (r * r) * q);
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  const float y = std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) + exponent);
  const float bounded = x <= 0x1.62e42ep+6f ? y : x + std::numeric_limits<float>::infinity();
  return x < -0x1.5d589ep+6f ? 0.0f : bounded;
}

}  // namespace octet
