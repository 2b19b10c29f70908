#include "ops/attention/single_level.h"

#include <fmt/format.h>

namespace octet {

bool has_single_level(const KvLayerPolicy& policy, int head_dim, std::string* why) {
  const bool fp8 = policy.key.dtype == KvDtype::fp8 && policy.value.dtype == KvDtype::fp8;
  if (fp8 && (head_dim == 64 || head_dim == 128 || head_dim == 256)) return true;
  if (why != nullptr) {
    *why = fmt::format(
        "single-level accumulation is there for a cache of fp8 at head_dim 64, 128 and 256, and "
        "this one is {} at head_dim {}",
        describe(policy), head_dim);
  }
  return false;
}

}  // namespace octet
