// What every attention launch on a GPU is told, whichever kernel it is of.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "ops/cuda/device_rows.h"

namespace octet {

enum class AttentionOutput : std::uint8_t { bfloat16, float32 };

//   query: [rows, query_heads, head_dim] bfloat16, as cache_write_cuda() leaves it (rotated where
//     the keys are int8); output the same shape; row strides in elements; rows aligned to 16 bytes
//   page_table: [sequences][page_table_stride] on the device, of the sequences that the workspace
//     was planned for; pages before a window and past the context are not read
//
// soft_cap c > 0: a score s becomes c tanh(s / c). sinks: one more score of each head, whose key
// has no value. Both are of true scores: where the layer has key means, query_means must be given
// with them.
struct AttentionCudaArgs {
  const void* query = nullptr;
  void* output = nullptr;
  AttentionOutput output_type = AttentionOutput::bfloat16;  // float32: Hopper's kernels alone
  std::int64_t query_stride = 0;
  std::int64_t output_stride = 0;
  float softmax_scale = 0;
  float soft_cap = 0;
  const float* sinks = nullptr;        // [query_heads] on the device; null: none
  const float* query_means = nullptr;  // [rows, query_heads] on the device (cache_write_cuda.h)
  DeviceKvLayer layer;
  const PageId* page_table = nullptr;
  int page_table_stride = 0;
};

// A side's static scales, which the layer must have; null where its scales are of another kind.
inline const float* static_scales(const KvSidePolicy& side, const float* of_layer) {
  if (!is_static(side.scales)) return nullptr;
  if (of_layer == nullptr) {
    throw_error(ErrorKind::internal, "attention: a layer of static scales without them");
  }
  return of_layer;
}

}  // namespace octet
