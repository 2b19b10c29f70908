// Prefill attention over a paged cache on Hopper GPUs.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime_api.h>

#include "core/cuda/device_memory.h"
#include "ops/attention/attention_cuda_args.h"
#include "ops/attention/prefill_sm90_sequence.h"

namespace octet {

// What a launch's shape depends on; fixed for a layer of a model.
struct PrefillSm90Shape {
  int head_dim = 0;     // 64, 128 or 256
  int query_heads = 0;  // a multiple of kv_heads
  int kv_heads = 0;
  int window = 0;  // keys that a query sees, itself included; 0: all
  // bfloat16; fp8 with scales that are dynamic on both sides or on neither; or int8:fp8 with
  // dynamic scales.
  KvLayerPolicy policy;
};

// Who computes what. One serves all layers of a shape, one launch after the other on one stream.
class PrefillSm90Workspace {
 public:
  // For steps of at most so many query rows and sequences. Throws Error{unsupported} for a shape
  // without a kernel, Error{device} or Error{out_of_memory}.
  PrefillSm90Workspace(const PrefillSm90Shape& shape, int max_query_rows, int max_sequences);

  // Whether there is a kernel for a shape.
  static bool supports(const PrefillSm90Shape& shape);

  // Divides the work of a step. Once a step, on the stream of the launches that follow; sequence i
  // is line i of their page table.
  void plan(std::span<const PrefillSm90Sequence> sequences, cudaStream_t stream);

  const PrefillSm90Shape& shape() const { return shape_; }

 private:
  friend void prefill_sm90(const AttentionCudaArgs& args, PrefillSm90Workspace& workspace,
                           cudaStream_t stream);
  PrefillSm90Shape shape_;
  int multiprocessors_ = 0;
  int block_count_ = 0;
  DeviceArray<std::byte> blocks_;
  DeviceArray<std::uint32_t> counters_;
};

// output[r][h] = sum_j softmax_j(softmax_scale * q[r][h] . k[j][h / group]) v[j][h / group]
// over the keys that attention() (attention.h) names, for the rows of each sequence that the
// workspace was planned for; the keys and values of all rows must have been written. Throws
// Error{internal} for soft caps and sinks, which it does not have.
//
// Rounding beside that of K and V, of 8 bits: the query to e4m3, scaled by the power of two that
// brings the largest norm of up to 128 neighbouring rows to [4, 8) (head_dim 64: [8, 16)), or
// beside int8 keys to int8, each row's largest element to 127; scores to float16, of e4m3 each sum
// of 32 dimensions anew, of int8 the exact sum once; and then as powers of two, of which those
// above 2048 lose their last whole bit; the softmax weights, times the values' scales, to e4m3,
// scaled by a power of two of each row and 128 keys that brings the largest to (1, 256]. Row sums
// are those of the rounded weights. Products of 128 keys are added up by the tensor core in 14
// bits, and these in float32. Of bfloat16: the weights to bfloat16, and nothing else. The result
// depends on how rows are chunked only through this rounding; not on the pages' places.
void prefill_sm90(const AttentionCudaArgs& args, PrefillSm90Workspace& workspace,
                  cudaStream_t stream);

}  // namespace octet
