// Broken GGUF files: each is refused with one sentence that names the file and what is wrong in it.
#include <chrono>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "files/block_decode.h"
#include "files/gguf.h"
#include "support/gguf_writer.h"

namespace octet {
namespace {

constexpr std::uint64_t huge_counts[] = {std::uint64_t{1} << 32, std::uint64_t{1} << 61,
                                         std::uint64_t{1} << 62, std::uint64_t{1} << 63,
                                         std::numeric_limits<std::uint64_t>::max()};

// Reads all that a file offers, as a careless caller would.
void walk(const GgufFile& file) {
  for (const std::string& key : file.keys()) {
    const auto attempt = [](auto call) {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::bad_input) << error.what();
      }
    };
    attempt([&] { file.find_uint(key); });
    attempt([&] { file.find_float(key); });
    attempt([&] { file.find_bool(key); });
    attempt([&] { file.find_string(key); });
    attempt([&] { file.find_strings(key); });
    attempt([&] { file.find_integers(key); });
    attempt([&] { file.find_floats(key); });
  }
  for (const TensorView& tensor : file.tensors()) {
    std::vector<float> block(traits_of(tensor.dtype).block_elements);
    const std::size_t blocks = tensor.bytes / traits_of(tensor.dtype).block_bytes;
    decode_blocks(tensor.dtype, tensor.data, block);
    decode_blocks(tensor.dtype, tensor.data + (blocks - 1) * traits_of(tensor.dtype).block_bytes,
                  block);
  }
}

void expect_message(const Error& error, ErrorKind kind, const std::string& file,
                    const std::vector<std::string>& parts) {
  const std::string message = error.what();
  EXPECT_EQ(error.kind(), kind) << message;
  EXPECT_EQ(message.rfind(file + ": ", 0), 0u) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 500u) << message;
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  }
}

void expect_refused(const std::vector<std::byte>& bytes, const std::vector<std::string>& parts,
                    ErrorKind kind = ErrorKind::bad_input) {
  try {
    GgufFile::from_bytes(bytes, "model.gguf");
    FAIL() << "opened, but expected a refusal with: " << fmt::format("{}", parts.front());
  } catch (const Error& error) {
    expect_message(error, kind, "model.gguf", parts);
  }
}

void expect_open_refused(const std::string& path, const std::vector<std::string>& parts) {
  try {
    GgufFile::open(path);
    FAIL() << "opened " << path;
  } catch (const Error& error) {
    expect_message(error, ErrorKind::bad_input, path, parts);
  }
}

// A small file with a value of every kind.
GgufWriter small_file() {
  GgufBytes nested;
  nested.put(std::uint32_t{9}).put(std::uint64_t{1});
  nested.put(std::uint32_t{0}).put(std::uint64_t{1}).put(std::uint8_t{1});
  GgufWriter writer;
  writer.add("general.architecture", "llama")
      .add("llama.block_count", std::uint32_t{2})
      .add("flag", true)
      .add("rope", 1.5f)
      .add_array<std::string>("tokens", {"a", "bc", ""})
      .add_array<bool>("flags", {true, false})
      .add_array<float>("scores", {1.0f, 2.0f})
      .add_raw("nested", 9, nested)
      .add_tensor("first", {2, 4}, std::vector<float>(8, 1.0f))
      .add_tensor("second", DataType::q8_0, {2, 32}, std::vector<std::byte>(68));
  return writer;
}

TEST(GgufHostile, EveryTruncation) {
  const std::vector<std::byte> whole = small_file().bytes();
  walk(*GgufFile::from_bytes(whole, "model.gguf"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(fmt::format("{} of {} bytes", length, whole.size()));
    // A vector of exactly that capacity, so that the address sanitizer sees a read past its end.
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(length));
    if (length == 0) {
      expect_refused(cut, {"is empty"});
    } else if (length < 4) {
      expect_refused(cut, {"is not a GGUF file"});
    } else {
      expect_refused(cut, {"bytes"});
    }
  }
}

TEST(GgufHostile, EveryByteChanged) {
  const std::vector<std::byte> whole = small_file().bytes();
  int opened = 0;
  for (std::size_t position = 0; position < whole.size(); ++position) {
    for (const int change : {0x01, 0x02, 0x08, 0x20, 0x80, 0xFF}) {
      std::vector<std::byte> bytes = whole;
      bytes[position] ^= std::byte(change);
      try {
        walk(*GgufFile::from_bytes(bytes, "model.gguf"));
        ++opened;
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).rfind("model.gguf: ", 0), 0u) << error.what();
      }
    }
  }
  // Names and values may change freely: the loop has walked many files to their end.
  EXPECT_GT(opened, 200);
}

TEST(GgufHostile, Header) {
  expect_refused({}, {"is empty, expected a GGUF file"});
  expect_refused(GgufWriter().set_magic("ggml").bytes(), {"is not a GGUF file", "'ggml'"});
  expect_refused(GgufWriter().set_magic(std::string_view("\x7F\x00LF", 4)).bytes(),
                 {"is not a GGUF file", "'\\x7f\\x00LF'"});
  expect_refused(GgufWriter().set_magic("FUGG").bytes(), {"big-endian"}, ErrorKind::unsupported);
  expect_refused(GgufWriter().set_version(0x03000000u).bytes(), {"big-endian"},
                 ErrorKind::unsupported);
  for (const std::uint32_t version : {0u, 1u, 2u, 4u, 0xFFFFFFFFu}) {
    expect_refused(GgufWriter().set_version(version).bytes(),
                   {fmt::format("GGUF version {}, expected version 3", version)},
                   ErrorKind::unsupported);
  }
}

TEST(GgufHostile, Counts) {
  for (const std::uint64_t count : huge_counts) {
    expect_refused(small_file().set_tensor_count(count).bytes(),
                   {"header", fmt::format("claims {} tensors", count)});
    expect_refused(small_file().set_metadata_count(count).bytes(),
                   {"header", fmt::format("claims {} metadata entries", count)});
  }
  // One too many or too few, and what follows is read as something else.
  expect_refused(small_file().set_tensor_count(3).bytes(), {"tensor number 3 of 3"});
  expect_refused(small_file().set_metadata_count(9).bytes(), {"tensor number 1 of 2", "the name"});
  expect_refused(small_file().set_metadata_count(7).bytes(),
                 {"tensor 'nested'", "has 9 dimensions"});
}

TEST(GgufHostile, StringLengths) {
  for (const std::uint64_t length : huge_counts) {
    const std::string claim = fmt::format("claims a length of {} bytes", length);
    expect_refused(
        GgufWriter().add_raw_entry(GgufBytes().put(length).put_plain("key......")).bytes(),
        {"metadata key number 1 of 1", claim});
    expect_refused(GgufWriter().add_raw("text", 8, GgufBytes().put(length)).bytes(),
                   {"metadata key 'text'", claim});
    expect_refused(
        GgufWriter()
            .add_raw(
                "list", 9,
                GgufBytes().put(std::uint32_t{8}).put(std::uint64_t{2}).put("whole").put(length))
            .bytes(),
        {"metadata key 'list'", claim});
  }
}

TEST(GgufHostile, ArrayLengths) {
  for (std::uint32_t type = 0; type <= 12; ++type) {
    for (const std::uint64_t count : huge_counts) {
      const GgufBytes array = GgufBytes().put(type).put(count).put(std::uint64_t{0});
      expect_refused(GgufWriter().add_raw("list", 9, array).bytes(),
                     {"metadata key 'list'", fmt::format("claims {} values", count)});
    }
  }
}

TEST(GgufHostile, ValueTypes) {
  for (const std::uint32_t type : {13u, 255u, 0x80000000u, 0xFFFFFFFFu}) {
    expect_refused(GgufWriter().add_raw("odd", type, GgufBytes().put(std::uint64_t{0})).bytes(),
                   {"metadata key 'odd'", fmt::format("value type is {}, expected 0 to 12", type)});
    const GgufBytes array = GgufBytes().put(type).put(std::uint64_t{1}).put(std::uint64_t{0});
    expect_refused(
        GgufWriter().add_raw("odd", 9, array).bytes(),
        {"metadata key 'odd'", fmt::format("element type is {}, expected 0 to 12", type)});
  }
}

TEST(GgufHostile, Bools) {
  expect_refused(GgufWriter().add_raw("flag", 7, GgufBytes().put(std::uint8_t{2})).bytes(),
                 {"metadata key 'flag'", "the bool 2, expected 0 or 1"});
  const GgufBytes array =
      GgufBytes().put(std::uint32_t{7}).put(std::uint64_t{3}).put_plain("\x01\x01\xFF");
  expect_refused(GgufWriter().add_raw("flags", 9, array).bytes(),
                 {"metadata key 'flags'", "the bool 255, expected 0 or 1"});
}

TEST(GgufHostile, NestedArrays) {
  const auto nested = [](int depth) {
    GgufBytes array;
    for (int level = 0; level < depth; ++level) array.put(std::uint32_t{9}).put(std::uint64_t{1});
    return array.put(std::uint32_t{4}).put(std::uint64_t{0});
  };
  walk(*GgufFile::from_bytes(GgufWriter().add_raw("deep", 9, nested(7)).bytes(), "model.gguf"));
  for (const int depth : {8, 9, 1000, 100'000}) {
    expect_refused(GgufWriter().add_raw("deep", 9, nested(depth)).bytes(),
                   {"metadata key 'deep'", "nests arrays deeper than 8"});
  }
}

TEST(GgufHostile, Keys) {
  expect_refused(GgufWriter().add("", std::uint64_t{1}).bytes(),
                 {"metadata key number 1 of 1", "the key is empty"});
  expect_refused(GgufWriter().add(std::string(65536, 'k'), std::uint32_t{1}).bytes(),
                 {"'kkk", "has 65536 bytes, expected at most 65535"});
  for (const std::string bad : {"a\xFF", "\xC0\x80", "\xED\xA0\x80", "caf\xC3"}) {
    expect_refused(GgufWriter().add(bad, std::uint32_t{1}).bytes(),
                   {"metadata key number 1 of 1", "is not valid UTF-8"});
  }
  expect_refused(
      GgufWriter().add("a", std::uint32_t{1}).add("b", std::uint32_t{1}).add("a", "x").bytes(),
      {"metadata key 'a'", "twice"});
}

TEST(GgufHostile, Alignment) {
  for (const std::uint32_t alignment :
       {0u, 1u, 4u, 3u, 24u, 33u, 1u << 22, 1u << 31, 0xFFFFFFFFu}) {
    expect_refused(GgufWriter().add("general.alignment", alignment).bytes(),
                   {"metadata key 'general.alignment'",
                    fmt::format("is {}, expected a power of two", alignment)});
  }
  expect_refused(GgufWriter().add("general.alignment", std::uint64_t{1} << 63).bytes(),
                 {"metadata key 'general.alignment'", "expected a power of two"});
  expect_refused(GgufWriter().add("general.alignment", std::int32_t{-32}).bytes(),
                 {"metadata key 'general.alignment'", "not negative"});
  expect_refused(GgufWriter().add("general.alignment", "32").bytes(),
                 {"metadata key 'general.alignment'", "expected an integer"});
}

TEST(GgufHostile, TensorNames) {
  const auto named = [](const std::string& name) {
    return GgufWriter().add_tensor(name, {1}, std::vector<float>{1}).bytes();
  };
  EXPECT_NE(
      GgufFile::from_bytes(named(std::string(64, 'n')), "m")->find_tensor(std::string(64, 'n')),
      nullptr);
  expect_refused(named(""), {"tensor number 1 of 1", "the name is empty"});
  expect_refused(named(std::string(65, 'n')), {"'nnn", "has 65 bytes, expected at most 64"});
  expect_refused(named("bad\xFE"), {"tensor number 1 of 1", "'bad\\xfe' is not valid UTF-8"});
  expect_refused(GgufWriter()
                     .add_tensor("a", {1}, std::vector<float>{1})
                     .add_tensor("b", {1}, std::vector<float>{1})
                     .add_tensor("a", {1}, std::vector<float>{1})
                     .bytes(),
                 {"tensor 'a'", "twice"});
  // What a name holds cannot steer the terminal that shows the error.
  GgufWriter escape = small_file();
  GgufWriter::Tensor& tensor = escape.tensor("first");
  tensor.name = "a\n\x1B[31m";
  tensor.dimension_count = 9;
  expect_refused(escape.bytes(), {"tensor 'a\\x0a\\x1b[31m'", "has 9 dimensions"});
}

TEST(GgufHostile, Dimensions) {
  const auto with_dimensions = [](const std::vector<std::uint64_t>& dimensions) {
    GgufWriter writer = small_file();
    writer.tensor("first").file_dimensions = dimensions;
    return writer.bytes();
  };
  expect_refused(with_dimensions({}), {"tensor 'first'", "has 0 dimensions, expected 1 to 4"});
  expect_refused(with_dimensions({1, 1, 1, 1, 1}), {"tensor 'first'", "has 5 dimensions"});
  GgufWriter many = small_file();
  many.tensor("first").dimension_count = 0xFFFFFFFFu;
  expect_refused(many.bytes(), {"tensor 'first'", "has 4294967295 dimensions"});
  expect_refused(with_dimensions({0}), {"tensor 'first'", "a dimension of 0"});
  expect_refused(with_dimensions({4, 0}), {"tensor 'first'", "a dimension of 0"});
  for (const std::vector<std::uint64_t>& dimensions :
       std::vector<std::vector<std::uint64_t>>{{std::uint64_t{1} << 63},
                                               {0xFFFFFFFFFFFFFFFFu},
                                               {std::uint64_t{1} << 32, std::uint64_t{1} << 31},
                                               {3, 0xAAAAAAAAAAAAAAABu},  // 2^65 + 1: wraps to 1
                                               {std::uint64_t{1} << 16, std::uint64_t{1} << 16,
                                                std::uint64_t{1} << 16, std::uint64_t{1} << 16}}) {
    expect_refused(with_dimensions(dimensions), {"tensor 'first'", "product exceeds 63 bits"});
  }
  // Elements fit in 63 bits, bytes do not fit in 64.
  expect_refused(with_dimensions({std::uint64_t{1} << 62}),
                 {"tensor 'first'", "more bytes than 64 bits count"});
  expect_refused(with_dimensions({std::uint64_t{1} << 61}), {"tensor 'first'", "the data ends"});
}

TEST(GgufHostile, RowsThatAreNoMultipleOfTheBlock) {
  for (const auto& [type, row, name, block] : {std::tuple{DataType::q8_0, 33u, "Q8_0", 32u},
                                               std::tuple{DataType::q4_k, 128u, "Q4_K", 256u},
                                               std::tuple{DataType::q4_0, 16u, "Q4_0", 32u}}) {
    GgufWriter writer = small_file();
    writer.tensor("second").type = gguf_tensor_type(type);
    writer.tensor("second").file_dimensions = {row, 64};  // the whole would be a multiple
    expect_refused(
        writer.bytes(),
        {"tensor 'second'",
         fmt::format("rows of {} elements, expected a multiple of {}", row, block), name});
  }
}

TEST(GgufHostile, TensorTypes) {
  const auto with_type = [](std::uint32_t type) {
    GgufWriter writer = small_file();
    writer.tensor("second").type = type;
    return writer.bytes();
  };
  const std::pair<std::uint32_t, const char*> known[] = {
      {16, "IQ2_XXS"}, {21, "IQ3_S"}, {34, "TQ1_0"}, {24, "I8"}, {28, "F64"}, {40, "NVFP4"}};
  for (const auto& [type, name] : known) {
    expect_refused(with_type(type),
                   {"tensor 'second'", fmt::format("has type {}, expected one of F32, F16", name),
                    "Q6_K, IQ4_NL"},
                   ErrorKind::unsupported);
  }
  for (const std::uint32_t type : {4u, 5u, 31u, 41u, 1000u, 0xFFFFFFFFu}) {
    expect_refused(with_type(type),
                   {"tensor 'second'", fmt::format("unknown type number {}", type)},
                   ErrorKind::unsupported);
  }
}

TEST(GgufHostile, Offsets) {
  const auto with_offset = [](std::uint64_t offset) {
    GgufWriter writer = small_file();
    writer.tensor("second").offset = offset;
    return writer.bytes();
  };
  EXPECT_TRUE(GgufFile::from_bytes(with_offset(32), "m")->find_tensor("second"));
  for (const std::uint64_t offset : {1ull, 31ull, 33ull, 48ull, 0xFFFFFFFFFFFFFFFFull}) {
    expect_refused(with_offset(offset),
                   {"tensor 'second'", fmt::format("the offset {}, expected a multiple", offset)});
  }
  // Past the end, at the end, and so large that offset + size wraps.
  for (const std::uint64_t offset :
       {64ull, 96ull, 128ull, 1ull << 32, 1ull << 63, 0xFFFFFFFFFFFFFFE0ull}) {
    expect_refused(with_offset(offset),
                   {"tensor 'second'", fmt::format("needs 68 bytes at offset {}", offset)});
  }
  expect_refused(with_offset(0), {"tensor 'second'", "overlaps tensor 'first'"});
}

TEST(GgufHostile, OverlapsAreFoundWhateverTheOrder) {
  GgufWriter writer;
  writer
      .add_tensor("a", {24}, std::vector<float>(24))  // 96 bytes at 0
      .add_tensor("b", {8}, std::vector<float>(8))    // 32 bytes at 96
      .add_tensor("c", {8}, std::vector<float>(8));   // 32 bytes at 128
  walk(*GgufFile::from_bytes(writer.bytes(), "model.gguf"));
  GgufWriter inside = writer;
  inside.tensor("c").offset = 32;  // within a
  expect_refused(inside.bytes(), {"tensor 'c'", "overlaps tensor 'a'"});
  GgufWriter same = writer;
  same.tensor("c").offset = 96;
  expect_refused(same.bytes(), {"overlaps tensor"});
  GgufWriter swapped = writer;  // out of order, but apart
  swapped.tensor("b").offset = 128;
  swapped.tensor("c").offset = 96;
  walk(*GgufFile::from_bytes(swapped.bytes(), "model.gguf"));
}

TEST(GgufHostile, ManyRecordsTakeNoQuadraticTime) {
  GgufWriter writer;
  const std::string prefix(40, 'x');  // a long common prefix is the worst for a comparison
  for (int index = 0; index < 100'000; ++index) {
    writer.add(fmt::format("{}{:06}", prefix, index), std::uint32_t{1});
  }
  GgufBytes empties;  // 400,000 arrays without elements
  empties.put(std::uint32_t{9}).put(std::uint64_t{400'000});
  for (int index = 0; index < 400'000; ++index) empties.put(std::uint32_t{0}).put(std::uint64_t{0});
  writer.add_raw("empties", 9, empties);
  const std::vector<std::byte> bytes = writer.bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto file = GgufFile::from_bytes(bytes, "model.gguf");
  EXPECT_EQ(file->find_uint(prefix + "099999"), 1u);
  EXPECT_EQ(file->keys().size(), 100'001u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(GgufHostile, WhatIsNoRegularFile) {
  const std::string folder = testing::TempDir() + fmt::format("octet_hostile_{}", ::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  expect_open_refused(folder, {"is a directory, expected a regular file"});
  expect_open_refused(folder + "/missing.gguf", {"cannot open the file", "No such file"});
  expect_open_refused("/dev/null", {"device, expected a regular file"});
  expect_open_refused("/dev/zero", {"device, expected a regular file"});

  const std::string fifo = folder + "/fifo.gguf";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_open_refused(fifo, {"is a pipe, socket or device"});  // a plain open would wait for ever

  const std::string loop = folder + "/loop.gguf";
  ASSERT_EQ(::symlink(loop.c_str(), loop.c_str()), 0);
  expect_open_refused(loop, {"cannot open the file"});

  const std::string empty = folder + "/empty.gguf";
  GgufWriter::write_bytes(empty, {});
  expect_open_refused(empty, {"is empty, expected a GGUF file"});

  const std::string pointer = folder + "/pointer.gguf";
  const std::string_view text = "version https://git-lfs.github.com/spec/v1\nsize 9\n";
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  GgufWriter::write_bytes(pointer, {first, first + text.size()});
  expect_open_refused(pointer, {"is a Git LFS pointer", "git lfs pull"});

  const std::string weights = folder + "/model.safetensors";
  GgufWriter::write_bytes(weights, {first + 1, first + 9});
  expect_open_refused(weights, {"is not a GGUF file", "'ersi'", "by its folder"});

  const std::string locked = folder + "/locked.gguf";
  GgufWriter().write(locked);
  ASSERT_EQ(::chmod(locked.c_str(), 0), 0);
  // Root reads what it likes, so for root the file simply opens.
  if (::geteuid() != 0) {
    expect_open_refused(locked, {"cannot open the file", "Permission denied"});
  } else {
    EXPECT_TRUE(GgufFile::open(locked)->tensors().empty());
  }

  const std::string cut = folder + "/cut.gguf";
  std::vector<std::byte> bytes = small_file().bytes();
  bytes.pop_back();
  GgufWriter::write_bytes(cut, bytes);
  expect_open_refused(cut, {"tensor 'second'", "needs 68 bytes"});

  for (const std::string& path : {fifo, loop, empty, pointer, weights, locked, cut})
    ::unlink(path.c_str());
  EXPECT_EQ(::rmdir(folder.c_str()), 0);
}

TEST(GgufHostile, ALargeVocabularyOpensQuickly) {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  for (int index = 0; index < 262'144; ++index) tokens.push_back(fmt::format("token{}", index));
  for (int index = 0; index < 500'000; ++index) merges.push_back(fmt::format("a{} b", index));
  GgufWriter writer;
  writer.add_array("tokenizer.ggml.tokens", tokens).add_array("tokenizer.ggml.merges", merges);
  const std::vector<std::byte> bytes = writer.bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto file = GgufFile::from_bytes(bytes, "model.gguf");
  EXPECT_EQ(file->require_strings("tokenizer.ggml.tokens"), tokens);
  EXPECT_EQ(file->require_strings("tokenizer.ggml.merges"), merges);
  // About 30 ms; the bound leaves room for sanitizers and a busy machine.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

// The fuzzer's seeds, and inputs that broke something once.
TEST(GgufHostile, TheFuzzersCorpus) {
  int opened = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(OCTET_SOURCE_ROOT "/tests/fuzz/corpus/gguf")) {
    SCOPED_TRACE(entry.path().filename().string());
    try {
      walk(*GgufFile::open(entry.path().string()));
      ++opened;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind(entry.path().string() + ": ", 0), 0u)
          << error.what();
    }
  }
  EXPECT_GE(opened, 5);  // gguf_fuzz_corpus writes five whole files
}

TEST(GgufHostile, APathWithANulByte) {
  try {
    GgufFile::open(std::string("model\0.gguf", 11));
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(std::string(error.what()).find("'model\\x00.gguf'"), std::string::npos);
  }
}

}  // namespace
}  // namespace octet
