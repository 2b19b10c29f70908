// Decode attention over an 8-bit paged cache on Hopper GPUs.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/cuda/device_memory.h"
#include "kv/page_pool.h"

namespace octet {

// What a launch's shape depends on; fixed for a layer of a model.
struct DecodeSm90Shape {
  int head_dim = 0;     // 64, 128 or 256
  int query_heads = 0;  // a multiple of kv_heads
  int kv_heads = 0;
  int query_rows = 1;  // of each sequence: its newest tokens; group x query_rows is at most 8
  int window = 0;      // keys that a query sees, itself included; 0: all
  KvLayerPolicy policy;
};

// Who computes what, and room for the parts of a split sequence. One serves all layers of a shape,
// one launch after the other on one stream.
class DecodeSm90Workspace {
 public:
  // One block for each multiprocessor of the current device. Throws Error{unsupported} for a shape
  // without a kernel, Error{device} or Error{out_of_memory}.
  DecodeSm90Workspace(const DecodeSm90Shape& shape, int max_sequences);

  // Divides the work of a step among the device's warpgroups, evenly by pages, from lengths that
  // lie on the device. Once a step, on the stream of the launches that follow.
  //   context_lengths: [sequences] keys of each sequence, its query rows included; on the device
  void plan(const std::int32_t* context_lengths, int sequences, cudaStream_t stream);

  const DecodeSm90Shape& shape() const { return shape_; }
  int blocks() const { return blocks_; }

 private:
  friend void decode_sm90(const struct DecodeSm90Args& args, DecodeSm90Workspace& workspace,
                          cudaStream_t stream);
  DecodeSm90Shape shape_;
  int max_sequences_ = 0;
  int blocks_ = 0;
  int sequences_ = 0;
  const std::int32_t* context_lengths_ = nullptr;
  DeviceArray<std::byte> pieces_map_;
  DeviceArray<std::byte> shared_pairs_;
  DeviceArray<std::int32_t> starts_;
  DeviceArray<std::byte> parts_;
  DeviceArray<std::uint32_t> arrivals_;
};

enum class DecodeOutput : std::uint8_t { bfloat16, float32 };

// output[r][h] = sum_j softmax_j(softmax_scale * q[r][h] . k[j][h / group]) v[j][h / group]
// over the keys that attention() (attention.h) names, for the query_rows newest tokens of each
// sequence that the workspace was planned for.
//   query: [sequences * query_rows, query_heads, head_dim] bfloat16, output the same shape; row
//     strides in elements; 16-byte aligned rows
//   layer: pages in sm90's order (KvTarget::sm90), on the device
//   page_table: [sequences][page_table_stride] on the device: page i holds tokens [64 i, 64 i + 64)
//
// Rounding beside that of K and V: a query and a softmax weight are each two e4m3 terms (about 8
// bits), added up in float32 from products that the tensor core adds in 14 bits for 64 keys at
// most. The result depends on the lengths, the number of blocks and nothing else: not on the pages'
// places.
struct DecodeSm90Args {
  const void* query = nullptr;
  void* output = nullptr;
  DecodeOutput output_type = DecodeOutput::bfloat16;
  std::int64_t query_stride = 0;
  std::int64_t output_stride = 0;
  float softmax_scale = 0;
  KvLayerView layer;
  const PageId* page_table = nullptr;
  int page_table_stride = 0;
  // Begins while the kernel before still runs (programmatic dependent launch), and asks for pages
  // before it has ended. Allowed where that kernel, and every one before it that may still run,
  // writes neither the plan, the lengths and the page table, nor keys and values but those of the
  // query_rows newest tokens. The query may be its output.
  bool overlap = false;
};
void decode_sm90(const DecodeSm90Args& args, DecodeSm90Workspace& workspace, cudaStream_t stream);

}  // namespace octet
