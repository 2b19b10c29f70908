#include "files/mapped_file.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string reason(int error_number) { return std::generic_category().message(error_number); }

// What a clone without Git LFS holds in place of each large file.
void refuse_git_lfs_pointer(int descriptor, const std::string& path) {
  constexpr std::string_view pointer = "version https://git-lfs.github.com/spec/";
  std::array<char, pointer.size()> begin;
  const ssize_t got = ::pread(descriptor, begin.data(), begin.size(), 0);
  if (got != static_cast<ssize_t>(pointer.size())) return;
  if (std::string_view(begin.data(), begin.size()) != pointer) return;
  throw_bad_input("{}: is a Git LFS pointer, not the file itself: git lfs pull fetches that", path);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    throw_bad_input("{}: a path cannot hold a NUL byte", printable(path));
  }
  // O_NONBLOCK: opening a FIFO that nobody writes to must not hang. It means nothing to a regular
  // file.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) {
    throw_bad_input("{}: cannot open the file: {}", path.empty() ? "''" : path, reason(errno));
  }
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) {
    throw_bad_input("{}: cannot examine the file: {}", path, reason(errno));
  }
  if (S_ISDIR(status.st_mode)) {
    throw_bad_input("{}: is a directory, expected a regular file", path);
  }
  if (!S_ISREG(status.st_mode)) {
    throw_bad_input("{}: is a pipe, socket or device, expected a regular file", path);
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0) return;
  refuse_git_lfs_pointer(file.get(), path);
  if (size > PTRDIFF_MAX) throw_unsupported("{}: {} bytes are more than can be mapped", path, size);
  void* address =
      ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    throw_error(errno == ENOMEM ? ErrorKind::out_of_memory : ErrorKind::bad_input,
                "{}: cannot map the file's {} bytes: {}", path, size, reason(errno));
  }
  bytes_ = {static_cast<const std::byte*>(address), static_cast<std::size_t>(size)};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace octet
