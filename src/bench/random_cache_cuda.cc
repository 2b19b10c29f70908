#include <algorithm>
#include <numeric>
#include <random>

#include "bench/random_cache.h"
#include "bench/random_cache_fill.h"
#include "core/error.h"

namespace octet {

KvPolicy random_cache_policy(const KvPolicyOptions& options, int kv_heads) {
  const bool of_tensor = options.scales == "tensor";
  if (!of_tensor && options.scales != "head") return make_kv_policy(options, 1);
  KvPolicyOptions unit = options;
  unit.scales = "unit";
  KvPolicy policy = make_kv_policy(unit, 1);
  const auto make_static = [&](KvSidePolicy& side, std::vector<float>& scales, float scale) {
    if (side.scales != KvScales::unit) return;
    side.scales = of_tensor ? KvScales::tensor : KvScales::head;
    for (int head = 0; head < kv_heads; ++head) {
      scales.push_back(of_tensor ? scale : scale * (1.0f + 0.1f * static_cast<float>(head)));
    }
  };
  make_static(policy.layers[0].key, policy.constants[0].key_scales, 6.0f / 448.0f);
  make_static(policy.layers[0].value, policy.constants[0].value_scales, 7.0f / 448.0f);
  policy.scales_name = options.scales;
  return policy;
}

RandomCache::RandomCache(const RandomCacheShape& shape) : shape_(shape) {
  for (const KvSidePolicy& side : {shape.policy.key, shape.policy.value}) {
    if (side.dtype == KvDtype::float32 || side.dtype == KvDtype::float16) {
      throw_unsupported("bench attention: a cache of {}; expected fp8, int8 or bfloat16",
                        describe(shape.policy));
    }
  }
  if (!shape.constants.key_scales.empty()) {
    key_scales_ = DeviceArray<float>(shape.constants.key_scales);
  }
  if (!shape.constants.value_scales.empty()) {
    value_scales_ = DeviceArray<float>(shape.constants.value_scales);
  }
  group_.geometry = shape.geometry;
  group_.run = make_run_layout(shape.policy, shape.geometry.head_dim, KvTarget::sm90);
  group_.layer_bytes = group_.run.bytes * static_cast<std::size_t>(shape.geometry.kv_heads);
  group_.page_bytes = group_.layer_bytes;
  for (const int length : shape.lengths) {
    const int own = (length + page_tokens - 1) / page_tokens;
    pages_ += own;
    pages_per_sequence_ = std::max(pages_per_sequence_, own);
  }
  arena_ = DeviceArray<std::byte>(static_cast<std::size_t>(pages_) * group_.page_bytes);
  arena_.fill_bytes(0);
  std::vector<PageId> places(static_cast<std::size_t>(pages_));
  std::iota(places.begin(), places.end(), PageId{0});
  std::mt19937 random(7);
  std::shuffle(places.begin(), places.end(), random);
  pages_in_order_ = DeviceArray<PageId>(places);
  const auto stride = static_cast<std::size_t>(pages_per_sequence_);
  host_table_.assign(shape.lengths.size() * stride, no_page);
  auto next = places.begin();
  for (std::size_t i = 0; i < shape.lengths.size(); ++i) {
    const int own = (shape.lengths[i] + page_tokens - 1) / page_tokens;
    std::copy_n(next, own, host_table_.begin() + static_cast<std::ptrdiff_t>(i * stride));
    next += own;
  }
  table_ = DeviceArray<PageId>(host_table_);

  const KvRunLayout& run = group_.run;
  const DeviceArray<int> lengths(shape.lengths);
  const FillParameters parameters = {
      arena_.data(),           table_.data(),           run.bytes,           run.value_offset,
      run.key_scale_offset,    run.value_scale_offset,  run.key_order,       run.value_order,
      shape.policy.key,        shape.policy.value,      key_scales(),        value_scales(),
      shape.geometry.head_dim, shape.geometry.kv_heads, pages_per_sequence_, lengths.data(),
      shape.value_mean};
  launch_random_cache_fill(parameters, static_cast<std::int64_t>(host_table_.size()), nullptr);
  check_cuda(cudaDeviceSynchronize(), "filling the cache");
}

KvLayerView RandomCache::layer() const {
  KvLayerView view;
  view.arena = arena_.data();
  view.slab_bytes = group_.page_bytes;
  view.pages_per_slab = 1;
  view.page_bytes = group_.page_bytes;
  view.group = &group_;
  return view;
}

const std::byte* RandomCache::host_run(PageId page, int kv_head) {
  if (host_arena_.empty()) host_arena_ = arena_.download();
  return host_arena_.data() + static_cast<std::size_t>(page) * group_.page_bytes +
         static_cast<std::size_t>(kv_head) * group_.run.bytes;
}

}  // namespace octet
