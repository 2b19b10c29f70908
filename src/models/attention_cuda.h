// Which attention kernels a model's layers run on a GPU, and the plan of a step that they share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cuda_bf16.h>

#include "models/model_config.h"
#include "models/step_inputs_cuda.h"
#include "ops/attention/attention_cuda.h"
#include "ops/attention/decode_sm90.h"
#include "ops/attention/prefill_sm90.h"

namespace octet {

// The queries and outputs of all rows of a step: [rows, query_heads, head_dim].
struct AttentionRowsCuda {
  const __nv_bfloat16* query = nullptr;
  __nv_bfloat16* output = nullptr;
};

// Layers of one group of the cache have one shape and share one of these. Hopper's own kernels are
// taken where they know the shape, else those of any GPU.
class GroupAttentionCuda {
 public:
  // For steps of at most so many sequences and query rows. `architecture` is CudaDeviceInfo's.
  // Throws Error{unsupported} where no kernel accumulates in that way.
  GroupAttentionCuda(const ModelConfig& config, const KvGroup& group, int max_sequences,
                     int max_query_rows, int architecture, AttentionAccumulation accumulation);

  // Once a step: the first decode_sequences bring one row each, the others what `prefills` says.
  // Only the decoding part can be captured.
  void plan_decode(const CudaLaunch& launch, const StepInputs& inputs);
  void plan_prefill(const CudaLaunch& launch, std::span<const PrefillSm90Sequence> prefills);

  // One layer, both parts, as they were planned. `page_table` is that of the whole step.
  void attend(const CudaLaunch& launch, const DeviceKvLayer& layer, const PageId* page_table,
              int page_table_stride, const AttentionRowsCuda& rows);

  // "Hopper's" or "portable", for reports.
  const char* decode_kernel() const { return decode_sm90_ ? "sm90" : "portable"; }
  const char* prefill_kernel() const { return prefill_sm90_ ? "sm90" : "portable"; }

 private:
  void attend_decode(const CudaLaunch& launch, const AttentionCudaArgs& args);
  void attend_prefill(const CudaLaunch& launch, const AttentionCudaArgs& args);

  float softmax_scale_;
  std::int64_t query_width_;  // elements of a row
  int decode_sequences_ = 0;
  bool settled_ = false;
  bool has_prefills_ = false;
  std::optional<DecodeSm90Workspace> decode_sm90_;
  std::optional<AttentionDecodeWorkspace> decode_;
  std::optional<PrefillSm90Workspace> prefill_sm90_;
  std::optional<AttentionPrefillWorkspace> prefill_;
};

}  // namespace octet
