#include "files/safetensors_checksum.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/error.h"
#include "files/content_hash.h"

namespace octet {

namespace {

constexpr std::string_view checksum_key = "octet.checksum";

std::string hash_of_text(std::string_view text) {
  return content_hash(std::as_bytes(std::span(text.data(), text.size())));
}

std::string checksum_of(const Safetensors& file) {
  // Each line of hashes: no name or value can run into the next.
  std::vector<std::string> lines;
  for (const StoredTensor& tensor : file.tensors()) {
    lines.push_back(fmt::format("tensor {} {} {} {}\n", hash_of_text(tensor.view.name), tensor.type,
                                format_shape(tensor.view.shape),
                                content_hash({tensor.view.data, tensor.view.bytes})));
  }
  for (const auto& [key, value] : file.metadata()) {
    if (key == checksum_key) continue;
    lines.push_back(fmt::format("metadata {} {}\n", hash_of_text(key), hash_of_text(value)));
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return hash_of_text(text);
}

}  // namespace

std::vector<std::byte> encode_checked_safetensors(
    const std::vector<FloatTensor>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata) {
  const auto unchecked =
      Safetensors::from_bytes(encode_safetensors(tensors, metadata), "what is written");
  metadata.emplace_back(checksum_key, checksum_of(*unchecked));
  return encode_safetensors(tensors, metadata);
}

bool check_checksum(const Safetensors& file) {
  const std::string_view stored = find_metadata(file, checksum_key);
  if (stored.empty()) return false;
  if (stored != checksum_of(file)) {
    throw_bad_input(
        "{}: is damaged: its {} is not that of its tensors (where they were changed on purpose, "
        "leave the checksum out)",
        file.path(), checksum_key);
  }
  return true;
}

std::string_view find_metadata(const Safetensors& file, std::string_view key) {
  for (const auto& [name, value] : file.metadata()) {
    if (name == key) return value;
  }
  return {};
}

}  // namespace octet
