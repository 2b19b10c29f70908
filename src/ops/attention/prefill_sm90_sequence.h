// The rows that a sequence brings to a prefill step.
#pragma once

#include <cstdint>

namespace octet {

struct PrefillSm90Sequence {
  std::int32_t first_query_row = 0;  // among the rows of the query and of the output
  std::int32_t rows = 0;             // its newest tokens
  std::int32_t context = 0;          // its keys, those of the rows included
};

}  // namespace octet
