// The expected values come from the `gguf` Python package (tools/oracle/block_cases.py). It
// computes in float32 in the same order as the formulas of block_decode.cc, so the comparison is
// bit for bit.
#include "files/block_decode.h"

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "files/gguf.h"
#include "support/gguf_writer.h"

namespace octet {
namespace {

std::vector<float> decode_all(const TensorView& tensor) {
  const auto rows = static_cast<std::size_t>(tensor.shape[0]);
  const auto columns = static_cast<std::size_t>(tensor.shape[1]);
  std::vector<float> values(rows * columns);
  for (std::size_t row = 0; row < rows; ++row) {
    decode_row(tensor, static_cast<std::int64_t>(row),
               std::span(values).subspan(row * columns, columns));
  }
  return values;
}

// The bits of a value; one pattern for all NaNs, since inf * 0 may have either sign.
std::uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7FC00000u : std::bit_cast<std::uint32_t>(value);
}

struct BlockCase {
  DataType dtype;
  std::string prefix;
};

class BlockDecode : public testing::TestWithParam<BlockCase> {};

TEST_P(BlockDecode, EqualsTheReferenceBitForBit) {
  const auto file = GgufFile::open(OCTET_TEST_DATA "/files/block_cases.gguf");
  const TensorView* blocks = file->find_tensor(GetParam().prefix + ".blocks");
  const TensorView* values = file->find_tensor(GetParam().prefix + ".values");
  ASSERT_NE(blocks, nullptr);
  ASSERT_NE(values, nullptr);
  ASSERT_EQ(blocks->dtype, GetParam().dtype);
  ASSERT_EQ(values->dtype, DataType::float32);
  ASSERT_EQ(blocks->shape, values->shape);
  ASSERT_GE(blocks->shape[0], 12);
  const std::vector<float> decoded = decode_all(*blocks);
  const std::vector<float> expected = decode_all(*values);
  for (std::size_t index = 0; index < expected.size(); ++index) {
    ASSERT_EQ(bits_of(decoded[index]), bits_of(expected[index]))
        << "element " << index << ": " << decoded[index] << " against " << expected[index];
  }
}

// The whole tensor in one call gives what row after row gives.
TEST_P(BlockDecode, SeveralBlocksInOneCall) {
  const auto file = GgufFile::open(OCTET_TEST_DATA "/files/block_cases.gguf");
  const TensorView* blocks = file->find_tensor(GetParam().prefix + ".blocks");
  ASSERT_NE(blocks, nullptr);
  std::vector<float> at_once(static_cast<std::size_t>(blocks->elements()));
  decode_blocks(blocks->dtype, blocks->data, at_once);
  const std::vector<float> by_row = decode_all(*blocks);
  for (std::size_t index = 0; index < by_row.size(); ++index) {
    ASSERT_EQ(bits_of(at_once[index]), bits_of(by_row[index])) << "element " << index;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, BlockDecode,
    testing::Values(BlockCase{DataType::float16, "f16"}, BlockCase{DataType::bfloat16, "bf16"},
                    BlockCase{DataType::q4_0, "q4_0"}, BlockCase{DataType::q4_1, "q4_1"},
                    BlockCase{DataType::q5_0, "q5_0"}, BlockCase{DataType::q5_1, "q5_1"},
                    BlockCase{DataType::q8_0, "q8_0"}, BlockCase{DataType::q2_k, "q2_k"},
                    BlockCase{DataType::q3_k, "q3_k"}, BlockCase{DataType::q4_k, "q4_k"},
                    BlockCase{DataType::q5_k, "q5_k"}, BlockCase{DataType::q6_k, "q6_k"},
                    BlockCase{DataType::iq4_nl, "iq4_nl"}, BlockCase{DataType::iq4_xs, "iq4_xs"},
                    BlockCase{DataType::mxfp4, "mxfp4"}),
    [](const testing::TestParamInfo<BlockCase>& parameter) { return parameter.param.prefix; });

TEST(DecodeRow, PicksTheRowOfAMatrixAndTheWholeOfAVector) {
  const std::vector<float> numbers = {1.5f, -2.0f, 0x1p-149f, 4.0f, 5.0f, -0.0f};
  GgufWriter writer;
  writer.add_tensor("matrix", {3, 2}, numbers).add_tensor("vector", {6}, numbers);
  const auto file = GgufFile::from_bytes(writer.bytes(), "rows");

  std::vector<float> row(2);
  decode_row(*file->find_tensor("matrix"), 2, row);
  EXPECT_EQ(bits_of(row[0]), bits_of(5.0f));
  EXPECT_EQ(bits_of(row[1]), bits_of(-0.0f));
  std::vector<float> whole(6);
  decode_row(*file->find_tensor("vector"), 0, whole);
  EXPECT_EQ(whole, numbers);
}

TEST(DecodeRow, RefusesRowsAndSizesThatTheTensorLacks) {
  GgufWriter writer;
  writer.add_tensor("matrix", {3, 2}, std::vector<float>(6))
      .add_tensor("cube", {1, 3, 2}, std::vector<float>(6));
  const auto file = GgufFile::from_bytes(writer.bytes(), "rows");
  const TensorView& matrix = *file->find_tensor("matrix");
  std::vector<float> two(2);
  std::vector<float> three(3);
  EXPECT_THROW(decode_row(matrix, 3, two), Error);
  EXPECT_THROW(decode_row(matrix, -1, two), Error);
  EXPECT_THROW(decode_row(matrix, 0, three), Error);
  EXPECT_THROW(decode_row(*file->find_tensor("cube"), 0, two), Error);
}

TEST(DecodeBlocks, RefusesHalfABlock) {
  const std::vector<std::byte> block(34);
  std::vector<float> half(16);
  EXPECT_THROW(decode_blocks(DataType::q8_0, block.data(), half), Error);
}

TEST(DecodeBlocks, EveryTypeHasTheSizesThatItsDecoderReads) {
  // Under the address sanitizer this shows that no decoder reads past its block.
  for (const DataType type : all_data_types) {
    const std::vector<std::byte> block(traits_of(type).block_bytes);
    std::vector<float> values(traits_of(type).block_elements, 1.0f);
    decode_blocks(type, block.data(), values);
    EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f)) << traits_of(type).name;
  }
}

}  // namespace
}  // namespace octet
