// The fused kernel before attention against the CPU's operations, one after the other.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "kv/convert.h"
#include "ops/quantize/cache_write_cuda.h"
#include "ops/quantize/hadamard.h"
#include "ops/rope/rope.h"
#include "support/gpu_cache.h"
#include "support/gpu_values.h"

namespace octet {
namespace {

struct Problem {
  CacheShape cache = {};
  int query_heads = 4;
  bool has_norms = false;
  int pairs = 0;  // 0: no rope
  RopePairing pairing = RopePairing::half_split;
  bool has_non_numbers = false;  // not with rope: which NaN comes out of a sum is the machine's
  float deviation = 1.0f;
};

// Three sequences: a whole prompt over several pages, a chunk of which some rows are in the cache
// already, and a single row; padded rows between them.
class CacheWriteGpu : public ::testing::Test {
 protected:
  static constexpr int table_stride = 4;
  static constexpr std::int64_t positions = 200;

  void make(const Problem& problem) {
    problem_ = problem;
    cache_ = std::make_unique<PagedCache>(problem.cache, std::vector<std::int64_t>{130, 100, 70});
    sequences_ = {cache_->rows(0, 0, 130, 0), cache_->rows(1, 132, 40, 60),
                  cache_->rows(2, 173, 1, 69)};
    sequences_[1].rows_in_cache = 7;
    rows_ = 176;  // 130, 131, 172, 174 and 175 are padding
    qkv_ = random_floats(static_cast<std::size_t>(rows_) * row_elements(), 1);
    for (float& x : qkv_) x *= problem.deviation;
    if (problem.has_non_numbers) {
      for (std::size_t i = 0; i < qkv_.size(); i += 97) {
        const float infinity = std::numeric_limits<float>::infinity();
        const float values[] = {infinity, -infinity, std::nanf(""), -std::nanf(""), 0.0f, 1e-30f};
        qkv_[i] = values[i / 97 % 6];
      }
      // A row of zeros, of each side.
      const std::size_t row = 5 * row_elements();
      std::fill_n(qkv_.begin() + static_cast<std::ptrdiff_t>(row), row_elements(), 0.0f);
    }
    query_norm_ = random_floats(static_cast<std::size_t>(head_dim()), 2);
    key_norm_ = random_floats(static_cast<std::size_t>(head_dim()), 3);
    table_.reset();
    if (problem.pairs > 0) {
      table_ =
          std::make_unique<RopeTable>(rope_frequencies(10000, 2 * problem.pairs, {}), positions);
      table_->extend(positions);
    }
  }

  int head_dim() const { return problem_.cache.head_dim; }
  int kv_heads() const { return problem_.cache.kv_heads; }
  std::size_t row_elements() const {
    return static_cast<std::size_t>((problem_.query_heads + 2 * kv_heads()) * head_dim());
  }

  void run_cuda() {
    device_cache_ = std::make_unique<GpuCache>(*cache_, std::vector<std::int64_t>{130, 100, 70});
    std::vector<std::int32_t> row_positions(static_cast<std::size_t>(rows_), -1);
    std::vector<std::int32_t> row_sequences(static_cast<std::size_t>(rows_), 0);
    std::vector<std::int32_t> first_written;
    std::vector<std::int32_t> lengths;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const SequenceRows& sequence = sequences_[i];
      for (std::int32_t row = 0; row < sequence.rows; ++row) {
        const auto at = static_cast<std::size_t>(sequence.first_row + row);
        row_positions[at] = sequence.first_position + row;
        row_sequences[at] = static_cast<std::int32_t>(i);
      }
      first_written.push_back(sequence.first_position + sequence.rows_in_cache);
      lengths.push_back(sequence.first_position + sequence.rows);
    }
    const DeviceArray<std::int32_t> device_positions(row_positions);
    const DeviceArray<std::int32_t> device_sequences(row_sequences);
    const DeviceArray<std::int32_t> device_first(first_written);
    const DeviceArray<std::int32_t> device_lengths(lengths);
    const DeviceArray<float> qkv(qkv_);
    const DeviceArray<float> query_norm(query_norm_);
    const DeviceArray<float> key_norm(key_norm_);
    DeviceArray<std::uint16_t> query(query_elements());
    query.fill_bytes(0xFF);
    DeviceArray<float> means(static_cast<std::size_t>(rows_ * problem_.query_heads));
    means.fill_bytes(0xFF);
    DeviceArray<unsigned long long> counts(std::vector<unsigned long long>{1, 2, 3});
    DeviceArray<float> cosines;
    DeviceArray<float> sines;

    CacheWriteCudaArgs args;
    args.qkv = qkv.data();
    args.query = as_bfloat16(query);
    if (problem_.has_norms) {
      args.query_norm = query_norm.data();
      args.key_norm = key_norm.data();
      args.norm_epsilon = 1e-6f;
    }
    if (table_ != nullptr) {
      const auto count = static_cast<std::size_t>(positions * table_->pairs());
      cosines =
          DeviceArray<float>(std::vector<float>(table_->cosines(0), table_->cosines(0) + count));
      sines = DeviceArray<float>(std::vector<float>(table_->sines(0), table_->sines(0) + count));
      args.cosines = cosines.data();
      args.sines = sines.data();
      args.pairs = table_->pairs();
      args.pairing = problem_.pairing;
    }
    args.query_heads = problem_.query_heads;
    args.rows = {rows_,
                 static_cast<int>(sequences_.size()),
                 device_positions.data(),
                 device_sequences.data(),
                 device_lengths.data(),
                 device_first.data(),
                 device_cache_->table(),
                 device_cache_->table_stride()};
    args.layer = device_cache_->layer();
    args.counts = reinterpret_cast<DeviceKvCounts*>(counts.data());
    args.query_means = means.data();
    cache_write_cuda(gpu_launch(), args);
    query_ = to_floats(query.download());
    means_ = means.download();
    const std::vector<unsigned long long> lost = counts.download();
    counts_ = {static_cast<std::int64_t>(lost[0]) - 1, static_cast<std::int64_t>(lost[1]) - 2,
               static_cast<std::int64_t>(lost[2]) - 3};
  }

  std::size_t query_elements() const {
    return static_cast<std::size_t>(rows_ * problem_.query_heads * head_dim());
  }

  // The CPU's rope over all heads but the values', in place.
  void rope_on_cpu(std::vector<float>& qkv) {
    if (table_ == nullptr) return;
    std::vector<std::int32_t> all(static_cast<std::size_t>(rows_), 0);
    for (const SequenceRows& sequence : sequences_) {
      for (std::int32_t row = 0; row < sequence.rows; ++row) {
        all[static_cast<std::size_t>(sequence.first_row + row)] = sequence.first_position + row;
      }
    }
    RopeArgs args;
    args.x = qkv.data();
    args.rows = rows_;
    args.row_stride = static_cast<std::int64_t>(row_elements());
    args.heads = problem_.query_heads + kv_heads();
    args.head_dim = head_dim();
    args.positions = all.data();
    args.table = table_.get();
    args.pairing = problem_.pairing;
    rope(context(), args);
  }

  OpContext context() {
    OpContext context;
    context.pool = &pool_;
    return context;
  }

  // Writes the CPU's cache from qkv after norms and rope.
  KvWriteCounts write_on_cpu(const std::vector<float>& qkv) {
    KvWriteCounters counters;
    KvWriteArgs args;
    args.key = qkv.data() + problem_.query_heads * head_dim();
    args.value = args.key + kv_heads() * head_dim();
    args.key_stride = static_cast<std::int64_t>(row_elements());
    args.value_stride = args.key_stride;
    args.layer = cache_->layer();
    args.sequences = sequences_;
    args.counters = &counters;
    kv_write(context(), args);
    return counters.layer(0);
  }

  // Every byte of every page, those that nothing was written to included.
  void expect_equal_pages() {
    const std::vector<std::byte> got = device_cache_->download();
    for (std::size_t sequence = 0; sequence < 3; ++sequence) {
      for (std::size_t page = 0; page < device_cache_->pages_of(sequence); ++page) {
        for (int head = 0; head < kv_heads(); ++head) {
          const std::vector<std::byte> wanted =
              device_cache_->converted(*cache_, sequence, page, head);
          const std::byte* at = device_cache_->place(got, sequence, page, head);
          const auto* end = wanted.data() + wanted.size();
          const auto* first = std::mismatch(wanted.data(), end, at).first;
          ASSERT_EQ(first - wanted.data(), static_cast<std::ptrdiff_t>(wanted.size()))
              << "first difference: byte of sequence " << sequence << ", page " << page << ", head "
              << head;
        }
      }
    }
  }

  // The query heads and their means against double precision.
  void expect_close_queries() {
    std::vector<float> qkv = qkv_;
    for (const SequenceRows& sequence : sequences_) {
      for (std::int32_t row = 0; row < sequence.rows; ++row) {
        for (int head = 0; head < problem_.query_heads; ++head) {
          float* x = qkv.data() +
                     static_cast<std::size_t>(sequence.first_row + row) * row_elements() +
                     head * head_dim();
          if (problem_.has_norms) norm_head(x, query_norm_);
        }
      }
    }
    rope_on_cpu(qkv);
    const auto width = static_cast<std::size_t>(head_dim());
    std::size_t next_row = 0;
    for (const SequenceRows& sequence : sequences_) {
      for (std::int32_t row = 0; row < sequence.rows; ++row) {
        const auto at = static_cast<std::size_t>(sequence.first_row + row);
        expect_untouched(next_row, at);
        next_row = at + 1;
        for (int head = 0; head < problem_.query_heads; ++head) {
          float* x = qkv.data() + at * row_elements() + head * head_dim();
          const std::size_t place =
              at * static_cast<std::size_t>(problem_.query_heads) + static_cast<std::size_t>(head);
          expect_close_mean(x, head, means_[place]);
          if (cache_->layer().group->run.policy.rotates_keys()) hadamard_rotate(x, head_dim());
          const std::vector<double> expected(x, x + width);
          // bfloat16 rounds an element by 2^-8 of it at most.
          EXPECT_LE(relative_error(query_, place * width, expected), width < 64 ? 0x1p-8 : 2.5e-3);
        }
      }
    }
    expect_untouched(next_row, static_cast<std::size_t>(rows_));
  }

  void expect_close_mean(const float* x, int head, float got) const {
    const std::vector<float>& mean = problem_.cache.constants.key_mean;
    double expected = 0;
    double magnitude = 1e-30;
    for (int i = 0; i < head_dim() && !mean.empty(); ++i) {
      const int kv_head = head / (problem_.query_heads / kv_heads());
      const double term = double{x[i]} * mean[static_cast<std::size_t>(kv_head * head_dim() + i)];
      expected += term;
      magnitude += std::fabs(term);
    }
    EXPECT_NEAR(got, expected, 1e-5 * magnitude);
  }

  void norm_head(float* x, const std::vector<float>& weight) const {
    double sum = 0;
    for (int i = 0; i < head_dim(); ++i) sum += double{x[i]} * x[i];
    const double root = std::sqrt(sum / head_dim() + 1e-6);
    for (int i = 0; i < head_dim(); ++i) {
      x[i] = static_cast<float>(x[i] / root * weight[static_cast<std::size_t>(i)]);
    }
  }

  void expect_untouched(std::size_t first_row, std::size_t end_row) const {
    const auto elements = static_cast<std::size_t>(problem_.query_heads * head_dim());
    for (std::size_t i = first_row * elements; i < end_row * elements; ++i) {
      ASSERT_TRUE(std::isnan(query_[i])) << "a padded row's query was written";
    }
  }

  void expect_bit_equal(const Problem& problem) {
    SCOPED_TRACE(testing::Message()
                 << problem.cache.dtype << ", " << problem.cache.scales << ", head_dim "
                 << problem.cache.head_dim << ", " << problem.pairs << " pairs, non-numbers "
                 << problem.has_non_numbers);
    make(problem);
    run_cuda();
    std::vector<float> qkv = qkv_;
    rope_on_cpu(qkv);
    const KvWriteCounts counts = write_on_cpu(qkv);
    expect_equal_pages();
    EXPECT_EQ(counts_.saturated, counts.saturated);
    EXPECT_EQ(counts_.subnormal, counts.subnormal);
    EXPECT_EQ(counts_.non_finite, counts.non_finite);
    if (!problem.has_non_numbers) expect_close_queries();
  }

  ThreadPool pool_{0};
  Problem problem_;
  std::unique_ptr<PagedCache> cache_;
  std::unique_ptr<GpuCache> device_cache_;
  std::unique_ptr<RopeTable> table_;
  std::vector<SequenceRows> sequences_;
  int rows_ = 0;
  std::vector<float> qkv_;
  std::vector<float> query_norm_;
  std::vector<float> key_norm_;
  std::vector<float> query_;
  std::vector<float> means_;
  KvWriteCounts counts_;
};

struct Policy {
  const char* dtype;
  const char* scales;
};
const Policy policies[] = {
    {"bfloat16", "auto"},     {"float16", "auto"},         {"fp8", "dynamic"},
    {"fp8", "unit"},          {"int8", "dynamic"},         {"int8:fp8", "dynamic"},
    {"fp8:bfloat16", "unit"}, {"bfloat16:fp8", "dynamic"}, {"fp8:int8", "auto"},
    {"int8:float16", "auto"}, {"float16:int8", "dynamic"},
};

KvLayerConstants some_means(int kv_heads, int head_dim) {
  KvLayerConstants constants;
  constants.key_mean = random_floats(static_cast<std::size_t>(kv_heads * head_dim), 7);
  return constants;
}

TEST_F(CacheWriteGpu, BitsAreTheCpusForEveryPolicyAndHeadDim) {
  for (const Policy& policy : policies) {
    for (const int head_dim : {32, 64, 96, 128, 192, 256, 512}) {
      CacheShape cache{.head_dim = head_dim, .dtype = policy.dtype, .scales = policy.scales};
      expect_bit_equal({.cache = cache});
      expect_bit_equal({.cache = cache, .pairs = head_dim / 2});
      cache.constants = some_means(cache.kv_heads, head_dim);
      expect_bit_equal({.cache = cache, .pairs = head_dim / 4});
      expect_bit_equal({.cache = cache, .has_non_numbers = true});
    }
  }
  expect_bit_equal({.cache = {.head_dim = 80}, .pairs = 40});
}

TEST_F(CacheWriteGpu, Sanitized) {
  for (const Policy& policy : policies) {
    CacheShape cache{.kv_heads = 1, .head_dim = 64, .dtype = policy.dtype, .scales = policy.scales};
    cache.constants = some_means(1, 64);
    expect_bit_equal({.cache = cache, .query_heads = 3, .pairs = 32});
    expect_bit_equal({.cache = cache, .query_heads = 3, .has_non_numbers = true});
  }
}

TEST_F(CacheWriteGpu, InterleavedPairs) {
  for (const int head_dim : {64, 128}) {
    for (const int pairs : {head_dim / 2, head_dim / 4, 5}) {
      expect_bit_equal({.cache = {.head_dim = head_dim, .dtype = "int8:fp8"},
                        .pairs = pairs,
                        .pairing = RopePairing::interleaved});
    }
  }
}

TEST_F(CacheWriteGpu, StaticScales) {
  for (const int head_dim : {64, 128}) {
    CacheShape cache{.kv_heads = 3, .head_dim = head_dim, .dtype = "fp8", .scales = "unit"};
    cache.constants.key_scales = {0.01f, 0.003f, 0.02f};
    cache.constants.value_scales = {0.02f, 0.01f, 0.005f};
    expect_bit_equal({.cache = cache, .query_heads = 3, .pairs = head_dim / 2});
  }
}

TEST_F(CacheWriteGpu, WhatFormatsCannotHold) {
  for (const float deviation : {1e-36f, 1e-7f, 1e3f, 1e6f, 1e37f}) {
    for (const Policy& policy : policies) {
      expect_bit_equal({.cache = {.dtype = policy.dtype, .scales = policy.scales},
                        .has_non_numbers = true,
                        .deviation = deviation});
    }
  }
}

TEST_F(CacheWriteGpu, NormsOfHeads) {
  make({.cache = {.head_dim = 128}, .has_norms = true, .pairs = 64});
  run_cuda();
  expect_close_queries();
  std::vector<float> qkv = qkv_;
  for (int row = 0; row < rows_; ++row) {
    for (int head = 0; head < kv_heads(); ++head) {
      norm_head(qkv.data() + static_cast<std::size_t>(row) * row_elements() +
                    (problem_.query_heads + head) * head_dim(),
                key_norm_);
    }
  }
  rope_on_cpu(qkv);
  write_on_cpu(qkv);
  // The last bit of a norm may differ, and with it a bfloat16 that lies between two.
  const std::vector<std::byte> got = device_cache_->download();
  std::int64_t different = 0;
  std::int64_t elements = 0;
  for (std::size_t page = 0; page < 2; ++page) {
    for (int head = 0; head < kv_heads(); ++head) {
      const std::vector<std::byte> wanted = device_cache_->converted(*cache_, 0, page, head);
      const std::byte* at = device_cache_->place(got, 0, page, head);
      for (std::size_t i = 0; i + 1 < wanted.size(); i += 2) {
        std::uint16_t a;
        std::uint16_t b;
        std::memcpy(&a, wanted.data() + i, 2);
        std::memcpy(&b, at + i, 2);
        ++elements;
        different += a != b ? 1 : 0;
        ASSERT_LE(std::abs(a - b), 1);
      }
    }
  }
  EXPECT_LE(different, elements / 100);
}

TEST_F(CacheWriteGpu, Refusals) {
  make({});
  device_cache_ = std::make_unique<GpuCache>(*cache_, std::vector<std::int64_t>{130, 100, 70});
  CacheWriteCudaArgs args;
  args.query_heads = 4;
  args.layer = device_cache_->layer();
  EXPECT_THROW(cache_write_cuda(gpu_launch(), args), Error);
  args.query_heads = 3;
  EXPECT_THROW(cache_write_cuda(gpu_launch(), args), Error);
  const KvLayerView host = cache_->layer();
  args.query_heads = 4;
  args.layer.view.group = host.group;  // the CPU's order
  EXPECT_THROW(cache_write_cuda(gpu_launch(), args), Error);
}

}  // namespace
}  // namespace octet
