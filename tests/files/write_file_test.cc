#include "files/write_file.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/error.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"

namespace octet {
namespace {

std::vector<std::byte> bytes_of_text(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

ErrorKind kind_of(const std::function<void()>& run, const std::string& named) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::internal;
}

std::size_t entries_of(const std::string& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                std::filesystem::directory_iterator()));
}

TEST(WriteFile, SeveralAreWrittenOrNone) {
  const TemporaryFolder folder;
  const std::vector<FileContents> files = {{folder / "a", bytes_of_text("new a")},
                                           {folder / "b", bytes_of_text("new b")}};
  std::ofstream(folder / "a") << "old a";
  std::filesystem::create_directory(folder / "b");
  EXPECT_EQ(kind_of([&] { write_files_atomically(files); }, folder / "b"), ErrorKind::bad_input);
  EXPECT_EQ(read_file(folder / "a"), "old a");
  EXPECT_EQ(entries_of(folder.path()), 2u);

  std::filesystem::remove(folder / "b");
  write_files_atomically(files);
  EXPECT_EQ(read_file(folder / "a"), "new a");
  EXPECT_EQ(read_file(folder / "b"), "new b");
  EXPECT_EQ(entries_of(folder.path()), 2u);
}

TEST(WriteFile, TheUmaskSaysWhoMayReadIt) {
  const TemporaryFolder folder;
  const mode_t before = umask(022);
  write_file_atomically(folder / "open", bytes_of_text("x"));
  umask(077);
  write_file_atomically(folder / "closed", bytes_of_text("x"));
  umask(before);
  const auto mode = [](const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 0777u;
  };
  EXPECT_EQ(mode(folder / "open"), 0644u);
  EXPECT_EQ(mode(folder / "closed"), 0600u);
}

// A limit on a file's size stands for a full disk: the same calls fail.
TEST(WriteFile, NoRoomIsNoFaultOfTheInput) {
  const TemporaryFolder folder;
  std::ofstream(folder / "small") << "old";
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const std::vector<FileContents> files = {{folder / "small", bytes_of_text("new")},
                                           {folder / "large", std::vector<std::byte>(5000)}};
  const ErrorKind kind =
      kind_of([&] { write_files_atomically(files); }, "large: cannot be written");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(kind, ErrorKind::out_of_memory);
  EXPECT_EQ(read_file(folder / "small"), "old");
  EXPECT_EQ(entries_of(folder.path()), 1u);
}

TEST(WriteFile, FoldersAreCheckedBeforeTheWork) {
  const TemporaryFolder folder;
  EXPECT_NO_THROW(require_writable_folder(folder.path(), "--output"));
  EXPECT_NO_THROW(require_writable_folder(folder / "to/be/made", "--output"));
  EXPECT_EQ(entries_of(folder.path()), 0u);
  std::ofstream(folder / "file") << "no folder";
  for (const std::string& bad : {folder / "file", folder / "file/below", std::string()}) {
    EXPECT_EQ(kind_of([&] { require_writable_folder(bad, "--output"); }, "--output"),
              ErrorKind::bad_input)
        << bad;
  }
  EXPECT_EQ(kind_of([&] { write_file_atomically(folder / "no/such/folder", {}); }, "No such file"),
            ErrorKind::bad_input);
}

}  // namespace
}  // namespace octet
