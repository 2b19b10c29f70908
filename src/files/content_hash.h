// Tells models apart by what their files hold, without reading all of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/tensor_view.h"

namespace octet {

// 32 hexadecimal digits (XXH3, 128 bits) over the first MiB of `header_file` (a GGUF file's
// metadata starts there; config.json is smaller), and of every tensor the name, type, shape and
// 1 KiB each from its start and its middle: a few milliseconds for any model, and another number
// for any that was trained further. Whoever wants to can craft two models of one hash: it must
// guard nothing but a cache of the user's own.
std::string model_content_hash(const std::string& header_file,
                               const std::vector<const TensorView*>& tensors);

// The same hash over bytes.
std::string content_hash(std::span<const std::byte> bytes);

}  // namespace octet
