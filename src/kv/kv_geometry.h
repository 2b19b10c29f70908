// What one layer of a model caches, whatever the format.
#pragma once

namespace octet {

struct KvLayerGeometry {
  int kv_heads = 0;
  int head_dim = 0;
  int window = 0;  // keys that a query sees, itself included; 0: all
  bool operator==(const KvLayerGeometry&) const = default;
};

}  // namespace octet
