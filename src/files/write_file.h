// Writes whole files so that a reader never meets half of one.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace octet {

// Writes a temporary file beside `path` and renames it: `path` then holds all of `bytes`, or what
// it held before. Throws Error{bad_input} that names the path and the system's reason.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace octet
