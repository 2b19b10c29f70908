// Moves the runs of a page between the orders of two devices.
#pragma once

#include <cstddef>

#include "kv/kv_layout.h"

namespace octet {

// Copies one run bit for bit, its elements into the other layout's order; scales and padding keep
// their places. Both layouts must be of one policy and head_dim: else Error{internal}. `from` and
// `to` may not overlap.
void convert_run(const KvRunLayout& from_layout, const std::byte* from,
                 const KvRunLayout& to_layout, std::byte* to);

}  // namespace octet
