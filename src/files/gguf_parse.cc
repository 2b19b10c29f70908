#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"
#include "files/gguf_directory.h"

namespace octet {

namespace {

constexpr std::uint32_t supported_version = 3;
constexpr std::uint64_t default_alignment = 32;
constexpr std::uint64_t min_alignment = 8;  // the specification: a multiple of 8
constexpr std::uint64_t max_alignment = std::uint64_t{1} << 21;  // a huge page; none needs more
constexpr std::size_t max_key_bytes = 65535;                     // the specification's limit
constexpr std::size_t max_tensor_name_bytes = 64;                // likewise
constexpr std::uint32_t max_dimensions = 4;                      // likewise
constexpr int max_array_depth = 8;  // real files nest none; a limit keeps the recursion bounded

// The least that one record takes in the file: no count may promise more than fit in what is left.
constexpr std::uint64_t min_entry_bytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t min_tensor_record_bytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr std::uint64_t string_header_bytes = 8;
constexpr std::uint64_t array_header_bytes = 4 + 8;

struct FileType {
  std::uint32_t number;
  std::string_view name;
  std::optional<DataType> type;  // nothing: known to ggml, not read by octet
};

// enum ggml_type of ggml.h.
constexpr FileType file_types[] = {
    {0, "F32", DataType::float32},    {1, "F16", DataType::float16},
    {2, "Q4_0", DataType::q4_0},      {3, "Q4_1", DataType::q4_1},
    {6, "Q5_0", DataType::q5_0},      {7, "Q5_1", DataType::q5_1},
    {8, "Q8_0", DataType::q8_0},      {9, "Q8_1", std::nullopt},
    {10, "Q2_K", DataType::q2_k},     {11, "Q3_K", DataType::q3_k},
    {12, "Q4_K", DataType::q4_k},     {13, "Q5_K", DataType::q5_k},
    {14, "Q6_K", DataType::q6_k},     {15, "Q8_K", std::nullopt},
    {16, "IQ2_XXS", std::nullopt},    {17, "IQ2_XS", std::nullopt},
    {18, "IQ3_XXS", std::nullopt},    {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", DataType::iq4_nl}, {21, "IQ3_S", std::nullopt},
    {22, "IQ2_S", std::nullopt},      {23, "IQ4_XS", DataType::iq4_xs},
    {24, "I8", std::nullopt},         {25, "I16", std::nullopt},
    {26, "I32", std::nullopt},        {27, "I64", std::nullopt},
    {28, "F64", std::nullopt},        {29, "IQ1_M", std::nullopt},
    {30, "BF16", DataType::bfloat16}, {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},      {39, "MXFP4", DataType::mxfp4},
    {40, "NVFP4", std::nullopt},
};

std::string readable_types() {
  std::string list;
  for (const FileType& type : file_types) {
    if (!type.type) continue;
    if (!list.empty()) list += ", ";
    list += type.name;
  }
  return list;
}

// Reads the directory from front to back. What is being read is kept as a kind, a number and, once
// known, a name, and only made into words when there is an error.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  GgufDirectory parse() {
    read_header();
    read_entries();
    read_alignment();
    read_tensors();
    place_tensors();
    return std::move(directory_);
  }

 private:
  struct Subject {
    std::string_view kind;
    std::uint64_t number = 0;  // from 1, in the file's order
    std::uint64_t count = 0;
    std::string_view name;
  };

  std::string describe_subject() const {
    if (subject_.kind.empty()) return "header";
    if (!subject_.name.empty()) {
      return fmt::format("{} {}", subject_.kind, printable(subject_.name));
    }
    return fmt::format("{} number {} of {}", subject_.kind, subject_.number, subject_.count);
  }

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_bad_input("{}: {}: {}", file_, describe_subject(),
                    fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  [[noreturn]] void fail_unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    throw_unsupported("{}: {}: {}", file_, describe_subject(),
                      fmt::format(format, std::forward<Args>(args)...));
  }

  std::uint64_t remaining() const { return bytes_.size() - position_; }

  const std::byte* take(std::uint64_t count, std::string_view what) {
    if (count > remaining()) {
      fail("the {} at byte {} needs {} bytes, but the file ends after {} bytes", what, position_,
           count, bytes_.size());
    }
    const std::byte* data = bytes_.data() + position_;
    position_ += static_cast<std::size_t>(count);
    return data;
  }

  template <typename T>
  T read(std::string_view what) {
    return load_unaligned<T>(take(sizeof(T), what));
  }

  std::string_view read_string(std::string_view what) {
    const std::size_t start = position_;
    const auto length = read<std::uint64_t>(what);
    if (length > remaining()) {
      fail("the {} at byte {} claims a length of {} bytes, but the file ends after {} bytes", what,
           start, length, bytes_.size());
    }
    return {reinterpret_cast<const char*>(take(length, what)), static_cast<std::size_t>(length)};
  }

  // A key or a tensor's name.
  std::string_view read_name(std::string_view what, std::size_t max_bytes) {
    const std::string_view name = read_string(what);
    if (name.empty()) fail("the {} is empty, expected 1 to {} bytes", what, max_bytes);
    if (name.size() > max_bytes) {
      fail("the {} {} has {} bytes, expected at most {}", what, printable(name), name.size(),
           max_bytes);
    }
    if (!is_valid_utf8(name)) fail("the {} {} is not valid UTF-8", what, printable(name));
    return name;
  }

  void read_header();
  void read_entries();
  GgufEntry read_entry();
  GgufValueType read_type(std::string_view what);
  void skip_elements(GgufValueType type, std::uint64_t count, int depth);
  void read_alignment();
  void read_tensors();
  void read_tensor();
  DataType read_tensor_type();
  void place_tensors();
  void refuse_overlaps();
  std::optional<std::uint64_t> find_unsigned(std::string_view key);

  std::span<const std::byte> bytes_;
  const std::string& file_;
  std::size_t position_ = 0;
  Subject subject_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t entry_count_ = 0;
  std::uint64_t alignment_ = default_alignment;
  std::vector<std::uint64_t> offsets_;  // of the tensors, from the start of the data
  GgufDirectory directory_;
};

void Parser::read_header() {
  if (bytes_.empty()) throw_bad_input("{}: is empty, expected a GGUF file", file_);
  const std::string_view magic(reinterpret_cast<const char*>(bytes_.data()),
                               std::min<std::size_t>(bytes_.size(), 4));
  if (magic == "FUGG") {
    throw_unsupported("{}: is a big-endian GGUF file, expected a little-endian one", file_);
  }
  if (magic != "GGUF") {
    const bool is_of_folder = file_.ends_with(".safetensors") || file_.ends_with(".json");
    throw_bad_input("{}: is not a GGUF file: it starts with {}, expected 'GGUF'{}", file_,
                    printable(magic),
                    is_of_folder ? " (a Hugging Face model is named by its folder)" : "");
  }
  position_ = 4;
  const auto version = read<std::uint32_t>("version");
  if (version != 0 && (version & 0xFFFFu) == 0) {
    throw_unsupported("{}: is a big-endian GGUF file, expected a little-endian one", file_);
  }
  if (version != supported_version) {
    throw_unsupported("{}: has GGUF version {}, expected version {}", file_, version,
                      supported_version);
  }
  tensor_count_ = read<std::uint64_t>("tensor count");
  entry_count_ = read<std::uint64_t>("metadata count");
  if (entry_count_ > remaining() / min_entry_bytes) {
    fail("claims {} metadata entries, but the file's {} bytes hold at most {}", entry_count_,
         bytes_.size(), remaining() / min_entry_bytes);
  }
  const std::uint64_t rest = remaining() - entry_count_ * min_entry_bytes;
  if (tensor_count_ > rest / min_tensor_record_bytes) {
    fail("claims {} tensors, but the file's {} bytes hold at most {}", tensor_count_, bytes_.size(),
         rest / min_tensor_record_bytes);
  }
}

void Parser::read_entries() {
  for (std::uint64_t index = 0; index < entry_count_; ++index) {
    subject_ = {"metadata key", index + 1, entry_count_, {}};
    const GgufEntry entry = read_entry();
    directory_.entry_index.add(entry.key, directory_.entries.size());
    directory_.entries.push_back(entry);
  }
  if (const auto twice = directory_.entry_index.sort()) {
    subject_.name = *twice;
    fail("stands in the file twice, expected once");
  }
}

GgufEntry Parser::read_entry() {
  GgufEntry entry;
  entry.key = read_name("key", max_key_bytes);
  subject_.name = entry.key;
  entry.type = read_type("value type");
  entry.element_type = entry.type;
  if (entry.type == GgufValueType::array) {
    entry.element_type = read_type("array's element type");
    entry.count = read<std::uint64_t>("array's length");
    entry.data = bytes_.data() + position_;
    skip_elements(entry.element_type, entry.count, 1);
  } else {
    entry.data = bytes_.data() + position_;
    skip_elements(entry.type, 1, 0);
  }
  return entry;
}

GgufValueType Parser::read_type(std::string_view what) {
  const auto number = read<std::uint32_t>(what);
  if (number > static_cast<std::uint32_t>(GgufValueType::float64)) {
    fail("the {} is {}, expected 0 to {}", what, number,
         static_cast<std::uint32_t>(GgufValueType::float64));
  }
  return static_cast<GgufValueType>(number);
}

// Checks `count` values of a type and moves past them. Every value takes at least a byte of the
// file, so the time is linear in its size.
void Parser::skip_elements(GgufValueType type, std::uint64_t count, int depth) {
  const std::uint64_t each = type == GgufValueType::string  ? string_header_bytes
                             : type == GgufValueType::array ? array_header_bytes
                                                            : size_of(type);
  if (count > remaining() / each) {
    fail("claims {} values of type {} at byte {}, but the file ends after {} bytes", count,
         name_of(type), position_, bytes_.size());
  }
  switch (type) {
    case GgufValueType::string:
      for (std::uint64_t index = 0; index < count; ++index) read_string("string");
      break;
    case GgufValueType::array:
      if (depth >= max_array_depth) fail("nests arrays deeper than {}", max_array_depth);
      for (std::uint64_t index = 0; index < count; ++index) {
        const GgufValueType element_type = read_type("nested array's element type");
        skip_elements(element_type, read<std::uint64_t>("nested array's length"), depth + 1);
      }
      break;
    case GgufValueType::boolean: {
      const std::byte* values = take(count, "bool");
      for (std::uint64_t index = 0; index < count; ++index) {
        if (values[index] > std::byte{1}) {
          fail("holds the bool {}, expected 0 or 1", std::to_integer<int>(values[index]));
        }
      }
      break;
    }
    default:
      take(count * each, "value");
  }
}

std::optional<std::uint64_t> Parser::find_unsigned(std::string_view key) {
  const std::size_t position = directory_.entry_index.find(key);
  if (position == NameIndex::npos) return std::nullopt;
  const GgufEntry& entry = directory_.entries[position];
  subject_ = {"metadata key", position + 1, entry_count_, entry.key};
  const std::optional<std::uint64_t> value = read_unsigned(entry.type, entry.data);
  if (!value) fail("expected an integer that is not negative");
  return value;
}

void Parser::read_alignment() {
  alignment_ = find_unsigned("general.alignment").value_or(default_alignment);
  if (!std::has_single_bit(alignment_) || alignment_ < min_alignment ||
      alignment_ > max_alignment) {
    fail("is {}, expected a power of two from {} to {}", alignment_, min_alignment, max_alignment);
  }
}

void Parser::read_tensors() {
  for (std::uint64_t index = 0; index < tensor_count_; ++index) {
    subject_ = {"tensor", index + 1, tensor_count_, {}};
    read_tensor();
  }
  if (const auto twice = directory_.tensor_index.sort()) {
    subject_.name = *twice;
    fail("stands in the file twice, expected once");
  }
}

void Parser::read_tensor() {
  const std::string_view name = read_name("name", max_tensor_name_bytes);
  subject_.name = name;
  TensorView tensor;
  tensor.name = name;
  const auto dimensions = read<std::uint32_t>("number of dimensions");
  if (dimensions < 1 || dimensions > max_dimensions) {
    fail("has {} dimensions, expected 1 to {}", dimensions, max_dimensions);
  }
  tensor.shape.resize(dimensions);
  std::int64_t elements = 1;
  for (std::size_t axis = dimensions; axis-- > 0;) {  // the file's order is innermost first
    const auto extent = read<std::uint64_t>("dimension");
    if (extent == 0) fail("has a dimension of 0, expected at least 1");
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      fail("has dimensions whose product exceeds 63 bits");
    }
    tensor.shape[axis] = static_cast<std::int64_t>(extent);
  }
  tensor.dtype = read_tensor_type();
  const DataTypeTraits traits = traits_of(tensor.dtype);
  if (tensor.shape.back() % traits.block_elements != 0) {
    fail("has rows of {} elements, expected a multiple of {}, the block of type {}",
         tensor.shape.back(), traits.block_elements, traits.name);
  }
  const auto blocks = static_cast<std::uint64_t>(elements) / traits.block_elements;
  if (__builtin_mul_overflow(blocks, std::uint64_t{traits.block_bytes}, &tensor.bytes)) {
    fail("has dimensions {} that need more bytes than 64 bits count", format_shape(tensor.shape));
  }
  const auto offset = read<std::uint64_t>("offset");
  if (offset % alignment_ != 0) {
    fail("has the offset {}, expected a multiple of the alignment {}", offset, alignment_);
  }
  directory_.tensor_index.add(name, directory_.tensors.size());
  directory_.tensors.push_back(std::move(tensor));
  offsets_.push_back(offset);
}

DataType Parser::read_tensor_type() {
  const auto number = read<std::uint32_t>("type");
  for (const FileType& type : file_types) {
    if (type.number != number) continue;
    if (type.type) return *type.type;
    fail_unsupported("has type {}, expected one of {}", type.name, readable_types());
  }
  fail_unsupported("has the unknown type number {}, expected one of {}", number, readable_types());
}

void Parser::place_tensors() {
  // No overflow: a mapped file is shorter than 2^63 bytes.
  const std::uint64_t data_start = (position_ + alignment_ - 1) / alignment_ * alignment_;
  const std::uint64_t data_bytes = bytes_.size() > data_start ? bytes_.size() - data_start : 0;
  for (std::size_t index = 0; index < offsets_.size(); ++index) {
    TensorView& tensor = directory_.tensors[index];
    subject_ = {"tensor", index + 1, tensor_count_, tensor.name};
    if (offsets_[index] > data_bytes || tensor.bytes > data_bytes - offsets_[index]) {
      fail("needs {} bytes at offset {} of the data, but the data ends after {} bytes",
           tensor.bytes, offsets_[index], data_bytes);
    }
    tensor.data = bytes_.data() + data_start + offsets_[index];
  }
  refuse_overlaps();
}

void Parser::refuse_overlaps() {
  std::vector<std::size_t> order(offsets_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t left, std::size_t right) { return offsets_[left] < offsets_[right]; });
  for (std::size_t place = 1; place < order.size(); ++place) {
    const std::size_t before = order[place - 1];
    const std::size_t here = order[place];
    if (offsets_[before] + directory_.tensors[before].bytes <= offsets_[here]) continue;
    subject_ = {"tensor", here + 1, tensor_count_, directory_.tensors[here].name};
    fail("overlaps tensor {}, expected a place of its own",
         printable(directory_.tensors[before].name));
  }
}

}  // namespace

GgufDirectory parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  return Parser(bytes, file).parse();
}

}  // namespace octet
