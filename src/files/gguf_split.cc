#include "files/gguf_split.h"

#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/printable.h"

namespace octet {

namespace {

constexpr std::uint64_t max_parts = 10'000;

std::optional<std::uint64_t> find_unsigned(const GgufDirectory& directory, const std::string& file,
                                           std::string_view key) {
  const std::size_t position = directory.entry_index.find(key);
  if (position == NameIndex::npos) return std::nullopt;
  const GgufEntry& entry = directory.entries[position];
  const std::optional<std::uint64_t> value = read_unsigned(entry.type, entry.data);
  if (!value) {
    throw_bad_input("{}: metadata key {}: expected an integer that is not negative", file,
                    printable(key));
  }
  return value;
}

// What every part says of itself; `number` is from 0.
void expect_part(const GgufDirectory& part, const std::string& path, std::uint64_t number,
                 std::uint64_t count) {
  if (find_unsigned(part, path, "split.count").value_or(1) != count) {
    throw_bad_input("{}: metadata key 'split.count' is {}, but the first part has {}", path,
                    find_unsigned(part, path, "split.count").value_or(1), count);
  }
  const std::optional<std::uint64_t> own_number = find_unsigned(part, path, "split.no");
  if (!own_number) throw_bad_input("{}: metadata key 'split.no' is missing", path);
  if (*own_number != number) {
    throw_bad_input("{}: metadata key 'split.no' is {}, expected {} of this part", path,
                    *own_number, number);
  }
}

}  // namespace

std::uint64_t count_of_parts(const GgufDirectory& first, const std::string& path) {
  const std::uint64_t count = find_unsigned(first, path, "split.count").value_or(1);
  if (count == 0 || count > max_parts) {
    throw_bad_input("{}: metadata key 'split.count' is {}, expected 1 to {}", path, count,
                    max_parts);
  }
  if (count == 1) return 1;
  const std::uint64_t number = find_unsigned(first, path, "split.no").value_or(0);
  if (number != 0) {
    throw_bad_input("{}: is part {} of a model in {} files, expected the first of them", path,
                    number + 1, count);
  }
  return count;
}

std::string path_of_part(const std::string& first_path, std::uint64_t part, std::uint64_t count) {
  const std::string ending = fmt::format("-{:05}-of-{:05}.gguf", 1, count);
  if (!first_path.ends_with(ending)) {
    throw_bad_input("{}: is the first of {} files, expected a name that ends with {}", first_path,
                    count, printable(ending));
  }
  return fmt::format("{}-{:05}-of-{:05}.gguf",
                     std::string_view(first_path).substr(0, first_path.size() - ending.size()),
                     part + 1, count);
}

void add_part(GgufDirectory& model, GgufDirectory part, const std::string& part_path,
              std::uint64_t number, std::uint64_t count) {
  expect_part(part, part_path, number, count);
  for (const GgufEntry& entry : part.entries) {
    const bool is_known = entry.key.starts_with("split.") || entry.key == "general.alignment" ||
                          model.entry_index.find(entry.key) != NameIndex::npos;
    if (is_known) continue;
    throw_bad_input("{}: metadata key {} is not in the first part, expected all of them there",
                    part_path, printable(entry.key));
  }
  model.tensors.insert(model.tensors.end(), std::make_move_iterator(part.tensors.begin()),
                       std::make_move_iterator(part.tensors.end()));
}

void finish_parts(GgufDirectory& model, const std::string& path) {
  model.tensor_index = {};
  for (std::size_t position = 0; position < model.tensors.size(); ++position) {
    model.tensor_index.add(model.tensors[position].name, position);
  }
  if (const auto twice = model.tensor_index.sort()) {
    throw_bad_input("{}: tensor {}: stands in two parts of the model, expected it in one", path,
                    printable(*twice));
  }
  const std::optional<std::uint64_t> tensors = find_unsigned(model, path, "split.tensors.count");
  if (tensors && *tensors != model.tensors.size()) {
    throw_bad_input("{}: metadata key 'split.tensors.count' is {}, but the parts have {} tensors",
                    path, *tensors, model.tensors.size());
  }
}

}  // namespace octet
