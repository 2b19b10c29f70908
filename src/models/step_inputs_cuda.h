// What a step's kernels read of its rows: laid out on the host, copied to the device in one piece.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/cuda/device_memory.h"
#include "core/cuda/pinned_array.h"
#include "models/model.h"
#include "ops/cuda/device_rows.h"
#include "ops/sampling/sample_cuda.h"

namespace octet {

// How much of a step there is, padding included.
struct StepSizes {
  int rows = 0;
  int sequences = 0;
  int logit_rows = 0;
  bool operator==(const StepSizes&) const = default;
};

// All pointers are the device's; where an array lies depends on the sizes alone, so that a captured
// graph finds the next step's in the same place.
struct StepInputs {
  StepSizes sizes;
  int decode_sequences = 0;  // the first; one row each
  // Whether their pages but for the row's own were filled by earlier steps.
  bool settled = false;
  // Whether the logits of every row are wanted.
  bool wants_every_row = false;
  const std::int32_t* tokens = nullptr;           // [rows], -1: padding
  const std::int32_t* positions = nullptr;        // [rows], -1: padding
  const std::int32_t* sequence_of_row = nullptr;  // [rows]
  const std::int32_t* context_lengths = nullptr;  // [sequences], 0: padding
  const std::int32_t* first_written = nullptr;    // [sequences]
  const std::int32_t* logit_rows = nullptr;       // [logit_rows], -1: padding
  const SampleParameters* draws = nullptr;        // [logit_rows]
};

class StepInputsCuda {
 public:
  // For steps of at most `most`.
  explicit StepInputsCuda(const StepSizes& most);

  // Lays the batch out, padded to `sizes`, and copies it. The step before must have ended.
  // `draws` may be empty: then nothing is drawn.
  StepInputs copy(const ForwardBatch& batch, std::span<const DrawRow> draws, const StepSizes& sizes,
                  cudaStream_t stream);

 private:
  PinnedArray<std::byte> host_;
  DeviceArray<std::byte> device_;
};

// The page tables of a step's sequences, one for each group of layers: [sequences][stride] PageId.
class PageTablesCuda {
 public:
  PageTablesCuda(int groups, int max_sequences, std::int64_t max_positions);

  // Copies what changed since the last step, which must have ended.
  void copy(const ForwardBatch& batch, cudaStream_t stream);
  const PageId* table(int group) const { return tables_[static_cast<std::size_t>(group)].data(); }
  int stride() const { return stride_; }

 private:
  void copy_group(const ForwardBatch& batch, std::size_t group, cudaStream_t stream);

  int stride_;
  std::vector<PinnedArray<PageId>> host_;
  std::vector<DeviceArray<PageId>> tables_;
};

}  // namespace octet
