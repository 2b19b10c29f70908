// The decode kernel's loading warp. Internal to src/ops/attention.
#pragma once

#include <cuda_runtime.h>

#include "core/cuda/ptx.cuh"
#include "ops/attention/decode_sm90_parameters.h"
#include "ops/attention/decode_sm90_shared.cuh"
#include "ops/attention/sm90_pages.cuh"

namespace octet {

// The loading warp: every lane holds a page's address. Pages that no kernel of this step writes are
// asked for before the kernels ahead have ended, as many as the stages hold.
template <typename Config>
__device__ void decode_load(const DecodeParameters& p, DecodeShared<Config>& shared, int group,
                            int piece) {
  const int lane = threadIdx.x % 32;
  const int scale_bytes = Config::element_bytes > 1
                              ? 0
                              : (p.keys_scaled ? Config::side_scale_bytes : 0) +
                                    (p.values_scaled ? Config::side_scale_bytes : 0);
  int count = 0;
  bool waited = !p.older_pages_settled;
  if (waited) ptx::wait_for_previous_kernels();
  for (DecodeWalk walk(p, piece); !walk.done(); walk.next(p)) {
    const int first_page = p.turns.first_page(walk.length) + walk.turn * Config::turn_pages;
    const int last_page = p.turns.first_page(walk.length) + p.turns.pages(walk.length);
    const std::int32_t* table =
        p.page_table + static_cast<std::int64_t>(walk.sequence) * p.page_table_stride;
    const int kv_head = DecodeHead<Config>(p, walk.head).kv_head;
    // Pages from here on hold the newest tokens.
    const int new_page = (walk.length - p.turns.query_rows) / 64;
    const std::byte* run = nullptr;
    for (int turn = 0; turn < walk.part_turns; ++turn, ++count) {
      const int stage = count % Config::stages;
      if (turn % (32 / Config::turn_pages) == 0) {
        const int page = first_page + turn * Config::turn_pages + lane;
        if (page < last_page) {
          run = run_of_page(p, table[page], kv_head);
        }
      }
      const int pages = min(Config::turn_pages, last_page - first_page - turn * Config::turn_pages);
      const int owner = turn % (32 / Config::turn_pages) * Config::turn_pages;
      const int x = lane - owner;
      const bool owns_page = x >= 0 && x < pages;
      if (!waited && first_page + turn * Config::turn_pages + pages > new_page) {
        // The kernel ahead writes a token of it, yet the rest is as near as the L2 when it has.
        if (owns_page) ptx::bulk_prefetch(run, 2 * Config::side_bytes + scale_bytes);
        ptx::wait_for_previous_kernels();
        waited = true;
      }
      if (count >= Config::stages) {
        ptx::mbarrier_wait(&shared.empty[group][stage], (count / Config::stages - 1) & 1);
      }
      if (lane == 0) {
        ptx::mbarrier_expect(&shared.full[group][stage],
                             pages * (2 * Config::side_bytes + scale_bytes));
      }
      __syncwarp();
      if (owns_page) {
        ptx::bulk_copy(shared.pages[group][stage][x], run, 2 * Config::side_bytes,
                       &shared.full[group][stage]);
        if (scale_bytes > 0) {
          ptx::bulk_copy(shared.scales[group][stage][x] + (p.keys_scaled ? 0 : 64),
                         run + 2 * Config::side_bytes, scale_bytes, &shared.full[group][stage]);
        }
      }
    }
  }
}

}  // namespace octet
