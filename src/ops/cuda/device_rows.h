// One step's rows and one layer's cache, as kernels see them.
#pragma once

#include <cstdint>

#include "kv/page_pool.h"

namespace octet {

// All pointers are on the device. A padded row has position -1, a padded sequence context length 0:
// nothing is read from the cache or written for them.
struct DeviceRows {
  int rows = 0;
  int sequences = 0;
  const std::int32_t* positions = nullptr;        // [rows]
  const std::int32_t* sequence_of_row = nullptr;  // [rows]
  const std::int32_t* context_lengths = nullptr;  // [sequences], this step's rows included
  // [sequences]: rows at smaller positions are in the cache already, in pages that others may hold
  // too, and are not written; null: all are written.
  const std::int32_t* first_written = nullptr;
  // [sequences][page_table_stride], of the layer's group: page i holds tokens [64 i, 64 i + 64).
  const PageId* page_table = nullptr;
  int page_table_stride = 0;
};

// A layer's pages in KvTarget::sm90's order and what its rounding uses beside them.
struct DeviceKvLayer {
  KvLayerView view;  // arena on the device; `constants` is not looked at
  // Copies of KvLayerConstants on the device, null where it has none.
  const float* key_scales = nullptr;    // [kv_heads], of static scales
  const float* value_scales = nullptr;  // [kv_heads]
  const float* key_mean = nullptr;      // [kv_heads, head_dim], before any rotation
};

}  // namespace octet
