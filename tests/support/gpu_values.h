// Random values, bfloat16 arrays and errors, for tests of operations on the GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <cuda_bf16.h>

#include "core/bfloat16.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/launch.h"
#include "support/paged_cache.h"

namespace octet {
inline namespace test_support {

inline CudaLaunch gpu_launch(cudaStream_t stream = nullptr) {
  static const int multiprocessors = cuda_device_info().multiprocessors;
  return {stream, multiprocessors, true};
}

// Floats that bfloat16 holds exactly.
inline std::vector<float> random_bfloat16_floats(std::size_t count, unsigned seed,
                                                 float deviation = 1.0f) {
  std::vector<float> values = random_floats(count, seed, deviation);
  for (float& value : values) value = round_to_bfloat16(value);
  return values;
}

inline std::vector<std::uint16_t> to_bfloat16s(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(float_to_bfloat16(value));
  return bits;
}
inline std::vector<float> to_floats(const std::vector<std::uint16_t>& bits) {
  std::vector<float> values;
  values.reserve(bits.size());
  for (const std::uint16_t value : bits) values.push_back(bfloat16_to_float(value));
  return values;
}
inline __nv_bfloat16* as_bfloat16(const DeviceArray<std::uint16_t>& array) {
  return reinterpret_cast<__nv_bfloat16*>(array.data());
}

// Norm of the difference over norm of the reference, over `expected` and as many of `got` from
// `first` on; NaN where any is.
inline double relative_error(const std::vector<float>& got, std::size_t first,
                             const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double off = got[first + i] - expected[i];
    difference += off * off;
    norm += expected[i] * expected[i];
  }
  return norm == 0 && difference == 0 ? 0.0 : std::sqrt(difference / norm);
}

}  // namespace test_support
}  // namespace octet
