// A regular file, mapped read-only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace octet {

// The mapping lives as long as the object. A file that another process shortens while it is mapped
// kills this one with SIGBUS at the next read past its new end: no check at opening can prevent
// that, and a model file is taken to be left alone while it is in use.
class MappedFile {
 public:
  // Throws Error{bad_input}, naming the path, for anything but a readable regular file: a FIFO, a
  // device or a directory is refused without blocking on it. An empty file maps to no bytes.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace octet
