#include "files/gguf.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/gguf_writer.h"

namespace octet {
namespace {

template <typename Call>
void expect_bad_input(Call call, const std::string& message) {
  try {
    call();
    FAIL() << "expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_EQ(std::string(error.what()), message);
  }
}

std::string temporary_path(const std::string& name) { return testing::TempDir() + "octet_" + name; }

TEST(Gguf, ReadsScalarsOfEveryType) {
  GgufWriter writer;
  writer.add("u8", std::uint8_t{255})
      .add("i8", std::int8_t{-128})
      .add("u16", std::uint16_t{65535})
      .add("i16", std::int16_t{32767})
      .add("u32", std::uint32_t{4294967295u})
      .add("i32", std::int32_t{7})
      .add("u64", std::numeric_limits<std::uint64_t>::max())
      .add("i64", std::numeric_limits<std::int64_t>::max())
      .add("f32", 0.1f)
      .add("f64", 0.1)
      .add("nan", std::nanf(""))
      .add("yes", true)
      .add("no", false)
      .add("text", "two\nlines")
      .add("empty", "")
      .add("bytes", std::string("a\0\xFF", 3));
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  EXPECT_EQ(file->find_uint("u8"), 255u);
  EXPECT_EQ(file->find_uint("u16"), 65535u);
  EXPECT_EQ(file->find_uint("i16"), 32767u);
  EXPECT_EQ(file->find_uint("u32"), 4294967295u);
  EXPECT_EQ(file->find_uint("i32"), 7u);
  EXPECT_EQ(file->find_uint("u64"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(file->find_uint("i64"), 9223372036854775807u);
  EXPECT_EQ(file->find_float("f32"), static_cast<double>(0.1f));
  EXPECT_EQ(file->find_float("f64"), 0.1);
  EXPECT_TRUE(std::isnan(file->find_float("nan").value()));
  EXPECT_EQ(file->find_bool("yes"), true);
  EXPECT_EQ(file->find_bool("no"), false);
  EXPECT_EQ(file->find_string("text"), "two\nlines");
  EXPECT_EQ(file->find_string("empty"), "");
  EXPECT_EQ(file->find_string("bytes"), std::string("a\0\xFF", 3));  // values are not checked
  EXPECT_EQ(file->require_uint("u8"), 255u);
  EXPECT_EQ(file->require_float("f64"), 0.1);
  EXPECT_EQ(file->require_string("text"), "two\nlines");
}

TEST(Gguf, ReadsArrays) {
  GgufWriter writer;
  writer.add_array<std::string>("strings", {"a", "", "\xC3\xA9"})
      .add_array<std::int32_t>("i32s", {-1, 0, 2147483647})
      .add_array<std::uint8_t>("u8s", {0, 255})
      .add_array<std::uint64_t>("u64s", {1, 9223372036854775807u})
      .add_array<std::uint64_t>("too_large", {9223372036854775808u})
      .add_array<float>("f32s", {0.5f, -1.25f})
      .add_array<double>("f64s", {0.1})
      .add_array<bool>("bools", {true, false})
      .add_array<std::string>("no_strings", {});
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  EXPECT_EQ(file->find_strings("strings"), (std::vector<std::string>{"a", "", "\xC3\xA9"}));
  EXPECT_EQ(file->require_strings("no_strings"), std::vector<std::string>{});
  EXPECT_EQ(file->find_integers("i32s"), (std::vector<std::int64_t>{-1, 0, 2147483647}));
  EXPECT_EQ(file->find_integers("u8s"), (std::vector<std::int64_t>{0, 255}));
  EXPECT_EQ(file->find_integers("u64s"), (std::vector<std::int64_t>{1, 9223372036854775807}));
  EXPECT_EQ(file->find_floats("f32s"), (std::vector<double>{0.5, -1.25}));
  EXPECT_EQ(file->find_floats("f64s"), std::vector<double>{0.1});
  expect_bad_input([&] { file->find_integers("too_large"); },
                   "model.gguf: metadata key 'too_large' holds 9223372036854775808, expected an "
                   "array of integers of at most 63 bits");
  expect_bad_input([&] { file->find_integers("bools"); },
                   "model.gguf: metadata key 'bools' holds an array of 2 bool values, expected an "
                   "array of integers of at most 63 bits");
  expect_bad_input([&] { file->find_integers("no_strings"); },
                   "model.gguf: metadata key 'no_strings' holds an array of 0 string values, "
                   "expected an array of integers of at most 63 bits");
}

TEST(Gguf, KeepsNestedArraysApart) {
  GgufBytes nested;  // an array of two arrays: of two u8, and of one string
  nested.put(std::uint32_t{9}).put(std::uint64_t{2});
  nested.put(std::uint32_t{0}).put(std::uint64_t{2}).put(std::uint8_t{1}).put(std::uint8_t{2});
  nested.put(std::uint32_t{8}).put(std::uint64_t{1}).put("x");
  GgufWriter writer;
  writer.add_raw("nested", 9, nested).add("after", std::uint32_t{5});
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  EXPECT_EQ(file->find_uint("after"), 5u);
  expect_bad_input([&] { file->find_strings("nested"); },
                   "model.gguf: metadata key 'nested' holds an array of 2 array values, expected "
                   "an array of strings");
}

TEST(Gguf, MissingKeys) {
  GgufWriter writer;
  writer.add("b", std::uint32_t{1}).add("a", std::uint32_t{2}).add("ab", std::uint32_t{3});
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  EXPECT_EQ(file->keys(), (std::vector<std::string>{"b", "a", "ab"}));
  EXPECT_TRUE(file->has("ab"));
  EXPECT_FALSE(file->has("c"));
  EXPECT_FALSE(file->has(""));
  EXPECT_EQ(file->find_uint("c"), std::nullopt);
  EXPECT_EQ(file->find_float("c"), std::nullopt);
  EXPECT_EQ(file->find_bool("c"), std::nullopt);
  EXPECT_EQ(file->find_string("c"), std::nullopt);
  EXPECT_EQ(file->find_strings("c"), std::nullopt);
  EXPECT_EQ(file->find_integers("c"), std::nullopt);
  EXPECT_EQ(file->find_floats("c"), std::nullopt);
  expect_bad_input([&] { file->require_uint("llama.block_count"); },
                   "model.gguf: metadata key 'llama.block_count' is missing, expected an integer "
                   "that is not negative");
  expect_bad_input([&] { file->require_float("c"); },
                   "model.gguf: metadata key 'c' is missing, expected a value of type f32 or f64");
  expect_bad_input([&] { file->require_string("c"); },
                   "model.gguf: metadata key 'c' is missing, expected a value of type string");
  expect_bad_input([&] { file->require_strings("c"); },
                   "model.gguf: metadata key 'c' is missing, expected an array of strings");
}

TEST(Gguf, KeysOfAnotherType) {
  GgufWriter writer;
  writer.add("text", "1")
      .add("minus", std::int32_t{-1})
      .add("whole", std::uint32_t{1})
      .add("half", 0.5f)
      .add_array<float>("floats", {1.0f});
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  expect_bad_input([&] { file->find_uint("text"); },
                   "model.gguf: metadata key 'text' holds a value of type string, expected an "
                   "integer that is not negative");
  expect_bad_input([&] { file->find_uint("minus"); },
                   "model.gguf: metadata key 'minus' is negative, expected an integer that is not "
                   "negative");
  expect_bad_input([&] { file->find_uint("half"); },
                   "model.gguf: metadata key 'half' holds a value of type f32, expected an integer "
                   "that is not negative");
  expect_bad_input(
      [&] { file->find_float("whole"); },
      "model.gguf: metadata key 'whole' holds a value of type u32, expected a value of "
      "type f32 or f64");
  expect_bad_input(
      [&] { file->find_bool("whole"); },
      "model.gguf: metadata key 'whole' holds a value of type u32, expected a value of "
      "type bool");
  expect_bad_input([&] { file->find_string("floats"); },
                   "model.gguf: metadata key 'floats' holds an array of 1 f32 values, expected a "
                   "value of type string");
  expect_bad_input(
      [&] { file->find_strings("text"); },
      "model.gguf: metadata key 'text' holds a value of type string, expected an array "
      "of strings");
  expect_bad_input(
      [&] { file->find_floats("text"); },
      "model.gguf: metadata key 'text' holds a value of type string, expected an array "
      "of f32 or f64 values");
}

TEST(Gguf, ReadsTensors) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::vector<std::byte> quantised(2 * 34, std::byte{0x11});
  GgufWriter writer;
  writer.add_tensor("matrix", {2, 3}, values)
      .add_tensor("quantised", DataType::q8_0, {2, 32}, quantised)
      .add_tensor("cube", {1, 1, 3, 2}, values);
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[1].name, "quantised");

  const TensorView* matrix = file->find_tensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix, &file->tensors()[0]);
  EXPECT_EQ(matrix->shape, (std::vector<std::int64_t>{2, 3}));  // outermost first
  EXPECT_EQ(matrix->dtype, DataType::float32);
  ASSERT_EQ(matrix->bytes, 24u);
  EXPECT_EQ(std::memcmp(matrix->data, values.data(), 24), 0);

  const TensorView* blocks = file->find_tensor("quantised");
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->dtype, DataType::q8_0);
  ASSERT_EQ(blocks->bytes, quantised.size());
  EXPECT_EQ(std::memcmp(blocks->data, quantised.data(), quantised.size()), 0);

  EXPECT_EQ(file->find_tensor("cube")->shape, (std::vector<std::int64_t>{1, 1, 3, 2}));
  EXPECT_EQ(file->find_tensor("cub"), nullptr);
  EXPECT_EQ(file->find_tensor(""), nullptr);
}

TEST(Gguf, ReadsEveryTensorTypeThatItNames) {
  GgufWriter writer;
  for (const DataType type : all_data_types) {
    if (type == DataType::float8_e4m3) continue;  // GGUF has no such type
    const DataTypeTraits traits = traits_of(type);
    writer.add_tensor(traits.name, type, {3, traits.block_elements},
                      std::vector<std::byte>(3 * traits.block_bytes, std::byte(type)));
  }
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  ASSERT_EQ(file->tensors().size(), std::size(all_data_types) - 1);
  for (const TensorView& tensor : file->tensors()) {
    EXPECT_EQ(traits_of(tensor.dtype).name, tensor.name);
    EXPECT_EQ(tensor.data[tensor.bytes - 1], std::byte(tensor.dtype)) << tensor.name;
  }
}

TEST(Gguf, HonoursTheAlignment) {
  for (const std::uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    GgufWriter writer;
    writer.set_alignment(alignment)
        .add_tensor("one", {1}, std::vector<float>{1.5f})
        .add_tensor("two", {1}, std::vector<float>{2.5f});
    const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
    float value = 0;
    std::memcpy(&value, file->find_tensor("two")->data, sizeof(value));
    EXPECT_EQ(value, 2.5f) << alignment;
    EXPECT_EQ(file->find_tensor("two")->data - file->find_tensor("one")->data, alignment);
  }
}

TEST(Gguf, AFileWithoutTensorsOrWithoutAnythingIsWhole) {
  GgufWriter writer;
  EXPECT_TRUE(GgufFile::from_bytes(writer.bytes(), "model.gguf")->tensors().empty());
  writer.add("general.architecture", "llama");
  const auto file = GgufFile::from_bytes(writer.bytes(), "model.gguf");
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_EQ(file->require_string("general.architecture"), "llama");
}

TEST(Gguf, OpensAFileByItsPath) {
  const std::string path = temporary_path("gguf_test.gguf");
  GgufWriter writer;
  writer.add("general.architecture", "llama").add_tensor("x", {2}, std::vector<float>{1, 2});
  writer.write(path);
  const auto file = GgufFile::open(path);
  EXPECT_EQ(file->path(), path);
  EXPECT_EQ(file->file_bytes(), writer.bytes().size());
  EXPECT_EQ(file->require_string("general.architecture"), "llama");
  float value = 0;
  std::memcpy(&value, file->find_tensor("x")->data + sizeof(float), sizeof(value));
  EXPECT_EQ(value, 2.0f);
  // The data is aligned in memory as it is in the file.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file->find_tensor("x")->data) % 32, 0u);
}

TEST(Gguf, ReadsWhatTheGgufPackageWrote) {
  const auto file = GgufFile::open(OCTET_TEST_DATA "/files/block_cases.gguf");
  EXPECT_EQ(file->require_string("general.architecture"), "block_cases");
  EXPECT_EQ(file->tensors().size(), 30u);
  EXPECT_EQ(file->find_tensor("q6_k.blocks")->shape, (std::vector<std::int64_t>{12, 256}));
  EXPECT_EQ(file->find_tensor("q6_k.blocks")->bytes, 12u * 210u);
}

}  // namespace
}  // namespace octet
