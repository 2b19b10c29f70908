// The element types of stored tensors, and how many bytes a block of each takes.
#pragma once

#include <cstdint>
#include <string_view>

namespace octet {

// float8_e4m3 is a code of core/float8_e4m3.h. The types after it are GGUF's block formats: a block
// of `block_elements` values along the innermost dimension shares its scales and is stored in
// `block_bytes` bytes.
enum class DataType : std::uint8_t {
  float32,
  float16,
  bfloat16,
  float8_e4m3,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
};

inline constexpr DataType all_data_types[] = {
    DataType::float32, DataType::float16, DataType::bfloat16, DataType::float8_e4m3,
    DataType::q4_0,    DataType::q4_1,    DataType::q5_0,     DataType::q5_1,
    DataType::q8_0,    DataType::q2_k,    DataType::q3_k,     DataType::q4_k,
    DataType::q5_k,    DataType::q6_k,    DataType::iq4_nl,   DataType::iq4_xs,
    DataType::mxfp4};

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
    case DataType::float8_e4m3:
      return {"F8_E4M3", 1, 1};
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
    case DataType::q2_k:
      return {"Q2_K", 256, 84};
    case DataType::q3_k:
      return {"Q3_K", 256, 110};
    case DataType::q4_k:
      return {"Q4_K", 256, 144};
    case DataType::q5_k:
      return {"Q5_K", 256, 176};
    case DataType::q6_k:
      return {"Q6_K", 256, 210};
    case DataType::iq4_nl:
      return {"IQ4_NL", 32, 18};
    case DataType::iq4_xs:
      return {"IQ4_XS", 256, 136};
    case DataType::mxfp4:
      return {"MXFP4", 32, 17};
  }
  return {"?", 0, 0};
}

}  // namespace octet
