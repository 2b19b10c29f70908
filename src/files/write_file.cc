#include "files/write_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <unistd.h>

#include "core/error.h"

namespace octet {

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes) {
  // mkstemp fills the last six letters in, creates the file and lets its owner alone read it.
  std::string temporary = path + ".XXXXXX";
  const int descriptor = mkstemp(temporary.data());
  if (descriptor < 0) throw_bad_input("{}: {}", path, std::strerror(errno));
  const auto fail = [&](int error) {
    unlink(temporary.c_str());
    throw_bad_input("{}: {}", path, std::strerror(error));
  };
  std::FILE* file = fdopen(descriptor, "wb");
  if (file == nullptr) {
    const int error = errno;
    close(descriptor);
    fail(error);
  }
  errno = 0;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() &&
                       std::fflush(file) == 0 && fsync(descriptor) == 0;
  const int write_error = errno;
  if (std::fclose(file) != 0 || !written) fail(write_error != 0 ? write_error : EIO);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) fail(errno);
}

}  // namespace octet
