// Builds small GGUF v3 files for tests, in memory or on disk, whole or broken on purpose.
//
//   GgufWriter writer;
//   writer.add("general.architecture", "llama")
//       .add("llama.block_count", std::uint32_t{2})
//       .add_array<std::string>("tokenizer.ggml.tokens", {"a", "b"})
//       .add_tensor("output_norm.weight", {64}, std::vector<float>(64, 1.0f));
//   writer.write(path);
//
// The type of a metadata value is the C++ type that is passed. Shapes are row-major, outermost
// dimension first, as TensorView's; the writer reverses them. Tensors are laid out in the order of
// their addition, each at the next multiple of the alignment.
//
// To break a file: override the header's fields (set_version, set_tensor_count, ...), change a
// field of what `tensor(name)` refers to, or give bytes of your own to add_raw. It shares no code
// with src/files, so that the two check each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/data_type.h"

namespace octet {
// A namespace of its own: a helper must never stand in for a function of the library that happens
// to have its name, which no compiler or linker would notice.
inline namespace test_support {

// Little-endian bytes, appended field by field.
class GgufBytes {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> GgufBytes& put(T value) {
    if constexpr (std::is_same_v<T, bool>) return put(static_cast<std::uint8_t>(value));
    return append(&value, sizeof(T));
  }
  // A GGUF string: u64 length and the bytes, without a terminator.
  GgufBytes& put(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    return put_plain(text);
  }
  GgufBytes& put(const char* text) { return put(std::string_view(text)); }
  GgufBytes& put(const std::string& text) { return put(std::string_view(text)); }
  // The bytes alone.
  GgufBytes& put_plain(std::string_view text) { return append(text.data(), text.size()); }
  GgufBytes& put_plain(const std::vector<std::byte>& bytes) {
    return append(bytes.data(), bytes.size());
  }
  GgufBytes& pad_to(std::size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  std::size_t size() const { return bytes_.size(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  GgufBytes& append(const void* data, std::size_t size) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + size);
    if (size > 0) std::memcpy(bytes_.data() + end, data, size);
    return *this;
  }

  std::vector<std::byte> bytes_;
};

// The GGUF number of a metadata value's type.
template <typename T>
constexpr std::uint32_t gguf_value_type() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return 0;
  if constexpr (std::is_same_v<T, std::int8_t>) return 1;
  if constexpr (std::is_same_v<T, std::uint16_t>) return 2;
  if constexpr (std::is_same_v<T, std::int16_t>) return 3;
  if constexpr (std::is_same_v<T, std::uint32_t>) return 4;
  if constexpr (std::is_same_v<T, std::int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_convertible_v<T, std::string_view>) return 8;
  if constexpr (std::is_same_v<T, std::uint64_t>) return 10;
  if constexpr (std::is_same_v<T, std::int64_t>) return 11;
  if constexpr (std::is_same_v<T, double>) return 12;
}
inline constexpr std::uint32_t gguf_array_type = 9;

// The GGUF (ggml) number of a tensor's element type.
inline std::uint32_t gguf_tensor_type(DataType type) {
  switch (type) {
    case DataType::float32:
      return 0;
    case DataType::float16:
      return 1;
    case DataType::q4_0:
      return 2;
    case DataType::q4_1:
      return 3;
    case DataType::q5_0:
      return 6;
    case DataType::q5_1:
      return 7;
    case DataType::q8_0:
      return 8;
    case DataType::q2_k:
      return 10;
    case DataType::q3_k:
      return 11;
    case DataType::q4_k:
      return 12;
    case DataType::q5_k:
      return 13;
    case DataType::q6_k:
      return 14;
    case DataType::iq4_nl:
      return 20;
    case DataType::iq4_xs:
      return 23;
    case DataType::bfloat16:
      return 30;
    case DataType::mxfp4:
      return 39;
    case DataType::float8_e4m3:
      break;  // GGUF has no such type
  }
  throw std::logic_error("gguf_tensor_type: unknown type");
}

class GgufWriter {
 public:
  // What the file says of a tensor. Every field may be changed before bytes() to make it lie.
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> file_dimensions;    // innermost first, as stored
    std::optional<std::uint32_t> dimension_count;  // nothing: file_dimensions.size()
    std::uint32_t type = 0;
    std::optional<std::uint64_t> offset;  // nothing: the next multiple of the alignment
    std::vector<std::byte> data;
  };

  // Metadata; T is one of the types of gguf_value_type.
  template <typename T>
  GgufWriter& add(std::string_view key, const T& value) {
    return add_raw(key, gguf_value_type<std::decay_t<T>>(), GgufBytes().put(value));
  }
  // A metadata array; T as above.
  template <typename T>
  GgufWriter& add_array(std::string_view key, const std::vector<T>& values) {
    GgufBytes raw;
    raw.put(gguf_value_type<T>()).put(static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) raw.put(value);
    return add_raw(key, gguf_array_type, raw);
  }
  // A metadata entry with a type number and value bytes of the caller's making.
  GgufWriter& add_raw(std::string_view key, std::uint32_t type, const GgufBytes& value) {
    metadata_.put(key).put(type).put_plain(value.bytes());
    ++metadata_entries_;
    return *this;
  }
  // Bytes that stand among the metadata as they are, counted as one entry.
  GgufWriter& add_raw_entry(const GgufBytes& entry) {
    metadata_.put_plain(entry.bytes());
    ++metadata_entries_;
    return *this;
  }
  // Writes `general.alignment` and pads by it. Call it before adding tensors.
  GgufWriter& set_alignment(std::uint32_t alignment) {
    alignment_ = alignment;
    return add("general.alignment", alignment);
  }

  // An F32 tensor; `values` row-major.
  GgufWriter& add_tensor(std::string_view name, const std::vector<std::int64_t>& shape,
                         const std::vector<float>& values) {
    std::vector<std::byte> data(values.size() * sizeof(float));
    if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
    return add_tensor(name, DataType::float32, shape, std::move(data));
  }
  // A tensor of any type. Throws std::logic_error where the size of `data` does not fit the shape:
  // break sizes through tensor(name).
  GgufWriter& add_tensor(std::string_view name, DataType type,
                         const std::vector<std::int64_t>& shape, std::vector<std::byte> data) {
    const auto elements =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    const DataTypeTraits traits = traits_of(type);
    if (static_cast<std::size_t>(elements) / traits.block_elements * traits.block_bytes !=
        data.size()) {
      throw std::logic_error("GgufWriter::add_tensor " + std::string(name) +
                             ": the data's size does not fit the shape");
    }
    Tensor tensor;
    tensor.name = name;
    tensor.file_dimensions.assign(shape.rbegin(), shape.rend());
    tensor.type = gguf_tensor_type(type);
    tensor.data = std::move(data);
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // The first tensor of that name, to be changed; the reference stays valid.
  Tensor& tensor(std::string_view name) {
    for (Tensor& tensor : tensors_) {
      if (tensor.name == name) return tensor;
    }
    throw std::logic_error("GgufWriter::tensor: no tensor " + std::string(name));
  }

  // What the header says instead of the truth.
  GgufWriter& set_magic(std::string_view four_bytes) {
    magic_ = four_bytes;
    return *this;
  }
  GgufWriter& set_version(std::uint32_t version) {
    version_ = version;
    return *this;
  }
  GgufWriter& set_tensor_count(std::uint64_t count) {
    tensor_count_ = count;
    return *this;
  }
  GgufWriter& set_metadata_count(std::uint64_t count) {
    metadata_count_ = count;
    return *this;
  }

  std::vector<std::byte> bytes() const {
    GgufBytes file;
    file.put_plain(magic_).put(version_);
    file.put(tensor_count_.value_or(tensors_.size()));
    file.put(metadata_count_.value_or(metadata_entries_)).put_plain(metadata_.bytes());
    GgufBytes data;
    for (const Tensor& tensor : tensors_) {
      data.pad_to(alignment_);
      file.put(tensor.name);
      file.put(tensor.dimension_count.value_or(
          static_cast<std::uint32_t>(tensor.file_dimensions.size())));
      for (const std::uint64_t dimension : tensor.file_dimensions) file.put(dimension);
      file.put(tensor.type);
      file.put(tensor.offset.value_or(static_cast<std::uint64_t>(data.size())));
      data.put_plain(tensor.data);
    }
    if (!tensors_.empty()) file.pad_to(alignment_).put_plain(data.bytes());
    return file.bytes();
  }

  void write(const std::string& path) const { write_bytes(path, bytes()); }

  static void write_bytes(const std::string& path, const std::vector<std::byte>& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error("GgufWriter: cannot write " + path);
  }

 private:
  std::string magic_ = "GGUF";
  std::uint32_t version_ = 3;
  std::optional<std::uint64_t> tensor_count_;
  std::optional<std::uint64_t> metadata_count_;
  std::size_t alignment_ = 32;
  GgufBytes metadata_;
  std::uint64_t metadata_entries_ = 0;
  std::deque<Tensor> tensors_;  // a deque, so that tensor() stays valid
};

}  // namespace test_support
}  // namespace octet
