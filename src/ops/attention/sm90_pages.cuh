// What Hopper's decode and prefill both do with pages. Internal to src/ops/attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace octet {

// A KV head's run in a page: Parameters has the layer's place and the sizes of slab, page and run.
template <typename Parameters>
__device__ __forceinline__ const std::byte* run_of_page(const Parameters& p, int page,
                                                        int kv_head) {
  const int slab = page / p.pages_per_slab;
  return p.layer + static_cast<std::size_t>(slab) * p.slab_bytes +
         static_cast<std::size_t>(page - slab * p.pages_per_slab) * p.page_bytes +
         static_cast<std::size_t>(kv_head) * p.run_bytes;
}

// Sets the 8-bit values of tokens outside [first, last) of a page to 0, in shared memory: a weight
// of 0 would not silence a NaN. By `threads` threads.
template <int head_dim, int threads>
__device__ void clear_transposed_values(std::uint8_t* values, int first, int last) {
  for (int piece = threadIdx.x % threads; piece < head_dim * 4; piece += threads) {
    const int row = piece / 4;
    const int token = (piece % 4 ^ (row >> 1) % 4) * 16;
    auto* words = reinterpret_cast<std::uint32_t*>(values + piece * 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t mask = 0;
#pragma unroll
      for (int byte = 0; byte < 4; ++byte) {
        const int key = token + 2 * i + byte % 2 + byte / 2 * 8;  // transposed_place, backwards
        if (key >= first && key < last) mask |= 0xFFu << (8 * byte);
      }
      words[i] &= mask;
    }
  }
}

}  // namespace octet
