#include "files/safetensors_writer.h"

#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/json.h"

namespace octet {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

std::vector<std::byte> encode_safetensors(
    const std::vector<FloatTensor>& tensors,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  Json header = Json::object();
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::size_t offset = 0;
  for (const FloatTensor& tensor : tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= extent;
    if (elements != static_cast<std::int64_t>(tensor.values.size())) {
      throw_error(ErrorKind::internal, "tensor {} has {} values, and its shape says {}",
                  tensor.name, tensor.values.size(), elements);
    }
    Json& entry = header[tensor.name];
    entry["dtype"] = "F32";
    entry["shape"] = tensor.shape;
    const std::size_t end = offset + tensor.values.size() * sizeof(float);
    entry["data_offsets"] = {offset, end};
    offset = end;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts at a multiple of 8

  const std::uint64_t header_bytes = text.size();
  std::vector<std::byte> bytes(sizeof(header_bytes) + text.size() + offset);
  std::byte* at = bytes.data();
  const auto append = [&at](const void* data, std::size_t size) {
    if (size > 0) std::memcpy(at, data, size);
    at += size;
  };
  append(&header_bytes, sizeof(header_bytes));
  append(text.data(), text.size());
  for (const FloatTensor& tensor : tensors) {
    append(tensor.values.data(), tensor.values.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace octet
