#include "files/write_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

namespace octet {

namespace {

ErrorKind kind_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL:
    case ENXIO:
      return ErrorKind::bad_input;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorKind::out_of_memory;
    default:
      return ErrorKind::device;
  }
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw_error(kind_of(error), "{}: cannot be written: {}", path, std::strerror(error));
}

// A file under a name of its own, gone again unless it is renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) : path_(path) {
    // mkstemp would let the owner alone read it: the umask is the user's word on that.
    std::random_device random;
    for (int attempt = 0; attempt < 100; ++attempt) {
      name_ = fmt::format("{}.{:08x}", path, random());
      descriptor_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ >= 0) return;
      if (errno != EEXIST) break;
    }
    fail(path_, errno);
  }
  TemporaryFile(TemporaryFile&& other) noexcept
      : path_(std::move(other.path_)),
        name_(std::exchange(other.name_, {})),
        descriptor_(std::exchange(other.descriptor_, -1)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!name_.empty()) unlink(name_.c_str());
  }

  void write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    // Some file systems tell only now that there is no room.
    if (fsync(descriptor_) != 0) fail(path_, errno);
    if (close(std::exchange(descriptor_, -1)) != 0) fail(path_, errno);
  }

  void take_its_place() {
    if (std::rename(name_.c_str(), path_.c_str()) != 0) fail(path_, errno);
    name_.clear();
  }

 private:
  std::string path_;
  std::string name_;
  int descriptor_ = -1;
};

}  // namespace

void write_files_atomically(std::span<const FileContents> files) {
  std::vector<TemporaryFile> written;
  for (const FileContents& file : files) {
    // A rename onto a folder fails, and by then others would be in their places.
    std::error_code ignored;
    if (std::filesystem::is_directory(file.path, ignored)) fail(file.path, EISDIR);
    written.emplace_back(file.path).write_all(file.bytes);
  }
  for (TemporaryFile& file : written) file.take_its_place();
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  const FileContents file = {path, {bytes.begin(), bytes.end()}};
  write_files_atomically({&file, 1});
}

void require_writable_folder(const std::string& folder, const std::string& name) {
  const auto refuse = [&](int error) {
    throw_error(kind_of(error), "{} {}: cannot be written to: {}", name, folder,
                std::strerror(error));
  };
  if (folder.empty()) throw_bad_input("{}: expected the name of a folder", name);
  // What is there of the path, from its end on; the rest can be made in it.
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(folder, error);
  struct stat status = {};
  while (stat(there.c_str(), &status) != 0) {
    if (errno != ENOENT || !there.has_relative_path()) refuse(errno);
    there = there.parent_path();
  }
  if (!S_ISDIR(status.st_mode)) refuse(ENOTDIR);
  if (access(there.c_str(), W_OK | X_OK) != 0) refuse(errno);
}

}  // namespace octet
