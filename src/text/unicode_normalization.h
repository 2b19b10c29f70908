// Canonical composition (Unicode normalisation form C, UAX #15).
#pragma once

#include <string>
#include <string_view>

namespace octet {

// True only for text that normalize_nfc would give back as it is; a quick test that holds for all
// text below U+0300, where nothing combines.
bool is_plainly_nfc(std::string_view valid_text);

// NFC as the `tokenizers` package's normaliser makes it, which knows Unicode 9: younger characters
// neither decompose, combine, nor change places. n log n in the length of a run of combining marks.
std::string normalize_nfc(std::string_view valid_text);

}  // namespace octet
