// The copy of a cache on the GPU, in Hopper's order.
#pragma once

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/cuda/device_memory.h"
#include "kv/convert.h"
#include "ops/cuda/device_rows.h"
#include "support/paged_cache.h"

namespace octet {
inline namespace test_support {

// Every page of a PagedCache has a shuffled place of its own; the table's unused entries are no
// page at all.
class GpuCache {
 public:
  GpuCache(const PagedCache& cache, const std::vector<std::int64_t>& lengths, unsigned seed = 1)
      : group_(*cache.layer().group) {
    group_.run = make_run_layout(group_.run.policy, group_.run.head_dim, KvTarget::sm90);
    if (cache.layer().constants != nullptr) upload_constants(*cache.layer().constants);
    std::size_t pages = 0;
    for (const std::int64_t length : lengths) {
      counts_.push_back(static_cast<std::size_t>((length + page_tokens - 1) / page_tokens));
      pages += counts_.back();
      stride_ = std::max(stride_, counts_.back());
    }
    std::vector<PageId> places(pages);
    std::iota(places.begin(), places.end(), PageId{0});
    std::shuffle(places.begin(), places.end(), std::mt19937(seed));
    std::vector<std::byte> arena(pages * group_.page_bytes, std::byte{0x7F});
    host_table_.assign(counts_.size() * stride_, std::numeric_limits<PageId>::max());
    std::size_t next = 0;
    for (std::size_t sequence = 0; sequence < counts_.size(); ++sequence) {
      for (std::size_t page = 0; page < counts_[sequence]; ++page) {
        host_table_[sequence * stride_ + page] = places[next++];
        for (int head = 0; head < group_.geometry.kv_heads; ++head) {
          const std::vector<std::byte> run = converted(cache, sequence, page, head);
          std::copy(run.begin(), run.end(), arena.data() + offset(sequence, page, head));
        }
      }
    }
    arena_ = DeviceArray<std::byte>(arena);
    table_ = DeviceArray<PageId>(host_table_);
  }

  DeviceKvLayer layer() const {
    DeviceKvLayer layer;
    layer.view.arena = arena_.data();
    layer.view.slab_bytes = group_.page_bytes;
    layer.view.page_bytes = group_.page_bytes;
    layer.view.group = &group_;
    layer.key_scales = key_scales_.data();
    layer.value_scales = value_scales_.data();
    layer.key_mean = key_mean_.data();
    return layer;
  }
  const PageId* table() const { return table_.data(); }
  int table_stride() const { return static_cast<int>(stride_); }
  std::size_t pages_of(std::size_t sequence) const { return counts_[sequence]; }

  // The run of a page of `cache` as it should be on the GPU.
  std::vector<std::byte> converted(const PagedCache& cache, std::size_t sequence, std::size_t page,
                                   int head) const {
    const KvLayerView host = cache.layer();
    std::vector<std::byte> run(group_.run.bytes);
    convert_run(host.group->run, host.run(cache.pages(sequence)[page], head), group_.run,
                run.data());
    return run;
  }
  std::vector<std::byte> download() const { return arena_.download(); }
  const std::byte* place(const std::vector<std::byte>& arena, std::size_t sequence,
                         std::size_t page, int head) const {
    return arena.data() + offset(sequence, page, head);
  }

 private:
  std::size_t offset(std::size_t sequence, std::size_t page, int head) const {
    return static_cast<std::size_t>(host_table_[sequence * stride_ + page]) * group_.page_bytes +
           static_cast<std::size_t>(head) * group_.run.bytes;
  }
  void upload_constants(const KvLayerConstants& constants) {
    key_scales_ = DeviceArray<float>(constants.key_scales);
    value_scales_ = DeviceArray<float>(constants.value_scales);
    key_mean_ = DeviceArray<float>(constants.key_mean);
  }

  KvGroup group_;
  std::vector<std::size_t> counts_;
  std::size_t stride_ = 0;
  std::vector<PageId> host_table_;
  DeviceArray<std::byte> arena_;
  DeviceArray<PageId> table_;
  DeviceArray<float> key_scales_;
  DeviceArray<float> value_scales_;
  DeviceArray<float> key_mean_;
};

}  // namespace test_support
}  // namespace octet
