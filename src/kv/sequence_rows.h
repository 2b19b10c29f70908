// Which rows of a batch belong to which sequence, and where its cache lies.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/page_pool.h"

namespace octet {

// Rows [first_row, first_row + rows) of a batch are tokens first_position, first_position + 1, ...
// of one sequence. The row at position p sees the keys at positions [0, p], or the last `window` of
// them.
struct SequenceRows {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t first_position = 0;
  // So many of the first rows have their keys and values in the cache already, in pages that others
  // may hold too: they are not written again.
  std::int32_t rows_in_cache = 0;
  // pages[group][i] holds the tokens [64 i, 64 i + 64) of the sequence.
  std::vector<const PageId*> pages;
};

}  // namespace octet
