// Builds small safetensors files for tests, whole or broken on purpose. It shares no code with
// src/files, so that the two check each other.
//
//   SafetensorsWriter writer;
//   writer.add("norm.weight", "F32", {2}, bytes_of<float>({1, 2}));
//   writer.write(path);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace octet {
inline namespace test_support {

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A file with this header and data, whatever they say.
inline std::vector<std::byte> safetensors_file(std::string_view header,
                                               const std::vector<std::byte>& data) {
  const auto length = static_cast<std::uint64_t>(header.size());
  std::vector<std::byte> file(sizeof(length) + header.size() + data.size());
  std::memcpy(file.data(), &length, sizeof(length));
  std::memcpy(file.data() + sizeof(length), header.data(), header.size());
  if (!data.empty()) {
    std::memcpy(file.data() + sizeof(length) + header.size(), data.data(), data.size());
  }
  return file;
}

inline void write_file(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("write_file: cannot write " + path);
}

inline void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) throw std::runtime_error("write_file: cannot write " + path);
}

class SafetensorsWriter {
 public:
  // Tensors lie in the order of their addition. Names are written as they are: no quotes in them.
  SafetensorsWriter& add(std::string_view name, std::string_view type,
                         const std::vector<std::int64_t>& shape,
                         const std::vector<std::byte>& data) {
    add_entry(fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                          type, fmt::join(shape, ","), data_.size(), data_.size() + data.size()));
    data_.insert(data_.end(), data.begin(), data.end());
    return *this;
  }
  // An entry of the header, as it is.
  SafetensorsWriter& add_entry(std::string_view entry) {
    if (!header_.empty()) header_ += ',';
    header_ += entry;
    return *this;
  }

  std::vector<std::byte> bytes() const { return safetensors_file('{' + header_ + '}', data_); }
  void write(const std::string& path) const { write_file(path, bytes()); }

 private:
  std::string header_;
  std::vector<std::byte> data_;
};

}  // namespace test_support
}  // namespace octet
