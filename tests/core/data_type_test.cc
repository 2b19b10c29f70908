#include "core/data_type.h"

#include <gtest/gtest.h>

#include "core/tensor_view.h"

namespace octet {
namespace {

// Name, elements and bytes of a block, from ggml's definitions of the block structures.
TEST(DataType, TraitsAreThoseOfGgml) {
  struct Expected {
    DataType type;
    std::string_view name;
    std::uint32_t elements;
    std::uint32_t bytes;
  };
  const Expected expected[] = {
      {DataType::float32, "F32", 1, 4},
      {DataType::float16, "F16", 1, 2},
      {DataType::bfloat16, "BF16", 1, 2},
      {DataType::q4_0, "Q4_0", 32, 2 + 16},
      {DataType::q4_1, "Q4_1", 32, 2 + 2 + 16},
      {DataType::q5_0, "Q5_0", 32, 2 + 4 + 16},
      {DataType::q5_1, "Q5_1", 32, 2 + 2 + 4 + 16},
      {DataType::q8_0, "Q8_0", 32, 2 + 32},
      {DataType::q4_k, "Q4_K", 256, 2 + 2 + 12 + 128},
      {DataType::q5_k, "Q5_K", 256, 2 + 2 + 12 + 32 + 128},
      {DataType::q6_k, "Q6_K", 256, 128 + 64 + 16 + 2},
  };
  for (const Expected& want : expected) {
    const DataTypeTraits traits = traits_of(want.type);
    EXPECT_EQ(traits.name, want.name);
    EXPECT_EQ(traits.block_elements, want.elements) << want.name;
    EXPECT_EQ(traits.block_bytes, want.bytes) << want.name;
  }
}

TEST(TensorView, CountsElementsAndFormatsShapes) {
  TensorView tensor;
  tensor.shape = {576, 1536};
  EXPECT_EQ(tensor.elements(), 576 * 1536);
  EXPECT_EQ(format_shape(tensor.shape), "[576, 1536]");
  EXPECT_EQ(format_shape({7}), "[7]");
}

}  // namespace
}  // namespace octet
