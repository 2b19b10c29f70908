// The directory of one safetensors file: what its header says, checked. Safetensors
// (files/safetensors.h) is the interface to it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor_view.h"

namespace octet {

// A tensor of a file that may hold types that octet does not compute with.
struct StoredTensor {
  TensorView view;                // its dtype means nothing where `dtype` is missing
  std::string_view type;          // the file's own word: "BF16", "I64"; lives for ever
  std::optional<DataType> dtype;  // nothing: octet reads no values of this type
};

struct SafetensorsDirectory {
  std::vector<StoredTensor> tensors;                          // in the header's order
  std::vector<std::pair<std::string, std::string>> metadata;  // "__metadata__"
};

// `bytes` are the whole file, which the views point into; `file` names it in errors. Throws as
// Safetensors::open_file does, but leaves it to the caller, who indexes the names, to refuse one
// that occurs twice.
SafetensorsDirectory parse_safetensors(std::span<const std::byte> bytes, const std::string& file);

// "F32, F16, BF16": the types that octet computes with, for error messages.
std::string readable_safetensors_types();

}  // namespace octet
