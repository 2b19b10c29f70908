// Attention over the paged cache on any NVIDIA GPU from compute capability 8.0 on.
#pragma once

#include <cstdint>
#include <span>

#include "core/cuda/device_memory.h"
#include "core/cuda/launch.h"
#include "ops/attention/attention_cuda_args.h"
#include "ops/attention/prefill_sm90_sequence.h"

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
// over the keys that attention() (attention.h) names; AttentionCudaArgs says of what.
//
// Products are of float16 (8-bit codes and float16 caches; a query head is scaled by a power of
// two) or bfloat16 (bfloat16 caches), summed up in float32; softmax weights are rounded to the same
// type, relative to the largest product of weight and value scale. The result depends on the
// lengths and on the device alone, not on the pages' places.

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
