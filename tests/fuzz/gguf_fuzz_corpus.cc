// Writes the seeds of gguf_fuzz: small whole files, each with another part of the format in it.
//
//   gguf_fuzz_corpus tests/fuzz/corpus/gguf
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "support/gguf_writer.h"

namespace octet {
namespace {

GgufWriter scalars() {
  GgufWriter writer;
  writer.add("a.u8", std::uint8_t{1})
      .add("a.i8", std::int8_t{-1})
      .add("a.u16", std::uint16_t{2})
      .add("a.i16", std::int16_t{-2})
      .add("a.u32", std::uint32_t{3})
      .add("a.i32", std::int32_t{-3})
      .add("a.u64", std::uint64_t{4})
      .add("a.i64", std::int64_t{-4})
      .add("a.f32", 0.5f)
      .add("a.f64", 0.25)
      .add("a.bool", true)
      .add("general.architecture", "llama")
      .add("split.count", std::uint16_t{1});
  return writer;
}

GgufWriter arrays() {
  GgufBytes nested;
  nested.put(std::uint32_t{9}).put(std::uint64_t{2});
  nested.put(std::uint32_t{0}).put(std::uint64_t{2}).put_plain("ab");
  nested.put(std::uint32_t{8}).put(std::uint64_t{1}).put("x");
  GgufWriter writer;
  writer.add_array<std::string>("tokens", {"a", "", "\xC3\xA9"})
      .add_array<std::int32_t>("token_type", {1, 2, 3})
      .add_array<float>("scores", {0.5f, -1.0f})
      .add_array<bool>("pattern", {true, false})
      .add_array<std::uint64_t>("sizes", {1})
      .add_raw("nested", gguf_array_type, nested);
  return writer;
}

GgufWriter all_tensor_types() {
  GgufWriter writer;
  for (const DataType type : all_data_types) {
    if (type == DataType::float8_e4m3) continue;  // GGUF has no such type
    const DataTypeTraits traits = traits_of(type);
    writer.add_tensor(traits.name, type, {traits.block_elements},
                      std::vector<std::byte>(traits.block_bytes, std::byte{0x35}));
  }
  return writer;
}

GgufWriter aligned_tensors() {
  GgufWriter writer;
  writer.set_alignment(64)
      .add_tensor("vector", {2}, std::vector<float>{1, 2})
      .add_tensor("matrix", {2, 3}, std::vector<float>(6, 1.5f))
      .add_tensor("cube", {1, 2, 1, 2}, std::vector<float>(4, -0.5f))
      .add_tensor("rows", DataType::q8_0, {2, 32}, std::vector<std::byte>(68, std::byte{7}));
  return writer;
}

}  // namespace
}  // namespace octet

int main(int argument_count, char** arguments) {
  if (argument_count != 2) {
    std::fprintf(stderr, "usage: gguf_fuzz_corpus FOLDER\n");
    return 2;
  }
  const std::string folder = arguments[1];
  try {
    octet::GgufWriter().write(folder + "/nothing.gguf");
    octet::scalars().write(folder + "/scalars.gguf");
    octet::arrays().write(folder + "/arrays.gguf");
    octet::all_tensor_types().write(folder + "/tensor_types.gguf");
    octet::aligned_tensors().write(folder + "/aligned_tensors.gguf");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gguf_fuzz_corpus: %s\n", error.what());
    return 1;
  }
  return 0;
}
