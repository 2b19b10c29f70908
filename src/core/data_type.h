// The element types of stored tensors, and how many bytes a block of each takes.
#pragma once

#include <cstdint>
#include <string_view>

namespace octet {

// The q* types are GGUF's block formats: a block of `block_elements` values along the innermost
// dimension shares its scales and is stored in `block_bytes` bytes.
enum class DataType : std::uint8_t {
  float32,
  float16,
  bfloat16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
};

struct DataTypeTraits {
  std::string_view name;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
};

constexpr DataTypeTraits traits_of(DataType type) {
  switch (type) {
    case DataType::float32:
      return {"F32", 1, 4};
    case DataType::float16:
      return {"F16", 1, 2};
    case DataType::bfloat16:
      return {"BF16", 1, 2};
    case DataType::q4_0:
      return {"Q4_0", 32, 18};
    case DataType::q4_1:
      return {"Q4_1", 32, 20};
    case DataType::q5_0:
      return {"Q5_0", 32, 22};
    case DataType::q5_1:
      return {"Q5_1", 32, 24};
    case DataType::q8_0:
      return {"Q8_0", 32, 34};
    case DataType::q4_k:
      return {"Q4_K", 256, 144};
    case DataType::q5_k:
      return {"Q5_K", 256, 176};
    case DataType::q6_k:
      return {"Q6_K", 256, 210};
  }
  return {"?", 0, 0};
}

}  // namespace octet
