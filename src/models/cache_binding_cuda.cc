#include "models/cache_binding_cuda.h"

namespace octet {

namespace {

// Appends a vector and returns its place; the places of empty ones are not used.
std::size_t append(std::vector<float>& all, const std::vector<float>& values) {
  const std::size_t place = all.size();
  all.insert(all.end(), values.begin(), values.end());
  return place;
}

}  // namespace

CacheBindingCuda::CacheBindingCuda(const ModelConfig& config, const PagePool& pool,
                                   const StepSizes& most, std::int64_t max_positions,
                                   int architecture, AttentionAccumulation accumulation)
    : pool_id_(pool.id()),
      page_tables_(static_cast<int>(pool.layout().groups().size()), most.sequences, max_positions),
      counts_(static_cast<std::size_t>(config.layers)),
      host_counts_(static_cast<std::size_t>(config.layers)),
      added_counts_(static_cast<std::size_t>(config.layers), DeviceKvCounts{}) {
  counts_.fill_bytes(0);
  for (int layer = 0; layer < config.layers; ++layer) {
    layers_.push_back({.view = pool.layer_view(layer)});
    group_of_.push_back(pool.layout().group_of(layer));
  }
  upload_constants(pool.layout());
  for (const KvGroup& group : pool.layout().groups()) {
    attention_.push_back(std::make_unique<GroupAttentionCuda>(
        config, group, most.sequences, most.rows, architecture, accumulation));
  }
  // What was filled above lies on another stream than the steps will.
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void CacheBindingCuda::upload_constants(const KvLayout& layout) {
  std::vector<float> all;
  struct Places {
    std::size_t key_scales, value_scales, key_mean;
  };
  std::vector<Places> places;
  for (int layer = 0; layer < layout.layers(); ++layer) {
    const KvLayerConstants& constants = layout.constants(layer);
    Places place = {};
    place.key_scales = append(all, constants.key_scales);
    place.value_scales = append(all, constants.value_scales);
    place.key_mean = append(all, constants.key_mean);
    places.push_back(place);
  }
  constants_ = DeviceArray<float>(all);
  for (int layer = 0; layer < layout.layers(); ++layer) {
    const KvLayerConstants& constants = layout.constants(layer);
    const Places& place = places[static_cast<std::size_t>(layer)];
    DeviceKvLayer& on_device = layers_[static_cast<std::size_t>(layer)];
    const auto at = [&](std::size_t offset, const std::vector<float>& values) {
      return values.empty() ? nullptr : constants_.data() + offset;
    };
    on_device.key_scales = at(place.key_scales, constants.key_scales);
    on_device.value_scales = at(place.value_scales, constants.value_scales);
    on_device.key_mean = at(place.key_mean, constants.key_mean);
  }
}

void CacheBindingCuda::copy_counts(cudaStream_t stream) {
  check_cuda(cudaMemcpyAsync(host_counts_.data(), counts_.data(), counts_.bytes(),
                             cudaMemcpyDeviceToHost, stream),
             "cudaMemcpyAsync");
}

void CacheBindingCuda::add_counts(KvWriteCounters* counters) {
  for (std::size_t layer = 0; layer < added_counts_.size(); ++layer) {
    const DeviceKvCounts& now = host_counts_[layer];
    DeviceKvCounts& before = added_counts_[layer];
    KvWriteCounts grown;
    grown.saturated = static_cast<std::int64_t>(now.saturated - before.saturated);
    grown.subnormal = static_cast<std::int64_t>(now.subnormal - before.subnormal);
    grown.non_finite = static_cast<std::int64_t>(now.non_finite - before.non_finite);
    if (counters != nullptr && grown.any()) counters->add(static_cast<int>(layer), grown);
    before = now;
  }
}

}  // namespace octet
