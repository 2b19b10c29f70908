// How the CPU ops hand work to the pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/context.h"

namespace octet {

inline int thread_count(const OpContext& context) {
  return context.pool == nullptr ? 1 : context.pool->size();
}

// Calls body(begin, end) over a partition of [0, count) into at most 4 parts per thread (enough for
// a late thread not to be waited for) and never parts of less than `min_part` indices: what is too
// small to share runs on the caller alone. Parts are equal to within one index. `body` must not
// care how the range is cut. Allocates nothing.
template <class Body>
void parallel_ranges(const OpContext& context, std::int64_t count, std::int64_t min_part,
                     const Body& body) {
  if (count <= 0) return;
  const std::int64_t threads = thread_count(context);
  const std::int64_t by_size = count / std::max<std::int64_t>(min_part, 1);
  const std::int64_t parts = threads == 1 ? 1 : std::clamp<std::int64_t>(by_size, 1, 4 * threads);
  if (parts == 1) {
    body(std::int64_t{0}, count);
    return;
  }
  struct Split {
    const Body& body;
    std::int64_t count;
    std::int64_t parts;
  };
  const Split split = {body, count, parts};
  // One captured reference: std::function keeps so small a closure inside itself.
  context.pool->parallel_for(parts, [&split](std::int64_t part, int) {
    const std::int64_t size = split.count / split.parts;
    const std::int64_t larger = split.count % split.parts;
    const std::int64_t begin = part * size + std::min(part, larger);
    split.body(begin, begin + size + (part < larger ? 1 : 0));
  });
}

}  // namespace octet
