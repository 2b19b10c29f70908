// The byte-level alphabet of GPT-2's vocabulary: a printable character for each of the 256 bytes.
//
// Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves (as code points); the other 68, in
// increasing order, are U+0100, U+0101, ...: space is U+0120, newline U+010A. Source:
// bytes_to_unicode() in openai/gpt-2's encoder.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octet {

char32_t byte_level_character(std::uint8_t byte);

// The bytes that a token spelled in this alphabet stands for; nothing if it is no such token. The
// token must be valid UTF-8.
std::optional<std::string> byte_level_bytes(std::string_view token);

}  // namespace octet
