// How the cache's bytes lie: pages, groups of layers, and the run of one (layer, KV head).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/kv_geometry.h"
#include "kv/kv_policy.h"

namespace octet {

inline constexpr int page_tokens = 64;
// The widest head that the cache's operations take; and a head_dim must be a multiple of 8.
inline constexpr int max_head_dim = 512;

// The order of the elements inside a run's K or V (kv/element_order.h has the formulas).
enum class KvOrder : std::uint8_t {
  token_major,         // [page_tokens][head_dim]
  dimension_major,     // [head_dim][page_tokens]
  swizzled_rows,       // [panel][page_tokens][panel bytes], the tensor core's swizzle
  swizzled_transpose,  // [head_dim][page_tokens], tokens permuted in sixteens, swizzled; 8-bit only
};

// Whose order a cache's pages have. A page is as large either way, and convertible (kv/convert.h).
enum class KvTarget : std::uint8_t { cpu, sm90 };

// One (layer, KV head) of a page: K, V and then their scales (bfloat16, one a token), contiguous
// and aligned to 128 bytes. On the CPU keys are dimension-major, so that the scores of eight or
// more tokens fill the lanes of a vector without a horizontal sum, and values are token-major, so
// that a token's weight multiplies whole vectors of its value. On Hopper (sm90) both are the tensor
// core's operands as they lie, so that a bulk copy feeds it (docs/kernels/layout.md).
struct KvRunLayout {
  KvLayerPolicy policy;
  int head_dim = 0;
  KvOrder key_order = KvOrder::dimension_major;
  KvOrder value_order = KvOrder::token_major;
  std::size_t key_offset = 0;
  std::size_t value_offset = 0;
  std::size_t key_scale_offset = 0;    // meaningful with dynamic scales only
  std::size_t value_scale_offset = 0;  // meaningful with dynamic scales only
  std::size_t bytes = 0;
};

// Throws Error{unsupported} where the target has no order for a side: float32 on sm90, or rows
// there that are no multiple of 32 bytes.
KvRunLayout make_run_layout(const KvLayerPolicy& policy, int head_dim,
                            KvTarget target = KvTarget::cpu);

// Layers that are alike share pages: a page of a group holds page_tokens tokens of all its layers.
struct KvGroup {
  KvLayerGeometry geometry;
  KvRunLayout run;
  std::vector<int> layers;
  std::size_t layer_bytes = 0;  // of one layer in a page: kv_heads runs
  std::size_t page_bytes = 0;
};

class KvLayout {
 public:
  // One geometry and one policy per layer.
  KvLayout(const std::vector<KvLayerGeometry>& geometry, const KvPolicy& policy,
           KvTarget target = KvTarget::cpu);

  const std::vector<KvGroup>& groups() const { return groups_; }
  int group_of(int layer) const { return places_[static_cast<std::size_t>(layer)].group; }
  int index_in_group(int layer) const { return places_[static_cast<std::size_t>(layer)].index; }
  int layers() const { return static_cast<int>(places_.size()); }
  // The layer's scales and means that no page holds.
  const KvLayerConstants& constants(int layer) const {
    return constants_[static_cast<std::size_t>(layer)];
  }

  // Bytes that one more token costs over all layers, windows aside: a page's bytes / page_tokens.
  double bytes_per_token() const;

 private:
  struct Place {
    int group = 0;
    int index = 0;
  };
  std::vector<KvGroup> groups_;
  std::vector<Place> places_;
  std::vector<KvLayerConstants> constants_;  // one per layer
};

}  // namespace octet
