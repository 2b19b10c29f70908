// The rate at which the GPU reads pages: what a decode kernel is held to.
#pragma once

#include "bench/random_cache.h"

namespace octet {

// TB/s of reading all runs of the cache once, in the table's random order, into shared memory by
// bulk copies that nothing waits for but their buffers: the median of samples over at least 200 ms.
double measure_read_rate(const RandomCache& cache, int kv_heads, int multiprocessors);

}  // namespace octet
