// What the tokenizers of GGUF files are made of, and how it is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/byte_pair_parts.h"

namespace octet {

// As a file states it: nothing here has been checked. The comments name the GGUF keys, which errors
// name too.
struct BytePairTables {
  std::string source;                         // the file's name, for errors
  std::string model = "gpt2";                 // tokenizer.ggml.model
  std::string pre_tokenizer;                  // tokenizer.ggml.pre
  std::vector<std::string> tokens;            // tokenizer.ggml.tokens
  std::vector<std::int64_t> token_types;      // tokenizer.ggml.token_type; empty: all normal
  std::vector<double> scores;                 // tokenizer.ggml.scores ("llama" only)
  std::vector<std::string> merges;            // tokenizer.ggml.merges, "left right", the best first
  std::optional<std::uint64_t> bos_token_id;  // tokenizer.ggml.bos_token_id, ...
  std::optional<std::uint64_t> eos_token_id;
  std::optional<std::uint64_t> eot_token_id;
  std::optional<std::uint64_t> eom_token_id;
  std::optional<std::uint64_t> unknown_token_id;
  std::optional<bool> add_bos_token;     // tokenizer.ggml.add_bos_token; missing: the family's way
  std::optional<bool> add_space_prefix;  // tokenizer.ggml.add_space_prefix ("llama": true)
};

// Byte-level BPE ("gpt2"), BPE over characters with merges ("gemma4") or with scores ("llama":
// SentencePiece). Throws Error{bad_input} that names the source and the key for broken tables,
// Error{unsupported} for an unknown model or pre-tokenizer.
BytePairParts make_byte_pair_parts(BytePairTables tables);

}  // namespace octet
