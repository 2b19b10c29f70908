// Attention over the paged cache on any NVIDIA GPU from compute capability 8.0 on.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_bf16.h>

#include "core/cuda/device_memory.h"
#include "core/cuda/launch.h"
#include "ops/attention/prefill_sm90_sequence.h"
#include "ops/cuda/device_rows.h"

namespace octet {

// What a launch's shape depends on; fixed for a layer of a model. Any policy but float32's,
// head_dim up to max_head_dim in KvTarget::sm90's order, any number of query heads a KV head.
struct AttentionCudaShape {
  int head_dim = 0;
  int query_heads = 0;  // a multiple of kv_heads
  int kv_heads = 0;
  int window = 0;  // keys that a query sees, itself included; 0: all
  KvLayerPolicy policy;
};

// output[r][h] = sum_j softmax_j(softmax_scale * q[r][h] . k[j][h / group]) v[j][h / group]
// over the keys that attention() (attention.h) names.
//   query: [rows, query_heads, head_dim] bfloat16, as cache_write_cuda() leaves it (rotated where
//     the keys are int8); output the same shape; row strides in elements; rows aligned to 16 bytes
//   page_table: [sequences][page_table_stride] on the device, of the sequences that the workspace
//     was planned for; pages before a window and past the context are not read
//
// soft_cap c > 0: a score s becomes c tanh(s / c). sinks ([query_heads] on the device): one more
// score of each head, whose key has no value. Both are of true scores: where the layer has key
// means, query_means ([rows, query_heads], cache_write_cuda.h) must be given with them.
//
// Products are of float16 (8-bit codes and float16 caches; a query head is scaled by a power of
// two) or bfloat16 (bfloat16 caches), summed up in float32; softmax weights are rounded to the same
// type, relative to the largest product of weight and value scale. The result depends on the
// lengths and on the device alone, not on the pages' places.
struct AttentionCudaArgs {
  const __nv_bfloat16* query = nullptr;
  __nv_bfloat16* output = nullptr;
  std::int64_t query_stride = 0;
  std::int64_t output_stride = 0;
  float softmax_scale = 0;
  float soft_cap = 0;
  const float* sinks = nullptr;
  const float* query_means = nullptr;
  DeviceKvLayer layer;
  const PageId* page_table = nullptr;
  int page_table_stride = 0;
};

// Decode: one row of each sequence, its newest token. Work is divided evenly by pages whatever the
// lengths; sequences in parts are merged within the launch. One workspace serves all layers of a
// shape, one launch after the other on one stream.
class AttentionDecodeWorkspace {
 public:
  // Throws Error{unsupported} for a shape without a kernel, Error{device} or Error{out_of_memory}.
  AttentionDecodeWorkspace(const AttentionCudaShape& shape, int max_sequences);

  // Once a step, on the stream of the launches that follow; can be captured with them.
  //   context_lengths: [sequences] on the device, read by the plan and by the launches; 0: padding,
  //     for which no output is written
  void plan(const CudaLaunch& launch, const std::int32_t* context_lengths, int sequences);

  const AttentionCudaShape& shape() const { return shape_; }
  // Device memory that the workspace holds.
  std::size_t bytes() const;

 private:
  friend void attention_decode_cuda(const CudaLaunch& launch, AttentionDecodeWorkspace& workspace,
                                    const AttentionCudaArgs& args);
  AttentionCudaShape shape_;
  int max_sequences_ = 0;
  int blocks_ = 0;
  int sequences_ = 0;
  const std::int32_t* context_lengths_ = nullptr;
  DeviceArray<std::byte> pieces_;
  DeviceArray<std::byte> shared_pairs_;
  DeviceArray<std::int32_t> starts_;
  DeviceArray<float> parts_;
  DeviceArray<std::uint32_t> arrivals_;
};
void attention_decode_cuda(const CudaLaunch& launch, AttentionDecodeWorkspace& workspace,
                           const AttentionCudaArgs& args);

// Prefill: the newest rows of each sequence, any number. Not for capture: the plan is the host's.
class AttentionPrefillWorkspace {
 public:
  // For steps of at most so many query rows and sequences. Throws as above.
  AttentionPrefillWorkspace(const AttentionCudaShape& shape, int max_query_rows, int max_sequences);

  // Once a step, on the stream of the launches that follow; sequence i is line i of their page
  // table.
  void plan(const CudaLaunch& launch, std::span<const PrefillSm90Sequence> sequences);

  const AttentionCudaShape& shape() const { return shape_; }
  std::size_t bytes() const;

 private:
  friend void attention_prefill_cuda(const CudaLaunch& launch, AttentionPrefillWorkspace& workspace,
                                     const AttentionCudaArgs& args);
  AttentionCudaShape shape_;
  int tile_count_ = 0;
  DeviceArray<std::byte> tiles_;
};
void attention_prefill_cuda(const CudaLaunch& launch, AttentionPrefillWorkspace& workspace,
                            const AttentionCudaArgs& args);

}  // namespace octet
