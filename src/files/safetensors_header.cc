#include "files/safetensors_header.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "core/error.h"
#include "core/json_reader.h"
#include "core/printable.h"
#include "files/name_index.h"

namespace octet {

namespace {

constexpr std::uint64_t length_bytes = 8;
// The limit of the format's own library. What is kept of a header is at most four times its text.
constexpr std::uint64_t max_header_bytes = 100'000'000;
constexpr std::size_t max_dimensions = 16;  // real tensors have at most 5

struct FileType {
  std::string_view name;
  std::uint32_t bits;
  std::optional<DataType> dtype;  // nothing: known to the format, not computed with
};

// `Dtype` of the safetensors library.
constexpr FileType file_types[] = {
    {"F32", 32, DataType::float32},   {"F16", 16, DataType::float16},
    {"BF16", 16, DataType::bfloat16}, {"F8_E4M3", 8, DataType::float8_e4m3},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},     {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},          {"F64", 64, std::nullopt},
    {"BOOL", 8, std::nullopt},        {"U8", 8, std::nullopt},
    {"I8", 8, std::nullopt},          {"U16", 16, std::nullopt},
    {"I16", 16, std::nullopt},        {"U32", 32, std::nullopt},
    {"I32", 32, std::nullopt},        {"U64", 64, std::nullopt},
    {"I64", 64, std::nullopt},        {"C64", 64, std::nullopt},
};

const FileType* find_type(std::string_view name) {
  const auto* type = std::find_if(std::begin(file_types), std::end(file_types),
                                  [&](const FileType& known) { return known.name == name; });
  return type == std::end(file_types) ? nullptr : type;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file)
      : file_(file),
        header_(find_header(bytes, file)),
        data_(bytes.subspan(length_bytes + header_.size())),
        reader_(header_, file_) {}

  SafetensorsDirectory parse() {
    reader_.begin_object();
    while (const auto key = reader_.next_key()) {
      if (*key == "__metadata__") {
        read_metadata();
      } else {
        read_tensor(std::string(*key));
      }
    }
    reader_.finish();
    refuse_gaps_and_overlaps();
    return std::move(directory_);
  }

 private:
  struct Extent {  // of the data, in bytes from its start
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  static std::string_view find_header(std::span<const std::byte> bytes, const std::string& file) {
    if (bytes.empty()) throw_bad_input("{}: is empty, expected a safetensors file", file);
    if (bytes.size() < length_bytes) {
      throw_bad_input(
          "{}: has {} bytes, expected the length of a safetensors header in the first {}", file,
          bytes.size(), length_bytes);
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), length_bytes);
    if (length > bytes.size() - length_bytes) {
      throw_bad_input(
          "{}: is no safetensors file, or cut short: claims a header of {} bytes, but the file "
          "ends "
          "after {} bytes",
          file, length, bytes.size());
    }
    if (length > max_header_bytes) {
      throw_bad_input("{}: has a header of {} bytes, expected at most {}", file, length,
                      max_header_bytes);
    }
    const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + length_bytes,
                                  static_cast<std::size_t>(length));
    if (!header.starts_with('{')) {
      throw_bad_input("{}: is not a safetensors file: its header starts with {}, expected '{{'",
                      file, printable(header.substr(0, 4)));
    }
    return header;
  }

  template <typename... Args>
  [[noreturn]] void fail(std::string_view name, fmt::format_string<Args...> format,
                         Args&&... args) const {
    throw_bad_input("{}: tensor {}: {}", file_, printable(name),
                    fmt::format(format, std::forward<Args>(args)...));
  }

  void read_metadata();
  void read_tensor(std::string name);
  const FileType& read_type(std::string_view name);
  std::vector<std::int64_t> read_shape(std::string_view name);
  Extent read_extent(std::string_view name);
  void place(StoredTensor& tensor, const FileType& type, const Extent& extent);
  void refuse_gaps_and_overlaps() const;

  const std::string& file_;
  std::string_view header_;
  std::span<const std::byte> data_;
  JsonReader reader_;
  bool has_metadata_ = false;
  std::vector<Extent> extents_;  // of the tensors
  SafetensorsDirectory directory_;
};

void Parser::read_metadata() {
  if (has_metadata_)
    throw_bad_input("{}: has the key '__metadata__' twice, expected it once", file_);
  has_metadata_ = true;
  if (reader_.try_null()) return;
  auto& metadata = directory_.metadata;
  reader_.begin_object();
  while (const auto key = reader_.next_key()) {
    metadata.emplace_back(*key, "");
    metadata.back().second = reader_.read_string();
  }
  NameIndex index;
  for (std::size_t i = 0; i < metadata.size(); ++i) index.add(metadata[i].first, i);
  if (const auto twice = index.sort()) {
    throw_bad_input("{}: its metadata has the key {} twice, expected it once", file_,
                    printable(*twice));
  }
}

void Parser::read_tensor(std::string name) {
  StoredTensor tensor;
  tensor.view.name = std::move(name);
  const std::string& named = tensor.view.name;
  const FileType* type = nullptr;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<Extent> extent;
  reader_.begin_object();
  while (const auto key = reader_.next_key()) {
    const auto refuse_second = [&](bool first) {
      if (!first) fail(named, "has the key {} twice, expected it once", printable(*key));
    };
    if (*key == "dtype") {
      refuse_second(type == nullptr);
      type = &read_type(named);
    } else if (*key == "shape") {
      refuse_second(!shape);
      shape = read_shape(named);
    } else if (*key == "data_offsets") {
      refuse_second(!extent);
      extent = read_extent(named);
    } else {
      fail(named, "has the unknown key {}, expected dtype, shape and data_offsets",
           printable(*key));
    }
  }
  if (type == nullptr) fail(named, "has no dtype");
  if (!shape) fail(named, "has no shape");
  if (!extent) fail(named, "has no data_offsets");
  tensor.view.shape = *std::move(shape);
  place(tensor, *type, *extent);
  directory_.tensors.push_back(std::move(tensor));
  extents_.push_back(*extent);
}

const FileType& Parser::read_type(std::string_view name) {
  const std::string_view word = reader_.read_string();
  const FileType* type = find_type(word);
  if (type == nullptr) {
    throw_unsupported("{}: tensor {}: has the unknown type {}, expected one of {}", file_,
                      printable(name), printable(word), readable_safetensors_types());
  }
  return *type;
}

std::vector<std::int64_t> Parser::read_shape(std::string_view name) {
  std::vector<std::int64_t> shape;
  reader_.begin_array();
  while (reader_.next_element()) {
    const std::uint64_t size = reader_.read_uint();
    if (size > INT64_MAX) fail(name, "has a dimension of {}, expected at most 63 bits", size);
    if (shape.size() == max_dimensions) fail(name, "has more than {} dimensions", max_dimensions);
    shape.push_back(static_cast<std::int64_t>(size));
  }
  return shape;
}

Parser::Extent Parser::read_extent(std::string_view name) {
  std::uint64_t offsets[2] = {};
  std::size_t count = 0;
  reader_.begin_array();
  while (reader_.next_element()) {
    const std::uint64_t offset = reader_.read_uint();
    if (count < 2) offsets[count] = offset;
    ++count;
  }
  if (count != 2) fail(name, "has {} data_offsets, expected 2", count);
  return {offsets[0], offsets[1]};
}

void Parser::place(StoredTensor& tensor, const FileType& type, const Extent& extent) {
  TensorView& view = tensor.view;
  if (extent.begin > extent.end) {
    fail(view.name, "begins at byte {} of the data and ends at byte {}", extent.begin, extent.end);
  }
  if (extent.end > data_.size()) {
    fail(view.name, "ends at byte {} of the data, but the data ends after {} bytes", extent.end,
         data_.size());
  }
  // A dimension of 0 must not hide others whose product has no meaning.
  std::uint64_t bits = type.bits;
  for (const std::int64_t size : view.shape) {
    if (__builtin_mul_overflow(bits, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)),
                               &bits)) {
      fail(view.name, "has dimensions {} that need more bytes than 61 bits count",
           format_shape(view.shape));
    }
  }
  if (std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end()) bits = 0;
  if (bits % 8 != 0) {
    fail(view.name, "has dimensions {} of type {}, which are no whole bytes",
         format_shape(view.shape), type.name);
  }
  view.bytes = static_cast<std::size_t>(extent.end - extent.begin);
  if (bits / 8 != view.bytes) {
    fail(view.name, "has {} bytes, but its dimensions {} of type {} need {}", view.bytes,
         format_shape(view.shape), type.name, bits / 8);
  }
  view.data = data_.data() + extent.begin;
  view.dtype = type.dtype.value_or(DataType::float32);
  tensor.type = type.name;
  tensor.dtype = type.dtype;
}

// The tensors cover the data exactly: no byte is of two tensors or of none.
void Parser::refuse_gaps_and_overlaps() const {
  std::vector<std::size_t> order(extents_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    const Extent& a = extents_[left];
    const Extent& b = extents_[right];
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t covered = 0;
  const StoredTensor* before = nullptr;
  for (const std::size_t index : order) {
    const StoredTensor& tensor = directory_.tensors[index];
    const Extent& extent = extents_[index];
    if (extent.begin < covered) {
      fail(tensor.view.name, "overlaps tensor {}, expected a place of its own",
           printable(before->view.name));
    }
    if (extent.begin > covered) {
      fail(tensor.view.name, "begins at byte {} of the data, but bytes {} to {} are of no tensor",
           extent.begin, covered, extent.begin);
    }
    covered = extent.end;
    before = &tensor;
  }
  if (covered != data_.size()) {
    throw_bad_input("{}: has {} bytes of data, but its tensors end after {}", file_, data_.size(),
                    covered);
  }
}

}  // namespace

SafetensorsDirectory parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  return Parser(bytes, file).parse();
}

std::string readable_safetensors_types() {
  std::string list;
  for (const FileType& type : file_types) {
    if (!type.dtype) continue;
    if (!list.empty()) list += ", ";
    list += type.name;
  }
  return list;
}

}  // namespace octet
