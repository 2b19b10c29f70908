// Where attention can be had with single-level accumulation (ops/attention_accumulation.h).
#pragma once

#include <string>

#include "kv/kv_policy.h"

namespace octet {

// Whether Hopper's decode kernel has it over such a layer; `why`, where not null, is told what is
// missing.
bool has_single_level(const KvLayerPolicy& policy, int head_dim, std::string* why = nullptr);

}  // namespace octet
