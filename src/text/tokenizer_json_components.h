// The parts of tokenizer.json that say what happens around the merges. Each function takes the part
// (or nothing, where the file has null) and refuses by name what octet does not know.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/json_node.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace octet {

Normalizer read_normalizer(const std::optional<JsonNode>& node);

struct SplittingComponent {
  Normalizer spacing;  // what pre-tokenizers do to the text itself (metaspaces, a space before it)
  PreTokenizer pre_tokenizer;
  bool byte_level = false;  // ends in GPT-2's alphabet
};
SplittingComponent read_pre_tokenizer(const std::optional<JsonNode>& node);

struct DecodingComponent {
  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<std::pair<std::string, std::string>> replacements;
  bool strips_leading_space = false;
};
DecodingComponent read_decoder(const std::optional<JsonNode>& node);

// The name of the token that is put before a text, where one is.
std::optional<std::string> read_post_processor(const std::optional<JsonNode>& node);

}  // namespace octet
