// Broken safetensors files and indices: each is refused with one sentence that names the file and
// what is wrong in it.
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "files/safetensors.h"
#include "support/safetensors_writer.h"
#include "support/temporary_folder.h"

namespace octet {
namespace {

void expect_message(const Error& error, const std::string& start, const std::string& part,
                    ErrorKind kind) {
  const std::string message = error.what();
  EXPECT_EQ(error.kind(), kind) << message;
  EXPECT_EQ(message.rfind(start, 0), 0u) << message << "\nexpected to start with " << start;
  EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_LT(message.size(), 700u) << message;
}

void expect_refused(const std::vector<std::byte>& bytes, const std::string& part,
                    ErrorKind kind = ErrorKind::bad_input) {
  try {
    Safetensors::from_bytes(bytes, "m.safetensors");
    ADD_FAILURE() << "opened, but expected a refusal with: " << part;
  } catch (const Error& error) {
    expect_message(error, "m.safetensors: ", part, kind);
  }
}

// A header over `data_bytes` of data.
void expect_header_refused(const std::string& header, std::size_t data_bytes,
                           const std::string& part, ErrorKind kind = ErrorKind::bad_input) {
  expect_refused(safetensors_file(header, std::vector<std::byte>(data_bytes)), part, kind);
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, type, shape,
                     offsets);
}
std::string header(const std::vector<std::string>& entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

SafetensorsWriter small_file() {
  SafetensorsWriter writer;
  writer.add_entry(R"("__metadata__":{"format":"pt"})")
      .add("a", "F32", {2, 2}, std::vector<std::byte>(16))
      .add("b", "I64", {1}, std::vector<std::byte>(8))
      .add("c", "BF16", {0, 3}, {});
  return writer;
}

void walk(const Safetensors& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    EXPECT_EQ(file.find_stored(tensor.view.name), &tensor);
    unsigned sum = 0;
    for (std::size_t i = 0; i < tensor.view.bytes; ++i) {
      sum += std::to_integer<unsigned>(tensor.view.data[i]);
    }
    EXPECT_LE(sum, 255u * tensor.view.bytes);
  }
}

TEST(SafetensorsHostile, EveryTruncation) {
  const std::vector<std::byte> whole = small_file().bytes();
  walk(*Safetensors::from_bytes(whole, "m.safetensors"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(length));
    expect_refused(cut, length == 0 ? "is empty" : "bytes");
  }
}

TEST(SafetensorsHostile, EveryByteChanged) {
  const std::vector<std::byte> whole = small_file().bytes();
  int opened = 0;
  for (std::size_t position = 0; position < whole.size(); ++position) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> bytes = whole;
      bytes[position] ^= std::byte(1 << bit);
      try {
        walk(*Safetensors::from_bytes(bytes, "m.safetensors"));
        ++opened;
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).rfind("m.safetensors: ", 0), 0u) << error.what();
      }
    }
  }
  EXPECT_GT(opened, 200);  // data, names and metadata may change freely
}

TEST(SafetensorsHostile, HeaderLength) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{1} << 32, std::uint64_t{1} << 61, std::uint64_t{1} << 63,
        std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint64_t>::max() - 8}) {
    std::vector<std::byte> bytes = safetensors_file("{}", {});
    std::memcpy(bytes.data(), &length, sizeof(length));
    expect_refused(
        bytes,
        fmt::format("claims a header of {} bytes, but the file ends after 10 bytes", length));
  }
  expect_header_refused("", 0, "its header starts with ''");
  expect_header_refused(" {}", 0, "is not a safetensors file: its header starts with ' {}'");
  expect_header_refused("[]", 0, "is not a safetensors file");

  const TemporaryFolder folder;
  write_file(folder / "long", safetensors_file("{}", {}));
  std::filesystem::resize_file(folder / "long", 200'000'000);
  std::vector<std::byte> length = bytes_of<std::uint64_t>({100'000'001});
  {
    std::fstream file(folder / "long", std::ios::in | std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(length.data()), 8);
  }
  try {
    Safetensors::open_file(folder / "long");
    ADD_FAILURE();
  } catch (const Error& error) {
    expect_message(error, folder / "long", "has a header of 100000001 bytes, expected at most",
                   ErrorKind::bad_input);
  }
}

TEST(SafetensorsHostile, HeaderThatIsNoHeader) {
  expect_header_refused("{", 0, "its JSON ends after 1 bytes");
  expect_header_refused("{}x", 0, "expected its end");
  expect_header_refused(R"({"a":1})", 0, "expected an object");
  expect_header_refused(R"({"a":{}})", 0, "tensor 'a': has no dtype");
  expect_header_refused(R"({"a":{"dtype":"F32"}})", 0, "tensor 'a': has no shape");
  expect_header_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 0,
                        "tensor 'a': has no data_offsets");
  expect_header_refused(R"({"a":{"dtype":3}})", 0, "expected a string");
  expect_header_refused(R"({"a":{"dtype":"F32","stride":[1]}})", 0,
                        "tensor 'a': has the unknown key 'stride'");
  expect_header_refused(R"({"a":{"dtype":"F31"}})", 0, "tensor 'a': has the unknown type 'F31'",
                        ErrorKind::unsupported);
  expect_header_refused(R"({"__metadata__":{"a":1}})", 0, "expected a string");
  expect_header_refused(R"({"__metadata__":[]})", 0, "expected an object");
  std::string deep = R"({"a":)";
  for (int depth = 0; depth < 3000; ++depth) deep += "[";
  expect_header_refused(deep, 0, "expected an object");
  deep = R"({"a":{"shape":)" + std::string(3000, '[');
  expect_header_refused(deep, 0, "expected an integer");
}

TEST(SafetensorsHostile, RepeatedKeys) {
  const std::string a = tensor("a", "U8", "[1]", "[0,1]");
  const std::string b = tensor("a", "U8", "[1]", "[1,2]");
  expect_header_refused(header({a, b}), 2, "tensor 'a': stands in the file twice");
  expect_header_refused(header({a, tensor("\\u0061", "U8", "[1]", "[1,2]")}), 2,
                        "tensor 'a': stands in the file twice");
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' twice");
  expect_header_refused(R"({"__metadata__":{"x":"1","x":"1"}})", 0, "has the key 'x' twice");
  expect_header_refused(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0, "has the key 'dtype' twice");
  expect_header_refused(R"({"a":{"shape":[1],"shape":[1]}})", 0, "has the key 'shape' twice");
  expect_header_refused(R"({"a":{"data_offsets":[0,1],"data_offsets":[0,1]}})", 0,
                        "has the key 'data_offsets' twice");
}

TEST(SafetensorsHostile, ShapesAndOffsets) {
  const auto refuse = [](const std::string& type, const std::string& shape,
                         const std::string& offsets, const std::string& part) {
    expect_header_refused(header({tensor("a", type, shape, offsets)}), 16, part);
  };
  refuse("F32", "[4]", "[0,12]", "has 12 bytes, but its dimensions [4] of type F32 need 16");
  refuse("F32", "[4]", "[0,20]", "ends at byte 20 of the data, but the data ends after 16 bytes");
  refuse("F32", "[4]", "[0,18446744073709551615]", "the data ends after 16 bytes");
  refuse("F32", "[4]", "[16,0]", "begins at byte 16 of the data and ends at byte 0");
  refuse("F32", "[4]", "[0]", "has 1 data_offsets, expected 2");
  refuse("F32", "[4]", "[0,16,16]", "has 3 data_offsets, expected 2");
  refuse("F32", "[-4]", "[0,16]", "expected an integer");
  refuse("F32", "[4.0]", "[0,16]", "expected an integer");
  refuse("F32", "[9223372036854775808]", "[0,16]", "expected at most 63 bits");
  refuse("F32", "[18446744073709551616]", "[0,16]", "expected an integer");
  refuse("F32", "[4611686018427387904,4]", "[0,16]", "need more bytes than 61 bits count");
  refuse("F32", "[4611686018427387904,4,0]", "[0,0]", "need more bytes than 61 bits count");
  refuse("U8", "[2305843009213693952]", "[0,0]", "need more bytes than 61 bits count");
  refuse("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,4]", "[0,16]", "more than 16 dimensions");
  refuse("F4", "[3]", "[0,2]", "are no whole bytes");
  refuse("F6_E2M3", "[4]", "[0,2]", "has 2 bytes, but its dimensions [4] of type F6_E2M3 need 3");
  refuse("F32", "[]", "[0,16]", "need 4");
}

TEST(SafetensorsHostile, HolesOverlapsAndStrayBytes) {
  const std::string first = tensor("a", "U8", "[4]", "[0,4]");
  expect_header_refused(
      header({first, tensor("b", "U8", "[4]", "[5,9]")}), 9,
      "tensor 'b': begins at byte 5 of the data, but bytes 4 to 5 are of no tensor");
  expect_header_refused(header({tensor("b", "U8", "[4]", "[1,5]")}), 5,
                        "bytes 0 to 1 are of no tensor");
  expect_header_refused(header({tensor("b", "U8", "[4]", "[3,7]"), first}), 7,
                        "tensor 'b': overlaps tensor 'a'");
  expect_header_refused(header({tensor("b", "U8", "[4]", "[0,4]"), first}), 4, "overlaps tensor");
  expect_header_refused(header({first, tensor("b", "U8", "[0]", "[2,2]")}), 4,
                        "tensor 'b': overlaps tensor 'a'");
  expect_header_refused(header({first}), 5, "has 5 bytes of data, but its tensors end after 4");
  expect_header_refused("{}", 1, "has 1 bytes of data, but its tensors end after 0");
}

TEST(SafetensorsHostile, NamesAreShownSafely) {
  expect_header_refused(R"({"\u001b[2J\n":{}})", 0, "tensor '\\x1b[2J\\x0a': has no dtype");
  expect_header_refused("{\"" + std::string(100000, 'n') + "\":{}}", 0, "has no dtype");
}

// The fuzzer's seeds, and inputs that broke something once.
TEST(SafetensorsHostile, TheFuzzersCorpus) {
  int opened = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(OCTET_SOURCE_ROOT "/tests/fuzz/corpus/safetensors")) {
    SCOPED_TRACE(entry.path().filename().string());
    try {
      walk(*Safetensors::open_file(entry.path().string()));
      ++opened;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind(entry.path().string() + ": ", 0), 0u)
          << error.what();
    }
  }
  EXPECT_GE(opened, 3);
}

class SafetensorsIndexHostile : public testing::Test {
 protected:
  SafetensorsIndexHostile() {
    SafetensorsWriter()
        .add("a", "U8", {1}, std::vector<std::byte>(1))
        .write(folder_ / "1.safetensors");
    SafetensorsWriter()
        .add("b", "U8", {1}, std::vector<std::byte>(1))
        .write(folder_ / "2.safetensors");
  }
  void expect_index_refused(const std::string& text, const std::string& part,
                            const std::string& file = "index.json") {
    write_file(folder_ / "index.json", text);
    try {
      Safetensors::open_index(folder_ / "index.json");
      ADD_FAILURE() << "opened, but expected a refusal with: " << part;
    } catch (const Error& error) {
      expect_message(error, folder_ / file, part, ErrorKind::bad_input);
    }
  }
  TemporaryFolder folder_;
};

TEST_F(SafetensorsIndexHostile, FilesElsewhere) {
  for (const std::string name : {"../1.safetensors", "/etc/passwd", "sub/1.safetensors", "..", ".",
                                 "", "./1.safetensors", "a\\u0000b", "a\\nb", "\\u001b[2J"}) {
    expect_index_refused(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name),
                         "puts tensor 'a' into '");
  }
  expect_index_refused(R"({"weight_map":{"a":")" + std::string(256, 'x') + "\"}}",
                       "expected the name of a file in its own folder");
}

TEST_F(SafetensorsIndexHostile, FilesThatAreMissingOrNoSafetensors) {
  expect_index_refused(R"({"weight_map":{"a":"3.safetensors"}})",
                       "names the file '3.safetensors', which its folder lacks");
  std::filesystem::create_symlink("gone", folder_ / "3.safetensors");
  expect_index_refused(R"({"weight_map":{"a":"3.safetensors"}})", "which its folder lacks");
  expect_index_refused(R"({"weight_map":{"a":"index.json"}})", "claims a header of");
  std::filesystem::create_directory(folder_ / "folder");
  expect_index_refused(R"({"weight_map":{"a":"folder"}})", "is a directory", "folder");
  std::filesystem::create_symlink("/dev/zero", folder_ / "zero");
  expect_index_refused(R"({"weight_map":{"a":"zero"}})", "is a pipe, socket or device", "zero");
}

TEST_F(SafetensorsIndexHostile, TensorsThatAreNotWhereItSays) {
  expect_index_refused(R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors"}})",
                       "puts tensor 'b' into '1.safetensors', which does not hold it");
  expect_index_refused(R"({"weight_map":{"b":"1.safetensors","a":"2.safetensors"}})",
                       "puts tensor 'a' into '2.safetensors', which does not hold it");
  expect_index_refused(R"({"weight_map":{"a":"1.safetensors","zz":"2.safetensors"}})",
                       "puts tensor 'zz' into '2.safetensors'");
  expect_index_refused(R"({"weight_map":{"a":"1.safetensors","a":"1.safetensors"}})",
                       "names tensor 'a' twice");
  SafetensorsWriter()
      .add("a", "U8", {1}, std::vector<std::byte>(1))
      .write(folder_ / "3.safetensors");
  expect_index_refused(
      R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"3.safetensors"}})",
      "3.safetensors too, expected it in one file", "1.safetensors: tensor 'a' is in ");
}

TEST_F(SafetensorsIndexHostile, IndexThatIsNoIndex) {
  expect_index_refused("", "its JSON ends after 0 bytes");
  expect_index_refused("{}", "has no 'weight_map'");
  expect_index_refused(R"({"weight_map":{}})", "has no 'weight_map'");
  expect_index_refused(R"({"weight_map":[]})", "expected an object");
  expect_index_refused(R"({"weight_map":{"a":1}})", "expected a string");
  expect_index_refused(R"({"weight_map":{"a":"1.safetensors"},"weight_map":{}})",
                       "has the key 'weight_map' twice");
  expect_index_refused(R"({"metadata":)" + std::string(3000, '[') + std::string(3000, ']') + "}",
                       "nests arrays and objects deeper than 64");
  std::string many = R"({"weight_map":{"a":"1.safetensors")";
  for (int file = 0; file < 10001; ++file) many += fmt::format(R"(,"t{}":"f{}")", file, file);
  expect_index_refused(many + "}}", "names more than 10000 files");
}

}  // namespace
}  // namespace octet
