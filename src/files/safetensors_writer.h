// Writes float32 tensors as a safetensors file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace octet {

struct FloatTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // outermost dimension first; its product is values.size()
  std::vector<float> values;
};

// The bytes of a file that Safetensors (files/safetensors.h) and the format's own library read:
// the tensors in their order, without holes, and `metadata` as "__metadata__". The same input gives
// the same bytes.
std::vector<std::byte> encode_safetensors(
    const std::vector<FloatTensor>& tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace octet
