// GGUF's block formats as what they are made of: small integers, and scales that some of them
// share. An element is
//   scale[i / g] * quants[i] + minimum[i / g],   g = elements_per_scale,
// whose product is exact in float32 (at most 24 bits); the sum rounds once. Formats without minima
// add none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/data_type.h"

namespace octet {

inline constexpr int most_block_elements = 256;
inline constexpr int fewest_elements_per_scale = 16;

struct BlockQuants {
  std::int8_t quants[most_block_elements];
  float scale[most_block_elements / fewest_elements_per_scale];
  float minimum[most_block_elements / fewest_elements_per_scale];  // 0 where the format has none
};

// Whether `dtype` is one of the block formats.
constexpr bool has_quants(DataType dtype) { return traits_of(dtype).block_elements > 1; }

constexpr int elements_per_scale(DataType dtype) {
  return dtype == DataType::q2_k || dtype == DataType::q3_k || dtype == DataType::q6_k ? 16 : 32;
}

constexpr bool has_minimum(DataType dtype) {
  return dtype == DataType::q4_1 || dtype == DataType::q5_1 || dtype == DataType::q2_k ||
         dtype == DataType::q4_k || dtype == DataType::q5_k;
}

// Takes one block apart: plain C++, what faster code is compared with. Throws Error{internal} for a
// type that has no quants.
void read_quants(DataType dtype, const std::byte* block, BlockQuants* out);

}  // namespace octet
