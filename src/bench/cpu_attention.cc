#include "bench/cpu_attention.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "core/error.h"
#include "kv/block_table.h"
#include "ops/attention/attention.h"
#include "ops/quantize/kv_write.h"

namespace octet {
namespace {

// Bytes of all layers together.
constexpr double bytes_to_rotate_through = 128e6;
constexpr int most_layers = 64;
constexpr double least_seconds = 0.3;
constexpr std::size_t least_calls = 3;

std::vector<float> random_rows(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

int layer_count(const CpuAttentionShape& shape, const KvPolicyOptions& cache, std::int64_t keys) {
  const KvLayout one({{shape.kv_heads, shape.head_dim, 0}}, make_kv_policy(cache, 1));
  const double bytes = one.bytes_per_token() * static_cast<double>(keys);
  return static_cast<int>(std::clamp(bytes_to_rotate_through / bytes, 1.0, double{most_layers}));
}

// The same rows into every layer.
void write_cache(const OpContext& context, const CpuAttentionShape& shape, const PagePool& pool,
                 const SequenceRows& sequence, int layers) {
  const std::int64_t width = std::int64_t{shape.kv_heads} * shape.head_dim;
  constexpr std::int32_t block = 512;
  SequenceRows part = sequence;
  for (std::int32_t at = 0; at < sequence.rows; at += block) {
    part.first_position = at;
    part.rows = std::min(block, sequence.rows - at);
    const std::vector<float> key = random_rows(part.rows * width, 2 * static_cast<unsigned>(at));
    const std::vector<float> value =
        random_rows(part.rows * width, 2 * static_cast<unsigned>(at) + 1);
    for (int layer = 0; layer < layers; ++layer) {
      kv_write(context, {.key = key.data(),
                         .value = value.data(),
                         .key_stride = width,
                         .value_stride = width,
                         .layer = pool.layer_view(layer),
                         .group = pool.layout().group_of(layer),
                         .sequences = {&part, 1},
                         .counters = nullptr});
    }
  }
}

// Median seconds of a call, layers in turn.
double time_calls(const OpContext& context, AttentionArgs args, const PagePool& pool, int layers) {
  std::vector<double> seconds;
  double total = 0;
  while (total < least_seconds || seconds.size() < least_calls) {
    args.layer = pool.layer_view(static_cast<int>(seconds.size()) % layers);
    const auto start = std::chrono::steady_clock::now();
    attention(context, args);
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += seconds.back();
  }
  std::nth_element(seconds.begin(),
                   seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

CpuAttentionFigure bench_cpu_attention(const OpContext& context, const CpuAttentionShape& shape,
                                       const KvPolicyOptions& cache, std::int64_t rows,
                                       std::int64_t keys) {
  if (rows < 1 || keys < rows) {
    throw_bad_input("attention of {} query tokens over {} keys: expected at least as many keys",
                    rows, keys);
  }
  const int layers = layer_count(shape, cache, keys);
  const KvPolicy policy = make_kv_policy(cache, layers);
  const KvLayout layout(std::vector<KvLayerGeometry>(static_cast<std::size_t>(layers),
                                                     {shape.kv_heads, shape.head_dim, 0}),
                        policy);
  const std::int64_t pages = (keys + page_tokens - 1) / page_tokens;
  PagePool pool(layout, static_cast<std::size_t>(pages) * PagePool::slab_bytes(layout));
  BlockTable blocks(pool);
  if (!blocks.grow_to(keys)) {
    throw_error(ErrorKind::out_of_memory, "the cache has no room for {} tokens", keys);
  }
  SequenceRows sequence = {
      .first_row = 0,
      .rows = static_cast<std::int32_t>(keys),
      .first_position = 0,
      .pages = std::vector<const PageId*>(layout.groups().size(), blocks.pages(0).data())};
  write_cache(context, shape, pool, sequence, layers);

  sequence.rows = static_cast<std::int32_t>(rows);
  sequence.first_position = static_cast<std::int32_t>(keys - rows);
  const std::int64_t width = std::int64_t{shape.query_heads} * shape.head_dim;
  const std::vector<float> query = random_rows(rows * width, 3);
  std::vector<float> output(query.size());
  AttentionArgs args;
  args.query = query.data();
  args.output = output.data();
  args.query_stride = width;
  args.output_stride = width;
  args.query_heads = shape.query_heads;
  args.softmax_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  args.sequences = {&sequence, 1};
  const double seconds = time_calls(context, args, pool, layers);

  const auto count = static_cast<double>(rows);
  const double pairs = count * static_cast<double>(keys) - count * (count - 1) / 2;
  return {.shape = shape,
          .cache = policy.dtype_name,
          .phase = rows == 1 ? "decode" : "prefill",
          .rows = rows,
          .context = keys,
          .seconds = seconds,
          .gb_per_s = layout.bytes_per_token() / layers * static_cast<double>(keys) / seconds / 1e9,
          .gflops = 4 * pairs * shape.query_heads * shape.head_dim / seconds / 1e9};
}

}  // namespace octet
