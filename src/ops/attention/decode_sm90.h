// Decode attention over a paged cache on Hopper GPUs.
#pragma once

#include <cstdint>
#include <string>

#include <cuda_runtime_api.h>

#include "core/cuda/device_memory.h"
#include "ops/attention/attention_cuda_args.h"
#include "ops/attention_accumulation.h"

namespace octet {

// What a launch's shape depends on; fixed for a layer of a model.
struct DecodeSm90Shape {
  int head_dim = 0;     // 64, 96, 128, 192, 256; beside 8-bit values 512
  int query_heads = 0;  // a multiple of kv_heads
  int kv_heads = 0;
  // Of each sequence: its newest tokens. A KV head's queries (group x query_rows) are taken up to
  // 16 at once (8 at head_dim 512); more of them read the cache again for every 16.
  int query_rows = 1;
  int window = 0;  // keys that a query sees, itself included; 0: all
  // fp8, int8:fp8 or bfloat16, each with any of its scales.
  KvLayerPolicy policy;
  // single_level: what has_single_level() says.
  AttentionAccumulation accumulation = AttentionAccumulation::two_level;
};

// Who computes what, and room for the parts of a split sequence. One serves all layers of a shape,
// one launch after the other on one stream, whose launches wait for no other stream's.
class DecodeSm90Workspace {
 public:
  // One block for each multiprocessor of the current device. Throws Error{unsupported} for a shape
  // without a kernel, Error{device} or Error{out_of_memory}.
  DecodeSm90Workspace(const DecodeSm90Shape& shape, int max_sequences);

  // Whether there is a kernel for a shape; `why`, where not null, is told what is missing.
  static bool supports(const DecodeSm90Shape& shape, std::string* why = nullptr);

  // Divides the work of a step among the device's warpgroups, evenly by pages, from lengths that
  // lie on the device. Once a step, on the stream of the launches that follow.
  //   context_lengths: [sequences] keys of each sequence, its query rows included; on the device,
  //     read by the launches too. 0: padding, for which no output is written
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
};

// output[r][h] = sum_j softmax_j(softmax_scale * q[r][h] . k[j][h / group]) v[j][h / group]
// over the keys that attention() (attention.h) names, for the query_rows newest tokens of each
// sequence that the workspace was planned for: rows are [sequences * query_rows]. Static scales of
// keys enter the scores, those of values the sum of the weights.
//
// Rounding beside that of K and V: beside 8-bit values a softmax weight is two e4m3 terms (about 8
// bits), and so is a query beside e4m3 keys; beside int8 keys it is two int8 terms (16 bits, scores
// exact from there on); beside bfloat16 values a weight is bfloat16. Products are added up in
// float32 from turns of 64 or 128 keys, in which the tensor core keeps 14 bits of e4m3 products.
// The result depends on the lengths, the number of blocks and nothing else: not on the pages'
// places.
//
// Blocks wait for one another's parts, and there is one for each multiprocessor: no kernel that
// does the same (another decode, a chain of products: linear/linear_chain.h) may run beside it on
// another stream, where each would hold what the other waits for.
struct DecodeSm90Args : AttentionCudaArgs {
  // Begins while the kernel before still runs (programmatic dependent launch), and asks for pages
  // before it has ended. Allowed where that kernel, and every one before it that may still run,
  // writes neither the plan, the lengths and the page table, nor keys and values but those of the
  // query_rows newest tokens. The query may be its output.
  bool overlap = false;
};
void decode_sm90(const DecodeSm90Args& args, DecodeSm90Workspace& workspace, cudaStream_t stream);

}  // namespace octet
