// Pages of the CPU's cache in the order of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "kv/convert.h"
#include "kv/kv_layout.h"
#include "kv/page_pool.h"

namespace octet {
inline namespace test_support {

struct PageCopy {
  PageId from = 0;
  PageId to = 0;
};

// Into `arena`, which holds pages of `group` one after the other.
inline void copy_pages(ThreadPool& pool, const KvLayerView& layer, const KvGroup& group,
                       const std::vector<PageCopy>& copies, std::span<std::byte> arena) {
  pool.parallel_for(static_cast<std::int64_t>(copies.size()), [&](std::int64_t index, int) {
    const PageCopy& copy = copies[static_cast<std::size_t>(index)];
    std::byte* page = arena.data() + static_cast<std::size_t>(copy.to) * group.page_bytes;
    for (int head = 0; head < group.geometry.kv_heads; ++head) {
      convert_run(layer.group->run, layer.run(copy.from, head), group.run,
                  page + static_cast<std::size_t>(head) * group.run.bytes);
    }
  });
}

}  // namespace test_support
}  // namespace octet
