#include "ops/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

TEST(RopeFrequencies, ArePowersOfTheBase) {
  const RopeFrequencies frequencies = rope_frequencies(10000.0, 64, std::nullopt);
  ASSERT_EQ(frequencies.inverse.size(), 32u);
  EXPECT_EQ(frequencies.inverse[0], 1.0);
  EXPECT_NEAR(frequencies.inverse[8], 0.1, 1e-16);
  EXPECT_NEAR(frequencies.inverse[16], 0.01, 1e-17);
  EXPECT_NEAR(frequencies.inverse[24], 0.001, 1e-18);
}

// Llama 3.1: head_dim 128, base 500,000, factor 8, low 1, high 4, original context 8,192. Pairs up
// to 28 are kept, from 35 on divided by 8, 29 to 34 blended; values computed with 30 digits
// elsewhere.
TEST(RopeFrequencies, Llama3Scaling) {
  const RopeFrequencies plain = rope_frequencies(500000.0, 128, std::nullopt);
  const RopeFrequencies scaled = rope_frequencies(500000.0, 128, Llama3RopeScaling{});
  ASSERT_EQ(scaled.inverse.size(), 64u);
  for (std::size_t i = 0; i < 64; ++i) {
    if (i <= 28) {
      EXPECT_EQ(scaled.inverse[i], plain.inverse[i]) << i;
    } else if (i >= 35) {
      EXPECT_EQ(scaled.inverse[i], plain.inverse[i] / 8) << i;
    } else {
      EXPECT_LT(scaled.inverse[i], plain.inverse[i]) << i;
      EXPECT_GT(scaled.inverse[i], plain.inverse[i] / 8) << i;
    }
  }
  const auto expect_close = [&](std::size_t i, double expected) {
    EXPECT_NEAR(scaled.inverse[i], expected, 1e-13 * expected) << i;
  };
  expect_close(28, 0.003211445994752591);
  expect_close(29, 0.0021665707635033586);
  expect_close(31, 0.00085675141291963208);
  expect_close(34, 0.00017850781276799642);
  expect_close(35, 9.556212353964683e-5);
}

TEST(RopeFrequencies, RefusesBrokenParameters) {
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  const auto expect_bad_input = [](double theta, int dim,
                                   std::optional<Llama3RopeScaling> scaling) {
    try {
      rope_frequencies(theta, dim, scaling);
      ADD_FAILURE() << "no error for base " << theta << " and " << dim;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    }
  };
  for (const double theta : {0.0, -1.0, not_a_number, infinite}) {
    expect_bad_input(theta, 64, std::nullopt);
  }
  for (const int dim : {0, -2, 63}) expect_bad_input(10000, dim, std::nullopt);
  expect_bad_input(10000, 64, Llama3RopeScaling{.factor = 0});
  expect_bad_input(10000, 64, Llama3RopeScaling{.factor = not_a_number});
  expect_bad_input(10000, 64, Llama3RopeScaling{.low_freq_factor = 4, .high_freq_factor = 4});
  expect_bad_input(10000, 64, Llama3RopeScaling{.original_context = infinite});
}

TEST(RopeTable, HoldsCosinesAndSinesOfFarPositions) {
  RopeTable table(rope_frequencies(10000.0, 64, std::nullopt), 131072);
  table.extend(131072);
  EXPECT_EQ(table.pairs(), 32);
  EXPECT_EQ(table.positions(), 131072);
  EXPECT_EQ(table.cosines(0)[7], 1.0f);
  EXPECT_EQ(table.sines(0)[7], 0.0f);
  // 30-digit values of cos and sin of position x inverse.
  EXPECT_FLOAT_EQ(table.cosines(1)[0], 0.540302305868f);
  EXPECT_FLOAT_EQ(table.sines(1)[0], 0.841470984808f);
  EXPECT_FLOAT_EQ(table.cosines(8191)[0], -0.646390469764f);
  EXPECT_FLOAT_EQ(table.sines(8191)[0], -0.763006789352f);
  EXPECT_FLOAT_EQ(table.cosines(131071)[5], 0.466543783396f);
  EXPECT_FLOAT_EQ(table.sines(131071)[5], -0.884498105241f);
  EXPECT_THROW(RopeTable(rope_frequencies(10000.0, 64, std::nullopt), -1), Error);
}

TEST(RopeTable, MakesWhatIsAskedForAndItStaysInPlace) {
  RopeTable table(rope_frequencies(10000.0, 4, std::nullopt), 200);
  EXPECT_EQ(table.positions(), 0);
  table.extend(1);
  EXPECT_EQ(table.positions(), 64);
  const float* cosines = table.cosines(3);
  const float* sines = table.sines(3);
  table.extend(64);
  EXPECT_EQ(table.positions(), 64);
  table.extend(65);
  EXPECT_EQ(table.positions(), 128);
  table.extend(10);
  EXPECT_EQ(table.positions(), 128);
  for (const std::int64_t beyond : {std::int64_t{200}, std::int64_t{1} << 40}) {
    table.extend(beyond);
    EXPECT_EQ(table.positions(), 200);
  }
  EXPECT_EQ(table.cosines(3), cosines);
  EXPECT_EQ(table.sines(3), sines);
  for (const int position : {0, 3, 63, 64, 127, 128, 199}) {
    for (const int pair : {0, 1}) {
      const double angle = position * std::pow(10000.0, -pair / 2.0);
      EXPECT_FLOAT_EQ(table.cosines(position)[pair], static_cast<float>(std::cos(angle)));
      EXPECT_FLOAT_EQ(table.sines(position)[pair], static_cast<float>(std::sin(angle)));
    }
  }
}

struct Layout {
  int rotary_dim;
  int head_dim;
  int heads;
};

struct Data {
  Data(const Layout& layout_in, std::int64_t rows_in)
      : layout(layout_in),
        rows(rows_in),
        stride(std::int64_t{layout.heads} * layout.head_dim + 3),
        table(rope_frequencies(10000.0, layout.rotary_dim, std::nullopt), 300),
        x(random_floats(rows * stride, 9)) {
    table.extend(300);
    for (std::int64_t row = 0; row < rows; ++row) {
      positions.push_back(static_cast<std::int32_t>((row * 37 + 299) % 300));
    }
  }
  RopeArgs args(RopePairing pairing) {
    return {.x = x.data(),
            .rows = rows,
            .row_stride = stride,
            .heads = layout.heads,
            .head_dim = layout.head_dim,
            .positions = positions.data(),
            .table = &table,
            .pairing = pairing};
  }
  Layout layout;
  std::int64_t rows;
  std::int64_t stride;
  RopeTable table;
  std::vector<float> x;
  std::vector<std::int32_t> positions;
};

// The rotation of every pair in double, from angles computed here.
void expect_rotated(const Data& data, const std::vector<float>& before, RopePairing pairing) {
  const int pairs = data.layout.rotary_dim / 2;
  for (std::int64_t row = 0; row < data.rows; ++row) {
    for (int head = 0; head < data.layout.heads; ++head) {
      const std::int64_t at = row * data.stride + head * data.layout.head_dim;
      for (int i = 0; i < pairs; ++i) {
        const bool split = pairing == RopePairing::half_split;
        const double a = before[at + (split ? i : 2 * i)];
        const double b = before[at + (split ? i + pairs : 2 * i + 1)];
        const double angle =
            data.positions[row] * std::pow(10000.0, -2.0 * i / data.layout.rotary_dim);
        // Two products, a sum and the rounding of the table: each 2^-24 of |a| + |b|.
        const double bound = 3.001 * 0x1p-24 * (std::fabs(a) + std::fabs(b));
        ASSERT_NEAR(data.x[at + i], a * std::cos(angle) - b * std::sin(angle), bound);
        ASSERT_NEAR(data.x[at + i + pairs], b * std::cos(angle) + a * std::sin(angle), bound);
      }
      for (int i = 2 * pairs; i < data.layout.head_dim; ++i) {
        ASSERT_EQ(data.x[at + i], before[at + i]) << "elements past the rotated ones stay";
      }
    }
    for (std::int64_t i = data.layout.heads * data.layout.head_dim; i < data.stride; ++i) {
      ASSERT_EQ(data.x[row * data.stride + i], before[row * data.stride + i]);
    }
  }
}

TEST(Rope, RotatesEveryPair) {
  ThreadPool pool(2);
  for (const InstructionSet set : available_instruction_sets()) {
    for (const RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
      for (const Layout& layout :
           {Layout{64, 64, 3}, Layout{128, 128, 2}, Layout{2, 2, 5}, Layout{6, 10, 1},
            Layout{32, 128, 4}, Layout{18, 18, 2}, Layout{46, 50, 3}}) {
        SCOPED_TRACE(std::string(name_of(set)) + " rotary_dim " +
                     std::to_string(layout.rotary_dim));
        Data data(layout, 23);
        const std::vector<float> before = data.x;
        rope({&pool, set}, data.args(pairing));
        expect_rotated(data, before, pairing);
      }
    }
  }
}

// A quarter turn by hand: base and position chosen so that the only angle is 1 radian.
TEST(Rope, KnownValue) {
  for (const InstructionSet set : available_instruction_sets()) {
    RopeTable table(rope_frequencies(10000.0, 2, std::nullopt), 2);
    table.extend(2);
    float x[2] = {1, 2};
    const std::int32_t position = 1;
    rope({nullptr, set}, {.x = x,
                          .rows = 1,
                          .row_stride = 2,
                          .heads = 1,
                          .head_dim = 2,
                          .positions = &position,
                          .table = &table});
    EXPECT_FLOAT_EQ(x[0], -1.14263966375f);  // cos 1 - 2 sin 1
    EXPECT_FLOAT_EQ(x[1], 1.92207559654f);   // 2 cos 1 + sin 1
  }
}

// The interleaved rows of a GGUF file are a permutation of the checkpoint's: after rope both are
// the same, to the bit.
TEST(Rope, InterleavedEqualsHalfSplitOfThePermutedInput) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const int dim : {64, 18}) {
      Data split({dim, dim, 2}, 9);
      Data interleaved({dim, dim, 2}, 9);
      for (std::int64_t row = 0; row < 9; ++row) {
        for (int head = 0; head < 2; ++head) {
          const std::int64_t at = row * split.stride + head * dim;
          for (int i = 0; i < dim / 2; ++i) {
            interleaved.x[at + 2 * i] = split.x[at + i];
            interleaved.x[at + 2 * i + 1] = split.x[at + i + dim / 2];
          }
        }
      }
      rope({nullptr, set}, split.args(RopePairing::half_split));
      rope({nullptr, set}, interleaved.args(RopePairing::interleaved));
      EXPECT_EQ(split.x, interleaved.x);
    }
  }
}

TEST(Rope, ARowHasTheSameBitsAloneAndAmongAny) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
      Data together({46, 64, 9}, 120);
      const std::vector<float> before = together.x;
      rope({nullptr, set}, together.args(pairing));
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        for (const std::int64_t at_once : {1, 33, 120}) {
          Data parts({46, 64, 9}, 120);
          parts.x = before;
          for (std::int64_t row = 0; row < 120; row += at_once) {
            RopeArgs args = parts.args(pairing);
            args.x += row * args.row_stride;
            args.positions += row;
            args.rows = std::min<std::int64_t>(at_once, 120 - row);
            rope({&pool, set}, args);
          }
          ASSERT_EQ(parts.x, together.x) << threads << " threads, " << at_once << " rows";
        }
      }
    }
  }
}

TEST(Rope, RefusesWhatDoesNotFitAndWritesNothing) {
  Data data({4, 4, 2}, 3);
  const std::vector<float> before = data.x;
  const auto expect_internal = [&](auto change) {
    RopeArgs args = data.args(RopePairing::half_split);
    change(args);
    try {
      rope({}, args);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
    }
    EXPECT_EQ(data.x, before);
  };
  expect_internal([](RopeArgs& args) { args.rows = -1; });
  expect_internal([](RopeArgs& args) { args.table = nullptr; });
  expect_internal([](RopeArgs& args) { args.positions = nullptr; });
  expect_internal([](RopeArgs& args) { args.head_dim = 3; });
  expect_internal([](RopeArgs& args) { args.row_stride = 7; });
  data.positions[2] = 300;
  expect_internal([](RopeArgs&) {});
  data.positions[2] = -1;
  expect_internal([](RopeArgs&) {});
  rope({}, {});
  EXPECT_EQ(data.x, before);
}

}  // namespace
}  // namespace octet
