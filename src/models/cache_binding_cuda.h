// What a model keeps on the GPU for one cache: its layers as kernels see them, page tables, plans
// of attention, counters, and the graphs that were captured over all these.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/cuda/stream.h"
#include "models/attention_cuda.h"
#include "ops/quantize/cache_write_cuda.h"
#include "ops/quantize/kv_write_counters.h"

namespace octet {

// A decode step that can be replayed. The first of its size runs as it is, so that whatever is
// prepared on first use is; the second is captured.
struct DecodeGraph {
  bool has_run = false;
  CudaGraph graph;
};
struct DecodeGraphKey {
  int sequences = 0;
  std::int64_t usable_logits = 0;
  auto operator<=>(const DecodeGraphKey&) const = default;
};

class CacheBindingCuda {
 public:
  // For steps of at most `most`, of positions below max_positions. `pool` may go once nothing is
  // asked for it any more.
  CacheBindingCuda(const ModelConfig& config, const PagePool& pool, const StepSizes& most,
                   std::int64_t max_positions, int architecture,
                   AttentionAccumulation accumulation);

  std::uint64_t pool_id() const { return pool_id_; }
  const DeviceKvLayer& layer(int index) const { return layers_[static_cast<std::size_t>(index)]; }
  int group_of(int layer) const { return group_of_[static_cast<std::size_t>(layer)]; }
  GroupAttentionCuda& attention(int group) { return *attention_[static_cast<std::size_t>(group)]; }
  const GroupAttentionCuda& attention(int group) const {
    return *attention_[static_cast<std::size_t>(group)];
  }
  int groups() const { return static_cast<int>(attention_.size()); }
  PageTablesCuda& page_tables() { return page_tables_; }
  DeviceKvCounts* counts(int layer) { return counts_.data() + layer; }
  std::map<DecodeGraphKey, DecodeGraph>& graphs() { return graphs_; }
  const std::map<DecodeGraphKey, DecodeGraph>& graphs() const { return graphs_; }

  // The counters' way to the host begins in the stream; once that has ended, what they grew by
  // since the last time is added to `counters`.
  void copy_counts(cudaStream_t stream);
  void add_counts(KvWriteCounters* counters);

 private:
  void upload_constants(const KvLayout& layout);

  std::uint64_t pool_id_;
  DeviceArray<float> constants_;
  std::vector<DeviceKvLayer> layers_;
  std::vector<int> group_of_;
  std::vector<std::unique_ptr<GroupAttentionCuda>> attention_;
  PageTablesCuda page_tables_;
  DeviceArray<DeviceKvCounts> counts_;
  PinnedArray<DeviceKvCounts> host_counts_;
  std::vector<DeviceKvCounts> added_counts_;
  std::map<DecodeGraphKey, DecodeGraph> graphs_;
};

}  // namespace octet
