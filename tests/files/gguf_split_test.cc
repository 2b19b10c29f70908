// Models that are split over several GGUF files.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "files/block_decode.h"
#include "files/gguf.h"
#include "support/gguf_writer.h"
#include "support/temporary_folder.h"

namespace octet {
namespace {

// The files are of the gguf package's making (tools/oracle/split_cases.py).
TEST(GgufSplit, ReadsWhatTheFormatsOwnPackageWrites) {
  const std::string folder = OCTET_TEST_DATA "/files/";
  const auto model = GgufFile::open(folder + "split-00001-of-00003.gguf");
  EXPECT_EQ(model->path(), folder + "split-00001-of-00003.gguf");
  EXPECT_EQ(model->require_string("general.name"), "split");
  EXPECT_EQ(model->require_uint("split.count"), 3u);
  ASSERT_EQ(model->tensors().size(), 5u);
  std::uint64_t bytes = 0;
  for (int part = 1; part <= 3; ++part) {
    bytes += std::filesystem::file_size(fmt::format("{}split-{:05}-of-00003.gguf", folder, part));
  }
  EXPECT_EQ(model->file_bytes(), bytes);
  for (int index = 0; index < 5; ++index) {
    const TensorView* tensor = model->find_tensor(fmt::format("t{}", index));
    ASSERT_NE(tensor, nullptr) << index;
    std::vector<float> values(3);
    decode_row(*tensor, 0, values);
    const auto first = static_cast<float>(index);
    EXPECT_EQ(values, (std::vector<float>{first, first + 1, first + 2}));
  }
}

class GgufSplitHostile : public testing::Test {
 protected:
  static GgufWriter part(int number, int count, const std::vector<std::string>& tensors) {
    GgufWriter writer;
    writer.add("split.no", static_cast<std::uint16_t>(number))
        .add("split.count", static_cast<std::uint16_t>(count))
        .add("split.tensors.count", std::int32_t{2});
    for (const std::string& tensor : tensors) writer.add_tensor(tensor, {1}, std::vector<float>{1});
    return writer;
  }
  std::string first() const { return folder_ / "m-00001-of-00002.gguf"; }
  std::string second() const { return folder_ / "m-00002-of-00002.gguf"; }

  static void expect_refused(const std::string& path, const std::string& start,
                             const std::string& part) {
    try {
      GgufFile::open(path);
      ADD_FAILURE() << "opened, but expected: " << part;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::bad_input) << message;
      EXPECT_EQ(message.rfind(start + ": ", 0), 0u) << message;
      EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
    }
  }

  TemporaryFolder folder_;
};

TEST_F(GgufSplitHostile, PartsThatAreMissingOrMisnamed) {
  part(0, 2, {"a"}).write(first());
  expect_refused(first(), first(), "part 2 of 2 is missing, expected " + second());
  std::filesystem::create_directory(second());
  expect_refused(first(), second(), "is a directory");
  std::filesystem::remove(second());
  part(1, 2, {"b"}).write(second());
  EXPECT_EQ(GgufFile::open(first())->tensors().size(), 2u);
  expect_refused(second(), second(), "is part 2 of a model in 2 files, expected the first of them");
  std::filesystem::copy_file(first(), folder_ / "renamed.gguf");
  expect_refused(folder_ / "renamed.gguf", folder_ / "renamed.gguf",
                 "expected a name that ends with '-00001-of-00002.gguf'");
  std::filesystem::remove(second());
  std::filesystem::create_symlink("m-00001-of-00002.gguf", second());
  expect_refused(first(), second(), "metadata key 'split.no' is 0, expected 1 of this part");
}

TEST_F(GgufSplitHostile, PartsThatDoNotBelongTogether) {
  part(0, 2, {"a"}).write(first());
  part(1, 3, {"b"}).write(second());
  expect_refused(first(), second(), "metadata key 'split.count' is 3, but the first part has 2");
  GgufWriter().add_tensor("b", {1}, std::vector<float>{1}).write(second());
  expect_refused(first(), second(), "metadata key 'split.count' is 1, but the first part has 2");
  GgufWriter().add("split.count", std::uint16_t{2}).write(second());
  expect_refused(first(), second(), "metadata key 'split.no' is missing");
  part(1, 2, {"a"}).write(second());
  expect_refused(first(), first(), "tensor 'a': stands in two parts of the model");
  part(1, 2, {"b", "c"}).write(second());
  expect_refused(first(), first(), "'split.tensors.count' is 2, but the parts have 3 tensors");
  part(1, 2, {"b"}).add("llama.block_count", std::uint32_t{2}).write(second());
  expect_refused(first(), second(), "metadata key 'llama.block_count' is not in the first part");
  GgufWriter::write_bytes(second(), {});
  expect_refused(first(), second(), "is empty");
}

TEST_F(GgufSplitHostile, CountsThatMakeNoSense) {
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{10001}, UINT64_MAX}) {
    GgufWriter().add("split.count", count).write(first());
    expect_refused(first(), first(),
                   fmt::format("metadata key 'split.count' is {}, expected 1 to 10000", count));
  }
  GgufWriter().add("split.count", std::int16_t{-2}).write(first());
  expect_refused(first(), first(), "expected an integer that is not negative");
  GgufWriter().add("split.count", "2").write(first());
  expect_refused(first(), first(), "expected an integer that is not negative");
  GgufWriter().add("split.count", std::uint16_t{2}).add("split.no", UINT64_MAX - 1).write(first());
  expect_refused(first(), first(), "expected the first of them");
}

TEST_F(GgufSplitHostile, PartsInMemory) {
  try {
    GgufFile::from_bytes(part(0, 2, {"a"}).bytes(), "m");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  }
}

}  // namespace
}  // namespace octet
