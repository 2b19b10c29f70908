#include "files/gguf.h"

#include <deque>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"
#include "files/gguf_directory.h"
#include "files/gguf_split.h"
#include "files/mapped_file.h"

namespace octet {

struct GgufFile::Contents {
  std::string path;
  std::deque<MappedFile> mappings;  // one for each part; or else `owned` holds the bytes
  std::vector<std::byte> owned;
  std::uint64_t file_bytes = 0;
  GgufDirectory directory;

  GgufDirectory map(const std::string& file) {
    const std::span<const std::byte> bytes = mappings.emplace_back(file).bytes();
    file_bytes += bytes.size();
    return parse_gguf(bytes, file);
  }

  const GgufEntry* find(std::string_view key) const {
    const std::size_t position = directory.entry_index.find(key);
    return position == NameIndex::npos ? nullptr : &directory.entries[position];
  }
  [[noreturn]] void fail_type(const GgufEntry& entry, std::string_view expected) const {
    const std::string holds =
        entry.type == GgufValueType::array
            ? fmt::format("an array of {} {} values", entry.count, name_of(entry.element_type))
            : fmt::format("a value of type {}", name_of(entry.type));
    throw_bad_input("{}: metadata key {} holds {}, expected {}", path, printable(entry.key), holds,
                    expected);
  }
};

namespace {

std::string_view string_at(const std::byte* data) {
  const auto length = static_cast<std::size_t>(load_unaligned<std::uint64_t>(data));
  return {reinterpret_cast<const char*>(data) + sizeof(std::uint64_t), length};
}

bool is_float(GgufValueType type) {
  return type == GgufValueType::float32 || type == GgufValueType::float64;
}

double float_at(GgufValueType type, const std::byte* data) {
  return type == GgufValueType::float32 ? static_cast<double>(load_unaligned<float>(data))
                                        : load_unaligned<double>(data);
}

template <typename T>
T require(std::optional<T> value, const std::string& path, std::string_view key,
          std::string_view expected) {
  if (!value) {
    throw_bad_input("{}: metadata key {} is missing, expected {}", path, printable(key), expected);
  }
  return *std::move(value);
}

constexpr std::string_view an_unsigned = "an integer that is not negative";
constexpr std::string_view a_float = "a value of type f32 or f64";
constexpr std::string_view a_bool = "a value of type bool";
constexpr std::string_view a_string = "a value of type string";
constexpr std::string_view some_strings = "an array of strings";
constexpr std::string_view some_integers = "an array of integers of at most 63 bits";
constexpr std::string_view some_floats = "an array of f32 or f64 values";

}  // namespace

GgufFile::GgufFile() : contents_(std::make_unique<Contents>()) {}
GgufFile::~GgufFile() = default;

std::shared_ptr<const GgufFile> GgufFile::open(const std::string& path) {
  std::shared_ptr<GgufFile> file(new GgufFile());
  Contents& contents = *file->contents_;
  contents.path = path;
  contents.directory = contents.map(path);
  const std::uint64_t parts = count_of_parts(contents.directory, path);
  if (parts == 1) return file;
  for (std::uint64_t part = 1; part < parts; ++part) {
    const std::string part_path = path_of_part(path, part, parts);
    std::error_code error;
    if (!std::filesystem::exists(part_path, error)) {
      throw_bad_input("{}: part {} of {} is missing, expected {}", path, part + 1, parts,
                      part_path);
    }
    add_part(contents.directory, contents.map(part_path), part_path, part, parts);
  }
  finish_parts(contents.directory, path);
  return file;
}

std::shared_ptr<const GgufFile> GgufFile::from_bytes(std::vector<std::byte> bytes,
                                                     const std::string& name) {
  std::shared_ptr<GgufFile> file(new GgufFile());
  Contents& contents = *file->contents_;
  contents.path = name;
  contents.owned = std::move(bytes);
  contents.file_bytes = contents.owned.size();
  contents.directory = parse_gguf(contents.owned, name);
  if (count_of_parts(contents.directory, name) > 1) {
    throw_unsupported("{}: is the first part of a split model, expected all of it", name);
  }
  return file;
}

const std::string& GgufFile::path() const { return contents_->path; }

std::uint64_t GgufFile::file_bytes() const { return contents_->file_bytes; }

bool GgufFile::has(std::string_view key) const { return contents_->find(key) != nullptr; }

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> keys;
  keys.reserve(contents_->directory.entries.size());
  for (const GgufEntry& entry : contents_->directory.entries) keys.emplace_back(entry.key);
  return keys;
}

std::optional<std::uint64_t> GgufFile::find_uint(std::string_view key) const {
  const GgufEntry* entry = contents_->find(key);
  if (entry == nullptr) return std::nullopt;
  if (!is_integer(entry->type)) contents_->fail_type(*entry, an_unsigned);
  const std::optional<std::uint64_t> value = read_unsigned(entry->type, entry->data);
  if (!value) {
    throw_bad_input("{}: metadata key {} is negative, expected {}", path(), printable(key),
                    an_unsigned);
  }
  return value;
}

std::optional<double> GgufFile::find_float(std::string_view key) const {
  const GgufEntry* entry = contents_->find(key);
  if (entry == nullptr) return std::nullopt;
  if (!is_float(entry->type)) contents_->fail_type(*entry, a_float);
  return float_at(entry->type, entry->data);
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const GgufEntry* entry = contents_->find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufValueType::boolean) contents_->fail_type(*entry, a_bool);
  return *entry->data != std::byte{0};
}

std::optional<std::string> GgufFile::find_string(std::string_view key) const {
  const GgufEntry* entry = contents_->find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufValueType::string) contents_->fail_type(*entry, a_string);
  return std::string(string_at(entry->data));
}

std::optional<std::vector<std::string>> GgufFile::find_strings(std::string_view key) const {
  const GgufEntry* entry = contents_->find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufValueType::array || entry->element_type != GgufValueType::string) {
    contents_->fail_type(*entry, some_strings);
  }
  std::vector<std::string> values;
  values.reserve(entry->count);
  const std::byte* data = entry->data;
  for (std::uint64_t index = 0; index < entry->count; ++index) {
    const std::string_view value = string_at(data);
    values.emplace_back(value);
    data += sizeof(std::uint64_t) + value.size();
  }
  return values;
}

std::optional<std::vector<std::int64_t>> GgufFile::find_integers(std::string_view key) const {
  const GgufEntry* entry = contents_->find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufValueType::array || !is_integer(entry->element_type)) {
    contents_->fail_type(*entry, some_integers);
  }
  std::vector<std::int64_t> values;
  values.reserve(entry->count);
  const std::size_t stride = size_of(entry->element_type);
  for (std::uint64_t index = 0; index < entry->count; ++index) {
    visit_integer(entry->element_type, entry->data + index * stride, [&](auto value) {
      if (!std::in_range<std::int64_t>(value)) {
        throw_bad_input("{}: metadata key {} holds {}, expected {}", path(), printable(key), value,
                        some_integers);
      }
      values.push_back(static_cast<std::int64_t>(value));
    });
  }
  return values;
}

std::optional<std::vector<double>> GgufFile::find_floats(std::string_view key) const {
  const GgufEntry* entry = contents_->find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufValueType::array || !is_float(entry->element_type)) {
    contents_->fail_type(*entry, some_floats);
  }
  std::vector<double> values;
  values.reserve(entry->count);
  const std::size_t stride = size_of(entry->element_type);
  for (std::uint64_t index = 0; index < entry->count; ++index) {
    values.push_back(float_at(entry->element_type, entry->data + index * stride));
  }
  return values;
}

std::uint64_t GgufFile::require_uint(std::string_view key) const {
  return require(find_uint(key), path(), key, an_unsigned);
}

double GgufFile::require_float(std::string_view key) const {
  return require(find_float(key), path(), key, a_float);
}

std::string GgufFile::require_string(std::string_view key) const {
  return require(find_string(key), path(), key, a_string);
}

std::vector<std::string> GgufFile::require_strings(std::string_view key) const {
  return require(find_strings(key), path(), key, some_strings);
}

const std::vector<TensorView>& GgufFile::tensors() const { return contents_->directory.tensors; }

const TensorView* GgufFile::find_tensor(std::string_view name) const {
  const std::size_t position = contents_->directory.tensor_index.find(name);
  return position == NameIndex::npos ? nullptr : &contents_->directory.tensors[position];
}

}  // namespace octet
