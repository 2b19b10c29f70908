// Scales that a checkpoint or a file fixed, and key means: attention gives the answer of the data
// that they stand for.
#include <cmath>

#include <gtest/gtest.h>

#include "core/float8_e4m3.h"
#include "core/instruction_set.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_hopper_emulation.h"
#include "support/paged_cache.h"

namespace octet {
namespace {

constexpr int head_dim = 64;
constexpr std::int32_t tokens = 150;

// Random numbers that e4m3 holds exactly, so that a cache that undoes its scale right holds them.
std::vector<float> e4m3_floats(std::size_t count, unsigned seed) {
  std::vector<float> values = random_floats(count, seed);
  for (float& value : values) value = float8_e4m3_to_float(float_to_float8_e4m3(value));
  return values;
}

// `rows` of `width` with head h of each multiplied by factors[h / group].
std::vector<float> scale_heads(std::vector<float> values, const std::vector<float>& factors,
                               int group) {
  const std::size_t width = factors.size() * static_cast<std::size_t>(group * head_dim);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= factors[i % width / static_cast<std::size_t>(group * head_dim)];
  }
  return values;
}

struct Problem {
  int query_heads = 0;
  std::vector<float> key_scales;    // one per KV head
  std::vector<float> value_scales;  // likewise
  int group() const { return query_heads / static_cast<int>(key_scales.size()); }
  int kv_heads() const { return static_cast<int>(key_scales.size()); }
};

enum class Path { prefill, decode, rounded_query };

std::vector<float> attend(const CacheShape& shape, int query_heads, const std::vector<float>& query,
                          const std::vector<float>& key, const std::vector<float>& value,
                          Path path) {
  ThreadPool pool(2);
  const OpContext context{&pool, detect_instruction_set()};
  PagedCache cache(shape, {tokens});
  std::vector<float> output(query.size(), std::nanf(""));
  std::vector<SequenceRows> steps = {cache.rows(0, 0, tokens, 0)};
  if (path == Path::decode) {
    steps.clear();
    for (std::int32_t row = 0; row < tokens; ++row) steps.push_back(cache.rows(0, row, 1, row));
  }
  for (const SequenceRows& step : steps) {
    cache.write(context, key, value, {step});
    const std::vector<SequenceRows> rows = {step};
    AttentionArgs args;
    args.query = query.data();
    args.output = output.data();
    args.query_stride = args.output_stride = static_cast<std::int64_t>(query_heads) * head_dim;
    args.query_heads = query_heads;
    args.softmax_scale = 0.125f;
    args.layer = cache.layer();
    args.sequences = rows;
    if (path == Path::rounded_query) {
      attention_hopper_emulation(args, {});
    } else {
      attention(context, args);
    }
  }
  return output;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& wanted) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

std::vector<Problem> problems() {
  std::vector<Problem> list = {
      {2, {0.25f}, {0.5f}}, {2, {0.5f}, {2.0f}}, {2, {0.03f}, {0.03f}}, {32, {}, {}}};
  for (int head = 0; head < 8; ++head) {
    list.back().key_scales.push_back(0.01f * static_cast<float>(1 + head * head));
    list.back().value_scales.push_back(3.0f / static_cast<float>(1 + head));
  }
  return list;
}

// Keys and values times their scales are stored as the codes of the unscaled ones; queries divided
// by the key's scale give the same scores, and the output is the unscaled one times the value's.
TEST(StaticScales, GiveTheAnswerOfUnscaledDataInPrefillAndDecode) {
  for (const Problem& problem : problems()) {
    const auto kv_count = static_cast<std::size_t>(tokens * problem.kv_heads() * head_dim);
    const std::vector<float> key = e4m3_floats(kv_count, 1);
    const std::vector<float> value = e4m3_floats(kv_count, 2);
    const std::vector<float> query =
        random_floats(static_cast<std::size_t>(tokens * problem.query_heads * head_dim), 3);
    std::vector<float> inverse = problem.key_scales;
    for (float& scale : inverse) scale = 1.0f / scale;

    CacheShape shape{.kv_heads = problem.kv_heads(), .head_dim = head_dim, .dtype = "fp8"};
    shape.scales = "unit";
    const std::vector<float> plain =
        attend(shape, problem.query_heads, query, key, value, Path::prefill);
    shape.constants = {.key_scales = problem.key_scales, .value_scales = problem.value_scales};
    for (const Path path : {Path::prefill, Path::decode}) {
      const std::vector<float> got =
          attend(shape, problem.query_heads, scale_heads(query, inverse, problem.group()),
                 scale_heads(key, problem.key_scales, 1),
                 scale_heads(value, problem.value_scales, 1), path);
      EXPECT_LT(relative_error(got, scale_heads(plain, problem.value_scales, problem.group())),
                1e-6)
          << problem.key_scales[0] << " " << (path == Path::decode);
    }
  }
}

// vllm#42580: a path that rounds the query undoes the scales too. Powers of two, so that every
// rounding is of the same bits and the answers are equal.
TEST(StaticScales, GiveTheAnswerOfUnscaledDataWhereTheQueryIsRounded) {
  const std::size_t count = static_cast<std::size_t>(tokens) * head_dim;
  const std::vector<float> key = e4m3_floats(count, 7);
  const std::vector<float> value = e4m3_floats(count, 8);
  const std::vector<float> query = random_floats(count, 9);
  CacheShape shape{.kv_heads = 1, .head_dim = head_dim, .dtype = "fp8", .scales = "unit"};
  const std::vector<float> plain = attend(shape, 1, query, key, value, Path::rounded_query);
  shape.constants = {.key_scales = {0.5f}, .value_scales = {2.0f}};
  const std::vector<float> got =
      attend(shape, 1, scale_heads(query, {2.0f}, 1), scale_heads(key, {0.5f}, 1),
             scale_heads(value, {2.0f}, 1), Path::rounded_query);
  EXPECT_EQ(got, scale_heads(plain, {2.0f}, 1));
}

// A checkpoint without query scales (llm-compressor#1294): queries of any size are not clipped,
// since none is rounded.
TEST(StaticScales, LargeQueriesAreNotClipped) {
  const CacheShape exact{.kv_heads = 1, .head_dim = head_dim, .dtype = "float32"};
  CacheShape scaled = exact;
  scaled.dtype = "fp8";
  scaled.constants = {.key_scales = {0.5f}, .value_scales = {0.5f}};
  const std::size_t count = static_cast<std::size_t>(tokens) * head_dim;
  std::vector<float> key = e4m3_floats(count, 4);
  for (float& element : key) element *= 0x1p-10f * 0.5f;  // scores stay of a size of 1
  const std::vector<float> value = e4m3_floats(count, 5);
  const std::vector<float> query = random_floats(count, 6, 1000.0f);
  std::vector<float> stored = key;
  for (float& element : stored) {
    element = float8_e4m3_to_float(float_to_float8_e4m3(element / 0.5f)) * 0.5f;
  }
  EXPECT_LT(relative_error(attend(scaled, 1, query, key, value, Path::prefill),
                           attend(exact, 1, query, stored, value, Path::prefill)),
            1e-6);
}

// FlyDSL#1020, vllm#6429: a cache of more than 2^31 elements; the rows lie in its last page. Memory
// that is not written is not committed.
TEST(LargeCache, OffsetsPastTwoToTheThirtyOneAreRight) {
  ThreadPool pool(1);
  const OpContext context{&pool, detect_instruction_set()};
  const KvLayout layout({{8, 512, 0}}, make_kv_policy({.dtype = "fp8"}, 1));
  const std::size_t slab = PagePool::slab_bytes(layout);
  const std::size_t slabs = (std::size_t{5} << 30) / slab;
  PagePool pages(layout, slabs * slab);
  PageId last = 0;
  for (std::int64_t page = pages.capacity(0); page > 0; --page) {
    last = std::max(last, *pages.allocate(0));
  }
  const KvLayerView layer = pages.layer_view(0);
  ASSERT_GT(layer.run(last, 7) - layer.arena, std::int64_t{1} << 32);
  const std::vector<float> key = random_floats(3 * 8 * 512, 21);
  const std::vector<float> value = random_floats(3 * 8 * 512, 22);
  const std::vector<SequenceRows> rows = {{0, 3, 0, 0, {&last}}};
  KvWriteArgs write;
  write.key = key.data();
  write.value = value.data();
  write.key_stride = write.value_stride = 8 * 512;
  write.layer = layer;
  write.sequences = rows;
  kv_write(context, write);
  std::vector<float> output(key.size());
  AttentionArgs args;
  args.query = key.data();
  args.output = output.data();
  args.query_stride = args.output_stride = 8 * 512;
  args.query_heads = 8;
  args.softmax_scale = 0.05f;
  args.layer = layer;
  args.sequences = rows;
  attention(context, args);
  // The first row sees itself alone: its output is its value, rounded.
  for (std::size_t i = 0; i < 8 * 512; ++i) {
    EXPECT_NEAR(output[i], value[i], std::fabs(value[i]) * 0x1p-4f + 0.01f) << i;
  }
}

TEST(KeyMeans, ChangeNoAnswerOfAnExactCache) {
  const std::size_t count = static_cast<std::size_t>(tokens) * 2 * head_dim;
  const std::vector<float> key = random_floats(count, 7);
  const std::vector<float> value = random_floats(count, 8);
  const std::vector<float> query = random_floats(2 * count, 9);
  CacheShape shape{.kv_heads = 2, .head_dim = head_dim, .dtype = "float32"};
  const std::vector<float> plain = attend(shape, 4, query, key, value, Path::prefill);
  shape.constants.key_mean = random_floats(2 * head_dim, 10, 5.0f);
  for (const Path path : {Path::prefill, Path::decode}) {
    EXPECT_LT(relative_error(attend(shape, 4, query, key, value, path), plain), 1e-5);
  }
}

// Keys with a large common part, as Qwen2.5's biases make them: what is left after the mean is what
// should be rounded.
TEST(KeyMeans, TakeTheCommonPartOutOfTheRounding) {
  const std::size_t count = static_cast<std::size_t>(tokens) * 2 * head_dim;
  const std::vector<float> bias = random_floats(2 * head_dim, 11, 20.0f);
  std::vector<float> key = random_floats(count, 12, 0.5f);
  for (std::size_t i = 0; i < count; ++i) key[i] += bias[i % bias.size()];
  const std::vector<float> value = random_floats(count, 13);
  const std::vector<float> query = random_floats(2 * count, 14);
  const std::vector<float> exact = attend({.kv_heads = 2, .head_dim = head_dim, .dtype = "float32"},
                                          4, query, key, value, Path::prefill);
  for (const char* dtype : {"fp8:float32", "int8:float32"}) {
    CacheShape shape{.kv_heads = 2, .head_dim = head_dim, .dtype = dtype};
    const double without =
        relative_error(attend(shape, 4, query, key, value, Path::prefill), exact);
    shape.constants.key_mean = bias;
    const double with = relative_error(attend(shape, 4, query, key, value, Path::prefill), exact);
    EXPECT_LT(with * 10, without) << dtype;
  }
}

}  // namespace
}  // namespace octet
