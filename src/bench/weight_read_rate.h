// The rate at which the GPU reads memory in order: what a product of few rows is held to.
#pragma once

#include <cstddef>

namespace octet {

// TB/s of reading `bytes` (a multiple of 16) at `data` once into shared memory by bulk copies that
// nothing waits for but their buffers: the median of samples over at least 200 ms.
double measure_weight_read_rate(const std::byte* data, std::size_t bytes, int multiprocessors);

}  // namespace octet
