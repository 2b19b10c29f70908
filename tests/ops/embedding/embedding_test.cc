#include "ops/embedding/embedding.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "files/block_decode.h"
#include "ops/linear/random_weights.h"

namespace octet {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();

TEST(Embedding, GivesTheDecodedRowsOfEveryType) {
  for (const InstructionSet set : available_instruction_sets()) {
    for (const DataType dtype : all_data_types) {
      const std::int64_t width = 512;
      const std::int64_t vocabulary = 37;
      const RandomWeights table(dtype, vocabulary, width, 5);
      std::vector<std::int32_t> tokens = {0, 36, 5, 5};
      for (std::int32_t i = 0; i < 60; ++i) tokens.push_back(i * 11 % 37);
      std::vector<float> expected(width);
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        std::vector<float> y(tokens.size() * width, poison);
        embedding({&pool, set}, {.table = &table.view(),
                                 .tokens = tokens.data(),
                                 .rows = static_cast<std::int64_t>(tokens.size()),
                                 .y = y.data()});
        for (std::size_t row = 0; row < tokens.size(); ++row) {
          decode_row(table.view(), tokens[row], expected);
          for (std::int64_t i = 0; i < width; ++i) {
            ASSERT_EQ(y[row * width + i], expected[i]) << traits_of(dtype).name << " row " << row;
          }
        }
      }
    }
  }
}

// Q8_0 by hand: d = 0.5 and quants 0, 1, ... 31.
TEST(Embedding, KnownValue) {
  std::vector<std::byte> bytes = {std::byte{0x00}, std::byte{0x38}};
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<std::byte>(i));
  const TensorView table = {.name = "table",
                            .dtype = DataType::q8_0,
                            .shape = {1, 32},
                            .data = bytes.data(),
                            .bytes = bytes.size()};
  const std::int32_t token = 0;
  std::vector<float> y(32, poison);
  embedding({}, {.table = &table, .tokens = &token, .rows = 1, .y = y.data()});
  for (int i = 0; i < 32; ++i) EXPECT_EQ(y[i], 0.5f * static_cast<float>(i));
}

TEST(Embedding, RefusesTokensOutsideTheVocabularyAndWritesNothing) {
  const RandomWeights table(DataType::q4_0, 3, 32, 1);
  for (const std::int32_t bad : {-1, 3, std::numeric_limits<std::int32_t>::max()}) {
    const std::vector<std::int32_t> tokens = {0, bad};
    std::vector<float> y(64, poison);
    try {
      embedding({}, {.table = &table.view(), .tokens = tokens.data(), .rows = 2, .y = y.data()});
      ADD_FAILURE() << "no error for token " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::internal);
      EXPECT_NE(std::string(error.what()).find(std::to_string(bad)), std::string::npos);
    }
    for (const float value : y) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Embedding, RefusesTablesThatDoNotFit) {
  const RandomWeights table(DataType::q4_0, 3, 32, 1);
  const std::int32_t token = 0;
  std::vector<float> y(64);
  TensorView view = table.view();
  const EmbeddingArgs args = {.table = &view, .tokens = &token, .rows = 1, .y = y.data()};
  view.shape = {96};
  EXPECT_THROW(embedding({}, args), Error);
  view.shape = {3, 33};
  EXPECT_THROW(embedding({}, args), Error);
  view.shape = {4, 32};
  EXPECT_THROW(embedding({}, args), Error);
  view.shape = {3, 32};
  EXPECT_NO_THROW(embedding({}, args));
  EXPECT_THROW(embedding({}, {.tokens = &token, .rows = 1, .y = y.data()}), Error);
  EXPECT_NO_THROW(embedding({}, {.table = &view}));
}

}  // namespace
}  // namespace octet
