// The portable attention kernels against attention in double precision over the same stored keys
// and values.
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/attention_cuda.h"
#include "ops/quantize/hadamard.h"
#include "support/gpu_cache.h"
#include "support/gpu_values.h"

namespace octet {
namespace {

// The output's rounding to bfloat16 is 2^-8 of an element at most, about 1.7e-3 over a head of
// many. Beside values of bfloat16 the softmax weights are rounded as much; with few keys that is
// another 2.5e-3 at the worst. Weights of float16 add 2^-11.
double bound_of(const KvLayerPolicy& policy, int head_dim) {
  const double output = head_dim < 64 ? 0x1p-8 : 2.6e-3;
  return policy.value.dtype == KvDtype::bfloat16 ? output + 2.5e-3 : output + 0x1p-11;
}

struct Problem {
  CacheShape cache = {.head_dim = 128};
  int group = 4;
  std::vector<std::int64_t> lengths = {};  // contexts
  std::vector<std::int32_t> rows = {};     // query rows of each, its newest; empty: decode
  float query_deviation = 1.0f;
};

class AttentionGpu : public ::testing::Test {
 protected:
  void make(const Problem& problem) {
    problem_ = problem;
    const std::vector<std::int64_t>& lengths = problem.lengths;
    cache_ = std::make_unique<PagedCache>(problem.cache, lengths);
    std::int32_t tokens = 0;
    std::vector<SequenceRows> all;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      all.push_back(cache_->rows(i, tokens, static_cast<std::int32_t>(lengths[i]), 0));
      tokens += static_cast<std::int32_t>(lengths[i]);
    }
    const auto count = static_cast<std::size_t>(tokens * problem.cache.kv_heads * head_dim());
    OpContext context;
    context.pool = &pool_;
    cache_->write(context, random_floats(count, 1), random_floats(count, 2), all);
    device_cache_ = std::make_unique<GpuCache>(*cache_, lengths);

    rows_ = 0;
    sequences_.clear();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto length = static_cast<std::int32_t>(lengths[i]);
      const std::int32_t rows = problem.rows.empty() ? 1 : problem.rows[i];
      // A sequence without keys is padding.
      sequences_.push_back(cache_->rows(i, rows_, length == 0 ? 0 : rows, length - rows));
      rows_ += rows;
    }
    query_ = random_bfloat16_floats(static_cast<std::size_t>(rows_) * row_elements(), 3,
                                    problem.query_deviation);
  }

  int head_dim() const { return problem_.cache.head_dim; }
  int query_heads() const { return problem_.cache.kv_heads * problem_.group; }
  std::size_t row_elements() const { return static_cast<std::size_t>(query_heads() * head_dim()); }
  float softmax_scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim())); }
  AttentionCudaShape shape() const {
    return {head_dim(), query_heads(), problem_.cache.kv_heads, problem_.cache.window,
            cache_->layer().group->run.policy};
  }

  std::vector<float> run(AttentionCudaArgs args = {}, bool overlap = true) {
    const DeviceArray<std::uint16_t> query(to_bfloat16s(query_));
    DeviceArray<std::uint16_t> output(query.size());
    output.fill_bytes(0xFF);
    args.query = as_bfloat16(query);
    args.output = as_bfloat16(output);
    args.query_stride = static_cast<std::int64_t>(row_elements());
    args.output_stride = args.query_stride;
    args.softmax_scale = softmax_scale();
    args.layer = device_cache_->layer();
    args.page_table = device_cache_->table();
    args.page_table_stride = device_cache_->table_stride();
    CudaLaunch launch = gpu_launch();
    launch.overlap = overlap;
    const auto count = static_cast<int>(sequences_.size());
    if (problem_.rows.empty()) {
      std::vector<std::int32_t> lengths;
      for (const std::int64_t length : problem_.lengths) {
        lengths.push_back(static_cast<std::int32_t>(length));
      }
      const DeviceArray<std::int32_t> device_lengths(lengths);
      AttentionDecodeWorkspace workspace(shape(), count);
      workspace.plan(launch, device_lengths.data(), count);
      attention_decode_cuda(launch, workspace, args);
      // Once more: the first launch left the workspace as it was.
      attention_decode_cuda(launch, workspace, args);
      check_cuda(cudaDeviceSynchronize(), "decode");
    } else {
      std::vector<PrefillSm90Sequence> sequences;
      for (std::size_t i = 0; i < sequences_.size(); ++i) {
        sequences.push_back({sequences_[i].first_row, problem_.rows[i],
                             static_cast<std::int32_t>(problem_.lengths[i])});
      }
      AttentionPrefillWorkspace workspace(shape(), rows_, count);
      workspace.plan(launch, sequences);
      attention_prefill_cuda(launch, workspace, args);
      check_cuda(cudaDeviceSynchronize(), "prefill");
    }
    return to_floats(output.download());
  }

  std::vector<double> reference() {
    std::vector<float> query = query_;
    if (shape().policy.rotates_keys()) {
      // The kernel is given rotated queries; the reference rotates the keys back.
      for (std::size_t at = 0; at < query.size(); at += static_cast<std::size_t>(head_dim())) {
        hadamard_rotate(query.data() + at, head_dim());
      }
    }
    std::vector<SequenceRows> single;
    for (const SequenceRows& of : sequences_) {
      for (std::int32_t row = 0; row < of.rows; ++row) {
        single.push_back({of.first_row + row, 1, of.first_position + row, 0, of.pages});
      }
    }
    std::vector<double> output(query.size());
    pool_.parallel_for(static_cast<std::int64_t>(single.size()), [&](std::int64_t i, int) {
      AttentionArgs args;
      args.query = query.data();
      args.query_stride = static_cast<std::int64_t>(row_elements());
      args.query_heads = query_heads();
      args.softmax_scale = softmax_scale();
      args.layer = cache_->layer();
      args.sequences = {&single[static_cast<std::size_t>(i)], 1};
      attention_reference(args, output.data());
    });
    return output;
  }

  // The worst over all rows and heads. Rows of padding must be as they were.
  double worst_error(const std::vector<float>& got, const std::vector<double>& wanted) const {
    const auto width = static_cast<std::size_t>(head_dim());
    double worst = 0;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const SequenceRows& of = sequences_[i];
      const std::size_t begin = static_cast<std::size_t>(of.first_row) * row_elements();
      if (of.rows == 0) {
        EXPECT_TRUE(std::isnan(got[begin])) << "the output of a padded sequence was written";
        continue;
      }
      const std::size_t end = begin + static_cast<std::size_t>(of.rows) * row_elements();
      for (std::size_t at = begin; at < end; at += width) {
        const std::vector<double> row(wanted.begin() + static_cast<std::ptrdiff_t>(at),
                                      wanted.begin() + static_cast<std::ptrdiff_t>(at + width));
        const double error = relative_error(got, at, row);
        if (!(error <= worst)) worst = error;  // a NaN stays
        if (std::isnan(worst)) return worst;
      }
    }
    return worst;
  }

  void expect_close(const Problem& problem) {
    make(problem);
    const double error = worst_error(run(), reference());
    EXPECT_LE(error, bound_of(shape().policy, head_dim()))
        << problem.cache.dtype << " (" << problem.cache.scales << "), head_dim " << head_dim()
        << ", " << problem.group << " x " << problem.cache.kv_heads << " heads, window "
        << problem.cache.window;
    worst_ = std::max(worst_, error);
  }
  void TearDown() override { std::printf("[    error ] %.2e at the worst\n", worst_); }

  ThreadPool pool_{0};
  Problem problem_;
  std::unique_ptr<PagedCache> cache_;
  std::unique_ptr<GpuCache> device_cache_;
  std::vector<SequenceRows> sequences_;
  std::int32_t rows_ = 0;
  std::vector<float> query_;
  double worst_ = 0;
};

using AttentionDecodeGpu = AttentionGpu;
using AttentionPrefillGpu = AttentionGpu;

const char* const formats[] = {"bfloat16", "float16", "fp8", "int8"};

TEST_F(AttentionDecodeGpu, EveryMixOfFormats) {
  for (const std::string key : formats) {
    for (const std::string value : formats) {
      for (const int head_dim : {64, 128, 256}) {
        expect_close(
            {.cache = {.head_dim = head_dim, .dtype = key + ":" + value}, .lengths = {1, 65, 300}});
      }
    }
  }
}

TEST_F(AttentionDecodeGpu, EveryHeadDim) {
  for (const int head_dim : {16, 32, 64, 80, 96, 128, 160, 192, 256, 512}) {
    for (const char* dtype : {"bfloat16", "fp8"}) {
      if (head_dim % 32 != 0 && std::string(dtype) == "fp8") continue;  // no such pages
      expect_close({.cache = {.head_dim = head_dim, .dtype = dtype},
                    .lengths = {1, 63, 64, 65, 127, 1000, 5000}});
    }
  }
  for (const int head_dim : {32, 96, 512}) {
    expect_close({.cache = {.head_dim = head_dim, .dtype = "int8"}, .lengths = {65, 500}});
  }
}

TEST_F(AttentionDecodeGpu, EveryGroup) {
  for (const int group : {1, 3, 7, 8, 9, 16, 20}) {
    for (const int head_dim : {64, 128, 256, 512}) {
      expect_close({.cache = {.kv_heads = 3, .head_dim = head_dim, .dtype = "fp8"},
                    .group = group,
                    .lengths = {1, 200, 64, 1000}});
    }
  }
}

TEST_F(AttentionDecodeGpu, LongContextsAmongShortOnes) {
  for (const char* dtype : {"bfloat16", "fp8"}) {
    expect_close({.cache = {.dtype = dtype}, .lengths = {1, 63, 131072, 65, 127, 20000}});
  }
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 700; ++i) lengths.push_back(1 + i * 37 % 300);
  expect_close({.cache = {.kv_heads = 1, .dtype = "fp8"}, .lengths = lengths});
}

TEST_F(AttentionDecodeGpu, Windows) {
  for (const char* dtype : {"bfloat16", "fp8"}) {
    for (const int window : {1, 63, 64, 128, 1000}) {
      expect_close({.cache = {.head_dim = 64, .window = window, .dtype = dtype},
                    .lengths = {1, 64, 130, 1001, 5000}});
    }
  }
}

TEST_F(AttentionDecodeGpu, UnitAndStaticScales) {
  expect_close({.cache = {.dtype = "fp8", .scales = "unit"}, .lengths = {77, 1, 3000}});
  CacheShape cache{.kv_heads = 3, .dtype = "fp8", .scales = "unit"};
  cache.constants.key_scales = {0.02f, 0.007f, 1.5f};
  cache.constants.value_scales = {0.03f, 0.011f, 3.0f};
  expect_close({.cache = cache, .lengths = {77, 1, 1000}});
}

TEST_F(AttentionDecodeGpu, LargeAndSmallQueries) {
  for (const float deviation : {1e-6f, 30.0f, 1e6f}) {
    for (const char* dtype : {"fp8", "float16"}) {
      expect_close({.cache = {.dtype = dtype}, .lengths = {200, 90}, .query_deviation = deviation});
    }
  }
}

TEST_F(AttentionDecodeGpu, PaddedSequences) {
  expect_close({.cache = {.dtype = "fp8"}, .lengths = {0, 100, 0, 0, 3000, 0}});
  expect_close({.cache = {.dtype = "fp8"}, .lengths = {100, 0}});
  // Nothing but padding, as where a batch's bucket is captured before it is filled.
  make({.cache = {.dtype = "fp8"}, .lengths = {70, 70}});
  problem_.lengths = {0, 0};
  for (const float x : run()) ASSERT_TRUE(std::isnan(x));
}

TEST_F(AttentionDecodeGpu, PlacesOfPagesAndOverlapChangeNoBit) {
  for (const char* dtype : {"bfloat16", "fp8", "int8"}) {
    make({.cache = {.dtype = dtype}, .lengths = {1, 3000, 64, 20000}});
    const std::vector<float> first = run();
    device_cache_ = std::make_unique<GpuCache>(*cache_, problem_.lengths, 7);
    EXPECT_EQ(first, run());
    EXPECT_EQ(first, run({}, false));
  }
}

TEST_F(AttentionDecodeGpu, RefusesWhatItHasNoKernelFor) {
  make({.lengths = {10}});
  AttentionCudaShape other = shape();
  other.query_heads = 9;
  EXPECT_THROW(AttentionDecodeWorkspace(other, 1), Error);
  other = shape();
  other.policy.key = {KvDtype::float32, KvScales::none};
  EXPECT_THROW(AttentionDecodeWorkspace(other, 1), Error);
  EXPECT_THROW(AttentionPrefillWorkspace(other, 1, 1), Error);
  other = shape();
  other.head_dim = 520;
  EXPECT_THROW(AttentionDecodeWorkspace(other, 1), Error);
}

TEST_F(AttentionDecodeGpu, Sanitized) {
  for (const char* dtype : {"bfloat16", "fp8", "int8:float16"}) {
    for (const int head_dim : {64, 96, 256}) {
      expect_close({.cache = {.head_dim = head_dim, .dtype = dtype}, .lengths = {1, 65, 1000}});
    }
  }
  expect_close({.cache = {.window = 100, .dtype = "fp8"}, .group = 16, .lengths = {2, 0, 600}});
}

TEST_F(AttentionPrefillGpu, EveryMixOfFormats) {
  for (const std::string key : formats) {
    for (const std::string value : formats) {
      for (const int head_dim : {64, 128, 256}) {
        expect_close({.cache = {.kv_heads = 1, .head_dim = head_dim, .dtype = key + ":" + value},
                      .group = 2,
                      .lengths = {70, 200},
                      .rows = {70, 33}});
      }
    }
  }
}

TEST_F(AttentionPrefillGpu, EveryHeadDim) {
  for (const int head_dim : {16, 32, 64, 80, 96, 128, 160, 192, 256, 512}) {
    for (const char* dtype : {"bfloat16", "fp8"}) {
      if (head_dim % 32 != 0 && std::string(dtype) == "fp8") continue;
      expect_close({.cache = {.head_dim = head_dim, .dtype = dtype},
                    .lengths = {1, 63, 64, 65, 300, 1000},
                    .rows = {1, 63, 64, 65, 17, 40}});
    }
  }
  for (const int head_dim : {96, 512}) {
    expect_close({.cache = {.kv_heads = 1, .head_dim = head_dim, .dtype = "int8"},
                  .group = 2,
                  .lengths = {65},
                  .rows = {65}});
  }
}

TEST_F(AttentionPrefillGpu, EveryGroup) {
  for (const int group : {1, 3, 7, 8, 16, 70}) {
    for (const int head_dim : {64, 128, 512}) {
      expect_close({.cache = {.kv_heads = 3, .head_dim = head_dim, .dtype = "fp8"},
                    .group = group,
                    .lengths = {64, 200, 5},
                    .rows = {64, 9, 5}});
    }
  }
}

TEST_F(AttentionPrefillGpu, LongPromptsAndChunks) {
  for (const char* dtype : {"bfloat16", "fp8"}) {
    expect_close({.cache = {.kv_heads = 1, .dtype = dtype},
                  .group = 2,
                  .lengths = {1500, 5000, 20000},
                  .rows = {1500, 100, 65}});
  }
}

TEST_F(AttentionPrefillGpu, Windows) {
  for (const char* dtype : {"bfloat16", "fp8"}) {
    for (const int window : {1, 63, 64, 128, 1000}) {
      for (const int head_dim : {64, 256}) {
        expect_close({.cache = {.head_dim = head_dim, .window = window, .dtype = dtype},
                      .group = 3,
                      .lengths = {64, 330, 1500},
                      .rows = {64, 330, 70}});
      }
    }
  }
}

TEST_F(AttentionPrefillGpu, UnitAndStaticScales) {
  expect_close(
      {.cache = {.dtype = "fp8", .scales = "unit"}, .lengths = {77, 300}, .rows = {77, 2}});
  CacheShape cache{.kv_heads = 3, .dtype = "fp8", .scales = "unit"};
  cache.constants.key_scales = {0.02f, 0.007f, 1.5f};
  cache.constants.value_scales = {0.03f, 0.011f, 3.0f};
  expect_close({.cache = cache, .lengths = {77, 150}, .rows = {77, 31}});
}

TEST_F(AttentionPrefillGpu, PlacesOfPagesAndOtherSequencesChangeNoBit) {
  for (const char* dtype : {"bfloat16", "fp8", "int8"}) {
    make({.cache = {.dtype = dtype}, .lengths = {3000, 64}, .rows = {400, 64}});
    const std::vector<float> first = run();
    device_cache_ = std::make_unique<GpuCache>(*cache_, problem_.lengths, 7);
    EXPECT_EQ(first, run());
    EXPECT_EQ(first, run({}, false));
  }
}

TEST_F(AttentionPrefillGpu, Sanitized) {
  for (const char* dtype : {"bfloat16", "fp8", "int8:float16"}) {
    for (const int head_dim : {64, 96, 256}) {
      expect_close({.cache = {.kv_heads = 1, .head_dim = head_dim, .dtype = dtype},
                    .group = 2,
                    .lengths = {65, 200},
                    .rows = {65, 3}});
    }
  }
  expect_close({.cache = {.window = 100, .dtype = "fp8"}, .lengths = {300}, .rows = {30}});
}

// Sinks and soft caps are of true scores, whatever is subtracted from the stored keys. Keys and
// values are bfloat16, so that what is stored is known without reading it.
class AttentionScoresGpu : public AttentionGpu {
 protected:
  void expect_close_scores(bool is_prefill, float soft_cap, bool has_sinks, bool has_means) {
    SCOPED_TRACE(testing::Message() << "prefill " << is_prefill << ", cap " << soft_cap
                                    << ", sinks " << has_sinks << ", means " << has_means);
    constexpr std::int32_t length = 150;
    const std::int32_t rows = is_prefill ? 80 : 1;
    Problem problem{.cache = {.head_dim = 64}, .group = 3, .lengths = {length}};
    if (has_means) problem.cache.constants.key_mean = random_floats(2 * 64, 9, 2.0f);
    if (is_prefill) problem.rows = {rows};
    make(problem);
    // make() wrote these.
    const std::vector<float> key = random_floats(length * 2 * 64, 1);
    const std::vector<float> value = random_floats(length * 2 * 64, 2);
    const std::vector<float> sinks = random_floats(6, 4, 2.0f);
    std::vector<float> means;
    std::vector<double> expected(query_.size(), 0.0);
    for (std::int32_t row = 0; row < rows; ++row) {
      for (int head = 0; head < 6; ++head) {
        const float* mean =
            has_means ? problem.cache.constants.key_mean.data() + head / 3 * 64 : nullptr;
        const std::size_t at = static_cast<std::size_t>(row * 6 + head) * 64;
        double of_mean = 0;
        for (std::size_t i = 0; i < 64 && has_means; ++i)
          of_mean += double{query_[at + i]} * mean[i];
        means.push_back(static_cast<float>(of_mean));
        double sum = has_sinks ? std::exp(double{sinks[static_cast<std::size_t>(head)]}) : 0.0;
        for (std::int32_t j = 0; j <= length - rows + row; ++j) {
          const std::size_t from = static_cast<std::size_t>(j * 2 + head / 3) * 64;
          double score = of_mean;
          for (std::size_t i = 0; i < 64; ++i) {
            const float k = has_means ? key[from + i] - mean[i] : key[from + i];
            score += double{query_[at + i]} * round_to_bfloat16(k);
          }
          score *= softmax_scale();
          if (soft_cap > 0) score = soft_cap * std::tanh(score / soft_cap);
          const double weight = std::exp(score);
          sum += weight;
          for (std::size_t i = 0; i < 64; ++i) {
            expected[at + i] += weight * round_to_bfloat16(value[from + i]);
          }
        }
        for (std::size_t i = 0; i < 64; ++i) expected[at + i] /= sum;
      }
    }
    const DeviceArray<float> device_sinks(sinks);
    const DeviceArray<float> device_means(means);
    AttentionCudaArgs args;
    args.soft_cap = soft_cap;
    if (has_sinks) args.sinks = device_sinks.data();
    if (has_means) args.query_means = device_means.data();
    const double error = worst_error(run(args), expected);
    EXPECT_LE(error, bound_of(shape().policy, head_dim()));
    worst_ = std::max(worst_, error);
  }
};

TEST_F(AttentionScoresGpu, SinksAndSoftCapsWithAndWithoutMeansSanitized) {
  for (const bool is_prefill : {false, true}) {
    for (const float soft_cap : {0.0f, 3.0f, 50.0f}) {
      for (const bool has_sinks : {false, true}) {
        for (const bool has_means : {false, true}) {
          expect_close_scores(is_prefill, soft_cap, has_sinks, has_means);
        }
      }
    }
  }
}

TEST_F(AttentionScoresGpu, MeansMustBeToldWhereScoresCount) {
  Problem problem{.cache = {.head_dim = 64}, .lengths = {10}};
  problem.cache.constants.key_mean = random_floats(2 * 64, 9);
  make(problem);
  AttentionCudaArgs args;
  args.soft_cap = 30;
  EXPECT_THROW(run(args), Error);
}

}  // namespace
}  // namespace octet
