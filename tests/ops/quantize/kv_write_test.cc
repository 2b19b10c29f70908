#include "ops/quantize/kv_write.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "core/bfloat16.h"
#include "core/float16.h"
#include "core/float8_e4m3.h"
#include "ops/quantize/hadamard.h"
#include "support/paged_cache.h"

namespace octet {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const float nan = std::nanf("");

struct StoredRow {
  std::vector<float> codes;
  float scale = 1.0f;
};

StoredRow read_back(const KvLayerView& layer, PageId page, int head, int token, bool key) {
  const KvRunLayout& run = layer.group->run;
  const std::byte* bytes = layer.run(page, head);
  const KvSidePolicy& side = key ? run.policy.key : run.policy.value;
  const KvOrder order = key ? run.key_order : run.value_order;
  const std::byte* elements = bytes + (key ? run.key_offset : run.value_offset);
  StoredRow row;
  for (int i = 0; i < run.head_dim; ++i) {
    const int index =
        order == KvOrder::token_major ? token * run.head_dim + i : i * page_tokens + token;
    const std::byte* at = elements + static_cast<std::size_t>(index) * bytes_of(side.dtype);
    std::uint16_t half = 0;
    float value = 0;
    switch (side.dtype) {
      case KvDtype::float32:
        std::memcpy(&value, at, 4);
        break;
      case KvDtype::float16:
        std::memcpy(&half, at, 2);
        value = float16_to_float(half);
        break;
      case KvDtype::bfloat16:
        std::memcpy(&half, at, 2);
        value = bfloat16_to_float(half);
        break;
      case KvDtype::fp8:
        value = float8_e4m3_to_float(std::to_integer<std::uint8_t>(*at));
        break;
      case KvDtype::int8:
        value = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(*at));
        break;
    }
    row.codes.push_back(value);
  }
  if (side.scales == KvScales::dynamic) {
    std::uint16_t bits = 0;
    std::memcpy(&bits,
                bytes + (key ? run.key_scale_offset : run.value_scale_offset) +
                    static_cast<std::size_t>(token) * 2,
                2);
    row.scale = bfloat16_to_float(bits);
  }
  return row;
}

class KvWriteTest : public ::testing::TestWithParam<std::string> {};

// Rows that start in the middle of a page come back within the format's rounding.
TEST_P(KvWriteTest, RowsComeBackWithinTheFormatsRounding) {
  ThreadPool pool(2);
  const OpContext context{&pool};
  const CacheShape shape{
      .kv_heads = 3, .head_dim = 48, .window = 0, .dtype = GetParam(), .scales = "auto"};
  PagedCache cache(shape, {200, 70});
  const std::size_t width = 3 * 48;
  const std::vector<float> key = random_floats(110 * width, 1, 3.0f);
  const std::vector<float> value = random_floats(110 * width, 2, 0.01f);
  const std::vector<SequenceRows> rows = {cache.rows(0, 0, 100, 60), cache.rows(1, 100, 10, 5)};
  KvWriteCounters counters;
  cache.write(context, key, value, rows, &counters);
  EXPECT_EQ(counters.total().saturated, 0);
  EXPECT_EQ(counters.total().non_finite, 0);

  for (const SequenceRows& sequence : rows) {
    for (int r = 0; r < sequence.rows; ++r) {
      const int position = sequence.first_position + r;
      for (int head = 0; head < 3; ++head) {
        for (const bool is_key : {true, false}) {
          const KvSidePolicy side =
              is_key ? cache.layer().group->run.policy.key : cache.layer().group->run.policy.value;
          std::vector<float> wanted(48);
          std::memcpy(wanted.data(),
                      (is_key ? key : value).data() +
                          static_cast<std::size_t>(sequence.first_row + r) * width +
                          static_cast<std::size_t>(head) * 48,
                      48 * sizeof(float));
          if (is_key && side.dtype == KvDtype::int8) hadamard_rotate(wanted.data(), 48);
          const StoredRow stored =
              read_back(cache.layer(), sequence.pages[0][position / page_tokens], head,
                        position % page_tokens, is_key);
          float largest = 0;
          for (const float x : wanted) largest = std::max(largest, std::fabs(x));
          for (std::size_t i = 0; i < 48; ++i) {
            const float got = stored.codes[i] * stored.scale;
            float bound = 0;  // half a step of the format
            if (side.dtype == KvDtype::float16) {
              bound = std::max(std::fabs(wanted[i]) * 0x1p-11f, 0x1p-25f);
            }
            if (side.dtype == KvDtype::bfloat16) bound = std::fabs(wanted[i]) * 0x1p-8f;
            if (side.dtype == KvDtype::fp8) {
              bound = std::max(std::fabs(wanted[i]) * 0x1p-4f, stored.scale * 0x1p-10f);
            }
            if (side.dtype == KvDtype::int8) bound = stored.scale * 0.5f;
            EXPECT_LE(std::fabs(got - wanted[i]), bound * 1.0001f);
          }
          if (side.scales == KvScales::dynamic) {
            const float ideal = largest / (side.dtype == KvDtype::fp8 ? 448.0f : 127.0f);
            EXPECT_GE(stored.scale, ideal);
            EXPECT_LE(stored.scale, ideal * (1 + 0x1p-7f));
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, KvWriteTest,
                         ::testing::Values("float32", "float16", "bfloat16", "fp8", "int8",
                                           "int8:fp8", "fp8:int8", "float16:fp8"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == ':' ? '_' : c;
                           return name;
                         });

TEST(KvWrite, UnitScalesSaturateAndAreCounted) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  PagedCache cache({.kv_heads = 1, .head_dim = 8, .window = 0, .dtype = "fp8", .scales = "unit"},
                   {1});
  const std::vector<float> key = {448, 449, -1e9f, 1, 464, -448, 0, 0.001f};
  const std::vector<float> value = {0, 0, 0, 0, 0, 0, 0, 500};
  KvWriteCounters counters;
  cache.write(context, key, value, {cache.rows(0, 0, 1, 0)}, &counters);
  EXPECT_EQ(counters.total().saturated, 4);  // 449, -1e9, 464 and 500
  const StoredRow row = read_back(cache.layer(), cache.pages(0)[0], 0, 0, true);
  EXPECT_EQ(row.codes, (std::vector<float>{448, 448, -448, 1, 448, -448, 0, 0x1p-9f * 1}));
}

TEST(KvWrite, Float16SaturatesAndIsCounted) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  PagedCache cache(
      {.kv_heads = 1, .head_dim = 8, .window = 0, .dtype = "float16", .scales = "auto"}, {1});
  const std::vector<float> key = {65504, 65519, 65520, -1e9f, 1, -65504, infinity, 0};
  const std::vector<float> value(8, 0.0f);
  KvWriteCounters counters;
  cache.write(context, key, value, {cache.rows(0, 0, 1, 0)}, &counters);
  EXPECT_EQ(counters.total().saturated, 2);
  EXPECT_EQ(counters.total().non_finite, 1);
  const StoredRow row = read_back(cache.layer(), cache.pages(0)[0], 0, 0, true);
  EXPECT_EQ(row.codes, (std::vector<float>{65504, 65504, 65504, -65504, 1, -65504, 65504, 0}));
}

TEST(KvWrite, NonFiniteElementsAreCountedAndSpoilNoScale) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  for (const char* dtype : {"fp8", "int8"}) {
    PagedCache cache({.kv_heads = 1, .head_dim = 8, .window = 0, .dtype = dtype, .scales = "auto"},
                     {1});
    const std::vector<float> key(8, 0.0f);
    const std::vector<float> value = {1, nan, infinity, -infinity, 2, 0, -2, 1};
    KvWriteCounters counters;
    cache.write(context, key, value, {cache.rows(0, 0, 1, 0)}, &counters);
    EXPECT_EQ(counters.total().non_finite, 3) << dtype;
    const StoredRow row = read_back(cache.layer(), cache.pages(0)[0], 0, 0, false);
    const bool fp8 = std::string(dtype) == "fp8";
    const float largest = fp8 ? 448.0f : 127.0f;
    EXPECT_NEAR(row.scale, 2 / largest, 2 / largest * 0x1p-7f) << dtype;
    EXPECT_EQ(row.codes[2], largest) << dtype;
    EXPECT_EQ(row.codes[3], -largest) << dtype;
    if (fp8) {
      EXPECT_TRUE(std::isnan(row.codes[1]));
    } else {
      EXPECT_EQ(row.codes[1], 0.0f);
    }
  }
}

TEST(KvWrite, AnAllZeroRowHasScaleOne) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  for (const char* dtype : {"fp8", "int8"}) {
    PagedCache cache({.kv_heads = 1, .head_dim = 16, .window = 0, .dtype = dtype, .scales = "auto"},
                     {1});
    const std::vector<float> zeros(16, 0.0f);
    cache.write(context, zeros, zeros, {cache.rows(0, 0, 1, 0)});
    for (const bool key : {true, false}) {
      const StoredRow row = read_back(cache.layer(), cache.pages(0)[0], 0, 0, key);
      EXPECT_EQ(row.scale, 1.0f);
      EXPECT_EQ(row.codes, zeros);
    }
  }
}

// Values near the smallest float: the scale stays a normal number and the row comes back as zeros
// or within a step of it.
TEST(KvWrite, TinyRowsKeepAUsableScale) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  PagedCache cache({.kv_heads = 1, .head_dim = 8, .window = 0, .dtype = "int8", .scales = "auto"},
                   {1});
  const std::vector<float> tiny(8, 1e-44f);
  cache.write(context, tiny, tiny, {cache.rows(0, 0, 1, 0)});
  const StoredRow row = read_back(cache.layer(), cache.pages(0)[0], 0, 0, false);
  EXPECT_GE(row.scale, 0x1p-126f);
  for (const float code : row.codes) EXPECT_LE(std::fabs(code * row.scale - 1e-44f), row.scale);
}

TEST(KvWrite, StaticScalesDivideAndWhatDoesNotFitIsCountedForItsLayer) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  CacheShape shape{.kv_heads = 2, .head_dim = 8, .window = 0, .dtype = "fp8", .scales = "auto"};
  shape.constants = {.key_scales = {0.25f, 4.0f}, .value_scales = {1.0f, 0.5f}};
  PagedCache cache(shape, {1});
  const std::vector<float> key = {1, 2, 3, 112, 113, -1000, 0.001f, 0, 16, -64, 4, 0, 0, 0, 0, 0};
  std::vector<float> value(16, 0.0f);
  value[8] = nan;
  value[9] = 448;
  KvWriteCounters counters(3);
  KvWriteArgs args;
  args.key = key.data();
  args.value = value.data();
  args.layer = cache.layer();
  args.layer.layer = 2;
  const std::vector<SequenceRows> rows = {cache.rows(0, 0, 1, 0)};
  args.sequences = rows;
  args.counters = &counters;
  kv_write(context, args);
  EXPECT_EQ(read_back(cache.layer(), cache.pages(0)[0], 0, 0, true).codes,
            (std::vector<float>{4, 8, 12, 448, 448, -448, 0x1p-8f, 0}));
  EXPECT_EQ(read_back(cache.layer(), cache.pages(0)[0], 1, 0, true).codes,
            (std::vector<float>{4, -16, 1, 0, 0, 0, 0, 0}));
  EXPECT_FALSE(counters.layer(0).any() || counters.layer(1).any());
  EXPECT_EQ(counters.layer(2).saturated, 3);  // 113 / 0.25, -1000 / 0.25 and 448 / 0.5
  EXPECT_EQ(counters.layer(2).subnormal, 1);  // 0.001 / 0.25 < 2^-6
  EXPECT_EQ(counters.layer(2).non_finite, 1);
  EXPECT_EQ(counters.total().saturated, 3);
}

TEST(KvWrite, TheHeadsMeanIsSubtractedBeforeRotationAndRounding) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  for (const char* dtype : {"fp8", "int8"}) {
    CacheShape shape{.kv_heads = 2, .head_dim = 16, .window = 0, .dtype = dtype, .scales = "auto"};
    const std::vector<float> key = random_floats(32, 21);
    const std::vector<float> mean = random_floats(32, 22, 10.0f);
    std::vector<float> centred = key;
    for (std::size_t i = 0; i < 32; ++i) centred[i] -= mean[i];
    PagedCache plain(shape, {1});
    plain.write(context, centred, key, {plain.rows(0, 0, 1, 0)});
    shape.constants.key_mean = mean;
    PagedCache with_mean(shape, {1});
    with_mean.write(context, key, key, {with_mean.rows(0, 0, 1, 0)});
    for (const int head : {0, 1}) {
      for (const bool is_key : {true, false}) {
        const StoredRow got = read_back(with_mean.layer(), with_mean.pages(0)[0], head, 0, is_key);
        const StoredRow wanted = read_back(plain.layer(), plain.pages(0)[0], head, 0, is_key);
        EXPECT_EQ(got.codes, wanted.codes) << dtype;
        EXPECT_EQ(got.scale, wanted.scale) << dtype;
      }
    }
  }
}

// ml_dtypes#400: what e4m3 cannot hold becomes its largest number, a NaN stays one.
TEST(KvWrite, NumbersPastE4m3SaturateAndNanStaysNan) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  PagedCache cache({.kv_heads = 1, .head_dim = 8, .window = 0, .dtype = "fp8", .scales = "unit"},
                   {1});
  const std::vector<float> key = {464, 465, 1000, infinity, -infinity, nan, 448, -464};
  cache.write(context, key, key, {cache.rows(0, 0, 1, 0)});
  const StoredRow row = read_back(cache.layer(), cache.pages(0)[0], 0, 0, true);
  EXPECT_TRUE(std::isnan(row.codes[5]));
  for (const std::size_t i : {0, 1, 2, 3, 6}) EXPECT_EQ(row.codes[i], 448) << i;
  for (const std::size_t i : {4, 7}) EXPECT_EQ(row.codes[i], -448) << i;
}

// TRT-LLM#4218: a key bias of 600 on one channel clips without a scale, and does not with one.
TEST(KvWrite, AnOutlierChannelClipsWithUnitScalesAlone) {
  ThreadPool pool(1);
  const OpContext context{&pool};
  const std::vector<float> key = {600, 1, -1, 0.5f, 2, 0, 0, 3};
  for (const char* scales : {"unit", "dynamic", "static"}) {
    const bool fixed = std::string(scales) == "static";
    CacheShape shape{.kv_heads = 1, .head_dim = 8, .window = 0, .dtype = "fp8"};
    shape.scales = fixed ? "auto" : scales;
    if (fixed) shape.constants = {.key_scales = {600.0f / 448}, .value_scales = {600.0f / 448}};
    PagedCache cache(shape, {1});
    KvWriteCounters counters;
    cache.write(context, key, key, {cache.rows(0, 0, 1, 0)}, &counters);
    EXPECT_EQ(counters.total().saturated, std::string(scales) == "unit" ? 2 : 0) << scales;
  }
}

TEST(Hadamard, IsItsOwnInverseAndKeepsProducts) {
  for (const int head_dim : {8, 48, 64, 80, 96, 128, 192, 256, 512}) {
    const std::vector<float> a = random_floats(static_cast<std::size_t>(head_dim), 3);
    const std::vector<float> b = random_floats(static_cast<std::size_t>(head_dim), 4);
    std::vector<float> rotated_a = a;
    std::vector<float> rotated_b = b;
    hadamard_rotate(rotated_a.data(), head_dim);
    hadamard_rotate(rotated_b.data(), head_dim);
    double plain = 0;
    double rotated = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      plain += static_cast<double>(a[i]) * b[i];
      rotated += static_cast<double>(rotated_a[i]) * rotated_b[i];
    }
    EXPECT_NEAR(plain, rotated, 1e-4) << head_dim;
    hadamard_rotate(rotated_a.data(), head_dim);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(rotated_a[i], a[i], 1e-5) << head_dim;
  }
}

TEST(Hadamard, SpreadsOneElementEvenly) {
  std::vector<float> x(64, 0.0f);
  x[5] = 8.0f;
  hadamard_rotate(x.data(), 64);
  for (const float value : x) EXPECT_FLOAT_EQ(std::fabs(value), 1.0f);
  EXPECT_EQ(hadamard_block(64), 64);
  EXPECT_EQ(hadamard_block(96), 32);
  EXPECT_EQ(hadamard_block(80), 16);
}

}  // namespace
}  // namespace octet
