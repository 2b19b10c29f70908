// Embedding look-up: rows of a stored table, decoded.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "ops/context.h"

namespace octet {

// y[m] = scale * table[tokens[m]], decoded to float32 before it is multiplied.
//   table: [vocabulary, width], any DataType, with the scales of its codes if it has any;
//   tokens: [rows], each in [0, vocabulary), otherwise
//   Error{internal}; y: [rows, width], contiguous. Nothing is written where an argument does not
//   fit (Error{internal}).
struct EmbeddingArgs {
  const TensorView* table = nullptr;
  const std::int32_t* tokens = nullptr;
  std::int64_t rows = 0;
  float* y = nullptr;
  float scale = 1.0f;
};
void embedding(const OpContext& context, const EmbeddingArgs& args);

}  // namespace octet
