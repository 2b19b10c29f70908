#include "kv/kv_layout.h"

#include "core/error.h"

namespace octet {

namespace {

constexpr std::size_t run_alignment = 128;

std::size_t align_up(std::size_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Keys of 8 bits and both sides of 16 bits are rows: the tensor core takes 16-bit operands in
// either direction. Values of 8 bits it takes along the tokens only, so they lie transposed.
KvOrder sm90_order(const KvSidePolicy& side, int head_dim, bool is_value) {
  const std::size_t row_bytes = static_cast<std::size_t>(head_dim) * bytes_of(side.dtype);
  if (side.dtype == KvDtype::float32 || row_bytes % 32 != 0) {
    throw_unsupported(
        "a cache of {} with head_dim {} has no page order for Hopper GPUs; expected a format of 8 "
        "or "
        "16 bits and rows of a multiple of 32 bytes",
        name_of(side.dtype), head_dim);
  }
  return is_value && is_eight_bit(side.dtype) ? KvOrder::swizzled_transpose
                                              : KvOrder::swizzled_rows;
}

}  // namespace

KvRunLayout make_run_layout(const KvLayerPolicy& policy, int head_dim, KvTarget target) {
  KvRunLayout run;
  if (target == KvTarget::sm90) {
    run.key_order = sm90_order(policy.key, head_dim, false);
    run.value_order = sm90_order(policy.value, head_dim, true);
  }
  run.policy = policy;
  run.head_dim = head_dim;
  const auto elements = static_cast<std::size_t>(page_tokens) * static_cast<std::size_t>(head_dim);
  const std::size_t scale_bytes = page_tokens * sizeof(std::uint16_t);
  std::size_t offset = 0;
  run.key_offset = offset;
  offset += elements * bytes_of(policy.key.dtype);
  run.value_offset = offset;
  offset += elements * bytes_of(policy.value.dtype);
  run.key_scale_offset = offset;
  if (policy.key.scales == KvScales::dynamic) offset += scale_bytes;
  run.value_scale_offset = offset;
  if (policy.value.scales == KvScales::dynamic) offset += scale_bytes;
  run.bytes = align_up(offset, run_alignment);
  return run;
}

KvLayout::KvLayout(const std::vector<KvLayerGeometry>& geometry, const KvPolicy& policy,
                   KvTarget target) {
  if (geometry.size() != policy.layers.size()) {
    throw_error(ErrorKind::internal, "a cache policy of {} layers was made for a model of {}",
                policy.layers.size(), geometry.size());
  }
  places_.resize(geometry.size());
  constants_ = policy.constants;
  constants_.resize(geometry.size());
  for (std::size_t layer = 0; layer < geometry.size(); ++layer) {
    std::size_t group = 0;
    while (group < groups_.size() && !(groups_[group].geometry == geometry[layer] &&
                                       groups_[group].run.policy == policy.layers[layer])) {
      ++group;
    }
    if (group == groups_.size()) {
      KvGroup made;
      made.geometry = geometry[layer];
      made.run = make_run_layout(policy.layers[layer], geometry[layer].head_dim, target);
      made.layer_bytes = made.run.bytes * static_cast<std::size_t>(geometry[layer].kv_heads);
      groups_.push_back(std::move(made));
    }
    places_[layer] = {static_cast<int>(group), static_cast<int>(groups_[group].layers.size())};
    groups_[group].layers.push_back(static_cast<int>(layer));
    groups_[group].page_bytes += groups_[group].layer_bytes;
  }
}

double KvLayout::bytes_per_token() const {
  std::size_t bytes = 0;
  for (const KvGroup& group : groups_) bytes += group.page_bytes;
  return static_cast<double>(bytes) / page_tokens;
}

}  // namespace octet
