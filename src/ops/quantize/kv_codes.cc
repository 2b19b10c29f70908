#include "ops/quantize/kv_codes.h"

#include <algorithm>
#include <cmath>

#include "core/float8_e4m3.h"
#include "ops/cpu/dispatch.h"

namespace octet {
namespace {

constexpr float int8_max = 127.0f;

float largest_finite(const float* row, int elements, std::int64_t* non_finite) {
  float largest = 0.0f;
  for (int i = 0; i < elements; ++i) {
    const float magnitude = std::fabs(row[i]);
    if (std::isfinite(magnitude)) {
      largest = std::max(largest, magnitude);
    } else {
      ++*non_finite;
    }
  }
  return largest;
}

void to_fp8(const float* row, int elements, float scale, std::uint8_t* codes,
            KvWriteCounts* counts) {
  for (int i = 0; i < elements; ++i) {
    const float scaled = row[i] / scale;
    const float magnitude = std::fabs(scaled);
    counts->saturated += magnitude > float8_e4m3_max ? 1 : 0;
    counts->subnormal += magnitude < 0x1p-6f && row[i] != 0.0f ? 1 : 0;
    codes[i] = float_to_float8_e4m3(scaled);
  }
}

std::int8_t round_to_int8(float value) {
  if (std::isnan(value)) return 0;
  // rint rounds to nearest even under the default rounding mode.
  return static_cast<std::int8_t>(std::rint(std::clamp(value, -int8_max, int8_max)));
}

void to_int8(const float* row, int elements, float scale, std::uint8_t* codes) {
  for (int i = 0; i < elements; ++i) {
    codes[i] = static_cast<std::uint8_t>(round_to_int8(row[i] / scale));
  }
}

}  // namespace

const KvCodeKernels& kv_code_kernels_portable() {
  static const KvCodeKernels kernels = {
      .largest_finite = largest_finite, .to_fp8 = to_fp8, .to_int8 = to_int8};
  return kernels;
}

const KvCodeKernels& kv_code_kernels(InstructionSet set) {
  if constexpr (has_avx2_kernels) {
    if (set >= InstructionSet::avx2) return kv_code_kernels_avx2();
  }
  if (set != InstructionSet::portable) throw_no_kernel("the cache write", set);
  return kv_code_kernels_portable();
}

}  // namespace octet
