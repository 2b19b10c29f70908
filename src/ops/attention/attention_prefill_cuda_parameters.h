// What a launch of the portable prefill kernel is told. Internal to src/ops/attention.
#pragma once

#include "ops/attention/attention_cuda_parameters.h"

namespace octet {

// Rows that a block computes. A row is a query row of one head: row f of a sequence is head f %
// group of its query row f / group, so that keys are read once for all heads of a KV head.
struct alignas(16) AttentionPrefillTile {
  std::int32_t sequence;
  std::int32_t query_row;       // the sequence's first, among those of the step
  std::int32_t first_position;  // of that query row
  std::int32_t context;
  std::int32_t first_row;   // of this tile
  std::int32_t rows;        // of the sequence
  std::int32_t first_keys;  // tiles of keys [first_keys, end_keys)
  std::int32_t end_keys;
};

struct AttentionPrefillParameters {
  AttentionParameters common;
  const AttentionPrefillTile* tiles;
};

struct AttentionPrefillKernel {
  void (*function)(AttentionPrefillParameters) = nullptr;
  std::size_t shared_bytes = 0;
  int threads = 0;
  int tile_rows = 0;
  int tile_keys = 0;
};

// For heads of at most so many elements, by whether each side is stored in 8 bits.
AttentionPrefillKernel attention_prefill_kernel_64(bool key_codes, bool value_codes);
AttentionPrefillKernel attention_prefill_kernel_128(bool key_codes, bool value_codes);
AttentionPrefillKernel attention_prefill_kernel_256(bool key_codes, bool value_codes);
AttentionPrefillKernel attention_prefill_kernel_512(bool key_codes, bool value_codes);

}  // namespace octet
