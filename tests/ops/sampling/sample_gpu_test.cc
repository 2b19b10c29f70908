// Tokens drawn on the GPU against the engine's sampler, draw for draw.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "engine/sampler.h"
#include "ops/sampling/sample_cuda.h"
#include "support/gpu_values.h"

namespace octet {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Drawn {
  std::vector<std::int32_t> tokens;
  std::vector<SampleStatus> statuses;
};

// Row i of logits by parameters i.
Drawn draw(const std::vector<float>& logits, const std::vector<SampleParameters>& parameters,
           int vocabulary, const std::vector<std::int32_t>* row_ids = nullptr) {
  const DeviceArray<float> device_logits(logits);
  const DeviceArray<SampleParameters> device_parameters(parameters);
  const DeviceArray<std::int32_t> ids(row_ids == nullptr ? std::vector<std::int32_t>{} : *row_ids);
  DeviceArray<std::int32_t> tokens(parameters.size());
  DeviceArray<SampleStatus> statuses(parameters.size());
  tokens.fill_bytes(0xFF);
  statuses.fill_bytes(0xFF);
  SampleCudaArgs args;
  args.logits = device_logits.data();
  args.logits_stride = vocabulary;
  if (row_ids != nullptr) args.row_ids = ids.data();
  args.parameters = device_parameters.data();
  args.tokens = tokens.data();
  args.statuses = statuses.data();
  args.rows = static_cast<int>(parameters.size());
  args.vocabulary = vocabulary;
  sample_cuda(gpu_launch(), args);
  return {tokens.download(), statuses.download()};
}

const std::vector<SamplingParams>& settings() {
  static const std::vector<SamplingParams> all = [] {
    std::vector<SamplingParams> made;
    for (const float temperature : {0.0f, 0.3f, 1.0f, 1.7f}) {
      for (const std::int64_t top_k : {0, 1, 5, 50, 9000}) {
        for (const float top_p : {1.0f, 0.95f, 0.5f, 0.01f}) {
          for (const float min_p : {0.0f, 0.05f}) {
            SamplingParams params;
            params.temperature = temperature;
            params.top_k = top_k;
            params.top_p = top_p;
            params.min_p = min_p;
            made.push_back(params);
          }
        }
      }
    }
    return made;
  }();
  return all;
}

SampleParameters parameters_of(const SamplingParams& params, std::uint64_t seed,
                               std::int64_t draw) {
  return {params.temperature, params.top_p, params.min_p, static_cast<std::int32_t>(params.top_k),
          uniform_draw(seed, draw)};
}

// Every setting on a row of its own. Returns how many rows were left to the host.
int expect_the_hosts_tokens(int vocabulary, float deviation, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << vocabulary << " tokens, deviation " << deviation);
  const std::size_t rows = settings().size();
  const auto width = static_cast<std::size_t>(vocabulary);
  std::vector<float> logits = random_floats(rows * width, static_cast<unsigned>(seed), deviation);
  std::vector<SampleParameters> parameters;
  for (std::size_t row = 0; row < rows; ++row) {
    parameters.push_back(parameters_of(settings()[row], seed, static_cast<std::int64_t>(row)));
    // Ties, the two zeros and tokens that cannot be.
    for (std::size_t i = row % 5; i + 3 < width; i += 41) logits[row * width + i] = -infinity;
    if (row % 3 == 0 && width > 9) {
      logits[row * width + 7] = logits[row * width + 5] = logits[row * width + 9];
      logits[row * width + 1] = 0.0f;
      logits[row * width + 2] = -0.0f;
    }
  }
  const Drawn drawn = draw(logits, parameters, vocabulary);
  Sampler sampler;
  int left = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    if (drawn.statuses[row] == SampleStatus::left_to_host) {
      EXPECT_EQ(drawn.tokens[row], -1);
      ++left;
      continue;
    }
    EXPECT_EQ(drawn.statuses[row], SampleStatus::chosen);
    const std::span<const float> of_row(logits.data() + row * width, width);
    EXPECT_EQ(drawn.tokens[row],
              sampler.sample(of_row, settings()[row], seed, static_cast<std::int64_t>(row)))
        << "temperature " << settings()[row].temperature << ", top_k " << settings()[row].top_k
        << ", top_p " << settings()[row].top_p << ", min_p " << settings()[row].min_p;
  }
  return left;
}

TEST(SampleGpu, TokensAreTheHosts) {
  std::uint64_t seed = 1;
  for (const int vocabulary : {1, 2, 31, 33, 1000, 8192, 32000, 49152, 151936}) {
    for (const float deviation : {0.1f, 1.0f, 4.0f, 20.0f}) {
      const int left = expect_the_hosts_tokens(vocabulary, deviation, ++seed);
      if (vocabulary <= sample_candidates) {
        EXPECT_EQ(left, 0);
      }
      // Of 160 rows 40 are greedy and 6 draw from all; a top_k of 9000 asks for too many.
      EXPECT_LE(left, deviation < 4.0f ? 160 - 40 - 6 : 3 * 8);
    }
  }
}

TEST(SampleGpu, TheLargestVocabulary) { expect_the_hosts_tokens(1 << 18, 3.0f, 77); }

TEST(SampleGpu, Sanitized) { expect_the_hosts_tokens(517, 2.0f, 5); }

TEST(SampleGpu, LowestIdAmongEquals) {
  std::vector<float> logits(5000, 1.0f);
  EXPECT_EQ(draw(logits, {SampleParameters{}}, 5000).tokens[0], 0);
  logits[4321] = logits[1234] = 2.0f;
  EXPECT_EQ(draw(logits, {SampleParameters{}}, 5000).tokens[0], 1234);
  std::vector<float> zeros(100, -1.0f);
  zeros[3] = -0.0f;
  zeros[4] = 0.0f;
  EXPECT_EQ(draw(zeros, {SampleParameters{}}, 100).tokens[0], 3);
}

TEST(SampleGpu, EveryRegionOfTheUniformNumber) {
  // Four tokens of equal weight: each quarter of [0, 1) is one of them.
  const std::vector<float> one_row = {-infinity, 1, 1, -infinity, 1, 1};
  const std::int32_t wanted[] = {1, 1, 2, 2, 4, 4, 5, 5};
  const double uniform[] = {0.0, 0.2499999, 0.25, 0.4999999, 0.5, 0.74999, 0.75, 1 - 0x1p-53};
  for (const std::int32_t top_k : {0, 6}) {
    std::vector<float> logits;
    std::vector<SampleParameters> parameters;
    for (const double u : uniform) {
      logits.insert(logits.end(), one_row.begin(), one_row.end());
      parameters.push_back({1.0f, 1.0f, 0.0f, top_k, u});
    }
    const Drawn drawn = draw(logits, parameters, 6);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(drawn.tokens[i], wanted[i]);
  }
}

TEST(SampleGpu, LogitsThatAreNoNumbers) {
  for (const float temperature : {0.0f, 1.0f}) {
    for (const std::int32_t top_k : {0, 5}) {
      std::vector<float> logits(5 * 3000, 0.5f);
      logits[0 * 3000 + 2999] = std::nanf("");
      logits[1 * 3000 + 17] = infinity;
      std::fill_n(logits.begin() + 2 * 3000, 3000, -infinity);
      logits[3 * 3000 + 17] = -infinity;
      const Drawn drawn = draw(
          logits, std::vector<SampleParameters>(5, {temperature, 1.0f, 0.0f, top_k, 0.3}), 3000);
      EXPECT_EQ(drawn.statuses,
                (std::vector<SampleStatus>{SampleStatus::not_a_number, SampleStatus::not_a_number,
                                           SampleStatus::not_a_number, SampleStatus::chosen,
                                           SampleStatus::chosen}));
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(drawn.tokens[i], -1);
      EXPECT_GE(drawn.tokens[3], 0);
    }
  }
}

TEST(SampleGpu, RowsByTheirIds) {
  std::vector<float> logits(4 * 50, 0.0f);
  for (std::size_t row = 0; row < 4; ++row) logits[row * 50 + 10 * row + 3] = 9.0f;
  const std::vector<std::int32_t> ids = {2, -1, 0};
  const Drawn drawn = draw(logits, std::vector<SampleParameters>(3), 50, &ids);
  EXPECT_EQ(drawn.tokens, (std::vector<std::int32_t>{23, -1, 3}));
  EXPECT_EQ(static_cast<int>(drawn.statuses[1]), -1) << "as it was";
}

TEST(SampleGpu, Refusals) {
  SampleCudaArgs args;
  args.rows = 1;
  args.vocabulary = 10;
  EXPECT_THROW(sample_cuda(gpu_launch(), args), Error);
  args.vocabulary = 0;
  EXPECT_THROW(sample_cuda(gpu_launch(), args), Error);
}

}  // namespace
}  // namespace octet
