// A checksum in a safetensors file's metadata, by which damage to small files of octet's own shows:
// a flipped bit in a scale or a mean is a plausible number.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/safetensors.h"
#include "files/safetensors_writer.h"

namespace octet {

// As encode_safetensors, with the key "octet.checksum": a hash over names, types, shapes and bytes
// of the tensors and over the other metadata, whatever their order.
std::vector<std::byte> encode_checked_safetensors(
    const std::vector<FloatTensor>& tensors,
    std::vector<std::pair<std::string, std::string>> metadata = {});

// Throws Error{bad_input} that names the file where it has a checksum, and another than its tensors
// have. A file without one, which other programs wrote, passes: returns whether there is one.
bool check_checksum(const Safetensors& file);

// The value of a key of the metadata, empty where there is none.
std::string_view find_metadata(const Safetensors& file, std::string_view key);

}  // namespace octet
