// Where an element of a run's K or V lies, for each KvOrder.
#pragma once

#include <cstddef>

#include "kv/kv_layout.h"

namespace octet {

// Bytes of a row of one panel of swizzled rows: the widest swizzle that divides the whole row.
constexpr std::size_t panel_row_bytes(std::size_t row_bytes) {
  return row_bytes % 128 == 0 ? 128 : row_bytes % 64 == 0 ? 64 : 32;
}

// Hopper's swizzles of 128, 64 and 32 bytes: the 16-byte piece of a byte is XORed with the bits of
// its address above the row's 128 bytes (PTX ISA, "Swizzling modes"). `offset` counts from a
// multiple of 1024; `row_bytes` names the swizzle.
constexpr std::size_t swizzle_offset(std::size_t offset, std::size_t row_bytes) {
  const std::size_t pieces = row_bytes / 16;
  return offset ^ ((offset / 128 % pieces) * 16);
}

// Place in a transposed row of 64 tokens. In each sixteen, tokens t and t + 8 are brought together:
// 0 1 8 9 2 3 10 11 ..., the order in which the tensor core leaves scores in one thread's registers
// when keys are its columns and reads weights from them, so that prefill hands its softmax on as it
// stands.
constexpr int transposed_place(int token) {
  const int within = token % 16;
  return token - within + (within % 8) / 2 * 4 + within / 8 * 2 + within % 2;
}

// In bytes from the side's first.
constexpr std::size_t element_offset(KvOrder order, std::size_t element_bytes, int head_dim,
                                     int token, int dimension) {
  const auto t = static_cast<std::size_t>(token);
  const auto d = static_cast<std::size_t>(dimension);
  const auto width = static_cast<std::size_t>(head_dim);
  switch (order) {
    case KvOrder::token_major:
      return (t * width + d) * element_bytes;
    case KvOrder::dimension_major:
      return (d * page_tokens + t) * element_bytes;
    case KvOrder::swizzled_rows: {
      const std::size_t row = panel_row_bytes(width * element_bytes);
      const std::size_t panel = d * element_bytes / row;
      return panel * row * page_tokens + swizzle_offset(t * row + d * element_bytes % row, row);
    }
    case KvOrder::swizzled_transpose:
      return swizzle_offset(d * page_tokens + static_cast<std::size_t>(transposed_place(token)),
                            page_tokens);
  }
  return 0;
}

}  // namespace octet
