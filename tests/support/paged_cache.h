// A cache with random keys and values in shuffled pages, for tests of the ops over it.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "kv/block_table.h"
#include "kv/kv_layout.h"
#include "kv/page_pool.h"
#include "kv/sequence_rows.h"
#include "ops/context.h"
#include "ops/quantize/kv_write.h"

namespace octet {
// A namespace of its own: a helper must never stand in for a function of the library that happens
// to have its name, which no compiler or linker would notice.
inline namespace test_support {

inline std::vector<float> random_floats(std::size_t count, unsigned seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The same by all threads of a pool: the same numbers by any, and those of random_floats() up to
// 65,536. At 25 ns a number, tests of long contexts would do little else.
inline std::vector<float> random_floats(ThreadPool& pool, std::size_t count, unsigned seed,
                                        float deviation = 1.0f) {
  constexpr std::size_t part = 65536;
  std::vector<float> values(count);
  pool.parallel_for(static_cast<std::int64_t>((count + part - 1) / part),
                    [&](std::int64_t index, int) {
                      const auto of_part = static_cast<std::size_t>(index);
                      std::seed_seq mixed{seed, static_cast<unsigned>(index)};
                      std::mt19937 random(seed);
                      if (index > 0) random.seed(mixed);
                      std::normal_distribution<float> normal(0.0f, deviation);
                      const std::size_t end = std::min(count, (of_part + 1) * part);
                      for (std::size_t i = of_part * part; i < end; ++i) values[i] = normal(random);
                    });
  return values;
}

struct CacheShape {
  int kv_heads = 2;
  int head_dim = 64;
  int window = 0;
  std::string dtype = "bfloat16";
  std::string scales = "auto";
  // Scales here make their side's static, whatever `scales` says.
  KvLayerConstants constants = {};
};

// One layer; sequences take turns for pages, so that no table is in order. Unused bytes hold 0x7F,
// which reads as NaN in e4m3 and as a huge number in float formats.
class PagedCache {
 public:
  PagedCache(const CacheShape& shape, const std::vector<std::int64_t>& lengths) : shape_(shape) {
    KvPolicy policy = make_kv_policy({.dtype = shape.dtype, .scales = shape.scales}, 1);
    policy.constants[0] = shape.constants;
    if (!shape.constants.key_scales.empty()) policy.layers[0].key.scales = KvScales::head;
    if (!shape.constants.value_scales.empty()) policy.layers[0].value.scales = KvScales::head;
    const KvLayout layout({{shape.kv_heads, shape.head_dim, shape.window}}, policy);
    std::int64_t pages = 0;
    for (const std::int64_t length : lengths) pages += (length + page_tokens - 1) / page_tokens;
    pool_ = std::make_unique<PagePool>(
        layout,
        static_cast<std::size_t>(std::max<std::int64_t>(pages, 1)) * PagePool::slab_bytes(layout));
    std::memset(pool_->arena().data(), 0x7F, pool_->arena().size());
    for (std::size_t i = 0; i < lengths.size(); ++i) tables_.emplace_back(*pool_);
    for (std::int64_t tokens = page_tokens;; tokens += page_tokens) {
      bool grew = false;
      for (std::size_t i = lengths.size(); i-- > 0;) {
        if (tokens - page_tokens >= lengths[i]) continue;
        grew = true;
        if (!tables_[i].grow_to(std::min(tokens, lengths[i]))) throw std::bad_alloc();
      }
      if (!grew) break;
    }
  }

  PagePool& pool() { return *pool_; }
  KvLayerView layer() const { return pool_->layer_view(0); }
  const PageId* pages(std::size_t sequence) const { return tables_[sequence].pages(0).data(); }

  SequenceRows rows(std::size_t sequence, std::int32_t first_row, std::int32_t rows,
                    std::int32_t first_position) const {
    return {first_row, rows, first_position, 0, {pages(sequence)}};
  }

  // Writes `key` and `value` ([rows, kv_heads * head_dim] each) for the given rows.
  void write(const OpContext& context, const std::vector<float>& key,
             const std::vector<float>& value, const std::vector<SequenceRows>& sequences,
             KvWriteCounters* counters = nullptr) {
    KvWriteArgs args;
    args.key = key.data();
    args.value = value.data();
    args.key_stride = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
    args.value_stride = args.key_stride;
    args.layer = layer();
    args.sequences = sequences;
    args.counters = counters;
    kv_write(context, args);
  }

 private:
  CacheShape shape_;
  std::unique_ptr<PagePool> pool_;
  std::vector<BlockTable> tables_;
};

}  // namespace test_support
}  // namespace octet
